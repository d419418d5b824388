"""The course of a workload's rates over the steps of a simulation: weekdays, hours, growth and spikes. A step has the
mean of its hours. A spike without a key multiplies all rates; one with a key is a stretch of steps with other shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from armillary.errors import bad_request
from armillary.insight.planning.toml_tables import DAY_S, HOUR_S, MONTH_S
from armillary.insight.planning.workload import LoadShape, Spike
from armillary.insight.simulation.key_space import Numbers

STEPS_MAX: Final = 200_000
_WEEK_S: Final = 7 * DAY_S


def default_step_s(horizon_s: float) -> float:
    """1 s up to a day, 1 min up to 92 days, 1 h beyond."""
    if horizon_s <= DAY_S:
        return 1.0
    return 60.0 if horizon_s <= 92 * DAY_S else HOUR_S


def step_count(horizon_s: float, step_s: float) -> int:
    steps = max(1, round(horizon_s / step_s))
    if steps > STEPS_MAX:
        raise bad_request(
            f"{horizon_s / DAY_S:,.1f} days in steps of {step_s:g} s are {steps:,} steps; at most {STEPS_MAX:,} are "
            "computed. Take longer steps (--step) or less time (--for)."
        )
    return steps


@dataclass(frozen=True, slots=True)
class KeyedSpike:
    """Steps in which one key gets `extra` times all rates on top."""

    first: int
    end: int
    spike: Spike
    extra: float


class LoadCourse:
    def __init__(self, shape: LoadShape, step_s: float, steps: int) -> None:
        starts: Numbers = np.arange(steps, dtype=np.float64) * step_s
        self.factors: Numbers = _regular(shape, starts, step_s) * shape.growth_per_month ** (starts / MONTH_S)
        self.spikes: list[KeyedSpike] = []
        for spike in shape.spikes:
            end_s = spike.at_s + spike.hours * HOUR_S
            if spike.key is None:
                overlap = np.minimum(starts + step_s, end_s) - np.maximum(starts, spike.at_s)
                self.factors *= 1.0 + (spike.factor - 1.0) * np.clip(overlap / step_s, 0.0, 1.0)
            elif spike.at_s < steps * step_s:
                first, end = int(spike.at_s // step_s), int(np.ceil(end_s / step_s))
                extra = (spike.factor - 1.0) * spike.hours * HOUR_S / ((end - first) * step_s)
                self.spikes.append(KeyedSpike(first, min(end, steps), spike, extra))

    def keyed_at(self, step: int) -> list[KeyedSpike]:
        return [each for each in self.spikes if each.first <= step < each.end]

    def next_change(self, step: int) -> int | None:
        """The next step at which a spike with a key begins or ends."""
        return min((at for each in self.spikes for at in (each.first, each.end) if at > step), default=None)


def _regular(shape: LoadShape, starts: Numbers, step_s: float) -> Numbers:
    """The mean of weekday times hour over each step."""
    hourly = np.outer(shape.weekly, shape.daily).ravel()
    if (hourly == hourly[0]).all():
        return np.full(len(starts), hourly[0])
    sums = np.concatenate(([0.0], np.cumsum(hourly))) * HOUR_S
    edges = np.arange(len(hourly) + 1) * HOUR_S

    def until(times: Numbers) -> Numbers:
        return np.asarray(times // _WEEK_S * sums[-1] + np.interp(times % _WEEK_S, edges, sums))

    return (until(starts + step_s) - until(starts)) / step_s
