"""How the embedded engine answers transactions: results, refusals, and unknown outcomes."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from armillary.errors import Failure, Kind
from armillary.storage.disk_errors import translated


class Answer(NamedTuple):
    future: asyncio.Future[Any]
    result: Any
    error: BaseException | None


def set_error(future: asyncio.Future[Any], error: BaseException) -> None:
    if isinstance(error, StopIteration):  # a future cannot carry it
        error = RuntimeError("a transaction function let StopIteration escape")
    future.set_exception(translated(error) or error)


def refuse(answers: list[Answer], failure: Failure) -> None:
    for answer in answers:
        if not answer.future.done():
            answer.future.set_exception(again(failure))


def unknown_outcome(failure: Failure) -> Failure:
    return Failure(
        failure.kind, f"{failure.message} Whether this write was stored is not known: read before writing it again."
    )


def again(failure: Failure) -> Failure:
    """A copy for one more caller: an exception raised in several tasks would collect all their tracebacks."""
    return Failure(failure.kind, failure.message, retry_after_ms=failure.retry_after_ms)


def no_room() -> Failure:
    return Failure(
        Kind.STORAGE_FULL,
        "The disk of the data directory is nearly full; nothing was stored. Free some room or drop containers; "
        "no restart is needed.",
    )


def closed() -> Failure:
    return Failure(Kind.UNAVAILABLE, "The database is shutting down; connect again once it is running.")
