"""Distributions of keys: Zipf shares, how uneven shares are (effective keys, Gini, Kish), intervals of shares that were
sampled (Wilson), and how many distinct values there are or will be (Chao1, growth). Pure functions of numbers; where
keys lie is left to `placement.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from armillary.model.keys import KeyComponent

KeyValue: TypeAlias = "KeyComponent | tuple[KeyComponent, ...]"  # of a hierarchical key, all levels

HEAVIEST: Final = 10_000  # keys that are known one by one; the rest is a mass
WILSON_95: Final = 1.959964
# Powers are added up to here; beyond, Euler-Maclaurin with two terms is exact to some 1e-12 of the sum.
_SUMMED: Final = 1_000


def power_sum(count: int, exponent: float) -> float:
    """The sum of k ** -exponent for k from 1 to `count`: the generalised harmonic number for a positive exponent."""
    summed = min(count, _SUMMED)
    total = math.fsum(float(k) ** -exponent for k in range(1, summed + 1))
    if count == summed:
        return total
    low, high = float(summed), float(count)
    if exponent == 1.0:
        integral: float = math.log(high / low)
    else:
        integral = (high ** (1.0 - exponent) - low ** (1.0 - exponent)) / (1.0 - exponent)
    ends: float = (high**-exponent - low**-exponent) / 2.0
    slopes: float = -exponent * (high ** (-exponent - 1.0) - low ** (-exponent - 1.0)) / 12.0
    return total + integral + ends + slopes


@dataclass(frozen=True, slots=True)
class Zipf:
    """The k-th heaviest of `count` keys has a share in proportion to k ** -exponent. An exponent of 0 is even."""

    count: int
    exponent: float

    def share(self, rank: int) -> float:
        return float(rank**-self.exponent) / power_sum(self.count, self.exponent)

    def top_share(self, ranks: int) -> float:
        """What the heaviest so many have together."""
        return power_sum(min(ranks, self.count), self.exponent) / power_sum(self.count, self.exponent)

    def effective_keys(self) -> float:
        return power_sum(self.count, self.exponent) ** 2 / power_sum(self.count, 2 * self.exponent)

    def gini(self) -> float:
        whole = power_sum(self.count, self.exponent)
        ranked = power_sum(self.count, self.exponent - 1.0)
        return (self.count + 1) / self.count - 2.0 * ranked / (self.count * whole)


@dataclass(frozen=True, slots=True)
class KeyShares:
    """Shares of bytes or of load by partition key, which add up to 1: the heaviest keys with their values, heaviest
    first, and the rest as a mass of so many small ones that lies evenly over the hash space."""

    named: tuple[tuple[KeyValue, float], ...]
    rest_share: float = 0.0
    rest_count: int = 0
    zipf: Zipf | None = None  # where the shares follow one, the figures below are exact

    @classmethod
    def of_zipf(cls, count: int, exponent: float, heaviest: int = HEAVIEST) -> KeyShares:
        """Keys named k1, k2, … from the heaviest on."""
        whole = power_sum(count, exponent)
        named = tuple((f"k{rank}", rank**-exponent / whole) for rank in range(1, min(count, heaviest) + 1))
        rest = max(0.0, 1.0 - math.fsum(share for _, share in named)) if count > heaviest else 0.0
        return cls(named, rest, count - len(named), Zipf(count, exponent))

    @classmethod
    def of_weights(cls, weights: Mapping[KeyValue, float], heaviest: int = HEAVIEST) -> KeyShares:
        """From bytes, counts or shares by key; they need not add up to 1."""
        whole = math.fsum(weights.values())
        assert whole > 0, "shares of nothing"
        ordered = sorted(weights.items(), key=lambda each: -each[1])
        named = tuple((value, weight / whole) for value, weight in ordered[:heaviest])
        rest = math.fsum(weight for _, weight in ordered[heaviest:]) / whole
        return cls(named, rest, max(0, len(ordered) - heaviest))

    @property
    def count(self) -> int:
        return len(self.named) + self.rest_count

    @property
    def largest(self) -> float:
        """p_max: the share of the heaviest key."""
        return self.named[0][1] if self.named else self._rest_each

    def top_share(self, ranks: int) -> float:
        beyond = max(0, min(ranks - len(self.named), self.rest_count))
        return math.fsum(share for _, share in self.named[:ranks]) + beyond * self._rest_each

    def effective_keys(self) -> float:
        if self.zipf is not None:
            return self.zipf.effective_keys()
        squares = math.fsum(share * share for _, share in self.named)
        return 1.0 / (squares + self.rest_count * self._rest_each**2)

    def gini(self) -> float:
        if self.zipf is not None:
            return self.zipf.gini()
        return gini([*(share for _, share in self.named), *[self._rest_each] * self.rest_count])

    @property
    def _rest_each(self) -> float:
        return self.rest_share / self.rest_count if self.rest_count else 0.0


def effective_keys(weights: Iterable[float]) -> float:
    """How many keys of equal weight would be as uneven: 1 over the sum of squared shares."""
    known = list(weights)
    whole = math.fsum(known)
    return whole * whole / math.fsum(weight * weight for weight in known)


def kish(weights: Iterable[float]) -> float:
    """Kish's effective size of a sample whose rows weigh differently. The formula is that of effective keys."""
    return effective_keys(weights)


