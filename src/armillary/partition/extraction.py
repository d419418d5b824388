"""Taking an item out of a partition that it does not belong to, for `armillary check --repair`. Nothing is left of it,
not even a tombstone: it lives on where it belongs. A split of earlier versions may have lost what is found by its key.
"""

from __future__ import annotations

from armillary.model import layout
from armillary.model.encoding import payload_of, unpack_header
from armillary.partition import versions
from armillary.partition.adoption import Adopter
from armillary.partition.sizes import LogicalSize, pack_size


class Extractor(Adopter):
    def extract(self, number: int) -> None:
        txn, rid = self._txn, number.to_bytes(layout.RID_BYTES, "big")
        stored = txn.get(layout.ITEMS + rid)
        if stored is None:
            return
        size_key = layout.size_key(unpack_header(stored).epk)
        if txn.get(size_key) is None:
            txn.put(size_key, pack_size(LogicalSize(1, len(payload_of(stored)), "[]")))  # which goes with the item
        self.take_out(rid)
        for key, value in list(txn.scan(layout.VERSIONS, layout.space_end(layout.VERSIONS))):
            entry = versions.unpack_entry(key, value)
            if entry.place.endswith(rid):
                txn.delete(key)
                if entry.before_key is not None:
                    txn.delete(entry.before_key)
