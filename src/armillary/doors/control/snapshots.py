"""Snapshots over the control API: named ones in memory, taken and brought back in milliseconds; files, which are sent
and received part by part; and checkpoints, which backups are copied from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

from armillary import audit, limits
from armillary.account.snapshots import restore
from armillary.account.snapshots.snapshot_files import parts
from armillary.account.snapshots.snapshot_import import SnapshotImport
from armillary.account.snapshots.snapshots import Snapshot
from armillary.doors.control.call import Call
from armillary.doors.control.errors import HEADERS
from armillary.errors import Failure, Kind, bad_request
from armillary.net.http import BareResponse, Response

_BINARY = [(b"content-type", b"application/octet-stream"), *HEADERS[1:]]


@dataclass(slots=True)
class _Sending:
    """A snapshot on its way to a client."""

    snapshot: Snapshot
    parts: Iterator[bytes]
    lock: asyncio.Lock
    number: int = -1  # of the part that was made last
    last: bytes | None = b""  # None: there are no more


@dataclass(slots=True)
class _Receiving:
    """A restoration whose file is coming in."""

    arrival: SnapshotImport
    lock: asyncio.Lock
    next_part: int = 0
    heard_s: float = 0.0


class Transfers:
    """The files that are being sent and received."""

    def __init__(self) -> None:
        self.sending: dict[str, _Sending] = {}
        self.receiving: dict[str, _Receiving] = {}
        self.numbers = count(1)


# In memory.


async def list_snapshots(call: Call) -> Response:
    call.query()
    return call.answer({"snapshots": [_shown(each) for each in call.account.snapshots.all]})


async def show_snapshot(call: Call) -> Response:
    call.query()
    return call.answer(_shown(call.account.snapshots.find(call.names[0])))


async def take_snapshot(call: Call) -> Response:
    fields = call.fields("a snapshot")
    database, container = fields.text("database"), fields.text("container")
    fields.end()
    if container is not None and database is None:
        raise bad_request("Give the 'database' of the container too.")
    scope = tuple(each for each in (database, container) if each is not None)
    return call.answer(_shown(await call.account.snapshots.take(call.names[0], scope)), 201)


async def restore_snapshot(call: Call) -> Response:
    call.fields("a restoration").end()
    await asyncio.sleep(0)  # a request is started without a task, and locks of the account are a task's
    snapshot = call.account.snapshots.find(call.names[0])
    outcome = await restore.restore(call.account, snapshot)
    return call.answer({**_shown(snapshot), "containersUndone": outcome.rewound, "containersCopied": outcome.copied})


async def delete_snapshot(call: Call) -> Response:
    call.query()
    call.account.snapshots.forget(call.names[0])
    call.door.transfers.sending.pop(call.names[0], None)
    return call.answer({"deleted": call.names[0]})


def _shown(snapshot: Snapshot) -> dict[str, Any]:
    items, size_bytes = snapshot.counts()
    shown: dict[str, Any] = {
        "name": snapshot.name,
        "taken": datetime.fromtimestamp(snapshot.taken_s, UTC).isoformat(timespec="milliseconds"),
        "containers": len(snapshot.containers),
        "items": items,
        "bytes": size_bytes,
    }
    shown |= dict(zip(("database", "container"), snapshot.scope, strict=False))
    return shown


# Files.


async def send_part(call: Call) -> Response:
    """The parts of a snapshot in their order; the last one may be asked for again. 204: there are no more."""
    call.query()
    name, number = call.names[0], _part_number(call.names[1])
    snapshot = call.account.snapshots.find(name)
    sending = call.door.transfers.sending.get(name)
    if number == 0 or sending is None or sending.snapshot is not snapshot:
        audit.record("snapshot.sent", name=name, scope="/".join(snapshot.scope))
        sending = call.door.transfers.sending[name] = _Sending(snapshot, parts(snapshot), asyncio.Lock())
    async with sending.lock:
        if number == sending.number + 1:
            sending.last = await _joined(sending.parts)
            sending.number = number
    if number != sending.number:
        raise bad_request(f"Ask for the parts in order: {sending.number + 1} is next, not {number}.")
    if sending.last is None:
        return BareResponse(204, _BINARY, b"")
    return BareResponse(200, _BINARY, sending.last)


async def _joined(made: Iterator[bytes]) -> bytes | None:
    """Some parts together: many are small. None: there are no more."""
    parts_together: list[bytes] = []
    size_bytes = 0
    while size_bytes < limits.SNAPSHOT_ANSWER_BYTES and (part := next(made, None)) is not None:
        parts_together.append(part)
        size_bytes += len(part)
        await asyncio.sleep(0)  # others have their turn
    return b"".join(parts_together) or None


async def begin_restore(call: Call) -> Response:
    fields = call.fields("a restoration")
    database, container, replaces = fields.text("database"), fields.text("container"), fields.truth("replace")
    fields.end()
    if container is not None and database is None:
        raise bad_request("Give the 'database' that the container is to be in too.")
    transfers, now_s = call.door.transfers, call.account.clock.elapsed_s()
    for number, each in list(transfers.receiving.items()):
        if now_s - each.heard_s > limits.RESTORE_IDLE_SECONDS:
            await _abandon(call, number)
    if len(transfers.receiving) >= limits.RESTORES_MAX:
        raise Failure(
            Kind.CONFLICT,
            f"{limits.RESTORES_MAX} restores are running, which is the most. Try again when one has ended.",
        )
    number = str(next(transfers.numbers))
    target = tuple(each for each in (database, container) if each is not None) or None
    arrival = SnapshotImport(call.account, target, replaces=replaces)
    transfers.receiving[number] = _Receiving(arrival, asyncio.Lock(), heard_s=now_s)
    return call.answer({"id": number}, 201)


async def receive_part(call: Call) -> Response:
    call.query()
    receiving, number = _receiving(call), _part_number(call.names[1])
    media_type = call.request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != b"application/octet-stream":
        raise Failure(Kind.UNSUPPORTED_MEDIA, "A part is bytes: send 'Content-Type: application/octet-stream'.")
    await asyncio.sleep(0)  # a request is started without a task, and locks are a task's
    async with receiving.lock:
        if number == receiving.next_part - 1:
            return call.answer({"received": number})  # its answer was lost
        if number != receiving.next_part:
            raise bad_request(f"Send the parts in order: {receiving.next_part} is next, not {number}.")
        try:
            await receiving.arrival.feed(call.request.body)
        except BaseException:
            await _abandon(call, call.names[0])
            raise
        receiving.next_part += 1
        receiving.heard_s = call.account.clock.elapsed_s()
    return call.answer({"received": number})


async def finish_restore(call: Call) -> Response:
    call.fields("a restoration").end()
    receiving = _receiving(call)
    await asyncio.sleep(0)
    async with receiving.lock:
        try:
            records = await receiving.arrival.finish()
        except BaseException:
            await _abandon(call, call.names[0])
            raise
        del call.door.transfers.receiving[call.names[0]]
    names = [call.account.name_link(record) for record in records]
    return call.answer({"restored": [_plain(name) for name in names], "items": receiving.arrival.item_count})


async def cancel_restore(call: Call) -> Response:
    call.query()
    _receiving(call)
    await _abandon(call, call.names[0])
    return call.answer({"deleted": call.names[0]})


def _receiving(call: Call) -> _Receiving:
    found = call.door.transfers.receiving.get(call.names[0])
    if found is None:
        raise Failure(Kind.NOT_FOUND, "There is no such restore: it ended, or sent nothing for too long. Begin again.")
    return found


async def _abandon(call: Call, number: str) -> None:
    receiving = call.door.transfers.receiving.pop(number, None)
    if receiving is not None:
        await receiving.arrival.abandon()


def _part_number(text: str) -> int:
    if len(text) > 9 or not text.isascii() or not text.isdigit():
        raise bad_request("The number of a part must be a whole number from 0.")
    return int(text)


def _plain(link: str) -> str:
    """dbs/shop/colls/orders as shop/orders."""
    return "/".join(link.split("/")[1::2])


# Checkpoints.


async def make_checkpoint(call: Call) -> Response:
    """A copy of the data directory in itself, made of links, for `armillary backup`."""
    call.fields("a checkpoint").end()
    await asyncio.sleep(0)
    made = await call.account.engine.checkpoint()
    audit.record("backup.checkpoint", name=made.name)
    return call.answer({"id": made.name, "path": str(made.absolute())}, 201)


async def delete_checkpoint(call: Call) -> Response:
    call.query()
    name = call.names[0]
    if "/" in name or name.startswith("."):
        raise Failure(Kind.NOT_FOUND, "There is no such checkpoint: it was deleted already.")
    await asyncio.sleep(0)
    await call.account.engine.drop_checkpoint(name)
    return call.answer({"deleted": name})
