"""Throttling of background work: it runs for a time slice, then yields to the event loop, and pauses for another slice
if requests were waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from armillary import limits
from armillary.clock import Clock


class Pace:
    """`share`: how many background tasks run at this time; they divide the slice among them."""

    def __init__(self, clock: Clock, share: Callable[[], int]) -> None:
        self._clock = clock
        self._share = share
        self._begun_s = clock.elapsed_s()

    async def rest(self) -> None:
        """Call often; waits only when the slice is used up."""
        elapsed_s = self._clock.elapsed_s
        now_s = elapsed_s()
        if now_s - self._begun_s < limits.COPY_SLICE_SECONDS / self._share():
            return
        await asyncio.sleep(0)
        others_s = elapsed_s() - now_s
        if others_s > limits.COPY_SLICE_SECONDS / 8:
            # Requests are waiting: some arrived during the slice, and more while these were answered.
            await asyncio.sleep(limits.COPY_SLICE_SECONDS)
        self._begun_s = elapsed_s()
