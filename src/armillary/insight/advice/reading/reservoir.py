"""A uniform sample of items of bounded size (Vitter's algorithm R, a batch at a time). Of an item only the digests of
its leaf values are kept, with its size: 200,000 whole items would not fit into memory, and everything that concerns
several paths at once is computed from digests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from armillary.insight.advice.reading.leaf_columns import MISSING, Digests, Steps

ROWS_DEFAULT: Final = 200_000
ROWS_MAX: Final = 2_000_000


class Reservoir:
    def __init__(self, capacity: int, seed: int) -> None:
        self.capacity = capacity
        self.seen = 0
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._columns: dict[Steps, Digests] = {}
        self._times: dict[Steps, NDArray[np.float64]] = {}
        self._sizes: NDArray[Any] = np.zeros(0)

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    @property
    def is_complete(self) -> bool:
        """Whether it holds every item that was seen."""
        return self.seen <= self.capacity

    def places(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For a batch of so many items: which of them are taken, and the places that they get. To be called once a
        batch, before `put`."""
        numbers = np.arange(self.seen, self.seen + count, dtype=np.int64)
        places = numbers.copy()
        late = numbers >= self.capacity
        places[late] = np.floor(self._random.random(int(late.sum())) * (numbers[late] + 1)).astype(np.int64)
        taken = np.flatnonzero(places < self.capacity)
        # Of several items for one place the last one stays.
        _, last = np.unique(places[taken][::-1], return_index=True)
        taken = np.sort(taken[len(taken) - 1 - last])
        self.seen += count
        return taken, places[taken]

    def put_sizes(self, places: NDArray[np.int64], sizes: NDArray[np.float64]) -> None:
        self._sizes = self._grown(self._sizes, 0.0)
        self._sizes[places] = sizes

    def put(self, steps: Steps, places: NDArray[np.int64], digests: Digests) -> None:
        """The digests of the taken items at one path; MISSING where they have no value there."""
        column = self._grown(self._columns.get(steps, np.zeros(0, np.uint64)), MISSING)
        column[places] = digests
        self._columns[steps] = column

    def put_times(self, steps: Steps, places: NDArray[np.int64], seconds: NDArray[np.float64]) -> None:
        column = self._grown(self._times.get(steps, np.zeros(0)), np.nan)
        column[places] = seconds
        self._times[steps] = column

    def forget_times(self, steps: Steps) -> None:
        self._times.pop(steps, None)

    def _grown(self, column: NDArray[Any], filling: float) -> NDArray[Any]:
        """With room for all items so far. It doubles, so that a small source takes little."""
        if len(column) >= len(self):
            return column
        size = min(self.capacity, max(len(self), 2 * len(column), 4_096))
        grown = np.full(size, filling, column.dtype)
        grown[: len(column)] = column
        return grown

    # What it holds.

    @property
    def sizes(self) -> NDArray[np.float64]:
        return self._sizes[: len(self)]

    def column(self, steps: Steps) -> Digests:
        column = self._columns.get(steps)
        return np.zeros(len(self), np.uint64) if column is None else self._grown(column, MISSING)[: len(self)]

    def times(self, steps: Steps) -> NDArray[np.float64] | None:
        """Seconds since 1970; NaN where an item has no time."""
        column = self._times.get(steps)
        return None if column is None else self._grown(column, np.nan)[: len(self)]

    def has(self, steps: Steps) -> bool:
        return steps in self._columns

    @property
    def paths(self) -> Mapping[Steps, Digests]:
        return self._columns
