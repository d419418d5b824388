"""One request on its way through the control door: the names in its path, its query and its body, and how it is
answered.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

import orjson

from armillary import limits
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.doors.control.errors import HEADERS
from armillary.doors.control.fields import Fields
from armillary.errors import Failure, Kind, bad_request
from armillary.model.json_members import shown
from armillary.net.http import BareResponse, Request, Response

if TYPE_CHECKING:
    from armillary.doors.control.door import ControlDoor

Action = Callable[["Call"], Coroutine[Any, Any, Response]]


class Call:
    __slots__ = ("_query", "account", "door", "names", "request")

    def __init__(self, door: ControlDoor, request: Request, names: list[str], query: Mapping[str, str]) -> None:
        self.door = door
        self.account: Account = door.account
        self.request = request
        self.names = names  # those in the path, in their order
        self._query = dict(query)

    def container(self) -> Container:
        return self.account.container(self.names[0], self.names[1])

    def query(self, *known: str) -> dict[str, str]:
        """The parameters of the target; others than these are refused by name."""
        for name in self._query:
            if name not in known:
                raise bad_request(f"Unknown query parameter '{shown(name)}'.")
        return self._query

    def count(self, name: str, default: int, most: int) -> int:
        """A query parameter that is a number from 1 on; the only one of its request."""
        text = self.query(name).get(name, str(default))
        if len(text) > 9 or not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
            raise bad_request(f"'{name}' must be a whole number from 1 to {most}, not '{shown(text)}'.")
        return int(text)

    def fields(self, what: str) -> Fields:
        self.query()
        request = self.request
        if len(request.body) > limits.CONTROL_BODY_BYTES_MAX:
            raise Failure(Kind.TOO_LARGE, f"The body is larger than {limits.CONTROL_BODY_BYTES_MAX} bytes.")
        # A page of another site can send forms and texts without asking first, but not this type.
        media_type = request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if request.body and media_type != b"application/json":
            raise Failure(Kind.UNSUPPORTED_MEDIA, "The body must be JSON: send 'Content-Type: application/json'.")
        return Fields(request.body, what)

    @staticmethod
    def answer(content: Any, status: int = 200) -> Response:
        return BareResponse(status, HEADERS, orjson.dumps(content))


class Routes:
    """Paths with places for names, and what answers them."""

    def __init__(self, actions: Iterable[tuple[str, str, Action]]) -> None:
        """Method, path and action of each. A segment in braces is a place for a name."""
        self._actions: dict[tuple[str, ...], dict[str, Action]] = {}
        for method, path, action in actions:
            segments = tuple("" if part.startswith("{") else part for part in path.split("/"))
            self._actions.setdefault(segments, {})[method] = action

    def find(self, method: str, path: str) -> tuple[Action, list[str]]:
        """What answers a path, and the names in it."""
        parts = path.split("/")
        allowed: set[str] = set()
        for segments, actions in self._actions.items():
            if len(segments) != len(parts) or any(
                segment and segment != part for segment, part in zip(segments, parts, strict=True)
            ):
                continue
            if method in actions:
                return actions[method], [_name(p) for s, p in zip(segments, parts, strict=True) if not s]
            allowed |= actions.keys()
        if allowed:
            raise Failure(
                Kind.METHOD_NOT_ALLOWED,
                f"{shown(method)} is not possible here; {', '.join(sorted(allowed))} is.",
                details={"allowed": sorted(allowed)},
            )
        raise Failure(Kind.NOT_FOUND, f"There is nothing at '{shown(path)}'; docs/control.md lists what there is.")


def _name(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise bad_request(f"'{shown(part)}' is not percent-encoded UTF-8.") from None


def read_target(target: bytes, prefix: bytes) -> tuple[str, dict[str, str]]:
    """The path after the prefix, still encoded, and the query."""
    path, _, query = target[len(prefix) :].decode("latin-1").partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict", max_num_fields=20)
    except ValueError:
        raise bad_request("The query of the target cannot be read.") from None
    if len({name for name, _ in pairs}) != len(pairs):
        raise bad_request("The query of the target has a parameter twice.")
    return path.strip("/"), dict(pairs)
