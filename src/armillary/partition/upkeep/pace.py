"""How work gives way that nobody waits for: a slice of time for it, then everybody else's turn, and where there was
much to do for the others, as much time again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from armillary import limits
from armillary.clock import Clock


class Pace:
    """`share`: how many do such work at this time; they share the slice."""

    def __init__(self, clock: Clock, share: Callable[[], int]) -> None:
        self._clock = clock
        self._share = share
        self._begun_s = clock.elapsed_s()

    async def rest(self) -> None:
        """Called often; waits only when the slice is over."""
        elapsed_s = self._clock.elapsed_s
        now_s = elapsed_s()
        if now_s - self._begun_s < limits.COPY_SLICE_SECONDS / self._share():
            return
        await asyncio.sleep(0)
        others_s = elapsed_s() - now_s
        if others_s > limits.COPY_SLICE_SECONDS / 8:
            # Requests are waiting: they have come while we worked, and more of them while these were answered.
            await asyncio.sleep(limits.COPY_SLICE_SECONDS)
        self._begun_s = elapsed_s()
