"""Places: the processes that hold partitions. A place is asked questions and told things, which are messages. A
question is answered where it arrives, by its own method `answer`; what that returns or raises comes back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import ContextVar
from functools import cached_property
from typing import Any, Protocol

from armillary import limits
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.visits.elsewhere.page_entries import Entries
from armillary.account.visits.elsewhere.remembered_answers import RememberedAnswers
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.late import Late
from armillary.model.sendable import Sendable


class LocalPlace:
    """This process as a place that others ask: what the answers to their questions need."""

    def __init__(self, account: Account, remembered: RememberedAnswers) -> None:
        self.account = account
        self.remembered = remembered

    @cached_property
    def doors(self) -> dict[str, Late[Any]]:
        """Of this process, by their protocols: those that answer other processes, too."""
        return {}

    @cached_property
    def entries(self) -> Entries:
        """Of pages that other places gather."""
        return Entries(self.account.clock)

    def container(self, name: bytes) -> Container:
        """By its rid, or by a name that this place has given to it as a transaction or a snapshot sees it."""
        container = self.find_container(name)
        if container is None:
            raise Failure(Kind.OWNER_NOT_FOUND, "The container was deleted meanwhile.")
        return container

    def find_container(self, name: bytes) -> Container | None:
        """None: it was deleted."""
        return self.account.container_by_rid(name)


class Question(Sendable, ABC):
    """Subclasses are dataclasses of plain data, listed in `message_table.py`."""

    __slots__ = ()

    @property
    def write_id(self) -> bytes | None:
        """Of a question that changes something: asked again under the same id, it is answered and not done again. Its
        work goes on when the process that asked waits no more, while that of other questions is cancelled."""
        return None

    @abstractmethod
    async def answer(self, here: LocalPlace) -> Any:
        """Answer it, where it arrived. Failures, MemberFailed and Repeated are raised where it was asked, too."""


class Told(Sendable, ABC):
    """The same for what has no answer: it is lost if the connection is."""

    __slots__ = ()

    @abstractmethod
    def take(self, here: LocalPlace) -> None:
        """It has arrived."""


class Lost(Exception):
    """The connection to a place ended before the answer came: the question may have arrived or not."""


class Unreached(Failure):
    """A place cannot be asked now, because its process is being started: nothing was sent."""

    def __init__(self) -> None:
        message = "The process of the server that this is asked of is being started. Try again."
        super().__init__(Kind.UNAVAILABLE, message, retry_after_ms=limits.CLUSTER_RETRY_MS)


class Place(Protocol):
    """Another process, to those that ask it."""

    @property
    def number(self) -> int: ...

    def new_write_id(self) -> bytes: ...

    async def ask(self, question: Question, *, limit_s: float) -> Any:
        """The answer. Raises Lost; Unreached; a Failure of the question's, or UNAVAILABLE where too much is asked at
        once; and TimeoutError if there is no answer by then."""

    def tell(self, message: Told) -> None: ...


# How many seconds a request waits for a process that is being started, if nothing was sent to it. Clients of the SQL
# protocol obey a retry-after; drivers of MongoDB try again at once, and only once.
PATIENCE_S: ContextVar[float] = ContextVar("patience", default=0.0)


class Patience:
    """Of one request."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends_s = clock.elapsed_s() + PATIENCE_S.get()

    async def wait(self) -> bool:
        """A moment, before the place is asked again. Whether it may be."""
        if self._clock.elapsed_s() >= self._ends_s:
            return False
        await self._clock.sleep(limits.PLACE_RETRY_SECONDS)
        return True


async def ask(place: Place, question: Question, clock: Clock) -> Any:
    """The answer of a place: it is asked again after the connection was lost, until its time is over."""
    ends_s = clock.elapsed_s() + limits.VISIT_SECONDS_MAX
    left_s = limits.VISIT_SECONDS_MAX
    was_sent = False
    while True:
        try:
            return await place.ask(question, limit_s=left_s)
        except Unreached:
            if not was_sent or question.write_id is None:
                raise
        except Lost:
            was_sent = True
            left_s = ends_s - clock.elapsed_s()
            if left_s > 0:
                continue
        except TimeoutError:
            pass
        raise no_answer(is_write=question.write_id is not None)


def no_answer(*, is_write: bool) -> Failure:
    message = "The process that holds the partition does not answer."
    if is_write:
        message += " Whether this write was stored is not known: read before writing it again."
        return Failure(Kind.UNAVAILABLE, message)
    return Failure(Kind.UNAVAILABLE, f"{message} Try again.", retry_after_ms=limits.CLUSTER_RETRY_MS)
