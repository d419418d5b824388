"""Time, sleeping, ids and random numbers. A clock is passed to everything that needs one, so that everything from
`account` down can run from a seed. Nothing else in the product reads the wall clock or draws a random number.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
import uuid
from collections.abc import Coroutine
from heapq import heappop, heappush
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    def now_s(self) -> float:
        """Seconds since the epoch."""

    def monotonic_s(self) -> float:
        """Seconds that never go back, for rates: budgets and other things that a test may advance or freeze."""

    def elapsed_s(self) -> float:
        """Seconds of real time that never go back, for time slices and deadlines: tests cannot freeze them."""

    async def sleep(self, seconds: float) -> None:
        """Wait. A clock that is frozen or advanced for an application's tests does not change how long."""

    def random_bytes(self, count: int) -> bytes:
        """Unpredictable bytes, fit for keys and tokens."""

    def guid(self) -> str:
        """A new GUID in its usual text form."""


class SystemClock:
    """The machine's own time and entropy."""

    now_s = staticmethod(time.time)
    monotonic_s = staticmethod(time.monotonic)
    elapsed_s = staticmethod(time.monotonic)
    random_bytes = staticmethod(secrets.token_bytes)

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @staticmethod
    def guid() -> str:
        return str(uuid.uuid4())


class ClockPosition(NamedTuple):
    """Of a movable clock, for other processes of the machine: they share its monotonic time."""

    epoch_s: float
    ahead_s: float
    stopped_s: float | None


class MovableClock:
    """The machine's time with an offset, which can be stopped, advanced and resumed: for tests of applications. It
    never goes back; after a stop it continues from where it stood."""

    elapsed_s = staticmethod(time.monotonic)
    sleep = staticmethod(SystemClock.sleep)
    random_bytes = staticmethod(secrets.token_bytes)
    guid = staticmethod(SystemClock.guid)

    def __init__(self) -> None:
        self._ahead_s = 0.0  # of the machine's time; less than 0 after a stop
        self._stopped_s: float | None = None  # the machine's monotonic time at the stop
        # Both times are derived from one reading, so that setting the machine's own clock does not make them diverge.
        self._epoch_s = time.time() - time.monotonic()

    def now_s(self) -> float:
        return self._epoch_s + self.monotonic_s()

    def monotonic_s(self) -> float:
        return (time.monotonic() if self._stopped_s is None else self._stopped_s) + self._ahead_s

    @property
    def is_frozen(self) -> bool:
        return self._stopped_s is not None

    @property
    def ahead_s(self) -> float:
        """The offset to the machine's time; less than 0 after it was frozen."""
        return self.monotonic_s() - time.monotonic()

    @property
    def position(self) -> ClockPosition:
        return ClockPosition(self._epoch_s, self._ahead_s, self._stopped_s)

    def follow(self, position: ClockPosition) -> None:
        """Show the same time as the clock of another process of this machine."""
        self._epoch_s, self._ahead_s, self._stopped_s = position

    def freeze(self) -> None:
        if self._stopped_s is None:
            self._stopped_s = time.monotonic()

    def thaw(self) -> None:
        if self._stopped_s is not None:
            self._ahead_s -= time.monotonic() - self._stopped_s
            self._stopped_s = None

    def advance(self, seconds: float) -> None:
        assert seconds >= 0, "time does not go back"
        self._ahead_s += seconds


async def within(clock: Clock, limit_s: float, work: Coroutine[Any, Any, T]) -> T:
    """Await something for at most so long, by a clock. Raises TimeoutError. Unlike asyncio.timeout it needs no current
    task."""
    running = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(limit_s))
    timer.add_done_callback(lambda done: None if done.cancelled() else running.cancel())
    try:
        return await running
    except asyncio.CancelledError:
        if timer.done() and not timer.cancelled():
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


class Dice:
    """Random outcomes from a seed: the same seed gives the same sequence."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def falls(self, probability: float) -> bool:
        return self._random.random() < probability

    def number(self) -> float:
        """From 0 to 1."""
        return self._random.random()


class VirtualClock:
    """Time that moves only when told to, and randomness from a seed: for tests and simulation. A sleep ends when the
    clock was advanced that far. A simulation advances it to the end of the earliest sleep whenever the event loop has
    nothing else to do."""

    def __init__(self, start_s: float = 1_700_000_000.0, seed: int = 0) -> None:
        self._now_s = start_s
        self._random = random.Random(seed)
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []  # when to wake, in order; then by arrival
        self._sleep_count = 0

    def now_s(self) -> float:
        return self._now_s

    def monotonic_s(self) -> float:
        return self._now_s

    def elapsed_s(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        self._sleep_count += 1
        heappush(self._sleepers, (self._now_s + seconds, self._sleep_count, future))
        await future

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def guid(self) -> str:
        return str(uuid.UUID(bytes=self._random.randbytes(16), version=4))

    def advance(self, seconds: float) -> None:
        assert seconds >= 0, "time does not go back"
        self._now_s += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now_s:
            future = heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)

    @property
    def next_wake_s(self) -> float | None:
        """Seconds until the earliest sleep ends; None: there is none. A simulation that has nothing else to do advances
        by this."""
        while self._sleepers and self._sleepers[0][2].done():
            heappop(self._sleepers)  # cancelled
        return max(0.0, self._sleepers[0][0] - self._now_s) if self._sleepers else None
