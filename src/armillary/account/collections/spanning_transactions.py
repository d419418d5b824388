"""Transactions over several collections and values of shard keys. All partitions of the account are pinned when one
begins, so that whatever it reads later is of that moment. Each logical partition that it uses is a part, a transaction
of its own (`transactions.py`); committing repeats the writes of all parts in one write of the storage engine, which
makes them durable together. In a server with several processes there is one of these in each that a transaction uses,
for the partitions that it holds (`armillary/processes/transactions`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from armillary.account.account import Account
from armillary.account.collections.transactions import ChangeCount, Pinned, Transaction, elsewhere, unavailable
from armillary.account.container import Container
from armillary.account.visits.write_visits import ready_all, write_conflict
from armillary.errors import Failure, Kind
from armillary.model.keys import NO_KEY, Key
from armillary.partition.history.retryable_write_records import Record, Repeated
from armillary.partition.operations import MemberFailed, Operation
from armillary.partition.partition import Guard, Partition
from armillary.partition.writing.multi_partition_write import Beside, Share, write_together
from armillary.storage.engine import View

Write = Callable[[Sequence[Share]], Awaitable[None]]


class SpanningTransaction:
    """Made by `begin`."""

    spans = False  # several processes

    def __init__(self, account: Account, pins: dict[Container, tuple[int, list[Pinned]]]) -> None:
        self._account = account
        self._pins = pins  # with the number of the container's rules at that moment
        self._count = ChangeCount()
        self._parts: dict[tuple[Container, bytes], Transaction] = {}

    @classmethod
    async def begin(cls, account: Account) -> SpanningTransaction:
        pins = {}
        for container in account.containers:
            own = [each for each in container.partitions.values() if not each.is_elsewhere]
            pinned = [await Pinned.of(container, partition) for partition in own]
            pins[container] = container.schema.rules.number, pinned
        return cls(account, pins)

    async def renew(self) -> bool:
        """See what it has not used yet as it is now, while nothing is written. False: what it has used was written to
        since, so that the two do not belong together."""
        for part in self._parts.values():
            if not await part.is_current():
                return False
        self._pins = (await SpanningTransaction.begin(self._account))._pins
        return True

    def uses(self, container: Container) -> bool:
        return any(used is container for used, _ in self._parts)

    async def within(self, container: Container, key: Key | None, *, is_own: bool) -> Container:
        """The container as the transaction sees it. `key`: what a command is about; None: it does not say. `is_own`:
        the transaction has made it, so that it is in no snapshot."""
        part = await self.part(container, key, is_own=is_own)
        return part.within(container, key if container.key is not None else None)

    async def part(self, container: Container, key: Key | None, *, is_own: bool) -> Transaction:
        """The part for one logical partition."""
        if any(part.container.is_retired for part in self._parts.values()):
            raise write_conflict()  # one was moved to another shard key: the next attempt finds the new one
        if key is None and container.key is not None:
            raise elsewhere()
        epk = container.effective_key(key or NO_KEY)
        part = self._parts.get((container, epk))
        if part is None:
            pinned = None if is_own else self._pinned(container, epk)
            clock = self._account.clock
            part = await Transaction.begin(container, key or NO_KEY, clock, pinned, self._count)
            self._parts[container, epk] = part
        return part

    def _pinned(self, container: Container, epk: bytes) -> Pinned:
        rules_number, pins = self._pins.get(container, (None, []))
        if rules_number != container.schema.rules.number:
            raise unavailable()  # it was created or indexed since
        found = next((each for each in pins if each.range.contains(epk)), None)
        if found is None:
            raise unavailable()  # another process had the partition
        return found

    @property
    def has_written(self) -> bool:
        return any(part.operations for part in self._parts.values())

    async def commit(self, record: Record | None = None, beside: Beside | None = None) -> None:
        """Do it all, durably, or nothing. With a record it is done once, if it is asked for again. `beside` is written
        with it, and only if it writes anything."""

        async def write(shares: Sequence[Share]) -> None:
            await write_together(shares, beside=beside)

        written = [part for part in self._parts.values() if part.operations]
        self._pins.clear()
        try:
            if len(written) == 1 and beside is None:
                await written[0].commit(record)
            elif written:
                await self._write_together(written, record, write)
        finally:
            await self.abort()

    async def prepare(self, record: Record | None, write: Write) -> None:
        """For a commit over several processes: `write` is given what this one is to write, and may be more than once.
        What was written is claimed until the transaction is aborted."""
        written = [part for part in self._parts.values() if part.operations]
        self._pins.clear()
        if written:
            await self._write_together(written, record, write)

    async def _write_together(self, written: Sequence[Transaction], record: Record | None, write: Write) -> None:
        while True:
            shares = self._shares(written, record)
            try:
                await write(shares)
                return
            except Repeated:
                return
            except MemberFailed as failed:
                raise failed.failure from None
            except Failure as failure:
                if failure.kind is Kind.STALE_CONTAINER:
                    raise write_conflict() from None
                if failure.kind is not Kind.RANGE_BUSY:
                    raise
            for share in shares:  # one of them is being split or merged
                await share.partition.released()

    def _shares(self, written: Sequence[Transaction], record: Record | None) -> list[Share]:
        """The parts by the partitions that own their keys now."""
        by_partition: dict[Partition, list[Transaction]] = {}
        for part in written:
            by_partition.setdefault(part.container.partition_for(part.epk), []).append(part)
        shares = []
        for partition, parts in by_partition.items():
            operations: list[Operation] = [each for part in parts for each in part.operations]
            if partition.is_elsewhere:
                raise write_conflict()  # it was moved to another process: the next attempt finds it there
            shares.append(Share(partition, ready_all(parts[0].container, operations), record, _guard(parts)))
        return shares

    async def abort(self) -> None:
        self.end()

    def end(self) -> None:
        self._pins.clear()
        for part in self._parts.values():
            if part.is_open:
                part.end()


class OpenTransaction(Protocol):
    @property
    def spans(self) -> bool:
        """Whether it has used partitions of several processes."""

    def uses(self, container: Container) -> bool: ...
    async def within(self, container: Container, key: Key | None, *, is_own: bool) -> Container: ...
    async def commit(self, record: Record | None = None) -> None: ...
    async def abort(self) -> None: ...


async def begin_transaction(account: Account, *, spans: bool = False) -> OpenTransaction:
    """Over all partitions, also those that other processes hold. `spans`: it is likely to use those of several."""
    if account.spanning is not None:
        begun: OpenTransaction = await account.spanning.begin_transaction(spans=spans)
        return begun
    return await SpanningTransaction.begin(account)


def _guard(parts: Sequence[Transaction]) -> Guard:
    def check(view: View) -> None:
        for part in parts:
            part.check_unwritten(view)

    return check
