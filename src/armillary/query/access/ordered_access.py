"""Items in the order of ORDER BY: straight off the index where it has that order, else sorted in memory, within limits.

The terms of a path are in its order, those of a composite index in theirs, so a walk over the terms is a walk in order,
and a position in it is a key to seek. Where long strings were cut the items themselves decide. Items that lack the path
have no term (unless the policy names the path): they are looked for among all items, unless the filter asks for the
path or it is known that no item lacks it.

The terms of elements of arrays do not say which element they are of. For an order by one element (`c.tags[0]`) the walk
over the terms of all elements keeps an item only at the term of that element.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from armillary import limits
from armillary.model import layout
from armillary.model.documents import Form
from armillary.model.encoding import TAG_NUMBER, TAG_STRING, encode_term, is_cut
from armillary.model.values import UNDEFINED
from armillary.query.access.access_path import Candidate, Index, Scope, few_rids, member_rids, path_prefix
from armillary.query.access.composite_access import ComposedOrder, composed_order
from armillary.query.access.term_ranges import inverted, term_bounds
from armillary.query.aggregates import too_many
from armillary.query.conditions import And, Condition, Defined, Equal, In, Or, Range, Touching
from armillary.query.ordering import order_bytes
from armillary.query.selection import Ordering, Selection
from armillary.storage.engine import View
from armillary.work import sorted_values, spend

_UNDEFINED = encode_term(UNDEFINED)
_AFTER_UNDEFINED = layout.prefix_end(_UNDEFINED)
_LAST = b"\xff"
_EVERYWHERE = ("/id", "/_ts")  # what every item has
_BATCH_ITEMS = 64  # loaded together
_BATCH_ITEMS_FIRST, _BATCH_BYTES = 16, 4 * limits.MB  # before it is known how large they are, and of them
_ITEM_UNITS, _LOADED_UNIT_BYTES = 20, 24  # of work for an item, and bytes of JSON that are read for one unit


class Start(NamedTuple):
    """Where in the order to go on: after an item, or with it once more."""

    order: bytes
    rid: int  # -1: at the beginning
    is_included: bool


class OrderedWalk:
    """The items of a partition in the order of an index. `is_served` says whether an index has it; what an index cannot
    do better than a sort, because a filter leaves only few items, is not."""

    def __init__(self, view: View, selection: Selection, scope: Scope, index: Index, form: Form) -> None:
        assert selection.ordering is not None
        self._view = view
        self._form = form
        self._ordering = selection.ordering
        self._condition = selection.condition
        self._scope = scope
        self._index = index
        self._is_descending = self._ordering.keys[0].is_descending
        self._composed: ComposedOrder | None = None
        self.path: str | None = None  # that may be missing from items, which then have no term
        # An order by one element of an array: the index has the terms of all of them under this path.
        self._is_of_element = any("/[]" in (key.path or "") for key in self._ordering.keys)
        self.is_served = False
        if not index.is_complete or any(key.path is None for key in self._ordering.keys):
            return
        self._composed = composed_order(self._ordering, self._condition, index.policy)
        is_direct = self._composed is not None and self._composed.is_whole and scope.is_whole
        if not is_direct and few_rids(view, self._condition, scope, index) is not None:
            return
        self.is_served = True
        if self._composed is not None:
            return  # what is missing has its place in a composite index
        path = self._ordering.keys[0].path
        assert path is not None
        if self._is_of_element:
            self.path = path  # another element may have what this one lacks
        elif not index.policy.has_undefined(path) and path not in _EVERYWHERE:
            self.path = None if _is_asked_for(self._condition, path) else path

    def candidates(self, start: Start, max_items: int, *, is_path_everywhere: bool) -> Iterator[Candidate]:
        """In order, from the start on. A candidate without an item only says how far the walk has come."""
        has_gap = self.path is not None and (self._is_of_element or not is_path_everywhere)
        is_past_undefined = start.rid >= 0 and start.order != _UNDEFINED
        if has_gap and not self._is_descending and not is_past_undefined:
            yield from self._lacking(start)
            start = Start(b"", -1, False)
        if not (self._is_descending and has_gap and start.rid >= 0 and not is_past_undefined):
            found = loaded_in_order(self._view, self._scope, self._places(start), max_items)
            yield from self._at_own_places(found) if self._is_of_element else found
            start = Start(b"", -1, False)
        if has_gap and self._is_descending:
            yield from self._lacking(start)

    # Items without the path.

    def _lacking(self, start: Start) -> Iterator[Candidate]:
        low, high = layout.item_key(0), layout.space_end(layout.ITEMS)
        if start.rid >= 0 and self._is_descending:
            high = layout.item_key(start.rid + start.is_included)
        elif start.rid >= 0:
            low = layout.item_key(start.rid + (not start.is_included))
        values = self._ordering.values
        for key, stored in self._view.scan(low, high, self._is_descending):
            is_lacking = values(self._loaded(stored))[0] is UNDEFINED
            yield _UNDEFINED, int.from_bytes(key[1:], "big"), stored if is_lacking else None

    # Items by their terms.

    def _at_own_places(self, found: Iterator[Candidate]) -> Iterator[Candidate]:
        """Without the items that are at the term of another element than the one that they are ordered by."""
        for order, rid, stored in found:
            is_own = stored is not None and order_bytes(self._ordering, self._loaded(stored)) == order
            yield order, rid, stored if is_own else None

    def _loaded(self, stored: bytes) -> Any:
        spend(_ITEM_UNITS + len(stored) // _LOADED_UNIT_BYTES)
        return self._form.load(self._form.text(stored))

    def _places(self, start: Start) -> Iterator[tuple[bytes, int]]:
        """The order and rid of every item that has a term, from the start on."""
        keys, composed = self._ordering.keys, self._composed
        if composed is not None:
            prefix = path_prefix(self._view, composed.composite.name) + composed.fixed
            (low, high), is_reverse, is_inverted = composed.bounds, composed.is_reverse, composed.is_inverted
        else:
            assert len(keys) == 1, "checked before the query began"
            path, is_reverse, is_inverted = keys[0].path, self._is_descending, False
            assert path is not None
            prefix = path_prefix(self._view, path)
            # A condition on such a path may be met by another element.
            low, high = (b"", _LAST) if self._is_of_element else _term_range(self._condition, path)
            if self.path is not None:
                low = max(low, _AFTER_UNDEFINED)
        first = self._from(start, is_inverted)
        for term, rids in self._groups(
            prefix, (low, high), first, start, is_reverse=is_reverse, is_inverted=is_inverted
        ):
            order = inverted(term) if is_inverted else term
            if self._is_cut(order):
                yield from self._sorted_group(order, rids, start)
            elif order == start.order and start.rid >= 0:
                is_descending = self._is_descending
                yield from ((order, rid) for rid in rids if is_after((order, rid), start, is_descending=is_descending))
            else:
                yield from ((order, rid) for rid in rids)

    def _is_cut(self, order: bytes) -> bool:
        """Whether a term stands for several places in the order."""
        if len(order) < limits.TERM_BYTES_MAX:
            return False
        return any(is_cut(part) for part in split_order(order, self._ordering, limits.TERM_BYTES_MAX))

    def _from(self, start: Start, is_inverted: bool) -> bytes | None:
        """The term of the item at the start."""
        if start.rid < 0:
            return None
        parts = []
        for part, is_flipped in zip(
            split_order(start.order, self._ordering, limits.QUERY_ORDER_BYTES_MAX),
            _flips(self._ordering),
            strict=True,
        ):
            term = part if len(part) <= limits.TERM_BYTES_MAX else part[: limits.TERM_BYTES_MAX - 1] + b"\x01"
            parts.append(inverted(term) if is_flipped != is_inverted else term)
        return b"".join(parts)

    def _groups(
        self,
        prefix: bytes,
        bounds: tuple[bytes, bytes],
        first: bytes | None,
        start: Start,
        *,
        is_reverse: bool,
        is_inverted: bool,
    ) -> Iterator[tuple[bytes, Iterator[int]]]:
        """Terms with the rids behind them in the order of ties, from `first`, the term at the start, on. The rids are
        to be taken before the next term."""
        low, high = bounds
        if first is not None and is_reverse:
            high = min(high, layout.prefix_end(first))
        elif first is not None:
            low = max(low, first)
        if is_reverse == self._is_descending:
            if first is not None and len(first) < limits.TERM_BYTES_MAX:
                # One value may have a million items: go on at the item itself.
                if is_reverse:
                    high = min(high, first + (start.rid + start.is_included).to_bytes(layout.RID_BYTES, "big"))
                else:
                    low = max(low, first + (start.rid + (not start.is_included)).to_bytes(layout.RID_BYTES, "big"))
            pairs = self._view.scan(prefix + low, prefix + high, is_reverse)
            yield from self._runs(pairs, len(prefix), is_inverted)
            return
        # Ties go the other way than the terms: look up each term, then walk its rids backwards.
        while True:
            found = next(iter(self._view.scan(prefix + low, prefix + high, is_reverse)), None)
            if found is None:
                return
            term = found[0][len(prefix) : -layout.RID_BYTES]
            end = layout.prefix_end(prefix + term)
            ends = [prefix + term, end]
            if term == first and len(term) < limits.TERM_BYTES_MAX:
                rid = start.rid + (start.is_included if self._is_descending else not start.is_included)
                ends[self._is_descending] = prefix + term + rid.to_bytes(layout.RID_BYTES, "big")
            keys = self._view.scan(ends[0], ends[1], self._is_descending)
            yield term, (int.from_bytes(key[-layout.RID_BYTES :], "big") for key, _ in keys)
            if is_reverse:
                high = term
            else:
                low = end[len(prefix) :]

    def _runs(
        self, pairs: Iterator[tuple[bytes, bytes]], term_at: int, is_inverted: bool
    ) -> Iterator[tuple[bytes, Iterator[int]]]:
        """Keys of terms that come in order, as terms with some of their rids; with all of them where a term was cut."""
        term = None
        rids: list[int] = []
        for key, _ in pairs:
            here = key[term_at : -layout.RID_BYTES]
            if here != term or len(rids) == _BATCH_ITEMS:
                is_whole = here != term or not self._is_cut(inverted(here) if is_inverted else here)
                if term is not None and is_whole:
                    yield term, iter(rids)
                if is_whole:
                    term, rids = here, []
            rids.append(int.from_bytes(key[-layout.RID_BYTES :], "big"))
            if len(rids) > limits.QUERY_SORTED_MAX:
                raise too_many("ORDER BY sorts", limits.QUERY_SORTED_MAX, "items with the same beginning")
        if term is not None:
            yield term, iter(rids)

    def _sorted_group(self, term: bytes, rids: Iterator[int], start: Start) -> Iterator[tuple[bytes, int]]:
        """Items whose term was cut, in the order of what they really have."""
        sorter = Sorter(self._ordering, None, start)
        for rid in rids:
            stored = self._view.get(layout.item_key(rid))
            assert stored is not None, "the index names an item that is not there"
            document = self._loaded(stored)
            if not self._is_of_element or encode_term(self._ordering.values(document)[0]) == term:
                sorter.add(rid, document)
        sorter.finish()
        yield from sorter.after(start)


def loaded_in_order(
    view: View, scope: Scope, places: Iterator[tuple[bytes, int]], max_items: int
) -> Iterator[Candidate]:
    """The items at these places that are in a scope. A candidate without an item only says how far the walk has
    come."""
    members = member_rids(view, scope)
    batch_max = max(1, min(max_items, _BATCH_ITEMS))
    batch_items = min(batch_max, _BATCH_ITEMS_FIRST)
    batch: list[tuple[bytes, int]] = []
    skipped = 0
    for place in places:
        if members is not None and place[1] not in members:
            skipped += 1
            if skipped % _BATCH_ITEMS == 0:
                yield from _read(view, batch)
                batch = []
                yield *place, None
            continue
        batch.append(place)
        if len(batch) >= batch_items:
            size_bytes = yield from _read(view, batch)
            batch_items = max(1, min(batch_max, _BATCH_BYTES // size_bytes))
            batch = []
    yield from _read(view, batch)


def _read(view: View, batch: list[tuple[bytes, int]]) -> Generator[Candidate, None, int]:
    """The items at these places; returns their average size."""
    items = view.get_many([layout.item_key(rid) for _, rid in batch])
    for (order, rid), stored in zip(batch, items, strict=True):
        yield order, rid, stored
    return sum([len(stored) for stored in items if stored is not None]) // max(len(batch), 1) + 1


def split_order(order: bytes, ordering: Ordering, size_max: int) -> list[bytes]:
    """The parts of an order or of a term, one for each key, each as it would be alone and ascending."""
    parts: list[bytes] = []
    at = 0
    for is_flipped in _flips(ordering):
        rest = order[at : at + size_max]
        if is_flipped:
            rest = inverted(rest)
        tag = rest[:1]
        if tag == TAG_NUMBER:
            size = 9
        elif tag == TAG_STRING:
            end = rest.find(b"\x00")
            size = end + 1 if end > 0 else size_max
        else:
            size = 2 if rest[1:2] == b"\x00" and tag > TAG_STRING else 1
        parts.append(rest[:size])
        at += size
    return parts


def _flips(ordering: Ordering) -> Iterator[bool]:
    """For each key, whether its bytes are inverted in an order."""
    first = ordering.keys[0].is_descending
    return (key.is_descending != first for key in ordering.keys)


def _is_asked_for(condition: Condition, path: str) -> bool:
    """Whether only items that have a path can meet a condition."""
    if isinstance(condition, And):
        return any(_is_asked_for(part, path) for part in condition.parts)
    if isinstance(condition, Or):
        return all(_is_asked_for(part, path) for part in condition.parts)
    if isinstance(condition, Equal):
        return condition.path == path and condition.value is not UNDEFINED
    return isinstance(condition, (In, Range, Defined, Touching)) and condition.path == path


def _term_range(condition: Condition, path: str) -> tuple[bytes, bytes]:
    """The terms of a path that a condition allows."""
    low, high = b"", _LAST
    for part in condition.parts if isinstance(condition, And) else (condition,):
        if isinstance(part, (Equal, Range, Defined)) and part.path == path:
            bounds = term_bounds(part)
            if bounds is not None:
                low, high = max(low, bounds[0]), min(high, bounds[1])
    return low, max(low, high)


def is_after(place: tuple[bytes, int], start: Start, *, is_descending: bool) -> bool:
    position = (start.order, start.rid)
    if place == position:
        return start.is_included
    return place < position if is_descending else place > position


class Sorter:
    """Sorts items by their places in an order. Keeps places and rids only; with a limit, only the first so many."""

    def __init__(self, ordering: Ordering, limit: int | None, start: Start) -> None:
        self._ordering = ordering
        self._limit = limit
        self._is_descending = ordering.keys[0].is_descending
        self._start = start
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
        if self._start.rid >= 0 and not is_after(place, self._start, is_descending=self._is_descending):
            return
        self._places.append(place)
        self._size_bytes += len(place[0]) + 100
        if self._limit is not None and len(self._places) >= 2 * self._limit + 1000:
            self._shorten(self._limit)
        if len(self._places) > limits.QUERY_SORTED_MAX or self._size_bytes > limits.QUERY_HELD_BYTES_MAX:
            raise too_many("ORDER BY sorts", limits.QUERY_SORTED_MAX, "items")

    def _shorten(self, limit: int) -> None:
        self._places = sorted_values(self._places, is_reversed=self._is_descending)[:limit]
        self._size_bytes = sum([len(order) + 100 for order, _ in self._places])

    def finish(self) -> None:
        self._places = sorted_values(self._places, is_reversed=self._is_descending)
        if self._limit is not None:
            del self._places[self._limit :]
        self.is_sorted = True

    def after(self, start: Start) -> Iterator[tuple[bytes, int]]:
        """The places from a start on."""
        if start.rid < 0:
            return iter(self._places)
        return (place for place in self._places if is_after(place, start, is_descending=self._is_descending))
