"""Figures of a storage engine for metrics and readiness: room on the disk, RocksDB's levels, its block cache, stalls.

All are read when they are asked for; only stalls are counted as they happen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from armillary import limits
from armillary.storage.directory import DataDirectory

# Properties of RocksDB that are one number each.
_NUMBERS: Final = {
    "memtable_bytes": "rocksdb.cur-size-all-mem-tables",
    "block_cache_used_bytes": "rocksdb.block-cache-usage",
    "block_cache_capacity_bytes": "rocksdb.block-cache-capacity",
    "table_readers_bytes": "rocksdb.estimate-table-readers-mem",
    "pending_compaction_bytes": "rocksdb.estimate-pending-compaction-bytes",
    "running_compactions": "rocksdb.num-running-compactions",
    "running_flushes": "rocksdb.num-running-flushes",
    "is_write_stopped": "rocksdb.is-write-stopped",
}
_COUNT: Final = re.compile(r"^rocksdb\.block\.cache\.(hit|miss) COUNT : ([0-9]+)$", re.MULTILINE)


class Level(NamedTuple):
    files: int
    size_bytes: int


class CachedReads(NamedTuple):
    """The cache of point reads, since the start."""

    hits: int
    misses: int
    entries: int


class Measured(Protocol):
    """The database, as far as it is measured."""

    def number_of(self, name: str) -> int | None: ...
    def table_sizes(self) -> list[tuple[int, int]]: ...
    def statistics(self) -> str | None: ...


@dataclass(slots=True)
class StorageFigures:
    disk_free_bytes: int
    disk_size_bytes: int
    reserve_bytes: int
    is_full: bool  # writes that take space are refused
    failure: str | None = None  # why nothing can be written or read, apart from a full disk
    waiting_writes: int = 0  # transactions that wait to be run
    stalls: int = 0  # groups of writes that had to wait for compaction, since the start
    levels: list[Level] = field(default_factory=list)
    numbers: Mapping[str, int] = field(default_factory=dict)  # by the names of `_NUMBERS`
    cache_hits: int | None = None  # of blocks; None: not counted
    cache_misses: int | None = None
    reads: CachedReads | None = None  # None: they are not cached

    @property
    def is_nearly_full(self) -> bool:
        return self.disk_free_bytes < limits.FREE_DISK_WARNING_FACTOR * self.reserve_bytes


def figures_of(directory: DataDirectory, database: Measured | None, reserve_bytes: int) -> StorageFigures:
    """`database`: None while it is not open."""
    free_bytes = directory.free_bytes()
    found = StorageFigures(free_bytes, directory.size_bytes(), reserve_bytes, free_bytes < reserve_bytes)
    if database is not None:
        levels: dict[int, Level] = {}
        for number, size_bytes in database.table_sizes():
            known = levels.get(number, Level(0, 0))
            levels[number] = Level(known.files + 1, known.size_bytes + size_bytes)
        found.levels = [levels.get(number, Level(0, 0)) for number in range(max(levels, default=-1) + 1)]
        numbers = {name: database.number_of(word) for name, word in _NUMBERS.items()}
        found.numbers = {name: value for name, value in numbers.items() if value is not None}
        counts = dict(_COUNT.findall(database.statistics() or ""))
        if counts:
            found.cache_hits, found.cache_misses = int(counts.get("hit", 0)), int(counts.get("miss", 0))
    return found
