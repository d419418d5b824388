"""Locks that the processes of a server share, kept by the first one: changes of the catalog and of the definition of a
container go one at a time, whichever process makes them. A lock is granted in the order of the requests. A process that
ends loses its locks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count
from typing import NamedTuple

from armillary import limits

_numbers = count()  # of the requests of this process


class Token(NamedTuple):
    """One request for a lock."""

    place: int
    number: int


class LockTable:
    """Of the first process."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[tuple[Token, asyncio.Future[None]]]] = {}  # the first of each holds the lock

    async def take(self, name: str, token: Token) -> None:
        """Raises TimeoutError if it is not granted for long."""
        queue = self._queues.setdefault(name, deque())
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append((token, granted))
        if len(queue) == 1:
            granted.set_result(None)
            return
        late = granted.get_loop().call_later(limits.LOCK_SECONDS_MAX, _expire, granted)
        try:
            await granted
        except (asyncio.CancelledError, TimeoutError):
            self.release(name, token)
            raise
        finally:
            late.cancel()

    def hold(self, name: str, token: Token) -> None:
        """A process holds it since before this one was started."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        granted.set_result(None)
        self._queues.setdefault(name, deque()).appendleft((token, granted))

    def release(self, name: str, token: Token) -> None:
        """Also of a request that was not granted yet; nothing if it is not there."""
        queue = self._queues.get(name)
        if queue is None:
            return
        is_first = queue[0][0] == token
        for each in queue:
            if each[0] == token:
                queue.remove(each)
                each[1].cancel()
                break
        if not queue:
            del self._queues[name]
        elif is_first and not queue[0][1].done():
            queue[0][1].set_result(None)

    def leave(self, place: int) -> None:
        """A process has ended."""
        for name, queue in list(self._queues.items()):
            for token in [token for token, _ in queue if token.place == place]:
                self.release(name, token)


def _expire(granted: asyncio.Future[None]) -> None:
    if not granted.done():
        granted.set_exception(TimeoutError())


class SharedLock:
    """A lock as one process takes it: an asynchronous context manager."""

    def __init__(
        self,
        name: str,
        place: int,
        take: Callable[[str, Token], Awaitable[None]],
        release: Callable[[str, Token], None],
    ) -> None:
        self._name = name
        self._place = place
        self._take = take
        self._release = release
        self._held: Token | None = None

    async def __aenter__(self) -> None:
        token = Token(self._place, next(_numbers))
        try:
            await self._take(self._name, token)
        except BaseException:
            self._release(self._name, token)
            raise
        assert self._held is None, "a lock has one holder"
        self._held = token

    async def __aexit__(self, *_: object) -> None:
        token, self._held = self._held, None
        assert token is not None
        self._release(self._name, token)
