"""What a simulation answers: timeline, events, the largest keys, totals, money by part, and sentences that say what
happened. Plain data, in the form that `armillary simulate --json` prints.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from armillary import limits
from armillary.insight.planning import money, partition_counts
from armillary.insight.planning.estimate import FORMULA_ERROR, VERSION
from armillary.insight.planning.prices import Prices
from armillary.insight.planning.toml_tables import DAY_S, HOUR_S
from armillary.insight.planning.workload import NO_RETRIES, SDK_RETRIES, SERVERLESS, Workload
from armillary.insight.simulation.recording import costs_of
from armillary.insight.simulation.simulator import (
    CLOUD_SPLIT_S,
    COPY_BYTES_S,
    Progress,
    SimulationOptions,
    Simulator,
)

_TOP_KEYS: Final = 20
_NOTABLE: Final = 0.01  # of request units refused, from which on it is told
_EVEN: Final = 2.0  # times the mean, below which a fullest partition looks even
NOT_KNOWN: Final = (
    "the latency of the cloud",
    "charges of queries whose text was not seen",
    "the replication lag of regions",
    "other containers that share the throughput of a database",
)


def simulate(
    workload: Workload, prices: Prices, options: SimulationOptions, progress: Progress = lambda share: None
) -> dict[str, Any]:
    simulator = Simulator(workload, options)
    simulator.run(progress)
    return outcome_of(simulator, prices)


def outcome_of(simulator: Simulator, prices: Prices) -> dict[str, Any]:
    """Of a simulation that has run."""
    return _Outcome(simulator, prices).content()


class _Outcome:
    def __init__(self, simulator: Simulator, prices: Prices) -> None:
        self._simulator, self._prices = simulator, prices
        self._recording = simulator.recording
        self._costs = costs_of(self._recording, prices, simulator.provision, simulator.workload.regions)
        self._days = np.arange(simulator.steps) * simulator.step_s / DAY_S

    def content(self) -> dict[str, Any]:
        simulator = self._simulator
        horizon_s = simulator.steps * simulator.step_s
        return {
            "version": VERSION,
            "inputs": self._inputs(),
            "assumptions": self._assumptions(),
            "restsOn": self._rests_on(),
            "notKnown": list(NOT_KNOWN),
            "sentences": self._sentences(),
            "totals": {
                **self._recording.totals(),
                "partitions": simulator.map.count,
                "bytes": round(float(simulator.stored.keys.sum()) + simulator.stored.mass),
                "fullKeys": int(simulator.stored.is_full.sum()),
            },
            "money": self._costs.to_json(horizon_s),
            "events": simulator.events.found,
            "eventsLeftOff": simulator.events.left_off,
            "topKeys": self._top_keys(),
            "timeline": self._recording.timeline(self._costs.so_far),
            "warnings": [],
        }

    def _inputs(self) -> dict[str, Any]:
        simulator = self._simulator
        return {
            "partitionKey": list(simulator.workload.partition_key),
            "provision": {"kind": simulator.provision.kind, "ru": simulator.provision.ru},
            "keys": simulator.workload.data.keys.text,
            "days": round(simulator.steps * simulator.step_s / DAY_S, 4),
            "stepSeconds": simulator.step_s,
            "retries": simulator.workload.retries,
            "as": "cloud" if simulator.options.is_cloud else "armillary",
        }

    def _assumptions(self) -> list[str]:
        workload, options = self._simulator.workload, self._simulator.options
        if workload.split_s is not None:
            split = f"A split takes {workload.split_s:g} s."
        elif options.is_cloud:
            split = f"A split takes {CLOUD_SPLIT_S / HOUR_S:g} hours (the service says 4 to 6)."
        else:
            split = f"A split copies {COPY_BYTES_S // limits.MB} MB a second."
        retries = {
            SDK_RETRIES: "Clients retry refused requests for up to 30 s.",
            NO_RETRIES: "Clients do not retry: what is refused is lost.",
        }.get(workload.retries, "Clients retry until they are served: nothing is lost, whatever the backlog.")
        found = [
            "Rates, sizes and the distribution of keys are those of the workload; nothing was sampled or drawn.",
            workload.bounds.text,
            f"Shares of 429 are by formula, within {FORMULA_ERROR:.0%} of the engine's in a second of random arrivals.",
            "The heaviest 10,000 keys lie where their hash says; the rest is a mass that is even over the hash space.",
            split,
            retries,
        ]
        if options.index_share:
            found.append(f"The index takes {options.index_share:.0%} of the items' bytes as storage.")
        if workload.merges:
            found.append("Merges are done at once, one an hour.")
        return found

    def _rests_on(self) -> dict[str, str]:
        """What the figures of each part rest on."""
        step = f"steps of {_time_text(self._simulator.step_s)}"
        return {
            "totals": f"Totals: sums and highest values over all {step}. How many partitions there are and what they "
            "refuse depends on where keys lie: --vary seed=1,2,3 shows by how much.",
            "timeline": f"Over time: {step}; a point has the state when it begins, the means of its steps, and the "
            "highest of them for waits and for the use of partitions.",
            "money": f"Money: the throughput of each hour and the bytes stored in {step}, at the prices named.",
            "events": f"Days of events: to {step}, if sizes, rates and growth are those of the workload.",
            "topKeys": "Largest keys: the shares of the distribution, in the end.",
        }

    # Keys.

    def _top_keys(self) -> list[dict[str, Any]]:
        simulator = self._simulator
        stored, demand = simulator.stored, simulator.demand_by_key()
        whole = max(1e-12, float(demand.keys.sum()) + demand.rest)
        order = np.lexsort((np.arange(len(stored.keys)), -demand.keys, -stored.keys))[:_TOP_KEYS].tolist()
        return [
            {
                "key": simulator.space.names[rank],
                "bytes": round(float(stored.keys[rank])),
                "demandShare": round(float(demand.keys[rank]) / whole, 6),
                "fullOnDay": _day(simulator.full_since.get(rank)),
            }
            for rank in order
        ]

    # Sentences.

    def _sentences(self) -> list[str]:
        return [
            *self._of_the_sum(),
            *self._of_refusals(),
            *self._of_splits(),
            *self._of_full_keys(),
            *self._of_bytes(),
            *self._of_waiting(),
            *self._of_autoscale(),
            *self._of_the_minimum(),
        ]

    def _of_the_sum(self) -> list[str]:
        if self._simulator.provision.kind == SERVERLESS:
            return []
        demand, provisioned = self._recording.column("demandRu"), self._recording.column("provisionedRu")
        beyond = np.flatnonzero(demand > provisioned)
        if not len(beyond):
            highest = int(np.argmax(demand / provisioned))
            return [
                f"In sum the throughput was enough on every day: at most {demand[highest]:,.0f} of "
                f"{provisioned[highest]:,.0f} RU/s were asked for."
            ]
        first = beyond[0]
        return [
            f"On day {self._days[first]:,.1f} the load is more than the throughput: {demand[first]:,.0f} of "
            f"{provisioned[first]:,.0f} RU/s."
        ]

    def _of_refusals(self) -> list[str]:
        demand = np.maximum(self._recording.column("demandRu"), 1e-12)
        share = self._recording.column("refusedRu") / demand
        notable = np.flatnonzero(share > _NOTABLE)
        if not len(notable):
            highest = float(share.max())
            return [f"Refusals (429) stay below {_NOTABLE:.0%} of the request units: at most {highest:.2%} in a step."]
        worst = int(np.argmax(share))
        return [
            f"From day {self._days[notable[0]]:,.1f} on there are times with more than {_NOTABLE:.0%} of the request "
            f"units refused (429); the most is {share[worst]:.1%} on day {self._days[worst]:,.1f}."
        ]

    def _of_splits(self) -> list[str]:
        partitions, budget = self._recording.column("partitions"), self._recording.column("ruPerPartition")
        if partitions[-1] <= partitions[0] or budget[-1] >= budget[0]:
            return []
        return [
            f"Splits made {partitions[-1]:,.0f} partitions of {partitions[0]:,.0f}. Each made the share of a hot key "
            f"smaller: a partition had {budget[0]:,.0f} RU/s at first and has {budget[-1]:,.0f} in the end."
        ]

    def _of_full_keys(self) -> list[str]:
        simulator = self._simulator
        if not simulator.full_since:
            return []
        first = min(simulator.full_since, key=lambda rank: (simulator.full_since[rank], rank))
        share = self._recording.column("fullShare")
        full = int(simulator.stored.is_full.sum())
        return [
            f"On day {simulator.full_since[first] / DAY_S:,.1f} the key {simulator.space.names[first]} is full. In the "
            f"end {full:,} {'key is' if full == 1 else 'keys are'} full, and {share[-1]:.1%} of the writes fail for "
            "good (403)."
        ]

    def _of_bytes(self) -> list[str]:
        simulator = self._simulator
        sizes = simulator.partition_bytes()
        if simulator.map.count == 1 or not sizes.any():
            return []
        fullest = float(sizes.max() / sizes.mean())
        if fullest < _EVEN and (simulator.full_since or self._recording.normalized_p99() > 1.0):
            return [
                f"No partition looks uneven in bytes: the fullest holds {fullest:.1f} times the mean. Splits are made "
                "at the middle of the bytes, so this says nothing about the key."
            ]
        return [f"The fullest partition holds {fullest:.1f} times the mean of the bytes."]

    def _of_waiting(self) -> list[str]:
        longest, failed = float(self._recording.column("waitS").max()), self._recording.totals()["failedShare"]
        if longest < 1.0:
            return []
        lost = f", and {failed:.2%} of all request units failed" if failed else ""
        return [f"Clients that retry waited up to {longest:,.0f} s{lost}."]

    def _of_autoscale(self) -> list[str]:
        if not self._simulator.provision.is_autoscale:
            return []
        billed, most = self._recording.column("billedRu"), self._recording.column("provisionedRu")
        mean, even = float((billed / most).mean()), money.autoscale_pays_below(self._prices)
        word = "less" if mean < even else "more"
        return [
            f"Autoscale was billed at {mean:.0%} of its maximum on average: {word} than manual throughput of that "
            f"maximum would cost (break-even at {even:.1%})."
        ]

    def _of_the_minimum(self) -> list[str]:
        simulator = self._simulator
        if simulator.provision.kind == SERVERLESS:
            return []
        stored = float(simulator.stored.keys.sum()) + simulator.stored.mass
        least = partition_counts.minimum_ru(stored, is_autoscale=simulator.provision.is_autoscale)
        if least <= simulator.target_ru:
            return []
        return [
            f"In the end {stored / limits.GB:,.0f} GB are stored: throughput could not be set to less than "
            f"{least:,} RU/s any more, and {simulator.target_ru:,} are provisioned."
        ]


def _day(at_s: float | None) -> float | None:
    return round(at_s / DAY_S, 3) if at_s is not None else None


def _time_text(seconds: float) -> str:
    for length, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"
