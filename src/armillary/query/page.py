"""A page of rows of one partition, the position that it ends at, and the work that was done for it, which is counted
while it is done and charged when the page is answered. `execution.py` makes pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from armillary.model.values import UNDEFINED, Value


@dataclass(slots=True)
class Counters:
    """The work of one page, for its charge and its metrics."""

    seeks: int = 0
    precise_scans: int = 0
    items_loaded: int = 0
    items_missed: int = 0  # of these, how many gave no row
    bytes_loaded: int = 0
    joined_tuples: int = 0
    sorted_rows: int = 0
    user_calls: int = 0
    is_full_scan: bool = False

    def add(self, other: Counters) -> None:
        self.seeks += other.seeks
        self.precise_scans += other.precise_scans
        self.items_loaded += other.items_loaded
        self.items_missed += other.items_missed
        self.bytes_loaded += other.bytes_loaded
        self.joined_tuples += other.joined_tuples
        self.sorted_rows += other.sorted_rows
        self.user_calls += other.user_calls
        self.is_full_scan = self.is_full_scan or other.is_full_scan

    def load(self, payload: bytes) -> None:
        self.items_loaded += 1
        self.bytes_loaded += len(payload)


class PageEnds(Exception):
    """Thrown by the check of a run into an execution whose page is late: it ends before the item at work."""


class Position(NamedTuple):
    rid: int = -1  # the last item that was looked at; -1: none yet
    order: bytes = b""  # where it stands in the order, with ORDER BY
    given: int = 0  # rows of it that were given, if there may be more; 0: it is done with


START = Position()


class Page(NamedTuple):
    rows: list[bytes]  # JSON
    position: Position | None  # where the next page goes on; None: there is nothing after this page
    counters: Counters
    size_bytes: int  # of the rows together
    # Of each row, where it stands and where a page that ends with it goes on. With ORDER BY, or if asked for, unless
    # all rows had to be seen first.
    positions: Sequence[Position] = ()


def last_page(rows: list[bytes], counters: Counters) -> Page:
    return Page(rows, None, counters, sum(map(len, rows)))


@dataclass(slots=True)
class Progress:
    """How far an execution has come: what a continuation must carry."""

    position: Position = START
    skip: int = 0  # rows still to leave out
    take: int | None = None  # rows still to give; None: all
    state: Value = UNDEFINED  # of half-made groups
