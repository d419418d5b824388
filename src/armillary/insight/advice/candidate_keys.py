"""The values of a candidate key in the sample: rows and bytes of each, which is the largest, and where they lie in the
hash space. A path's values lie at their real hash. A composed key is a mix of the digests of its parts. A hierarchical
key lies at the hash of its first level; first levels that are large, or few, are spread over a stretch of their own,
since splits cut at the middle of the bytes, inside a first level too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.insight.advice.candidates import HIERARCHICAL, ID, SINGLE, SUFFIXED, Candidate, Part
from armillary.insight.advice.reading.data_profile import PathProfile, Profile
from armillary.insight.advice.reading.leaf_columns import Digests
from armillary.insight.advice.reading.row_times import part_text, parts_of
from armillary.insight.advice.reading.value_counts import Counted, counted
from armillary.insight.planning.distributions import HEAVIEST, chao1, enough_values, growth_exponent
from armillary.insight.planning.placement import PlacedKeys
from armillary.model.keys import parse_path

_BITS: Final = 62  # of a digest: the two top bits of a hash are clear
_MASK: Final = np.uint64(2**_BITS - 1)
_CELLS_BITS: Final = 12  # the many small keys are laid on so many stretches of equal width
_ALONE: Final = 2_000  # keys at their own place, where there are more than 10,000
_OPEN: Final = 0.1  # β of values that are mostly unseen
_PARTITION_ROWS: Final = 400  # of the sample, for the unevenness of partitions to be known within some 5 %
_KNOWN_ROWS: Final = 10  # of a value whose share is known
_SPREAD_POINTS: Final = 2**14  # of the hash space, for what lies evenly in a part of it
_GIANT: Final = 0.5  # of a partition, from which on a first level gets a stretch of its own
UNNAMED: Final = "…"  # the name of a value that the sample does not show


def mixed(first: Digests, second: Digests) -> Digests:
    """A digest of two (splitmix64)."""
    with np.errstate(over="ignore"):
        state = first * np.uint64(0x9E3779B97F4A7C15) + second
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (state ^ (state >> np.uint64(31))) & _MASK


class Written(NamedTuple):
    """The keys of writes: their first levels, and the whole keys."""

    first: Digests
    whole: Digests


class KeyValues:
    def __init__(self, profile: Profile, candidate: Candidate) -> None:
        self._profile = profile
        self.candidate = candidate
        self.parts = [self._part(part) for part in candidate.parts]
        self.first = self.parts[0]
        self.digests = self._whole(self.parts)
        exact = None
        if candidate.kind == SINGLE:
            found = profile.paths.get(candidate.parts[0].path)
            exact = found.counts.all_values() if found is not None and found.present == profile.rows else None
        self._placed: dict[int, PlacedKeys] = {}
        self.weights = np.ones(profile.sampled)  # of the rows, where the shares of first levels are others later
        self.counted = exact if exact is not None else counted(self.digests, profile.reservoir.sizes)
        self.is_unique = len(self.counted.digests) == profile.sampled and ID in candidate.paths

    def _whole(self, parts: list[Digests]) -> Digests:
        if self.candidate.kind == SUFFIXED:
            item_id = self._profile.reservoir.column(("id",))
            return mixed(parts[0], item_id % np.uint64(self.candidate.suffixes) + np.uint64(1))
        digests = parts[0]
        for part in parts[1:]:
            digests = mixed(digests, part)
        return digests

    def _part(self, part: Part) -> Digests:
        steps = parse_path(part.path)
        if part.grain is None:
            return self._profile.reservoir.column(steps)
        seconds = self._profile.reservoir.times(steps)
        return parts_of(seconds, part.grain) if seconds is not None else self._profile.reservoir.column(steps)

    def of(self, values: Mapping[str, Digests]) -> Digests | None:
        """The keys of requests whose values are known by path; None: not all paths are."""
        if any(part.path not in values or part.grain is not None for part in self.candidate.parts):
            return None
        if self.candidate.kind == SUFFIXED:
            if ID not in values:
                return None
            return mixed(values[self.candidate.parts[0].path], values[ID] % np.uint64(self.candidate.suffixes))
        digests: Digests = values[self.candidate.parts[0].path]
        for part in self.candidate.parts[1:]:
            digests = mixed(digests, values[part.path])
        return digests

    def at_one_moment(self, clock: str, now: int) -> Digests:
        """The keys that are written at one moment, when a part of them that is the time of writing has this value: the
        other parts are those of all rows. Of a hierarchical key the levels behind that part lie beside each other."""
        parts: list[Digests] = []
        for part, column in zip(self.candidate.parts, self.parts, strict=True):
            is_clock = part.path == clock and (part.grain is None or len(self.candidate.parts) == 1)
            parts.append(np.full(len(column), now, np.uint64) if is_clock else column)
            if is_clock and self.candidate.kind == HIERARCHICAL:
                break
        return self._whole(parts)

    # Names for reports.

    def name(self, digest: int) -> str:
        """A value as text: that of each part, joined as the key is."""
        at = np.flatnonzero(self.digests == np.uint64(digest))
        if self.candidate.kind == SINGLE or not len(at):
            return self._part_name(self.candidate.parts[0], digest, None)
        row = int(at[0])
        names = [
            self._part_name(part, int(column[row]), row)
            for part, column in zip(self.candidate.parts, self.parts, strict=True)
        ]
        if self.candidate.kind == SUFFIXED:
            names.append(f"0..{self.candidate.suffixes - 1}")
        return (", " if self.candidate.kind == HIERARCHICAL else "-").join(names)

    def _part_name(self, part: Part, digest: int, row: int | None) -> str:
        steps = parse_path(part.path)
        if part.grain is not None and row is not None:
            seconds = self._profile.reservoir.times(steps)
            return part_text(float(seconds[row]), part.grain) if seconds is not None else "?"
        if digest == 0:
            return "(no value)"
        found = self._profile.paths.get(part.path)
        value = found.counts.names.get(digest) if found is not None else None
        return UNNAMED if value is None else value if isinstance(value, str) else json.dumps(value)

    @property
    def paths(self) -> list[PathProfile | None]:
        return [self._profile.paths.get(path) for path in self.candidate.paths]

    def release(self) -> None:
        """Give the memory of the sample's values back, once all figures are computed: there are many candidates."""
        empty = np.empty(0, np.uint64)
        self.first = self.digests = empty
        self.weights = np.empty(0)
        self.parts, self._placed = [], {}
        self.counted = Counted(empty, np.empty(0), np.empty(0))

    # Where the values lie.

    @property
    def placing(self) -> Digests:
        """What decides where a row lies: of a hierarchical key the first level."""
        return self.first if self.candidate.kind == HIERARCHICAL else self.digests

    def placed(self, partitions: int) -> PlacedKeys:
        """The stored bytes in the hash space, for a container that has about so many partitions by storage."""
        if partitions not in self._placed:
            if self.candidate.kind == HIERARCHICAL:
                sizes = self._profile.reservoir.sizes * self.weights
                self._placed[partitions] = self._placed_by_levels(self.first, self.digests, sizes, partitions)
            else:
                self._placed[partitions] = self._placed_alone(self.counted, partitions)
        return self._placed[partitions]

    def _placed_alone(self, found: Counted, partitions: int) -> PlacedKeys:
        """Each value at its own hash; of a thin sample only the heavy ones."""
        if self._is_thin(found.rows, partitions):
            return placed_at(found.digests, found.sizes, found.rows >= _KNOWN_ROWS)
        return placed_at(found.digests, found.sizes)

    def placed_requests(self, first: Digests, whole: Digests, partitions: int) -> PlacedKeys:
        """The keys of requests: their first levels and whole keys."""
        if self.candidate.kind == HIERARCHICAL:
            return self._placed_by_levels(first, whole, np.ones(len(first)), partitions)
        return self._placed_alone(counted(whole, np.ones(len(whole))), partitions)

    def _placed_by_levels(
        self, first: Digests, whole: Digests, sizes: NDArray[np.float64], partitions: int
    ) -> PlacedKeys:
        giants, widths = self._giants(partitions)
        if not len(giants):
            return self._placed_alone(counted(first, sizes), partitions)
        before = np.concatenate(([0.0], np.cumsum(widths)))
        places = first.astype(np.float64) / 2**_BITS
        starts = places * (1.0 - before[-1]) + before[np.searchsorted(giants, first)]
        positions = starts.copy()
        within = whole.astype(np.float64) / 2**_BITS
        is_spread = ~self._known_rows(whole, partitions)
        evenly: list[tuple[bytes, float]] = []
        total = max(1.0, float(sizes.sum()))
        for index, giant in enumerate(giants):
            own = first == giant
            positions[own] += within[own] * widths[index]
            spread = own & is_spread
            if spread.any():
                evenly += _evenly(float(starts[spread][0]), float(widths[index]), float(sizes[spread].sum()) / total)
                is_spread &= ~own
                sizes = np.where(spread, 0.0, sizes)
        lesser = is_spread & ~np.isin(first, giants) & ~self._known_rows(first, partitions)
        if lesser.any():
            ends = _starts_of(giants, widths) + widths
            share = float(sizes[lesser].sum()) / total
            evenly += _between(_starts_of(giants, widths), ends, share)
            sizes = np.where(lesser, 0.0, sizes)
        numbers = (np.minimum(positions, 1.0 - 1e-9) * 2**_BITS).astype(np.uint64)
        found = counted(numbers[sizes > 0], sizes[sizes > 0])
        return placed_at(found.digests, found.sizes, whole=total, further=evenly)

    def _known_rows(self, whole: Digests, partitions: int) -> NDArray[np.bool_]:
        """Rows whose key is known to lie where it does. Of a sample with few rows for each partition, only those of
        heavy keys: the others would look uneven because they are few here."""
        _, inverse, rows = np.unique(whole, return_inverse=True, return_counts=True)
        if not self._is_thin(rows.astype(np.float64), partitions):
            return np.ones(len(whole), bool)
        found: NDArray[np.bool_] = (rows >= _KNOWN_ROWS)[inverse]
        return found

    def _is_thin(self, rows: NDArray[np.float64], partitions: int) -> bool:
        """Whether the sample has few rows for each partition, of keys that are mostly unseen; `rows` are those of each
        key."""
        half = float((1.0 - 0.5 ** np.minimum(rows, 1000.0)).sum())
        is_open = growth_exponent(half, float(len(rows))) >= _OPEN
        return is_open and self._profile.sampled < _PARTITION_ROWS * partitions

    def _giants(self, partitions: int) -> tuple[Digests, NDArray[np.float64]]:
        """First levels that get a stretch of their own, in the order of their hashes, with their shares: those larger
        than half a partition, and all of them if they are too few to lie evenly by their hashes."""
        levels = counted(self.first, self._profile.reservoir.sizes * self.weights)
        shares = levels.sizes / max(1.0, float(levels.sizes.sum()))
        if partitions == 1:
            is_giant = np.zeros(len(shares), bool)
        elif _all_values(levels) < enough_values(partitions):
            is_giant = np.ones(len(shares), bool)
        else:
            # A few rows of a thin sample are a large share by chance.
            is_thin = self._is_thin(levels.rows, partitions)
            is_giant = (shares * partitions >= _GIANT) & ((levels.rows >= _KNOWN_ROWS) | (not is_thin))
        order = np.argsort(levels.digests[is_giant])
        return levels.digests[is_giant][order], shares[is_giant][order]


