"""One open RocksDB, as the engine needs it: its settings, batches, snapshots and scans. Errors are translated by
`disk_errors.py`; `rocks.py` decides when to write, sync, publish and reopen.

Four properties of the binding (rocksdict 0.3.29) shape this file. A `Snapshot` serves single keys only: iterators made
from it show the newest state. `ReadOptions.set_iterate_lower_bound` sets the upper bound. `items()` ends silently on a
damaged block. So scans use bare iterators, bounded above only, and check their status at the end. And an existing
database is opened with the table options it was made with (cache and filters lost) unless they are given again for its
one column family.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Generator, Iterator, Sequence
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Final

import rocksdict

from armillary import limits, work
from armillary.errors import Failure, Kind
from armillary.limits import BLOCK_CACHE_BYTES, KB, MB, WRITE_BUFFER_BYTES, WRITE_LOG_BYTES_MAX
from armillary.storage import file_descriptors, redo
from armillary.storage.disk_errors import translated
from armillary.storage.overlay import Layer, Pair

_log = logging.getLogger(__name__)

WriteBatch = rocksdict.WriteBatch
_MISS: Final = ("key not found",)
_SORTED_AT_ONCE: Final = 2_000  # keys of a batch: about 1 ms
_CHUNK_ROWS_FIRST, _CHUNK_ROWS_MAX, _CHUNK_BYTES_MAX = 8, 256, 256 * KB

# Where a replica of a cluster keeps its position in the log: after the keys of all stores, under the one store number
# that is never given out.
POSITION_KEY: Final = b"\xff\xff\xff\xffposition"

_GONE = "Storage was opened again, and a snapshot of before is gone. Start over."


class Database:
    def __init__(self, path: Path, *, has_statistics: bool = False) -> None:
        """`has_statistics`: RocksDB counts hits of its block cache, which costs a tenth of each get."""
        self._options = options = _options()
        if has_statistics:
            options.enable_statistics()
        self._rdict = rocksdict.Rdict(str(path), options, {"default": options})
        redo.finish(self._rdict)
        # Refuse instead of sleeping inside the call (which holds the interpreter) when compaction is behind.
        self._write_options = rocksdict.WriteOptions()
        self._write_options.no_slowdown = True
        self._write_options.memtable_insert_hint_per_batch = True
        self._versions: weakref.WeakSet[Version] = weakref.WeakSet()
        self._scans: weakref.WeakSet[Generator[Pair, None, None]] = weakref.WeakSet()
        self._kept: weakref.WeakSet[KeptState] = weakref.WeakSet()

    def get(self, key: bytes) -> bytes | None:
        return self._rdict.get(key)

    def batch(self, layer: Layer) -> WriteBatch:
        """The argument of `write`. A large one is made in portions, and may give way."""
        batch = WriteBatch(raw_mode=True)
        for low, high in layer.cleared:
            batch.delete_range(low, high)
        put, delete = batch.put, batch.delete
        writes = layer.writes
        # In key order, which RocksDB's skip list takes in a quarter less time (with the hint below, a third): measured.
        for keys in _in_order(writes):
            if not layer.has_deletes:
                any(map(put, keys, map(writes.__getitem__, keys)))  # a loop without bytecode: `put` returns None
                continue
            for key in keys:
                value = writes[key]
                if value is None:
                    delete(key)
                else:
                    put(key, value)
        return batch

    def batches(self, layer: Layer) -> Iterator[WriteBatch]:
        """The same for a layer that takes too long to be written at once: to be written one after the other. After a
        crash it is applied as a whole or not at all, but meanwhile the newest state shows parts of it."""
        return redo.batches(layer, _in_order(layer.writes))

    def write(self, batch: WriteBatch) -> None:
        """Write a batch atomically. Afterwards the operating system has it (it survives this process); the disk has it
        after the next `sync` that begins later. Holds the interpreter: 0.3 to 0.6 µs a key."""
        self._rdict.write(batch, self._write_options)

    def sync(self) -> None:
        """Make everything written durable. Runs in a thread: the interpreter is free meanwhile."""
        self._rdict.flush_wal(True)

    def version(self) -> Version:
        version = Version(self, self._rdict.snapshot())
        self._versions.add(version)
        return version

    def iterator(self) -> rocksdict.RdictIter:
        return self._rdict.iter()

    def scan(self, low: bytes, high: bytes, reverse: bool, skip: int) -> Iterator[Pair]:
        """Scan the newest state. `skip` leading bytes are removed from the keys."""
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(high)
        # Made here and not at the first step: the reader may give way before that, and others write meanwhile.
        scan = _scan(self._rdict.iter(options), options, low, high, reverse, skip)
        self._scans.add(scan)
        return scan

    def keep(self) -> KeptState:
        kept = KeptState(self._rdict.iter())
        self._kept.add(kept)
        return kept

    def ingest(self, table: Path) -> None:
        """Ingest a table file made by a `table_writer`. Its keys are new here."""
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        self._rdict.ingest_external_file([str(table)], options)

    # Figures.

    def number_of(self, name: str) -> int | None:
        return self._rdict.property_int_value(name)

    def table_sizes(self) -> list[tuple[int, int]]:
        """The level and the size of each table file."""
        return [(int(each["level"]), int(each["size"])) for each in self._rdict.live_files()]

    def statistics(self) -> str | None:
        """What RocksDB counts, as lines of text; None: nothing."""
        return self._options.get_statistics()

    def compact(self, low: bytes, high: bytes) -> None:
        """Free the space of deleted keys in [low, high). Runs in a thread; may take long."""
        options = rocksdict.CompactOptions()
        options.set_exclusive_manual_compaction(False)
        try:
            self._rdict.compact_range(low, high, options)
        except Exception as error:  # it is only postponed: a later one frees the space
            _log.warning("compaction ended early: %s", error)

    def finish(self) -> None:
        """Sync, and flush to tables so that the next opening has no log to replay. Runs in a thread."""
        self._rdict.flush_wal(True)
        self._rdict.flush(True)

    def flush(self) -> None:
        """Flush everything written to tables. Runs in a thread: the interpreter is free meanwhile."""
        self._rdict.flush(True)

    def checkpoint(self, path: Path) -> None:
        """Everything written so far, as another database that shares the tables. Holds the interpreter: some 20 ms if
        it was just flushed."""
        rocksdict.Checkpoint(self._rdict).create_checkpoint(str(path))

    def stop_background(self) -> None:
        """End running compactions early. Nothing can be flushed or compacted afterwards."""
        self._rdict.cancel_all_background(False)

    def close(self) -> None:
        """Close without flushing."""
        self._rdict.cancel_all_background(True)
        # RocksDB closes when the last reference to it goes, and a kept exception may hold frames that hold a version or
        # a scan: so all others refer to this object only, versions are emptied and scans ended.
        for version in self._versions:
            version.release()
        for scan in list(self._scans):
            scan.close()
        for kept in self._kept:
            kept.release()
        del self._rdict


def _in_order(writes: dict[bytes, bytes | None]) -> Iterator[Sequence[bytes]]:
    """The keys in ascending order, in portions."""
    if len(writes) <= _SORTED_AT_ONCE:
        yield sorted(writes)
        return
    keys = iter(writes)
    runs = []
    while run := sorted(islice(keys, _SORTED_AT_ONCE)):
        work.spend(5 * len(run))
        runs.append(run)
    merged = merge(*runs)
    while portion := list(islice(merged, limits.WORK_PORTION)):
        work.spend(25 * len(portion))
        yield portion


def _scan(
    iterator: rocksdict.RdictIter, options: rocksdict.ReadOptions, low: bytes, high: bytes, reverse: bool, skip: int
) -> Generator[Pair, None, None]:
    """The iterator points into `options` and `high`: this frame keeps them alive."""
    key_of, value_of = iterator.key, iterator.value
    # Stepping an iterator that is not valid is undefined: every step below follows a key that was there.
    if reverse:
        iterator.seek_to_last()
        step = iterator.prev
        while (key := key_of()) is not None and key >= low:
            yield key[skip:], value_of()
            step()
    else:
        iterator.seek(low)
        step = iterator.next
        while (key := key_of()) is not None:
            yield key[skip:], value_of()
            step()
    iterator.status()


class Version:
    """A state of the database between two writes, readable while later ones are written.

    Single keys are read through a snapshot. Scans read the newest state while it is this one; before the next write
    `hold` makes an iterator that keeps showing it. It is shared by all scans, so each of them takes its rows in chunks.
    """

    __slots__ = ("__weakref__", "_database", "_iterator", "is_released", "snapshot")

    def __init__(self, database: Database, snapshot: rocksdict.Snapshot) -> None:
        self._database = database
        self._iterator: rocksdict.RdictIter | None = None
        self.is_released = False
        self.snapshot = snapshot

    def release(self) -> None:
        self._iterator = None
        self.is_released = True
        del self.snapshot

    def hold(self) -> None:
        if self._iterator is None:
            self._iterator = self._database.iterator()

    def scan(self, low: bytes, high: bytes, reverse: bool, skip: int) -> Iterator[Pair]:
        if low >= high:
            return iter(())
        if self._iterator is None:
            if self.is_released:
                raise Failure(Kind.UNAVAILABLE, _GONE)
            return self._database.scan(low, high, reverse, skip)
        return self._scan_in_chunks(low, high, reverse, skip)

    def _scan_in_chunks(self, low: bytes, high: bytes, reverse: bool, skip: int) -> Iterator[Pair]:
        rows = _CHUNK_ROWS_FIRST
        while True:
            chunk, is_last = self._chunk_down(low, high, rows) if reverse else self._chunk_up(low, high, rows)
            for key, value in chunk:
                yield key[skip:], value
            if is_last:
                return
            if reverse:
                high = chunk[-1][0]
            else:
                low = chunk[-1][0] + b"\0"
            rows = min(rows * 4, _CHUNK_ROWS_MAX)

    def _chunk_up(self, low: bytes, high: bytes, rows: int) -> tuple[list[Pair], bool]:
        """The next rows, fewer if they are large, and whether they are the last."""
        iterator = self._iterator
        if iterator is None:
            raise Failure(Kind.UNAVAILABLE, _GONE)
        chunk: list[Pair] = []
        left_bytes = _CHUNK_BYTES_MAX
        iterator.seek(low)
        while (key := iterator.key()) is not None and key < high:
            if len(chunk) == rows or left_bytes <= 0:
                return chunk, False
            value = iterator.value()
            left_bytes -= len(value)
            chunk.append((key, value))
            iterator.next()
        if key is None:
            iterator.status()
        return chunk, True

    def _chunk_down(self, low: bytes, high: bytes, rows: int) -> tuple[list[Pair], bool]:
        iterator = self._iterator
        if iterator is None:
            raise Failure(Kind.UNAVAILABLE, _GONE)
        chunk: list[Pair] = []
        left_bytes = _CHUNK_BYTES_MAX
        iterator.seek_for_prev(high)
        if iterator.key() == high:
            iterator.prev()
        while (key := iterator.key()) is not None and key >= low:
            if len(chunk) == rows or left_bytes <= 0:
                return chunk, False
            value = iterator.value()
            left_bytes -= len(value)
            chunk.append((key, value))
            iterator.prev()
        if key is None:
            iterator.status()
        return chunk, True


class KeptState:
    """A state of the database for long scans: it has an iterator of its own."""

    __slots__ = ("__weakref__", "_iterator")

    def __init__(self, iterator: rocksdict.RdictIter) -> None:
        self._iterator: rocksdict.RdictIter | None = iterator

    def release(self) -> None:
        self._iterator = None

    def get(self, key: bytes) -> bytes | None:
        iterator = self._held()
        iterator.seek(key)
        return iterator.value() if iterator.key() == key else None

    def scan(self, low: bytes, high: bytes, skip: int) -> Iterator[Pair]:
        iterator = self._held()
        key_of, value_of, step = iterator.key, iterator.value, iterator.next
        iterator.seek(low)
        while (key := key_of()) is not None and key < high:
            yield key[skip:], value_of()
            self._held()
            step()
        if key is None:
            iterator.status()

    def _held(self) -> rocksdict.RdictIter:
        if self._iterator is None:
            raise Failure(Kind.UNAVAILABLE, _GONE)
        return self._iterator


class KeptView:
    """One store in a kept state."""

    def __init__(self, state: KeptState, prefix: bytes) -> None:
        self._state = state
        self._prefix = prefix

    def get(self, key: bytes) -> bytes | None:
        return self._state.get(self._prefix + key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(self, low: bytes, high: bytes, reverse: bool = False) -> Iterator[Pair]:
        assert not reverse, "a kept snapshot has no descending scans"
        return self._state.scan(self._prefix + low, self._prefix + high, len(self._prefix))

    def release(self) -> None:
        self._state.release()


class VersionView:
    """One store in one version."""

    __slots__ = ("_prefix", "_version")

    def __init__(self, version: Version, prefix: bytes) -> None:
        self._version = version
        self._prefix = prefix

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._version.snapshot[self._prefix + key]  # type: ignore[no-any-return]
        except Exception as error:
            if error.args == _MISS:  # the binding's form of "not found"
                return None
            if self._version.is_released:
                raise Failure(Kind.UNAVAILABLE, _GONE) from None
            raise translated(error) or error from error

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        # The binding has no batched get on a snapshot, and on the database it is no faster.
        try:
            snapshot, prefix = self._version.snapshot, self._prefix
            return [snapshot[prefix + key] for key in keys]
        except Exception:  # a key is missing or cannot be read: found out one by one
            return [self.get(key) for key in keys]

    def scan(self, low: bytes, high: bytes, reverse: bool = False) -> Iterator[Pair]:
        prefix = self._prefix
        return self._version.scan(prefix + low, prefix + high, reverse, len(prefix))


class PinnedView:
    """One store in a pinned version."""

    def __init__(self, version: Version, prefix: bytes) -> None:
        self._version: Version | None = version
        self._prefix = prefix

    def get(self, key: bytes) -> bytes | None:
        return VersionView(self._held(), self._prefix).get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return VersionView(self._held(), self._prefix).get_many(keys)

    def scan(self, low: bytes, high: bytes, reverse: bool = False) -> Iterator[Pair]:
        return VersionView(self._held(), self._prefix).scan(low, high, reverse)

    def release(self) -> None:
        self._version = None

    def _held(self) -> Version:
        version = self._version
        if version is None or version.is_released:
            raise Failure(Kind.UNAVAILABLE, _GONE)
        return version


def table_writer(path: Path) -> rocksdict.SstFileWriter:
    writer = rocksdict.SstFileWriter(_options())
    writer.open(str(path))
    return writer


def is_stall(error: BaseException) -> bool:
    """The whole write was refused because compaction is behind; it can be retried."""
    return type(error) is Exception and "Write stall" in str(error)


def _options() -> rocksdict.Options:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    # After a kill or a power cut the log may end in a torn record, or (power cut) have unsynced blocks written in any
    # order behind the last sync. Point in time stops at the first bad record: all that was synced lies before it, all
    # behind it was never acknowledged as durable. Absolute consistency would refuse to open after every such stop, and
    # tolerating only a torn tail would refuse when blocks were written out of order.
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.point_in_time())
    options.set_paranoid_checks(True)
    options.set_max_open_files(file_descriptors.for_tables())
    # Memory: at most four write buffers; nothing is allocated before it is needed.
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(4)
    options.set_max_total_wal_size(WRITE_LOG_BYTES_MAX)  # bounds what an opening has to replay
    # The loop must not wait for compaction: let level 0 grow well beyond the defaults (20 and 36) before writes are
    # slowed or stopped. Both come back as a refusal (no_slowdown), which the engine waits out without blocking.
    options.set_max_background_jobs(2)
    options.set_level_zero_file_num_compaction_trigger(4)
    options.set_level_zero_slowdown_writes_trigger(40)
    options.set_level_zero_stop_writes_trigger(80)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_max_bytes_for_level_base(4 * WRITE_BUFFER_BYTES)  # as much as level 0 hands down
    options.set_bytes_per_sync(MB)  # table files reach the disk steadily, not in bursts that hold up the log's sync
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    # Quiet when idle: no periodic statistics, and a short engine log.
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(MB)
    tables = rocksdict.BlockBasedOptions()
    # Filters and indexes stay outside the cache: about 1.5 bytes of memory a key, unbounded, but never evicted by data
    # blocks. At a million keys it makes no measurable difference; what it does beyond the cache's size is not measured.
    tables.set_bloom_filter(10, False)
    tables.set_block_cache(rocksdict.Cache(BLOCK_CACHE_BYTES))
    tables.set_block_size(8 * 1024)
    tables.set_format_version(5)
    options.set_block_based_table_factory(tables)
    return options
