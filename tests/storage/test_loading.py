"""Snapshots that are kept and stores that are filled at once, on every engine: what copies are made of."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.limits import WithLimits

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.storage.engine import Engine, Store, Txn
from armillary.storage.rocks import RocksEngine

END = b"\xff\xff"


async def everything(store: Store) -> dict[bytes, bytes]:
    return await store.read(lambda view: dict(view.scan(b"", END)))


async def fill(store: Store, pairs: dict[bytes, bytes]) -> None:
    def fn(txn: Txn) -> None:
        for key, value in pairs.items():
            txn.put(key, value)

    await store.write(fn)


async def test_a_kept_snapshot_stays_as_it_was(engine: Engine) -> None:
    store, other = engine.store(1), engine.store(2)
    before = {b"%04d" % number: b"v%d" % number for number in range(500)}
    await fill(store, before)
    await fill(other, {b"x": b"y"})
    kept = await store.keep()
    scan = kept.scan(b"", END)
    seen = [next(scan) for _ in range(10)]
    await fill(store, {b"0100": b"changed", b"new": b"1"})
    await store.write(lambda txn: txn.delete_range(b"0200", b"0300"))
    seen += scan
    assert dict(seen) == before
    assert [key for key, _ in seen] == sorted(before)
    assert kept.get(b"0100") == b"v100"
    assert kept.get(b"new") is None
    assert kept.get_many([b"0250", b"nothing"]) == [b"v250", None]
    assert list(kept.scan(b"0100", b"0102")) == [(b"0100", b"v100"), (b"0101", b"v101")]
    kept.release()


async def test_what_was_loaded_is_there(engine: Engine, seed: int) -> None:
    dice = random.Random(seed)
    store, neighbours = engine.store(5), (engine.store(4), engine.store(6))
    for each in neighbours:
        await fill(each, {b"here": b"before"})
    loader = store.loader()
    expected: dict[bytes, bytes] = {}
    for space in (b"i", b"c", b"t"):  # each ascending, not all of them together
        keys = sorted({space + dice.randbytes(4) for _ in range(2_000)})
        for at in range(0, len(keys), 128):
            pairs = [(key, dice.randbytes(dice.choice([0, 5, 200]))) for key in keys[at : at + 128]]
            loader.put(pairs)
            expected.update(pairs)
    loader.put([])
    await loader.finish()
    await fill(store, {b"m": b"done"})
    assert await everything(store) == expected | {b"m": b"done"}
    for each in neighbours:
        assert await everything(each) == {b"here": b"before"}
    await engine.drop(5)
    assert await everything(store) == {}


async def test_an_abandoned_load_can_be_dropped(engine: Engine) -> None:
    store = engine.store(5)
    loader = store.loader()
    loader.put([(b"a", b"1"), (b"b", b"2")])
    loader.abandon()
    await engine.drop(5)
    assert await everything(store) == {}


async def test_a_load_of_many_tables_survives_a_reopening(tmp_path: Path, with_limits: WithLimits) -> None:
    with_limits(LOAD_TABLE_BYTES=64 * limits.KB)
    engine = await RocksEngine.open(tmp_path)
    loader = engine.store(3).loader()
    expected = {number.to_bytes(4, "big"): random.Random(number).randbytes(500) for number in range(2_000)}
    pairs = list(expected.items())
    for at in range(0, len(pairs), 100):
        loader.put(pairs[at : at + 100])
    await loader.finish()
    await fill(engine.store(3), {b"m": b"done"})
    await engine.close()
    (tmp_path / "load" / "77.sst").write_text("left over by somebody who was killed")
    engine = await RocksEngine.open(tmp_path)
    assert await everything(engine.store(3)) == expected | {b"m": b"done"}
    assert not list((tmp_path / "load").iterdir())
    await engine.close()


async def test_a_pinned_snapshot_is_read_in_any_way(engine: Engine) -> None:
    store = engine.store(7)
    before = {b"%04d" % number: b"v%d" % number for number in range(300)}
    await fill(store, before)
    pinned = await store.pin()
    up, down = pinned.scan(b"", END), pinned.scan(b"", END, reverse=True)
    first, last = [next(up) for _ in range(5)], [next(down) for _ in range(5)]
    await fill(store, {b"0100": b"changed", b"new": b"1"})
    await store.write(lambda txn: txn.delete_range(b"0200", b"0300"))
    rising = pinned.scan(b"", END)
    falling = pinned.scan(b"", END, reverse=True)
    assert [next(rising), next(falling), next(rising)] == [first[0], last[0], first[1]]
    assert dict(pinned.scan(b"", END)) == before
    assert pinned.get(b"0100") == b"v100" and pinned.get(b"new") is None
    assert pinned.get_many([b"0250", b"nothing"]) == [b"v250", None]
    pinned.release()


async def test_a_full_disk_ends_a_load(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path, reserve_bytes=1 << 60)
    with pytest.raises(Failure) as caught:
        await engine.store(3).keep()
    assert caught.value.kind is Kind.STORAGE_FULL
    with pytest.raises(Failure) as caught:
        engine.store(3).loader().put([(b"a", b"1")])
    assert caught.value.kind is Kind.STORAGE_FULL
    await engine.close()


async def test_a_disk_that_is_full_at_the_end_of_a_load(tmp_path: Path) -> None:
    """Nothing of the load is there, no file is left behind, and it can be done again."""
    engine = await RocksEngine.open(tmp_path)
    loader, reserve_bytes = engine.store(3).loader(), engine._reserve_bytes
    loader.put([(b"a", b"1")])
    engine._reserve_bytes = 1 << 60
    with pytest.raises(Failure) as caught:
        await loader.finish()
    assert caught.value.kind is Kind.STORAGE_FULL
    assert not list((tmp_path / "load").iterdir())
    engine._reserve_bytes = reserve_bytes
    assert await everything(engine.store(3)) == {}
    again = engine.store(3).loader()
    again.put([(b"a", b"1")])
    await again.finish()
    await fill(engine.store(3), {b"m": b"done"})
    assert await everything(engine.store(3)) == {b"a": b"1", b"m": b"done"}
    await engine.close()
