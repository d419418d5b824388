"""Upper bound of writes: RocksDB with exactly the keys, values and syncs of creating items.

The keys and values come from Armillary's own writer and are computed outside the measured time; only the calls into
RocksDB are measured, one batch and one sync for each group.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import rocksdict

from armillary.model import resources
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.indexes.unique_keys import UniqueKeyPolicy
from armillary.model.items import parse_document
from armillary.model.keys import PartitionKeyDefinition
from armillary.partition.history import log
from armillary.partition.operations import Operation, Verb, draft
from armillary.partition.schema import Rules, Schema
from armillary.partition.writing.path_coverage import PathCoverage
from armillary.partition.writing.writer import PathPrefixes, Writer
from armillary.storage import rocks_database
from bench import protocol
from bench.load import Measured

_PREFIX = bytes(4)  # a store's number
_SYNC_EVERY_S = 0.1  # durability relaxed


class RawRocks:
    def __init__(self, directory: Path, *, is_relaxed: bool) -> None:
        # The engine's own settings: the work around RocksDB is compared, not its tuning.
        self._rdict = rocksdict.Rdict(str(directory), rocks_database._options())
        self._write_options = rocksdict.WriteOptions()
        self._write_options.memtable_insert_hint_per_batch = True
        self._is_relaxed = is_relaxed
        self._synced_s = 0.0
        self._source = _Source()

    @property
    def puts_per_item(self) -> float:
        return self._source.puts / max(1, self._source.items)

    def measure(self, *, group_items: int, is_batched: bool, seconds: float) -> Measured:
        """Write groups until `seconds` have been spent on writing."""
        spent_s, items = 0.0, 0
        groups_s: list[float] = []
        deadline_s = time.monotonic() + 6 * seconds  # computing what to write takes longer than writing it
        while spent_s < seconds and time.monotonic() < deadline_s:
            writes = self._source.group(group_items, is_batched)
            begin_s = time.perf_counter()
            self._write(writes)
            groups_s.append(time.perf_counter() - begin_s)
            spent_s += groups_s[-1]
            items += group_items
        groups_s.sort()
        return Measured(
            per_s=items / spent_s,
            requests=len(groups_s),
            errors=0,
            p50_ms=groups_s[len(groups_s) // 2] * 1e3,
            p99_ms=groups_s[len(groups_s) * 99 // 100] * 1e3,
            max_ms=groups_s[-1] * 1e3,
            server_cpu_us=0.0,
            answer_bytes=0.0,
        )

    def close(self) -> None:
        self._rdict.close()

    def _write(self, writes: dict[bytes, bytes]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        put = batch.put
        for key in sorted(writes):  # as the engine does: the skip list takes them faster
            put(key, writes[key])
        self._rdict.write(batch, self._write_options)
        now_s = time.monotonic()
        if not self._is_relaxed or now_s - self._synced_s >= _SYNC_EVERY_S:
            self._rdict.flush_wal(True)
            self._synced_s = now_s


class _Source:
    """Creates items with Armillary's writer on a store that keeps only what the writer reads back."""

    def __init__(self) -> None:
        key = PartitionKeyDefinition.parse({"paths": ["/key"], "kind": "Hash", "version": 2})
        indexing = IndexingPolicy.parse(None, key_definition=key, has_ttl=False)
        rid = bytes(8)
        self._key = key
        self._schema = Schema(
            rid=rid,
            self_link="dbs/AAAAAQ==/colls/AAAAAYAAAAE=/",
            key=key,
            unique=UniqueKeyPolicy.parse(None),
            rules=Rules(1, indexing, None),
        )
        self._head = log.Head(0, resources.first_item_rid(0), 0, 0, 1)
        self._paths: PathPrefixes = {}
        self._coverage: PathCoverage | None = None
        self._template = protocol.item()
        self._kept: dict[bytes, bytes] = {}
        self._number = protocol.NUMBER_FIRST
        self.puts = 0
        self.items = 0

    def group(self, items: int, is_batched: bool) -> dict[bytes, bytes]:
        txn = _Recorder(self._kept)
        writer = Writer(txn, self._schema, self._head, self._paths, self._coverage, time.time())
        for _ in range(items):
            number = self._number
            self._number += 1
            spread = number // protocol.BATCH_ITEMS if is_batched else number
            partition = protocol.PARTITION_FIRST + spread % protocol.PARTITIONS
            document = parse_document(protocol.filled(self._template, number, partition).encode())
            key = self._key.extract(document)
            made = draft(self._schema, document, int(time.time()))
            writer.apply(Operation(Verb.CREATE, self._key.effective_key(key), key, made.item_id, made))
        writer.finish()
        self._paths.update(writer.new_paths)
        self._coverage = writer.new_coverage or self._coverage
        self.puts += len(txn.written)
        self.items += items
        return txn.written


class _Recorder:
    """A transaction that records writes instead of storing them. Only sizes and path numbers are read back."""

    def __init__(self, kept: dict[bytes, bytes]) -> None:
        self._kept = kept
        self.written: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._kept.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._kept.get(key) for key in keys]

    def scan(self, low: bytes, high: bytes, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def put(self, key: bytes, value: bytes) -> None:
        self.written[_PREFIX + key] = value
        if key[:1] in (b"s", b"m"):
            self._kept[key] = value

    def delete(self, key: bytes) -> None:
        raise AssertionError("creating an item deletes nothing")

    def delete_range(self, low: bytes, high: bytes) -> None:
        raise AssertionError("creating an item deletes nothing")
