"""How far a query has come in one partition: positions, and the pages that end at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from armillary.model.values import UNDEFINED, Value
from armillary.query.counters import Counters


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
    orders: Sequence[bytes] = ()  # with ORDER BY, where each row stands, unless all rows had to be seen first


@dataclass(slots=True)
class Progress:
    """How far an execution has come: what a continuation must carry."""

    position: Position = START
    skip: int = 0  # rows still to leave out
    take: int | None = None  # rows still to give; None: all
    state: Value = UNDEFINED  # of half-made groups
