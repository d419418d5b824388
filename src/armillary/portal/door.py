"""The portal's door, under `/_armillary/portal`: pages and their files for everyone who reaches the port, and bridges
to the other doors for those who have logged in. What the pages show comes from the control API. The certificate at the
emulator's address is answered here too, whether the portal is on or off.
"""

from __future__ import annotations

from typing import Final

from armillary.doors.control.door import ControlDoor
from armillary.doors.control.live.server import host_of
from armillary.errors import Failure, Kind
from armillary.net.http import Request, Response
from armillary.portal.bridges import Bridges
from armillary.portal.entrance_pages import CERTIFICATE_PATH, certificate_file, plain_page
from armillary.portal.policy import PREFIX, moved, not_found, with_policy
from armillary.portal.static_files import StaticFiles

_STATIC: Final = "static/"
_OPERATION: Final = "portal page"  # what metrics call its requests
_OFF: Final = "The portal of this server is turned off (--portal off)."


class PortalDoor:
    def __init__(self, control: ControlDoor, files: StaticFiles, bridges: Bridges) -> None:
        self._control = control
        self._bridges = bridges
        self._files = files

    async def answer(self, request: Request) -> Response:
        path = _path_of(request)
        request.operation = _OPERATION
        try:
            if request.target.partition(b"?")[0] == CERTIFICATE_PATH:
                _check_reading(request)
                return await certificate_file(self._control.facts.certificate)
            if path is None:
                return await self._control.answer(request)  # a word that only begins like ours
            if self._control.log_ins.mode == "off":
                return self._without_portal(path, request)
            bridge = self._bridges.leads_to(request)
            if bridge is not None:
                return await self._bridges.answer(bridge, request, self._control.admit(request))
            _check_reading(request)
            return await self._page(path, request)
        except Failure as failure:
            return with_policy(await self._control.refusal(request, failure))

    def _without_portal(self, path: str, request: Request) -> Response:
        if path not in ("", "/") or request.method not in ("GET", "HEAD"):
            return not_found(_OFF)
        return plain_page(self._control.facts.endpoints(host_of(request)), self._control.account.settings.name)

    async def _page(self, path: str, request: Request) -> Response:
        if not path:
            return moved(PREFIX + b"/", 308)
        name = path[1:]
        if name.startswith(_STATIC):
            return await self._files.file(name[len(_STATIC) :], request)
        if "." in name.rpartition("/")[2]:
            return not_found("The portal has no such file.")
        return await self._files.index(request)

    def screen(self, request: Request) -> Response | None:
        """Whether a long body is worth reading, or a request forwarding."""
        try:
            self._control.vouch(request)
        except Failure as failure:
            return with_policy(self._control.screen_refusal(request, failure))
        return None

    def needs_leader(self, request: Request) -> bool:
        """Pages are answered by every node."""
        bridge = self._bridges.leads_to(request)
        return bridge is not None and self._bridges.needs_leader(bridge, request)

    def on_crash(self, request: Request, exception: BaseException) -> Response:
        return with_policy(self._control.on_crash(request, exception))


def _check_reading(request: Request) -> None:
    if request.method not in ("GET", "HEAD"):
        raise Failure(Kind.METHOD_NOT_ALLOWED, "Pages are read with GET.", details={"allowed": ["GET"]})


def _path_of(request: Request) -> str | None:
    """What follows the prefix: "" or a path; None: the target goes on with other letters."""
    path = request.target.partition(b"?")[0][len(PREFIX) :].decode("latin-1")
    return path if not path or path.startswith("/") else None
