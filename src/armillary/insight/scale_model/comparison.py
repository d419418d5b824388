"""What the simulator predicts for a shrunk workload beside what the small account did: figure by figure, with how far
they may be apart. `scale_model` is what `armillary scale-model --json` prints.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from armillary.insight.planning.distributions import KeyShares, KeyValue
from armillary.insight.planning.estimate import VERSION
from armillary.insight.planning.operation_charges import WRITES
from armillary.insight.planning.placement import position
from armillary.insight.planning.toml_tables import DAY_S, HOUR_S
from armillary.insight.planning.workload import UNLIMITED_RETRIES, Keys, Workload
from armillary.insight.scale_model.player import poisson
from armillary.insight.scale_model.run import LOOKS_MAX, REQUESTS_DEFAULT, Look, ScaleModel
from armillary.insight.scale_model.scaling import ITEMS_DEFAULT, Scaling
from armillary.insight.simulation.budgets import refused_deviations, refused_shares
from armillary.insight.simulation.range_map import RangeMap
from armillary.insight.simulation.simulator import SimulationOptions, Simulator

_TOLERANCE: Final = 0.10  # of the value that was seen
_SHARE_TOLERANCE: Final = 0.005  # of shares, if that is more
_ITEMS_MIN: Final = 200  # of a key or partition, below which its size is chance
_STEPS: Final = 2_000  # of the simulation up to each look, at least
_KEYS_KNOWN: Final = 100_000  # one by one; a model has fewer items
_RESAMPLES: Final = 6
_DEVIATIONS: Final = 2.0  # of chance that count as agreement

_ASSUMPTIONS: Final = (
    "The account is the one that servers run, in memory and with shrunk limits; protocols and networks are left out.",
    "Between two looks items are written without a budget; a look plays some seconds of requests under the budget, and "
    "none of them is tried again.",
    "The prediction has the shares of keys as they came. Its interval is what other draws of the same distribution, "
    "and times a little earlier and later, would give: in a small container chance decides when a partition is full.",
    "What is refused is predicted for the partitions as they were cut, and for the keys of the requests played.",
    "Figures agree within a tenth of their interval, shares within half a point if that is more. Sizes of less than "
    f"{_ITEMS_MIN} items are not judged.",
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one look, of the small container. `low` and `high`: what is predicted for times a little before
    and after and for other draws of the keys, since chance decides when few items fill a partition, and where it is
    cut."""

    name: str
    predicted: float
    low: float
    high: float
    seen: float
    tolerance: float  # what was seen may be so far off
    is_judged: bool = True  # False: chance decides it in a container this small

    @property
    def agrees(self) -> bool:
        return not self.is_judged or self.low - self.tolerance <= self.seen <= self.high + self.tolerance

    def to_json(self) -> dict[str, Any]:
        numbers = {name: round(getattr(self, name), 6) for name in ("predicted", "low", "high", "seen", "tolerance")}
        return {"name": self.name, **numbers, "isJudged": self.is_judged, "agrees": self.agrees}


@dataclass(frozen=True, slots=True)
class ComparedLook:
    at_s: float
    figures: tuple[Figure, ...]

    def to_json(self) -> dict[str, Any]:
        return {"day": round(self.at_s / DAY_S, 4), "figures": [each.to_json() for each in self.figures]}


def compare(workload: Workload, scaling: Scaling, looks: Sequence[Look]) -> list[ComparedLook]:
    """Simulates the shrunk workload up to each look, with the shares of keys as they came: in a container this small
    chance has made them a little other than the distribution says. Writes between two looks have no budget in the
    model, so that none is lost in the simulation either. What is refused is predicted for the partitions as they were
    cut and for the keys of the requests that were played."""
    shrunk = replace(scaling.workload(workload), retries=UNLIMITED_RETRIES, split_s=0.0)
    chance = _chance(workload, scaling)
    found = []
    for look in looks:
        times = (look.at_s, look.at_s * (1.0 - chance), look.at_s * (1.0 + chance))
        as_it_came = _with_keys_of(shrunk, look)
        runs = [(as_it_came, at_s) for at_s in times]
        dice = random.Random(f"resample {look.at_s}")
        runs += [(_with_keys_of(shrunk, _resampled(look, dice)), look.at_s) for _ in range(_RESAMPLES)]
        played = _with_keys_played(shrunk, look)
        predicted = [_Predicted.of(_simulated(each, at_s), played, scaling, look) for each, at_s in runs]
        found.append(ComparedLook(look.at_s, tuple(_figures(predicted, look, workload.data.item.size_bytes))))
    return found


