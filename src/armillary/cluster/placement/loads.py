"""How much of a node's work a log is. Loads are parts of a billion of the whole cluster's, so that bytes, request units
and numbers can be added up, and sums are exact. Small logs count equally: what they do changes from minute to minute.

New partitions are put into the logs with the least load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from armillary import limits
from armillary.cluster.placement.figures import PlacedLog

_WHOLE: Final = 1_000_000_000
_LEADING_NUMBER: Final = 0.2  # of the load of a leader: what a log costs that spends nothing


class LogLoad(NamedTuple):
    replica: int  # of each node that has a replica: bytes, request units and number in equal parts
    leader: int  # of the node that leads: request units for the most part


def loads_of(logs: Sequence[PlacedLog]) -> Mapping[int, LogLoad]:
    count = len(logs)
    stored = _parts([each.size_bytes for each in logs], limits.PLACEMENT_LOG_BYTES)
    spent = _parts([each.units_per_s for each in logs], limits.PLACEMENT_LOG_UNITS)
    return {
        log.number: LogLoad(
            int(_WHOLE * (stored[index] + spent[index] + 1 / count) / 3),
            int(_WHOLE * ((1 - _LEADING_NUMBER) * spent[index] + _LEADING_NUMBER / count)),
        )
        for index, log in enumerate(logs)
    }


def _parts(amounts: Sequence[float], least: float) -> list[float]:
    """Of their sum. If it is less than `least` for each, the rest is spread evenly."""
    total = sum(amounts)
    whole = max(total, len(amounts) * least)
    return [(each + (whole - total) / len(amounts)) / whole for each in amounts]


def logs_for(count: int, logs: Sequence[PlacedLog], planned: Sequence[int] = ()) -> list[int]:
    """The logs of `count` new partitions, in the order of their keys. `planned`: of partitions that are about to be
    made and that the figures do not count. A new partition is taken to be like the average of those that are there.
    A container is spread: no log gets more than twice its part."""
    partitions = sum(each.partitions for each in logs) + len(planned)
    unit = 1.0 / max(1, partitions)
    stored = sum(each.size_bytes for each in logs)
    spent = sum(each.units_per_s for each in logs)
    loads = {
        each.number: each.partitions * unit
        + (each.size_bytes / stored if stored else 0.0)
        + (each.units_per_s / spent if spent else 0.0)
        for each in logs
    }
    weight = unit * (1 + bool(stored) + bool(spent))
    for number in planned:
        loads[number] += weight
    most = -(-2 * count // len(logs))
    chosen: list[int] = []
    for _ in range(count):
        best = min((n for n in loads if chosen.count(n) < most), key=lambda n: (loads[n], n))
        loads[best] += weight
        chosen.append(best)
    return chosen
