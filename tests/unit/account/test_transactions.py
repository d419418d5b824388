"""Transactions inside one logical partition: what they see, who wins, all or nothing; on both engines, over splits."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.collections import Shop

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.catalog.container_state import as_collection
from armillary.account.check import check_account
from armillary.account.collections import document_operations, indexes
from armillary.account.collections.document_operations import changing, deleting, inserting
from armillary.account.collections.spanning_transactions import SpanningTransaction
from armillary.account.collections.transactions import Transaction
from armillary.account.container import Container
from armillary.account.queries import item_pages
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import SystemClock
from armillary.errors import Failure, Kind, Reason
from armillary.languages.mongo.indexes.index_definitions import read_definition
from armillary.languages.mongo.indexes.key_conditions import usable_condition
from armillary.model.bson.bson_values import decode, encode
from armillary.model.documents import BSON
from armillary.model.key_values import Key
from armillary.partition.document_changes import ChangeStatement
from armillary.partition.history.retryable_write_records import Record
from armillary.partition.operations import Result
from armillary.query.selection import Selection, Stage
from armillary.storage.rocks import RocksEngine


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = await Shop.open()
    yield shop
    assert [problem async for problem in check_account(shop.engine, shop.clock)] == []
    await shop.close()


async def put(container: Container, clock: Any, *documents: dict[str, Any]) -> None:
    operations = [inserting(container, each, encode(each), clock) for each in documents]
    answer = await document_operations.write_many(container, operations, stops=True)
    for outcome in answer.outcomes:
        if isinstance(outcome, Failure):
            raise outcome


async def set_n(container: Container, key: Any, number: int, value: int) -> Result:
    change = changing(container, key, number, ChangeStatement({}, {"$set": {"n": value}}))
    return (await document_operations.write(container, change)).result


async def seen(account: Account, container: Container, key: Any, given: dict[str, Any] | None = None) -> dict[int, int]:
    condition = usable_condition(given or {})
    selection = Selection(condition, (Stage(predicate=lambda document: True),))
    page = await item_pages.select(
        account, container, selection, b"x", FeedOptions(key=key or None, form=BSON, page_items=1000)
    )
    return {each["_id"]: each["n"] for each in map(decode, page.rows)}


async def test_a_transaction_sees_its_snapshot_and_its_own_writes(shop: Shop) -> None:
    container = await shop.collection()
    await shop.index(container, {"n": 1})
    await put(container, shop.clock, *[{"_id": number, "n": number} for number in range(10)])
    transaction = await Transaction.begin(container, Key(()), shop.clock)
    inside = transaction.within(container, Key(()))
    assert await set_n(inside, (), 1, 100) is Result.REPLACED
    await document_operations.write(inside, deleting(inside, Key(()), 2, ChangeStatement({})))
    await put(inside, shop.clock, {"_id": 50, "n": 50})
    await set_n(container, (), 7, 700)
    await put(container, shop.clock, {"_id": 60, "n": 60})
    mine = await seen(shop.account, inside, ())
    assert mine == {0: 0, 1: 100, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9, 50: 50}
    by_index = await seen(shop.account, inside, (), {"n": {"$gte": 8, "$lte": 100}})
    assert by_index == {8: 8, 9: 9, 50: 50, 1: 100}
    assert decode((await document_operations.find(inside, Key(()), 1)).document or b"")["n"] == 100
    theirs = await seen(shop.account, container, ())
    assert theirs == {number: number for number in range(10)} | {7: 700, 60: 60}
    with pytest.raises(Failure) as caught:
        await put(inside, shop.clock, {"_id": 3, "n": 0})
    assert caught.value.kind is Kind.CONFLICT
    await transaction.commit()
    after = await seen(shop.account, container, ())
    assert after == {**{each: theirs[each] for each in theirs if each != 2}, 1: 100, 50: 50}


async def test_the_first_writer_wins(shop: Shop) -> None:
    container = await shop.collection()
    await put(container, shop.clock, *[{"_id": number, "n": 0} for number in range(5)])
    first = await Transaction.begin(container, Key(()), shop.clock)
    second = await Transaction.begin(container, Key(()), shop.clock)
    await set_n(first.within(container, Key(())), (), 1, 1)
    with pytest.raises(Failure) as caught:
        await set_n(second.within(container, Key(())), (), 1, 2)
    assert caught.value.details["reason"] is Reason.WRITE_CONFLICT
    await set_n(second.within(container, Key(())), (), 2, 2)
    await set_n(container, (), 3, 3)
    with pytest.raises(Failure) as caught:
        await set_n(first.within(container, Key(())), (), 3, 4)
    assert caught.value.details["reason"] is Reason.WRITE_CONFLICT
    await second.commit()
    with pytest.raises(Failure) as caught:
        await first.commit()
    assert caught.value.details["reason"] is Reason.WRITE_CONFLICT and not first.is_open
    assert await seen(shop.account, container, ()) == {0: 0, 1: 0, 2: 2, 3: 3, 4: 0}
    third = await Transaction.begin(container, Key(()), shop.clock)
    await put(third.within(container, Key(())), shop.clock, {"_id": 9, "n": 1})
    await put(container, shop.clock, {"_id": 9, "n": 2})
    with pytest.raises(Failure):
        await third.commit()
    fourth = await Transaction.begin(container, Key(()), shop.clock)
    await set_n(fourth.within(container, Key(())), (), 0, 8)
    await fourth.abort()
    assert (await seen(shop.account, container, ()))[0] == 0


async def test_a_transaction_is_about_one_key_of_one_collection(shop: Shop) -> None:
    container = await shop.collection("pk", 18_000)
    await put(container, shop.clock, *[{"_id": number, "pk": f"p{number}", "n": 0} for number in range(20)])
    transaction = await Transaction.begin(container, Key(("p1",)), shop.clock)
    inside = transaction.within(container, Key(("p1",)))
    await set_n(inside, ("p1",), 1, 1)
    for refused in (Key(("p2",)), None):
        with pytest.raises(Failure) as caught:
            transaction.within(container, refused)
        assert caught.value.details["reason"] is Reason.TRANSACTION_ELSEWHERE
    for number in range(2, 20):
        with pytest.raises(Failure):
            await set_n(inside, (f"p{number}",), number, 1)
    await transaction.commit()
    assert sum((await seen(shop.account, container, ("p1",))).values()) == 1


async def test_commits_are_done_once_and_over_splits(shop: Shop) -> None:
    container = await shop.collection("pk")
    await put(container, shop.clock, *[{"_id": number, "pk": f"p{number % 9}", "n": 0} for number in range(90)])
    transaction = await Transaction.begin(container, Key(("p1",)), shop.clock)
    inside = transaction.within(container, Key(("p1",)))
    await set_n(inside, ("p1",), 1, 1)
    await shop.split(container)
    await set_n(inside, ("p1",), 10, 1)
    await put(inside, shop.clock, {"_id": 1000, "pk": "p1", "n": 1})
    record = Record(b"s" * 16, 3, (0,), (b"{}",))
    await transaction.commit(record)
    assert sum((await seen(shop.account, container, ("p1",))).values()) == 3
    assert await document_operations.recorded(container, b"s" * 16, 3) == {0: b"{}"}


async def test_parts_commit_together_over_splits(shop: Shop) -> None:
    sharded, plain = await shop.collection("pk"), await shop.collection(name="plain", database="other")
    await put(sharded, shop.clock, *[{"_id": number, "pk": f"p{number % 9}", "n": 0} for number in range(90)])
    await put(plain, shop.clock, {"_id": 1, "n": 0})
    transaction = await SpanningTransaction.begin(shop.account)
    keys = [Key((f"p{number}",)) for number in range(9)]
    for number, key in enumerate(keys[:5]):
        inside = await transaction.within(sharded, key, is_own=False)
        await set_n(inside, key, number, 1)
    await shop.split(sharded)
    for number, key in enumerate(keys[5:], 5):
        inside = await transaction.within(sharded, key, is_own=False)
        assert (await seen(shop.account, inside, key))[number] == 0
        await set_n(inside, key, number, 1)
    await set_n(await transaction.within(plain, None, is_own=False), (), 1, 5)
    await set_n(plain, (), 1, 3)  # another client: what is committed is all or nothing
    with pytest.raises(Failure) as caught:
        await transaction.commit()
    assert caught.value.details["reason"] is Reason.WRITE_CONFLICT
    assert not any((await seen(shop.account, sharded, ())).values())
    transaction = await SpanningTransaction.begin(shop.account)
    for number, key in enumerate(keys):
        await set_n(await transaction.within(sharded, key, is_own=False), key, number, 1)
    await set_n(await transaction.within(plain, None, is_own=False), (), 1, 5)
    await shop.split(sharded, 1)
    record = Record(b"s" * 16, 3, (0,), (b"{}",))
    await transaction.commit(record)
    assert sum((await seen(shop.account, sharded, ())).values()) == 9
    assert (await seen(shop.account, plain, ()))[1] == 5
    assert await document_operations.recorded(plain, b"s" * 16, 3) == {0: b"{}"}


async def test_new_rules_end_a_transaction(shop: Shop) -> None:
    container = await shop.collection()
    await put(container, shop.clock, {"_id": 1, "n": 0})
    transaction = await Transaction.begin(container, Key(()), shop.clock)
    await indexes.create_indexes(shop.account, container, [read_definition({"key": {"n": 1}, "name": "n_1"})])
    with pytest.raises(Failure) as caught:
        transaction.within(container, Key(()))
    assert caught.value.details["reason"] is Reason.SNAPSHOT_UNAVAILABLE
    await transaction.abort()


async def test_random_transfers_keep_their_sum(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    clock = SystemClock()
    engine = await RocksEngine.open(tmp_path, durability="relaxed")
    account = await Account.open(engine, clock)
    try:
        database = await containers.create_database(account, {"id": "d"}, None)
        container = await containers.create_container(
            account, database, {"id": "c"}, Throughput.manual(400), is_old_client=True, begin=as_collection
        )
        await put(container, clock, *[{"_id": number, "n": 100} for number in range(8)])
        running: list[Transaction] = []
        conflicts = 0
        for _ in range(300):
            if len(running) < 3:
                running.append(await Transaction.begin(container, Key(()), clock))
            transaction = dice.choice(running)
            source, target = dice.sample(range(8), 2)
            inside = transaction.within(container, Key(()))
            try:
                balances = await seen(account, inside, ())
                assert sum(balances.values()) == 800
                await set_n(inside, (), source, balances[source] - 1)
                await set_n(inside, (), target, balances[target] + 1)
                if dice.random() < 0.5:
                    running.remove(transaction)
                    await transaction.commit()
            except Failure as failure:
                if failure.details.get("reason") is not Reason.WRITE_CONFLICT:
                    raise
                conflicts += 1
                if transaction in running:
                    running.remove(transaction)
                await transaction.abort()
        assert conflicts > 10
        assert sum((await seen(account, container, ())).values()) == 800
        for transaction in running:
            await transaction.abort()
    finally:
        await account.close()
        await engine.close()
