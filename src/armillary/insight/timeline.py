"""The history of a container in equal steps of time: what a chart shows. Counts of coarser columns are spread evenly
over the steps that they cover; sizes are those at the end of a step. What is not known is None, not 0: times in which
the server did not run, and sizes before the first that was noted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any, Final

from armillary import work
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.load_history.columns import (
    CHARGED,
    FULL,
    REFUSED,
    REQUESTS,
    WOULD_BE_REFUSED,
    Column,
    Sheet,
    unpack,
)
from armillary.account.throughput import offers, provisioning
from armillary.errors import bad_request
from armillary.model.resources import ResourceType
from armillary.partition.budget import HUNDREDTHS

STEPS = (10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400)
COUNTS: Final = {
    "ru": CHARGED,
    "requests": REQUESTS,
    "refused": REFUSED,
    "wouldBeRefused": WOULD_BE_REFUSED,
    "full": FULL,
}
_KEYLESS: Final = "keylessRu"  # of the request units those that belong to no key
_COLUMN_UNITS: Final = 500  # of work to unpack a column, but for its rows


@dataclass(frozen=True, slots=True)
class Steps:
    """Equal steps of time."""

    start_s: int
    step_s: int
    count: int

    @classmethod
    def over(cls, from_s: float, to_s: float, most: int, step_s: int | None = None) -> Steps:
        """At most so many steps that cover a time, or steps of the given length."""
        if to_s <= from_s:
            raise bad_request("'to' must be later than 'from'.")
        found = [cls._of(from_s, to_s, each) for each in (STEPS if step_s is None else (step_s,))]
        for steps in found:
            if steps.count <= most:
                return steps
        longest = found[-1]
        raise bad_request(
            f"{longest.count:,} steps of {longest.step_s} s are too many: at most {most:,}. Ask about less time, or "
            "for a longer step."
        )

    @classmethod
    def _of(cls, from_s: float, to_s: float, step_s: int) -> Steps:
        start_s = int(from_s // step_s) * step_s
        return cls(start_s, step_s, -int(-(to_s - start_s) // step_s))

    @property
    def end_s(self) -> int:
        return self.start_s + self.count * self.step_s

    @property
    def times(self) -> list[int]:
        """When each step begins."""
        return [self.start_s + index * self.step_s for index in range(self.count)]

    def shares(self, column: Column) -> list[tuple[int, float]]:
        """The steps that a column lies in, with its share of each."""
        first = (column.start_s - self.start_s) // self.step_s
        last = (column.end_s - 1 - self.start_s) // self.step_s
        found = []
        for index in range(max(0, first), min(self.count - 1, last) + 1):
            begin_s = self.start_s + index * self.step_s
            overlap_s = min(column.end_s, begin_s + self.step_s) - max(column.start_s, begin_s)
            found.append((index, overlap_s / column.seconds))
        return found

    def index_of(self, time_s: float) -> int:
        """The step that a moment lies in; the first or last if it is outside."""
        return max(0, min(self.count - 1, int((time_s - self.start_s) // self.step_s)))


def open_end(now_s: float) -> int:
    """When the column that is not finished will end."""
    return int(now_s // STEPS[0] + 1) * STEPS[0]


async def columns_of(account: Account, container: Container, from_s: float, to_s: float) -> AsyncIterator[Column]:
    """The columns of a time, the oldest first, the one that is not finished last. May give way, in a driven request."""
    history = account.history.of(container)
    history.asked += 1
    open_column = history.open_column(container, account.clock.now_s())
    for packed in list(history.between(from_s, to_s)):
        column = unpack(packed, history.layouts)
        # To unpack it, and to add up the counts of its rows.
        work.spend(_COLUMN_UNITS + sum(len(sheet.layout.offsets) + sheet.layout.offsets[-1] for sheet in column.sheets))
        yield column
    if open_column.start_s < to_s:
        yield open_column


def sizes_before(account: Account, container: Container, time_s: float) -> Sheet | None:
    """The newest sizes that were noted before a time."""
    history = account.history.of(container)
    for packed in reversed(list(history.between(0, time_s))):
        if packed.start_s < time_s:
            return unpack(packed, history.layouts).newest
    return None


def normalized(sheet: Sheet, index: int, seconds: float) -> float | None:
    """What a partition spent of its own share; None: it has no budget."""
    share = sheet.shares[index]
    return sheet.total(CHARGED, index) / (share * seconds) if share else None


async def timeline(account: Account, container: Container, steps: Steps) -> dict[str, list[Any]]:
    """The answer of the control API."""
    count = steps.count
    sums: dict[str, list[Any]] = {name: [0.0] * count for name in (*COUNTS, _KEYLESS)}
    highest: list[Any] = [None] * count
    medians: list[Any] = [None] * count
    sizes: list[Sheet | None] = [None] * count
    now_s = account.clock.now_s()
    async for column in columns_of(account, container, steps.start_s, steps.end_s):
        totals = {name: column.total(measure) for name, measure in COUNTS.items()}
        totals[_KEYLESS] = column.keyless(CHARGED)
        shares = steps.shares(column)
        for index, share in shares:
            for name, total in totals.items():
                sums[name][index] += total * share
        seconds = max(1.0, min(column.end_s, now_s) - column.start_s)
        spent = [
            each
            for sheet in column.sheets
            for part in range(len(sheet.layout.parts))
            if (each := normalized(sheet, part, seconds)) is not None
        ]
        for index, _ in shares if spent else ():
            highest[index] = max(highest[index] or 0.0, *spent)
            medians[index] = max(medians[index] or 0.0, median_low(spent))
        if column.newest is not None:
            sizes[steps.index_of(column.end_s - 1)] = column.newest
    _carry(sizes, sizes_before(account, container, steps.start_s))
    _rest(highest, sizes)
    _rest(medians, sizes)
    for index in unknown_steps(account, steps):
        sizes[index] = None
        for numbers in (*sums.values(), highest, medians):
            numbers[index] = None
    found: dict[str, list[Any]] = {"times": list(steps.times)}
    found |= {name: [_count(name, each) for each in numbers] for name, numbers in sums.items()}
    found["normalizedMedian"] = _rounded(medians)
    return found | _levels(account, container, highest, sizes)


def _count(name: str, number: float | None) -> float | None:
    if number is None:
        return None
    return round(number / HUNDREDTHS, 2) if name in ("ru", _KEYLESS) else round(number, 2)


def _carry(sizes: list[Sheet | None], before: Sheet | None) -> None:
    for index, sheet in enumerate(sizes):
        before = sizes[index] = sheet or before


def _rest(spent: list[Any], sizes: Sequence[Sheet | None]) -> None:
    """Steps without a column had no requests: where there was a budget, nothing of it was spent."""
    for index, sheet in enumerate(sizes):
        if spent[index] is None and sheet is not None and any(sheet.shares):
            spent[index] = 0.0


def unknown_steps(account: Account, steps: Steps) -> list[int]:
    """Steps of which nothing is known: the server did not run in any part of them, or they have not begun."""
    gaps = [*account.history.gaps(steps.start_s, steps.end_s), (open_end(account.clock.now_s()), float("inf"))]
    found = []
    for index, begin_s in enumerate(steps.times):
        if any(from_s <= begin_s and to_s >= begin_s + steps.step_s for from_s, to_s in gaps):
            found.append(index)
    return found


def _levels(
    account: Account, container: Container, highest: Sequence[float | None], sizes: Sequence[Sheet | None]
) -> dict[str, list[Any]]:
    """Values as of the end of each step."""
    provisioned = [sum(sheet.shares) / HUNDREDTHS if sheet is not None else None for sheet in sizes]
    return {
        "normalizedMax": _rounded(highest),
        "provisionedRu": provisioned,
        "billedRu": _billed(account, container, provisioned, highest),
        "bytes": [sum(sheet.size_bytes) if sheet is not None else None for sheet in sizes],
        "items": [sum(sheet.items) if sheet is not None else None for sheet in sizes],
        "partitions": [len(sheet.layout.parts) if sheet is not None else None for sheet in sizes],
    }


def _rounded(shares: Sequence[float | None]) -> list[float | None]:
    return [round(each, 6) if each is not None else None for each in shares]


def _billed(
    account: Account, container: Container, provisioned: Sequence[float | None], highest: Sequence[float | None]
) -> list[float | None]:
    """Of an autoscale range what the busiest partition needed, as if all needed as much, but a tenth at least."""
    if account.settings.is_serverless:
        return [None] * len(provisioned)
    owner = container.record if offers.offer_of(account, container.record) is not None else container.database
    offer = offers.offer_of(account, owner)
    is_autoscale = offer is not None and provisioning.throughput_of(offer.body).is_autoscale
    if owner.type is ResourceType.DATABASE or not is_autoscale:
        return list(provisioned)
    return [
        round(min(1.0, max(0.1, used or 0.0)) * ru, 2) if ru is not None else None
        for ru, used in zip(provisioned, highest, strict=True)
    ]
