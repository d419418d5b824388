"""Items in the order of their scores, for ORDER BY RANK. Keeps a measure of each item that passes the filter, with its
rid or its rows. Where scores are known at once and the query has a limit, only the best items are kept, among equals
the first ones. No more than QUERY_SORTED_MAX are kept in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

from armillary import limits
from armillary.query.aggregates import too_many
from armillary.query.page import Counters
from armillary.query.selection import Ranking

T = TypeVar("T")


class RankedItems(Generic[T]):
    def __init__(self, ranking: Ranking, limit: int | None) -> None:
        """`limit`: how many items can be given at most; None: all that are answers."""
        self._scorer = ranking.begin()
        self._limit = limit
        self._items: list[T] = []
        self._measures: list[Any] = []
        self._numbers: dict[Any, int] = {}  # of items by measure
        self.counters = Counters()  # of what was looked at
        self.last_rid = -1
        self.is_ranked = False

    def add(self, item: T, document: Any, is_answer: bool) -> None:
        """The next item; others than answers count in the scores of these."""
        measure = self._scorer.measure(document)
        if not is_answer:
            return
        limit = self._limit
        if limit is not None and self._scorer.is_final:
            if len(self._items) >= 2 * limit + limits.QUERY_RANKED_SPARE_ITEMS:
                self._shorten()
        elif limit is not None:
            number = self._numbers.get(measure, 0)
            if number >= limit:
                return
            self._numbers[measure] = number + 1
        if len(self._items) >= limits.QUERY_SORTED_MAX:
            raise too_many("The query ranks", limits.QUERY_SORTED_MAX, "items")
        self._items.append(item)
        self._measures.append(measure)

    def _shorten(self) -> None:
        best = sorted(self._scorer.order(self._measures)[: self._limit])
        self._items = [self._items[place] for place in best]
        self._measures = [self._measures[place] for place in best]

    def finish(self) -> None:
        """All items were added."""
        self._items = [self._items[place] for place in reversed(self._scorer.order(self._measures)[: self._limit])]
        self._measures = []
        self._numbers = {}
        self.is_ranked = True

    @property
    def left(self) -> int:
        """How many items are still to be given."""
        return len(self._items)

    @property
    def held(self) -> Sequence[T]:
        return self._items

    def rest(self) -> Iterator[T]:
        """The items from the best on; each is given once."""
        while self._items:
            yield self._items.pop()
