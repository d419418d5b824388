"""Capped collections: each insert evicts the excess documents in the same transaction, oldest first. They are
containers without partition key, so rids are in the order of insertion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from armillary.model import documents, layout
from armillary.model.encoding import payload_of, unpack_header
from armillary.partition.history import log
from armillary.partition.schema import Cap
from armillary.partition.writing.writer import Writer
from armillary.storage.engine import View

# A cap that was made smaller is reached in several transactions: one can number only so many changes.
_EVICTED_MAX: Final = layout.STEPS_MAX // 4


class CappedWriter(Writer):
    def finish(self) -> None:
        cap = self._schema.cap
        if cap is not None and self.has_changed:
            for number, stored in list(_excess(self._txn, self.head, cap)):
                epk = unpack_header(stored).epk
                self._remove(epk, documents.item_id(stored), number, stored, log.ITEM_DELETED)
        super().finish()


def _excess(view: View, head: log.Head, cap: Cap) -> Iterator[tuple[int, bytes]]:
    """The oldest items beyond a cap. The newest stays, whatever its size."""
    count, size_bytes = head.item_count, head.size_bytes
    if cap.holds(count, size_bytes):
        return
    least = max(1, count - _EVICTED_MAX)
    for key, stored in view.scan(layout.ITEMS, layout.space_end(layout.ITEMS)):
        if count <= least or cap.holds(count, size_bytes):
            return
        count -= 1
        size_bytes -= len(payload_of(stored))
        yield int.from_bytes(key[1:], "big"), stored
