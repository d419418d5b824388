"""Columns of the history of load: what a container's partitions have counted in a stretch of time, row by row.

A column has a sheet for each way in which the container was divided meanwhile. Columns that are added up keep all
sheets, so a split changes no count that was made before it, and sums stay sums. Columns are stored packed: arrays of
numbers, compressed.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from armillary.account.load_history.range_rows import row_bounds
from armillary.model.ranges import KeyRange
from armillary.partition.load_rows import RangeRows, RowCounts

CHARGED, REQUESTS, REFUSED, WOULD_BE_REFUSED, FULL = range(5)  # the measures, as indexes of `Sheet.counts`
MEASURES = 5
_HEAD = struct.Struct(">IBI")  # number of the layout, which measures there are, how many partitions
_LEVEL = 1  # of compression: counts are mostly small numbers and zeros, which it halves several times all the same


class Layout:
    """How a container is divided: its partitions in the order of their keys, and the rows of each. In a list of counts
    a partition has one number for each of its rows, then one for what belongs to no key."""

    __slots__ = ("number", "offsets", "parts", "version")

    def __init__(self, number: int, parts: Sequence[RangeRows], version: int) -> None:
        self.number = number
        self.parts = tuple(parts)
        self.version = version  # of the hash
        self.offsets = array("I", accumulate((part.row_count + 1 for part in self.parts), initial=0))

    @property
    def width(self) -> int:
        return self.offsets[-1]

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(part.range.id for part in self.parts)

    def is_of(self, parts: Sequence[RangeRows]) -> bool:
        return len(parts) == len(self.parts) and all(map(_is_same, self.parts, parts))

    def to_json(self) -> list[list[object]]:
        return [
            [part.range.id, part.range.low.hex(), part.range.high.hex(), list(part.range.parents), part.wanted]
            for part in self.parts
        ]

    @classmethod
    def parse(cls, number: int, stored: Iterable[list[object]], version: int) -> Layout:
        parts = []
        for range_id, low, high, parents, count in stored:
            assert isinstance(range_id, int)
            assert isinstance(parents, list)
            assert isinstance(count, int)
            key_range = KeyRange(range_id, bytes.fromhex(str(low)), bytes.fromhex(str(high)), tuple(parents), 0)
            parts.append(divided(key_range, count, version))
        return cls(number, parts, version)


def _is_same(one: RangeRows, other: RangeRows) -> bool:
    """Of the same range, divided alike. The store of a range is not part of the history."""
    if one is other:
        return True
    mine, theirs = one.range, other.range
    return (mine.id, mine.low, mine.high, one.wanted) == (theirs.id, theirs.low, theirs.high, other.wanted)


def divided(key_range: KeyRange, count: int, version: int) -> RangeRows:
    return RangeRows(key_range, count, tuple(row_bounds(key_range.low, key_range.high, count, version)))


@dataclass(slots=True)
class Sheet:
    """Counts of one layout. The sizes are those at the end of the column; 0 in a sheet of former partitions."""

    layout: Layout
    counts: list[array[int] | None]  # by measure; None: nothing
    size_bytes: array[int]  # of each partition
    items: array[int]
    shares: array[int]  # hundredths of request units a second that each may spend; 0: no budget
    is_present: bool = True  # the sizes are known

    @classmethod
    def empty(cls, layout: Layout) -> Sheet:
        zeros = [0] * len(layout.parts)
        return cls(layout, [None] * MEASURES, array("q", zeros), array("q", zeros), array("q", zeros), False)

    def count(self, index: int, counts: RowCounts) -> None:
        """Add what the partition at this index has counted."""
        first = self.layout.offsets[index]
        lists = (counts.charged, counts.requests, counts.refused, counts.would_be_refused, counts.full)
        for measure, numbers in enumerate(lists):
            if not any(numbers):
                continue
            kept = self.counts[measure]
            if kept is None:
                kept = self.counts[measure] = array("q", bytes(8 * self.layout.width))
            for row, number in enumerate(numbers):
                kept[first + row] += number

    def add(self, later: Sheet) -> None:
        for measure, numbers in enumerate(later.counts):
            if numbers is None:
                continue
            kept = self.counts[measure]
            self.counts[measure] = numbers if kept is None else array("q", map(int.__add__, kept, numbers))
        if later.is_present:
            self.size_bytes, self.items, self.shares = later.size_bytes, later.items, later.shares
            self.is_present = True

    def total(self, measure: int, index: int | None = None) -> int:
        """Of all partitions, or of the one at an index."""
        numbers = self.counts[measure]
        if numbers is None:
            return 0
        offsets = self.layout.offsets
        return sum(numbers) if index is None else sum(numbers[offsets[index] : offsets[index + 1]])

    def keyless(self, measure: int) -> int:
        """What belongs to no key: the last row of each partition."""
        numbers = self.counts[measure]
        return sum(numbers[end - 1] for end in self.layout.offsets[1:]) if numbers is not None else 0

    @property
    def is_zero(self) -> bool:
        return all(numbers is None for numbers in self.counts)


@dataclass(slots=True)
class Column:
    start_s: int
    seconds: int
    sheets: list[Sheet] = field(default_factory=list)  # the last that has sizes is the newest division

    @property
    def end_s(self) -> int:
        return self.start_s + self.seconds

    @property
    def is_zero(self) -> bool:
        return all(sheet.is_zero for sheet in self.sheets)

    @property
    def newest(self) -> Sheet | None:
        """The sheet with the sizes at the column's end."""
        return next((sheet for sheet in reversed(self.sheets) if sheet.is_present), None)

    def total(self, measure: int) -> int:
        return sum(sheet.total(measure) for sheet in self.sheets)

    def keyless(self, measure: int) -> int:
        return sum(sheet.keyless(measure) for sheet in self.sheets)

    def add(self, later: Column) -> None:
        for sheet in later.sheets:
            for mine in self.sheets:
                if mine.layout is sheet.layout:
                    mine.add(sheet)
                    break
            else:
                self.sheets.append(sheet)


