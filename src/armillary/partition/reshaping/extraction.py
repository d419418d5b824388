"""Removing an item from a partition that does not own its key, for `armillary check --repair`. No tombstone is left,
because the item continues to exist in the right partition. Earlier versions could leave such items behind after a
split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from armillary.model import layout
from armillary.model.encoding import payload_of, unpack_header
from armillary.model.ranges import KeyRange
from armillary.partition.history import versions
from armillary.partition.reshaping.adoption import Adopter
from armillary.partition.writing.sizes import LogicalSize, pack_size
from armillary.storage.engine import Txn, View


class Extractor(Adopter):
    def extract(self, number: int) -> None:
        txn, rid = self._txn, number.to_bytes(layout.RID_BYTES, "big")
        stored = txn.get(layout.ITEMS + rid)
        if stored is None:
            return
        size_key = layout.size_key(unpack_header(stored).epk)
        if txn.get(size_key) is None:
            txn.put(size_key, pack_size(LogicalSize(1, len(payload_of(stored)), "[]")))  # deleted with the item
        self.take_out(rid)
        _drop(txn, [entry for entry in _versions(txn) if entry.place.endswith(rid)])


def has_stray_versions(view: View, key_range: KeyRange) -> bool:
    """Whether there are version entries of items outside the range."""
    return any(not key_range.contains(entry.epk) for entry in _versions(view))


def drop_stray_versions(txn: Txn, key_range: KeyRange) -> None:
    _drop(txn, [entry for entry in _versions(txn) if not key_range.contains(entry.epk)])


def _versions(view: View) -> Iterator[versions.Entry]:
    for key, value in view.scan(layout.VERSIONS, layout.space_end(layout.VERSIONS)):
        yield versions.unpack_entry(key, value)


def _drop(txn: Txn, entries: Sequence[versions.Entry]) -> None:
    for entry in entries:
        txn.delete(layout.VERSIONS + entry.place)
        if entry.before_key is not None:
            txn.delete(entry.before_key)