def _resampled(look: Look, dice: random.Random) -> Look:
    """A look at another container of the same distribution: where a partition is cut hangs on which keys came first."""
    return replace(
        look,
        initial=Counter({key: poisson(count, dice) for key, count in look.initial.items()}),
        written=Counter({key: poisson(count, dice) for key, count in look.written.items()}),
    )


def _with_keys_of(workload: Workload, look: Look) -> Workload:
    """What was stored and read until a look. Keys that only the requests of the look name are known too, with no share
    of what was written."""
    operations = []
    for operation, tally in zip(workload.operations, look.seen.tallies, strict=False):  # those of spikes come after
        came = tally.keys
        if operation.kind in WRITES:
            came = Counter({**dict.fromkeys(tally.keys, 0), **look.written})
        operations.append(replace(operation, keys=_as_they_came(operation.keys, came)))
    data = replace(workload.data, keys=_as_they_came(workload.data.keys, look.initial or look.written))
    return replace(workload, data=data, operations=tuple(operations))


def _with_keys_played(workload: Workload, look: Look) -> Workload:
    """The requests of a look. In its few seconds the shares of keys are other ones than those of all that was
    written."""
    operations = zip(workload.operations, look.seen.tallies, strict=False)
    return replace(
        workload,
        operations=tuple(replace(each, keys=_as_they_came(each.keys, tally.keys)) for each, tally in operations),
    )


def _as_they_came(keys: Keys, came: Counter[KeyValue]) -> Keys:
    return replace(keys, shares=KeyShares.of_weights(came, _KEYS_KNOWN)) if came.total() else keys


def _chance(workload: Workload, scaling: Scaling) -> float:
    """By which share of the time a partition of the small container may be full earlier or later."""
    small = scaling.bounds(workload.bounds)
    items = min(small.storage_bytes, small.logical_bytes) / workload.data.item.size_bytes
    return min(0.5, _DEVIATIONS / math.sqrt(max(1.0, items)))


