"""Requests that wait for something to happen: so many at a time, and none of them holds up the end of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind


class LongPolls:
    """Of one process. `clock`: real time, since clients wait by it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._is_closing = False
        self._ending: set[asyncio.Future[None]] = set()

    @property
    def count(self) -> int:
        return self._count

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._count >= limits.WATCH_WAITING_MAX:
            raise Failure(
                Kind.UNAVAILABLE,
                f"{limits.WATCH_WAITING_MAX} requests wait for changes already, the most there may be. Ask without "
                "'wait', or try again.",
                retry_after_ms=1_000,
            )
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    async def until(self, is_over: Callable[[], bool], wait_ms: int, pause: Callable[[float], Awaitable[None]]) -> None:
        """Wait until something is so, for at most so long. `pause` waits for a sign that it may be, for at most the
        seconds that it is given."""
        if wait_ms <= 0 or is_over():
            return
        end_s = self._clock.elapsed_s() + wait_ms / 1000
        with self._place():
            while not self._is_closing and (left_s := end_s - self._clock.elapsed_s()) > 0:
                await self._or_closing(pause(left_s))
                if is_over():
                    return

    async def _or_closing(self, waiting: Awaitable[None]) -> None:
        ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        running = asyncio.ensure_future(waiting)
        self._ending.add(ending)
        try:
            await asyncio.wait((ending, running), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._ending.discard(ending)
            running.cancel()

    def close(self) -> None:
        """The server stops: all are answered now, and none waits any more."""
        self._is_closing = True
        for ending in self._ending:
            if not ending.done():
                ending.set_result(None)
