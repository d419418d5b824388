"""What every engine promises (storage/engine.py), one promise per test."""

from __future__ import annotations

import asyncio

import pytest

from armillary import limits, work
from armillary.errors import Failure, Kind
from armillary.storage.engine import Engine, Store, Txn, View

END = b"\xff\xff"


async def put(store: Store, **pairs: bytes) -> None:
    def fn(txn: Txn) -> None:
        for name, value in pairs.items():
            txn.put(name.encode(), value)

    await store.write(fn)


async def everything(store: Store) -> dict[bytes, bytes]:
    return await store.read(lambda view: dict(view.scan(b"", END)))


async def test_an_unused_store_is_empty(engine: Engine) -> None:
    store = engine.store(7)
    assert await store.read(lambda view: view.get(b"a")) is None
    assert await everything(store) == {}


async def test_what_was_written_is_read(engine: Engine) -> None:
    store = engine.store(1)
    await put(store, a=b"1", b=b"", c=b"3")
    assert await store.read(lambda view: view.get(b"a")) == b"1"
    assert await store.read(lambda view: view.get(b"b")) == b""
    assert await store.read(lambda view: view.get_many([b"c", b"x", b"a"])) == [b"3", None, b"1"]


async def test_the_empty_key_and_long_keys_work(engine: Engine) -> None:
    store = engine.store(1)
    long = b"\xff" * 5000

    def fn(txn: Txn) -> None:
        txn.put(b"", b"empty")
        txn.put(long, b"long")

    await store.write(fn)
    assert await store.read(lambda view: view.get(b"")) == b"empty"
    assert await store.read(lambda view: list(view.scan(b"", long + b"\0"))) == [(b"", b"empty"), (long, b"long")]


async def test_scans_are_ordered_bounded_and_reversible(engine: Engine) -> None:
    store = engine.store(1)
    await put(store, a=b"1", b=b"2", c=b"3", d=b"4")
    assert await store.read(lambda view: [key for key, _ in view.scan(b"b", b"d")]) == [b"b", b"c"]
    assert await store.read(lambda view: [key for key, _ in view.scan(b"b", b"d", reverse=True)]) == [b"c", b"b"]
    assert await store.read(lambda view: list(view.scan(b"d", b"b"))) == []
    assert await store.read(lambda view: list(view.scan(b"b", b"b", reverse=True))) == []
    assert await store.read(lambda view: next(view.scan(b"aa", END))) == (b"b", b"2")
    assert await store.read(lambda view: next(view.scan(b"", b"cc", reverse=True))) == (b"c", b"3")


async def test_several_scans_at_once(engine: Engine) -> None:
    store = engine.store(1)
    count = 700  # more than one chunk

    def fill(txn: Txn) -> None:
        for number in range(count):
            txn.put(b"%04d" % number, b"v")

    def interleaved(view: View) -> bool:
        up = view.scan(b"", END)
        down = view.scan(b"", END, reverse=True)
        return all(
            a == b"%04d" % number and b == b"%04d" % (count - 1 - number)
            for number, ((a, _), (b, _)) in enumerate(zip(up, down, strict=True))
        )

    await store.write(fill)
    assert await store.read(interleaved)
    assert await store.write(interleaved)


async def test_stores_are_separate(engine: Engine) -> None:
    first, second = engine.store(1), engine.store(2)
    await put(first, a=b"1")
    await put(second, a=b"2")
    await first.write(lambda txn: txn.delete_range(b"", END))
    assert await everything(first) == {}
    assert await everything(second) == {b"a": b"2"}


async def test_a_transaction_sees_its_own_writes(engine: Engine) -> None:
    store = engine.store(1)
    await put(store, a=b"old", b=b"old", c=b"old")

    def fn(txn: Txn) -> list[tuple[bytes, bytes]]:
        txn.put(b"a", b"new")
        txn.delete(b"b")
        txn.put(b"bb", b"new")
        assert txn.get(b"a") == b"new"
        assert txn.get(b"b") is None
        assert txn.get_many([b"bb", b"c"]) == [b"new", b"old"]
        return list(txn.scan(b"", END))

    assert await store.write(fn) == [(b"a", b"new"), (b"bb", b"new"), (b"c", b"old")]


async def test_a_range_delete_hides_what_is_stored_and_not_what_is_put_after_it(engine: Engine) -> None:
    store = engine.store(1)
    await put(store, a=b"1", b=b"1", c=b"1", d=b"1")

    def fn(txn: Txn) -> tuple[bytes | None, list[bytes], list[bytes]]:
        txn.put(b"bb", b"2")
        txn.delete_range(b"b", b"d")
        txn.put(b"c", b"3")
        return (
            txn.get(b"bb"),
            [key for key, _ in txn.scan(b"", END)],
            [key for key, _ in txn.scan(b"", END, reverse=True)],
        )

    assert await store.write(fn) == (None, [b"a", b"c", b"d"], [b"d", b"c", b"a"])
    assert await everything(store) == {b"a": b"1", b"c": b"3", b"d": b"1"}


