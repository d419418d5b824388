"""COUNT, MIN and MAX from the index and the partition's counters alone, where these know exactly: no item is loaded but
the one that holds the least or greatest value. For DISTINCT of a path the index names one item for each value.

COUNT of everything is a counter. COUNT with a filter that the index tells exactly counts keys. MIN and MAX of a path
are its first and last term. Items that have expired and were not deleted yet do not count; there are few of them. All
other aggregates are computed from the items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from armillary import limits
from armillary.model import layout
from armillary.model.documents import plain_json
from armillary.model.encoding import ARRAY_MARK, OBJECT_MARK, encode_term, is_cut, unpack_header
from armillary.model.indexes.index_paths import text_steps
from armillary.model.indexes.terms import TS_PATH
from armillary.model.values import UNDEFINED, Value
from armillary.query.access.access_path import Index, Scope, Statistics, path_prefix
from armillary.query.access.rid_runs import intersection
from armillary.query.access.term_ranges import term_bounds
from armillary.query.aggregates import AGGREGATES
from armillary.query.conditions import ALL, All, And, Condition, Defined, Equal, In, Nothing, Range
from armillary.query.selection import Selection
from armillary.storage.engine import View
from armillary.work import spend

IsDue = Callable[[], bool]

_CHECK_TIME_EVERY = 256
_SEEK_UNITS, _ENTRY_UNITS = 50, 5  # of work: to find a place in the index, and to read on from there
_COUNT, _MIN, _MAX = AGGREGATES["COUNT"], AGGREGATES["MIN"], AGGREGATES["MAX"]
_AFTER_UNDEFINED = layout.prefix_end(encode_term(UNDEFINED))
_AFTER_OBJECTS = layout.prefix_end(OBJECT_MARK)


class CannotTell(Exception):
    """The index does not know after all; the items do."""


class _Count(NamedTuple):
    """What COUNT counts: the items that meet a condition."""

    condition: Condition


class _Extreme(NamedTuple):
    path: str
    condition: Condition  # on this path, or ALL
    is_greatest: bool


class IndexAnswer:
    """The aggregates of one query, worked out step by step."""

    def __init__(
        self, parts: list[_Count | _Extreme], scope: Scope, statistics: Statistics | None, has_expiry: bool
    ) -> None:
        self._parts = parts
        self._scope = scope
        self._statistics = statistics
        self._has_expiry = has_expiry
        self._expired: frozenset[int] = frozenset()  # rids of what is there and does not count
        self._states: list[Value] = []
        self._counted = 0  # of the part at work
        self._after: Any = None  # where its counting stopped

    @classmethod
    def of(
        cls, selection: Selection, scope: Scope, index: Index, statistics: Statistics | None, *, has_expiry: bool
    ) -> IndexAnswer | None:
        """None: the index cannot answer this query."""
        stage = selection.stages[0]
        grouping = stage.grouping
        if grouping is None or grouping.is_grouped or len(selection.stages) > 1 or not selection.is_exact:
            return None
        if stage.rows is not None or not (scope.is_whole or scope.epk):
            return None
        if has_expiry and (statistics is None or not index.is_complete):
            return None  # while new rules work through the items it is not known which have expired
        parts: list[_Count | _Extreme] = []
        for maker, path in zip(grouping.makers, grouping.paths, strict=True):
            part = _part(maker, path, selection.condition)
            if part is None or not _is_served(part, scope, index, statistics):
                return None
            parts.append(part)
        return cls(parts, scope, statistics, has_expiry)

    def step(self, view: View, is_due: IsDue) -> list[Value] | None:
        """The states of the aggregates; None: time is up, go on later."""
        if self._has_expiry:
            assert self._statistics is not None
            expired = self._statistics.expired(view, limits.QUERY_GATHER_MAX)
            if expired is None:
                raise CannotTell
            self._expired = expired
        for part in self._parts[len(self._states) :]:
            state: Value
            if isinstance(part, _Extreme):
                state = _extreme(view, part, self._expired)
            else:
                if not self._count(view, part.condition, is_due):
                    return None
                state = self._counted
            self._states.append(state)
            self._counted, self._after = 0, None
        return self._states

    def _count(self, view: View, condition: Condition, is_due: IsDue) -> bool:
        if isinstance(condition, Nothing):
            return True
        if isinstance(condition, All):
            assert self._statistics is not None
            self._counted = self._statistics.item_count(view, self._scope.epk) - self._expired_count(view)
            return True
        if self._scope.epk or isinstance(condition, And):
            parts = condition.parts if isinstance(condition, And) else (condition,)
            prefixes = [_run(view, part) for part in parts if isinstance(part, Equal)]
            if self._scope.epk:
                prefixes.append(layout.MEMBERS + self._scope.epk)
            places: Iterator[Any] = intersection(view, prefixes, -1 if self._after is None else self._after)
        else:
            places = _keys(view, condition, self._after)
        expired = self._expired
        for seen, place in enumerate(places, 1):
            if not expired or (place if isinstance(place, int) else _rid(place)) not in expired:
                self._counted += 1
            if seen % _CHECK_TIME_EVERY == 0:
                spend(_CHECK_TIME_EVERY * _ENTRY_UNITS)
                if is_due():
                    self._after = place
                    return False
        return True

    def _expired_count(self, view: View) -> int:
        epk = self._scope.epk
        if not epk:
            return len(self._expired)
        return sum(view.get(layout.member_key(epk, rid)) is not None for rid in self._expired)


def is_distinct_by_index(selection: Selection, scope: Scope, index: Index) -> bool:
    """Whether the values of one path are all that makes rows of items, and all that a filter looks at."""
    stage, condition = selection.stages[0], selection.condition
    if not stage.is_distinct or not stage.path or stage.rows is not None or selection.ordering or selection.ranking:
        return False
    is_own = isinstance(condition, (Range, Defined, Equal)) and condition.path == stage.path
    is_known = condition == ALL or (is_own and term_bounds(condition) is not None)  # type: ignore[arg-type]
    return selection.is_exact and is_known and scope.is_whole and index.is_indexed(stage.path) and _is_automatic(index)


def distinct_rids(
    view: View, selection: Selection, statistics: Statistics | None, after_rid: int, most: int
) -> list[int] | None:
    """The first items with each value of a path, and all whose values the index does not tell apart, so that DISTINCT
    has the same rows in the same order as from all items. None: that takes looking at too many terms, or items without
    the path make a row."""
    stage, condition = selection.stages[0], selection.condition
    path = stage.path
    assert path is not None
    if stage.is_sure and (statistics is None or not statistics.is_everywhere(view, path)):
        return None
    bounds = (_AFTER_UNDEFINED, _AFTER_OBJECTS)
    if isinstance(condition, (Equal, Range, Defined)):
        bounds = term_bounds(condition) or bounds
    prefix = path_prefix(view, path)
    low, high = prefix + bounds[0], prefix + bounds[1]
    rids: set[int] = set()
    for _ in range(most):
        spend(_SEEK_UNITS)
        first = next(iter(view.scan(low, high)), None)
        if first is None:
            return sorted(rid for rid in rids if rid > after_rid)
        term = first[0][len(prefix) : -layout.RID_BYTES]
        rids.add(_rid(first[0]))
        low = layout.prefix_end(prefix + term)
        if term in (ARRAY_MARK, OBJECT_MARK) or is_cut(term):
            rids.update([_rid(key) for key, _ in islice(view.scan(prefix + term, low), most + 1)])
            if len(rids) > most:
                return None
    return None


def _part(maker: Any, path: str | None, condition: Condition) -> _Count | _Extreme | None:
    if path is None or "/[]" in path:
        return None
    if maker is _COUNT:
        if not path:
            return _Count(condition)
        return _Count(Defined(path)) if condition == ALL else None
    if maker in (_MIN, _MAX) and path:
        is_own = isinstance(condition, (Range, Defined, Equal)) and condition.path == path
        return _Extreme(path, condition, maker is _MAX) if is_own or condition == ALL else None
    return None


def _is_served(part: _Count | _Extreme, scope: Scope, index: Index, statistics: Statistics | None) -> bool:
    if isinstance(part, _Extreme):
        return scope.is_whole and index.is_indexed(part.path) and _is_automatic(index)
    condition = part.condition
    if isinstance(condition, All):
        return statistics is not None
    if isinstance(condition, Nothing):
        return True
    if not _is_automatic(index):
        return False
    parts = condition.parts if isinstance(condition, And) else (condition,)
    if scope.epk or isinstance(condition, And):
        return all(isinstance(each, Equal) and index.is_indexed(each.path) for each in parts)
    return isinstance(condition, (Equal, In, Range, Defined)) and index.is_indexed(condition.path)


def _is_automatic(index: Index) -> bool:
    """Whether every item is in the index. A request may leave its item out, but then only where that is usual."""
    return index.is_complete and index.policy.is_automatic


def _run(view: View, condition: Equal) -> bytes:
    if condition.value is UNDEFINED:
        raise CannotTell
    return path_prefix(view, condition.path) + encode_term(condition.value)


def _keys(view: View, condition: Condition, after: bytes | None) -> Iterator[bytes]:
    """The keys of the terms that meet a condition on one path: one for each item."""
    assert isinstance(condition, (Equal, In, Range, Defined))
    prefix = path_prefix(view, condition.path)
    bounds: list[tuple[bytes, bytes]] = []
    if isinstance(condition, In):
        terms = sorted({encode_term(value) for value in condition.values if value is not UNDEFINED})
        spend(len(terms))
        bounds = [(term, layout.prefix_end(term)) for term in terms]
    else:
        found = term_bounds(condition)
        if found is None:
            raise CannotTell
        bounds = [found]
    for low, high in bounds:
        spend(_SEEK_UNITS)
        first, last = prefix + low, prefix + high
        if after is not None:
            if after >= last:
                continue
            first = max(first, after + b"\x00")
        for key, _ in view.scan(first, last):
            yield key


def _rid(key: bytes) -> int:
    return int.from_bytes(key[-layout.RID_BYTES :], "big")


def _extreme(view: View, part: _Extreme, expired: frozenset[int]) -> Value:
    """The state of MIN or MAX: the value, and whether it is spoilt."""

    def first_key(low: bytes, high: bytes, is_reverse: bool = False) -> bytes | None:
        keys = (key for key, _ in view.scan(low, high, is_reverse))
        return next((key for key in keys if not expired or _rid(key) not in expired), None)

    prefix = path_prefix(view, part.path)
    low, high = _AFTER_UNDEFINED, _AFTER_OBJECTS
    if not isinstance(part.condition, All):
        assert isinstance(part.condition, (Equal, Range, Defined))
        found = term_bounds(part.condition)
        if found is None:
            raise CannotTell
        low, high = max(low, found[0]), min(high, found[1])
    if high > ARRAY_MARK:
        # One array or object among the values, and there is no least or greatest.
        if first_key(prefix + max(low, ARRAY_MARK), prefix + high) is not None:
            return [UNDEFINED, True]
        high = ARRAY_MARK
    if low >= high:
        return [UNDEFINED, False]
    key = first_key(prefix + low, prefix + high, part.is_greatest)
    if key is None:
        return [UNDEFINED, False]
    term = key[len(prefix) : -layout.RID_BYTES]
    if is_cut(term):
        raise CannotTell
    # Of several items with this value the first: a number may be written in more than one way.
    first = first_key(prefix + term, layout.prefix_end(prefix + term))
    stored = view.get(layout.item_key(_rid(first or key)))
    assert stored is not None, "the index names an item that is not there"
    if part.path == TS_PATH:
        return [unpack_header(stored).ts, False]
    node: Any = plain_json(stored)
    for step in text_steps(part.path):
        node = node[step]
    return [node, False]
