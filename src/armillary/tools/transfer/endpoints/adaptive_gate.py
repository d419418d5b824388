"""How many requests are under way at once, and how many operations each may have: fewer after a server refused some for
lack of throughput, slowly more while it serves all (additive increase, multiplicative decrease). A server that enforces
its budgets is so asked about as much as it can serve, instead of being asked again for what it refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_DECREASE = 0.5
_FIRST_REQUESTS = 4  # at a time, until the first answers are there


class AdaptiveGate:
    """Lets at most `limit` requests through at a time."""

    def __init__(self, most: int, operations_max: int) -> None:
        """`most`: requests at a time; `operations_max`: of one request."""
        self._most = most
        self._operations_max = operations_max
        self.limit = float(min(most, _FIRST_REQUESTS))
        self._is_starting = True  # until the first refusal the limit doubles with each round of answers
        self._operations = float(operations_max)
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._steady = 0  # answers until the next decrease: those under way were sent before the last one

    @property
    def operations(self) -> int:
        """How many operations a request may have now."""
        return max(1, int(self._operations))

    @asynccontextmanager
    async def passed(self) -> AsyncIterator[None]:
        while self._running >= max(1, int(self.limit)):
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake()  # the turn of another one
                raise
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._wake()

    def _wake(self) -> None:
        free = max(1, int(self.limit)) - self._running
        while free > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                free -= 1

    def answered(self, served: int, refused: int) -> None:
        """Operations of a request that were served, and that were refused for lack of throughput."""
        self._steady = max(0, self._steady - 1)
        if not refused:
            if self._operations < self._operations_max:
                self._operations = min(self._operations_max, self._operations + 1)
            else:
                step = 1.0 if self._is_starting else 1 / max(1.0, self.limit)
                self.limit = min(self._most, self.limit + step)
            self._wake()
        elif not self._steady:
            self._is_starting = False
            at_once = min(self.limit, self._running)
            if at_once > 1:
                self.limit = max(1.0, at_once * _DECREASE)
            else:  # one request at a time is still too much at once
                self.limit = 1.0
                self._operations = max(1.0, min(self._operations, max(served, self._operations * _DECREASE)))
            self._steady = self._running
