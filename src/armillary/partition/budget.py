"""What a physical partition may spend: request units a second, and when to say 429, and for how long.

A request is admitted while something is left of the second. What it costs is known only afterwards, so it leaves a
deposit (the least it can cost) and the rest is settled at the end; what a second spends too much, the next ones repay.
Several containers may share one budget. Counting is `meter.py`'s part; who gets how much
`account/throughput/budgets.py`'s.

Amounts are whole hundredths of request units: what answers show, so that sums are exact.
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
    """What a request says about how it wants to be served; most say nothing and have none."""

    is_low: bool = False  # priority
    bucket: int = 0  # of throughput; 0: none
    spares_minute: bool = False  # must not use request units per minute


class Budget:
    """The seconds of one partition. `second` counts by the clock's monotonic time."""

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
        self.limit = 0  # a second
        self.ceiling = 0  # of this second: the limit and what was saved for it
        self.spent = 0  # in this second, with what earlier ones spent too much
        self._carried = 0  # of it, from earlier seconds
        self._low_spent = 0  # of it, by requests of low priority
        self._high_before = 0  # spent by the others in the second before
        self._has_burst = False
        self._saved = 0  # for bursts
        self._minute_pool = self._minute_left = 0
        self._buckets: Mapping[int, int] = {}  # the most that each may spend a second
        self._bucket_spent: dict[int, int] = {}

    def set_limit(self, limit: int, *, has_burst: bool = False, minute_pool: int = 0) -> None:
        """At once, in the middle of a second: what has been spent stays spent."""
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
        """A new second has begun: repay, save what was left, fill up what is filled up by the minute."""
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
        """For requests that say how they want to be served; for all others `spent < ceiling` is the whole rule."""
        ceiling = self.ceiling - (self._minute_left if ask.spares_minute else 0)
        if self.spent >= ceiling:
            return False
        if ask.is_low:
            # What the others needed in the second before, or have taken by now, is kept for them.
            high = max(self._high_before, self.spent - self._carried - self._low_spent)
            if self._carried + high + self._low_spent >= ceiling:
                return False
        share = self._buckets.get(ask.bucket)
        return share is None or self._bucket_spent[ask.bucket] < share

    def settle(self, amount: int, ask: Ask) -> None:
        """Note what a request that says how it wants to be served spends, or gets back."""
        if ask.is_low:
            self._low_spent += amount
        if ask.bucket in self._buckets:
            self._bucket_spent[ask.bucket] += amount

    def retry_after_ms(self, now_s: float, ask: Ask | None) -> int:
        """Until there is something left again: the end of the second, or of as many as it takes to repay."""
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
