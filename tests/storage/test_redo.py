"""Transactions too large for one write of RocksDB: written in portions, and yet all or nothing, wherever the process
ends, the disk fails or compaction is behind; readers see none of it before it is durable."""

from __future__ import annotations

import asyncio
import random
import threading
from itertools import count, islice
from pathlib import Path

import pytest
from support.limits import WithLimits
from support.waiting import until

from armillary.clock import SystemClock
from armillary.errors import Failure
from armillary.storage import redo, rocks
from armillary.storage.directory import DataDirectory
from armillary.storage.engine import Store, Txn
from armillary.storage.overlay import Layer
from armillary.storage.rocks import RocksEngine
from armillary.storage.rocks_database import Database, WriteBatch

END = b"\xff\xff"
KEYS = 1_000


@pytest.fixture(autouse=True)
def _small_portions(with_limits: WithLimits) -> None:
    with_limits(WRITE_AT_ONCE_KEYS=400, WRITE_PORTION_KEYS=300, STALL_RETRY_SECONDS=0.03)


def _change(txn: Txn) -> None:
    """Clears a range, and replaces, deletes and adds keys."""
    txn.delete_range(b"0200", b"0300")
    for number in range(250, KEYS + 300):
        if number % 3:
            txn.put(b"%04d" % number, b"new")
        else:
            txn.delete(b"%04d" % number)


BEFORE = {b"%04d" % number: b"old" for number in range(KEYS)}
AFTER = {b"%04d" % number: b"old" for number in range(200)} | {
    b"%04d" % number: b"new" for number in range(250, KEYS + 300) if number % 3
}


async def _fill(store: Store) -> None:
    keys = list(BEFORE)
    for at in range(0, KEYS, 200):
        await store.write(lambda txn, at=at: [txn.put(key, b"old") for key in keys[at : at + 200]])  # type: ignore[misc]


async def _shown(store: Store) -> dict[bytes, bytes]:
    return await store.read(lambda view: dict(view.scan(b"", END)))


class WatchedDatabase(Database):
    """Counts the keys of each write; the n-th one fails if it is told so; syncs can be held up and fail."""

    def __init__(self, path: Path, *, has_statistics: bool = False) -> None:
        super().__init__(path, has_statistics=has_statistics)
        self.sizes: list[int] = []
        self.errors: dict[int, str] = {}
        self.sync_error: str | None = None
        self.gate = threading.Event()
        self.gate.set()

    def write(self, batch: WriteBatch) -> None:
        self.sizes.append(batch.len())
        if error := self.errors.pop(len(self.sizes), None):
            raise Exception(error)
        super().write(batch)

    def sync(self) -> None:
        self.gate.wait(10)
        if self.sync_error is not None:
            raise Exception(self.sync_error)
        super().sync()


def _opened(path: Path) -> tuple[RocksEngine, WatchedDatabase]:
    directory = DataDirectory.claim(path)
    database = WatchedDatabase(directory.engine_path)
    return RocksEngine(directory, database, False, 0, SystemClock()), database


def test_entries_are_read_as_they_were_recorded() -> None:
    dice = random.Random(1)
    for size in (0, 1, 2, 700):
        entries = [
            (dice.randbytes(dice.randrange(1, 40)), None if dice.random() < 0.3 else dice.randbytes(dice.randrange(9)))
            for _ in range(size)
        ]
        assert redo.decoded(redo.encoded(entries)) == entries


async def test_a_large_transaction_is_written_in_portions(tmp_path: Path) -> None:
    engine, database = _opened(tmp_path / "store")
    store = engine.store(1)
    await _fill(store)
    database.sizes.clear()
    await store.write(_change)
    assert max(database.sizes) <= 301 and sum(database.sizes) > 1_000, database.sizes
    assert await _shown(store) == AFTER
    await engine.close()


