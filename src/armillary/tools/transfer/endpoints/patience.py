"""Retries of requests that a server could not serve: after 429 the client waits as long as the server says, after
other transient errors with exponential backoff, up to a limit.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

PATIENCE_S: Final = 60.0  # without an answer that says more
_FIRST_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 5.0


class Patience:
    """Of one request."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S
        self._deadline_s = time.monotonic() + PATIENCE_S

    async def wait(self, pause_ms: float | None = None) -> bool:
        """False: it has taken too long. A server that says how long to wait is there, and is waited for."""
        if pause_ms is not None:
            await asyncio.sleep(max(pause_ms, 1.0) / 1000)
            self._deadline_s = time.monotonic() + PATIENCE_S
            return True
        if time.monotonic() >= self._deadline_s:
            return False
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)
        return True
