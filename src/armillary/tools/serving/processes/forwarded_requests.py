"""Requests that the first process answers whichever process they came to: those of the control API and of the portal,
which are about the server as a whole. They are sent on as they came, and their credentials are checked there. For
metrics, which each process counts for itself, the first one asks the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from armillary import limits
from armillary.account.visits.elsewhere.place import LocalPlace, Lost, Question
from armillary.cluster.forwarding import answer_of, request_head, request_of, response_of
from armillary.doors.control.metrics.metric_table import Told
from armillary.doors.control.metrics.metrics import page_of
from armillary.errors import Failure
from armillary.net.http import Request, Response, crash_as_json, refuse_as_json
from armillary.processes.places import Places, ProcessHere, ProcessPlace, ask_once
from armillary.processes.rejoining import Rejoining

log = logging.getLogger("armillary")

_OPERATION: Final = "control other"  # of one that no route was found for
_SECONDS_MAX: Final = 600.0  # long polls and foresight wait inside of the first process
Answer = Callable[[Request], Awaitable[Response]]


class FirstProcess(ProcessHere):
    """The first process, once its doors are open."""

    answer_request: Answer | None = None
    rejoining: Rejoining


@dataclass(slots=True)
class AnswerRequest(Question):
    head: dict[str, Any]
    body: bytes

    async def answer(self, here: LocalPlace) -> Answered:
        answer = cast(FirstProcess, here).answer_request
        if answer is None:
            return Answered(*answer_of(refuse_as_json(503, "The server is starting. Try again.")))
        request = request_of(self.head, self.body)
        head, body = answer_of(await answer(request))
        return Answered(head, body, request.operation)


@dataclass(slots=True)
class Answered:
    head: dict[str, Any]
    body: bytes
    operation: str = _OPERATION  # as it is counted


def _refused(failure: Failure) -> Response:
    response = refuse_as_json(503, failure.message)
    if failure.retry_after_ms is None:
        return response
    return Response(response.status, (*response.headers, (b"Retry-After", b"1")), response.body)


class ForwardingDoor:
    """A Door of the other processes."""

    def __init__(self, here: ProcessHere) -> None:
        self._here = here

    async def answer(self, request: Request) -> Response:
        request.operation = _OPERATION
        question = AnswerRequest(request_head("sql", request), request.body)
        try:
            answered: Answered = await ask_once(self._here.places.first, question, _SECONDS_MAX)
        except Failure as failure:
            return _refused(failure)
        request.operation = answered.operation
        return response_of(answered.head, answered.body)

    def screen(self, request: Request) -> Response | None:
        """Credentials are checked where it is answered."""
        return None

    def on_crash(self, request: Request, exception: BaseException) -> Response:
        return crash_as_json(request, exception)

    def needs_leader(self, request: Request) -> bool:
        return False


# Metrics.


@dataclass(slots=True)
class TellMetrics(Question):
    async def answer(self, here: LocalPlace) -> Told:
        services = cast(ProcessHere, here).services
        return (await page_of(services, is_whole=False)).told() if services is not None else []


async def pages_of_others(places: Places) -> Mapping[int, Told]:
    """By the numbers of the processes. What one that does not answer has counted is missing."""
    others = list(places.others.values())
    return dict(zip(places.others, await asyncio.gather(*[_page_of(each) for each in others]), strict=True))


async def _page_of(place: ProcessPlace) -> Told:
    try:
        told: Told = await place.ask(TellMetrics(), limit_s=limits.FIGURES_SECONDS_MAX)
    except (Failure, Lost, TimeoutError) as error:
        log.warning("process %d does not tell its metrics: %r", place.number, error)
        return []
    return told
