"""Rows that are items as they are stored: those that the index has found and whose filter it has told exactly. They are
read and counted in batches, without a look into each. `execution.py` takes over where one must be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Final, NamedTuple

from armillary.model.encoding import FORMAT_JSON, payload_of
from armillary.query.access.access_path import Candidate, loaded, loaded_batches, present
from armillary.storage.engine import View
from armillary.work import spend

_ITEM_UNITS: Final = 20  # of work


class StoredRows(NamedTuple):
    rows: list[bytes]
    size_bytes: int
    last_rid: int  # of the last row; -1: there is none
    is_last: bool  # nothing follows
    rest: Iterator[Candidate] | None  # to be looked at one by one: they must be converted, or more than fit


def stored_rows(
    view: View, rids: Iterator[int], max_items: int, max_bytes: int, is_due: Callable[[], bool]
) -> StoredRows:
    """The items with these rids until there are enough of them or time is up."""
    rows: list[bytes] = []
    size_bytes, last_rid = 0, -1
    places = zip(repeat(b""), rids)
    for batch, items in loaded_batches(view, places, max_items):
        found = [item for item in items if item is not None]
        more = list(map(payload_of, found))
        more_bytes = sum(map(len, more))
        if (
            any(item[0] != FORMAT_JSON for item in found)
            or size_bytes + more_bytes > max_bytes
            or len(rows) + len(more) > max_items
        ):
            rest = chain(present(batch, items), loaded(view, places, max_items))
            return StoredRows(rows, size_bytes, last_rid, False, rest)
        rows += more
        size_bytes += more_bytes
        last_rid = batch[-1][1]
        spend(len(batch) * _ITEM_UNITS)
        if is_due():
            return StoredRows(rows, size_bytes, last_rid, False, None)
    return StoredRows(rows, size_bytes, last_rid, True, None)
