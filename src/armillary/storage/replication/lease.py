"""The lease of a leader: until when it may answer strong reads, and refusals that write nothing, without asking the
log.

It is counted from before the renewal was sent, by the kernel's boot-time clock, which also runs while the machine is
suspended and cannot be set. Nothing is committed by it: an append succeeds or fails by what the log has.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from armillary.limits import LEASE_SECONDS

BootTime = Callable[[], float]


def boot_time_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease:
    def __init__(self, boot_time: BootTime = boot_time_s, seconds: float = LEASE_SECONDS) -> None:
        self._now_s = boot_time
        self._seconds = seconds
        self._until_s = float("-inf")

    def now_s(self) -> float:
        """To be read before a renewal is sent."""
        return self._now_s()

    def renew(self, sent_s: float) -> None:
        """A renewal that was sent at this time has succeeded."""
        self._until_s = max(self._until_s, sent_s + self._seconds)

    def end(self) -> None:
        self._until_s = float("-inf")

    @property
    def holds(self) -> bool:
        return self._now_s() < self._until_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._until_s - self._now_s())
