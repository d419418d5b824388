"""The one place that chooses how a query finds its items in one partition's store: by id, by index terms, through the
members of a logical partition, or by scanning everything. Which terms are asked for is said by `term_ranges.py` for
one path and by `composite_access.py` for several at once; spatial indexes say it themselves.

Whatever is chosen, candidates come in ascending rid order and none that can match is left out; so a position in a query
is the last rid seen, and the choice may differ from page to page. The filter itself is run by `query/execution.py` on
every candidate, which also makes cut terms, markers and terms shared by several elements of an array harmless.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Literal, Protocol, TypeAlias

from armillary import limits
from armillary.model import layout
from armillary.model.encoding import encode_term
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.spatial.cells import SpatialIndex
from armillary.model.values import UNDEFINED, Value
from armillary.query.access.composite_access import ComposedFilter, composed_filter
from armillary.query.access.field_access import FieldPlan, field_plan, keyed_parts, several_in
from armillary.query.access.rid_runs import Run, shared_by, shortest, union_of
from armillary.query.access.term_ranges import term_bounds
from armillary.query.conditions import (
    And,
    Condition,
    Defined,
    Equal,
    In,
    Keyed,
    Nothing,
    Or,
    Range,
    Touching,
    pinned_ids,
)
from armillary.query.page import Counters
from armillary.storage.engine import View
from armillary.work import spend

# Its place in an order, if there is one; its rid; what is stored. None: nothing here, only a way point.
Candidate: TypeAlias = tuple[bytes, int, bytes | None]

# What the index may be asked for: a condition, or what several of them come to in one index.
_Way: TypeAlias = Condition | ComposedFilter | FieldPlan

_BATCH_ITEMS = 64  # loaded together
_BATCH_ITEMS_FIRST = 16  # before it is known how large they are
_BATCH_BYTES = 4 * limits.MB
_SEEK_UNITS, _ENTRY_UNITS, _PART_UNITS = 50, 5, 5  # of work: to seek in the index, to read on, to look at a condition
_CHECK_EVERY = 256


@dataclass(frozen=True, slots=True)
class Scope:
    """Which items of the partition are asked for: those with an effective key in [low, high), of one logical partition
    (`epk`), or at certain (epk, id) points. `members`: the logical partitions that the filter pins, where the index
    does not have the partition key, as without an index; all others are left out by the filter."""

    low: bytes = b""
    high: bytes = b"\xff"
    epk: bytes | None = None
    points: tuple[tuple[bytes, str], ...] | None = None
    members: tuple[bytes, ...] | None = None

    def holds(self, epk: bytes) -> bool:
        return epk == self.epk if self.epk is not None else self.low <= epk < self.high

    @property
    def is_whole(self) -> bool:
        return self.epk is None and self.low == b"" and self.high == b"\xff"

    @property
    def is_prefix(self) -> bool:
        """All keys that begin with some components of a hierarchical key: a few logical partitions."""
        return self.epk is None and self.low != b"" and self.high == self.low + b"\xff"


WHOLE = Scope()


@dataclass(frozen=True, slots=True)
class Index:
    """What the index of a container has. While a new policy is still working through the items it is not to be used,
    although the policy already says what may be asked."""

    policy: IndexingPolicy
    is_complete: bool = True

    def is_indexed(self, path: str) -> bool:
        return self.is_complete and self.policy.is_indexed(path)

    def is_field_indexed(self, field: str) -> bool:
        """Whether an index of a collection begins with a field."""
        return self.is_complete and any(index.fields and index.fields[0][0] == field for index in self.policy.fields)

    def spatial_index(self, condition: Touching) -> SpatialIndex | None:
        """The spatial index that a condition can use."""
        found = self.policy.spatial.get(condition.path) if self.is_complete else None
        return found if found is not None and found.is_planar == condition.region.is_planar else None


class Statistics(Protocol):
    """What a partition knows about itself without looking at its items."""

    def item_count(self, view: View, epk: bytes | None) -> int:
        """How many items there are, or are in a logical partition. Expired ones count until they are swept."""

    def expired(self, view: View, most: int) -> frozenset[int] | None:
        """The rids of items that have expired and are still there; None: there are more than `most`."""

    def is_everywhere(self, view: View, path: str) -> bool:
        """Whether every item has a path. A "no" may be wrong."""


def count_index_use(condition: Condition, index: Index, counters: Counters) -> None:
    """What a filter asks of the index, counted once for each path: the same on every page, whatever path is chosen."""
    seeks: set[str] = set()
    scans: set[str] = set()
    spatial: set[str] = set()
    pending = [condition]
    while pending:
        part = pending.pop()
        spend(_PART_UNITS)
        if isinstance(part, (And, Or)):
            pending.extend(part.parts)
        elif isinstance(part, (Equal, In, Defined)):
            seeks.add(part.path)
        elif isinstance(part, Range):
            scans.add(part.path)
        elif isinstance(part, Touching) and index.spatial_index(part) is not None:
            spatial.add(part.path)
        elif isinstance(part, Keyed) and index.is_field_indexed(part.field):
            if all(each.is_point for each in part.ranges):
                counters.seeks += 1
            else:
                counters.precise_scans += 1
    counters.seeks += sum(map(index.is_indexed, seeks))
    counters.precise_scans += sum(map(index.is_indexed, scans)) + len(spatial)


def candidates(
    view: View,
    condition: Condition,
    scope: Scope,
    index: Index,
    after_rid: int,
    max_items: int,
    counters: Counters,
) -> Iterator[Candidate]:
    """Every item after a rid that may be an answer, by ascending rid."""
    rids = find_rids(view, condition, scope, index, after_rid)
    if rids is None:
        counters.is_full_scan = True
        return all_items(view, after_rid)
    return loaded(view, zip(repeat(b""), rids), max_items)


def matching_rids(
    view: View, condition: Condition, scope: Scope, index: Index, after_rid: int
) -> Iterator[int] | Literal["too many"] | None:
    """The rids of all items that meet a filter which the index tells exactly, ascending: where one equality or one
    range of few items finds them. None: some of the candidates may not meet it."""
    if not scope.is_whole:
        return None
    if isinstance(condition, Equal):
        run = _Finder(view, index, after_rid).run(condition)
        return run.after(after_rid) if run is not None else None
    if not isinstance(condition, Range) or not index.is_indexed(condition.path):
        return None
    found = _Finder(view, index, after_rid).gather_any((condition,), scope, limits.QUERY_GATHER_MAX)
    return iter(sorted(found)) if found is not None else "too many"


def all_items(view: View, after_rid: int) -> Iterator[Candidate]:
    for key, stored in view.scan(layout.item_key(after_rid + 1), layout.space_end(layout.ITEMS)):
        yield b"", int.from_bytes(key[1:], "big"), stored


def loaded(view: View, places: Iterator[tuple[bytes, int]], max_items: int) -> Iterator[Candidate]:
    """The items at these places, read in batches. Those that are no longer there are left out."""
    for batch, items in loaded_batches(view, places, max_items):
        yield from present(batch, items)


def present(batch: Sequence[tuple[bytes, int]], items: Sequence[bytes | None]) -> Iterator[Candidate]:
    for (order, rid), item in zip(batch, items, strict=True):
        if item is not None:
            yield order, rid, item


def loaded_batches(
    view: View, places: Iterator[tuple[bytes, int]], max_items: int
) -> Iterator[tuple[list[tuple[bytes, int]], list[bytes | None]]]:
    batch_max = max(1, min(max_items, _BATCH_ITEMS))
    batch_items = min(batch_max, _BATCH_ITEMS_FIRST)
    while batch := list(islice(places, batch_items)):
        items = view.get_many([layout.ITEMS + rid.to_bytes(layout.RID_BYTES, "big") for _, rid in batch])
        yield batch, items
        if len(batch) < batch_items:
            return  # there were no more of them
        # As many as the last ones were large: 64 of 2 MB would take the memory, and the time, of 128 MB.
        size_bytes = sum([len(item) for item in items if item is not None]) // len(batch) + 1
        batch_items = max(1, min(batch_max, _BATCH_BYTES // size_bytes))


def find_rids(view: View, condition: Condition, scope: Scope, index: Index, after_rid: int) -> Iterator[int] | None:
    """The rids of all items after `after_rid` that may satisfy a condition, ascending. None: scan the items."""
    if isinstance(condition, Nothing):
        return iter(())
    if scope.points is not None:
        return _at_points(view, scope.points, after_rid)
    ids = pinned_ids(condition) if scope.epk is not None else None
    if ids is not None and scope.epk is not None:
        return _at_points(view, [(scope.epk, item_id) for item_id in ids], after_rid)
    finder = _Finder(view, index, after_rid)
    runs, others = finder.ways(condition, scope)
    if others and isinstance(others[0], ComposedFilter):
        few = finder.gather_any(others[:1], WHOLE, limits.QUERY_PROBE_ENTRIES)
        if few is not None:
            return iter(sorted(few))
    if len(runs) > 1 or (runs and others):
        short = shortest(runs, after_rid, limits.QUERY_PROBE_ENTRIES)
        if short is not None:
            return iter(short)
    # With a run to fall back on, reading far ahead is worth less than when everything would have to be scanned.
    gather_max = limits.QUERY_GATHER_MAX // 10 if runs else limits.QUERY_GATHER_MAX
    gathered = finder.gather_any(others, scope, gather_max)
    if gathered is not None:
        return iter(sorted(gathered))
    if not runs and scope.members is not None:
        return union_of(view, [layout.MEMBERS + epk for epk in scope.members], after_rid)
    if not runs:
        return None
    return shared_by(runs, after_rid)


def few_rids(view: View, condition: Condition, scope: Scope, index: Index) -> list[int] | None:
    """The rids of all items that may satisfy a condition, if a short look finds that they are few."""
    if isinstance(condition, Nothing):
        return []
    if scope.points is not None:
        return list(_at_points(view, scope.points, -1))
    ids = pinned_ids(condition) if scope.epk is not None else None
    if ids is not None and scope.epk is not None:
        return list(_at_points(view, [(scope.epk, item_id) for item_id in ids], -1))
    finder = _Finder(view, index, -1)
    runs, others = finder.ways(condition, scope)
    short = shortest(runs, -1, limits.QUERY_FEW_ITEMS)
    if short is not None:
        return short
    found = finder.gather_any(others, scope, limits.QUERY_FEW_ITEMS)
    return sorted(found) if found is not None else None


def member_rids(view: View, scope: Scope) -> frozenset[int] | None:
    """The rids of a logical partition, if it is worth knowing them beforehand; None: look at the items."""
    if not scope.epk:
        return None
    rids = list(islice(Run(view, layout.MEMBERS + scope.epk).after(-1), limits.QUERY_GATHER_MAX + 1))
    return frozenset(rids) if len(rids) <= limits.QUERY_GATHER_MAX else None


def path_prefix(view: View, path: str) -> bytes:
    """What the keys of a path's terms begin with. Path numbers start at 1, so nothing is stored under 0."""
    number = view.get(layout.path_key(path))
    return layout.term_prefix(0 if number is None else int.from_bytes(number, "big"))


