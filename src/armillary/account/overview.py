"""Figures of a container: its partitions with their sizes and charges, and the largest and busiest logical partitions.
They show whether a partition key was chosen well, and how busy a server is. Also the texts about usage and quotas.

Reads what `partition/` keeps anyway: heads, sizes and meters. Access control and rendering are the doors' part.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappush, heapreplace, nlargest
from typing import NamedTuple

from armillary import limits
from armillary.account.catalog.allocation import place_of_store
from armillary.account.catalog.catalog import Catalog
from armillary.account.container import Container
from armillary.account.visits.view_readings import ViewReading, read_again, read_view
from armillary.clock import Clock
from armillary.model import layout
from armillary.model.layout import LogicalSize, unpack_size
from armillary.model.ranges import KeyRange, even_boundaries
from armillary.model.resources import ResourceType
from armillary.partition.budget import HUNDREDTHS
from armillary.partition.meter import FullKey, Totals
from armillary.partition.partition import Partition
from armillary.storage.engine import View

_HASH_PARTS = 1024


class PartitionFigures(NamedTuple):
    range: KeyRange
    item_count: int
    size_bytes: int
    lsn: int
    budget_ru: float | None  # a second; None: there is none
    spent_ru: list[float]  # in each of the last seconds, the latest last
    totals: Totals

    @property
    def process(self) -> int:
        """Which of several processes holds the partition; 0 is the first."""
        return place_of_store(self.range.store)


class KeyFigures(NamedTuple):
    """A logical partition that is among the largest or busiest."""

    key_text: str | None  # as JSON; None where nothing is stored under the key any more
    range_id: int
    item_count: int
    size_bytes: int
    charged_ru: float | None  # since the server started; None where nothing was counted
    full: FullKey | None = None  # writes that were refused since the server started because the key is full


class KeySpread:
    """How bytes lie over the logical partitions that were looked at."""

    def __init__(self) -> None:
        self.key_count = self.total_bytes = self.squares = 0  # squares: the sum of the squared bytes of each
        self.keys_of_range: dict[int, int] = {}  # logical partitions by the id of their physical one
        self.by_hash = [0] * _HASH_PARTS  # bytes in equal parts of the space of hashes

    def add(self, seen: SizesSeen, range_id: int) -> None:
        self.key_count += seen.key_count
        self.keys_of_range[range_id] = self.keys_of_range.get(range_id, 0) + seen.key_count
        self.total_bytes += seen.total_bytes
        self.squares += seen.squares
        for part, size_bytes in seen.by_hash.items():
            self.by_hash[part] += size_bytes


class LargestKeys(NamedTuple):
    keys: list[KeyFigures]
    is_complete: bool  # False: there are so many that not all were looked at
    spread: KeySpread


def container_totals(container: Container, *, is_whole: bool = True) -> Totals:
    """Never goes back, whatever becomes of the partitions. `is_whole`: with those of other processes."""
    totals = container.left_totals
    for partition in list(container.partitions.values()):
        if is_whole or not partition.is_elsewhere:
            totals = totals.plus(partition.meter.totals)
    return totals


def partition_count(container: Container, *, is_whole: bool = True) -> int:
    return sum(is_whole or not each.is_elsewhere for each in container.partitions.values())


def partition_figures(container: Container) -> list[PartitionFigures]:
    """In the order of their ranges."""
    return [_figures(container.partitions[each.id]) for each in container.map.ranges]


def _figures(partition: Partition) -> PartitionFigures:
    head, meter = partition.head, partition.meter
    budget = meter.budget
    return PartitionFigures(
        partition.range,
        head.item_count,
        head.size_bytes,
        head.lsn,
        budget.limit / HUNDREDTHS if budget is not None else None,
        meter.per_second_ru(limits.OVERVIEW_SECONDS),
        meter.totals,
    )


async def busiest_keys(container: Container, count: int) -> list[KeyFigures]:
    """The logical partitions that the most was charged for."""
    found = [
        (charged_ru, epk, partition)
        for partition in container.partitions.values()
        for epk, charged_ru in partition.meter.top_keys(count)
    ]
    found.sort(key=lambda each: each[0], reverse=True)
    return [
        await read_again(partition.clock, lambda epk=epk, ru=charged_ru: _key_figures(container, epk, ru))  # type: ignore[misc]
        for charged_ru, epk, partition in found[:count]
    ]


async def _key_figures(container: Container, epk: bytes, charged_ru: float) -> KeyFigures:
    partition = container.partition_for(epk)
    [stored] = await read_view(partition, SizesOf([epk]))
    if stored is None:
        return KeyFigures(None, partition.range.id, 0, 0, charged_ru)
    size = unpack_size(stored)
    full = next((each for each in partition.meter.full_keys if each.epk == epk), None)
    return KeyFigures(size.key_text, partition.range.id, size.item_count, size.size_bytes, charged_ru, full)


async def largest_keys(container: Container, count: int) -> LargestKeys:
    """The logical partitions with the most bytes. Looks at each of them, in short slices of time."""
    clock = next(iter(container.partitions.values())).clock
    return await read_again(clock, lambda: _largest_keys(container, count))


async def _largest_keys(container: Container, count: int) -> LargestKeys:
    largest: list[tuple[int, bytes, int, LogicalSize]] = []
    spread = KeySpread()
    version = container.key.version if container.key is not None else 2
    left = limits.OVERVIEW_KEYS_MAX
    for partition in list(container.partitions.values()):
        low: bytes | None = layout.SIZES
        while low is not None and left > 0:
            seen = await read_view(partition, LookAtSizes(low, count, version))
            low = seen.next_low
            left -= seen.key_count
            range_id = partition.range.id
            spread.add(seen, range_id)
            largest += [(size, epk, range_id, unpack_size(stored)) for size, epk, stored in seen.largest]
            largest = nlargest(count, largest, key=lambda each: each[:3])
            await asyncio.sleep(0)
    charged = {epk: ru for each in container.partitions.values() for epk, ru in each.meter.top_keys(count)}
    full = {key.epk: key for each in container.partitions.values() for key in each.meter.full_keys}
    return LargestKeys(
        [
            KeyFigures(size.key_text, range_id, size.item_count, size.size_bytes, charged.get(epk), full.get(epk))
            for _, epk, range_id, size in largest
        ],
        left > 0,
        spread,
    )


@dataclass(slots=True)
class SizesOf(ViewReading[list[bytes | None]]):
    """The stored sizes of logical partitions; None for those that hold nothing."""

    epks: Sequence[bytes]

    def read(self, view: View, clock: Clock) -> list[bytes | None]:
        return [view.get(layout.size_key(epk)) for epk in self.epks]


@dataclass(slots=True)
class SizesSeen:
    """Of a slice of the logical partitions of one physical one."""

    next_low: bytes | None = None  # where to go on; None: it was the last
    key_count: int = 0
    total_bytes: int = 0
    squares: int = 0
    by_hash: dict[int, int] = field(default_factory=dict)  # bytes by the part of the space of hashes
    largest: list[tuple[int, bytes, bytes]] = field(default_factory=list)  # bytes, effective key, what is stored


@dataclass(slots=True)
class LookAtSizes(ViewReading[SizesSeen]):
    low: bytes
    count: int  # of the largest
    version: int  # of the hashes

    def read(self, view: View, clock: Clock) -> SizesSeen:
        end_s = clock.elapsed_s() + limits.SLICE_SECONDS
        seen, heap, count = SizesSeen(), list[tuple[int, bytes, bytes]](), self.count
        bounds, by_hash = even_boundaries(_HASH_PARTS, self.version), seen.by_hash
        for key, value in view.scan(self.low, layout.space_end(layout.SIZES)):
            if seen.key_count and seen.key_count % 256 == 0 and clock.elapsed_s() > end_s:
                seen.next_low = key
                break
            size_bytes = unpack_size(value).size_bytes
            part = bisect_right(bounds, key[1:])
            by_hash[part] = by_hash.get(part, 0) + size_bytes
            seen.key_count += 1
            seen.total_bytes += size_bytes
            seen.squares += size_bytes * size_bytes
            entry = (size_bytes, key[1:], value)
            if len(heap) < count:
                heappush(heap, entry)
            elif entry > heap[0]:
                heapreplace(heap, entry)
        seen.largest = heap
        return seen


class Quotas(NamedTuple):
    """What a container uses of what it may have, in the words of the service: answers to clients carry these texts, and
    post-triggers may ask for them."""

    usage: str
    quota: str


def quotas_of(catalog: Catalog, container: Container) -> Quotas:
    heads = [partition.head for partition in container.partitions.values()]
    size_kb = sum(head.size_bytes for head in heads) // limits.KB
    count = sum(head.item_count for head in heads)
    functions, procedures, triggers = [
        len(catalog.children(each, container.record.rid))
        for each in (ResourceType.FUNCTION, ResourceType.PROCEDURE, ResourceType.TRIGGER)
    ]
    quota_kb = len(heads) * limits.PARTITION_QUOTA_BYTES // limits.KB
    return Quotas(
        usage=f"functions={functions};storedProcedures={procedures};triggers={triggers};documentSize=0;"
        f"documentsSize={size_kb};documentsCount={count};collectionSize={size_kb};",
        quota=f"functions=50;storedProcedures=100;triggers=25;documentSize={limits.ITEM_BYTES_MAX // limits.KB};"
        f"documentsSize={quota_kb};documentsCount=-1;collectionSize={quota_kb};",
    )
