"""What throughput and storage cost, part by part: manual, autoscale and serverless, and where one begins to pay instead
of another. An hour of autoscale is billed by its highest second, as if all partitions needed as much as the busiest
one; with dynamic scaling each partition is billed by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from armillary import limits
from armillary.insight.planning.prices import Prices

_MILLION = 1_000_000
_ROUNDING = 1e-9


def _hundreds(ru: float) -> int:
    return math.ceil(ru / limits.THROUGHPUT_STEP_RU - _ROUNDING)


def manual_hours(prices: Prices, throughput_ru: float, hours: float, regions: int = 1) -> float:
    return _hundreds(throughput_ru) * prices.manual_100_ru_hour * hours * regions


def manual_month(prices: Prices, throughput_ru: float, regions: int = 1) -> float:
    return manual_hours(prices, throughput_ru, prices.month_hours, regions)


def autoscale_billed_ru(max_ru: float, partitions: int, busiest_ru: float) -> float:
    """What an hour is billed as: the engine's rule (`account/throughput/budgets.py`)."""
    return min(max_ru, max(max_ru / 10.0, partitions * busiest_ru))


def dynamic_billed_ru(max_ru: float, used_ru: Sequence[float]) -> float:
    """The same where each partition scales by itself."""
    share_ru = max_ru / len(used_ru)
    return math.fsum(min(share_ru, max(share_ru / 10.0, each)) for each in used_ru)


def autoscale_hours(prices: Prices, billed_ru: Iterable[float], regions: int = 1) -> float:
    """By the billed units of each hour."""
    return math.fsum(_hundreds(ru) * prices.autoscale_100_ru_hour for ru in billed_ru) * regions


def serverless(prices: Prices, consumed_ru: float, regions: int = 1) -> float:
    return consumed_ru / _MILLION * prices.serverless_million_ru * regions


def storage_month(prices: Prices, size_bytes: float, regions: int = 1) -> float:
    return size_bytes / limits.GB * prices.storage_gb_month * regions


def autoscale_pays_below(prices: Prices) -> float:
    """The mean of hourly peaks, as a share of the maximum, below which autoscale costs less than manual throughput."""
    return prices.manual_100_ru_hour / prices.autoscale_100_ru_hour


@dataclass(frozen=True, slots=True)
class ServerlessBreakEven:
    million_ru_month: float  # beyond which manual throughput costs less
    use_share: float  # the same as a share of what that throughput can do


def serverless_pays_below(prices: Prices, throughput_ru: float) -> ServerlessBreakEven:
    month = manual_month(prices, throughput_ru)
    consumed_ru = month / prices.serverless_million_ru * _MILLION if prices.serverless_million_ru else math.inf
    able_ru = throughput_ru * prices.month_hours * 3600.0
    return ServerlessBreakEven(consumed_ru / _MILLION, consumed_ru / able_ru)


@dataclass(frozen=True, slots=True)
class Bill:
    """A sum with its parts, never one number alone."""

    throughput: float
    storage: float
    prices: Prices

    @property
    def total(self) -> float:
        return self.throughput + self.storage

    def to_json(self) -> dict[str, Any]:
        return {
            "throughput": round(self.throughput, 2),
            "storage": round(self.storage, 2),
            "total": round(self.total, 2),
            "prices": self.prices.to_json(),
        }
