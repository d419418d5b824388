"""Visits of a migration to the partitions of its containers, wherever those are. They are not charged: what is
moved was paid for when it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from armillary.account.container import Container
from armillary.account.visits.visits import Visit
from armillary.account.visits.write_visits import ready_all
from armillary.errors import Failure, Kind
from armillary.partition.history.retryable_write_records import stored_records
from armillary.partition.operations import Operation, Verb
from armillary.partition.partition import Partition
from armillary.partition.writing.fenced_items import unfenced_kind
from armillary.partition.writing.writer import Writer


@dataclass(slots=True)
class Done:
    charge_ru: float = 0.0


@dataclass(slots=True)
class WriteCopies(Visit[Done]):
    """Items that arrive and leave, in one transaction and in this order. What is fenced is written, too."""

    todo: Sequence[Operation]
    epk: bytes | None = None
    IS_READ: ClassVar[bool] = False
    OPERATION: ClassVar[str] = "write"

    async def run(self, container: Container, partition: Partition) -> Done:
        todo = ready_all(container, self.todo)
        await partition.transact(lambda _, writer: _apply(writer, todo), unfenced_kind(container.schema))
        return Done()


def _apply(writer: Writer, operations: Sequence[Operation]) -> None:
    for operation in operations:
        try:
            writer.apply(operation)
        except Failure as failure:
            # The delete of an item that was never copied.
            if operation.verb is not Verb.DELETE or failure.kind is not Kind.NOT_FOUND:
                raise Failure(
                    failure.kind, f"The item '{operation.item_id}' cannot be brought over: {failure.message}"
                ) from None


@dataclass(slots=True)
class StoredItem:
    stored: bytes | None
    charge_ru: float = 0.0


@dataclass(slots=True)
class ReadStored(Visit[StoredItem]):
    """An item as it is stored."""

    epk: bytes
    item_id: str
    OPERATION: ClassVar[str] = "read"

    async def run(self, container: Container, partition: Partition) -> StoredItem:
        return StoredItem(await partition.read_item(self.epk, self.item_id))


@dataclass(slots=True)
class StoredRecords:
    pairs: list[tuple[bytes, bytes]]
    charge_ru: float = 0.0


@dataclass(slots=True)
class ReadRecords(Visit[StoredRecords]):
    """The recorded answers of retryable writes. Asked while writers are held."""

    epk: bytes | None = None
    OPERATION: ClassVar[str] = "read"

    async def run(self, container: Container, partition: Partition) -> StoredRecords:
        return StoredRecords(await partition.store.read(stored_records))


@dataclass(slots=True)
class TakeOverRecords(Visit[Done]):
    pairs: list[tuple[bytes, bytes]]
    epk: bytes | None = None
    IS_READ: ClassVar[bool] = False
    OPERATION: ClassVar[str] = "write"

    async def run(self, container: Container, partition: Partition) -> Done:
        await partition.adopt_records(self.pairs)
        return Done()


@dataclass(slots=True)
class RaiseLsn(Visit[Done]):
    """What is written from now on has lsns above this one."""

    lsn: int
    epk: bytes | None = None
    IS_READ: ClassVar[bool] = False
    OPERATION: ClassVar[str] = "write"

    async def run(self, container: Container, partition: Partition) -> Done:
        await partition.raise_lsn(self.lsn)
        return Done()


@dataclass(slots=True)
class VersionsKept:
    number: int  # of the container's rule to keep all versions
    charge_ru: float = 0.0


@dataclass(slots=True)
class KeepVersions(Visit[VersionsKept]):
    """Begin to keep all versions, or cease to, as the container says."""

    epk: bytes | None = None
    IS_READ: ClassVar[bool] = False
    OPERATION: ClassVar[str] = "write"

    async def run(self, container: Container, partition: Partition) -> VersionsKept:
        await partition.keep_versions()
        return VersionsKept(partition.versions_number)
