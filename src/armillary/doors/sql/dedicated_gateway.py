"""The port of the dedicated gateway: the SQL door once more, for clients that are configured with the address of a
dedicated gateway. There is no integrated cache: every read is fresh, which satisfies any staleness that a client
allows, and answers to reads say that no cache was hit.
"""

from __future__ import annotations

from typing import Final, Protocol

from armillary.net.http import Handler, OnCrash, Refuse, Request, Response

_MAX_AGE: Final = b"x-ms-dedicatedgateway-max-age"  # milliseconds
_BYPASS: Final = b"x-ms-dedicatedgateway-bypass-cache"
_CACHE_HIT: Final = (b"x-ms-cosmos-cachehit", b"False")
_MAX_AGE_MS: Final = 10 * 365 * 86_400_000  # the service's limit: ten years
_MAX_AGE_DIGITS: Final = len(str(_MAX_AGE_MS))


class Behind(Protocol):
    """The SQL door's entrance: its own, or that of a node of a cluster."""

    @property
    def answer(self) -> Handler: ...
    @property
    def refuse(self) -> Refuse: ...
    @property
    def on_crash(self) -> OnCrash: ...
    def screen(self, request: Request) -> Response | None: ...
    def allows_origin(self, method: str, headers: dict[bytes, bytes]) -> bool: ...


class DedicatedGateway:
    def __init__(self, behind: Behind) -> None:
        self._behind = behind
        self.refuse = behind.refuse
        self.on_crash = behind.on_crash
        self.allows_origin = behind.allows_origin

    async def answer(self, request: Request) -> Response:
        refused = self._refused(request)
        if refused is not None:
            return refused
        response = await self._behind.answer(request)
        if response.status != 200 or not _reads_items(request):
            return response
        if response.lines:
            lines = b"%b\r\n%b: %b" % (response.lines, *_CACHE_HIT)
            return Response(response.status, (), response.body, lines)
        return Response(response.status, [*response.headers, _CACHE_HIT], response.body)

    def screen(self, request: Request) -> Response | None:
        return self._refused(request) or self._behind.screen(request)

    def _refused(self, request: Request) -> Response | None:
        if request.target.startswith(b"/_"):
            return self.refuse(404, "The control API and the portal are at the port of the SQL door, not at this one.")
        age = request.headers.get(_MAX_AGE)
        if age is not None and not (age.isdigit() and len(age) <= _MAX_AGE_DIGITS and int(age) <= _MAX_AGE_MS):
            return self.refuse(400, "x-ms-dedicatedgateway-max-age must be milliseconds, from 0 to ten years.")
        if request.headers.get(_BYPASS, b"true").lower() not in (b"true", b"false"):
            return self.refuse(400, "x-ms-dedicatedgateway-bypass-cache must be true or false.")
        return None


def _reads_items(request: Request) -> bool:
    """Whether the service could answer it from its cache: a read of an item, or a query over items."""
    parts = request.target.partition(b"?")[0].strip(b"/").split(b"/")
    if len(parts) not in (5, 6) or parts[4] != b"docs":
        return False
    if request.method == "GET":
        return True
    is_query = request.headers.get(b"x-ms-documentdb-isquery", b"").lower() == b"true"
    return request.method == "POST" and (is_query or b"query+json" in request.headers.get(b"content-type", b""))
