"""Indexes of collections: listing, creating and dropping them. An index is created once all documents are in it. A
unique index is dropped again if two documents have the same value, also when several requests wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from armillary.account.account import Account
from armillary.account.catalog.container_rules import FIRST_SLOT, LAST_SLOT, new_rules
from armillary.account.catalog.container_state import Body, ContainerState, IndexState, stored_change
from armillary.account.catalog.records import Record
from armillary.account.collections.collection_rules import TIME_SERIES_EXPIRY, shard_fields
from armillary.account.container import Container
from armillary.errors import Failure
from armillary.languages.mongo.filters.text_search import TextIndex, text_index_of
from armillary.languages.mongo.indexes.index_definitions import ID_DEFINITION, added, cannot_create
from armillary.model.bson.bson_values import Document, shell_text

# What definitions say about words, and the entries that say so: those of a record are replaced, never changed.
_text_indexes: Final[WeakKeyDictionary[Container, tuple[Any, TextIndex | None]]] = WeakKeyDictionary()


def definitions(container: Container) -> list[Document]:
    """All indexes of a collection that clients see, that of `_id` first."""
    return [each for each in all_definitions(container) if each["name"] != TIME_SERIES_EXPIRY]


def all_definitions(container: Container) -> list[Document]:
    """The same with the index that a time series expires by."""
    return [dict(ID_DEFINITION), *[index.definition for index in container.state.indexes]]


def text_index(container: Container) -> TextIndex | None:
    """The text index of a collection, if it has one."""
    entries = container.state.indexes
    kept = _text_indexes.get(container)
    if kept is not None and kept[0] is entries:
        return kept[1]
    every = [text_index_of(each) for each in definitions(container)]
    found = next((each for each in every if each is not None), None)
    _text_indexes[container] = entries, found
    return found


async def create_indexes(account: Account, container: Container, wanted: Sequence[Document]) -> int:
    """Make the indexes that are not there yet, and return when all documents are in them: how many were made.
    Definitions come from `read_definition`. CONFLICT, with the name of the index, if documents are not unique by it."""
    async with account.control:
        new = added(definitions(container), [each for each in wanted if each["name"] != TIME_SERIES_EXPIRY])
        if TIME_SERIES_EXPIRY not in [index.name for index in container.state.indexes]:
            new += [each for each in wanted if each["name"] == TIME_SERIES_EXPIRY]
        if not new:
            return 0
        for each in new if container.is_collection else ():
            check_unique(shard_fields(container), each)
        entries = [*container.state.indexes, *_entries(container, new)]
        await _change(account, container, entries)
    await account.restated(container)
    for each in new:
        failure = container.failed_builds.pop(each["name"], None)
        if failure is not None:
            raise Failure(failure.kind, failure.message, details=failure.details)
    return len(new)


async def drop_indexes(account: Account, container: Container, names: Collection[str]) -> None:
    """Drop the indexes of these names; never that of `_id`."""
    async with account.control:
        present = container.state.indexes
        kept = [index for index in present if index.name not in names]
        if len(kept) < len(present):
            await _change(account, container, kept)


async def replace_index(
    account: Account, container: Container, name: str, change: Callable[[Document], Document]
) -> None:
    """Change an index in the ways that collMod allows: its `expireAfterSeconds`, and whether it is hidden."""
    async with account.control:
        entries = [
            IndexState.of(change(index.definition), index.slot) if index.name == name else index
            for index in container.state.indexes
        ]
        await _change(account, container, entries)
    await account.restated(container)


def _entries(container: Container, new: Sequence[Document]) -> list[IndexState]:
    taken = {index.slot for index in container.state.indexes}
    # Values under the slot of an index that was dropped a moment ago may still be there.
    for older in container.state.older_rules.values():
        taken |= {index.slot for index in older.indexes}
    entries: list[IndexState] = []
    for each in new:
        slot = 0
        if each.get("unique"):
            free = [number for number in range(FIRST_SLOT, LAST_SLOT + 1) if number not in taken]
            if not free:
                raise cannot_create(f"A collection has at most {LAST_SLOT - FIRST_SLOT + 1} unique indexes.")
            slot = free[0]
            taken.add(slot)
        entries.append(IndexState.of(each, slot))
    return entries


def check_unique(shard_key: Sequence[str], definition: Document) -> None:
    """Values are unique inside a logical partition; so an index that is to say more must hold the shard key."""
    if not definition.get("unique") or set(shard_key) <= set(definition["key"]):
        return
    key = {path: float(value) if isinstance(value, int) else value for path, value in definition["key"].items()}
    pattern = dict.fromkeys(shard_key, 1.0)
    raise cannot_create(
        f"cannot create unique index over {shell_text(key)} with shard key pattern {shell_text(pattern)}"
    )


async def _change(account: Account, container: Container, entries: Sequence[IndexState]) -> None:
    present = container.record
    body = _body(present.body, [index.definition for index in container.state.indexes], entries)

    def change(state: ContainerState) -> ContainerState:
        return replace(new_rules(state, present.body), indexes=tuple(entries))

    def adopt(changed: Record) -> None:
        container.adopt(changed)
        account.restate(container)

    await account.catalog.replace(present, body, state=stored_change(change), on_replaced=adopt)


def _body(body: Body, before: Sequence[Document], entries: Sequence[IndexState]) -> Body:
    """The container's body with the properties that follow from its indexes: the default TTL and the spatial paths."""
    now = [index.definition for index in entries]
    changed = dict(body)
    if _default_ttl(before) != _default_ttl(now):
        changed.pop("defaultTtl", None)
        if _default_ttl(now) is not None:
            changed["defaultTtl"] = _default_ttl(now) or 1  # the service's least
    old, new = _spatial_paths(before), _spatial_paths(now)
    if old != new:
        policy = dict(body["indexingPolicy"])
        kept = [entry for entry in policy.get("spatialIndexes", ()) if entry["path"] not in old]
        here = {entry["path"] for entry in kept}
        policy["spatialIndexes"] = [
            *kept,
            *[{"path": path, "types": _SHAPES} for path in new if path not in here],
        ]
        changed["indexingPolicy"] = policy
    return changed


_SHAPES = ["Point", "LineString", "Polygon", "MultiPolygon"]


def _default_ttl(found: Sequence[Document]) -> int | None:
    for each in found:
        if list(each["key"]) == ["_ts"] and "expireAfterSeconds" in each:
            return int(each["expireAfterSeconds"])
    return None


def _spatial_paths(found: Sequence[Document]) -> list[str]:
    fields = [path for each in found for path, kind in each["key"].items() if kind == "2dsphere"]
    return list(dict.fromkeys([index_path(path.split(".")) for path in fields]))


def index_path(parts: Sequence[str]) -> str:
    """As the paths of indexing policies are written."""
    return "".join(['/"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"' for part in parts]) + "/?"
