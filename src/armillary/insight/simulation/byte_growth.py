"""The bytes of a simulation: what each key and partition takes and loses in a block of steps, when the first of them is
full, and what expires. What was written is kept by age in up to 64 slots; a slot leaves evenly over its length. Data
that is there at the start is of all ages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from armillary.insight.simulation.budgets import Served
from armillary.insight.simulation.key_space import Amounts, Indexes, KeySpace, Numbers
from armillary.insight.simulation.range_map import RangeMap

FULL_SHARE: Final = 1.0 - 1e-9  # of the limit, from which on a key counts as full
_SLOTS: Final = 64
_ROUNDING: Final = 1e-9


@dataclass(slots=True)
class Stored:
    """Bytes of each key, and of the mass of small ones."""

    keys: Numbers
    mass: float
    limit_bytes: float  # of one key
    is_full: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def by_partition(self, space: KeySpace, bounds: Numbers) -> Numbers:
        return space.by_partition(self.keys, self.mass, bounds)


class Growth:
    """Of a block of steps. `adding` and `leaving` are bytes a second, the former at factor 1."""

    def __init__(
        self,
        space: KeySpace,
        ranges: RangeMap,
        stored: Stored,
        adding: Amounts,
        leaving: Amounts,
        served: Served,
        factors: Numbers,
        step_s: float,
    ) -> None:
        self._ranges, self._stored, self._leaving = ranges, stored, leaving
        self._ages = np.arange(1, len(factors) + 1) * step_s
        # Seconds of load at factor 1 that were served by the end of each step: of all, and of each hot partition.
        whole = np.cumsum(factors) * step_s
        hot = np.cumsum(factors * (1.0 - served.failed), axis=1) * step_s
        self._served = np.vstack((whole, hot))
        self._row = np.zeros(ranges.count, dtype=np.int64)
        self._row[served.hot] = np.arange(1, len(served.hot) + 1)
        self._key_row = self._row[space.partition_of(ranges.bounds)]
        self._widths = np.diff(ranges.bounds)
        self._adding = adding
        self._rate = space.by_partition(adding.keys, adding.rest, ranges.bounds)
        self._loss = space.by_partition(leaving.keys, leaving.rest, ranges.bounds)
        self._bytes = stored.by_partition(space, ranges.bounds)

    def steps_until_full(self, partition_bytes: int) -> int:
        """The steps of the block, up to the one in which a key or a partition is full."""
        limits_bytes = np.full(self._ranges.count, float(partition_bytes))
        for index, low in enumerate(self._ranges.bounds[:-1].tolist()):
            if low in self._ranges.running:
                limits_bytes[index] = np.inf
            elif low in self._ranges.outgrown:
                limits_bytes[index] = max(limits_bytes[index], self._ranges.outgrown[low])
        stored = self._stored
        open_limit = np.where(stored.is_full, np.inf, stored.limit_bytes * FULL_SHARE)
        return min(
            self._first(self._bytes, self._rate, self._loss, self._row, limits_bytes),
            self._first(stored.keys, self._adding.keys, self._leaving.keys, self._key_row, open_limit),
        )

    def _first(self, begin: Numbers, rate: Numbers, loss: Numbers, row: Indexes, limit: Numbers) -> int:
        """The number of steps after which the first of these has reached its limit; all steps, if none does."""
        steps = len(self._ages)
        near = np.flatnonzero((begin + rate * self._served[row, -1] >= limit) & (rate > 0.0))
        if not len(near):
            return steps
        course = (begin[near, None] + rate[near, None] * self._served[row[near]]) - loss[near, None] * self._ages
        reached = (course >= limit[near, None]).any(axis=0)
        return int(np.argmax(reached)) + 1 if reached.any() else steps

    def total_before(self, steps: int) -> Numbers:
        """All bytes at the beginning of each step."""
        by_row = np.bincount(self._row, weights=self._rate, minlength=len(self._served))
        grown = by_row @ self._served - float(self._loss.sum()) * self._ages
        begin = float(self._bytes.sum())
        return np.maximum(0.0, begin + np.concatenate(([0.0], grown[: steps - 1])))

    def written_in(self, steps: int) -> Amounts:
        served = self._served[:, steps - 1]
        return Amounts(
            self._adding.keys * served[self._key_row], self._adding.rest * float(self._widths @ served[self._row])
        )

    def store(self, steps: int) -> None:
        """Add and remove the bytes of so many steps."""
        stored, written, age = self._stored, self.written_in(steps), float(self._ages[steps - 1])
        stored.keys = np.clip(stored.keys + written.keys - self._leaving.keys * age, 0.0, stored.limit_bytes)
        stored.mass = max(0.0, stored.mass + written.rest - self._leaving.rest * age)


class Expiry:
    def __init__(self, ttl_s: float, step_s: float, stored: Amounts) -> None:
        # Whole steps, so that a block of steps ends where a slot does.
        self.slot_s = max(1, round(ttl_s / _SLOTS / step_s)) * step_s
        self._count = max(1, round(ttl_s / self.slot_s))
        self._nothing = Amounts(0.0 * stored.keys, 0.0)
        each = Amounts(stored.keys / self._count, stored.rest / self._count)
        self._slots = dict.fromkeys(range(-self._count, 0), each)

    def rates(self, now_s: float) -> Amounts:
        """Bytes that leave a second."""
        slot = self._slot(now_s)
        leaving = self._slots.get(slot - self._count, self._nothing)
        return Amounts(leaving.keys / self.slot_s, leaving.rest / self.slot_s)

    def add(self, now_s: float, written: Amounts) -> None:
        """Bytes written since the last call, in the slot of this time."""
        slot = self._slot(now_s)
        known = self._slots.get(slot)
        if known is None:
            self._slots[slot] = written
            for old in [each for each in self._slots if each < slot - self._count]:
                del self._slots[old]
        else:
            known.add(written.keys, written.rest)

    def next_turn_s(self, now_s: float) -> float:
        return (self._slot(now_s) + 1) * self.slot_s

    def _slot(self, now_s: float) -> int:
        return math.floor(now_s / self.slot_s + _ROUNDING)
