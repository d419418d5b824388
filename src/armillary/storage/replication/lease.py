"""The lease of a leader: until when it may answer strong reads, and refusals that write nothing, without asking the
log; and how followers judge that it has ended.

It is counted from before the renewal was sent, by the kernel's boot-time clock, which also runs while the machine is
suspended and cannot be set. Nothing is committed by it: an append succeeds or fails by what the log has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from armillary import limits
from armillary.storage.log.replicated_log import LeaderState

BootTime = Callable[[], float]


# Asked for with every strong request.
boot_time_s: BootTime = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class Lease:
    def __init__(self, boot_time: BootTime = boot_time_s, seconds: float | None = None) -> None:
        self._now_s = boot_time
        self._seconds = limits.LEASE_SECONDS if seconds is None else seconds
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


class RivalLease:
    """The lease of another node, as seen from outside: it may hold until its record has not changed for its whole time
    and a margin, by this node's own clock. The margin covers clocks that run at unequal rates. Only time during which
    the log answers is counted: while it does not, or while this node stands still, a leader that lives cannot renew
    its lease either, or its renewals are not seen."""

    def __init__(self, boot_time: BootTime) -> None:
        self._now_s = boot_time
        self._seen: tuple[int, int] | None = None
        self._observed_s = 0.0  # when the log answered last
        self._watched_s = 0.0  # that the record has not changed for

    def observe(self, state: LeaderState) -> None:
        """To be called with every answer of the log. The time is taken after it came: the record was as old already."""
        now_s, seen = self._now_s(), (state.epoch, state.renewals)
        if seen != self._seen:
            self._seen = seen
            self._watched_s = 0.0
        else:
            self._watched_s += min(now_s - self._observed_s, limits.RIVAL_LOOK_SECONDS_MAX)
        self._observed_s = now_s

    def is_over(self, patience_s: float = 0.0) -> bool:
        """As of the last answer. `patience_s`: that is waited longer than needed."""
        return self._watched_s > limits.LEASE_SECONDS + limits.LEASE_MARGIN_SECONDS + patience_s
