"""Snapshots over the control API: named ones in memory, taken and restored in milliseconds; files, which are sent and
received part by part (`snapshot_transfers.py`); and checkpoints, which backups are copied from.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from armillary import audit
from armillary.account.snapshots import restore
from armillary.account.snapshots.snapshots import Snapshot
from armillary.doors.control.call import Call
from armillary.doors.control.errors import HEADERS
from armillary.errors import Failure, Kind, bad_request
from armillary.net.http import BareResponse, Response

BINARY = [(b"content-type", b"application/octet-stream"), *HEADERS[1:]]


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
    call.services.transfers.forget(call.names[0])
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
    name, number = call.names[0], part_number(call.names[1])
    part = await call.services.transfers.part(name, call.account.snapshots.find(name), number)
    return BareResponse(204, BINARY, b"") if part is None else BareResponse(200, BINARY, part)


async def begin_restore(call: Call) -> Response:
    fields = call.fields("a restoration")
    database, container, replaces = fields.text("database"), fields.text("container"), fields.truth("replace")
    fields.end()
    if container is not None and database is None:
        raise bad_request("Give the 'database' that the container is to be in too.")
    target = tuple(each for each in (database, container) if each is not None) or None
    return call.answer({"id": await call.services.transfers.begin(target, replaces=replaces)}, 201)


async def receive_part(call: Call) -> Response:
    call.query()
    name, number = call.names[0], part_number(call.names[1])
    call.services.transfers.receiving(name)
    media_type = call.request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != b"application/octet-stream":
        raise Failure(Kind.UNSUPPORTED_MEDIA, "A part is bytes: send 'Content-Type: application/octet-stream'.")
    await asyncio.sleep(0)  # a request is started without a task, and locks are a task's
    await call.services.transfers.receive(name, number, call.request.body)
    return call.answer({"received": number})


async def finish_restore(call: Call) -> Response:
    call.fields("a restoration").end()
    call.services.transfers.receiving(call.names[0])
    await asyncio.sleep(0)
    records, item_count = await call.services.transfers.finish(call.names[0])
    names = [call.account.name_link(record) for record in records]
    return call.answer({"restored": [_plain(name) for name in names], "items": item_count})


async def cancel_restore(call: Call) -> Response:
    call.query()
    call.services.transfers.receiving(call.names[0])
    await call.services.transfers.abandon(call.names[0])
    return call.answer({"deleted": call.names[0]})


def part_number(text: str) -> int:
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
