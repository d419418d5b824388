"""Metering of a partition: requests, charges, refusals, the request units of the last seconds, and the logical
partitions they were spent on. Every request calls `admit` before and `spend` after its work, whether budgets are
enforced or not. `budget.py` decides when to refuse, `load_rows.py` counts the same by parts of the range and time.

The charge that a meter returns is the one to answer: rounded as in answers, so that the sum of all answers is the sum
of all meters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from heapq import nlargest
from typing import NamedTuple

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.model.charges import THROTTLED_RU
from armillary.partition.budget import HUNDREDTHS, READ_DEPOSIT, Ask, Budget
from armillary.partition.load_rows import REQUEST, LoadRows, RangeRows, RowCounts

NOT_COUNTED = -1  # ticket of a request over the budget that is served all the same, without spending the budget
REQUEST_RATE_IS_LARGE = (
    "Request rate is large. More Request Units may be needed, so no changes were made. Please retry this request "
    "later. Learn more: http://aka.ms/cosmosdb-error-429"
)
_REFUSED = round(THROTTLED_RU * HUNDREDTHS)
_HOUR_S = 3600
_ROW_BITS = 5
_ROW = (1 << _ROW_BITS) - 1
_NO_ASK = Ask()


class Totals(NamedTuple):
    """Counted since the server started; can be added up."""

    requests: int = 0  # including refused ones
    charged: int = 0  # hundredths of request units, including the charge of refusals
    refused: int = 0
    would_be_refused: int = 0  # served although over the budget, because budgets are only observed
    full: int = 0  # writes refused because their key has reached its maximum size (403/1014)

    def plus(self, other: Totals) -> Totals:
        return Totals(*map(sum, zip(self, other, strict=True)))

    @property
    def charged_ru(self) -> float:
        return self.charged / HUNDREDTHS


class Spent(NamedTuple):
    """A moment of a meter, to be compared with a later one."""

    second: int
    charged: int  # in this second so far, hundredths


class FullKey(NamedTuple):
    """A logical partition that writes were refused for because it is full."""

    epk: bytes
    refused: int
    since_s: float  # seconds since the epoch


class MeterFigures(NamedTuple):
    """All that a meter shows, to be sent to another process (`told_meter.py`)."""

    second: int
    in_second: int
    recent: list[tuple[int, int]]
    peaks: dict[int, int]
    totals: Totals
    keys: list[tuple[bytes, int]]  # the busiest, as many as were asked for
    forgotten: int
    full_keys: list[FullKey]
    open: RowCounts | None
    closed: list[RowCounts]  # those that were not taken yet, if they are taken by this


class Meter:
    """`budget` None: throughput is off. Everything else is counted all the same."""

    def __init__(self, clock: Clock, refusal: str = REQUEST_RATE_IS_LARGE) -> None:
        self._now_s = clock.monotonic_s
        self._time_s = clock.now_s
        self._refusal = refusal
        self.budget: Budget | None = None
        self.is_enforcing = False
        self._second = int(clock.monotonic_s())
        self._in_second = 0
        self._recent: deque[tuple[int, int]] = deque(maxlen=limits.METERED_SECONDS)  # second, charged
        self._peaks: dict[int, int] = {}  # hour -> the most charged in one of its seconds; this hour and the last
        self._refused = self._would_be_refused = self._full = 0
        # Effective partition key -> charged, and in the lower bits its row: to search for that at each request would
        # cost several cache misses.
        self._keys: dict[bytes, int] = {}
        self._forgotten = 0  # the highest count that a key had when it was evicted
        self._full_keys: dict[bytes, FullKey] = {}
        self.load = LoadRows(clock)  # requests and charges are counted there
        self._served, self._bounds = self.load.served, self.load.bounds

    def divide(self, rows: RangeRows) -> None:
        """Count by these rows of the partition's range from now on."""
        self.load.divide(rows)
        self._served, self._bounds = self.load.served, self.load.bounds
        assert len(self._bounds) <= _ROW, "rows fit into the lower bits of a key's count"
        for epk, known in self._keys.items():
            self._keys[epk] = known & ~_ROW | bisect_right(self._bounds, epk)

    # Admission.

    def admit(self, deposit: int = READ_DEPOSIT, ask: Ask | None = None, epk: bytes | None = None) -> int:
        """A ticket for `spend`, or the failure that refuses the request. `epk`: the logical partition that it is
        about, if it is one."""
        second = int(self._now_s())
        if second != self._second:
            self._turn(second)
        budget = self.budget
        if budget is None:
            return NOT_COUNTED
        if second != budget.second:
            budget.turn(second)
        if ask is None:
            if budget.spent < budget.ceiling:
                budget.spent += deposit
                return deposit
        elif budget.admits(ask):
            budget.spent += deposit
            budget.settle(deposit, ask)
            return deposit
        if not self.is_enforcing:
            self._would_be_refused += 1
            self.load.exceed(epk)
            return NOT_COUNTED
        raise self._refuse(budget, ask, epk)

    def is_closed(self, ask: Ask | None) -> bool:
        """Whether `admit` would refuse now. Counts nothing."""
        if not self.is_enforcing or self.budget is None:
            return False
        second = int(self._now_s())
        if second != self.budget.second:
            self.budget.turn(second)
        return not self.budget.admits(ask or _NO_ASK)

    def spend(self, charge_ru: float, epk: bytes | None, ticket: int = NOT_COUNTED, ask: Ask | None = None) -> float:
        """Count a request that succeeded or failed, and return the charge to answer. `epk`: the logical partition, if
        the request concerned only one."""
        charged = round(charge_ru * HUNDREDTHS)
        self._in_second += charged
        if epk is None:
            self._served[-1] += charged + REQUEST
        else:
            keys = self._keys
            known = keys.get(epk)
            if known is None:
                known = self._forgotten << _ROW_BITS | bisect_right(self._bounds, epk)
            self._served[known & _ROW] += charged + REQUEST
            keys[epk] = known + (charged << _ROW_BITS)
            if len(keys) > limits.METERED_KEYS_MAX:
                self._forget()
        if ticket >= 0 and self.budget is not None:
            self.budget.spent += charged - ticket
            if ask is not None:
                self.budget.settle(charged - ticket, ask)
        return charged / HUNDREDTHS

    def charge(self, failure: Failure, epk: bytes | None, ticket: int = NOT_COUNTED, ask: Ask | None = None) -> Failure:
        """Count a failed request and set the failure's charge to what was counted."""
        if failure.kind is Kind.KEY_FULL:
            self.count_full(epk)
        failure.charge_ru = self.spend(failure.charge_ru, epk, ticket, ask)
        failure.is_metered = True
        return failure

    def count_full(self, epk: bytes | None) -> None:
        """Note a write that was refused because its key is full. `charge` does it by itself."""
        self._full += 1
        self.load.fill(epk)
        if epk is None:
            return
        known = self._full_keys.get(epk)
        if known is not None:
            self._full_keys[epk] = known._replace(refused=known.refused + 1)
        elif len(self._full_keys) < limits.METERED_FULL_KEYS_MAX:
            self._full_keys[epk] = FullKey(epk, 1, self._time_s())

    def make_optional(self, ticket: int) -> None:
        """Of a partition that another process holds, which is not asked yet: the page can do without it."""

    def release(self, ticket: int, ask: Ask | None = None) -> None:
        """Give back the deposit of a request that is not carried out."""
        if ticket >= 0 and self.budget is not None:
            self.budget.spent -= ticket
            if ask is not None:
                self.budget.settle(-ticket, ask)

    # Nodes of a region, or processes of a server, that share the budget.

    @property
    def spent(self) -> Spent:
        return Spent(self._second, self._in_second)

    def spent_since(self, before: Spent) -> int:
        """Hundredths, of the last seconds that are remembered. Refusals spend nothing."""
        if before.second == self._second:
            return self._in_second - before.charged
        later = sum(charged for second, charged in self._recent if second >= before.second)
        return later + self._in_second - before.charged

    def spend_elsewhere(self, amount: int) -> None:
        """Another process or node has spent so much of the budget. It is not counted here otherwise."""
        if self.budget is not None:
            self.budget.spend_elsewhere(amount, int(self._now_s()))

    def _refuse(self, budget: Budget, ask: Ask | None, epk: bytes | None) -> Failure:
        self._refused += 1
        self.load.refuse(epk, _REFUSED)  # charged to the client but not to the budget, or refusals would cause refusals
        failure = Failure(
            Kind.THROTTLED,
            self._refusal,
            retry_after_ms=budget.retry_after_ms(self._now_s(), ask),
            charge_ru=THROTTLED_RU,
        )
        failure.is_metered = True
        return failure

    def _turn(self, second: int) -> None:
        self._recent.append((self._second, self._in_second))
        hour = self._second // _HOUR_S
        if self._in_second > self._peaks.get(hour, 0):
            self._peaks = {each: peak for each, peak in self._peaks.items() if each >= hour - 1}
            self._peaks[hour] = self._in_second
        self._second, self._in_second = second, 0
        self.load.turn()  # by the time and not by the second, in the middle of which a column may end

    # Reading the counts.

    @property
    def totals(self) -> Totals:
        return Totals(*self.load.totals, self._refused, self._would_be_refused, self._full)

    def per_second_ru(self, seconds: int) -> list[float]:
        """The charges of each of the last complete seconds, the latest last."""
        now = int(self._now_s())
        if now != self._second:
            self._turn(now)
        charged = dict(self._recent)
        return [charged.get(second, 0) / HUNDREDTHS for second in range(now - seconds, now)]

    def spent_ru(self, seconds: int) -> float:
        """The average of these, which costs less than the list."""
        now = int(self._now_s())
        if now != self._second:
            self._turn(now)
        since = now - seconds
        return sum([charged for second, charged in self._recent if second >= since]) / (HUNDREDTHS * seconds)

    def peak_ru(self, hours_ago: int = 0) -> float:
        """The most charged in one second of this hour or the last one."""
        now = int(self._now_s())
        if now != self._second:
            self._turn(now)
        return self._peaks.get(now // _HOUR_S - hours_ago, 0) / HUNDREDTHS

    def top_keys(self, count: int) -> list[tuple[bytes, float]]:
        """The logical partitions with the highest charges. The count of a key that was evicted meanwhile may be too
        high by up to `keys_error_ru`, and no key charged more than that is missing."""
        top = nlargest(count, self._keys.items(), key=lambda entry: entry[1])
        return [(epk, (known >> _ROW_BITS) / HUNDREDTHS) for epk, known in top]

    @property
    def full_keys(self) -> list[FullKey]:
        """Up to a limit, in the order in which they became full."""
        return list(self._full_keys.values())

    @property
    def keys_error_ru(self) -> float:
        return self._forgotten / HUNDREDTHS

    def figures(self, key_count: int, takes_rows: bool) -> MeterFigures:
        """`takes_rows`: columns that were closed are told once."""
        now = int(self._now_s())
        if now != self._second:
            self._turn(now)
        return MeterFigures(
            self._second,
            self._in_second,
            [each for each in self._recent if each[1]],
            dict(self._peaks),
            self.totals,
            nlargest(key_count, self._keys.items(), key=lambda entry: entry[1]) if key_count else [],
            self._forgotten,
            self.full_keys,
            self.load.open_counts,
            self.load.take() if takes_rows else [],
        )

    def _forget(self) -> None:
        """Evict the lower half of the keys. An evicted key that returns starts with the highest count it may have had
        (the space-saving algorithm for heavy hitters, in bulk)."""
        kept = nlargest(limits.METERED_KEYS_MAX // 2 + 1, self._keys.items(), key=lambda entry: entry[1])
        self._forgotten = kept.pop()[1] >> _ROW_BITS
        self._keys = dict(kept)
