"""What has changed in the partitions of containers since a page last asked. Their figures are compared at most once a
second, when a request asks, and only for containers that are being watched. A number says which state a page has seen.

A comparison reads what partitions keep in memory, and nothing of their stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from armillary import limits
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.model.ranges import KeyRange
from armillary.partition.budget import HUNDREDTHS
from armillary.partition.partition import Partition

_SPENT_PLACE: Final = 6  # of what is spent, in a row of figures


@dataclass(slots=True)
class Figures:
    """Of a partition. `row`: bytes, items, budget, requests, refused, would-be refused, spent, full."""

    low: str  # in hex, as they are shown
    high: str
    row: tuple[Any, ...]
    charged: int
    number: int  # of the comparison that found it changed
    first_number: int  # of the comparison that found it new


@dataclass(slots=True)
class Watched:
    """What is known of one container."""

    partitions: dict[int, Figures] = field(default_factory=dict)
    gone: list[tuple[int, int]] = field(default_factory=list)  # number, and the partition that went
    ranges: tuple[KeyRange, ...] = ()
    stages: tuple[Any, ...] = ()  # of the reshapes that run
    progress: tuple[Any, ...] = ()
    number: int = 0  # of the last comparison that found anything
    compared_s: float = -1.0
    asked_s: float = 0.0


class LoadWatch:
    def __init__(self, account: Account) -> None:
        self._account = account
        self._watched: dict[bytes, Watched] = {}

    def look(self, container: Container) -> Watched:
        """The present figures of a container, compared with those before if they are older than a second, if its
        partitions are others, or if a split or merge has come to another point. That more items were copied is no
        reason: a page would be answered, and would ask, as fast as they are."""
        now_s = self._account.clock.elapsed_s()
        rid = container.record.rid
        watched = self._watched.get(rid)
        if watched is None:
            self._forget(now_s)
            watched = self._watched[rid] = Watched()
        watched.asked_s = now_s
        is_due = watched.compared_s < 0 or now_s - watched.compared_s >= limits.WATCH_SECONDS
        if is_due or watched.ranges is not container.map.ranges or watched.stages != self._stages(container):
            self._compare(container, watched)
            watched.compared_s = now_s
        return watched

    def next_look_s(self, containers: Sequence[Container]) -> float:
        """How long to wait before it is worth looking at these again, if nothing is recorded before."""
        now_s = self._account.clock.elapsed_s()
        due = [each.compared_s + limits.WATCH_SECONDS - now_s for each in self._of(containers)]
        return max(0.01, min(due, default=limits.WATCH_SECONDS))

    def _of(self, containers: Sequence[Container]) -> list[Watched]:
        found = [self._watched.get(each.record.rid) for each in containers]
        return [each for each in found if each is not None]

    def _compare(self, container: Container, watched: Watched) -> None:
        number = self._account.events.next_number()
        stages = self._stages(container)
        progress = tuple(each.progress_figures for each in self._account.reshaper.shown(container))
        known, is_changed = watched.partitions, (watched.stages, watched.progress) != (stages, progress)
        if watched.ranges is not container.map.ranges:
            is_changed = True
            here = {each.id for each in container.map.ranges}
            for range_id in [each for each in known if each not in here]:
                del known[range_id]
                watched.gone.append((number, range_id))
            del watched.gone[: -limits.WATCH_GONE_MAX]
            watched.ranges = container.map.ranges
        for range_id, partition in container.partitions.items():
            before = known.get(range_id)
            if before is None:
                low, high = (bound.hex().upper() for bound in (partition.range.low, partition.range.high))
                known[range_id] = Figures(low, high, *_row(partition, None), number, number)
                is_changed = True
                continue
            row, charged = _row(partition, before)
            if row != before.row:
                before.row, before.charged, before.number = row, charged, number
                is_changed = True
        watched.stages, watched.progress = stages, progress
        if is_changed:
            watched.number = number

    def _stages(self, container: Container) -> tuple[Any, ...]:
        reshaper = self._account.reshaper
        return tuple(
            (each.number, each.point, each.waits_for, reshaper.is_paused(each)) for each in reshaper.shown(container)
        )

    def _forget(self, now_s: float) -> None:
        """What no page has asked about for a while."""
        for rid, watched in list(self._watched.items()):
            if now_s - watched.asked_s > limits.WATCH_FORGOTTEN_SECONDS:
                del self._watched[rid]


def _row(partition: Partition, before: Figures | None) -> tuple[tuple[Any, ...], int]:
    """The figures, and what was charged in all: where that is as before and nothing was spent lately, the seconds need
    not be added up."""
    head, meter = partition.head, partition.meter
    totals, budget = meter.totals, meter.budget
    if before is not None and before.charged == totals.charged and before.row[_SPENT_PLACE] == 0.0:
        spent_ru = 0.0
    else:
        spent_ru = round(meter.spent_ru(limits.OVERVIEW_SECONDS), 2)
    row = (
        head.size_bytes,
        head.item_count,
        budget.limit / HUNDREDTHS if budget is not None else None,
        totals.requests,
        totals.refused,
        totals.would_be_refused,
        spent_ru,
        totals.full,
    )
    return row, totals.charged
