"""A request and a response as the doors see them, the functions that a door gives to the network, and several
doors on one port.

Nothing here touches a socket: `connection.py` reads and writes, `answers.py` makes bytes of a response.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol

from armillary import limits
from armillary.errors import Kind

Headers = Sequence[tuple[bytes, bytes]]


class Request:
    """One request, complete. Header names are lower-case; a name that came twice has its values joined by ", "."""

    __slots__ = (
        *("begun_s", "body", "details", "has_certificate", "headers", "is_known", "is_tls", "method", "operation"),
        *("peer", "target"),
    )

    def __init__(
        self,
        method: str,
        target: bytes,
        headers: dict[bytes, bytes],
        body: bytes,
        is_tls: bool,
        peer: str,
        has_certificate: bool = False,
    ) -> None:
        self.method = method
        self.target = target  # in origin form: path and query as sent, or b"*"
        self.headers = headers
        self.body = body
        self.is_tls = is_tls
        self.peer = peer
        self.is_known = False  # True: its door has found a good signature
        self.has_certificate = has_certificate  # of the authority that clients of this port are asked for
        self.operation = ""  # "door operation", for metrics; set by the door that answers
        self.begun_s = 0.0  # when its door was asked
        self.details: Any = None  # what the account notes of it while captures, logs or traces ask for that

    def __repr__(self) -> str:
        path = self.target.partition(b"?")[0]  # the query may hold a shared access signature
        return f"Request({self.method} {path!r}, {len(self.body)} bytes, from {self.peer})"


class Response:
    """One answer. Date, Content-Length and Connection are the network's to add: a door leaves them out.

    `lines` is for the hottest answers: header lines that a door has made itself, with a line end after each but the
    last, from values of which it knows that they contain none.
    """

    __slots__ = ("body", "headers", "lines", "status")
    kind: Kind | None = None  # of the failure that it answers; see Refusal
    is_bare = False  # True: without the headers that are constant for the port's main door

    def __init__(self, status: int, headers: Headers = (), body: bytes = b"", lines: bytes = b"") -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.lines = lines

    def __repr__(self) -> str:
        return f"Response({self.status}, {len(self.body)} bytes)"


class BareResponse(Response):
    """An answer of a door that brings all its headers itself."""

    __slots__ = ()
    is_bare = True


class Refusal(Response):
    """An answer that refuses a request, and why: in a cluster, another node may be able to answer it."""

    __slots__ = ("kind",)
    kind: Kind

    def __init__(self, kind: Kind, status: int, headers: Headers, body: bytes) -> None:
        super().__init__(status, headers, body)
        self.kind = kind


class BareRefusal(Refusal):
    """The same of a door that brings all its headers itself."""

    __slots__ = ()
    is_bare = True


# In the place of an answer: the connection ends without one.
HANG_UP = Response(0)

# Answers a request. It is started without a Task (see eager.py): before it has first waited for something, there is no
# current task, so whatever needs one (asyncio.timeout, TaskGroup) comes after an `await asyncio.sleep(0)`.
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Later:
    """An answer that comes in a later turn of the event loop, and that no task waits for. The door calls `give` once:
    with the answer; with the exception that the request failed with; or with None, if nothing was done: then the
    handler answers. It may do so in the middle of other work, such as a group of transactions."""

    __slots__ = ("give",)
    give: Callable[[Response | BaseException | None], None]  # set by the connection, in the step that returns this


# The answer to a request, or a coroutine that finds it instead of the handler; None: the handler answers.
AtOnce = Response | Later | Coroutine[Any, Any, Response] | None
AnswerAtOnce = Callable[[Request], AtOnce]
# Whether a page of another origin may send a request with this method and these headers.
AllowsOrigin = Callable[[str, dict[bytes, bytes]], bool]
# Whether the sender of a request is known, as far as its head tells: None, or the answer that refuses it. Asked before
# a long body is read.
Screen = Callable[[Request], Response | None]
# The door's form of an answer to what never became a request: status and a sentence.
Refuse = Callable[[int, str], Response]
# The answer that sends a browser to another page, or None.
Redirect = Callable[[Request], Response | None]
# The door's form of an answer to a request on which its handler broke.
OnCrash = Callable[[Request, BaseException], Response]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a connection waits for its client. One look a second decides, so each is exact to a second."""

    head_s: float = limits.HEAD_SECONDS_MAX
    body_grace_s: float = limits.BODY_SECONDS_GRACE
    body_bytes_per_s: int = limits.BODY_BYTES_PER_S_MIN
    write_stall_s: float = limits.WRITE_STALL_SECONDS_MAX
    idle_s: float = limits.IDLE_SECONDS_MAX
    linger_s: float = limits.LINGER_SECONDS
    sweep_s: float = 1.0


