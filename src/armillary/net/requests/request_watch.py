"""Counts, durations and statuses of requests by door and operation, and what logs and traces are told of a request.

A request is counted where its answer is written: one bucket, one status, no call. Durations fall into buckets by a
table of hundredths of a millisecond. Reports about single requests are made only while a log or a trace asks for them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from armillary.errors import Kind

# Upper bounds of the buckets, in seconds. The last bucket has no bound.
BOUNDS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
FINE_S: Final = 0.1  # durations below it find their bucket in `SLOTS`
PER_S: Final = 100_000  # entries of `SLOTS` for a second


def _slots() -> bytes:
    """The bucket of each unit of time, by the numbers of units up to each bound."""
    ends = [round(bound_s * PER_S) for bound_s in BOUNDS_S if bound_s <= FINE_S]
    units = [end - begin for begin, end in pairwise((0, *ends))]
    return b"".join([bytes((bucket,)) * count for bucket, count in enumerate(units)]) + bytes((len(ends),))


SLOTS: Final = _slots()

Status = int | str


def slot_of(elapsed_s: float) -> int:
    """The bucket of any duration."""
    return bisect_left(BOUNDS_S, elapsed_s)


class Observed:
    """What was counted of one operation at one door."""

    __slots__ = ("buckets", "kinds", "statuses", "sum_s")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0
        self.statuses: defaultdict[Status, int] = defaultdict(int)
        self.kinds: defaultdict[Kind, int] = defaultdict(int)  # of failures

    def note(self, elapsed_s: float, status: Status, kind: Kind | None) -> None:
        """Count a request. `Connection` does the same in line."""
        self.sum_s += elapsed_s
        self.buckets[SLOTS[int(elapsed_s * PER_S)] if elapsed_s < FINE_S else slot_of(elapsed_s)] += 1
        self.statuses[status] += 1
        if kind is not None:
            self.kinds[kind] += 1


class Times(dict[str, Observed]):
    """By "door operation"; an operation that is new is entered."""

    def __missing__(self, name: str) -> Observed:
        made = self[name] = Observed()
        return made


@dataclass(slots=True)
class Answered:
    """One request and its answer, for logs and traces. It holds no values of documents and no keys."""

    door: str
    operation: str
    status: Status
    kind: Kind | None  # of the failure, if it was refused
    begun_s: float  # by the clock of durations
    elapsed_s: float
    charge_ru: float
    database: str = ""
    container: str = ""
    activity: str = ""
    peer: str = ""
    details: Any = None  # what the account noted of the request (`account/captures/notes.py`), if it notes anything
    headers: Mapping[bytes, bytes] | None = None  # of the request; for the context of a trace


Report = Callable[[Answered], None]


class RequestWatch:
    """Of one server: all its doors count here."""

    def __init__(self) -> None:
        self.times = Times()
        self.report: Report | None = None  # None: no log or trace asks for single requests
        self._reports: tuple[Report, ...] = ()

    def tell(self, reports: Iterable[Report]) -> None:
        """Report requests to these from now on."""
        self._reports = tuple(reports)
        self.report = self._report if self._reports else None

    def _report(self, answered: Answered) -> None:
        for report in self._reports:
            report(answered)


class LoopLag:
    """How late the event loop runs a timer: the time that other requests wait while one holds the loop."""

    def __init__(self) -> None:
        self.observed = Observed()
        self.worst_s = 0.0

    def note(self, late_s: float) -> None:
        late_s = max(0.0, late_s)
        self.observed.note(late_s, "", None)
        self.worst_s = max(self.worst_s, late_s)
