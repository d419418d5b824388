"""Rolling a partition back to a snapshot by undoing the writes since: the log names the items.

Restored items have their former rid, lsn, etag and timestamp; items created since are removed without a tombstone. The
partition's lsn and rid counter do not go back, so neither is ever reused. The caller makes sure that the snapshot is of
the same store under the same rules; if too much was written since, it copies instead.
"""

from __future__ import annotations

from itertools import islice

from armillary import limits
from armillary.model import layout
from armillary.partition.history import log
from armillary.partition.reshaping.adoption import Adopter
from armillary.storage.engine import View


class TooMuch(Exception):
    """The rollback is refused: too much was written, or the log no longer has all changes. Never leaves the account."""


class Rewinder(Adopter):
    def rewind(self, past: View, past_head: log.Head) -> None:
        """Undo everything written since a snapshot."""
        txn = self._txn
        since = list(
            islice(
                txn.scan(layout.change_key(past_head.lsn + 1), layout.space_end(layout.CHANGES)),
                limits.REWIND_ENTRIES_MAX + 1,
            )
        )
        if len(since) > limits.REWIND_ENTRIES_MAX:
            raise TooMuch
        for key, value in since:
            if value != log.WRITTEN:
                txn.delete(key)
        for key, _ in since:
            rid = key[-layout.RID_BYTES :]
            stored = past.get(layout.ITEMS + rid)
            if stored is not None:
                self.adopt(int.from_bytes(rid, "big"), stored)
            else:
                self.take_out(rid)
        # A delete whose tombstone was dropped cannot be undone.
        if (self.head.item_count, self.head.size_bytes) != (past_head.item_count, past_head.size_bytes):
            raise TooMuch
        self.finish()
