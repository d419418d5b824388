"""The physical partitions of a container as ranges of effective keys that tile the whole space.

A `PartitionMap` is immutable: splitting or merging makes a new one. This module finds the range that owns a key and
computes boundaries; copying data is left to `partition/reshaping`, deciding when to `account/reshaping`.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from armillary.errors import Failure, Kind
from armillary.model.keys import (
    HASH_V1_MAX,
    HASH_V2_MAX,
    KEY_BYTES_PER_LEVEL,
    SPACE_HIGH,
    SPACE_LOW,
    encode_number_v1,
)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """One physical partition: the items whose effective key is in [low, high)."""

    id: int
    low: bytes
    high: bytes
    parents: tuple[int, ...]  # all ancestors, oldest first
    store: int

    def contains(self, epk: bytes) -> bool:
        return self.low <= epk < self.high


class PartitionMap:
    """The live ranges of a container, in the order of their keys, with neither gap nor overlap."""

    __slots__ = ("_by_id", "_lows", "ranges")

    def __init__(self, ranges: Iterable[KeyRange]) -> None:
        self.ranges: tuple[KeyRange, ...] = tuple(sorted(ranges, key=lambda key_range: key_range.low))
        self._lows = [key_range.low for key_range in self.ranges]
        self._by_id = {key_range.id: key_range for key_range in self.ranges}
        self._check()

    def _check(self) -> None:
        reached = SPACE_LOW
        for key_range in self.ranges:
            if key_range.low != reached or key_range.high <= key_range.low:
                raise Failure(
                    Kind.CORRUPT,
                    f"Partition key range {key_range.id} is [{key_range.low.hex().upper()},"
                    f" {key_range.high.hex().upper()}) where one from {reached.hex().upper() or 'the lowest key'} on is"
                    " needed; run `armillary check`.",
                )
            reached = key_range.high
        if reached != SPACE_HIGH or len(self._by_id) != len(self.ranges):
            raise Failure(
                Kind.CORRUPT,
                "The partition key ranges do not cover the space of keys up to FF, or share an id; run"
                " `armillary check`.",
            )

    def find(self, epk: bytes) -> KeyRange:
        """The range that owns an effective key."""
        return self.ranges[bisect_right(self._lows, epk) - 1]

    def get(self, range_id: int) -> KeyRange | None:
        return self._by_id.get(range_id)

    def overlapping(self, low: bytes, high: bytes) -> list[KeyRange]:
        """The ranges that own a part of [low, high), in order. As the SDKs write it, [low, low] is the one point."""
        if high < low:
            return []
        first = bisect_right(self._lows, low) - 1
        last = bisect_left(self._lows, high, lo=first + 1)
        return list(self.ranges[first:last])

    def descendants(self, range_id: int) -> list[KeyRange]:
        """The live ranges that hold the data of a range: itself, or those it was split or merged into."""
        return [key_range for key_range in self.ranges if key_range.id == range_id or range_id in key_range.parents]

    def next_id(self) -> int:
        """Ids are never reused. Every id ever used is that of a live range or of an ancestor of one."""
        return 1 + max(max((key_range.id, *key_range.parents)) for key_range in self.ranges)

    def split(self, range_id: int, boundary: bytes, low_store: int, high_store: int) -> PartitionMap:
        """The map with a range replaced by its two children, numbered on from the highest id."""
        parent = self._by_id[range_id]
        assert parent.low < boundary < parent.high, "the boundary of a split lies inside its range"
        child_id, parents = self.next_id(), (*parent.parents, parent.id)
        children = (
            KeyRange(child_id, parent.low, boundary, parents, low_store),
            KeyRange(child_id + 1, boundary, parent.high, parents, high_store),
        )
        return PartitionMap((*(other for other in self.ranges if other is not parent), *children))

    def merge(self, low_id: int, high_id: int, store: int) -> PartitionMap:
        """The map with two neighbours replaced by one range, whose newest parents they are."""
        low, high = self._by_id[low_id], self._by_id[high_id]
        assert low.high == high.low, "only neighbours are merged"
        ancestors = sorted({*low.parents, *high.parents})
        merged = KeyRange(self.next_id(), low.low, high.high, (*ancestors, low_id, high_id), store)
        return PartitionMap((*(other for other in self.ranges if other is not low and other is not high), merged))

    def move(self, range_id: int, store: int) -> PartitionMap:
        """The map with a range replaced by one with the same keys in another store, whose newest parent it is."""
        parent = self._by_id[range_id]
        moved = KeyRange(self.next_id(), parent.low, parent.high, (*parent.parents, parent.id), store)
        return PartitionMap((*(other for other in self.ranges if other is not parent), moved))


def even_boundaries(count: int, version: int) -> list[bytes]:
    """The inner boundaries of `count` equal parts of the hash space of version 1 or 2. MultiHash is version 2."""
    assert count >= 1
    assert version in (1, 2)
    if version == 1:
        return [encode_number_v1(float(part * HASH_V1_MAX // count)) for part in range(1, count)]
    width = HASH_V2_MAX // count
    return [(part * width).to_bytes(KEY_BYTES_PER_LEVEL, "big") for part in range(1, count)]


def midpoint(low: bytes, high: bytes, version: int, levels: int = 1) -> bytes | None:
    """The key that halves a range, or None when no key lies between its ends.

    Of a hierarchical key the first level is halved as long as it can be, so that a prefix stays in one partition.
    """
    if version == 1:
        first, last = number_v1(low), HASH_V1_MAX if high == SPACE_HIGH else number_v1(high)
        middle = (first + last) // 2
        return encode_number_v1(float(middle)) if first < middle else None
    for depth in range(1, levels + 1):
        size_bytes = depth * KEY_BYTES_PER_LEVEL
        if len(low) > size_bytes or (high != SPACE_HIGH and len(high) > size_bytes):
            continue
        first, last = _position(low, depth), _position(high, depth)
        middle = (first + last) // 2
        if first < middle:
            return b"".join(
                (middle >> 126 * level & HASH_V2_MAX).to_bytes(KEY_BYTES_PER_LEVEL, "big")
                for level in reversed(range(depth))
            )
    return None


def _position(bound: bytes, depth: int) -> int:
    """A bound as a number in base 2**126: each level of an effective key has 126 bits in its 16 bytes."""
    if bound == SPACE_HIGH:
        return (1 << 126 * depth) - 1
    position = 0
    for level in range(depth):
        part = bound[level * KEY_BYTES_PER_LEVEL : (level + 1) * KEY_BYTES_PER_LEVEL]
        position = position << 126 | int.from_bytes(part.ljust(KEY_BYTES_PER_LEVEL, b"\x00"), "big")
    return position


def number_v1(bound: bytes) -> int:
    """The hash in a bound that `encode_number_v1` made of it; the lowest bound of the space is 0."""
    if bound == SPACE_LOW:
        return 0
    payload, shift = bound[1] << 56, 49
    for byte in bound[2:]:
        payload |= (byte >> 1) << shift
        shift -= 7
    number: float
    (number,) = struct.unpack(">d", (payload ^ (1 << 63)).to_bytes(8, "big"))
    return int(number)
