"""Numbered writes are done once: sent again at once, later, after a restart, after a split, and in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from support.collections import Shop

from armillary import limits
from armillary.account.check import check_account
from armillary.account.collections import document_operations
from armillary.account.collections.document_operations import changing, inserting
from armillary.account.container import Container
from armillary.model.bson.bson_values import decode, encode
from armillary.model.key_values import Key
from armillary.partition.document_changes import ChangeStatement
from armillary.partition.history.retryable_write_records import Record
from armillary.partition.operations import Outcome, Result
from armillary.partition.upkeep import upkeep

SESSION, OTHER = b"s" * 16, b"o" * 16


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = await Shop.open()
    yield shop
    assert [problem async for problem in check_account(shop.engine, shop.clock)] == []
    await shop.close()


def numbered(number: int, statements: Sequence[int] = (0,), session: bytes = SESSION) -> Record:
    return Record(session, number, tuple(statements))


async def count_up(container: Container, key: Any, number: int, session: bytes = SESSION) -> Result:
    change = changing(container, key, 1, ChangeStatement({}, {"$inc": {"n": 1}}))
    return (await document_operations.write(container, change, record=numbered(number, session=session))).result


async def value(container: Container, key: Any) -> int:
    found = await document_operations.find(container, key, 1)
    assert found.document is not None
    n: int = decode(found.document)["n"]
    return n


async def test_a_write_is_done_once(shop: Shop) -> None:
    container = await shop.collection()
    await shop.insert(container, {"_id": 1, "n": 0})
    assert await count_up(container, (), 5) is Result.REPLACED
    assert await count_up(container, (), 5) is Result.REPEATED
    assert await document_operations.recorded(container, SESSION, 5) == {0: encode({"n": 1, "m": 1})}
    assert await count_up(container, (), 5, OTHER) is Result.REPLACED
    await shop.reopen()
    container = shop.account.container("shop", "c")
    assert await document_operations.last_number(container, SESSION) == 5
    assert await count_up(container, (), 5) is Result.REPEATED
    assert await count_up(container, (), 6) is Result.REPLACED
    assert await document_operations.recorded(container, SESSION, 5) == {}
    assert await value(container, ()) == 3


async def test_writes_that_come_again_at_once_are_done_once(shop: Shop) -> None:
    container = await shop.collection()
    await shop.insert(container, {"_id": 1, "n": 0})
    results = await asyncio.gather(*[count_up(container, (), 1) for _ in range(5)])
    assert sorted(result.name for result in results) == ["REPEATED"] * 4 + ["REPLACED"]
    assert await value(container, ()) == 1


async def test_what_changes_nothing_is_not_recorded(shop: Shop) -> None:
    container = await shop.collection()
    await shop.insert(container, {"_id": 1, "n": 0})
    nothing = changing(container, Key(()), 1, ChangeStatement({"n": 1}, {"$inc": {"n": 1}}))
    assert (await document_operations.write(container, nothing, record=numbered(1))).result is Result.NOT_MODIFIED
    assert await document_operations.recorded(container, SESSION, 1) == {}


async def test_many_inserts_go_on_where_they_were_interrupted(shop: Shop) -> None:
    container = await shop.collection("pk", 18_000)
    documents = [{"_id": number, "pk": f"p{number % 20}"} for number in range(300)]
    operations = [inserting(container, each, encode(each), shop.clock) for each in documents]

    def record_of(places: Sequence[int]) -> Record:
        return numbered(7, places)

    first = await document_operations.write_many(container, operations[:100], stops=True, record_of=record_of)
    assert {outcome.result for outcome in first.outcomes if isinstance(outcome, Outcome)} == {Result.CREATED}
    done = await document_operations.recorded(container, SESSION, 7)
    assert sorted(done) == list(range(100))
    await shop.split(container, next(iter(container.partitions)))
    assert sorted(await document_operations.recorded(container, SESSION, 7)) == list(range(100))

    def rest_of(places: Sequence[int]) -> Record:
        return numbered(7, [place + 100 for place in places])

    both = await asyncio.gather(
        *[document_operations.write_many(container, operations[100:], stops=True, record_of=rest_of) for _ in range(2)]
    )
    for answer in both:
        assert len(answer.outcomes) == 200 and all(isinstance(outcome, Outcome) for outcome in answer.outcomes)
    assert sorted(await document_operations.recorded(container, SESSION, 7)) == list(range(300))
    counted = sum([partition.head.item_count for partition in container.partitions.values()])
    assert counted == 300


async def test_sessions_are_forgotten(shop: Shop) -> None:
    container = await shop.collection()
    await shop.insert(container, {"_id": 1, "n": 0})
    await count_up(container, (), 1)
    shop.clock.advance(limits.MONGO_SESSION_SECONDS + 5)
    for partition in container.partitions.values():
        await upkeep.forget_records(partition, shop.clock.now_s())
    assert await document_operations.last_number(container, SESSION) == -1
    await shop.reopen()
    assert await document_operations.last_number(shop.account.container("shop", "c"), SESSION) == -1