def _all_values(found: Counted) -> float:
    """How many values there are, those that the sample has not among them."""
    return chao1(len(found.rows), int((found.rows == 1).sum()), int((found.rows == 2).sum()))


def placed_at(
    digests: Digests,
    sizes: NDArray[np.float64],
    is_known: NDArray[np.bool_] | None = None,
    *,
    whole: float | None = None,
    further: Sequence[tuple[bytes, float]] = (),
) -> PlacedKeys:
    """The heaviest values one by one, at their hashes; the others added up on stretches of equal width. `digests` have
    the heaviest first. Those that are not known lie evenly. `further` are places with their shares of `whole`."""
    whole = float(sizes.sum()) if whole is None else whole
    if is_known is not None:
        digests, sizes = digests[is_known], sizes[is_known]
    rest = max(0.0, 1.0 - float(sizes.sum()) / whole) if is_known is not None and whole else 0.0
    alone = HEAVIEST if len(digests) <= HEAVIEST else _ALONE
    placed = [
        (digest.to_bytes(8, "big"), size / whole)
        for digest, size in zip(digests[:alone].tolist(), sizes[:alone].tolist(), strict=True)
    ]
    if len(digests) > alone:
        cells = (digests[alone:] >> np.uint64(_BITS - _CELLS_BITS)).astype(np.int64)
        sums = np.bincount(cells, weights=sizes[alone:], minlength=2**_CELLS_BITS) / whole
        shift = _BITS - _CELLS_BITS
        placed += [((cell << shift).to_bytes(8, "big"), share) for cell, share in enumerate(sums.tolist()) if share]
    return PlacedKeys.at([*placed, *further], rest)


def _starts_of(giants: Digests, widths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where the stretches of first levels begin, in the order of their hashes; the others share what is left."""
    before = np.cumsum(widths) - widths
    found: NDArray[np.float64] = giants.astype(np.float64) / 2**_BITS * (1.0 - float(widths.sum())) + before
    return found


def _between(starts: NDArray[np.float64], ends: NDArray[np.float64], share: float) -> Iterator[tuple[bytes, float]]:
    """A share spread over the hash space outside of stretches."""
    gaps = np.maximum(0.0, np.append(starts, 1.0) - np.concatenate(([0.0], ends)))
    left = float(gaps.sum())
    for start, width in zip(np.concatenate(([0.0], ends)).tolist(), gaps.tolist(), strict=True):
        if width > 0.0 and left > 0.0:
            yield from _evenly(start, width, share * width / left)


def _evenly(start: float, width: float, share: float) -> Iterator[tuple[bytes, float]]:
    """A share spread over a stretch of the hash space."""
    points = max(1, math.ceil(width * _SPREAD_POINTS))
    for point in range(points):
        place = min(1.0 - 1e-9, start + width * (point + 0.5) / points)
        yield int(place * 2**_BITS).to_bytes(8, "big"), share / points
