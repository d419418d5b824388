"""Applying a change of rules (indexing policy or default TTL) to the stored items of a partition, a slice in each
transaction, while reads and writes go on. An item's header names the rules it is stored under, so the work can stop and
resume at any item; `account/account.py` starts it.
"""

from __future__ import annotations

from armillary import limits
from armillary.model import documents, layout
from armillary.model.encoding import FLAG_INDEXED, pack_item, payload_of, unpack_header
from armillary.partition.partition import Partition
from armillary.partition.schema import Schema
from armillary.partition.upkeep.background_throttle import Slice
from armillary.partition.writing.index_entries import entries_in, has_unique
from armillary.partition.writing.writer import Writer
from armillary.storage.engine import Txn


async def apply_rules(partition: Partition, schema: Schema) -> None:
    """Apply the current rules to every item; ends early if they change again."""
    rules_number = schema.rules.number
    partition.restated_count = 0
    after = 0
    while schema.rules.number == rules_number:
        next_rid = await _restate_slice(partition, after)
        if next_rid is None:
            await partition.confirm_rules(rules_number)
            return
        after = next_rid


async def _restate_slice(partition: Partition, after: int) -> int | None:
    """Restate the next items, one slice in one transaction. Returns the rid to continue from; None: all are done."""

    def run(txn: Txn, writer: Restater) -> tuple[int, int | None]:
        bound = Slice(partition.clock)
        count = 0
        for key, stored in txn.scan(layout.item_key(after), layout.space_end(layout.ITEMS)):
            rid = int.from_bytes(key[1:], "big")
            writer.restate(rid, stored)
            count += 1
            if not bound.takes(len(stored)) or count == limits.RESTATE_ITEMS:
                return count, rid + 1
        return count, None

    count, next_rid = await partition.transact(run, Restater)
    partition.restated_count += count
    return next_rid


class Restater(Writer):
    """A Writer that stores items under the current rules."""

    def restate(self, rid: int, stored: bytes) -> None:
        """Store an item's terms and expiry by the current rules. Neither its lsn nor its text changes."""
        before = unpack_header(stored)
        rules = self._schema.rules
        if before.policy == rules.number:
            return
        payload = payload_of(stored)
        before_terms = self._terms_of(before, payload)
        self._delete_expiry(before, rid)
        is_indexed = rules.indexing.applies("Default")
        after = before._replace(policy=rules.number, flags=FLAG_INDEXED if is_indexed else 0)
        if rules.indexing.dated_fields or self._schema.rules_of(before).indexing.dated_fields:
            after = after._replace(ttl=rules.ttl_of(before.format, documents.loaded(before.format, payload), before.ts))
        if has_unique(self._schema):
            self._move_unique(
                before.epk, rid, entries_in(self._schema, before, payload), entries_in(self._schema, after, payload)
            )
        after_terms = self._terms_of(after, payload)
        self._move_terms(rid, before_terms, after_terms)
        self._note_paths(after_terms)
        self._put_expiry(after, rid)
        self._txn.put(layout.item_key(rid), pack_item(after, payload))
        self._txn.put(layout.HEAD_KEY, self.head.pack())  # restating may number new paths