class _TooMany(Exception):
    """More matches than are worth gathering."""


class _Finder:
    """Gathers rids from the terms space. A path that was never stored has no number and no items."""

    def __init__(self, view: View, index: Index, after_rid: int) -> None:
        self._view = view
        self._index = index
        self._is_indexed = index.is_indexed
        self._after_rid = after_rid
        self._allowance = 0  # keys that may still be read

    def ways(self, condition: Condition, scope: Scope) -> tuple[list[Run], list[_Way]]:
        """The runs that hold all items of a filter, and what else of it the index may be asked for."""
        parts: Sequence[Condition] = condition.parts if isinstance(condition, And) else (condition,)
        composed = self._composed(condition)
        runs: list[Run] = []
        others: list[_Way] = []
        plan = self._plan(keyed_parts(condition))
        if plan is not None and plan.is_run:
            runs.append(Run(self._view, self._prefix(plan.chosen.term_name) + plan.ranges[0][0]))
        elif plan is not None:
            others.append(plan)
        if composed is not None:
            parts = [part for part in parts if id(part) not in composed.parts or isinstance(part, Equal)]
            if composed.bounds is None:
                # Each of the equalities has all of these items, and others.
                parts = [part for part in parts if id(part) not in composed.parts]
                runs.append(Run(self._view, self._prefix(composed.composite.name) + composed.fixed))
            else:
                others.append(composed)
        for part in parts:
            if isinstance(part, Keyed):
                continue
            if not isinstance(part, Equal):
                others.append(part)
            elif (run := self.run(part)) is not None:
                runs.append(run)
        # Without a partition key all items have the same, empty effective key: that is the items space itself.
        if scope.epk:
            runs.append(Run(self._view, layout.MEMBERS + scope.epk))
        return runs, others

    def _composed(self, condition: Condition) -> ComposedFilter | None:
        return composed_filter(condition, self._index.policy) if self._index.is_complete else None

    def _plan(self, parts: Sequence[Keyed]) -> FieldPlan | None:
        """The index of the collection that serves conditions best."""
        if not parts or not self._index.is_complete:
            return None
        return field_plan(parts, self._index.policy, several_in(self._view))

    def run(self, condition: Equal) -> Run | None:
        """The run of an equality; None if the index cannot tell."""
        if condition.value is UNDEFINED or isinstance(condition.value, (list, dict)):
            return None
        if not self._is_indexed(condition.path):
            return None
        return Run(self._view, self._prefix(condition.path) + encode_term(condition.value))

    def _prefix(self, path: str) -> bytes:
        return path_prefix(self._view, path)

    def gather_any(self, parts: Iterable[_Way], scope: Scope, gather_max: int) -> set[int] | None:
        """The matches of whichever part has fewest; None if the index serves none of them within the limit."""
        best: set[int] | None = None
        candidates: list[_Way | Scope] = [
            part for part in parts if isinstance(part, (ComposedFilter, FieldPlan)) or self._serves(part)
        ]
        if scope.is_prefix:
            candidates.append(scope)
        for candidate in candidates:
            found: set[int] = set()
            # What has more than the best so far is not worth reading to its end.
            self._allowance = gather_max if best is None else min(gather_max, len(best))
            try:
                if isinstance(candidate, ComposedFilter):
                    self._gather_composed(candidate, found)
                elif isinstance(candidate, FieldPlan):
                    self._gather_plan(candidate, found)
                elif isinstance(candidate, Scope):
                    self._take(layout.MEMBERS + scope.low, layout.MEMBERS + scope.high, found)
                else:
                    self._gather(candidate, found)
            except _TooMany:
                continue
            if best is None or len(found) < len(best):
                best = found
        return best

    def _serves(self, condition: Condition) -> bool:
        spend(_PART_UNITS)
        if isinstance(condition, Equal):
            return self.run(condition) is not None
        if isinstance(condition, In):
            spend(len(condition.values))
            return self._is_indexed(condition.path) and not any(isinstance(v, (list, dict)) for v in condition.values)
        if isinstance(condition, (Range, Defined)):
            return self._is_indexed(condition.path)
        if isinstance(condition, Touching):
            return self._index.spatial_index(condition) is not None
        if isinstance(condition, Or):
            return all(self._serves(part) for part in condition.parts)
        if isinstance(condition, Keyed):
            return self._plan([condition]) is not None
        if isinstance(condition, And):
            return any(self._serves(part) for part in condition.parts) or self._composed(condition) is not None
        return isinstance(condition, Nothing)

    def _gather(self, condition: Condition, found: set[int]) -> None:
        if isinstance(condition, Equal):
            self._gather_values(condition.path, [condition.value], found)
        elif isinstance(condition, In):
            self._gather_values(condition.path, condition.values, found)
        elif isinstance(condition, (Range, Defined)):
            low, high = term_bounds(condition) or (b"", b"\xff")
            prefix = self._prefix(condition.path)
            self._take(prefix + low, prefix + high, found)
        elif isinstance(condition, Touching):
            spatial = self._index.spatial_index(condition)
            assert spatial is not None, "asked before"
            prefix = self._prefix(spatial.name)
            for low, high in spatial.ranges(condition.region):
                self._take(prefix + low, prefix + high, found)
        elif isinstance(condition, Or):
            for part in condition.parts:
                self._gather(part, found)
        elif isinstance(condition, (Keyed, And)) and (plan := self._plan(keyed_parts(condition))) is not None:
            self._gather_plan(plan, found)
        elif isinstance(condition, And) and (composed := self._composed(condition)) is not None:
            self._gather_composed(composed, found)
        elif isinstance(condition, And):
            # Equality is the most selective; any one part is enough, because the filter sees to the rest.
            parts = [part for part in condition.parts if self._serves(part)]
            self._gather(next((part for part in parts if isinstance(part, Equal)), parts[0]), found)

    def _gather_composed(self, composed: ComposedFilter, found: set[int]) -> None:
        prefix = self._prefix(composed.composite.name) + composed.fixed
        if composed.bounds is None:
            self._take(prefix, layout.prefix_end(prefix), found)
        else:
            self._take(prefix + composed.bounds[0], prefix + composed.bounds[1], found)

    def _gather_plan(self, plan: FieldPlan, found: set[int]) -> None:
        prefix = self._prefix(plan.chosen.term_name)
        for low, high in plan.ranges:
            self._take(prefix + low, prefix + high, found)

    def _gather_values(self, path: str, values: Sequence[Value], found: set[int]) -> None:
        prefix = self._prefix(path)
        start = (self._after_rid + 1).to_bytes(layout.RID_BYTES, "big")
        for value in values:
            key = prefix + encode_term(value)
            self._take(key + start, layout.prefix_end(key), found)

    def _take(self, low: bytes, high: bytes, found: set[int]) -> None:
        after_rid, size = self._after_rid, layout.RID_BYTES
        spend(_SEEK_UNITS)
        keys = self._view.scan(low, high)
        # One more than is allowed tells that there are too many.
        while entries := list(islice(keys, min(_CHECK_EVERY, self._allowance + 1))):
            rids = [int.from_bytes(key[-size:], "big") for key, _ in entries]
            found.update(rids if after_rid < 0 else [rid for rid in rids if rid > after_rid])
            spend(len(entries) * _ENTRY_UNITS)
            # What is read counts, not what is found: a later page must not read a million terms for the last few.
            self._allowance -= len(entries)
            if self._allowance < 0:
                raise _TooMany


def _at_points(view: View, points: Sequence[tuple[bytes, str]], after_rid: int) -> Iterator[int]:
    keys = [layout.id_key(epk, item_id) for epk, item_id in dict.fromkeys(points)]
    found: list[bytes | None] = []
    for start in range(0, len(keys), _BATCH_ITEMS):
        batch = keys[start : start + _BATCH_ITEMS]
        spend(_SEEK_UNITS * len(batch))
        found += view.get_many(batch)
    rids = [int.from_bytes(rid, "big") for rid in found if rid is not None]
    return iter(sorted(rid for rid in rids if rid > after_rid))
