"""The embedded engine beyond what every engine promises: durability, group commit, faults, and who owns a directory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from support.limits import WithLimits
from support.waiting import until

from armillary import limits, work
from armillary.clock import SystemClock
from armillary.errors import Failure, Kind
from armillary.limits import BLOCK_CACHE_BYTES
from armillary.storage import rocks
from armillary.storage.directory import DataDirectory
from armillary.storage.engine import Store, Txn, View
from armillary.storage.rocks import RocksEngine
from armillary.storage.rocks_database import Database

END = b"\xff\xff"


class TestedDatabase(Database):
    """A real database whose syncs can be held up or made to fail."""

    __test__ = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gate = threading.Event()
        self.gate.set()
        self.sync_count = 0
        self.sync_error: str | None = None
        self.write_errors: list[str] = []

    def write(self, layer: object) -> None:
        if self.write_errors:
            raise Exception(self.write_errors.pop(0))
        super().write(layer)  # type: ignore[arg-type]

    def sync(self) -> None:
        self.gate.wait(10)
        self.sync_count += 1
        if self.sync_error is not None:
            raise Exception(self.sync_error)
        super().sync()


class Opened:
    def __init__(self, path: Path, is_relaxed: bool) -> None:
        directory = DataDirectory.claim(path)
        self.database = TestedDatabase(directory.engine_path)
        self.engine = RocksEngine(directory, self.database, is_relaxed, 0, SystemClock())
        self.store = self.engine.store(1)


@pytest.fixture
async def full(tmp_path: Path) -> AsyncIterator[Opened]:
    opened = Opened(tmp_path / "store", is_relaxed=False)
    yield opened
    opened.database.gate.set()
    await opened.engine.close()


@pytest.fixture
async def relaxed(tmp_path: Path) -> AsyncIterator[Opened]:
    opened = Opened(tmp_path / "store", is_relaxed=True)
    yield opened
    await opened.engine.close()


def putting(key: bytes, value: bytes = b"1") -> Callable[[Txn], None]:
    return lambda txn: txn.put(key, value)


async def write_soon(store: Store, key: bytes) -> None:
    """Once storage has come back."""
    while True:
        try:
            return await store.write(putting(key))
        except Failure as failure:
            if failure.kind not in (Kind.UNAVAILABLE, Kind.STORAGE_FULL):
                raise
            await asyncio.sleep(0.02)


async def keys(store: Store) -> list[bytes]:
    return await store.read(lambda view: [key for key, _ in view.scan(b"", END)])


async def test_nothing_is_acknowledged_or_shown_before_it_is_synced(full: Opened) -> None:
    store, database = full.store, full.database
    for number in range(50):
        await store.write(putting(b"%02d" % number))
    before = await keys(store)
    database.gate.clear()
    first = asyncio.ensure_future(store.write(putting(b"first")))
    await asyncio.sleep(0.02)
    second = asyncio.ensure_future(store.write(_taking_over))
    refused = asyncio.ensure_future(store.write(_conflicting(b"first")))
    await asyncio.sleep(0.05)
    # The second function ran on the first one's state, and no reader has seen either of them.
    assert not first.done()
    assert not second.done()
    assert not refused.done(), "an error may come from what is not durable yet"
    assert await keys(store) == before
    assert await store.read(lambda view: view.get(b"first")) is None
    assert await store.read(lambda view: view.get(b"10")) == b"1"
    assert await store.read(lambda view: [key for key, _ in view.scan(b"", END, reverse=True)]) == before[::-1]
    database.gate.set()
    assert await second == b"1"
    assert first.done()
    with pytest.raises(Failure):
        await refused
    assert await keys(store) == [*before[40:], b"first"]


def _taking_over(txn: Txn) -> bytes | None:
    txn.delete_range(b"", b"40")
    return txn.get(b"first")


def _conflicting(key: bytes) -> Callable[[Txn], None]:
    def fn(txn: Txn) -> None:
        if txn.get(key) is not None:
            raise Failure(Kind.CONFLICT, "exists")

    return fn


async def test_writers_share_syncs(full: Opened) -> None:
    await asyncio.gather(*(full.store.write(putting(b"%d" % number)) for number in range(500)))
    assert full.database.sync_count < 50


async def test_functions_run_in_slices_so_that_the_loop_gets_its_turn(full: Opened) -> None:
    run_count = 0
    runs_at_turns: set[int] = set()

    async def beat() -> None:
        while True:
            runs_at_turns.add(run_count)
            await asyncio.sleep(0)

    def slow(txn: Txn) -> None:
        nonlocal run_count
        run_count += 1
        for number in range(2000):
            txn.put(b"%d" % number, b"1")

    beating = asyncio.ensure_future(beat())
    await asyncio.gather(*(full.store.write(slow) for _ in range(200)))
    beating.cancel()
    assert len(runs_at_turns) > 10, "what runs between two turns is a small part of all"


async def test_relaxed_answers_before_the_sync_and_syncs_soon(relaxed: Opened) -> None:
    relaxed.database.gate.clear()
    await relaxed.store.write(putting(b"a"))
    assert await keys(relaxed.store) == [b"a"]
    assert relaxed.database.sync_count == 0
    relaxed.database.gate.set()
    await until(lambda: relaxed.database.sync_count > 0, "what was written is synced")
    await asyncio.sleep(0.25)
    assert relaxed.database.sync_count == 1, "once, and not again while nothing is written"


@pytest.mark.parametrize("durability", ["full", "relaxed"])
async def test_reopening_finds_everything(tmp_path: Path, durability: rocks.Durability) -> None:
    engine = await RocksEngine.open(tmp_path / "new" / "store", durability)
    await engine.store(3).write(putting(b"a", b"x" * 100))
    await engine.close()
    engine = await RocksEngine.open(tmp_path / "new" / "store", durability)
    assert await engine.store(3).read(lambda view: view.get(b"a")) == b"x" * 100
    await engine.close()


def test_a_database_that_exists_is_opened_with_our_settings(tmp_path: Path) -> None:
    for _ in range(2):
        database = Database(tmp_path / "rocks")
        assert database._rdict.property_int_value("rocksdb.block-cache-capacity") == BLOCK_CACHE_BYTES
        database.close()


async def test_a_kept_exception_does_not_keep_the_directory(tmp_path: Path) -> None:
    kept = []
    for _ in range(3):
        engine = await RocksEngine.open(tmp_path / "store")
        store = engine.store(1)
        await store.write(putting(b"a"))
        for method in (store.write, store.read):
            with pytest.raises(ZeroDivisionError) as caught:
                await method(lambda view: [1 // 0 for _ in view.scan(b"", END)])
            kept.append(caught)
        await engine.close()


async def test_a_failed_sync_is_answered_as_unknown_and_storage_comes_back(full: Opened) -> None:
    store = full.store
    await store.write(putting(b"before"))
    full.database.gate.clear()
    full.database.sync_error = "IO error: something with the disk"
    first = asyncio.ensure_future(store.write(putting(b"first")))
    await asyncio.sleep(0.02)
    second = asyncio.ensure_future(store.write(putting(b"second")))
    await asyncio.sleep(0.02)
    full.database.gate.set()
    for task in (first, second):
        with pytest.raises(Failure, match="not known") as caught:
            await task
        assert caught.value.kind is Kind.UNAVAILABLE
        assert "something" not in caught.value.message
    assert b"before" in await keys(store)
    await write_soon(store, b"after")
    assert {b"before", b"after"} <= set(await keys(store))


async def test_a_failed_write_is_answered_and_storage_comes_back(full: Opened) -> None:
    store = full.store
    await store.write(putting(b"before"))
    full.database.write_errors = ["IO error: No space left on device: whatever"]
    with pytest.raises(Failure) as caught:
        await store.write(putting(b"refused"))
    assert caught.value.kind is Kind.STORAGE_FULL
    assert await keys(store) == [b"before"]
    await write_soon(store, b"after")
    assert await keys(store) == [b"after", b"before"]


async def test_a_stalled_write_is_waited_out(full: Opened) -> None:
    full.database.write_errors = ["Result incomplete: Write stall"] * 5
    await asyncio.gather(*(full.store.write(putting(b"%d" % number)) for number in range(5)))
    assert len(await keys(full.store)) == 5


async def test_a_sync_that_fails_during_a_stall(full: Opened, with_limits: WithLimits) -> None:
    """The stalled group was run on what may be lost with the sync: it is refused, and so is what waits behind it and
    what comes before the stall is looked at again. None hangs, and what comes later is run on what is stored."""
    with_limits(STALL_RETRY_SECONDS=0.3)
    store, database = full.store, full.database
    database.gate.clear()
    synced = asyncio.ensure_future(store.write(putting(b"synced")))
    await asyncio.sleep(0.02)
    database.write_errors = ["Result incomplete: Write stall"] * 1_000_000
    stalled = asyncio.ensure_future(store.write(putting(b"stalled")))
    await asyncio.sleep(0.02)
    behind = asyncio.ensure_future(store.write(putting(b"behind")))
    await asyncio.sleep(0.02)
    assert not any(each.done() for each in (synced, stalled, behind))
    database.sync_error = "IO error: something"
    database.gate.set()
    with pytest.raises(Failure, match="not known"):
        await synced
    after = asyncio.ensure_future(store.write(putting(b"after")))
    async with asyncio.timeout(10):
        outcomes = await asyncio.gather(stalled, behind, after, return_exceptions=True)
    assert all(isinstance(each, Failure) and "not known" not in str(each) for each in outcomes), outcomes
    await write_soon(store, b"later")
    await asyncio.sleep(2 * limits.STALL_RETRY_SECONDS)
    assert set(await keys(store)) - {b"synced"} == {b"later"}


async def test_closing_while_broken(full: Opened) -> None:
    full.database.sync_error = "IO error: something"
    with pytest.raises(Failure):
        await full.store.write(putting(b"a"))
    await full.engine.close()


async def test_dropping_gives_the_room_back(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path / "store", "relaxed")

    def fill(txn: Txn) -> None:
        for number in range(200):
            txn.put(b"%d" % number, random.Random(number).randbytes(20_000))

    for _ in range(10):
        await engine.store(1).write(fill)
    await engine.store(2).write(putting(b"kept"))
    await engine.close()
    assert _table_bytes(tmp_path) > 3_000_000
    engine = await RocksEngine.open(tmp_path / "store", "relaxed")
    await engine.drop(1)
    await until(lambda: _table_bytes(tmp_path) < 100_000, "its tables are gone")
    assert await keys(engine.store(2)) == [b"kept"]
    await engine.close()


def _table_bytes(path: Path) -> int:
    """Of the tables there are; RocksDB removes some while they are being listed."""
    size = 0
    for table in path.rglob("*.sst"):
        with contextlib.suppress(FileNotFoundError):
            size += table.stat().st_size
    return size


def _damage(path: Path) -> None:
    (table,) = path.rglob("*.sst")
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 0xFF
    table.write_bytes(content)


def _remove_tables(path: Path) -> None:
    for table in path.rglob("*.sst"):
        table.unlink()


@pytest.mark.parametrize("how", ["get", "scan", "reverse"])
async def test_damage_is_reported_and_never_skipped(tmp_path: Path, how: str) -> None:
    engine = await RocksEngine.open(tmp_path / "store")

    def fill(txn: Txn) -> None:
        for number in range(2000):
            txn.put(b"%05d" % number, random.Random(number).randbytes(100))

    await engine.store(1).write(fill)
    await engine.close()
    _damage(tmp_path)
    engine = await RocksEngine.open(tmp_path / "store")

    def read(view: View) -> object:
        if how == "get":
            return view.get_many([b"%05d" % number for number in range(2000)])
        return list(view.scan(b"", END, how == "reverse"))

    with pytest.raises(Failure) as caught:
        await engine.store(1).read(read)
    assert caught.value.kind is Kind.CORRUPT
    assert str(tmp_path) not in caught.value.message
    with pytest.raises(Failure) as caught:
        await engine.store(1).write(read)
    assert caught.value.kind is Kind.CORRUPT
    await engine.close()


async def test_a_missing_file_is_refused_as_damage(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path / "store")
    await engine.store(1).write(putting(b"a"))
    await engine.close()
    _remove_tables(tmp_path)
    with pytest.raises(Failure) as caught:
        await RocksEngine.open(tmp_path / "store")
    assert caught.value.kind is Kind.CORRUPT
    assert str(tmp_path) not in caught.value.message


# Who owns a directory.


async def test_a_second_owner_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path / "store")
    with pytest.raises(Failure, match=str(os.getpid())) as caught:
        await RocksEngine.open(tmp_path / "store")
    assert caught.value.kind is Kind.UNAVAILABLE
    code = (
        "import asyncio, sys; from armillary.storage.rocks import RocksEngine; from armillary.errors import Failure\n"
        "try: asyncio.run(RocksEngine.open(sys.argv[1]))\n"
        "except Failure as failure: print(failure.message)"
    )
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(tmp_path / "store"), stdout=subprocess.PIPE
    )
    said, _ = await other.communicate()
    assert f"process {os.getpid()}" in said.decode()
    await engine.close()
    await (await RocksEngine.open(tmp_path / "store")).close()


async def test_an_unknown_format_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "store"
    await (await RocksEngine.open(path)).close()
    (path / "FORMAT").write_text("armillary 99\n")
    with pytest.raises(Failure, match="format 99") as caught:
        await RocksEngine.open(path)
    assert caught.value.kind is Kind.UNSUPPORTED
    (path / "FORMAT").write_text("what\n")
    with pytest.raises(Failure) as caught:
        await RocksEngine.open(path)
    assert caught.value.kind is Kind.CORRUPT
    (path / "FORMAT").write_text("armillary 1\n")  # change log without item numbers: older, and refused as clearly
    with pytest.raises(Failure, match="format 1; this version of Armillary reads formats 2 to 3") as caught:
        await RocksEngine.open(path)
    assert caught.value.kind is Kind.UNSUPPORTED
    (path / "FORMAT").write_text("armillary 2\n")  # read, and made one of today
    await (await RocksEngine.open(path)).close()
    assert (path / "FORMAT").read_text() == "armillary 3\n"


async def test_a_strange_directory_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("dear")
    with pytest.raises(Failure, match="not empty"):
        await RocksEngine.open(tmp_path)
    assert os.listdir(tmp_path) == ["letters"]
    with pytest.raises(Failure) as caught:
        await RocksEngine.open(tmp_path / "letters")  # a file
    assert str(tmp_path) not in caught.value.message


async def test_a_directory_whose_making_was_interrupted_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text("")
    (tmp_path / "FORMAT.new").write_text("arm")
    await (await RocksEngine.open(tmp_path)).close()


async def test_a_sync_that_fails_while_a_function_has_given_way(full: Opened) -> None:
    """The function's group is refused and not written; what comes later finds storage open again."""
    begun = False

    def long(txn: Txn) -> None:
        nonlocal begun
        begun = True
        txn.put(b"long", b"")
        while full.engine._failure is None:
            work.spend(limits.WORK_SLICE_UNITS + 1)

    full.database.gate.clear()
    first = asyncio.ensure_future(full.store.write(putting(b"a")))
    await until(lambda: full.engine._sync is not None, "a sync is under way")
    writing = asyncio.ensure_future(full.store.write(long))
    await until(lambda: begun, "the function has begun")
    full.database.sync_error = "IO error: broken"
    full.database.gate.set()
    for each in (first, writing):
        with pytest.raises(Failure) as refused:
            await each
        assert refused.value.kind is Kind.UNAVAILABLE
    await until(lambda: full.engine._failure is None, "storage is open again")
    await full.store.write(putting(b"later"))
    assert b"later" in await keys(full.store)
    assert b"long" not in await keys(full.store)
