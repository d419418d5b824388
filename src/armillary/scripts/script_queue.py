"""Serializes scripts that conflict. A script whose transaction conflicted with another writer runs again while it holds
the queue of its logical partition, and later scripts of that logical partition wait for it. Plain writes never take
this lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from armillary import limits
from armillary.errors import Failure, Kind


class ScriptQueue:
    """One lock for each logical partition in which a script is being retried."""

    def __init__(self) -> None:
        self._locks: dict[bytes, asyncio.Lock] = {}
        self._users: dict[bytes, int] = {}

    def is_taken(self, place: bytes) -> bool:
        """Whether a script is being retried in this logical partition."""
        return place in self._locks

    @asynccontextmanager
    async def at(self, place: bytes) -> AsyncIterator[None]:
        """Hold the queue of a logical partition. Waits for the scripts before it, for a limited time."""
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
