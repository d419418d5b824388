"""Metering of a partition: requests, charges, refusals, the request units of the last seconds, and the logical
partitions they were spent on. Every request calls `admit` before and `spend` after its work, whether budgets are
enforced or not. `budget.py` decides when to refuse.

The charge that a meter returns is the one to answer: rounded as in answers, so that the sum of all answers is the sum
of all meters.
"""

from __future__ import annotations

from collections import deque
from heapq import nlargest
from typing import NamedTuple

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.model.charges import THROTTLED_RU
from armillary.partition.budget import HUNDREDTHS, READ_DEPOSIT, Ask, Budget

NOT_COUNTED = -1  # ticket of a request over the budget that is served all the same, without spending the budget
REQUEST_RATE_IS_LARGE = (
    "Request rate is large. More Request Units may be needed, so no changes were made. Please retry this request "
    "later. Learn more: http://aka.ms/cosmosdb-error-429"
)
_REFUSED = round(THROTTLED_RU * HUNDREDTHS)
_HOUR_S = 3600
_NO_ASK = Ask()


class Totals(NamedTuple):
    """Counted since the server started; can be added up."""

    requests: int = 0  # including refused ones
    charged: int = 0  # hundredths of request units, including the charge of refusals
    refused: int = 0
    would_be_refused: int = 0  # served although over the budget, because budgets are only observed

    def plus(self, other: Totals) -> Totals:
        return Totals(*map(sum, zip(self, other, strict=True)))

    @property
    def charged_ru(self) -> float:
        return self.charged / HUNDREDTHS


class Meter:
    """`budget` None: throughput is off. Everything else is counted all the same."""

    def __init__(self, clock: Clock, refusal: str = REQUEST_RATE_IS_LARGE) -> None:
        self._now_s = clock.monotonic_s
        self._refusal = refusal
        self.budget: Budget | None = None
        self.is_enforcing = False
        self._second = int(clock.monotonic_s())
        self._in_second = 0
        self._recent: deque[tuple[int, int]] = deque(maxlen=limits.METERED_SECONDS)  # second, charged
        self._peaks: dict[int, int] = {}  # hour -> the most charged in one of its seconds; this hour and the last
        self._requests = self._charged = self._refused = self._would_be_refused = 0
        self._keys: dict[bytes, int] = {}  # effective partition key -> charged
        self._forgotten = 0  # the highest count that a key had when it was evicted

    # Admission.

    def admit(self, deposit: int = READ_DEPOSIT, ask: Ask | None = None) -> int:
        """A ticket for `spend`, or the failure that refuses the request."""
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
            return NOT_COUNTED
        raise self._refuse(budget, ask)

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
        self._requests += 1
        self._charged += charged
        self._in_second += charged
        if epk is not None:
            keys = self._keys
            keys[epk] = keys.get(epk, self._forgotten) + charged
            if len(keys) > limits.METERED_KEYS_MAX:
                self._forget()
        if ticket >= 0 and self.budget is not None:
            self.budget.spent += charged - ticket
            if ask is not None:
                self.budget.settle(charged - ticket, ask)
        return charged / HUNDREDTHS

    def charge(self, failure: Failure, epk: bytes | None, ticket: int = NOT_COUNTED, ask: Ask | None = None) -> Failure:
        """Count a failed request and set the failure's charge to what was counted."""
        failure.charge_ru = self.spend(failure.charge_ru, epk, ticket, ask)
        failure.is_metered = True
        return failure

    def release(self, ticket: int, ask: Ask | None = None) -> None:
        """Give back the deposit of a request that is not carried out."""
        if ticket >= 0 and self.budget is not None:
            self.budget.spent -= ticket
            if ask is not None:
                self.budget.settle(-ticket, ask)

    def _refuse(self, budget: Budget, ask: Ask | None) -> Failure:
        self._requests += 1
        self._refused += 1
        self._charged += _REFUSED  # charged to the client but not to the budget: refusals must not cause more refusals
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

    # Reading the counts.

    @property
    def totals(self) -> Totals:
        return Totals(self._requests, self._charged, self._refused, self._would_be_refused)

    def per_second_ru(self, seconds: int) -> list[float]:
        """The charges of each of the last complete seconds, the latest last."""
        now = int(self._now_s())
        if now != self._second:
            self._turn(now)
        charged = dict(self._recent)
        return [charged.get(second, 0) / HUNDREDTHS for second in range(now - seconds, now)]

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
        return [(epk, charged / HUNDREDTHS) for epk, charged in top]

    @property
    def keys_error_ru(self) -> float:
        return self._forgotten / HUNDREDTHS

    def _forget(self) -> None:
        """Evict the lower half of the keys. An evicted key that returns starts with the highest count it may have had
        (the space-saving algorithm for heavy hitters, in bulk)."""
        kept = nlargest(limits.METERED_KEYS_MAX // 2 + 1, self._keys.items(), key=lambda entry: entry[1])
        self._forgotten = kept.pop()[1]
        self._keys = dict(kept)
