"""Ports beside those of the doors: one for health checks, without a key, and one for the portal. The emulator's image
has both (8080 and 1234), and platforms that probe a server like a port that they can reach without TLS and host names.

Both stand before the SQL port's entrance, so they answer as it does, also on a node of a cluster.
"""

from __future__ import annotations

from typing import Final

import orjson

from armillary.doors.control.door import PREFIX as CONTROL_PREFIX
from armillary.doors.sql.dedicated_gateway import Behind
from armillary.net.http import BareResponse, Request, Response, allows_no_origin, crash_as_json, refuse_as_json
from armillary.portal.policy import PREFIX as PORTAL_PREFIX
from armillary.portal.policy import moved

_ALIVE, _READY, _STATUS = b"/alive", b"/ready", b"/status"
_OWN: Final = {_ALIVE: CONTROL_PREFIX + b"/health", _READY: CONTROL_PREFIX + b"/ready"}
_HEALTH_TARGETS: Final = {**_OWN, **{target: target for target in _OWN.values()}}  # also as at the SQL port
_JSON: Final = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"server", b"Armillary"))


class HealthPort:
    """`/alive`: the process answers. `/ready`: the account can be read; 503 if not. `/status`: both, as JSON, with the
    status of `/ready`."""

    open_targets: Final = frozenset((_ALIVE, _READY, _STATUS))
    refuse = staticmethod(refuse_as_json)
    on_crash = staticmethod(crash_as_json)
    allows_origin = staticmethod(allows_no_origin)

    def __init__(self, behind: Behind) -> None:
        self._behind = behind

    async def answer(self, request: Request) -> Response:
        path = request.target.partition(b"?")[0]
        if path not in (*_HEALTH_TARGETS, _STATUS):
            return refuse_as_json(404, "This port answers /alive, /ready and /status.")
        if request.method not in ("GET", "HEAD"):
            return refuse_as_json(405, "Health is read with GET.")
        if path != _STATUS:
            return await self._ask(_HEALTH_TARGETS[path], request)
        ready = await self._ask(_HEALTH_TARGETS[_READY], request)
        content = {"alive": True, "ready": ready.status == 200}
        return BareResponse(ready.status, _JSON, orjson.dumps(content))

    def screen(self, request: Request) -> Response | None:
        return refuse_as_json(413, "Health is read without a body.")

    async def _ask(self, target: bytes, request: Request) -> Response:
        asked = Request("GET", target, {b"host": b"localhost"}, b"", request.is_tls, request.peer)
        return await self._behind.answer(asked)


class PortalPort:
    """The portal alone: its pages and what they ask of the control API."""

    open_targets: Final[frozenset[bytes]] = frozenset()

    def __init__(self, behind: Behind) -> None:
        self._behind = behind
        self.refuse = behind.refuse
        self.on_crash = behind.on_crash
        self.allows_origin = behind.allows_origin

    async def answer(self, request: Request) -> Response:
        if request.target.partition(b"?")[0] == b"/" and request.method in ("GET", "HEAD"):
            return moved(PORTAL_PREFIX + b"/")
        return self._refused(request) or await self._behind.answer(request)

    def screen(self, request: Request) -> Response | None:
        return self._refused(request) or self._behind.screen(request)

    def _refused(self, request: Request) -> Response | None:
        if request.target.startswith(b"/_"):
            return None
        return self.refuse(404, "This is the port of the portal. The account is at the port of the SQL door.")
