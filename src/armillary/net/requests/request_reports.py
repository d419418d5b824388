"""What logs and traces are told of an HTTP request: its names and its charge, taken from its address and its answer.

Addresses hold ids of items and keys of entities. Only the names of databases, containers and tables are passed on.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from armillary.net.http import Request, Response
from armillary.net.requests.request_watch import Answered

_CHARGE: Final = b"x-ms-request-charge"
_CHARGE_LINE: Final = re.compile(rb"(?:^|\r\n)x-ms-request-charge: ([0-9.]+)", re.IGNORECASE)
_ACTIVITIES: Final = (b"x-ms-activity-id", b"x-ms-client-request-id")
_RESOURCES: Final = re.compile(rb"^/dbs/([^/?]+)(?:/colls/([^/?]+))?")
_CONTROLLED: Final = re.compile(rb"^/_armillary/databases/([^/?]+)(?:/containers/([^/?]+))?")
_TABLE: Final = re.compile(rb"^/(?:[^/?]+/)?([A-Za-z][A-Za-z0-9]{2,62})(?:[(?]|$)")
_NAME_CHARACTERS_MAX: Final = 255


def answered(request: Request, response: Response, elapsed_s: float, unrouted: str) -> Answered:
    door, _, operation = (request.operation or unrouted).partition(" ")
    database, container = _place(door, request.target)
    headers = request.headers
    return Answered(
        door,
        operation,
        response.status or "dropped",
        response.kind,
        request.begun_s,
        elapsed_s,
        charge_of(response),
        database,
        container,
        next((_text(headers[name]) for name in _ACTIVITIES if name in headers), ""),
        request.peer,
        request.details,
        headers,
    )


def charge_of(response: Response) -> float:
    """What the answer says that the request was charged."""
    text = b"0"
    if response.lines:
        found = _CHARGE_LINE.search(response.lines)
        text = found[1] if found is not None else text
    else:
        text = next((value for name, value in response.headers if name.lower() == _CHARGE), text)
    try:
        return float(text)
    except ValueError:
        return 0.0


def _place(door: str, target: bytes) -> tuple[str, str]:
    """The names of the database and the container that an address is about."""
    if door == "table":
        table = _TABLE.match(target.partition(b"?")[0])
        return "", _text(table[1]) if table is not None else ""
    found = (_CONTROLLED if door == "control" else _RESOURCES).match(target)
    return (_text(found[1]), _text(found[2] or b"")) if found is not None else ("", "")


def _text(part: bytes) -> str:
    return unquote(part.decode("latin-1"), errors="replace")[:_NAME_CHARACTERS_MAX]
