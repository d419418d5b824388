"""The throughput budget of a physical partition: request units per second, and the 429 rule with its retry-after.

A request is admitted while some of this second's budget is left. Its charge is known only afterwards, so it leaves a
deposit (the least it can cost) and the difference is settled at the end; a second that overspends is repaid by the next
ones. Several containers may share one budget. Counting is done by `meter.py`; `account/throughput/budgets.py` divides
the throughput.

Amounts are whole hundredths of request units, as answers show them, so that sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from armillary import limits

HUNDREDTHS = 100
# Deposits: the least that an operation of a kind costs.
READ_DEPOSIT = 1 * HUNDREDTHS
WRITE_DEPOSIT = 5 * HUNDREDTHS
QUERY_DEPOSIT = 225

_BURST_CEILING = limits.BURST_THROUGHPUT_RU * HUNDREDTHS
_MINUTE_S = 60


class Ask(NamedTuple):
    """A request's priority, throughput bucket and use of the minute budget. Most requests specify none of these."""

    is_low: bool = False  # low priority
    bucket: int = 0  # throughput bucket; 0: none
    spares_minute: bool = False  # must not use request units per minute


class Budget:
    """The budget of one partition, second by second. `second` counts by the clock's monotonic time."""

    __slots__ = (
        "_bucket_spent",
        "_buckets",
        "_carried",
        "_has_burst",
        "_high_before",
        "_low_spent",
        "_minute_left",
        "_minute_pool",
        "_saved",
        "ceiling",
        "limit",
        "second",
        "spent",
    )

    def __init__(self, second: int) -> None:
        self.second = second
        self.limit = 0  # per second
        self.ceiling = 0  # for this second: the limit plus saved burst capacity
        self.spent = 0  # in this second, including the debt of earlier ones
        self._carried = 0  # the part that is debt of earlier seconds
        self._low_spent = 0  # the part spent by requests of low priority
        self._high_before = 0  # spent by requests of normal priority in the previous second
        self._has_burst = False
        self._saved = 0  # for bursts
        self._minute_pool = self._minute_left = 0
        self._buckets: Mapping[int, int] = {}  # the most that each may spend a second
        self._bucket_spent: dict[int, int] = {}

    def set_limit(self, limit: int, *, has_burst: bool = False, minute_pool: int = 0) -> None:
        """Takes effect at once, in the middle of a second: what has been spent stays spent."""
        assert limit > 0, "a partition that may spend nothing"
        self.limit = limit
        self._has_burst = has_burst and limit < _BURST_CEILING
        self._saved = min(self._saved, limit * limits.BURST_SECONDS_MAX) if self._has_burst else 0
        self._minute_left = max(0, self._minute_left + minute_pool - self._minute_pool)
        self._minute_pool = minute_pool
        self._raise_ceiling()

    def set_buckets(self, shares_percent: Mapping[int, int]) -> None:
        """After `set_limit`: the most that requests of each bucket may spend."""
        self._buckets = {bucket: max(1, self.limit * share // 100) for bucket, share in shares_percent.items()}
        self._bucket_spent = {bucket: self._bucket_spent.get(bucket, 0) for bucket in shares_percent}

    def turn(self, second: int) -> None:
        """Begin a new second: repay debt, save what was left for bursts, refill the minute budget."""
        elapsed = max(1, second - self.second)
        over = self.spent - self.limit
        if over > 0 and self._minute_left:
            paid = min(over, self._minute_left)
            self._minute_left -= paid
            self.spent -= paid
            over -= paid
        if over > 0 and self._saved:
            paid = min(over, self._saved)
            self._saved -= paid
            self.spent -= paid
        self._high_before = max(0, self.spent - self._carried - self._low_spent) if elapsed == 1 else 0
        self._low_spent = 0
        spare = self.limit * elapsed - self.spent
        self.spent = self._carried = max(0, -spare)
        if self._has_burst and spare > 0:
            self._saved = min(self.limit * limits.BURST_SECONDS_MAX, self._saved + spare)
        if self._minute_pool and second // _MINUTE_S != self.second // _MINUTE_S:
            self._minute_left = self._minute_pool
        for bucket, share in self._buckets.items():
            self._bucket_spent[bucket] = max(0, self._bucket_spent[bucket] - share * elapsed)
        self.second = second
        self._raise_ceiling()

    def _raise_ceiling(self) -> None:
        burst = min(self._saved, _BURST_CEILING - self.limit) if self._has_burst else 0
        self.ceiling = self.limit + burst + self._minute_left

    def admits(self, ask: Ask) -> bool:
        """Admission of a request with an Ask; for all others `spent < ceiling` is the whole rule."""
        ceiling = self.ceiling - (self._minute_left if ask.spares_minute else 0)
        if self.spent >= ceiling:
            return False
        if ask.is_low:
            # What normal priority used in the previous second, or has used by now, is reserved for it.
            high = max(self._high_before, self.spent - self._carried - self._low_spent)
            if self._carried + high + self._low_spent >= ceiling:
                return False
        share = self._buckets.get(ask.bucket)
        return share is None or self._bucket_spent[ask.bucket] < share

    def spend_elsewhere(self, amount: int, second: int) -> None:
        """Another process or node has spent so much of it."""
        if second != self.second:
            self.turn(second)
        self.spent += amount

    def settle(self, amount: int, ask: Ask) -> None:
        """Add what a request with an Ask spends, or gets back."""
        if ask.is_low:
            self._low_spent += amount
        if ask.bucket in self._buckets:
            self._bucket_spent[ask.bucket] += amount

    def retry_after_ms(self, now_s: float, ask: Ask | None) -> int:
        """Milliseconds until the budget has something left: the end of this second, or of as many as it takes to
        repay."""
        over = max(0, self.spent - self.limit)
        if ask is None or not ask.spares_minute:
            over -= min(over, self._minute_left)
        over -= min(over, self._saved)
        seconds = over // self.limit
        if self._minute_pool and (ask is None or not ask.spares_minute):
            to_minute = _MINUTE_S - self.second % _MINUTE_S - 1  # seconds after this one
            if over - to_minute * self.limit < self.limit + self._minute_pool:
                seconds = min(seconds, to_minute)
        if ask is not None and (share := self._buckets.get(ask.bucket)) is not None:
            seconds = max(seconds, max(0, self._bucket_spent[ask.bucket] - share) // share)
        return max(1, math.ceil((self.second + 1 + seconds - now_s) * 1000))
