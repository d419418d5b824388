"""What the processes of a server tell each other about their lives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, cast

from armillary.account.visits.elsewhere.place import LocalPlace, Question, Told


class ProcessLife(Protocol):
    """What the answers need of the process that was asked (`places.py`)."""

    on_ready: Callable[[int], None]
    on_stop: Callable[[], Awaitable[None]]
    on_end: Callable[[], None]


@dataclass(slots=True)
class ProcessReady(Told):
    """To the first process: this one has opened its partitions."""

    number: int

    def take(self, here: LocalPlace) -> None:
        cast(ProcessLife, here).on_ready(self.number)


@dataclass(slots=True)
class StopListening(Question):
    """By the first process: take no more connections, and let running requests finish."""

    async def answer(self, here: LocalPlace) -> None:
        await cast(ProcessLife, here).on_stop()


@dataclass(slots=True)
class EndProcess(Told):
    """By the first process: close the account and end."""

    def take(self, here: LocalPlace) -> None:
        cast(ProcessLife, here).on_end()
