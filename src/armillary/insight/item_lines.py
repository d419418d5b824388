"""Items of a container as lines of JSON, for a computation in another process: all of them if they are few, otherwise
at random numbers, from each partition in proportion to its items. Nothing is charged, and the reader gives way to other
requests after each slice of work. Beside them, what is known of all items without reading them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import orjson

from armillary.account.container import Container
from armillary.account.overview import largest_keys
from armillary.account.visits.view_readings import ViewReading, read_view
from armillary.clock import Clock, Dice
from armillary.model import documents, layout
from armillary.model.encoding import FORMAT_JSON, payload_of
from armillary.model.resources import ITEM_COUNTER_BITS
from armillary.partition.partition import Partition
from armillary.partition.upkeep.background_throttle import Slice
from armillary.storage.engine import View

_LARGEST: Final = 10


class Page(NamedTuple):
    """One of several parts of a sample, which have no item in common: each is drawn from its own stretch of every
    partition's item numbers."""

    number: int = 0
    of: int = 1

    def part(self, whole: int) -> tuple[int, int]:
        """The beginning and the end of this page's part of so many."""
        return whole * self.number // self.of, whole * (self.number + 1) // self.of


_WHOLE = Page()


async def item_lines(container: Container, most: int, seed: int, page: Page = _WHOLE) -> AsyncIterator[bytes]:
    """Up to about `most` items in all pages. Of numbers whose item was deleted the next one is taken."""
    partitions = list(container.partitions.values())
    total = sum(partition.head.item_count for partition in partitions)
    dice = Dice(seed * page.of + page.number)
    for partition in partitions:
        wanted = None
        if total > most:
            begin, end = page.part(-(-most * partition.head.item_count // total))
            wanted = end - begin
        async for stored in _items(partition, wanted, dice, page):
            yield _line(stored)


async def _items(partition: Partition, wanted: int | None, dice: Dice, page: Page) -> AsyncIterator[bytes]:
    """Of one partition; `wanted` None: all."""
    stretches = _cut(await read_view(partition, NumberStretches()), page)
    if wanted is None:
        for first, end in stretches:
            low = layout.item_key(first)
            while low:
                found, low = await read_view(partition, RunOfItems(low, layout.item_key(end)))
                for stored in found:
                    yield stored
                await asyncio.sleep(0)
        return
    keys = _drawn(stretches, wanted, dice)
    high = layout.item_key(stretches[-1][1]) if stretches else b""
    while keys:
        found, keys = await read_view(partition, PickItems(keys, high))
        for stored in found:
            yield stored
        await asyncio.sleep(0)


def _cut(stretches: Sequence[tuple[int, int]], page: Page) -> list[tuple[int, int]]:
    """The part of the numbers that is a page's."""
    begin, stop = page.part(sum(end - first for first, end in stretches))
    found, before = list[tuple[int, int]](), 0
    for first, end in stretches:
        low, high = max(first, first + begin - before), min(end, first + stop - before)
        if low < high:
            found.append((low, high))
        before += end - first
    return found


@dataclass(slots=True)
class NumberStretches(ViewReading[list[tuple[int, int]]]):
    """The numbers of the partition's items: from the first to behind the last that each ancestor gave out."""

    def read(self, view: View, clock: Clock) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        low = layout.ITEMS
        while (first := _number(view, low, layout.space_end(layout.ITEMS))) is not None:
            behind = ((first >> ITEM_COUNTER_BITS) + 1) << ITEM_COUNTER_BITS
            low = layout.item_key(behind)
            last = _number(view, layout.item_key(first), low, reverse=True)
            assert last is not None, "the first one is there"
            found.append((first, last + 1))
        return found


def _number(view: View, low: bytes, high: bytes, reverse: bool = False) -> int | None:
    key = next((key for key, _ in view.scan(low, high, reverse)), None)
    return int.from_bytes(key[1:], "big") if key is not None else None


def _drawn(stretches: Sequence[tuple[int, int]], wanted: int, dice: Dice) -> list[bytes]:
    """Keys at random numbers, in order: one in each of so many parts of equal length, so that none comes twice."""
    length = sum(end - first for first, end in stretches)
    bounds = [length * part // wanted for part in range(wanted + 1)] if wanted else []
    places = [low + int(dice.number() * (high - low)) for low, high in pairwise(bounds) if high > low]
    keys: list[bytes] = []
    before, remaining = 0, iter(stretches)
    first, end = next(remaining, (0, length))
    for place in places:
        while place - before >= end - first:
            before += end - first
            first, end = next(remaining)
        keys.append(layout.item_key(first + place - before))
    return keys


@dataclass(slots=True)
class RunOfItems(ViewReading[tuple[list[bytes], bytes]]):
    """A slice of items; with them where the next one begins, empty at the end."""

    low: bytes
    high: bytes

    def read(self, view: View, clock: Clock) -> tuple[list[bytes], bytes]:
        bound, found = Slice(clock), list[bytes]()
        for key, stored in view.scan(self.low, self.high):
            found.append(stored)
            if not bound.takes(len(stored)):
                return found, key + b"\x00"
        return found, b""


@dataclass(slots=True)
class PickItems(ViewReading[tuple[list[bytes], list[bytes]]]):
    """The items at or after these keys, each once; with them the keys that are left."""

    keys: Sequence[bytes]
    high: bytes

    def read(self, view: View, clock: Clock) -> tuple[list[bytes], list[bytes]]:
        bound, found = Slice(clock), list[bytes]()
        reached = b""
        for index, key in enumerate(self.keys):
            if key <= reached:
                continue
            at = next(view.scan(key, self.high), None)
            if at is None:
                return found, []
            reached, stored = at
            found.append(stored)
            if not bound.takes(len(stored)):
                return found, [each for each in self.keys[index + 1 :] if each > reached]
        return found, []


def _line(stored: bytes) -> bytes:
    text = orjson.dumps(documents.plain_json(stored)) if stored[0] != FORMAT_JSON else payload_of(stored)
    return text.replace(b"\n", b" ") if b"\n" in text else text  # outside of strings, where it means nothing


async def exact_figures(container: Container) -> dict[str, Any]:
    """What is known without reading items, which an advice on a sample takes as exact: how many there are, their bytes,
    and of the present partition key the number of values and the largest ones. `keys` and `largest` are None where the
    container has no key of its own, or so many values that not all were looked at.
    """
    heads = [partition.head for partition in list(container.partitions.values())]
    key = container.key
    paths = list(key.paths) if key is not None and not key.is_system else []
    largest = await largest_keys(container, _LARGEST) if paths else None
    is_known = largest is not None and largest.is_complete
    return {
        "items": sum(head.item_count for head in heads),
        "bytes": sum(head.size_bytes for head in heads),
        "partitions": [{"items": head.item_count, "bytes": head.size_bytes} for head in heads],
        "paths": paths,
        "keys": largest.spread.key_count if largest is not None and is_known else None,
        "largest": [
            {"key": orjson.loads(each.key_text) if each.key_text is not None else None, "bytes": each.size_bytes}
            for each in largest.keys
        ]
        if largest is not None and is_known
        else None,
    }
