"""Documents in the order of a sort: straight off an index of the collection where it has that order. Its keys are in
order, so a walk over them is a walk in order, and a position in it is a key to seek; where keys were cut the documents
themselves decide. An index in which documents have several keys, or which does not hold all, has no order to give.

A place is the bytes of the values sorted by, one after the other, inverted where the order descends: what an index of
just these fields has for keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from armillary import limits
from armillary.errors import Failure, bad_request
from armillary.model import layout
from armillary.model.bson.bson_order import EMPTY_BYTES, inverted, order_bytes
from armillary.model.bson.bson_values import MISSING
from armillary.model.documents import Form
from armillary.model.indexes.field_indexes import EMPTY, FieldIndex, cut_key, is_cut_key, rows_of
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.query.access.access_path import Candidate, Index, Scope, few_rids, path_prefix
from armillary.query.access.field_access import HasSeveral, bounds_of, holds_all, keyed_parts, named_index, several_in
from armillary.query.access.ordered_access import Sorter, Start, loaded_in_order
from armillary.query.aggregates import too_many
from armillary.query.conditions import And, Condition, Keyed, KeyRanges, intersected
from armillary.query.selection import Ordering, OrderKey
from armillary.storage.engine import View

Fields = tuple[tuple[str, bool], ...]

_BATCH_KEYS = 64  # read together
_PARALLEL = "cannot sort with keys that are parallel arrays"


def field_ordering(fields: Fields) -> Ordering:
    """The order of a sort by dotted paths, each ascending or descending, in the order of BSON values."""
    return Ordering((OrderKey(None, False),), _no_values, field_place(fields), fields)


def _no_values(_document: Any) -> tuple[Any, ...]:
    raise AssertionError("documents are placed as a whole")


def field_place(fields: Fields) -> Callable[[Any], bytes]:
    """Where a document stands. Of several keys that an array gives it the first in the order counts."""
    paths = tuple([tuple(path.split(".")) for path, _ in fields])
    flips = [is_descending for _, is_descending in fields]
    if len(fields) == 1 and "." not in fields[0][0]:
        return _place_of_one(fields[0][0], flips[0])

    def place(document: Any) -> bytes:
        try:
            rows = rows_of(document, paths)
        except Failure:
            raise bad_request(_PARALLEL) from None
        if len(rows) == 1:
            return _joined(rows[0], flips)
        return min([_joined(row, flips) for row in rows])

    return place


def _place_of_one(name: str, is_descending: bool) -> Callable[[Any], bytes]:
    def place(document: Any) -> bytes:
        value = document.get(name, MISSING)
        if type(value) is not list:
            encoded = order_bytes(value)
            return inverted(encoded) if is_descending else encoded
        if not value:
            return inverted(EMPTY_BYTES) if is_descending else EMPTY_BYTES
        keys = [order_bytes(each) for each in value]
        return inverted(max(keys)) if is_descending else min(keys)

    return place


def _joined(row: Sequence[Any], flips: Sequence[bool]) -> bytes:
    parts = []
    for value, is_descending in zip(row, flips, strict=True):
        part = EMPTY_BYTES if value is EMPTY else order_bytes(value)
        parts.append(inverted(part) if is_descending else part)
    return b"".join(parts)


class Served(NamedTuple):
    """An index that has an order after some fields that the filter holds to values."""

    chosen: FieldIndex
    fixed: bytes
    is_reverse: bool
    bounds: tuple[bytes, bytes]  # of the keys behind `fixed`
    ordering: Ordering  # by all fields behind the fixed ones: at least what was asked for


def served_order(
    ordering: Ordering, condition: Condition, policy: IndexingPolicy, has_several: HasSeveral
) -> Served | None:
    best: Served | None = None
    pinned: dict[str, bytes] = {}
    ranges: dict[str, KeyRanges] = {}
    parts = keyed_parts(condition)
    for part in parts:
        ranges[part.field] = intersected(ranges[part.field], part.ranges) if part.field in ranges else part.ranges
    for field, found in ranges.items():
        if len(found) == 1 and found[0].is_point:
            pinned[field] = found[0].low
    most = -1
    named = named_index(parts)
    for index in policy.fields:
        if named is not None and index.name != named:
            continue
        if not index.fields or index.is_sparse or not holds_all(index, parts) or has_several(index):
            continue
        before = _before(index, ordering.fields, pinned)
        if before is None or before <= most:
            continue
        is_reverse = index.fields[before][1] != ordering.fields[0][1]
        fixed = b"".join([inverted(pinned[path]) if down else pinned[path] for path, down in index.fields[:before]])
        path, is_descending = index.fields[before]
        bounds = bounds_of(ranges[path], is_descending) if path in ranges else (b"", b"\xff")
        rest = tuple([(path, down != is_reverse) for path, down in index.fields[before:]])
        extended = ordering if len(rest) == len(ordering.fields) else field_ordering(rest)
        best, most = Served(index, fixed, is_reverse, bounds, extended), before
    return best


def _before(index: FieldIndex, fields: Fields, pinned: dict[str, bytes]) -> int | None:
    """How many fields of an index the filter must pin so that the next ones are those of the sort."""
    for before in range(len(index.fields) - len(fields) + 1):
        found = index.fields[before : before + len(fields)]
        for is_reverse in (False, True):
            if found == tuple([(path, down != is_reverse) for path, down in fields]):
                return before
        if index.fields[before][0] not in pinned:
            return None
    return None


def is_served(view: View, ordering: Ordering, condition: Condition, scope: Scope, index: Index) -> Served | None:
    """The index to walk over, unless so few documents are left by a filter that sorting them is better."""
    if not index.is_complete or not index.policy.fields:
        return None
    found = served_order(ordering, condition, index.policy, several_in(view))
    if found is None or found.fixed:
        return found
    if scope.is_whole and field_of_stretch(condition) == found.ordering.fields[0][0]:
        return found  # what the walk goes through is what the filter leaves
    return found if few_rids(view, condition, scope, index) is None else None


def field_of_stretch(condition: Condition) -> str | None:
    """The field whose keys must lie in one stretch, where that is all that a condition says; None: it says more, or
    something else."""
    parts = condition.parts if isinstance(condition, And) else (condition,)
    first = parts[0]
    if not isinstance(first, Keyed):
        return None
    ranges = first.ranges
    for part in parts[1:]:
        if not isinstance(part, Keyed) or part.field != first.field:
            return None
        ranges = intersected(ranges, part.ranges)
    return first.field if len(ranges) == 1 and not ranges[0].is_point else None


class FieldWalk:
    """The documents of a partition in the order of an index."""

    def __init__(self, view: View, served: Served, scope: Scope, form: Form) -> None:
        self._view = view
        self._served = served
        self._scope = scope
        self._form = form

    def candidates(self, start: Start, max_items: int) -> Iterator[Candidate]:
        """In order, from the start on. A candidate without an item only says how far the walk has come."""
        return loaded_in_order(self._view, self._scope, self._places(start), max_items)

    def _places(self, start: Start) -> Iterator[tuple[bytes, int]]:
        """The order and rid of every document that has a key, from the start on."""
        served = self._served
        prefix = path_prefix(self._view, served.chosen.term_name) + served.fixed
        low, high = served.bounds
        if start.rid >= 0:
            first = cut_key(served.fixed + (inverted(start.order) if served.is_reverse else start.order))
            first = first[len(served.fixed) :]
            if served.is_reverse:
                high = min(high, layout.prefix_end(first))
            else:
                low = max(low, first)
        at = len(prefix)
        for term, rids in self._groups(prefix + low, prefix + high, at):
            if is_cut_key(served.fixed + term):
                yield from self._sorted(rids, start)
                continue
            order = inverted(term) if served.is_reverse else term
            for rid in rids:
                if start.rid < 0 or (order, rid) > (start.order, start.rid) or self._is_start((order, rid), start):
                    yield order, rid

    def _is_start(self, place: tuple[bytes, int], start: Start) -> bool:
        return start.is_included and place == (start.order, start.rid)

    def _groups(self, low: bytes, high: bytes, at: int) -> Iterator[tuple[bytes, list[int]]]:
        """Keys with the rids behind them, ascending."""
        term: bytes | None = None
        rids: list[int] = []
        pairs = self._view.scan(low, high, self._served.is_reverse)
        while portion := list(islice(pairs, _BATCH_KEYS)):
            for key, _ in portion:
                here = key[at : -layout.RID_BYTES]
                if here != term:
                    if term is not None:
                        yield term, sorted(rids)
                    term, rids = here, []
                rids.append(int.from_bytes(key[-layout.RID_BYTES :], "big"))
                if len(rids) > limits.QUERY_SORTED_MAX:
                    raise too_many("The sort has", limits.QUERY_SORTED_MAX, "documents with the same key")
        if term is not None:
            yield term, sorted(rids)

    def _sorted(self, rids: Sequence[int], start: Start) -> Iterator[tuple[bytes, int]]:
        """Documents whose keys were cut, in the order of what they really have."""
        sorter = Sorter(self._served.ordering, None, start)
        for rid in rids:
            stored = self._view.get(layout.item_key(rid))
            assert stored is not None, "the index names an item that is not there"
            sorter.add(rid, self._form.load(self._form.text(stored)))
        sorter.finish()
        yield from sorter.after(start)
