"""The clock of a server that was started with `--clock movable`: stop it, move it on, set it going again."""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor
from typing import Any

from armillary import audit, limits
from armillary.clock import MovableClock
from armillary.doors.control.call import Call
from armillary.errors import Failure, Kind, bad_request
from armillary.net.http import Response


async def show_clock(call: Call) -> Response:
    call.query()
    now_s = call.account.clock.now_s()
    content: dict[str, Any] = {
        "now": datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds"),
        "nowSeconds": floor(now_s * 1000) / 1000,  # never later than the time of an item that is written now
        "movable": call.services.clock is not None,
    }
    if call.services.clock is not None:
        content |= {"frozen": call.services.clock.is_frozen, "aheadSeconds": round(call.services.clock.ahead_s, 3)}
    return call.answer(content)


async def move_clock(call: Call) -> Response:
    fields = call.fields("a movement of the clock")
    advance_s = fields.number("advanceSeconds", 0, limits.CLOCK_ADVANCE_S_MAX)
    is_given = fields.has("frozen")
    is_frozen = fields.truth("frozen")
    fields.end()
    clock = _clock(call)
    if advance_s is None and not is_given:
        raise bad_request("Say 'advanceSeconds', 'frozen', or both.")
    if is_given and is_frozen:
        clock.freeze()
    if advance_s is not None:
        if clock.now_s() + advance_s > limits.CLOCK_NOW_S_MAX:
            raise bad_request("The clock cannot be moved beyond the year 2100.")
        clock.advance(advance_s)
    if is_given and not is_frozen:
        clock.thaw()
    audit.record("clock.moved", advance_s=advance_s, is_frozen=clock.is_frozen)
    moved = f"moved by {advance_s:g} s" if advance_s is not None else "stopped" if clock.is_frozen else "set going"
    call.account.events.record("clock-moved", f"The clock was {moved}.", advanceSeconds=advance_s, frozen=is_frozen)
    return await show_clock(call)


def _clock(call: Call) -> MovableClock:
    if call.services.clock is None:
        raise Failure(Kind.UNSUPPORTED, "This server's clock cannot be moved. Start it with --clock movable.")
    return call.services.clock
