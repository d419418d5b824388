"""The headers of all answers of the portal, which forbid its pages whatever they do not need; its refusals; and which
requests of browsers are sent to it from other addresses.
"""

from __future__ import annotations

from typing import Final

import orjson

from armillary.net.http import BareResponse, Headers, Request, Response

PREFIX: Final = b"/_armillary/portal"

_CONTENT: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS: Final[Headers] = (
    (b"content-security-policy", _CONTENT.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"server", b"Armillary"),
)
_JSON: Final[Headers] = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"), *HEADERS)
# What people type, or find in instructions for the emulator.
_ENTRANCES: Final = frozenset((b"/", b"/_explorer", b"/_explorer/", b"/_explorer/index.html"))


def json_response(status: int, content: object) -> Response:
    return BareResponse(status, _JSON, orjson.dumps(content))


def not_found(message: str) -> Response:
    return json_response(404, {"error": {"code": "not_found", "message": message}})


def moved(place: bytes, status: int = 302) -> Response:
    return BareResponse(status, [(b"location", place), (b"cache-control", b"no-store"), *HEADERS])


def with_policy(response: Response) -> Response:
    """An answer of another door with the headers of the portal's."""
    headers = list(response.headers)
    if response.lines:
        pairs = [line.partition(b": ") for line in response.lines.split(b"\r\n")]
        headers, response.lines = [(name, value) for name, _, value in pairs], b""
    known = {name.lower() for name, _ in headers}
    response.headers = [*headers, *(each for each in HEADERS if each[0] not in known)]
    return response


def redirect_browser(request: Request) -> Response | None:
    """To the portal, from the addresses at which the emulator has its pages. SDKs send `Authorization` and ask for
    JSON, so they never see this."""
    headers = request.headers
    if (
        request.method not in ("GET", "HEAD")
        or request.target.partition(b"?")[0] not in _ENTRANCES
        or b"authorization" in headers
        or b"text/html" not in headers.get(b"accept", b"").lower()
    ):
        return None
    return moved(PREFIX + b"/")