async def test_a_stop_between_any_two_writes_leaves_all_or_nothing(tmp_path: Path) -> None:
    outcomes = []
    for stop in count():
        path = tmp_path / str(stop)
        database = Database(path)
        layer = Layer()
        layer.writes.update(BEFORE)
        database.write(database.batch(layer))
        layer = Layer()
        layer.clear(b"0200", b"0300")
        layer.writes.update(dict.fromkeys(BEFORE, None) | dict(AFTER))
        batches = list(database.batches(layer))
        for batch in islice(batches, stop):
            database.write(batch)
        database.close()
        for _ in range(2):  # the second opening finds nothing to do
            again = Database(path)
            found = dict(again.scan(b"", b"\xff" * 40, False, 0))
            again.close()
            assert found in (BEFORE, AFTER), f"half a transaction after {stop} writes"
        outcomes.append(found == AFTER)
        if stop == len(batches):
            break
    assert outcomes == sorted(outcomes) and not outcomes[0] and outcomes[-1]
    assert outcomes.index(True) < len(outcomes) - 2, "the marker decides, not the last portion"


async def test_readers_see_none_of_it_while_it_is_written(tmp_path: Path) -> None:
    engine, database = _opened(tmp_path / "store")
    store = engine.store(1)
    await _fill(store)
    database.errors = {len(database.sizes) + at: "Write stall" for at in (3, 10)}
    database.gate.clear()
    writing = asyncio.ensure_future(store.write(_change))
    keeping = None
    while engine._sync is None:
        await asyncio.sleep(0.001)
        assert await _shown(store) == BEFORE
        if not engine._is_whole.is_set() and keeping is None:
            keeping = asyncio.ensure_future(store.keep())
    assert keeping is not None
    assert await _shown(store) == BEFORE
    kept = await keeping
    assert dict(kept.scan(b"", END)) == AFTER, "a kept snapshot waits until the transaction is whole"
    kept.release()
    assert not writing.done()
    database.gate.set()
    await writing
    assert await _shown(store) == AFTER
    await engine.close()


@pytest.mark.parametrize("nth", [1, 5, 6, 8, 10])
async def test_a_write_that_fails_in_the_middle(
    tmp_path: Path, nth: int, monkeypatch: pytest.MonkeyPatch, with_limits: WithLimits
) -> None:
    with_limits(REOPEN_SECONDS_MIN=0.01)
    monkeypatch.setattr(rocks, "Database", WatchedDatabase)
    engine, database = _opened(tmp_path / "store")
    store = engine.store(1)
    await _fill(store)
    database.errors = {len(database.sizes) + nth: "IO error: No space left on device"}
    with pytest.raises(Failure, match="not known"):
        await store.write(_change)
    await until(lambda: engine._failure is None, "storage is open again")
    assert await _shown(store) == (BEFORE if nth <= 5 else AFTER)
    await store.write(_change)
    assert await _shown(store) == AFTER
    await engine.close()


async def test_a_sync_that_fails_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_limits: WithLimits
) -> None:
    with_limits(REOPEN_SECONDS_MIN=0.01)
    monkeypatch.setattr(rocks, "Database", WatchedDatabase)
    engine, database = _opened(tmp_path / "store")
    store = engine.store(1)
    await _fill(store)
    database.gate.clear()
    database.sync_error = "IO error: While fsync: Input/output error"
    small = asyncio.ensure_future(store.write(lambda txn: txn.put(b"0000", b"old")))
    await until(lambda: engine._sync is not None, "a sync has begun")
    database.errors = {len(database.sizes) + 7: "Write stall"}
    large = asyncio.ensure_future(store.write(_change))
    await until(lambda: engine._stalled is not None, "the portions are stalled")
    database.gate.set()
    with pytest.raises(Failure, match="not known"):
        await small
    with pytest.raises(Failure, match="not known"):
        await large
    await until(lambda: engine._failure is None, "storage is open again")
    assert await _shown(store) == AFTER, "its record was whole"
    await engine.close()
