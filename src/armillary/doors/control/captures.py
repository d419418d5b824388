"""Captures of requests over the control API: starting, listing, stopping, sending and deleting those of a container."""

from __future__ import annotations

import asyncio
from typing import Any

from armillary import audit, limits
from armillary.account.captures.capture_store import CaptureRecord
from armillary.account.captures.captures import moment
from armillary.account.container import Container
from armillary.doors.control.call import Call
from armillary.doors.control.snapshots.snapshots import BINARY, part_number
from armillary.errors import Failure, Kind
from armillary.net.http import BareResponse, Response

_SHARE_MIN = 0.0001


async def start_capture(call: Call) -> Response:
    fields = call.fields("a capture")
    seconds = fields.whole("seconds", 1, limits.CAPTURE_SECONDS_MAX)
    share = fields.number("share", _SHARE_MIN, 1.0)
    limit = fields.whole("limit", 1, limits.CAPTURE_REQUESTS_MAX)
    keeps_values = fields.truth("values")
    fields.end()
    if call.account.topology is not None:
        raise Failure(
            Kind.UNSUPPORTED,
            "Captures are not offered on a cluster, whose nodes answer requests each by itself. Capture on a single "
            "server.",
        )
    container = call.container()
    await asyncio.sleep(0)  # a request is started without a task, and a capture needs one
    record = await call.account.captures.start(
        _names(container),
        container.record.rid,
        container.key,
        len(container.partitions),
        seconds=limits.CAPTURE_SECONDS_DEFAULT if seconds is None else seconds,
        share=1.0 if share is None else share,
        limit=limits.CAPTURE_REQUESTS_MAX if limit is None else limit,
        keeps_values=keeps_values,
    )
    return call.answer(_shown(record), 201)


async def list_captures(call: Call) -> Response:
    call.query()
    container = call.container()
    await call.account.captures.gather()
    captures = [_shown(each) for each in call.account.captures.of_container(container.record.rid)]
    return call.answer({"captures": captures})


async def show_capture(call: Call) -> Response:
    call.query()
    return call.answer(_shown(await _found(call)))


async def stop_capture(call: Call) -> Response:
    call.fields("the end of a capture").end()
    record = await _found(call)
    await asyncio.sleep(0)
    await call.account.captures.stop(record)
    return call.answer(_shown(record))


async def delete_capture(call: Call) -> Response:
    call.query()
    record = await _found(call)
    await asyncio.sleep(0)
    await call.account.captures.delete(record)
    return call.answer({"deleted": record.id})


async def send_part(call: Call) -> Response:
    """The parts of a capture's file, from 0. 204: there are no more."""
    call.query()
    record, number = await _found(call), part_number(call.names[3])
    await asyncio.sleep(0)
    part = await call.account.captures.part(_names(call.container()), record, number)
    return BareResponse(204, BINARY, b"") if part is None else BareResponse(200, BINARY, part)


async def tell_secret(call: Call) -> Response:
    """The secret of its digests: with it, digests of known values can be computed and compared. Not for credentials
    that may only read."""
    call.fields("a secret").end()
    record = await _found(call)
    container = call.container()
    audit.record("capture.secret", database=container.database.name, container=container.name, id=record.id)
    return call.answer({"id": record.id, "secret": record.secret})


async def _found(call: Call) -> CaptureRecord:
    await call.account.captures.gather()
    return call.account.captures.find(call.container().record.rid, call.names[2])


def _names(container: Container) -> tuple[str, str]:
    return container.database.name, container.name


def _shown(record: CaptureRecord) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": record.id,
        "state": record.state,
        "requests": record.requests,
        "bytes": record.size_bytes,
        "begunAt": moment(record.begun_s),
        "seconds": record.seconds,
        "share": record.share,
        "limit": record.limit,
        "values": record.keeps_values,
    }
    if record.missed:
        shown["missed"] = record.missed
    if record.ended_s is not None:
        shown["endedAt"] = moment(record.ended_s)
    if record.reason:
        shown["reason"] = record.reason
    return shown
