"""Fences: items that were moved to a container of their own are no longer written where they were. A container's schema
says which items these are; the transaction that would create, change or delete one of them is refused.

Requests of all doors, batches, scripts and transactions over several partitions write through this writer. The TTL
sweep, splits, and the removal of the moved items themselves use other writers, so the fence does not hold them up.
"""

from __future__ import annotations

from armillary.errors import Failure, Kind
from armillary.model import charges, layout
from armillary.partition.operations import Operation, Outcome, Verb
from armillary.partition.schema import Schema
from armillary.partition.writing.capped_collections import CappedWriter
from armillary.partition.writing.writer import Writer


class FencedWriter(CappedWriter):
    """Looks at the item before and after each operation: it may come to belong to the moved ones, or cease to. A
    failure after the operation undoes it with the whole transaction.
    """

    def apply(self, operation: Operation) -> Outcome:
        if operation.verb is Verb.READ:
            return super().apply(operation)
        self._check(operation.epk, operation.item_id)
        outcome = super().apply(operation)
        self._check(operation.epk, operation.item_id)
        if operation.draft is not None and operation.draft.item_id != operation.item_id:
            self._check(operation.epk, operation.draft.item_id)
        return outcome

    def _check(self, epk: bytes, item_id: str) -> None:
        fence = self._schema.fence
        number = self._txn.get(layout.id_key(epk, item_id))
        stored = self._txn.get(layout.ITEMS + number) if number is not None else None
        target = fence(stored) if fence is not None and stored is not None else None
        if target is not None:
            raise moved(item_id, target)


def moved(item_id: str, target: str) -> Failure:
    return Failure(
        Kind.FORBIDDEN,
        f"The item '{item_id}' belongs to those that were moved to the container '{target}'. Write it there.",
        charge_ru=charges.failed_write_ru(),
        details={"target": target},
    )


def writer_kind(schema: Schema) -> type[Writer]:
    """The writer of requests to a container."""
    if schema.fence is not None:
        return FencedWriter
    return Writer if schema.cap is None else CappedWriter


def unfenced_kind(schema: Schema) -> type[Writer]:
    """The writer that removes items which were moved."""
    return Writer if schema.cap is None else CappedWriter
