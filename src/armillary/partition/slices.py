"""The bound of background work: each piece takes some milliseconds and some bytes, then others have their turn."""

from __future__ import annotations

from armillary import limits
from armillary.clock import Clock


class Slice:
    """What a piece of background work may take before the event loop, and other partitions, get their turn."""

    def __init__(self, clock: Clock) -> None:
        self._elapsed_s = clock.elapsed_s
        self._until_s = clock.elapsed_s() + limits.UPKEEP_SECONDS
        self._left_bytes = limits.UPKEEP_BYTES

    def takes(self, size_bytes: int) -> bool:
        """Count something that was done; whether more may follow."""
        self._left_bytes -= size_bytes
        return self._left_bytes > 0 and self._elapsed_s() < self._until_s