def gini(weights: Sequence[float]) -> float:
    """0: all weigh the same; towards 1: one weighs all."""
    count = len(weights)
    ranked = math.fsum(rank * weight for rank, weight in enumerate(sorted(weights), 1))
    return 2.0 * ranked / (count * math.fsum(weights)) - (count + 1) / count


def top_share(weights: Iterable[float], ranks: int) -> float:
    ordered = sorted(weights, reverse=True)
    return math.fsum(ordered[:ranks]) / math.fsum(ordered)


# What a sample says about the whole.


class Interval(NamedTuple):
    low: float
    high: float


def wilson(share: float, rows: float, z: float = WILSON_95) -> Interval:
    """The interval of a share that was seen in a sample of so many rows (Kish's number where rows weigh their
    bytes)."""
    if rows <= 0:
        return Interval(0.0, 1.0)
    spread = z * z / rows
    middle = (share + spread / 2.0) / (1.0 + spread)
    half = z / (1.0 + spread) * math.sqrt(share * (1.0 - share) / rows + spread / (4.0 * rows))
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return Interval(0.0 if share == 0.0 else low, 1.0 if share == 1.0 else high)


def unseen_share_max(rows: int) -> float:
    """The share that a value may have, with 95 % confidence, if it is in none of so many rows."""
    return min(1.0, 3.0 / rows) if rows else 1.0


def chao1(distinct: int, seen_once: int, seen_twice: int) -> float:
    """A lower bound of the distinct values of the whole."""
    if seen_twice == 0:
        return distinct + seen_once * (seen_once - 1) / 2.0
    return distinct + seen_once**2 / (2.0 * seen_twice)


def growth_exponent(distinct_in_half: float, distinct: float) -> float:
    """β of distinct values in proportion to rows ** β: 0 is a closed set, 1 a new value in each row."""
    if distinct_in_half <= 0 or distinct <= 0:
        return 0.0
    return min(1.0, max(0.0, math.log2(distinct / distinct_in_half)))


def distinct_at(distinct: float, times: float, exponent: float) -> float:
    """Distinct values when there is so many times the data."""
    return float(distinct * times**exponent)


def enough_values(partitions: int) -> int:
    """Distinct values of equal weight from which on the fullest partition is expected below 1.5 times its share."""
    return math.ceil(8.0 * (partitions - 1) * math.log(partitions)) if partitions > 1 else 1


def expected_fullest(partitions: int, distinct: float) -> float:
    """How many times its fair share the fullest partition holds, if values have equal weight."""
    return 1.0 + math.sqrt(2.0 * math.log(partitions) * (partitions - 1) / distinct) if partitions > 1 else 1.0
