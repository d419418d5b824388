"""Taking a partition back to what a snapshot of it holds, by undoing what was written since: the log names the items.

What comes back has its number, lsn, etag and time; what was made since is gone without a tombstone. The partition's own
lsn and its counter of numbers do not go back, so nothing that was ever given out is given twice. Whether the snapshot
is of the same store under the same rules is the caller's to know; where too much was written, it copies instead.
"""

from __future__ import annotations

from itertools import islice

from armillary import limits
from armillary.model import layout
from armillary.partition.history import log
from armillary.partition.reshaping.adoption import Adopter
from armillary.storage.engine import View


class TooMuch(Exception):
    """Undoing is not the way: too much was written, or the log has forgotten a part. Never leaves the account."""


class Rewinder(Adopter):
    def rewind(self, past: View, past_head: log.Head) -> None:
        """Undo all that was written since a snapshot."""
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
        # What was deleted so long ago that its tombstone is gone cannot be undone.
        if (self.head.item_count, self.head.size_bytes) != (past_head.item_count, past_head.size_bytes):
            raise TooMuch
        self.finish()