async def test_an_empty_or_upside_down_range_deletes_nothing(engine: Engine) -> None:
    store = engine.store(1)
    await put(store, a=b"1")
    await store.write(lambda txn: txn.delete_range(b"a", b"a"))
    await store.write(lambda txn: txn.delete_range(b"b", b"a"))
    assert await everything(store) == {b"a": b"1"}


async def test_a_scan_shows_the_state_in_which_it_began(engine: Engine) -> None:
    store = engine.store(1)
    await put(store, a=b"1", b=b"1", c=b"1")

    def fn(txn: Txn) -> list[bytes]:
        txn.put(b"bb", b"1")
        seen = []
        for key, _ in txn.scan(b"", END):
            seen.append(key)
            txn.delete(key)
            txn.put(key + b"x", b"2")
        return seen

    assert await store.write(fn) == [b"a", b"b", b"bb", b"c"]
    assert list(await everything(store)) == [b"ax", b"bbx", b"bx", b"cx"]


async def test_a_failing_function_leaves_nothing_and_its_neighbours_succeed(engine: Engine) -> None:
    store = engine.store(1)

    def bad(txn: Txn) -> None:
        txn.put(b"bad", b"1")
        txn.delete_range(b"", END)
        raise Failure(Kind.CONFLICT, "no")

    first = asyncio.ensure_future(store.write(lambda txn: txn.put(b"1", b"")))
    second = asyncio.ensure_future(store.write(bad))
    third = store.write(lambda txn: [key for key, _ in txn.scan(b"", END)])
    await first
    with pytest.raises(Failure) as caught:
        await second
    assert caught.value.kind is Kind.CONFLICT
    assert await third == [b"1"]
    assert await everything(store) == {b"1": b""}


async def test_functions_on_several_stores_are_one_transaction(engine: Engine) -> None:
    first, second = engine.store(1), engine.store(2)
    await put(first, a=b"1")

    def take(txn: Txn) -> bytes | None:
        found = txn.get(b"a")
        txn.delete_range(b"a", b"b")
        txn.put(b"b", b"2")
        return found

    def give(txn: Txn) -> bytes | None:
        assert txn.get(b"b") is None, "each sees its own store"
        txn.put(b"a", b"1")
        return txn.get(b"a")

    def fail(txn: Txn) -> bytes | None:
        txn.put(b"c", b"3")
        raise KeyError("no")

    with pytest.raises(KeyError):
        await first.write_together([(first, take), (second, fail)])
    assert (await everything(first), await everything(second)) == ({b"a": b"1"}, {})
    assert await second.write_together([(first, take), (second, give)]) == [b"1", b"1"]
    assert (await everything(first), await everything(second)) == ({b"b": b"2"}, {b"a": b"1"})


async def test_any_exception_reaches_the_caller(engine: Engine) -> None:
    store = engine.store(1)

    def fn(view: View) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await store.write(fn)
    with pytest.raises(ValueError, match="mine"):
        await store.read(fn)
    with pytest.raises(RuntimeError):
        await store.write(lambda txn: next(txn.scan(b"", END)))  # StopIteration
    await put(store, a=b"1")  # and the engine goes on


async def test_an_acknowledged_write_is_read_by_everybody_at_once(engine: Engine) -> None:
    store = engine.store(1)
    for number in range(50):
        value = b"%d" % number
        await put(store, a=value)
        assert await store.read(lambda view: view.get(b"a")) == value


async def test_concurrent_writers_are_serial(engine: Engine) -> None:
    store = engine.store(1)

    def increment(txn: Txn) -> int:
        value = int(txn.get(b"counter") or b"0") + 1
        txn.put(b"counter", b"%d" % value)
        return value

    async def writer() -> list[int]:
        return [await store.write(increment) for _ in range(20)]

    results = await asyncio.gather(*(writer() for _ in range(30)))
    assert sorted(value for values in results for value in values) == list(range(1, 601))
    assert all(values == sorted(values) for values in results)


async def test_a_read_never_sees_half_a_transaction(engine: Engine) -> None:
    store = engine.store(1)
    is_done = False

    async def writer() -> None:
        for number in range(100):
            value = b"%d" % number

            def fn(txn: Txn, value: bytes = value) -> None:
                txn.delete_range(b"", END)
                for place in range(20):
                    txn.put(b"%02d" % place, value)

            await store.write(fn)

    async def reader() -> int:
        count = 0
        while not is_done:
            values = await store.read(lambda view: [value for _, value in view.scan(b"", END)])
            again = await store.read(lambda view: view.get_many([b"%02d" % place for place in range(20)]))
            assert len(values) in (0, 20)
            assert len(set(values)) <= 1
            assert len(set(again)) == 1
            count += 1
            await asyncio.sleep(0.0005)
        return count

    reading = asyncio.ensure_future(reader())
    await asyncio.gather(writer(), writer())
    is_done = True
    assert await reading > 0


