"""Requests that the first process answers whichever process they came to: those of the control API and of the portal,
which are about the server as a whole. They are sent on as they came, and their credentials are checked there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from armillary.account.visits.elsewhere.place import LocalPlace, Question
from armillary.cluster.forwarding import answer_of, request_head, request_of, response_of
from armillary.errors import Failure
from armillary.net.http import Request, Response, crash_as_json, refuse_as_json
from armillary.processes.places import ProcessHere, ask_once

_SECONDS_MAX: Final = 600.0  # long polls and foresight wait inside of the first process
Answer = Callable[[Request], Awaitable[Response]]


class FirstProcess(ProcessHere):
    """The first process, once its doors are open."""

    answer_request: Answer | None = None


@dataclass(slots=True)
class AnswerRequest(Question):
    head: dict[str, Any]
    body: bytes

    async def answer(self, here: LocalPlace) -> Answered:
        answer = cast(FirstProcess, here).answer_request
        if answer is None:
            return Answered(*answer_of(refuse_as_json(503, "The server is starting. Try again.")))
        return Answered(*answer_of(await answer(request_of(self.head, self.body))))


@dataclass(slots=True)
class Answered:
    head: dict[str, Any]
    body: bytes


class ForwardingDoor:
    """A Door of the other processes."""

    def __init__(self, here: ProcessHere) -> None:
        self._here = here

    async def answer(self, request: Request) -> Response:
        request.operation = "forwarded"
        question = AnswerRequest(request_head("sql", request), request.body)
        try:
            answered: Answered = await ask_once(self._here.places.first, question, _SECONDS_MAX)
        except Failure as failure:
            return refuse_as_json(503, failure.message)
        return response_of(answered.head, answered.body)

    def screen(self, request: Request) -> Response | None:
        """Credentials are checked where it is answered."""
        return None

    def on_crash(self, request: Request, exception: BaseException) -> Response:
        return crash_as_json(request, exception)

    def needs_leader(self, request: Request) -> bool:
        return False
