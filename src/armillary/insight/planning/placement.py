"""Where keys lie: values at their real hash, on N even partitions or on partitions with given bounds. The hash is the
engine's own (`model/keys.py`). A hierarchical key lies where the hash of its first level says, and its further levels
order it inside that place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

from armillary.insight.planning.distributions import KeyShares, KeyValue
from armillary.model.keys import (
    HASH,
    HASH_V1_MAX,
    HASH_V2_MAX,
    KEY_BYTES_PER_LEVEL,
    MULTI_HASH,
    SPACE_HIGH,
    SPACE_LOW,
    PartitionKeyDefinition,
)
from armillary.model.ranges import even_boundaries, number_v1

_BY_LEVELS = {
    1: PartitionKeyDefinition(("/a",), HASH, 2),
    2: PartitionKeyDefinition(("/a", "/b"), MULTI_HASH, 2),
    3: PartitionKeyDefinition(("/a", "/b", "/c"), MULTI_HASH, 2),
}
_V1 = PartitionKeyDefinition(("/a",), HASH, 1)
_TEXTS_KNOWN = 32_768  # whose place is remembered: a simulation asks for the same keys again and again


def place_of(value: KeyValue, version: int = 2) -> bytes:
    """The effective partition key of a value, or of the values of all levels of a hierarchical key."""
    if isinstance(value, str):  # only texts: a cache takes 1, 1.0 and true for one value
        return _place_of_text(value, version)
    return _place_of(value, version)


@lru_cache(maxsize=_TEXTS_KNOWN)
def _place_of_text(value: str, version: int) -> bytes:
    return _place_of(value, version)


def _place_of(value: KeyValue, version: int) -> bytes:
    parts = value if isinstance(value, tuple) else (value,)
    definition = _V1 if version == 1 else _BY_LEVELS[len(parts)]
    return definition.effective_key(definition.key_of_parts(parts))


def even_bounds(partitions: int, version: int = 2) -> list[bytes]:
    """The lower bounds of so many equal partitions, as a new container has them."""
    return list(_even_bounds(partitions, version))


@lru_cache(maxsize=256)
def _even_bounds(partitions: int, version: int) -> tuple[bytes, ...]:
    return (SPACE_LOW, *even_boundaries(partitions, version))


def widths(bounds: Sequence[bytes], version: int = 2) -> list[float]:
    """The share of the hash space that each partition has, by their lower bounds."""
    places = [*(position(bound, version) for bound in bounds), 1.0]
    return [high - low for low, high in pairwise(places)]


def position(bound: bytes, version: int = 2) -> float:
    """How far through the hash space an effective key or a bound lies, from 0 to 1; of a hierarchical key, its first
    level."""
    if version == 1:
        return number_v1(bound) / HASH_V1_MAX
    first = bound[:KEY_BYTES_PER_LEVEL].ljust(KEY_BYTES_PER_LEVEL, b"\x00")
    return int.from_bytes(first, "big") / HASH_V2_MAX


@dataclass(frozen=True, slots=True)
class PlacedKeys:
    """Keys in the order of the hash space, to be laid on any number of partitions without hashing again."""

    places: tuple[bytes, ...]
    shares: tuple[float, ...]
    _sums: tuple[float, ...]  # of the shares before each place, and of all
    rest_share: float  # lies evenly by width
    version: int

    @classmethod
    def of(cls, keys: KeyShares, version: int = 2) -> PlacedKeys:
        return cls.at(((place_of(value, version), share) for value, share in keys.named), keys.rest_share, version)

    @classmethod
    def at(cls, placed: Iterable[tuple[bytes, float]], rest_share: float = 0.0, version: int = 2) -> PlacedKeys:
        """For keys whose hash is known, such as digests of a capture."""
        ordered = sorted(placed)
        sums = tuple(accumulate((share for _, share in ordered), initial=0.0))
        places, shares = (tuple(each) for each in zip(*ordered, strict=True)) if ordered else ((), ())
        return cls(places, shares, sums, rest_share, version)

    def on(self, bounds: Sequence[bytes]) -> list[float]:
        """The share of each partition, by their lower bounds."""
        cuts = [0, *(bisect_left(self.places, bound) for bound in bounds[1:]), len(self.places)]
        named = [self._sums[high] - self._sums[low] for low, high in pairwise(cuts)]
        if not self.rest_share:
            return named
        return [own + self.rest_share * width for own, width in zip(named, widths(bounds, self.version), strict=True)]

    def on_even(self, partitions: int) -> list[float]:
        return self.on(_even_bounds(partitions, self.version))


def lay(weights: Mapping[KeyValue, float], bounds: Sequence[bytes], version: int = 2) -> list[float]:
    """What each partition holds of weights by value: rows, bytes or request units."""
    laid = [0.0] * len(bounds)
    for value, weight in weights.items():
        laid[partition_of(place_of(value, version), bounds)] += weight
    return laid


def partition_of(place: bytes, bounds: Sequence[bytes]) -> int:
    """Which partition has an effective key, by their lower bounds."""
    return bisect_right(bounds, place) - 1


def fullest_of_fair(laid: Sequence[float]) -> float:
    """How many times its fair share the fullest partition has."""
    whole = sum(laid)
    return max(laid) * len(laid) / whole if whole else 1.0


def prefix_bounds(prefix: KeyValue) -> tuple[bytes, bytes]:
    """The range of the hash space that all keys with the first levels `prefix` lie in: [low, high)."""
    low = place_of(prefix)
    return low, low + SPACE_HIGH
