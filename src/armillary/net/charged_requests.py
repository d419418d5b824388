"""What the HTTP doors that charge request units share (SQL and Table): the request with its charge, the headers that
explain a charge, request ids, and the kinds of failure behind the statuses that the network answers by itself. How a
charge is composed is told by `account/throughput/charge_explanations.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from armillary.account.account import Account
from armillary.account.throughput.charge_explanations import explain_metadata
from armillary.clock import Clock
from armillary.errors import Kind
from armillary.model.charges import Part
from armillary.net.http import Request

HeaderList = list[tuple[bytes, bytes]]

EXPLAIN: Final = b"x-armillary-explain"

# The network's own refusals: what never became a request.
KIND_OF_STATUS: Final = {
    403: Kind.FORBIDDEN,
    408: Kind.TIMED_OUT,
    413: Kind.TOO_LARGE,
    415: Kind.UNSUPPORTED_MEDIA,
    503: Kind.UNAVAILABLE,
}


@lru_cache(1024)  # most charges are a few
def render_charge(charge_ru: float) -> bytes:
    """`x-ms-request-charge`: at most two decimals, no trailing zeros."""
    return f"{charge_ru:.2f}".rstrip("0").rstrip(".").encode("ascii")


class ChargedCall:
    """A request on its way through a door, and the charge of its answer."""

    __slots__ = ("account", "body", "charge_ru", "explains", "headers", "request")

    def __init__(self, account: Account, request: Request, *, explains: bool) -> None:
        """`explains`: the answer is to list the parts of its charge."""
        self.account = account
        self.request = request
        self.headers = request.headers
        self.body = request.body
        self.explains = explains
        self.charge_ru = 0.0  # set by the answer

    def charged(
        self, charge_ru: float, extra: Iterable[tuple[bytes, bytes]], parts: Iterable[Part] | None
    ) -> HeaderList:
        """The headers of an answer: its charge, `extra`, and the parts of the charge if the client asked for them.
        Without `parts` the charge is that of a metadata request."""
        self.charge_ru = charge_ru
        headers: HeaderList = [(b"x-ms-request-charge", render_charge(charge_ru)), *extra]
        if self.explains:
            headers.append(charge_header(explain_metadata(charge_ru) if parts is None else parts))
        return headers


def charge_header(parts: Iterable[Part]) -> tuple[bytes, bytes]:
    """The parts of a charge as a JSON list; a header that only Armillary sends."""
    return b"x-armillary-charge", orjson.dumps([_line(part) for part in parts])


def _line(part: Part) -> dict[str, Any]:
    line: dict[str, Any] = {"what": part.what}
    if part.count:
        line["count"] = part.count
    if part.size_bytes:
        line["bytes"] = part.size_bytes
    line["ru"] = part.ru
    return line


def explains_refusal(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a refusal lists its charge. Never fails: the refusal may be about this header."""
    return headers.get(EXPLAIN, b"").lower() == b"true"


class RequestIds:
    """New ids for requests: random once, then counted, which costs less than a random id for each request."""

    def __init__(self, clock: Clock) -> None:
        self._start = clock.guid()[:24]
        self._count = 0

    def guid(self) -> str:
        self._count += 1
        return f"{self._start}{self._count & 0xFFFFFFFFFFFF:012x}"
