"""Events of MongoDB change streams: each change to a document of a watched collection, with its before and after
images, written in the transaction that makes it. The change feed has only the latest state of items; change streams
need every change.

An event has the place (lsn, step, rid) of its change, so a resume token stays valid through splits and merges. Events
are kept for a limited time and up to a limited number: `since` says from which lsn on none is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from bson.int64 import Int64

from armillary import limits, work
from armillary.model import layout
from armillary.model.bson.bson_changes import update_description
from armillary.model.bson.bson_values import Document, decode, encode
from armillary.model.documents import document_key
from armillary.partition.operations import Operation, Verb
from armillary.partition.schema import Schema
from armillary.storage.engine import Txn, View

INSERT, UPDATE, REPLACE, DELETE = "insert", "update", "replace", "delete"
SINCE_KEY = layout.META + b"events"
_PLACE_BYTES = 18


class Event(NamedTuple):
    place: bytes  # lsn, step and rid: in the order of changes
    kind: str
    epk: bytes
    wall_ms: int
    key: Document  # `_id`, and the fields of the shard key
    document: Document | None  # after the change; for an update only if images are kept
    update: Document | None  # what an update changed
    before: Document | None  # before the change, if images are kept
    microseconds: int = 0  # beyond the milliseconds: orders the events of several collections

    @property
    def wall_us(self) -> int:
        return self.wall_ms * 1000 + self.microseconds

    @property
    def lsn(self) -> int:
        return int.from_bytes(self.place[:8], "big")


def kind_of(operation: Operation) -> str:
    """Update or replace: the kind of a change to an existing document."""
    is_update = operation.verb in (Verb.CHANGE, Verb.PATCH, Verb.MERGE) and not operation.is_replacement
    return UPDATE if is_update else REPLACE


def noted(
    schema: Schema, kind: str, epk: bytes, before: Document | None, after: Document | None, now_s: float
) -> dict[str, Any]:
    """The stored form of an event."""
    present = after if after is not None else before
    assert present is not None
    update = None
    if kind == UPDATE and before is not None and after is not None:
        update = update_description(before, after)
    wall_us = int(now_s * 1_000_000)
    return {
        "t": kind,
        "e": epk,
        "w": Int64(wall_us // 1000),
        "y": wall_us % 1000,
        "k": document_key(schema.key, present),
        "d": after if kind in (INSERT, REPLACE) or schema.keeps_images else None,
        "u": update,
        "b": before if schema.keeps_images else None,
    }


def put_event(txn: Txn, lsn: int, step: int, rid: int, event: dict[str, Any]) -> None:
    key = layout.event_key(lsn, step, rid)
    txn.put(key, encode({name: value for name, value in event.items() if value is not None}))


def unpack_event(key: bytes, value: bytes) -> Event:
    kept = decode(value)
    return Event(
        key[1:],
        kept["t"],
        bytes(kept["e"]),
        int(kept["w"]),
        kept["k"],
        kept.get("d"),
        kept.get("u"),
        kept.get("b"),
        kept.get("y", 0),
    )


def begin(txn: Txn, lsn: int) -> int:
    """Start keeping events. Returns the lsn after which all are there."""
    stored = txn.get(SINCE_KEY)
    if stored is None:
        stored = lsn.to_bytes(8, "big")
        txn.put(SINCE_KEY, stored)
    return int.from_bytes(stored, "big")


def since(view: View) -> int | None:
    """The lsn after which every event is there; None: the collection was never watched."""
    stored = view.get(SINCE_KEY)
    return int.from_bytes(stored, "big") if stored is not None else None


def after(view: View, place: bytes, last_lsn: int) -> Iterator[tuple[bytes, bytes]]:
    """Packed events after a place, up to an lsn."""
    start = layout.EVENTS + place + b"\x00"
    return iter(view.scan(start, layout.event_key(last_lsn + 1)))


def all_entries(view: View) -> list[tuple[bytes, bytes]]:
    return list(view.scan(layout.EVENTS, layout.space_end(layout.EVENTS)))


def is_lost(view: View, place: bytes, since_lsn: int) -> bool:
    """Whether events after a place may have been dropped. The oldest are dropped first, perhaps in the middle of a
    transaction: the later events of that transaction are complete as long as the event at the place is stored."""
    lsn = int.from_bytes(place[:8], "big")
    if lsn != since_lsn:
        return lsn < since_lsn
    return place != place_after(lsn) and view.get(layout.EVENTS + place) is None


def place_after(lsn: int) -> bytes:
    """The place after all changes of an lsn."""
    return lsn.to_bytes(8, "big") + b"\xff" * (_PLACE_BYTES - 8)


def last_too_many(view: View, now_s: float) -> bytes | None:
    """The key of the newest event beyond the limits of number, bytes or age; None: all are within them. May give
    way."""
    size_bytes = 0
    for kept, (key, value) in enumerate(view.scan(layout.EVENTS, layout.space_end(layout.EVENTS), reverse=True), 1):
        work.spend(50 + len(value) // limits.WORK_UNIT_BYTES)
        size_bytes += len(value)
        is_old = unpack_event(key, value).wall_ms < (now_s - limits.MONGO_EVENT_SECONDS) * 1000
        if kept > limits.MONGO_EVENTS_MAX or size_bytes > limits.MONGO_EVENTS_BYTES_MAX or is_old:
            return key
    return None


def forget(txn: Txn, last_key: bytes) -> None:
    """Drop all events up to a key with one range delete."""
    txn.delete_range(layout.EVENTS, last_key + b"\x00")
    txn.put(SINCE_KEY, last_key[1:9])
