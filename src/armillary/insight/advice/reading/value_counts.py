"""How often each value of a path occurs, and with how many bytes: exactly up to 65,536 different values, then by the
sketches of Apache DataSketches, HyperLogLog for the number of values and frequent items for the largest. Values are
digests here (`leaf_columns.py`); the texts of the largest are remembered for reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.errors import bad_request
from armillary.insight.advice.reading.leaf_columns import Digests

try:
    import datasketches
except ImportError:  # pragma: no cover - the environment of the tests has the extra
    datasketches = None

EXACT_MAX: Final = 65_536
HLL_BITS: Final = 14  # standard error 1.04 / sqrt(2 ** 14) = 0.81 %
FREQUENT_BITS: Final = 10  # 1,024 values
NAMED: Final = 64  # the largest values, whose texts are kept
_NAMES_MAX: Final = 512
_NAME_CHARACTERS: Final = 128
_TWO_SIGMA: Final = 2


def require_sketches() -> None:
    if datasketches is None:
        raise bad_request("This needs datasketches, which is not installed: pip install 'armillary[foresight]'.")


class Estimate(NamedTuple):
    """A figure with the interval of its error."""

    value: float
    low: float
    high: float


class Counted(NamedTuple):
    """The values of a path, or of a candidate key: largest first."""

    digests: Digests
    rows: NDArray[np.float64]
    sizes: NDArray[np.float64]  # bytes


def counted(digests: Digests, sizes: NDArray[np.float64]) -> Counted:
    """Rows and bytes of each value."""
    values, inverse = np.unique(digests, return_inverse=True)
    rows = np.bincount(inverse, minlength=len(values)).astype(np.float64)
    sums = np.bincount(inverse, weights=sizes, minlength=len(values)).astype(np.float64)
    order = np.lexsort((values, -sums))
    return Counted(values[order], rows[order], sums[order])


class ValueCounts:
    def __init__(self, exact_max: int = EXACT_MAX) -> None:
        self._exact_max = exact_max
        self._values: Digests = np.empty(0, np.uint64)  # sorted
        self._rows = np.empty(0, np.float64)
        self._sizes = np.empty(0, np.float64)
        self._distinct: Any = None  # sketches, once there are too many values
        self._frequent: Any = None
        self.names: dict[int, Any] = {}

    @property
    def is_exact(self) -> bool:
        return self._distinct is None

    def add(self, digests: Digests, sizes: NDArray[np.float64], values: Sequence[Any]) -> None:
        """The values of a batch, with the sizes of their items."""
        if not len(digests):
            return
        new, first, inverse = np.unique(digests, return_index=True, return_inverse=True)
        rows = np.bincount(inverse, minlength=len(new)).astype(np.float64)
        sums = np.bincount(inverse, weights=sizes, minlength=len(new)).astype(np.float64)
        if self._distinct is None:
            self._add_exactly(new, rows, sums)
        else:
            self._add_to_sketches(new, sums)
        self._name(new, first, values)

    def _add_exactly(self, new: Digests, rows: NDArray[np.float64], sums: NDArray[np.float64]) -> None:
        at = np.searchsorted(self._values, new)
        is_known = np.zeros(len(new), bool)
        inside = at < len(self._values)
        is_known[inside] = self._values[at[inside]] == new[inside]
        self._rows[at[is_known]] += rows[is_known]
        self._sizes[at[is_known]] += sums[is_known]
        if not is_known.all():
            is_new = ~is_known
            self._rows = np.insert(self._rows, at[is_new], rows[is_new])
            self._sizes = np.insert(self._sizes, at[is_new], sums[is_new])
            self._values = np.insert(self._values, at[is_new], new[is_new])
        if len(self._values) > self._exact_max:
            require_sketches()
            self._distinct = datasketches.hll_sketch(HLL_BITS, datasketches.tgt_hll_type.HLL_8)
            self._frequent = datasketches.frequent_items_sketch(FREQUENT_BITS)
            self._add_to_sketches(self._values, self._sizes)
            self._values, self._rows, self._sizes = np.empty(0, np.uint64), np.empty(0), np.empty(0)

    def _add_to_sketches(self, new: Digests, sums: NDArray[np.float64]) -> None:
        distinct, frequent = self._distinct.update, self._frequent.update
        for value, size in zip(new.astype(np.int64).tolist(), sums.astype(np.int64).tolist(), strict=True):
            distinct(value)
            frequent(value, size)

    def _name(self, new: Digests, first: NDArray[np.int64], values: Sequence[Any]) -> None:
        """A value that is among the largest in the end is so when it is seen last: sums only grow."""
        largest = self.largest(NAMED)
        wanted = np.array([digest for digest, _ in largest], np.uint64)
        for index in np.flatnonzero(np.isin(new, wanted)).tolist():
            value = values[int(first[index])]
            self.names[int(new[index])] = value[:_NAME_CHARACTERS] if isinstance(value, str) else value
        if len(self.names) > _NAMES_MAX:
            kept = {digest for digest, _ in largest}
            self.names = {digest: name for digest, name in self.names.items() if digest in kept}

    def largest(self, count: int) -> list[tuple[int, float]]:
        """(digest, bytes) of the largest values. Of sketches the lower bounds."""
        if self._frequent is not None:
            listed = self._frequent.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES, 0)
            found = sorted((-low, digest) for digest, _, low, _ in listed)
            return [(digest, float(-low)) for low, digest in found[:count]]
        if len(self._sizes) > count:
            at = np.argpartition(-self._sizes, count)[:count]
        else:
            at = np.arange(len(self._sizes))
        order = sorted(at.tolist(), key=lambda index: (-self._sizes[index], self._values[index]))
        return [(int(self._values[index]), float(self._sizes[index])) for index in order]

    def distinct(self) -> Estimate:
        """How many different values there are, with the bounds of two standard errors."""
        if self._distinct is None:
            count = float(len(self._values))
            return Estimate(count, count, count)
        sketch = self._distinct
        low, high = sketch.get_lower_bound(_TWO_SIGMA), sketch.get_upper_bound(_TWO_SIGMA)
        return Estimate(sketch.get_estimate(), low, high)

    def all_values(self) -> Counted | None:
        """None: there are too many."""
        if self._distinct is not None:
            return None
        order = np.lexsort((self._values, -self._sizes))
        return Counted(self._values[order], self._rows[order], self._sizes[order])
