"""Retries of requests that a server could not serve: after 429 the client waits as long as the server says, after
other transient errors with exponential backoff, up to a limit.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

_RETRIED_S: Final = 60.0  # since the request began, or since a server last said how long to wait
_FIRST_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 5.0


class Retries:
    """The retries of one request."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S
        self._deadline_s = time.monotonic() + _RETRIED_S

    async def wait(self, pause_ms: float | None = None) -> bool:
        """Wait before the next attempt; False if the time for retries is over. A server that says how long to wait is
        alive, so the time starts anew."""
        if pause_ms is not None:
            await asyncio.sleep(max(pause_ms, 1.0) / 1000)
            self._deadline_s = time.monotonic() + _RETRIED_S
            return True
        if time.monotonic() >= self._deadline_s:
            return False
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)
        return True
