"""Transactions and snapshot reads over several processes: of one moment, and all or nothing whichever process ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.server_processes import ServerProcesses, server_processes

from armillary.account.catalog.allocation import place_of_store
from armillary.account.collections.spanning_transactions import OpenTransaction, begin_transaction
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.snapshots.snapshot_reads import take_snapshot
from armillary.errors import Failure, Kind
from armillary.partition.history.retryable_write_records import Record

KEYS = [f"k{number}" for number in range(12)]


@pytest.fixture
async def server() -> AsyncIterator[ServerProcesses]:
    async with server_processes() as server:
        container = await server.create()
        assert {place_of_store(each.store) for each in container.map.ranges} == {0, 1, 2}
        await server.put(*[{"id": "a", "pk": key, "n": 0} for key in KEYS])
        yield server


def record(number: int = 1) -> Record:
    return Record(b"s" * 16, number, (0,), (b"committed",))


def place_of(server: ServerProcesses, key: str) -> int:
    container = server.first.container("db", "c")
    return place_of_store(container.map.find(container.effective_key(container.key_of({"pk": key}))).store)


def keys_of(server: ServerProcesses, *places: int) -> list[str]:
    return [next(key for key in KEYS if place_of(server, key) == place) for place in places]


async def write(server: ServerProcesses, process: int, transaction: OpenTransaction, key: str, n: int) -> None:
    container = server[process].account.container("db", "c")
    document = {"id": "a", "pk": key, "n": n}
    own = container.key_of(document)
    inside = await transaction.within(container, own, is_own=False)
    await items.upsert(inside, document, ItemOptions(key=own), server.clock)


async def read(server: ServerProcesses, process: int, transaction: OpenTransaction | None, key: str) -> int:
    container = server[process].account.container("db", "c")
    own = container.key_of({"pk": key})
    if transaction is not None:
        container = await transaction.within(container, own, is_own=False)
    answer = await items.read(container, "a", ItemOptions(key=own))
    assert answer.payload is not None
    found: int = orjson.loads(answer.payload)["n"]
    return found


async def stored(server: ServerProcesses) -> dict[str, int]:
    found = [orjson.loads(each) for each in await server.contents()]
    return {each["pk"]: each["n"] for each in found}


@pytest.mark.parametrize("keeper", [0, 1, 2])
async def test_a_commit_over_all_processes(server: ServerProcesses, keeper: int) -> None:
    transaction = await begin_transaction(server[keeper].account)
    for key in KEYS:
        await write(server, keeper, transaction, key, 1)
        assert await read(server, keeper, transaction, key) == 1
    assert set((await stored(server)).values()) == {0}
    await transaction.commit(record())
    assert set((await stored(server)).values()) == {1}
    # Nothing is held, pinned or promised any more.
    for process in server.processes:
        assert process.here.transactions.promises.are_none
        await server.put(*[{"id": "a", "pk": key, "n": 2} for key in KEYS], process=process.number)
    await asyncio.sleep(0)
    assert [len(each.here.transactions.parts) for each in server.processes] == [0, 0, 0]


async def test_a_conflict_in_one_process_undoes_all(server: ServerProcesses) -> None:
    for loser in (0, 1, 2):
        transaction = await begin_transaction(server[1].account)
        keys = keys_of(server, 0, 1, 2)
        for key in keys:
            await write(server, 1, transaction, key, 7)
        await server.put({"id": "a", "pk": keys[loser], "n": 3})
        with pytest.raises(Failure) as conflict:
            await transaction.commit(record())
        assert conflict.value.kind is Kind.RETRY_WITH
        assert 7 not in (await stored(server)).values()


async def test_transactions_at_the_same_time_are_one_after_the_other(server: ServerProcesses) -> None:
    """Each moves one unit from a key to another one: the sum stays, and each that succeeds has been done."""
    keys = keys_of(server, 0, 1, 2)
    await server.put(*[{"id": "a", "pk": key, "n": 100} for key in keys])
    done = 0

    async def move(turn: int) -> None:
        nonlocal done
        process, source, target = turn % 3, keys[turn % 3], keys[(turn + 1 + turn // 3 % 2) % 3]
        for _ in range(50):
            transaction = await begin_transaction(server[process].account, spans=turn % 2 == 0)
            try:
                had = [await read(server, process, transaction, key) for key in keys]
                assert sum(had) == 300, "a snapshot is of one moment"
                await write(server, process, transaction, source, had[keys.index(source)] - 1)
                await write(server, process, transaction, target, had[keys.index(target)] + 1)
                await transaction.commit(record(turn))
            except Failure as failure:
                await transaction.abort()
                if failure.kind is not Kind.RETRY_WITH:
                    raise
                continue
            done += 1
            return

    await asyncio.gather(*[move(turn) for turn in range(12)])
    assert done == 12
    found = await stored(server)
    assert sum(found[key] for key in keys) == 300


async def test_a_transaction_in_one_process_holds_up_no_other(server: ServerProcesses) -> None:
    """It needs neither the first process nor the writers of others."""
    [key] = keys_of(server, 2)
    server.disconnect(1, 0)
    server.disconnect(1, 2)
    transaction = await begin_transaction(server[0].account)
    await write(server, 0, transaction, key, 5)
    assert not transaction.spans
    await transaction.commit(record())
    assert (await stored(server))[key] == 5


async def test_what_was_used_before_another_process_is_of_the_same_moment(server: ServerProcesses) -> None:
    """A transaction begins in one process, and is extended to all when it uses a second one: what it has read must be
    true then, too, or it is begun again with all."""
    first, second = keys_of(server, 1, 2)
    transaction = await begin_transaction(server[0].account)
    assert await read(server, 0, transaction, first) == 0
    await server.put({"id": "a", "pk": second, "n": 6})
    assert await read(server, 0, transaction, second) == 6
    await transaction.abort()
    transaction = await begin_transaction(server[0].account)
    assert await read(server, 0, transaction, first) == 0
    await server.put({"id": "a", "pk": first, "n": 7})
    await server.put({"id": "a", "pk": second, "n": 7})
    with pytest.raises(Failure) as overtaken:
        await read(server, 0, transaction, second)
    assert overtaken.value.kind is Kind.RETRY_WITH
    assert transaction.spans
    await transaction.abort()
    again = await begin_transaction(server[0].account, spans=True)
    assert await read(server, 0, again, first) == 7
    await server.put({"id": "a", "pk": first, "n": 8})
    await server.put({"id": "a", "pk": second, "n": 8})
    assert await read(server, 0, again, second) == 7
    await again.abort()


async def test_a_snapshot_is_of_one_moment(server: ServerProcesses) -> None:
    """A write that began after another one was acknowledged is never in it without that one."""
    first, second = keys_of(server, 1, 2)
    is_over = False

    async def count() -> None:
        n = 0
        while not is_over:
            n += 1
            await server.put({"id": "a", "pk": first, "n": n}, process=0)
            await server.put({"id": "a", "pk": second, "n": n}, process=0)

    counting = asyncio.create_task(count())
    for turn in range(30):
        process = turn % 3
        container = server[process].account.container("db", "c")
        past = await take_snapshot(server[process].account)
        then = await past.of(container)
        assert then is not None
        found = []
        for key in (second, first):
            answer = await items.read(then, "a", ItemOptions(key=container.key_of({"pk": key})))
            assert answer.payload is not None
            found.append(orjson.loads(answer.payload)["n"])
        assert found[0] <= found[1] <= found[0] + 1
    is_over = True
    await counting
    # What nothing refers to any more is not pinned in any process.
    del past, then
    for _ in range(10):
        await asyncio.sleep(0)
    assert [len(each.here.transactions.parts) for each in server.processes] == [0, 0, 0]


class Killing:
    """Kills a process when the process that keeps the transaction has asked so many questions, or before it asks the
    next."""

    def __init__(self, server: ServerProcesses, keeper: int, victim: int, after: int, *, is_asked: bool) -> None:
        self.asked = 0
        self.has_killed = False
        spanning = server[keeper].here.transactions
        ask = spanning.asked

        async def asked(place: int, question: Any) -> Any:
            self.asked += 1
            number = self.asked
            if number == after and not is_asked:
                await self._kill(server, keeper, victim)
            answer = await ask(place, question)
            if number == after and is_asked:
                await self._kill(server, keeper, victim)
            return answer

        spanning.asked = asked

    async def _kill(self, server: ServerProcesses, keeper: int, victim: int) -> None:
        async def kill() -> None:
            await server.kill(victim)
            self.has_killed = True

        self._killing = asyncio.create_task(kill())
        await (self._killing if victim != keeper else asyncio.Event().wait())  # it does nothing any more


@pytest.mark.parametrize(("keeper", "victim"), [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("is_asked", [False, True])
async def test_all_or_nothing_whichever_process_is_killed(keeper: int, victim: int, is_asked: bool) -> None:
    after = 1
    while await is_killed(keeper, victim, after, is_asked=is_asked):
        after += 1
    assert after > 2


async def is_killed(keeper: int, victim: int, after: int, *, is_asked: bool) -> bool:
    """Whether the process was killed before the commit was over."""
    async with server_processes() as server:
        await server.create()
        await server.put(*[{"id": "a", "pk": key, "n": 0} for key in KEYS])
        transaction = await begin_transaction(server[keeper].account)
        keys = keys_of(server, 0, 1, 2)
        for key in keys:
            await write(server, keeper, transaction, key, 1)
        killing = Killing(server, keeper, victim, after, is_asked=is_asked)
        committing = asyncio.create_task(transaction.commit(record()))
        await wait_until(server, lambda: committing.done() or killing.has_killed)
        if killing.has_killed:
            await server.start(victim)
        await wait_until(server, committing.done)
        outcome: BaseException | None = asyncio.CancelledError()
        if not committing.cancelled():
            outcome = committing.exception()
        promises = [each.here.transactions.promises for each in server.processes]
        await wait_until(server, lambda: all(each.are_none for each in promises))
        found = await stored(server)
        values = {found[key] for key in keys}
        assert len(values) == 1, f"killed after {after}: {found}"
        if outcome is None:
            assert values == {1}
        elif isinstance(outcome, Failure) and not outcome.details.get("is_unknown"):
            assert values == {0}, f"refused with {outcome!r}, and done"
        for process in range(3):  # nothing is held any more
            await server.put(*[{"id": "a", "pk": key, "n": 2} for key in keys], process=process)
        return killing.has_killed


async def wait_until(server: ServerProcesses, is_so: Any) -> None:
    for _ in range(2_000):
        if is_so():
            return
        server.clock.advance(0.05)
        await asyncio.sleep(0)
    raise AssertionError("it takes too long")