def _simulated(shrunk: Workload, at_s: float) -> Simulator:
    step_s = at_s / max(_STEPS, -(-at_s // HOUR_S))
    simulator = Simulator(shrunk, SimulationOptions(at_s, step_s=step_s))
    simulator.run()
    return simulator


@dataclass(frozen=True, slots=True)
class _Predicted:
    """Of the small container."""

    partitions: float
    refused_share: float
    worst_refused_share: float
    full_share: float
    demand_ru: float
    largest_key_bytes: float
    fullest_partition_bytes: float
    # By how much chance takes a figure of so few seconds down and up, by its name.
    chance: Mapping[str, tuple[float, float]]

    @classmethod
    def of(cls, simulator: Simulator, played: Workload, scaling: Scaling, look: Look) -> _Predicted:
        partitions, fullest = simulator.map.count, float(simulator.partition_bytes().max())
        if not simulator.workload.is_hierarchical:
            # Where a partition was cut, beside one key or the next, is chance; what it refuses then is not.
            simulator.map = RangeMap(np.array([*(position(each) for each in look.stored.bounds), 1.0]))
        demand, variance, budget_ru = simulator.load_by_partition(played)
        refused = refused_shares(demand, variance, np.full(len(demand), budget_ru))
        whole = max(1e-12, float(demand.sum()))
        seconds = len(look.seen.by_second)
        errors = refused_deviations(demand, variance, budget_ru) / math.sqrt(seconds)
        of_all = _DEVIATIONS * math.sqrt(float(((errors * demand) ** 2).sum())) / whole
        of_demand = _DEVIATIONS * math.sqrt(float(variance.sum()) / seconds)
        worst = int(refused.argmax())
        # The partition that refuses most is the worst of many by chance too.
        highest = float((refused + _deviations_of_worst(len(demand)) * errors).max())
        in_model = scaling.bytes_of_simulated
        return cls(
            partitions,
            float((refused * demand).sum()) / whole,
            float(refused[worst]),
            simulator.recording.totals()["fullShareOfWrites"],
            whole,
            float(simulator.stored.keys.max(initial=0.0)) * in_model / simulator.workload.data.keys.second_level,
            fullest * in_model,
            {
                "refused_share": (of_all, of_all),
                "worst_refused_share": (_DEVIATIONS * float(errors[worst]), highest - float(refused[worst])),
                "demand_ru": (of_demand, of_demand),
            },
        )


def _deviations_of_worst(count: int) -> float:
    """How many standard deviations the highest of so many figures is off by chance."""
    return math.sqrt(2.0 * math.log(max(2, count)))


def _figures(predicted: Sequence[_Predicted], look: Look, item_bytes: int) -> Iterator[Figure]:
    """`predicted`: as the keys came first, then what chance might have made of it."""
    stored, seen = look.stored, look.seen
    refused, worst = seen.refused_share, seen.worst_refused_share
    written = look.written.total()
    full = look.full / written if written else 0.0
    fullest = stored.fullest_partition_bytes
    by_chance = (_deviations_of_worst(stored.partitions) + 1.0) * math.sqrt(fullest * item_bytes)
    # By the scatter of the seconds that were seen, where that is more than what was predicted.
    scatter = {
        "refused_share": _DEVIATIONS * refused.error,
        "worst_refused_share": (_deviations_of_worst(stored.partitions) + 1.0) * worst.error,
    }
    rows: tuple[tuple[str, str, float, float, float], ...] = (
        # name, attribute, seen, what is tolerated beside a tenth, and the least that is judged
        ("partitions", "partitions", stored.partitions, 1.0, 0.0),
        ("429 share", "refused_share", refused.share, _SHARE_TOLERANCE, 0.0),
        ("429 share, worst partition", "worst_refused_share", worst.share, _SHARE_TOLERANCE, 0.0),
        ("403 share of writes", "full_share", full, _SHARE_TOLERANCE, 0.0),
        ("RU/s", "demand_ru", seen.demand_ru, 0.0, 0.0),
        ("largest key, bytes", "largest_key_bytes", stored.largest_key_bytes, 0.0, _ITEMS_MIN * item_bytes),
        ("fullest partition, bytes", "fullest_partition_bytes", fullest, by_chance, 0.0),
    )
    for name, attribute, found, tolerated, least in rows:
        values = [getattr(each, attribute) for each in predicted]
        down, up = predicted[0].chance.get(attribute, (0.0, 0.0))
        low, high = max(0.0, min(values) - down), max(values) + up
        tolerated = max(tolerated, scatter.get(attribute, 0.0) - min(down, up))
        yield Figure(name, values[0], low, high, found, max(_TOLERANCE * found, tolerated), found >= least)


async def scale_model(
    workload: Workload,
    for_s: float,
    *,
    items: int = ITEMS_DEFAULT,
    looks: int = LOOKS_MAX,
    requests: int = REQUESTS_DEFAULT,
    seed: int = 1,
) -> dict[str, Any]:
    scaling = Scaling.of(workload, for_s, items)
    small = scaling.bounds(workload.bounds)
    found = await ScaleModel(workload, scaling, seed).run(for_s, looks, requests)
    compared = compare(workload, scaling, found)
    return {
        "version": VERSION,
        "inputs": {
            "partitionKey": list(workload.partition_key),
            "keys": workload.data.keys.text,
            "days": round(for_s / DAY_S, 4),
            "items": items,
            "seed": seed,
        },
        "scaling": {
            "throughput": scaling.throughput,
            "storage": round(scaling.storage, 3),
            "partitionStorageBytes": small.storage_bytes,
            "logicalPartitionBytes": small.logical_bytes,
            "partitionThroughputRu": small.throughput_ru,
        },
        "assumptions": [workload.bounds.text, *_ASSUMPTIONS],
        "restsOn": {
            "scaling": f"Factors: so that about {items:,} items are stored in the end, and a few hundred requests a "
            "second are left of which a partition can serve several.",
            "looks": f"Seen: one run of the small container with the seed {seed}, about {requests:,} requests at each "
            "look. Predicted: with the interval that chance leaves; tolerance is by how much what is seen may be "
            "outside of it.",
        },
        "looks": [each.to_json() for each in compared],
        "agrees": all(figure.agrees for each in compared for figure in each.figures),
    }