def allows_no_origin(method: str, headers: dict[bytes, bytes]) -> bool:
    """The rule of doors that have no settings for cross-origin requests."""
    return False


def refuse_as_json(status: int, message: str) -> Response:
    """The refusal of doors that bring none of their own."""
    name = _NAMES.get(status) or HTTPStatus(status).phrase.replace(" ", "")
    body = json.dumps({"code": name, "message": message}, separators=(",", ":")).encode()
    return Response(status, ((b"Content-Type", b"application/json"),), body)


def crash_as_json(request: Request, exception: BaseException) -> Response:
    """The answer of doors that bring none of their own. It says nothing about the exception: that is in the log."""
    return refuse_as_json(500, "The server failed to answer this request. Its log has the reason.")


_NAMES = {413: "RequestEntityTooLarge", 414: "UriTooLong", 500: "InternalServerError"}


class Door(Protocol):
    def answer(self, request: Request) -> Coroutine[Any, Any, Response]: ...

    def screen(self, request: Request) -> Response | None: ...

    def on_crash(self, request: Request, exception: BaseException) -> Response: ...

    def needs_leader(self, request: Request) -> bool:
        """Whether, in a cluster, only the node that leads may answer this request. Judged by its head alone."""


class MainDoor(Door, Protocol):
    """A door that other doors may share its port with."""

    def refuse(self, status: int, message: str) -> Response: ...


class DoorsByPrefix:
    """Several doors on one port: a request whose target begins with one of their prefixes goes to that door, all others
    to the main one. Prefixes begin with "/_", so that other targets cost one lookup."""

    allows_origin = staticmethod(allows_no_origin)

    def __init__(self, main: MainDoor, others: Sequence[tuple[bytes, Door]], redirect: Redirect) -> None:
        """`others`: doors by prefix; the first that fits is taken. `redirect`: asked about targets that no prefix fits
        and that are "/" or begin with "/_"."""
        self._main_answer = main.answer
        self._main = main
        self._others = others
        self._redirect = redirect
        self.refuse = main.refuse

    def answer(self, request: Request) -> Coroutine[Any, Any, Response]:
        if request.target[:2] in _NOT_MAIN:
            return self._answer_elsewhere(request)
        return self._main_answer(request)

    async def _answer_elsewhere(self, request: Request) -> Response:
        door = self._door_of(request)
        redirect = self._redirect(request) if door is self._main else None
        return redirect if redirect is not None else await door.answer(request)

    def screen(self, request: Request) -> Response | None:
        return self._door_of(request).screen(request)

    def on_crash(self, request: Request, exception: BaseException) -> Response:
        return self._door_of(request).on_crash(request, exception)

    def needs_leader(self, request: Request) -> bool:
        if request.target[:2] not in _NOT_MAIN:
            return self._main.needs_leader(request)
        door = self._door_of(request)
        if door is self._main and self._redirect(request) is not None:
            return False
        return door.needs_leader(request)

    def _door_of(self, request: Request) -> Door:
        target = request.target
        if target[:2] == b"/_":
            for prefix, door in self._others:
                if target.startswith(prefix):
                    return door
        return self._main


_NOT_MAIN: Final = frozenset((b"/", b"/?", b"/_"))  # how targets begin that may be for another door
