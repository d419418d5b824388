"""The cache of point reads: whatever is written, a read at hand sees the published state and nothing else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from support.limits import WithLimits

from armillary import limits, work
from armillary.storage.engine import Store, Txn, View
from armillary.storage.rocks import Durability, RocksEngine

_KEYS = [b"key-%d" % number for number in range(12)]


def _change(dice: random.Random, model: dict[bytes, bytes]) -> Callable[[Txn], None]:
    """A transaction, made in the model as well."""
    made = []
    for _ in range(dice.randrange(1, 4)):
        key, value = dice.choice(_KEYS), b"%d" % dice.randrange(10**9)
        kind = dice.randrange(10)
        if kind == 0:
            high = dice.choice([other for other in [*_KEYS, b"l"] if other > key] or [b"l"])
            for doomed in [other for other in model if key <= other < high]:
                del model[doomed]
            made.append(("clear", key, high))
        elif kind < 3:
            model.pop(key, None)
            made.append(("delete", key, b""))
        else:
            model[key] = value
            made.append(("put", key, value))

    def run(txn: Txn) -> None:
        for what, first, second in made:
            if what == "clear":
                txn.delete_range(first, second)
            elif what == "delete":
                txn.delete(first)
            else:
                txn.put(first, second)

    return run


def _seen(store: Store) -> dict[bytes, bytes]:
    view = store.at_hand()
    assert view is not None
    found = {key: view.get(key) for key in _KEYS}
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize("durability", get_args(Durability))
@pytest.mark.parametrize("seed", range(20))
async def test_reads_at_hand_see_what_is_published(
    tmp_path: Path, durability: Durability, seed: int, with_limits: WithLimits
) -> None:
    with_limits(READ_CACHE_BYTES_MAX=2_000)  # about eight entries
    dice = random.Random(seed)
    engine = await RocksEngine.open(tmp_path, durability)
    store, other, model = engine.store(1), engine.store(2), dict[bytes, bytes]()
    await other.write(lambda txn: txn.put(_KEYS[0], b"other"))
    for _ in range(60):
        before = dict(model)
        writes = [asyncio.ensure_future(store.write(_change(dice, model))) for _ in range(dice.randrange(1, 4))]
        assert _seen(store) == before, "nothing is published before it is written"
        while not all(each.done() for each in writes):
            await asyncio.sleep(0)
            seen = _seen(store)
            assert seen in (before, model) or len(writes) > 1
        assert _seen(store) == model
        assert _seen(other) == {_KEYS[0]: b"other"}
        assert engine.read_cache.size_bytes <= 2_000
    assert engine.read_cache.hits and engine.read_cache.misses
    await engine.close()


async def test_large_values_are_not_kept(tmp_path: Path, with_limits: WithLimits) -> None:
    with_limits(READ_CACHE_VALUE_BYTES_MAX=10)
    engine = await RocksEngine.open(tmp_path, "relaxed")
    store = engine.store(1)
    for key, size in ((b"small", 10), (b"large", 11)):
        await store.write(lambda txn, key=key, size=size: txn.put(key, b"x" * size))  # type: ignore[misc]
    view = store.at_hand()
    assert view is not None
    assert [len(view.get(key) or b"") for key in (b"small", b"large")] == [10, 11]
    assert len(engine.read_cache.values) == 1
    await engine.close()


def _put(txn: Txn, keys: list[bytes], value: bytes) -> None:
    for key in keys:
        txn.put(key, value)


async def test_an_evaluation_sees_one_state_while_others_are_published(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path)
    store = engine.store(1)
    await store.write(lambda txn: _put(txn, _KEYS, b"old"))

    def seen(view: View) -> list[bytes | None]:
        return [*view.get_many(_KEYS), *[view.get(key) for key in _KEYS]]

    def change(txn: Txn) -> None:
        _put(txn, _KEYS[1:], b"new")
        txn.delete(_KEYS[0])

    def evaluate(view: View) -> list[list[bytes | None]]:
        before = seen(view)  # cached from here on
        work.wait(store.write(change))
        return [before, seen(view)]

    for found in await store.evaluate(evaluate):
        assert found == [b"old"] * 2 * len(_KEYS)
    for _ in range(2):  # read, and cached
        assert await store.evaluate(seen) == [None, *[b"new"] * 11] * 2
    assert _seen(store) == dict.fromkeys(_KEYS[1:], b"new")
    await engine.close()


async def test_long_lists_do_not_displace_what_is_read_often(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path)
    store = engine.store(1)
    keys = [b"%03d" % number for number in range(2 * limits.READ_CACHE_BATCH_MAX)]
    await store.write(lambda txn: _put(txn, keys, b"value"))
    assert await store.evaluate(lambda view: view.get_many(keys)) == [b"value"] * len(keys)
    assert engine.read_cache.figures().entries == 0
    await store.evaluate(lambda view: view.get_many(keys[:3]))
    assert engine.read_cache.figures().entries == 3
    await engine.close()
