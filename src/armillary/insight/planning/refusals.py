"""How much of a load is refused with 429: the share of a partition's requests beyond its budget when they arrive at
random, the least share of a key that is larger than the budget, bursts, and the backlog that retries make.

The rule itself is `partition/budget.py`; `tests/unit/insight/planning` compares both. The formulas are within some 10 %
of it: they take the units of a second as normally distributed, and a second's debt as repaid at once.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from armillary import limits

RETRY_SECONDS_MAX: Final = 30.0  # after which the SDKs give up by default
_ROOT_2: Final = math.sqrt(2.0)
_ROOT_2_PI: Final = math.sqrt(2.0 * math.pi)


def normal_density(z: float) -> float:
    return math.exp(-0.5 * z * z) / _ROOT_2_PI


def normal_above(z: float) -> float:
    """1 - Φ(z), exact for large z too."""
    return 0.5 * math.erfc(z / _ROOT_2)


def refused_share(demand_ru: float, variance: float, budget_ru: float) -> float:
    """The share of a partition's demand that is beyond its budget. `variance` of the units in a second: the sum over
    its requests of rate times the mean squared charge."""
    if demand_ru <= 0:
        return 0.0
    if variance <= 0:
        return max(0.0, 1.0 - budget_ru / demand_ru)
    sigma = math.sqrt(variance)
    z = (budget_ru - demand_ru) / sigma
    return min(1.0, max(0.0, sigma / demand_ru * (normal_density(z) - z * normal_above(z))))


def refused_at_least(key_ru: float, budget_ru: float) -> float:
    """The share of one key's demand that is refused even if its partition had nothing else to do."""
    return max(0.0, 1.0 - budget_ru / key_ru) if key_ru > 0 else 0.0


def burst_seconds(budget_ru: float, idle_s: float = limits.BURST_SECONDS_MAX) -> float:
    """How long a partition that was idle may spend at the burst rate; 0 where its budget is no less than that."""
    extra_ru = limits.BURST_THROUGHPUT_RU - budget_ru
    saved_ru = budget_ru * min(idle_s, limits.BURST_SECONDS_MAX)
    return saved_ru / extra_ru if extra_ru > 0 else 0.0


class Backlog(NamedTuple):
    """Of requests that are retried until they are served."""

    gives_up_after_s: float | None  # when the wait reaches what SDKs accept; None: the backlog does not grow
    failed_share: float  # from then on


def retry_backlog(demand_ru: float, budget_ru: float, most_s: float = RETRY_SECONDS_MAX) -> Backlog:
    """Refused units come again: the backlog grows by the excess, and the wait is the backlog over the budget."""
    excess_ru = demand_ru - budget_ru
    if excess_ru <= 0:
        return Backlog(None, 0.0)
    return Backlog(most_s * budget_ru / excess_ru, excess_ru / demand_ru)
