"""A sample of a container's items: which paths they have, of which types, with how many distinct values. For
completions in an editor and for a look at the schema. The sample is taken in equal parts from all partitions, from
places spread over each, within a limit of bytes; nothing is charged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

import orjson

from armillary import limits
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.visits.view_readings import ViewReading, read_view
from armillary.clock import Clock
from armillary.model import documents, layout
from armillary.model.indexes.index_paths import path_text
from armillary.partition.upkeep.background_throttle import Slice
from armillary.storage.engine import View

COUNT_DEFAULT, COUNT_MAX = 1_000, 10_000
_PLACES = 8  # in a partition, from which items are taken
_DEPTH_MAX = 5
_PATHS_MAX = 200
_ELEMENTS_MAX = 20  # of an array that are looked at
_DISTINCT_MAX = 1_000
_EXAMPLES = 3
_EXAMPLE_CHARACTERS_MAX = 100
_SYSTEM = frozenset(("_rid", "_self", "_etag", "_attachments"))
_TYPES = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null", dict: "object"}


@dataclass(slots=True)
class _Found:
    """What was seen at one path."""

    items: int = 0
    types: dict[str, int] = field(default_factory=dict)
    values: set[bytes] = field(default_factory=set)
    examples: list[Any] = field(default_factory=list)
    is_in_item: bool = False  # in the one that is looked at now


async def sample(account: Account, container: Container, count: int) -> dict[str, Any]:
    """The answer of the control API."""
    paths: dict[tuple[str | None, ...], _Found] = {}
    sampled = 0
    async for stored in sampled_items(account, container, count):
        for each in stored:
            _look(documents.plain_json(each), paths)
        sampled += len(stored)
    return {"sampled": sampled, "of": item_count(container), "paths": _paths(container, paths, sampled)}


def item_count(container: Container) -> int:
    return sum(partition.head.item_count for partition in container.partitions.values())


async def sampled_items(account: Account, container: Container, count: int) -> AsyncIterator[list[bytes]]:
    """Up to so many items as they are stored, in small lists. Gives way to other requests after each. The first stretch
    of every partition comes before the second one of any: a sample that ends early has items of all of them."""
    partitions = list(container.partitions.values())
    stretches: list[tuple[int, int, bytes, bytes]] = []
    for index, partition in enumerate(partitions):
        places = pairwise(await read_view(partition, SamplePlaces()))
        stretches += [(place, index, low, high) for place, (low, high) in enumerate(places)]
        await asyncio.sleep(0)
    left_bytes = limits.SAMPLE_BYTES_MAX
    for _, index, low, high in sorted(stretches):
        wanted = count * (index + 1) // len(partitions) - count * index // len(partitions)
        left, start = -(-wanted // _PLACES), low
        while left > 0 and left_bytes > 0:
            taken = await read_view(partitions[index], TakeItems(start, high, left))
            if not taken:
                break
            yield [stored for _, stored in taken]
            await asyncio.sleep(0)
            left -= len(taken)
            left_bytes -= sum(len(stored) for _, stored in taken)
            start = taken[-1][0] + b"\x00"


@dataclass(slots=True)
class SamplePlaces(ViewReading[list[bytes]]):
    """Where to begin in a partition: places spread evenly over the numbers of its items, and the end."""

    def read(self, view: View, clock: Clock) -> list[bytes]:
        end = layout.space_end(layout.ITEMS)
        first = next((key for key, _ in view.scan(layout.ITEMS, end)), None)
        last = next((key for key, _ in view.scan(layout.ITEMS, end, reverse=True)), None)
        if first is None or last is None:
            return []
        low, high = int.from_bytes(first[1:], "big"), int.from_bytes(last[1:], "big") + 1
        starts = dict.fromkeys(low + (high - low) * place // _PLACES for place in range(_PLACES))
        return [*[layout.item_key(start) for start in starts], end]


@dataclass(slots=True)
class TakeItems(ViewReading[list[tuple[bytes, bytes]]]):
    """The first items of a stretch: at most so many, and no longer than a slice."""

    low: bytes
    high: bytes
    most: int

    def read(self, view: View, clock: Clock) -> list[tuple[bytes, bytes]]:
        bound = Slice(clock)
        found: list[tuple[bytes, bytes]] = []
        for key, stored in islice(view.scan(self.low, self.high), self.most):
            found.append((key, stored))
            if not bound.takes(len(stored)):
                break
        return found


def _look(item: dict[str, Any], paths: dict[tuple[str | None, ...], _Found]) -> None:
    seen: list[_Found] = []
    for steps, value in _values(item):
        found = paths.get(steps)
        if found is None:
            if len(paths) >= _PATHS_MAX:
                continue
            found = paths[steps] = _Found()
        if not found.is_in_item:
            found.is_in_item = True
            found.items += 1
            seen.append(found)
        name = _TYPES.get(type(value), "array")
        found.types[name] = found.types.get(name, 0) + 1
        if name not in ("object", "array"):
            text = orjson.dumps(value)
            if text not in found.values and len(found.values) < _DISTINCT_MAX:
                found.values.add(text)
                if len(found.examples) < _EXAMPLES:
                    found.examples.append(value[:_EXAMPLE_CHARACTERS_MAX] if isinstance(value, str) else value)
    for found in seen:
        found.is_in_item = False


def _values(item: dict[str, Any]) -> Iterator[tuple[tuple[str | None, ...], Any]]:
    """The paths of an item with their values, arrays and objects among them."""
    pending: list[tuple[tuple[str | None, ...], Any]] = [((name,), item[name]) for name in item if name not in _SYSTEM]
    while pending:
        steps, value = pending.pop()
        yield steps, value
        if len(steps) >= _DEPTH_MAX:
            continue
        if isinstance(value, dict):
            pending += [((*steps, name), value[name]) for name in value]
        elif isinstance(value, list):
            pending += [((*steps, None), element) for element in value[:_ELEMENTS_MAX]]


def _paths(container: Container, paths: dict[tuple[str | None, ...], _Found], sampled: int) -> list[dict[str, Any]]:
    keys = {path_text(steps) for steps in container.key.steps} if container.key is not None else set()
    indexing = container.schema.rules.indexing
    answer = []
    for steps, found in sorted(paths.items(), key=lambda each: (-each[1].items, path_text(each[0]))):
        path = path_text(steps)
        answer.append(
            {
                "path": path,
                "share": round(found.items / sampled, 4),
                "types": found.types,
                "distinct": len(found.values),
                "examples": found.examples,
                "isIndexed": indexing.is_indexed(path),
                "isPartitionKey": path in keys,
            }
        )
    return answer
