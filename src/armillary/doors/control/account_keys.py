"""The account's keys over the control API: shown, and regenerated while clients go on with the other ones."""

from __future__ import annotations

import asyncio

from armillary import audit
from armillary.account.credentials import Credentials
from armillary.doors.control.call import Call
from armillary.errors import Failure, Kind
from armillary.net.http import Response


async def list_keys(call: Call) -> Response:
    call.query()
    keys = _credentials(call).keys
    audit.record("keys.read")
    return call.answer({"keys": keys})


async def regenerate_key(call: Call) -> Response:
    call.fields("a new key").end()
    await asyncio.sleep(0)
    name = call.names[0]
    return call.answer({"name": name, "key": await _credentials(call).regenerate(name)})


def _credentials(call: Call) -> Credentials:
    if call.door.credentials is None:
        raise Failure(Kind.UNSUPPORTED, "The keys of this account cannot be changed here.")
    return call.door.credentials
