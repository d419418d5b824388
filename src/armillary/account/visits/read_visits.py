"""Visits that read single items by their key and id, or count what a partition holds. The charge
is computed here, from what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from armillary.account.captures.notes import Note, QueryNote
from armillary.account.container import Container
from armillary.account.visits.visits import Session, Visit, check_session, located, run_at
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.model import charges, documents, items, layout
from armillary.model.encoding import FORMAT_JSON, lsn_of, payload_of, unpack_header
from armillary.model.keys import Key
from armillary.partition.budget import READ_DEPOSIT, Ask
from armillary.partition.operations import Outcome, Result
from armillary.partition.partition import Partition
from armillary.partition.schema import Schema
from armillary.query.conditions import ALL
from armillary.storage.engine import View

COUNT_RU = 1.0  # of one partition


@dataclass(slots=True)
class Answer:
    result: Result
    payload: bytes | None
    etag: str | None
    charge_ru: float
    range_id: int
    lsn: int  # of the partition, after the operation
    item_lsn: int = 0
    outcome: Outcome | None = None  # of a write: what it took


@dataclass(slots=True)
class ItemCount:
    count: int
    charge_ru: float


@dataclass(slots=True)
class ReadItem(Visit[Answer]):
    """A point read. The answer's result is MISSING if there is no such item."""

    epk: bytes
    item_id: str
    read_factor: int = 1  # 2 at strong and bounded staleness
    if_none_match: str | None = None
    session: Session | None = None
    is_bson: bool = False  # the form of the answer
    key: Key | None = None  # for captures
    OPERATION: ClassVar[str] = "read"

    def notes(self, done: Answer | None) -> Sequence[Note]:
        note = Note("read", Kind.INTERNAL, 0.0, self.key, self.item_id)
        if done is not None:
            note.outcome, note.charge_ru = done.result, done.charge_ru
            if done.payload is not None:
                note.rows, note.size_bytes = 1, len(done.payload)
        return (note,)

    async def run(self, container: Container, partition: Partition) -> Answer:
        if self.session is not None:
            check_session(partition, self.session)
        return self.answer(container, partition, await partition.read_item(self.epk, self.item_id))

    def answer(self, container: Container, partition: Partition, stored: bytes | None) -> Answer:
        if stored is None:
            place = partition.range.id, partition.lsn
            return Answer(Result.MISSING, None, None, charges.failed_read_ru(self.read_factor), *place)
        # Without another look into storage: the item is as new as the state that it was read from, or the head is.
        lsn = item_lsn = lsn_of(stored)
        if partition.head.lsn > lsn:
            lsn = partition.head.lsn
        place = partition.range.id, lsn
        if self.is_bson:
            payload = documents.bson_bytes(stored)
            return Answer(Result.READ, payload, None, charges.read_ru(len(payload), self.read_factor), *place)
        payload = payload_of(stored) if stored[0] == FORMAT_JSON else documents.json_text(stored, container.schema)
        etag = items.etag_in(payload)
        if self.if_none_match is not None and self.if_none_match in ("*", etag):
            cost_ru = charges.failed_read_ru(self.read_factor)
            return Answer(Result.NOT_MODIFIED, None, etag, cost_ru, *place, item_lsn)
        cost_ru = charges.read_ru(len(payload), self.read_factor)
        return Answer(Result.READ, payload, etag, cost_ru, *place, item_lsn)


def read_at_hand(container: Container, visit: ReadItem, ask: Ask | None = None) -> Answer | None:
    """Make the visit without waiting for storage. None: that does not go, so run the visit; nothing is counted yet.
    This is `visits.run` for the commonest request, without its coroutines."""
    recording = None
    if container.is_observed:
        if container.faults is not None:
            return None
        recording = container.recording
    epk = visit.epk
    partition = container.partition_for(epk)
    view = partition.at_hand()
    if view is None:
        return None
    meter = partition.meter
    try:
        ticket = meter.admit(READ_DEPOSIT, ask, epk)
    except Failure as failure:
        if recording is not None:
            recording.fail(visit.notes(None), (partition.range.id,), failure)
        raise
    try:
        if visit.session is not None:
            check_session(partition, visit.session)
        answer = visit.answer(container, partition, partition.item_in(view, epk, visit.item_id))
    except Failure as failure:
        charged = meter.charge(failure, epk, ticket, ask)
        if recording is not None:
            recording.fail(visit.notes(None), (partition.range.id,), charged)
        raise located(partition, charged) from None
    answer.charge_ru = meter.spend(answer.charge_ru, epk, ticket, ask)
    if recording is not None:
        recording.add_read(visit.key, visit.item_id, answer, partition.range.id)
    return answer


