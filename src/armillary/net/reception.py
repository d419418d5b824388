"""One port, two doors: targets with a prefix of their own go to the second one. Which doors there are is the caller's
to say; here nothing is read but the beginning of a target.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from armillary.net.http import Request, Response


class Door(Protocol):
    def answer(self, request: Request) -> Coroutine[Any, Any, Response]: ...

    def screen(self, request: Request) -> Response | None: ...

    def on_crash(self, request: Request, exception: BaseException) -> Response: ...


class Reception:
    """Sends each request to its door, at the cost of looking at a few bytes."""

    def __init__(self, main: Door, prefix: bytes, other: Door) -> None:
        self._main_answer = main.answer
        self._main = main
        self._prefix = prefix
        self._other = other

    def answer(self, request: Request) -> Coroutine[Any, Any, Response]:
        if request.target.startswith(self._prefix):
            return self._other.answer(request)
        return self._main_answer(request)

    def screen(self, request: Request) -> Response | None:
        return (self._other if request.target.startswith(self._prefix) else self._main).screen(request)

    def on_crash(self, request: Request, exception: BaseException) -> Response:
        door = self._other if request.target.startswith(self._prefix) else self._main
        return door.on_crash(request, exception)
