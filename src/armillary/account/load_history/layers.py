"""The history of one container: columns of ten seconds for an hour, then of a minute, of ten minutes and of an hour.
When columns grow too old for their layer, they are added up into one of the next; every count is in one column.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from armillary import limits
from armillary.account.container import Container
from armillary.account.load_history.columns import Column, Layout, PackedColumn, Sheet, divided, pack, unpack
from armillary.model.ranges import KeyRange
from armillary.partition.load_rows import RangeRows, RowCounts
from armillary.partition.meter import FullKey, Meter

_COLUMN_OVERHEAD_BYTES = 200
_RESHAPES_KEPT = 1_000
_KEYS_KEPT = 12  # minutes
KEYS_NOTED_MAX = 64  # of a partition
_Sizes = tuple["array[int]", "array[int]", "array[int]"]


class Reshaped(NamedTuple):
    """A split or merge that took place."""

    time_s: float
    parents: tuple[int, ...]
    children: tuple[int, ...]
    boundary: bytes  # between the children of a split, or the parents of a merge
    reason: str


class NotedKeys(NamedTuple):
    """What the busiest logical partitions of a meter had been charged at a moment."""

    time_s: float
    charged_ru: dict[bytes, float]
    rest_ru: float  # no other key had more


class ContainerHistory:
    def __init__(self, rid: bytes) -> None:
        self.rid = rid
        self.layers: list[deque[PackedColumn]] = [deque() for _ in limits.HISTORY_LAYERS]
        self.layouts: dict[int, Layout] = {}
        self.next_layout = 1  # numbers are not used again: stored columns name them
        self.reshapes: deque[Reshaped] = deque(maxlen=_RESHAPES_KEPT)
        self.size_bytes = 0  # of the columns
        self.asked = 0  # how often it was shown
        self.noted: dict[int, deque[NotedKeys]] = {}  # by range
        self.left_full_keys: list[FullKey] = []  # found full by partitions that are gone
        self._present: Layout | None = None
        self._sizes: _Sizes | None = None  # of the last column
        self._ranges: tuple[KeyRange, ...] | None = None

    # Divisions.

    def arrange(self, container: Container, now_s: float) -> None:
        """Have the partitions of a container count by rows. Called whenever its map may have changed."""
        ranges = container.map.ranges
        if self._ranges is not None and self._ranges != ranges:
            self._note_reshapes(self._ranges, ranges, now_s, container.reshaped_for)
        self._ranges = ranges
        count = rows_counted(container)
        version = container.key.version if container.key is not None else 2
        known = {part.range: part for part in self._present.parts} if self._present is not None else {}
        parts = []
        for each in ranges:
            part = known.get(each)
            if part is None or part.wanted != count:
                part = divided(each, count, version)
            parts.append(part)
            container.partitions[each.id].meter.divide(part)
        self._present = self._layout(parts, version)

    def _layout(self, parts: Iterable[RangeRows], version: int) -> Layout:
        wanted = tuple(parts)
        for layout in self.layouts.values():
            if layout.version == version and layout.is_of(wanted):
                return layout
        layout = Layout(self.next_layout, wanted, version)
        self.next_layout += 1
        self.layouts[layout.number] = layout
        return layout

    def _note_reshapes(
        self, before: tuple[KeyRange, ...], after: tuple[KeyRange, ...], now_s: float, reason: str
    ) -> None:
        ids_before, ids_after = {each.id for each in before}, {each.id for each in after}
        children = [each for each in after if each.id not in ids_before]
        for parent in before:
            own = [child for child in children if parent.id in child.parents]
            if parent.id in ids_after or not own:
                continue
            if len(own) > 1:
                ids = tuple(child.id for child in own)
                self.reshapes.append(Reshaped(now_s, (parent.id,), ids, own[0].high, reason))
            elif own[0].low == parent.low:  # once for both parents of a merge
                parents = tuple(each.id for each in before if each.id in own[0].parents)
                self.reshapes.append(Reshaped(now_s, parents, (own[0].id,), parent.high, reason))

    @property
    def map_changed_s(self) -> float | None:
        """When the last split or merge took place, as far as it is known."""
        return self.reshapes[-1].time_s if self.reshapes else None

    # Collecting.

    def collect(self, container: Container, now_s: float, *, is_last: bool = False) -> None:
        """Take what the meters have closed into the finest layer; the last time, the open column too."""
        counts: list[RowCounts] = []
        for meter in container.meters:
            counts += meter.load.take_all() if is_last else meter.load.take()
        self._store(container, counts, now_s)

    def take_last(self, container: Container, meter: Meter, now_s: float) -> None:
        """A meter is given up: take what it has, the open column included."""
        self.left_full_keys = [*self.left_full_keys, *meter.full_keys][-limits.METERED_FULL_KEYS_MAX :]
        self._store(container, meter.load.take_all(), now_s)

    def add(self, container: Container, counts: Iterable[RowCounts], now_s: float) -> None:
        """The same of a meter of another process."""
        self._store(container, counts, now_s)

    def _store(self, container: Container, counts: Iterable[RowCounts], now_s: float) -> None:
        by_column: dict[int, list[RowCounts]] = {}
        for each in counts:
            by_column.setdefault(each.column, []).append(each)
        sizes = self._sizes_now(container)
        if sizes != self._sizes and not by_column:  # by expiry, for example: nothing was asked
            by_column[int(now_s // limits.HISTORY_COLUMN_S)] = []
        for number in sorted(by_column):
            self.put(pack(self._column(number, by_column[number], sizes)))
        if by_column:
            self._sizes = sizes

    def _sizes_now(self, container: Container) -> _Sizes:
        assert self._present is not None
        partitions = [container.partitions[part.range.id] for part in self._present.parts]
        budgets = [partition.meter.budget for partition in partitions]
        return (
            array("q", [partition.head.size_bytes for partition in partitions]),
            array("q", [partition.head.item_count for partition in partitions]),
            array("q", [budget.limit if budget is not None else 0 for budget in budgets]),
        )

    def _column(self, number: int, counts: Iterable[RowCounts], sizes: _Sizes) -> Column:
        present = self._present
        assert present is not None
        sheet = Sheet(present, [None] * 5, *sizes)
        places = {part.name: index for index, part in enumerate(present.parts)}
        former: list[RowCounts] = []  # of parents, and of partitions that were divided otherwise
        for each in counts:
            if each.rows.name in places:
                sheet.count(places[each.rows.name], each)
            else:
                former.append(each)
        sheets = [sheet]
        if former:
            rows = {each.rows.name: each.rows for each in sorted(former, key=lambda each: each.rows.range.low)}
            sheet = Sheet.empty(self._layout(rows.values(), present.version))
            names = list(rows)
            for each in former:
                sheet.count(names.index(each.rows.name), each)
            sheets.insert(0, sheet)
        return Column(number * limits.HISTORY_COLUMN_S, limits.HISTORY_COLUMN_S, sheets)

    def open_column(self, container: Container, now_s: float) -> Column:
        """The column that is not closed yet. What was closed before is stored by this."""
        self.collect(container, now_s)
        counts = [each for meter in container.meters if (each := meter.load.open_counts) is not None]
        number = max([int(now_s // limits.HISTORY_COLUMN_S), *(each.column for each in counts)])
        return self._column(number, counts, self._sizes_now(container))

    # Layers.

    def put(self, column: PackedColumn) -> None:
        """Add a column to its layer, or to the one that is there of the same time."""
        layer = self.layers[_LAYER_OF[column.seconds]]
        later: list[PackedColumn] = []
        while layer and layer[-1].start_s > column.start_s:
            later.append(layer.pop())
        if layer and layer[-1].start_s == column.start_s:
            former = layer.pop()
            self.size_bytes -= _size(former)
            both = unpack(former, self.layouts)
            both.add(unpack(column, self.layouts))
            column = pack(both)
        layer.append(column)
        layer.extend(reversed(later))
        self.size_bytes += _size(column)

    def age(self, now_s: float) -> list[PackedColumn]:
        """Add up what is too old for its layer. Returns the new columns of ten minutes and more."""
        added: list[PackedColumn] = []
        for index, (_, kept_s) in enumerate(limits.HISTORY_LAYERS):
            layer = self.layers[index]
            is_last = index + 1 == len(self.layers)
            seconds = limits.HISTORY_LAYERS[index + (not is_last)][0]
            horizon_s = int(now_s - kept_s) // seconds * seconds
            sums: dict[int, Column] = {}
            while layer and layer[0].start_s < horizon_s:
                column = layer.popleft()
                self.size_bytes -= _size(column)
                if not is_last:
                    start_s = column.start_s // seconds * seconds
                    sums.setdefault(start_s, Column(start_s, seconds)).add(unpack(column, self.layouts))
            for each in sums.values():
                packed = pack(each)
                self.put(packed)
                if index:
                    added.append(packed)
        return added

    def minute(self, start_s: int) -> PackedColumn | None:
        """The columns of a minute of the finest layer as one."""
        found = [each for each in self.layers[0] if start_s <= each.start_s < start_s + 60]
        if not found:
            return None
        column = Column(start_s, 60)
        for each in found:
            column.add(unpack(each, self.layouts))
        return pack(column)

    def drop_oldest(self) -> bool:
        """Forget the oldest column. False: there is none."""
        for layer in reversed(self.layers):
            if layer:
                self.size_bytes -= _size(layer.popleft())
                return True
        return False

    def drop_within(self, from_s: int, to_s: int, finer_than_s: int) -> None:
        """Forget finer columns inside of a time: a coarser one has their sum."""
        for layer, (seconds, _) in zip(self.layers, limits.HISTORY_LAYERS, strict=True):
            if seconds >= finer_than_s:
                continue
            for column in [each for each in layer if each.start_s >= from_s and each.end_s <= to_s]:
                layer.remove(column)
                self.size_bytes -= _size(column)

    @property
    def oldest_s(self) -> int | None:
        return next((layer[0].start_s for layer in reversed(self.layers) if layer), None)

    def between(self, from_s: float, to_s: float) -> Iterator[PackedColumn]:
        """The columns that overlap a time, the oldest first."""
        for layer in reversed(self.layers):
            for column in tuple(layer):
                if column.end_s > from_s and column.start_s < to_s:
                    yield column

    def forget_layouts(self) -> None:
        """Drop those that no column needs any more."""
        used = {number for layer in self.layers for column in layer for number in column.layouts}
        for number in [each for each in self.layouts if each not in used]:
            if self.layouts[number] is not self._present:
                del self.layouts[number]

    # Logical partitions.

    def note_keys(self, container: Container, now_s: float) -> None:
        """Remember what the busiest keys have been charged by now, so that the load of a window can be told."""
        count = max(8, min(KEYS_NOTED_MAX, limits.HISTORY_KEYS_NOTED // len(container.partitions)))
        for range_id in self.noted.keys() - container.partitions.keys():
            del self.noted[range_id]
        for range_id, partition in container.partitions.items():
            top = partition.meter.top_keys(count)
            kept = self.noted.setdefault(range_id, deque(maxlen=_KEYS_KEPT))
            kept.append(NotedKeys(now_s, dict(top), top[-1][1] if len(top) == count else 0.0))

    def noted_before(self, range_id: int, time_s: float) -> NotedKeys | None:
        """The newest note of a partition that is not newer than a time."""
        return next((each for each in reversed(self.noted.get(range_id, ())) if each.time_s <= time_s), None)


def rows_counted(container: Container) -> int:
    """How many rows each partition of a container is divided into."""
    if container.key is None:
        return 1  # all items have one key
    return max(1, min(limits.HISTORY_PARTITION_ROWS_MAX, limits.HISTORY_ROWS // len(container.map.ranges)))


_LAYER_OF = {seconds: index for index, (seconds, _) in enumerate(limits.HISTORY_LAYERS)}


def _size(column: PackedColumn) -> int:
    return len(column.packed) + _COLUMN_OVERHEAD_BYTES
