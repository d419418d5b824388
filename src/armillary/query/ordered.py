"""Items in the order of ORDER BY: straight off the index where it has that order, else sorted in memory, within a
limit.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from armillary import limits
from armillary.query.access import Candidate, Index, Scope
from armillary.query.aggregates import too_many
from armillary.query.ordering import order_bytes
from armillary.query.selection import Ordering, Selection
from armillary.storage.engine import View


class OrderedAccess:
    """The items of a partition in index order."""

    def __init__(self, view: View, selection: Selection, scope: Scope, index: Index) -> None:
        assert selection.ordering is not None
        self._view = view
        self._ordering = selection.ordering

    @property
    def is_served(self) -> bool:
        return False

    def candidates(self, order: bytes, rid: int, is_included: bool, max_items: int) -> Iterator[Candidate]:
        raise AssertionError


class Sorter:
    """Sorts items by their places in an order. Keeps places and rids only; with a limit, only the first so many."""

    def __init__(self, ordering: Ordering, limit: int | None, order: bytes, rid: int, is_included: bool) -> None:
        self._ordering = ordering
        self._limit = limit
        self._is_descending = ordering.keys[0].is_descending
        self._start = (order, rid)
        self._is_included = is_included  # whether the item at the start is wanted again
        self._places: list[tuple[bytes, int]] = []
        self._size_bytes = 0
        self.last_rid = -1
        self.is_sorted = False

    def add(self, rid: int, document: Any) -> None:
        """The next item by rid; None if it is no answer."""
        self.last_rid = rid
        if document is None:
            return
        place = (order_bytes(self._ordering, document), rid)
        if self._start[1] >= 0 and not self._is_after(place, self._start, self._is_included):
            return
        self._places.append(place)
        self._size_bytes += len(place[0]) + 100
        if self._limit is not None and len(self._places) >= 2 * self._limit + 1000:
            self._shorten(self._limit)
        if len(self._places) > limits.QUERY_SORTED_MAX or self._size_bytes > limits.QUERY_HELD_BYTES_MAX:
            raise too_many("ORDER BY sorts", limits.QUERY_SORTED_MAX, "items")

    def _shorten(self, limit: int) -> None:
        pick = heapq.nlargest if self._is_descending else heapq.nsmallest
        self._places = pick(limit, self._places)
        self._size_bytes = sum([len(order) + 100 for order, _ in self._places])

    def finish(self) -> None:
        self._places.sort(reverse=self._is_descending)
        if self._limit is not None:
            del self._places[self._limit :]
        self.is_sorted = True

    def after(self, order: bytes, rid: int, is_included: bool) -> Iterator[tuple[bytes, int]]:
        """The places after a position, or from it on."""
        if rid < 0:
            return iter(self._places)
        position = (order, rid)
        return (place for place in self._places if self._is_after(place, position, is_included))

    def _is_after(self, place: tuple[bytes, int], position: tuple[bytes, int], is_included: bool) -> bool:
        if place == position:
            return is_included
        return (place < position) if self._is_descending else (place > position)
