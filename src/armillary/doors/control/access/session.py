"""`/_armillary/session`: a browser logs in with the control key or a ticket, asks whether it is logged in, lists all
log-ins, and logs out; and the tickets themselves, which `armillary portal` asks for.
"""

from __future__ import annotations

from typing import Any

import orjson

from armillary import limits
from armillary.doors.control.access.authentication import Access
from armillary.doors.control.call import Call
from armillary.doors.control.errors import HEADERS
from armillary.errors import Failure, Kind, bad_request
from armillary.net.control_keys import is_same
from armillary.net.http import BareResponse, Response


async def log_in(call: Call) -> Response:
    fields = call.fields("a log-in")
    key, ticket, is_read_only = fields.text("key"), fields.text("ticket"), fields.truth("readOnly")
    fields.end()
    _check_on(call)
    peer, log_ins = call.request.peer, call.services.log_ins
    if key is not None and ticket is not None:
        raise bad_request("Give a 'key' or a 'ticket', not both.")
    log_ins.check_failures(peer)
    access = _of_ticket(call, ticket) if ticket is not None else _of_key(call, key)
    call.services.signed_in(peer, access.credential)
    begun, value = log_ins.begin(is_read_only=is_read_only or access.is_read_only, address=peer)
    content = {
        "csrf": begun.csrf,
        "readOnly": begun.is_read_only,
        "expiresInSeconds": log_ins.seconds_left(begun),
    }
    return _with_cookie(call, 201, content, value)


async def show_session(call: Call) -> Response:
    call.query()
    _check_on(call)
    log_ins = call.services.log_ins
    content: dict[str, Any] = {
        "isLoggedIn": False,
        "portal": log_ins.mode,
        "hasControlKey": call.services.guard.has_key,
    }
    found = log_ins.find(call.request.headers.get(b"cookie", b""), is_tls=call.request.is_tls)
    if found is not None:
        content |= {
            "isLoggedIn": True,
            "csrf": found.csrf,
            "readOnly": found.is_read_only,
            "expiresInSeconds": log_ins.seconds_left(found),
            "logIns": len(log_ins),
        }
    return call.answer(content)


async def list_log_ins(call: Call) -> Response:
    """Of this server, or this node of a cluster."""
    call.query()
    found = [
        {
            "address": each.address,
            "readOnly": each.is_read_only,
            "begunSecondsAgo": int(begun_s),
            "usedSecondsAgo": int(used_s),
            "expiresInSeconds": call.services.log_ins.seconds_left(each),
            "isThis": each.id == call.access.log_in_id,
        }
        for each, begun_s, used_s in call.services.log_ins.current()
    ]
    return call.answer({"logIns": found})


async def log_out(call: Call) -> Response:
    """Ends the log-in of this browser, or with `all` those of all browsers."""
    asked = call.query("all")
    if asked.get("all", "false") not in ("true", "false"):
        raise bad_request("'all' must be true or false.")
    log_ins, own = call.services.log_ins, call.access.log_in
    if asked.get("all") == "true":
        if call.access.is_read_only:
            raise Failure(Kind.FORBIDDEN, "A read-only log-in can end itself, not those of others.")
        return _with_cookie(call, 200, {"ended": log_ins.end_all()}, "")
    if own is not None:
        log_ins.end(own)
    return _with_cookie(call, 200, {"ended": int(own is not None)}, "")


async def make_ticket(call: Call) -> Response:
    call.fields("a ticket").end()
    _check_on(call)
    if call.access.log_in_id:
        raise Failure(Kind.FORBIDDEN, "A ticket is made with the control key, not by a log-in.")
    ticket = call.services.log_ins.make_ticket(is_read_only=call.access.is_read_only)
    return call.answer({"ticket": ticket, "expiresInSeconds": int(limits.LOG_IN_TICKET_SECONDS)}, 201)


def _of_key(call: Call, key: str | None) -> Access:
    guard = call.services.guard
    if key is None and call.services.log_ins.mode == "open":
        return Access(is_read_only=False, credential="none, the portal is open")
    if not guard.has_key:
        raise Failure(
            Kind.FORBIDDEN,
            "This server has no control key, so nobody can log in. Start it with ARMILLARY_CONTROL_KEY.",
        )
    if key is None:
        raise bad_request("Give the control 'key', or a 'ticket' of `armillary portal`.")
    access = guard.of_key(key.strip())
    if access is None:
        credentials = call.services.credentials
        known = [each for each in credentials.keys.values() if each is not None] if credentials is not None else []
        what = "The control key is wrong."
        if any(is_same(key.strip(), each) for each in known):
            what = "That is the account's key. The portal needs the control key."
        raise _refused(call, f"{what} `armillary portal` opens the portal without one.")
    return access


def _of_ticket(call: Call, ticket: str) -> Access:
    is_read_only = call.services.log_ins.take_ticket(ticket)
    if is_read_only is None:
        raise _refused(
            call, "The ticket was used before or is older than a minute. `armillary portal` makes another one."
        )
    return Access(is_read_only=is_read_only, credential="ticket")


def _refused(call: Call, message: str) -> Failure:
    call.services.log_ins.count_failure(call.request.peer)
    return Failure(Kind.UNAUTHORIZED, message)


def _check_on(call: Call) -> None:
    if call.services.log_ins.mode == "off":
        raise Failure(Kind.NOT_FOUND, "The portal of this server is turned off (--portal off).")


def _with_cookie(call: Call, status: int, content: Any, value: str) -> Response:
    cookie = call.services.log_ins.cookie(value, is_tls=call.request.is_tls)
    return BareResponse(status, [*HEADERS, (b"set-cookie", cookie)], orjson.dumps(content))
