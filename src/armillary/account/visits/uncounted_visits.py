"""Visits that find out about partitions and are no requests of clients: nothing is admitted and nothing is charged. All
partitions of a container are asked, those of other processes at the same time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from armillary.account.container import Container
from armillary.account.visits.visits import Done, Visit, run_uncounted_at
from armillary.errors import Failure, Kind
from armillary.partition.partition import Partition
from armillary.query.access.field_access import HasSeveral, several_in
from armillary.storage.engine import View


async def at_all(container: Container, visit: Visit[Done]) -> list[Done]:
    """What each partition answers; all are asked again if one is split or merged meanwhile."""
    while True:
        before, partitions = container.map, list(container.partitions.values())
        if any(each.is_elsewhere for each in partitions):
            found = await asyncio.gather(*[run_uncounted_at(container, each, visit) for each in partitions])
        else:
            found = [await run_uncounted_at(container, each, visit) for each in partitions]
        done = [each for each in found if each is not None]
        if len(done) == len(partitions) and container.map is before:
            return done
        for each in partitions:
            await each.released()


async def renew_figures(container: Container, limit_s: float | None = None) -> None:
    """Have the head of each partition of another process be as it is now: answers of visits bring it along. With a
    limit, those of a process that has died or does not answer by then stay as they were told last."""
    if limit_s is None or not any(each.is_elsewhere for each in container.partitions.values()):
        await _renew(container)
        return
    renewing = asyncio.create_task(_renew(container))
    try:
        await asyncio.wait({renewing}, timeout=limit_s)
        if renewing.done():
            renewing.result()
    except Failure as failure:
        if failure.kind is not Kind.UNAVAILABLE:
            raise
    finally:
        renewing.cancel()


async def _renew(container: Container) -> None:
    while True:
        far = [each for each in container.partitions.values() if each.is_elsewhere]
        if not far or None not in await asyncio.gather(
            *[run_uncounted_at(container, each, CountKeys(0)) for each in far]
        ):
            return
        for each in far:
            await each.released()


@dataclass(slots=True)
class KeyCount:
    count: int
    charge_ru: float = 0.0


@dataclass(slots=True)
class CountKeys(Visit[KeyCount]):
    """How many logical partitions have items in a partition, counted up to `most`."""

    most: int
    epk: bytes | None = None
    OPERATION: ClassVar[str] = "read"

    async def run(self, container: Container, partition: Partition) -> KeyCount:
        return KeyCount(await partition.logical_partition_count(self.most) if self.most else 0)


@dataclass(slots=True)
class RecordsFound:
    answers: dict[int, bytes]  # by statement
    last_number: int  # of the session; -1: none
    charge_ru: float = 0.0


@dataclass(slots=True)
class FindRecords(Visit[RecordsFound]):
    """The records of retryable writes of a session."""

    session: bytes
    number: int = -1  # whose answers are wanted; -1: none
    epk: bytes | None = None
    OPERATION: ClassVar[str] = "read"

    async def run(self, container: Container, partition: Partition) -> RecordsFound:
        records = partition.records
        answers = records.find(self.session, self.number) if self.number >= 0 else {}
        return RecordsFound(answers, records.last_number(self.session))


@dataclass(slots=True)
class SeveralFound:
    names: frozenset[str]
    charge_ru: float = 0.0


@dataclass(slots=True)
class FindSeveral(Visit[SeveralFound]):
    """The indexes of a collection in which documents have several keys."""

    epk: bytes | None = None
    OPERATION: ClassVar[str] = "read"

    async def run(self, container: Container, partition: Partition) -> SeveralFound:
        fields = container.schema.rules.indexing.fields

        def find(view: View) -> frozenset[str]:
            has_several = several_in(view)
            return frozenset([each.name for each in fields if has_several(each)])

        return SeveralFound(await partition.read(find))


async def several_at(container: Container, partition: Partition) -> HasSeveral:
    """Whether documents of a partition of another process have several keys in an index."""
    found = await run_uncounted_at(container, partition, FindSeveral())
    if found is None:  # it is being split or merged
        return lambda index: True
    names = found.names
    return lambda index: index.name in names
