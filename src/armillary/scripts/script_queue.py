"""Scripts that got in each other's way take turns: whoever has to run again in a logical partition runs while no other
script begins there. Who writes without scripts does not wait for anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from armillary import limits
from armillary.errors import Failure, Kind


class Turns:
    def __init__(self) -> None:
        self._locks: dict[bytes, asyncio.Lock] = {}
        self._users: dict[bytes, int] = {}

    def is_taken(self, place: bytes) -> bool:
        return place in self._locks

    @asynccontextmanager
    async def at(self, place: bytes) -> AsyncIterator[None]:
        """Alone among those that come this way to a place."""
        lock = self._locks.setdefault(place, asyncio.Lock())
        self._users[place] = self._users.get(place, 0) + 1
        try:
            try:
                await asyncio.wait_for(lock.acquire(), limits.SCRIPT_WAIT_SECONDS_MAX)
            except TimeoutError:
                message = "Too many scripts are waiting for others in their logical partition. Try again later."
                raise Failure(Kind.TIMED_OUT, message) from None
            try:
                yield
            finally:
                lock.release()
        finally:
            self._users[place] -= 1
            if not self._users[place]:
                del self._users[place], self._locks[place]