def read_text_at_hand(
    container: Container, epk: bytes, item_id: bytes, read_factor: int, session: Session | None
) -> Answer | None:
    """The same in fewer steps for an item that is stored as JSON in a container without TTL. None: there is none, it
    cannot be read without waiting, or the partition is behind the session; nothing is counted then."""
    if container.is_observed or container.schema.rules.default_ttl is not None:
        return None
    partition = container.partition_for(epk)
    view = partition.at_hand()
    number = view.get(layout.IDS + epk + item_id) if view is not None else None
    if view is None or number is None:
        return None
    stored = view.get(layout.ITEMS + number)
    if stored is None or stored[0] != FORMAT_JSON:
        return None
    key_range, lsn = partition.range, partition.head.lsn
    if session is not None:
        for range_id in (key_range.id, *key_range.parents):
            if session.get(range_id, 0) > lsn:
                return None
    meter = partition.meter
    ticket = meter.admit(READ_DEPOSIT, None, epk)
    payload, item_lsn = payload_of(stored), lsn_of(stored)
    charge_ru = meter.spend(charges.read_ru(len(payload), read_factor), epk, ticket)
    return Answer(
        Result.READ,
        payload,
        items.etag_in(payload),
        charge_ru,
        key_range.id,
        lsn if lsn > item_lsn else item_lsn,
        item_lsn,
    )


def read_document_at_hand(container: Container, epk: bytes, item_id: str) -> tuple[bytes | None, float] | None:
    """The same for a document: its BSON, if it is there, and the charge. None: it cannot be read without waiting, or
    would be refused; nothing is counted then."""
    if container.is_observed:
        return None
    partition = container.partition_for(epk)
    view, meter = partition.at_hand(), partition.meter
    if view is None or meter.is_closed(None):
        return None
    ticket = meter.admit(READ_DEPOSIT, None, epk)
    try:
        stored = partition.item_in(view, epk, item_id)
        payload = documents.bson_bytes(stored) if stored is not None else None
    except Failure as failure:
        raise located(partition, meter.charge(failure, epk, ticket, None)) from None
    charge_ru = charges.failed_read_ru(1) if payload is None else charges.read_ru(len(payload), 1)
    return payload, meter.spend(charge_ru, epk, ticket)


def is_refusing(container: Container, epk: bytes) -> bool:
    """Whether a visit to the owner of a key would be refused now. Asking costs nothing and is not counted."""
    return container.partition_for(epk).meter.is_closed(None)


@dataclass(slots=True)
class ItemFound:
    """What names an item that is there; all None if it is not."""

    number: int | None = None
    item_id: str | None = None
    etag: str | None = None
    charge_ru: float = 0.0


@dataclass(slots=True)
class FindItem(Visit[ItemFound]):
    """What an item is called: by its id, or by the number that it is stored under."""

    epk: bytes
    item_id: str | None = None
    number: int | None = None
    OPERATION: ClassVar[str] = "read"

    async def run(self, container: Container, partition: Partition) -> ItemFound:
        return await partition.read(lambda view: self._find(view, container.schema, partition.clock))

    def _find(self, view: View, schema: Schema, clock: Clock) -> ItemFound:
        if self.item_id is not None:
            number = view.get(layout.id_key(self.epk, self.item_id))
        else:
            assert self.number is not None
            number = self.number.to_bytes(layout.RID_BYTES, "big")
        stored = view.get(layout.ITEMS + number) if number is not None else None
        if number is None or stored is None:
            return ItemFound()
        header = unpack_header(stored)
        if header.epk != self.epk or not schema.is_live(header, clock.now_s()):
            return ItemFound()
        return ItemFound(int.from_bytes(number, "big"), documents.item_id(stored), documents.etag_of(stored))


@dataclass(slots=True)
class CountItems(Visit[ItemCount]):
    """How many items a partition holds, by its counter."""

    epk: bytes | None = None
    OPERATION: ClassVar[str] = "query"

    def notes(self, done: ItemCount | None) -> Sequence[Note]:
        [note] = Visit.notes(self, done)
        note.query = QueryNote(ALL)
        return (note,)

    async def run(self, container: Container, partition: Partition) -> ItemCount:
        return ItemCount(partition.head.item_count, COUNT_RU)


async def count_items(container: Container, ask: Ask | None = None) -> ItemCount:
    """How many items a container holds, expired ones included. Every partition is asked, and charges for it; after a
    split or merge in between all are asked again, and what was charged before is part of the answer."""
    found = ItemCount(0, 0.0)
    while True:
        found.count, before = 0, container.map
        for partition in list(container.partitions.values()):
            part = await run_at(container, partition, CountItems(), ask)
            if part is None:
                break
            found.count += part.count
            found.charge_ru += part.charge_ru
        else:
            if container.map is before:
                return found
