"""Items by their primary key: effective key, then id. That is the order of the `ids` space, so nothing needs sorting
but the few items that an index finds; a range of ids inside one logical partition is a range of keys.

A position is an item's key in that order. It holds on other snapshots, after restarts and after splits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Protocol

from armillary import limits
from armillary.model import layout
from armillary.model.documents import item_id
from armillary.model.encoding import payload_of, unpack_header
from armillary.model.values import UNDEFINED
from armillary.query.access.access_path import Candidate, Index, Scope, find_rids, loaded
from armillary.query.conditions import ALL, And, Condition, Range, both, pinned_ids
from armillary.query.selection import Selection
from armillary.storage.engine import View
from armillary.work import spend

_ID = "/id"
_ID_FIRST = b'{"id":"'
_SKIPPED_MAX = 64  # keys passed over between two way points
_SEEK_UNITS = 50  # of work, to find an id


class Position(Protocol):
    @property
    def rid(self) -> int: ...  # -1: at the beginning
    @property
    def order(self) -> bytes: ...


class KeyedWalk:
    """The items that may be answers, by effective key and id, a slice of time after the other. What an index says is
    asked once: items that come later are for a later page, as with a sort."""

    def __init__(self, selection: Selection, scope: Scope, index: Index) -> None:
        self._scope = scope
        self._index = index
        self._condition = selection.condition
        self._asked = _beside_keys(selection, scope)
        self._is_asked = False
        self._places: list[tuple[bytes, int]] | None = None  # few, in order
        self._wanted: frozenset[int] | None = None  # some; None: all

    def candidates(self, view: View, position: Position, max_items: int) -> Iterator[Candidate]:
        """Every item after a position. A candidate without an item only says how far the walk has come."""
        points = _points(self._condition, self._scope)
        if points is not None:
            yield from loaded(view, iter(_found(view, points, position)), max_items)
            return
        if not self._is_asked:
            self._is_asked = True
            few = self._ask(view)
            if few is not None and position.rid < 0:
                yield from few  # as they are: the same snapshot
                return
        if self._places is not None:
            at = bisect_right(self._places, position.order, key=itemgetter(0)) if position.rid >= 0 else 0
            yield from loaded(view, iter(self._places[at:]), max_items)
            return
        low, high = _bounds(self._condition, self._scope)
        if position.rid >= 0:
            low = max(low, layout.IDS + position.order + b"\x00")
        places = _places(view, low, high)
        yield from loaded(view, places, max_items) if self._wanted is None else _chosen(view, places, self._wanted)

    def _ask(self, view: View) -> list[Candidate] | None:
        """Find what an index knows, if what is asked beside the keys is worth asking it. Returns it if it is few."""
        rids = find_rids(view, self._asked, self._scope, self._index, -1) if self._asked != ALL else None
        found = list(islice(rids, limits.QUERY_GATHER_MAX + 1)) if rids is not None else None
        if found is None or len(found) > limits.QUERY_GATHER_MAX:
            return None
        if len(found) > limits.QUERY_FEW_ITEMS:
            self._wanted = frozenset(found)
            return None
        few = _sorted(view, found, self._scope)
        self._places = [(order, rid) for order, rid, _ in few]
        return few


def _beside_keys(selection: Selection, scope: Scope) -> Condition:
    """The condition without what the walk over keys sees to by itself."""
    paths = (_ID, *selection.by_key) if scope.epk is not None else ()
    condition = selection.condition
    parts = condition.parts if isinstance(condition, And) else (condition,)
    return both([part for part in parts if getattr(part, "path", None) not in paths])


def _points(condition: Condition, scope: Scope) -> Sequence[tuple[bytes, str]] | None:
    if scope.points is not None:
        return scope.points
    ids = pinned_ids(condition) if scope.epk is not None else None
    return [(scope.epk, item_id) for item_id in ids] if ids is not None and scope.epk is not None else None


def _found(view: View, points: Sequence[tuple[bytes, str]], position: Position) -> list[tuple[bytes, int]]:
    keys = sorted({layout.id_key(epk, item_id) for epk, item_id in points})
    if position.rid >= 0:
        keys = [key for key in keys if key[1:] > position.order]
    spend(_SEEK_UNITS * len(keys))
    rids = view.get_many(keys)
    return [(key[1:], int.from_bytes(rid, "big")) for key, rid in zip(keys, rids, strict=True) if rid is not None]


def _sorted(view: View, rids: list[int], scope: Scope) -> list[Candidate]:
    """A few items, put in order here."""
    few: list[Candidate] = []
    for _, rid, stored in loaded(view, ((b"", rid) for rid in rids), len(rids)):
        assert stored is not None
        epk = unpack_header(stored).epk
        if not scope.holds(epk):
            continue
        plain = _plain_id(stored)
        few.append((epk + (plain if plain is not None else item_id(stored).encode()), rid, stored))
    return sorted(few, key=itemgetter(0))


def _plain_id(stored: bytes) -> bytes | None:
    """The id of an item whose text begins with it, as most do, without reading the rest."""
    payload = payload_of(stored)
    if not payload.startswith(_ID_FIRST):
        return None
    end = payload.find(b'"', len(_ID_FIRST))
    plain = payload[len(_ID_FIRST) : end]
    return plain if b"\\" not in plain else None


def _bounds(condition: Condition, scope: Scope) -> tuple[bytes, bytes]:
    """The keys of the ids space that may be an answer."""
    if scope.epk is None:
        return layout.IDS + scope.low, layout.IDS + scope.high
    prefix = layout.IDS + scope.epk
    low, high = prefix, layout.prefix_end(prefix)
    for part in condition.parts if isinstance(condition, And) else (condition,):
        if isinstance(part, Range) and part.path == _ID:
            # Whether the ends belong to it is for the filter to say.
            if isinstance(part.low, str):
                low = max(low, prefix + part.low.encode("utf-8", "surrogatepass"))
            if isinstance(part.high, str):
                high = min(high, prefix + part.high.encode("utf-8", "surrogatepass") + b"\x00")
            assert isinstance(part.low, str) or part.low is UNDEFINED, "ids are strings"
    return low, high


def _places(view: View, low: bytes, high: bytes) -> Iterator[tuple[bytes, int]]:
    for key, rid in view.scan(low, high):
        yield key[1:], int.from_bytes(rid, "big")


def _chosen(view: View, places: Iterator[tuple[bytes, int]], wanted: frozenset[int]) -> Iterator[Candidate]:
    """Of all places those that the index has found."""
    skipped = 0
    for place in places:
        if place[1] in wanted:
            yield from loaded(view, iter([place]), 1)
            continue
        skipped += 1
        if skipped % _SKIPPED_MAX == 0:
            spend(_SKIPPED_MAX)
            yield *place, None
