"""How a workload is shrunk. Two factors: one of throughput, by which rates, RU/s and the RU/s of a partition are
divided, and one of storage, by which items, the size of a partition and that of a logical partition are divided. Items,
their charges, keys and times stay as they are, so that the small container has as many partitions as the large one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from armillary import limits
from armillary.account.throughput.provisioning import Throughput
from armillary.errors import bad_request
from armillary.insight.planning import partition_counts
from armillary.insight.planning.partition_counts import PartitionLimits
from armillary.insight.planning.workload import NO_RETRIES, SERVERLESS, Operation, Workload
from armillary.insight.planning.workload_demands import charge_ru

ITEMS_DEFAULT: Final = 20_000
ITEMS_MIN, ITEMS_MAX = 1_000, 500_000
_REQUESTS_A_SECOND: Final = 600.0  # so many are played at the most, unless throughput cannot be shrunk that far
_BUDGET_CHARGES: Final = 5.0  # dearest requests that the budget of a partition is for, at least
_STEPS: Final = 60  # of the sum over time


@dataclass(frozen=True, slots=True)
class Scaling:
    throughput: int  # rates and RU/s are divided by it
    storage: float  # numbers of items and limits of bytes are divided by it

    @classmethod
    def of(cls, workload: Workload, for_s: float, items: int = ITEMS_DEFAULT) -> Scaling:
        """So that about `items` are stored by the end, if none expired."""
        made = workload.data.size_bytes / workload.data.item.size_bytes
        made += sum(added_items(each, workload, 0.0, for_s) for each in workload.operations)
        return cls(_throughput_factor(workload, made), max(1.0, made / items))

    def workload(self, workload: Workload) -> Workload:
        """What the simulator is asked about: everything that has to do with time is divided by the factor of
        throughput, bytes included, since they grow with the rates."""
        factor = self.throughput
        bounds = workload.bounds
        provision = workload.provision
        assert provision is not None, "checked by _throughput_factor"
        return replace(
            workload,
            provision=replace(provision, ru=provision.ru // factor),
            data=replace(workload.data, size_bytes=workload.data.size_bytes // factor),
            operations=tuple(replace(each, rate=each.rate / factor) for each in workload.operations),
            changes=tuple(replace(each, ru=each.ru // factor) for each in workload.changes),
            bounds=replace(
                bounds,
                storage_bytes=max(1, bounds.storage_bytes // factor),
                logical_bytes=max(1, bounds.logical_bytes // factor),
                throughput_ru=bounds.throughput_ru // factor,
            ),
            retries=NO_RETRIES,
        )

    def bounds(self, bounds: PartitionLimits) -> PartitionLimits:
        """Of the small account."""
        return replace(
            bounds,
            storage_bytes=max(1, round(bounds.storage_bytes / self.storage)),
            logical_bytes=max(1, round(bounds.logical_bytes / self.storage)),
            throughput_ru=bounds.throughput_ru // self.throughput,
        )

    @property
    def bytes_of_simulated(self) -> float:
        """By what bytes of the simulation are multiplied to be those of the small account."""
        return self.throughput / self.storage


def added_items(operation: Operation, workload: Workload, from_s: float, to_s: float) -> float:
    """How many items an operation adds in a time, if none is refused. Spikes are brief beside it, and left out."""
    each = {"create": 1.0, "upsert": 1.0 - operation.existing, "batch": float(operation.batch_items)}
    if operation.kind not in each or to_s <= from_s:
        return 0.0
    step_s = (to_s - from_s) / _STEPS
    factors = sum(workload.shape.regular(from_s + (index + 0.5) * step_s) for index in range(_STEPS))
    return operation.rate * each[operation.kind] * factors * step_s


def throughput_of(workload: Workload, ru: int) -> Throughput:
    assert workload.provision is not None
    return Throughput.autoscale(ru, None) if workload.provision.is_autoscale else Throughput.manual(ru)


def _throughput_factor(workload: Workload, made: float) -> int:
    """`made`: items that there will be. A partition's budget stays several times what a request costs: a smaller one
    refuses less than formulas of many requests say."""
    provision = workload.provision
    if provision is None or provision.kind == SERVERLESS:
        raise bad_request("A scale model needs provisioned throughput: give the container throughput or autoscale.")
    step_ru = limits.AUTOSCALE_STEP_RU if provision.is_autoscale else limits.THROUGHPUT_STEP_RU
    least_ru = limits.AUTOSCALE_MIN_RU if provision.is_autoscale else limits.THROUGHPUT_MIN_RU
    asked = [provision.ru, *(each.ru for each in workload.changes)]
    rate = sum(each.rate for each in workload.operations)
    initial = throughput_of(workload, provision.ru).partition_count(
        workload.bounds.throughput_ru, workload.bounds.initial_share
    )
    size_bytes = made * workload.data.item.size_bytes
    partitions = partition_counts.by_storage(initial, size_bytes, workload.bounds.storage_bytes)
    dearest_ru = max(charge_ru(workload, each, 1) for each in workload.operations)
    most = min(asked) / (partitions * _BUDGET_CHARGES * dearest_ru)
    found = 1
    for factor in range(2, workload.bounds.throughput_ru + 1):
        if rate / found <= _REQUESTS_A_SECOND or factor > most:
            break
        if workload.bounds.throughput_ru % factor == 0 and all(
            ru % (factor * step_ru) == 0 and ru // factor >= least_ru for ru in asked
        ):
            found = factor
    return found