class PackedColumn(NamedTuple):
    start_s: int
    seconds: int
    packed: bytes
    layouts: tuple[int, ...]  # numbers of those that it has sheets of

    @property
    def end_s(self) -> int:
        return self.start_s + self.seconds


def pack(column: Column) -> PackedColumn:
    pieces: list[bytes] = []
    for sheet in column.sheets:
        present = sum(1 << measure for measure, numbers in enumerate(sheet.counts) if numbers is not None)
        present |= sheet.is_present << MEASURES
        pieces.append(_HEAD.pack(sheet.layout.number, present, len(sheet.layout.parts)))
        pieces += [each.tobytes() for each in (sheet.size_bytes, sheet.items, sheet.shares)]
        pieces += [numbers.tobytes() for numbers in sheet.counts if numbers is not None]
    numbers = tuple(sheet.layout.number for sheet in column.sheets)
    return PackedColumn(column.start_s, column.seconds, zlib.compress(b"".join(pieces), _LEVEL), numbers)


def unpack(column: PackedColumn, layouts: dict[int, Layout]) -> Column:
    data = zlib.decompress(column.packed)
    found = Column(column.start_s, column.seconds)
    at = 0

    def numbers(count: int) -> array[int]:
        nonlocal at
        at += 8 * count
        return array("q", data[at - 8 * count : at])

    while at < len(data):
        number, present, part_count = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        layout = layouts[number]
        size_bytes, items, shares = [numbers(part_count) for _ in range(3)]
        counts = [numbers(layout.width) if present >> measure & 1 else None for measure in range(MEASURES)]
        found.sheets.append(Sheet(layout, counts, size_bytes, items, shares, bool(present >> MEASURES & 1)))
    return found
