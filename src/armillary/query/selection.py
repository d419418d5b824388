"""A compiled query in the form that all languages share: functions over documents, in stages, with the ordering,
OFFSET and LIMIT of their rows. Languages make a Selection; `execution.py` and `operators.py` run it.

A stage takes values and gives rows. The first takes items; each other one takes the rows of the stage before it: a
subquery in FROM that must see all its rows first (SELECT … FROM (SELECT DISTINCT … FROM c)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from armillary import limits
from armillary.errors import bad_request
from armillary.model.sendable import Sendable
from armillary.model.values import Value
from armillary.query.aggregates import AggregateMaker
from armillary.query.conditions import ALL, Condition
from armillary.work import spend

PACED_MIN: Final = 64  # elements of arrays that need `paced`
_SPENT_SHIFT: Final = 9  # tuples of short arrays that are spent for together, as a power of two

# What `rows` gives now and then in place of a row: a chance to look at the clock.
PAUSE: Final = object()


class Meter:
    """Counts the work inside one item, where nothing else can interrupt it, and ends it when it is too much."""

    __slots__ = ("joined_tuples", "left", "user_calls")

    def __init__(self) -> None:
        self.joined_tuples = 0
        self.user_calls = 0
        self.left = limits.QUERY_TUPLES_MAX

    def begin(self) -> None:
        """A new item."""
        self.left = limits.QUERY_TUPLES_MAX

    def spend(self, tuples: int, units: int = 1) -> None:
        """Count tuples before they are made, each of so many units of work."""
        before = self.left
        self.left = left = before - tuples
        if before >> _SPENT_SHIFT != left >> _SPENT_SHIFT:
            self._pay(tuples, units)

    def _pay(self, tuples: int, units: int) -> None:
        """Spend for the tuples of short arrays, so many at a time. Those of long ones are spent for by `paced`."""
        if self.left < 0:
            raise bad_request(
                f"JOIN and subqueries make more than {limits.QUERY_TUPLES_MAX} tuples of one item. Filter before "
                "joining, in a subquery in the place of the array."
            )
        if tuples <= PACED_MIN:
            spend(units << _SPENT_SHIFT)

    def join(self, tuples: int, units: int = 1) -> bool:
        """Count what JOIN makes; true now and then, when it is time for a PAUSE."""
        before = self.left
        self.left = left = before - tuples
        if before >> _SPENT_SHIFT != left >> _SPENT_SHIFT:
            self._pay(tuples, units)
        before = self.joined_tuples
        self.joined_tuples = after = before + tuples
        return before // limits.QUERY_TUPLES_PAUSE != after // limits.QUERY_TUPLES_PAUSE


def paced(array: list[Any], units: int) -> Iterator[Any]:
    """The elements of a long array; work is spent for the tuples that are made of them, a few at a time."""
    for start in range(0, len(array), PACED_MIN):
        spend(PACED_MIN * units)
        yield from array[start : start + PACED_MIN]


class Recipe(Sendable):
    """A dataclass of plain data that a selection is compiled from, such as the text of a query with its parameters.
    Selections hold functions, so they are not sent to other processes; recipes are."""

    __slots__ = ()


class Grouping(NamedTuple):
    """Rows of a grouped stage are (keys, values of the aggregates' arguments); `finish` makes a row of a group."""

    makers: tuple[AggregateMaker, ...]
    is_grouped: bool  # False: no GROUP BY, one group of all rows
    finish: Callable[[tuple[Any, ...], list[Value]], Value]
    # Of each aggregate's argument: its path in the index, "" for a constant that is defined, None for anything else.
    paths: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """Either `rows`, or `predicate` and `project` where a value gives one row at most; that is the faster form."""

    predicate: Callable[[Any], Any] | None = None  # truthy exactly when the value is kept; None: always
    project: Callable[[Any], Any] | None = None  # None: the value as it is
    rows: Callable[[Any], Iterator[Any]] | None = None
    grouping: Grouping | None = None
    is_distinct: bool = False
    is_sure: bool = False  # a value that is kept gives a row: `project` never makes it undefined
    path: str | None = None  # in the index, if rows say of items nothing but what is there

    @property
    def is_bare(self) -> bool:
        """Whether rows are the values that are kept."""
        return self.project is None and self.rows is None

    @property
    def is_streaming(self) -> bool:
        """Whether a row can be given before all values were seen."""
        return self.grouping is None and not self.is_distinct


class OrderKey(NamedTuple):
    path: str | None  # in the index; None: computed
    is_descending: bool


@dataclass(frozen=True, slots=True)
class Ordering:
    keys: tuple[OrderKey, ...]
    values: Callable[[Any], tuple[Any, ...]]  # the values of the keys of an item
    # Where another language says itself where an item stands: as bytes, by fields that are perhaps those of an index.
    place: Callable[[Any], bytes] | None = None
    fields: tuple[tuple[str, bool], ...] = ()  # dotted paths, and whether each descends


class Scorer(Protocol):
    """Scores the items of one execution."""

    is_final: bool  # a measure is a score: it depends on nothing that comes later

    def measure(self, document: Any) -> Any:
        """What must be kept of an item to score it at the end. Can be hashed; equal ones will have equal scores."""

    def order(self, measures: Sequence[Any]) -> list[int]:
        """The places of measures, the best first; equal ones as they are."""


class Origin(Protocol):
    """What a selection was compiled from."""

    def recipe(self, selection: Selection) -> Recipe:
        """What another process compiles the same selection from."""


class Ranking(Protocol):
    """An order by scores that are known only when all items were seen."""

    needs_all: bool  # scores depend on all items, also those that the filter leaves out

    def begin(self) -> Scorer: ...


@dataclass(frozen=True, slots=True)
class Selection:
    condition: Condition = ALL
    stages: tuple[Stage, ...] = (Stage(),)
    ordering: Ordering | None = None
    ranking: Ranking | None = None  # instead of an ordering
    skip: int = 0
    take: int | None = None
    is_exact: bool = False  # the condition is the whole filter: an index that serves it needs no look at the items
    meter: Meter = field(default_factory=Meter)
    # Rows come by effective key and id, not by when their items were made; without an ordering. These are the paths of
    # the partition key: inside one logical partition there is nothing to ask about them. Empty: not by key.
    by_key: tuple[str, ...] = ()
    is_order_free: bool = False  # the query has no ORDER BY: the ordering is how items are found, and is not charged
    origin: Origin | None = None  # None: the fields say all, or it is run by this process alone

    @property
    def is_streaming(self) -> bool:
        """Whether rows come one by one in the order of the items, so that a position in it is all there is to know."""
        return len(self.stages) == 1 and self.stages[0].is_streaming and self.ranking is None

    @property
    def is_plain(self) -> bool:
        """Streaming and unordered, without counts: rows of several partitions need only be put one after the other."""
        return self.is_streaming and self.ordering is None and not self.skip and self.take is None