async def test_a_caller_that_goes_away_harms_nobody(engine: Engine) -> None:
    store = engine.store(1)
    tasks = [asyncio.ensure_future(put(store, **{f"k{number}": b"1"})) for number in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await put(store, last=b"1")
    found = await everything(store)
    assert {f"k{number}".encode() for number in range(1, 20, 2)} | {b"last"} <= set(found)


async def test_drop_empties_one_store(engine: Engine) -> None:
    first, second = engine.store(1), engine.store(2)
    await put(first, a=b"1", z=b"1")
    await put(second, a=b"2")
    await engine.drop(1)
    assert await everything(first) == {}
    assert await everything(engine.store(1)) == {}
    assert await everything(second) == {b"a": b"2"}
    await put(first, b=b"3")
    assert await everything(first) == {b"b": b"3"}


async def test_closing_finishes_waiting_writes_and_refuses_later_ones(engine: Engine) -> None:
    store = engine.store(1)
    tasks = [asyncio.ensure_future(put(store, a=b"1")) for _ in range(10)]
    await asyncio.sleep(0)
    await engine.close()
    await asyncio.gather(*tasks)
    with pytest.raises(Failure) as caught:
        await put(store, b=b"1")
    assert caught.value.kind is Kind.UNAVAILABLE
    with pytest.raises(Failure):
        await store.read(lambda view: view.get(b"a"))
    await engine.close()  # twice is fine


async def test_a_snapshot_stays_the_same_while_an_evaluation_gives_way(engine: Engine) -> None:
    store = engine.store(1)

    def fill(txn: Txn, value: bytes) -> None:
        for number in range(100):
            txn.put(b"%03d" % number, value)

    def look(view: View) -> set[bytes]:
        scan = view.scan(b"", b"\xff")
        seen = set()
        work.spend(limits.WORK_SLICE_UNITS + 1)
        for _, value in scan:
            work.spend(limits.WORK_SLICE_UNITS)
            seen.add(value)
        return seen

    await store.write(lambda txn: fill(txn, b"old"))
    looking = asyncio.create_task(store.evaluate(look))
    await asyncio.sleep(0)
    await store.write(lambda txn: fill(txn, b"new"))
    assert await looking == {b"old"}
    assert await store.evaluate(look) == {b"new"}


async def test_a_function_that_works_for_long_gives_way_to_readers_and_to_no_other_function(engine: Engine) -> None:
    store = engine.store(1)
    await put(store, a=b"before")
    seen: list[bytes | None] = []

    def long(txn: Txn) -> bytes | None:
        txn.put(b"a", b"half")
        for _ in range(20):
            work.spend(limits.WORK_SLICE_UNITS + 1)
        found = txn.get(b"a")
        txn.put(b"a", b"done")
        return found

    def other(txn: Txn) -> bytes | None:
        return txn.get(b"a")

    writing = asyncio.gather(store.write(long), store.write(other))
    while not writing.done():
        seen.append(await store.read(lambda view: view.get(b"a")))
        await asyncio.sleep(0)
    assert [*await writing] == [b"half", b"done"]
    assert seen.count(b"before") > 10
    assert set(seen) <= {b"before", b"done"}


async def test_a_function_that_fails_after_it_gave_way_leaves_nothing(engine: Engine) -> None:
    store = engine.store(1)

    def fail(txn: Txn) -> None:
        txn.put(b"a", b"1")
        work.spend(5 * limits.WORK_SLICE_UNITS)
        raise Failure(Kind.CONFLICT, "no")

    refused, _ = await asyncio.gather(store.write(fail), put(store, b=b"2"), return_exceptions=True)
    assert isinstance(refused, Failure)
    assert await everything(store) == {b"b": b"2"}


async def test_many_writes_in_one_transaction(engine: Engine) -> None:
    """More than are sorted at once."""
    store = engine.store(1)
    keys = [(number * 7919 % 25_000).to_bytes(4, "big") for number in range(25_000)]

    def fill(txn: Txn) -> None:
        for key in keys:
            txn.put(key, key)

    def empty(txn: Txn) -> None:
        for key in keys[100:]:
            txn.delete(key)

    await store.write(fill)
    assert await everything(store) == {key: key for key in sorted(keys)}
    await store.write(empty)
    assert await everything(store) == {key: key for key in sorted(keys[:100])}
