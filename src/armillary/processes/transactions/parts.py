"""What a process keeps for transactions and snapshot reads that clients have begun in any process: its partitions as
they were at one moment, and what a transaction has written there. Containers as those see them have names of their own
in questions: the container's rid, the transaction's or snapshot's id, and a number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from armillary.account.account import Account
from armillary.account.collections.spanning_transactions import SpanningTransaction
from armillary.account.collections.transactions import Transaction, unavailable
from armillary.account.container import Container
from armillary.account.snapshots.snapshot_reads import PinnedAccount
from armillary.account.visits.write_visits import write_conflict
from armillary.model.keys import Key
from armillary.model.ranges import KeyRange

RID_BYTES: Final = 8  # of a container
_ID_BYTES: Final = 16
_NUMBER_BYTES: Final = 4


class Begun(NamedTuple):
    """A transaction, or a snapshot for reads outside of one."""

    id: bytes
    keeper: int  # the process that its client's commands are answered by
    is_transaction: bool


@dataclass(slots=True)
class PartUsed:
    """One logical partition as a transaction sees it."""

    name: bytes  # of its container
    range_id: int
    ranges: tuple[KeyRange, ...]  # of the container at that moment


class TransactionHere:
    """The share of this process in a transaction."""

    def __init__(self, begun: Begun, spanning: SpanningTransaction) -> None:
        self.begun = begun
        self.spanning = spanning
        self._used: list[tuple[Transaction, Container, Key | None]] = []

    async def use(self, container: Container, key: Key | None, *, is_own: bool) -> PartUsed:
        part = await self.spanning.part(container, key, is_own=is_own)
        inside = part.within(container, key)
        (range_id,) = inside.partitions
        name = _name(container, self.begun.id, len(self._used))
        self._used.append((part, container, key))
        return PartUsed(name, range_id, tuple(inside.map.ranges))

    def container(self, number: int) -> Container:
        """As a part sees it, unless that has become impossible since."""
        part, container, key = self._used[number]
        if not part.is_open:
            raise write_conflict()
        return part.within(container, key)


def _name(container: Container, begun_id: bytes, number: int = 0) -> bytes:
    return container.record.rid + begun_id + number.to_bytes(_NUMBER_BYTES, "big")


class Parts:
    """Of one process, for all."""

    def __init__(self) -> None:
        self._transactions: dict[bytes, TransactionHere] = {}
        self._snapshots: dict[bytes, tuple[Begun, PinnedAccount]] = {}

    def __len__(self) -> int:
        return len(self._transactions) + len(self._snapshots)

    async def begin(self, account: Account, begun: Iterable[Begun]) -> list[bytes]:
        """While writers of all processes are held, or with what is in this process alone. Those that have begun here
        before see what they have not used yet as it is now. Returns those that cannot, because what they have used was
        written to since."""
        overtaken = []
        for each in begun:
            present = self._transactions.get(each.id)
            if present is not None:
                if not await present.spanning.renew():
                    overtaken.append(each.id)
            elif each.is_transaction:
                self._transactions[each.id] = TransactionHere(each, await SpanningTransaction.begin(account))
            else:
                self._snapshots[each.id] = each, await PinnedAccount.take(account)
        return overtaken

    def find(self, txn_id: bytes) -> TransactionHere | None:
        return self._transactions.get(txn_id)

    def transaction(self, txn_id: bytes) -> TransactionHere:
        found = self._transactions.get(txn_id)
        if found is None:
            raise write_conflict()  # this process was started again since
        return found

    def snapshot(self, snapshot_id: bytes) -> PinnedAccount | None:
        found = self._snapshots.get(snapshot_id)
        return found[1] if found is not None else None

    async def open_past(self, snapshot_id: bytes, container: Container) -> bytes | None:
        """The name of a container as it was; None: it cannot be read at that time."""
        found = self._snapshots.get(snapshot_id)
        if found is None or await found[1].of(container) is None:
            return None
        return _name(container, snapshot_id)

    def container(self, account: Account, name: bytes) -> Container:
        """Of a name that this process has given."""
        begun_id = name[RID_BYTES : RID_BYTES + _ID_BYTES]
        snapshot = self._snapshots.get(begun_id)
        if snapshot is None:
            number = int.from_bytes(name[RID_BYTES + _ID_BYTES :], "big")
            return self.transaction(begun_id).container(number)
        container = account.container_by_rid(name[:RID_BYTES])
        opened = snapshot[1].opened(container) if container is not None else None
        if opened is None:
            raise unavailable()
        return opened

    def end(self, begun_id: bytes) -> None:
        transaction = self._transactions.pop(begun_id, None)
        if transaction is not None:
            transaction.spanning.end()
        self._snapshots.pop(begun_id, None)

    def leave(self, keeper: int) -> list[bytes]:
        """Another process has ended, and with it the transactions that it kept, which are returned."""
        of_transactions = [each.begun for each in self._transactions.values()]
        ended = [each.id for each in (*of_transactions, *self._begun_snapshots()) if each.keeper == keeper]
        for each in ended:
            self.end(each)
        return ended

    def _begun_snapshots(self) -> list[Begun]:
        return [begun for begun, _ in self._snapshots.values()]
