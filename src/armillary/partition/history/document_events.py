"""What was done to the documents of a collection that somebody watches: every change for itself, as it was, written by
the transaction that did it. The change feed tells only how items are now; change streams tell how that came about.

Events have the places of their changes, so that a position among them is good for whatever becomes of the partition.
They are kept for a while, up to a number: `since` says from where on none is missing.
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
    place: bytes  # lsn, step and number: in the order of changes
    kind: str
    epk: bytes
    wall_ms: int
    key: Document  # `_id`, and the fields of the shard key
    document: Document | None  # as it became; of an update only where images are kept
    update: Document | None  # what an update changed
    before: Document | None  # as it was, where that is kept
    microseconds: int = 0  # beyond the milliseconds: in which order collections were changed

    @property
    def wall_us(self) -> int:
        return self.wall_ms * 1000 + self.microseconds

    @property
    def lsn(self) -> int:
        return int.from_bytes(self.place[:8], "big")


def kind_of(operation: Operation) -> str:
    """Of what was done to a document that was there."""
    is_update = operation.verb in (Verb.CHANGE, Verb.PATCH, Verb.MERGE) and not operation.is_replacement
    return UPDATE if is_update else REPLACE


def noted(
    schema: Schema, kind: str, epk: bytes, before: Document | None, after: Document | None, now_s: float
) -> dict[str, Any]:
    """What is kept of a change."""
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


def put_event(txn: Txn, lsn: int, step: int, number: int, event: dict[str, Any]) -> None:
    key = layout.event_key(lsn, step, number)
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
    """From when on events are there: from now on, unless they were before."""
    stored = txn.get(SINCE_KEY)
    if stored is None:
        stored = lsn.to_bytes(8, "big")
        txn.put(SINCE_KEY, stored)
    return int.from_bytes(stored, "big")


def since(view: View) -> int | None:
    """Everything that was done after this lsn is there; None: nobody has watched yet."""
    stored = view.get(SINCE_KEY)
    return int.from_bytes(stored, "big") if stored is not None else None


def after(view: View, place: bytes, last_lsn: int) -> Iterator[tuple[bytes, bytes]]:
    """Events behind a place, up to an lsn, packed."""
    start = layout.EVENTS + place + b"\x00"
    return iter(view.scan(start, layout.event_key(last_lsn + 1)))


def all_entries(view: View) -> list[tuple[bytes, bytes]]:
    return list(view.scan(layout.EVENTS, layout.space_end(layout.EVENTS)))


def is_lost(view: View, place: bytes, since_lsn: int) -> bool:
    """Whether something behind a place may have been dropped. The oldest are dropped first, perhaps in the middle of a
    transaction: of that one, everything behind an event is there as long as the event is."""
    lsn = int.from_bytes(place[:8], "big")
    if lsn != since_lsn:
        return lsn < since_lsn
    return place != place_after(lsn) and view.get(layout.EVENTS + place) is None


def place_after(lsn: int) -> bytes:
    """Behind everything of an lsn."""
    return lsn.to_bytes(8, "big") + b"\xff" * (_PLACE_BYTES - 8)


def last_too_many(view: View, now_s: float) -> bytes | None:
    """The key of the newest of those that are more than are kept, or too old; None: all are kept. May give way."""
    size_bytes = 0
    for kept, (key, value) in enumerate(view.scan(layout.EVENTS, layout.space_end(layout.EVENTS), reverse=True), 1):
        work.spend(50 + len(value) // limits.WORK_UNIT_BYTES)
        size_bytes += len(value)
        is_old = unpack_event(key, value).wall_ms < (now_s - limits.MONGO_EVENT_SECONDS) * 1000
        if kept > limits.MONGO_EVENTS_MAX or size_bytes > limits.MONGO_EVENTS_BYTES_MAX or is_old:
            return key
    return None


def forget(txn: Txn, last_key: bytes) -> None:
    """Drop the events up to one: as a range, however many they are."""
    txn.delete_range(layout.EVENTS, last_key + b"\x00")
    txn.put(SINCE_KEY, last_key[1:9])
