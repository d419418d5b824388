"""Rows: equal parts of a partition's range of effective keys. The history of load counts by rows, and a heat map lays
rows of one division onto those of another by their overlap.

Bounds are compared as numbers of the bytes in which the bounds of the range differ: the partitions of one tenant of a
hierarchical key share their first bytes, and are divided by those that follow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from armillary.model.keys import HASH_V2_MAX, KEY_BYTES_PER_LEVEL, SPACE_HIGH
from armillary.model.ranges import even_boundaries

_DIGITS = 8  # bytes behind the common ones that tell rows apart: 2**64 of them
_V2_END = (HASH_V2_MAX + 1).to_bytes(KEY_BYTES_PER_LEVEL, "big")


class Share(NamedTuple):
    """How much of a row lies in a row of another division."""

    row: int
    share: float


def key_space_end(high: bytes, version: int) -> bytes:
    """The end of the keys that there are: hashes of version 2 leave three quarters of the space up to FF empty."""
    return _V2_END if high == SPACE_HIGH and version != 1 else high


def row_bounds(low: bytes, high: bytes, count: int, version: int) -> list[bytes]:
    """The inner bounds of `count` equal parts of a range, ascending; fewer where the range is too narrow."""
    if version == 1 and not low and high == SPACE_HIGH:
        return even_boundaries(count, 1)
    end = key_space_end(high, version)
    prefix = _prefix(low, end)
    first, last = _digits(low, prefix), _digits(end, prefix)
    numbers = dict.fromkeys(first + (last - first) * part // count for part in range(1, count))
    bounds = [prefix + number.to_bytes(_DIGITS, "big") for number in numbers]
    return [bound for bound in bounds if low < bound < high]


def _prefix(low: bytes, high: bytes) -> bytes:
    """The bytes that both begin with."""
    length = next((at for at, (mine, other) in enumerate(zip(low, high, strict=False)) if mine != other), None)
    return low[: min(len(low), len(high)) if length is None else length]


def _digits(bound: bytes, prefix: bytes) -> int:
    """The number that the bytes of a bound are behind what it has in common with others."""
    return int.from_bytes(bound[len(prefix) : len(prefix) + _DIGITS].ljust(_DIGITS, b"\x00"), "big")


def shares(edges: Sequence[bytes], targets: Sequence[bytes]) -> list[list[Share]]:
    """For each row between two `edges`, how it lies over the rows between `targets`: shares that add up to 1. Rows
    beyond the ends of the targets belong to the first or last of them."""
    last_row = len(targets) - 2
    found: list[list[Share]] = []
    for low, high in pairwise(edges):
        first = min(max(0, bisect_right(targets, low) - 1), last_row)
        inner = [bound for bound in targets[first + 1 : -1] if low < bound < high]
        prefix = _prefix(low, high)
        cuts = [_digits(bound, prefix) for bound in (low, *inner, high)]
        width = cuts[-1] - cuts[0]
        if not inner or not width:
            found.append([Share(first, 1.0)])
            continue
        found.append([Share(first + index, (end - start) / width) for index, (start, end) in enumerate(pairwise(cuts))])
    return found
