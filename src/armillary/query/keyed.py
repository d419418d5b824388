"""Items by their primary key: effective key, then id. That is the order of the `ids` space, so nothing needs sorting
but the few items that an index finds; a range of ids inside one logical partition is a range of keys.

A position is an item's key in that order. It holds on other snapshots, after restarts and after splits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

import orjson

from armillary import limits
from armillary.model import layout
from armillary.model.encoding import payload_of, unpack_header
from armillary.model.values import UNDEFINED
from armillary.query.access import Candidate, Index, Scope, find_rids, loaded
from armillary.query.conditions import ALL, And, Condition, Equal, Range, both, pinned_ids
from armillary.storage.engine import View

_ID = "/id"
_SKIPPED_MAX = 64  # keys passed over between two way points


class Position(Protocol):
    @property
    def rid(self) -> int: ...  # -1: at the beginning
    @property
    def order(self) -> bytes: ...


def keyed_candidates(
    view: View, condition: Condition, scope: Scope, index: Index, position: Position, max_items: int
) -> Iterator[Candidate]:
    """Every item after a position that may be an answer, by effective key and id. A candidate without an item only says
    how far the walk has come."""
    points = _points(condition, scope)
    if points is not None:
        yield from loaded(view, iter(_found(view, points, position)), max_items)
        return
    wanted = _wanted(view, condition, scope, index)
    if wanted is not None and len(wanted) <= limits.QUERY_FEW_ITEMS:
        yield from _sorted(view, wanted, position)
        return
    low, high = _bounds(condition, scope)
    if position.rid >= 0:
        low = max(low, layout.IDS + position.order + b"\x00")
    if wanted is None:
        yield from loaded(view, _places(view, low, high), max_items)
    else:
        yield from _chosen(view, _places(view, low, high), frozenset(wanted))


def _points(condition: Condition, scope: Scope) -> Sequence[tuple[bytes, str]] | None:
    if scope.points is not None:
        return scope.points
    ids = pinned_ids(condition) if scope.epk is not None else None
    return [(scope.epk, item_id) for item_id in ids] if ids is not None and scope.epk is not None else None


def _found(view: View, points: Sequence[tuple[bytes, str]], position: Position) -> list[tuple[bytes, int]]:
    keys = sorted({layout.id_key(epk, item_id) for epk, item_id in points})
    if position.rid >= 0:
        keys = [key for key in keys if key[1:] > position.order]
    rids = view.get_many(keys)
    return [(key[1:], int.from_bytes(rid, "big")) for key, rid in zip(keys, rids, strict=True) if rid is not None]


def _wanted(view: View, condition: Condition, scope: Scope, index: Index) -> list[int] | None:
    """The rids that an index finds, if what is asked beside the id is worth asking it."""
    asked = _without_ids(condition)
    if asked == ALL:
        return None
    rids = find_rids(view, asked, scope, index, -1)
    if rids is None:
        return None
    found = list(islice(rids, limits.QUERY_GATHER_MAX + 1))
    return found if len(found) <= limits.QUERY_GATHER_MAX else None


def _without_ids(condition: Condition) -> Condition:
    parts = condition.parts if isinstance(condition, And) else (condition,)
    return both([part for part in parts if not (isinstance(part, Equal | Range) and part.path == _ID)])


def _sorted(view: View, rids: list[int], position: Position) -> Iterator[Candidate]:
    """A few items, put in order here."""
    found: list[Candidate] = []
    for _, rid, stored in loaded(view, ((b"", rid) for rid in rids), len(rids)):
        assert stored is not None
        order = unpack_header(stored).epk + orjson.loads(payload_of(stored))["id"].encode()
        if position.rid < 0 or order > position.order:
            found.append((order, rid, stored))
    yield from sorted(found, key=lambda candidate: candidate[0])


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
            yield *place, None
