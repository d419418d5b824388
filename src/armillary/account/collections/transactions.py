"""Transactions of several requests inside one logical partition, with snapshot isolation. A transaction works on a fork
of its partition: it reads the snapshot of when it began and its own writes. Committing repeats the writes in one
transaction of the partition. The first writer of an item wins: another transaction that writes the same item fails with
a write conflict, at once or when it commits. Those over several logical partitions are made of such
(`spanning_transactions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import NamedTuple, NoReturn
from weakref import WeakKeyDictionary

from armillary import limits
from armillary.account.container import Container
from armillary.account.visits import visits
from armillary.account.visits.write_visits import WriteMany, item_lsn, write_conflict
from armillary.clock import Clock
from armillary.errors import Failure, Kind, Reason
from armillary.model.keys import Key
from armillary.model.ranges import KeyRange, PartitionMap
from armillary.partition.history.retryable_write_records import Record, Repeated
from armillary.partition.meter import Meter
from armillary.partition.operations import MemberFailed, Operation, Outcome, Verb
from armillary.partition.partition import Done, Guard, Partition
from armillary.partition.writing.write_refusals import too_many_changes
from armillary.storage.engine import Kept, View
from armillary.storage.forked import ForkedStore


class Pinned(NamedTuple):
    """A partition at the moment of a snapshot."""

    range: KeyRange
    store: Kept
    meter: Meter
    map: PartitionMap  # of its container

    @classmethod
    async def of(cls, container: Container, partition: Partition) -> Pinned:
        return cls(partition.range, await partition.store.pin(), partition.meter, container.map)


class ChangeCount:
    """The changes of a transaction, over all its parts."""

    changes = 0


class _Fork(Partition):
    """A partition as one transaction sees it."""

    def __init__(
        self, store: ForkedStore, pinned: Pinned, container: Container, epk: bytes, clock: Clock, count: ChangeCount
    ) -> None:
        super().__init__(store, container.schema, pinned.range, clock, container.state.first_lsn)
        self.meter = pinned.meter
        self._real = container
        self._epk = epk
        self._forked = store
        self.operations: list[Operation] = []
        self._count = count
        self.found: dict[str, int | None] = {}  # the lsns of items that were written, as they were; None: not there

    async def write(self, operation: Operation) -> Outcome:
        try:
            [outcome] = await self.write_all([operation])
        except MemberFailed as failed:
            raise failed.failure from None
        return outcome

    async def write_all(
        self,
        operations: Sequence[Operation],
        record: Record | None = None,
        guard: Guard | None = None,
        on_run: Callable[[], None] | None = None,
    ) -> list[Outcome]:
        assert record is None and guard is None and on_run is None, "what it does is recorded when it commits"
        for operation in operations:
            if operation.epk != self._epk:
                raise elsewhere()
            await self._claim(operation.item_id)
        outcomes = await super().write_all(operations)
        if self._count.changes > limits.TRANSACTION_CHANGES_MAX:
            # What is evicted and what has expired counts too: committing does all of it in one transaction.
            raise too_many_changes()
        self.operations += [each for each in operations if each.verb is not Verb.READ]
        return outcomes

    def joined(self, done: Done, record: Record | None) -> list[Outcome]:
        self._count.changes += done[1].change_count
        return super().joined(done, record)

    async def _claim(self, item_id: str) -> None:
        """Note that this transaction writes an item. A write conflict if another one has since this one began."""
        if item_id not in self.found:
            claims = _claims.setdefault(self._real, {})
            if claims.setdefault((self._epk, item_id), self) is not self:
                raise write_conflict()  # another open transaction has written it
            self.found[item_id] = item_lsn(self._forked.pinned, self._epk, item_id)
        present = self._real.partition_for(self._epk)
        if present.is_elsewhere:
            raise write_conflict()  # it was moved to another process
        if await present.read(lambda view: item_lsn(view, self._epk, item_id)) != self.found[item_id]:
            raise write_conflict()

    def release(self) -> None:
        """Let other transactions write its items."""
        claims = _claims.get(self._real, {})
        for item_id in self.found:
            claims.pop((self._epk, item_id), None)


# What open transactions have written, by key and id, of each container.
_claims: WeakKeyDictionary[Container, dict[tuple[bytes, str], _Fork]] = WeakKeyDictionary()


class _One(dict[int, Partition]):
    """The partitions of a container of which a transaction sees one."""

    def __missing__(self, _range_id: int) -> NoReturn:
        raise elsewhere()


class Transaction:
    """Made by `begin`. While it is open, `within` is the container that everything is done to."""

    def __init__(
        self, container: Container, key: Key, epk: bytes, fork: _Fork, store: ForkedStore, then: PartitionMap
    ) -> None:
        self.container = container
        self._rules_number = container.schema.rules.number
        self.epk = epk
        self._fork = fork
        self._store = store
        self._inside = copy(container)
        self._inside.map = then
        self._inside.partitions = _One({fork.range.id: fork})
        self.key = key
        self.is_open = True

    @classmethod
    async def begin(
        cls,
        container: Container,
        key: Key,
        clock: Clock,
        pinned: Pinned | None = None,
        count: ChangeCount | None = None,
    ) -> Transaction:
        """On the logical partition of a key, as it is now, or as it was when its partition was pinned. `count`: what
        the other parts of the same transaction count their changes with."""
        epk = container.effective_key(key)
        pinned = pinned or await Pinned.of(container, container.partition_for(epk))
        store = ForkedStore(pinned.store)
        fork = _Fork(store, pinned, container, epk, clock, count or ChangeCount())
        await fork.open()
        return cls(container, key, epk, fork, store, pinned.map)

    def within(self, container: Container, key: Key | None) -> Container:
        """The container as the transaction sees it. `key`: what a request is about; None: it does not say."""
        assert self.is_open
        if self.container.is_retired and container is not self.container:
            raise write_conflict()  # it was moved to another shard key: the next attempt finds the new one
        is_here = container is self.container and (key is None or container.effective_key(key) == self.epk)
        if not is_here or (key is None and container.key is not None):
            raise elsewhere()
        if container.schema.rules.number != self._rules_number:
            raise unavailable()
        return self._inside

    @property
    def operations(self) -> Sequence[Operation]:
        """What it has written, to be repeated when it commits."""
        return self._fork.operations

    async def is_current(self) -> bool:
        """Whether nothing was written to its partition since that was pinned."""
        partition = self.container.partition_for(self.epk)
        if partition.is_elsewhere or partition.range.store != self._fork.range.store:
            return False
        return await partition.read(partition.lsn_in) == partition.lsn_in(self._store.pinned)

    def check_unwritten(self, view: View) -> None:
        """Refuse to commit if an item that it has written was written by another client. Runs in the transaction that
        commits it."""
        for item_id, lsn in self._fork.found.items():
            if item_lsn(view, self.epk, item_id) != lsn:
                raise write_conflict()

    async def commit(self, record: Record | None = None) -> None:
        """Do it all, durably, or nothing. With a record it is done once, if it is asked for again."""
        assert self.is_open
        self.is_open = False
        try:
            if self._fork.operations:
                await self._write(record)
        finally:
            self.end()

    def end(self) -> None:
        self.is_open = False
        self._fork.release()
        self._store.release()

    async def _write(self, record: Record | None) -> None:
        visit = WriteMany(self.epk, self._fork.operations, record, found=self._fork.found)
        try:
            await visits.run_uncounted(self.container, visit)
        except Repeated:
            return
        except MemberFailed as failed:
            raise failed.failure from None
        except Failure as failure:
            if failure.kind is Kind.STALE_CONTAINER:
                raise write_conflict() from None
            raise

    async def abort(self) -> None:
        if self.is_open:
            self.end()


def elsewhere() -> Failure:
    return Failure(
        Kind.BAD_REQUEST,
        "In a transaction every command on a sharded collection must name one value of the shard key.",
        details={"reason": Reason.TRANSACTION_ELSEWHERE},
    )


def unavailable() -> Failure:
    return Failure(
        Kind.RETRY_WITH,
        "Unable to read from a snapshot due to pending collection catalog changes; please retry the operation.",
        details={"reason": Reason.SNAPSHOT_UNAVAILABLE},
    )
