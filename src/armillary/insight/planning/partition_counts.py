"""How many partitions a container has: as created, after growing by storage or by throughput, and what that means for
the throughput to ask for. The rules of throughput are the engine's (`account/throughput/provisioning.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from armillary import limits
from armillary.account.throughput import provisioning
from armillary.account.throughput.provisioning import Throughput
from armillary.errors import Failure, bad_request

if TYPE_CHECKING:
    from armillary.account.registry import AccountSettings


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """What one partition and one logical partition hold, what a partition carries, and which throughput a container
    may have: the server's settings of the same names, which `--profile` gives other defaults."""

    storage_bytes: int = limits.PARTITION_STORAGE_BYTES
    logical_bytes: int = limits.LOGICAL_PARTITION_BYTES_MAX
    throughput_ru: int = limits.PARTITION_THROUGHPUT_RU
    has_headroom: bool = True  # new containers get more partitions than carry their manual throughput
    container_ru_min: int = limits.THROUGHPUT_MIN_RU
    container_ru_max: int = limits.THROUGHPUT_MAX_RU

    @classmethod
    def of(cls, settings: AccountSettings) -> PartitionLimits:
        """Those of an account. A key lies in one partition, so that it cannot hold more than that."""
        return cls(
            settings.partition_storage_bytes,
            min(settings.logical_partition_bytes_max, settings.partition_storage_bytes),
            settings.partition_throughput_ru,
            settings.has_partition_headroom,
            settings.partitioned_throughput_min_ru,
            settings.throughput_max_ru,
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PartitionLimits:
        return cls(
            content["partitionStorageBytes"],
            content["logicalPartitionBytes"],
            content["partitionThroughputRu"],
            content["partitionHeadroom"],
            content["partitionedThroughputMinRu"],
            content["throughputMaxRu"],
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "partitionStorageBytes": self.storage_bytes,
            "logicalPartitionBytes": self.logical_bytes,
            "partitionThroughputRu": self.throughput_ru,
            "partitionHeadroom": self.has_headroom,
            "partitionedThroughputMinRu": self.container_ru_min,
            "throughputMaxRu": self.container_ru_max,
        }

    @property
    def initial_share(self) -> float:
        """Of what a partition carries, the most that manual throughput of a new container uses."""
        return limits.INITIAL_PARTITION_SHARE if self.has_headroom else 1.0

    @property
    def text(self) -> str:
        """As an assumption of a report."""
        return (
            f"A partition holds {_size(self.storage_bytes)} and carries {self.throughput_ru:,} RU/s, one key holds "
            f"{_size(self.logical_bytes)}; a new container gets a partition for each "
            f"{self.throughput_ru * self.initial_share:,.0f} RU/s of manual throughput, and has "
            f"{self.container_ru_min:,} to {self.container_ru_max:,} RU/s."
        )

    def check(self, throughput: Throughput, place: str) -> None:
        """Refuse throughput that a container cannot have."""
        try:
            throughput.check_range(self.container_ru_min, self.container_ru_max)
        except Failure as failure:
            raise bad_request(f"{place}: {failure.message}") from None


def _size(size_bytes: int) -> str:
    for unit, name in ((limits.GB, "GB"), (limits.MB, "MB"), (limits.KB, "KB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:,.4g} {name}"
    return f"{size_bytes:,} bytes"


DEFAULT_LIMITS = PartitionLimits()


def created(
    throughput_ru: int,
    *,
    is_autoscale: bool = False,
    partition_ru: int = limits.PARTITION_THROUGHPUT_RU,
    initial_share: float = limits.INITIAL_PARTITION_SHARE,
) -> int:
    """Partitions of a new container."""
    return Throughput(throughput_ru, is_autoscale).partition_count(partition_ru, initial_share)


def created_with_max(
    partitions: int,
    *,
    is_autoscale: bool = False,
    partition_ru: int = limits.PARTITION_THROUGHPUT_RU,
    initial_share: float = limits.INITIAL_PARTITION_SHARE,
) -> int:
    """The most throughput with which a new container gets so many partitions."""
    carried_ru = partition_ru if is_autoscale else partition_ru * initial_share
    step_ru = limits.AUTOSCALE_STEP_RU if is_autoscale else limits.THROUGHPUT_STEP_RU
    return int(partitions * carried_ru) // step_ru * step_ru


def by_storage(initial: int, size_bytes: float, partition_bytes: int = limits.PARTITION_STORAGE_BYTES) -> int:
    """Partitions when so many bytes are stored under even keys: those fill all partitions at the same time, so that
    the number doubles."""
    partitions = initial
    while size_bytes > partitions * partition_bytes:
        partitions *= 2
        check_count(partitions)
    check_count(partitions)
    return partitions


def check_count(partitions: int) -> None:
    """Refuse what would take hours to compute, and is no container that exists."""
    if partitions > limits.PLANNED_PARTITIONS_MAX:
        raise bad_request(
            f"This leads to more than {limits.PLANNED_PARTITIONS_MAX:,} partitions, the most that is computed. "
            "Check the sizes, rates, growth and limits."
        )


def least_by_storage(size_bytes: float, partition_bytes: int = limits.PARTITION_STORAGE_BYTES) -> int:
    """The fewest partitions that hold so many bytes."""
    return max(1, -int(-size_bytes // partition_bytes))


def after_scaling(partitions: int, throughput_ru: int, partition_ru: int = limits.PARTITION_THROUGHPUT_RU) -> int:
    """Partitions of a container that is scaled to more than its partitions carry."""
    return max(partitions, Throughput(throughput_ru).partition_count(partition_ru, initial_share=1.0))


def even_scale_up(partitions: int, wanted_ru: int, partition_ru: int = limits.PARTITION_THROUGHPUT_RU) -> int:
    """The least throughput from `wanted_ru` on that divides every partition alike: another leaves some partitions
    with twice the hash range of others, and with the same share of throughput."""
    throughput_ru = partitions * partition_ru
    while throughput_ru < wanted_ru:
        throughput_ru *= 2
    return throughput_ru


def minimum_ru(size_bytes: float, *, is_autoscale: bool = False, highest_ru: int = 0) -> int:
    """The least throughput that may be set while so many bytes are stored."""
    return provisioning.minimum(Throughput(0, is_autoscale), highest_ru, int(size_bytes)).ru


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """How to load much data into a new container: create it with enough throughput to have its partitions from the
    beginning, and scale to all that they carry."""

    partitions: int
    create_with_ru: int
    scale_to_ru: int
    hours: float


def ingest_plan(
    size_bytes: float,
    items: float,
    item_ru: float,
    filled_bytes: float = 0.8 * limits.PARTITION_STORAGE_BYTES,
    *,
    is_autoscale: bool = False,
    bounds: PartitionLimits = DEFAULT_LIMITS,
) -> IngestPlan:
    partition_ru = bounds.throughput_ru
    partitions = max(1, -int(-size_bytes // filled_bytes))
    create_ru = created_with_max(
        partitions, is_autoscale=is_autoscale, partition_ru=partition_ru, initial_share=bounds.initial_share
    )
    create_ru = max(bounds.container_ru_min, min(bounds.container_ru_max, create_ru))
    scale_ru = max(create_ru, min(bounds.container_ru_max, partitions * partition_ru))
    return IngestPlan(partitions, create_ru, scale_ru, items * item_ru / scale_ru / 3600.0)
