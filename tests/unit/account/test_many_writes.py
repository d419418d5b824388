"""Many documents in several transactions at once: what is done, and what is said of each, is what it would be one after
the other; whatever fails, wherever it is, on both engines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.collections import Shop

from armillary.account.account import Account
from armillary.account.check import check_account
from armillary.account.collections import document_operations
from armillary.account.container import Container
from armillary.account.registry import AccountSettings
from armillary.clock import SystemClock
from armillary.errors import Failure, Kind
from armillary.model.bson.bson_ids import id_text
from armillary.model.bson.bson_values import encode
from armillary.model.key_values import Key
from armillary.partition.history.retryable_write_records import Record
from armillary.partition.operations import Operation, Outcome, Result
from armillary.storage.rocks import RocksEngine

FOUR_RU = 24_000


@pytest.fixture(params=["memory", "rocks"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    if request.param == "memory":
        shop = await Shop.open()
    else:
        engine: Any = await RocksEngine.open(tmp_path / "stored", "relaxed")
        clock: Any = SystemClock()
        shop = await Shop.begin(engine, clock)
    yield shop
    assert [problem async for problem in check_account(shop.engine, shop.clock)] == []
    await shop.close()


def inserts(shop: Shop, container: Container, keys: Sequence[tuple[str, int]]) -> list[Operation]:
    documents = [{"_id": number, "pk": key} for key, number in keys]
    return [document_operations.inserting(container, each, encode(each), shop.clock) for each in documents]


async def present(container: Container, keys: Sequence[tuple[str, int]]) -> list[bool]:
    found = [await document_operations.find(container, Key((key,)), number) for key, number in keys]
    return [each.document is not None for each in found]


async def test_it_is_as_if_one_came_after_the_other(shop: Shop, seed: int) -> None:
    dice = random.Random(seed)
    container = await shop.collection("pk", FOUR_RU)
    assert len(container.partitions) == 4
    known: set[tuple[str, int]] = set()
    for turn in range(12):
        keys = [(f"p{dice.randrange(20)}", turn * 1000 + number) for number in range(dice.randrange(2, 500))]
        for _ in range(dice.randrange(3) if turn else 0):  # those are taken, or twice in the list
            keys[dice.randrange(len(keys))] = dice.choice([*sorted(known), keys[0]])
        is_ordered = dice.random() < 0.5
        answer = await document_operations.write_many(
            container, inserts(shop, container, keys), stops=is_ordered, at_once=True
        )
        expected: list[bool] = []
        for key in keys:
            expected.append(key not in known)
            if key in known and is_ordered:
                break
            known.add(key)
        assert [isinstance(each, Outcome) for each in answer.outcomes] == expected
        for outcome in answer.outcomes:
            assert isinstance(outcome, Outcome) or outcome.kind is Kind.CONFLICT
        assert answer.charge_ru == pytest.approx(sum(each.charge_ru for each in answer.outcomes))
        assert await present(container, keys) == [key in known for key in keys]


async def test_nothing_happens_behind_the_first_failure(shop: Shop) -> None:
    container = await shop.collection("pk", FOUR_RU)
    keys = [(f"p{number % 7}", number) for number in range(600)]
    await document_operations.write_many(container, inserts(shop, container, [keys[0]]), stops=True)
    answer = await document_operations.write_many(container, inserts(shop, container, keys), stops=True, at_once=True)
    assert len(answer.outcomes) == 1 and isinstance(answer.outcomes[0], Failure)
    assert await present(container, keys) == [True] + [False] * 599


async def test_they_wait_for_partitions_that_are_held(shop: Shop) -> None:
    container = await shop.collection("pk", FOUR_RU)
    keys = [(f"p{number % 7}", number) for number in range(300)]
    held = container.partition_for(container.effective_key(Key(("p3",))))
    held.hold()
    for is_ordered in (True, False):
        more = [(key, number + 1000 * is_ordered) for key, number in keys]
        writing = asyncio.create_task(
            document_operations.write_many(container, inserts(shop, container, more), stops=is_ordered, at_once=True)
        )
        while not (await present(container, [more[0]]))[0]:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)
        assert not (await present(container, [more[3]]))[0]
        held.release()
        answer = await writing
        assert all(isinstance(each, Outcome) for each in answer.outcomes)
        assert all(await present(container, more))
        held.hold()
    held.release()


async def test_numbered_ones_are_done_once(shop: Shop) -> None:
    container = await shop.collection("pk", FOUR_RU)
    keys = [(f"p{number % 7}", number) for number in range(400)]

    def record_of(run: Sequence[int]) -> Record:
        return Record(b"s" * 16, 1, tuple(run), (b"",) * len(run))

    for _ in range(2):
        answers = await asyncio.gather(
            *[
                document_operations.write_many(
                    container, inserts(shop, container, keys), stops=is_ordered, at_once=True, record_of=record_of
                )
                for is_ordered in (True, True)
            ]
        )
        for answer in answers:
            assert all(isinstance(each, Outcome) for each in answer.outcomes)
            assert len(answer.outcomes) == len(keys)
    results = [each.result for each in answers[0].outcomes if isinstance(each, Outcome)]
    assert results == [Result.REPEATED] * len(keys)


async def test_a_budget_that_is_spent_is_said_of_those_it_was_spent_for() -> None:
    shop = await Shop.open()
    await shop.account.close()
    shop.account = await Account.open(shop.engine, shop.clock, AccountSettings(throughput_mode="enforce"))
    container = await shop.collection("pk")
    keys = [("p", number) for number in range(500)]
    answer = await document_operations.write_many(container, inserts(shop, container, keys), stops=False, at_once=True)
    assert len(answer.outcomes) == len(keys)
    done = [isinstance(each, Outcome) for each in answer.outcomes]
    assert any(done) and not all(done)
    assert {each.kind for each in answer.outcomes if isinstance(each, Failure)} == {Kind.THROTTLED}
    assert await present_without_limit(container, keys) == done
    with pytest.raises(Failure) as refused:
        await document_operations.write_many(container, inserts(shop, container, keys[-2:]), stops=True, at_once=True)
    assert refused.value.kind is Kind.THROTTLED
    await shop.close()


async def present_without_limit(container: Container, keys: Sequence[tuple[str, int]]) -> list[bool]:
    partition = container.partition_for(container.effective_key(Key(("p",))))
    epk = container.effective_key(Key(("p",)))
    return [await partition.read_item(epk, id_text(number)) is not None for _, number in keys]


async def test_partitions_may_split_meanwhile(shop: Shop) -> None:
    container = await shop.collection("pk")
    keys = [(f"p{number % 50}", number) for number in range(6_000)]

    async def write(part: int, *, is_ordered: bool) -> None:
        for first in range(part, len(keys), 600):
            some = keys[first : first + 300]
            answer = await document_operations.write_many(
                container, inserts(shop, container, some), stops=is_ordered, at_once=True
            )
            assert [each for each in answer.outcomes if isinstance(each, Failure)] == []
            assert len(answer.outcomes) == len(some)

    writing = asyncio.gather(write(0, is_ordered=True), write(300, is_ordered=False))
    for range_id in (0, 1):
        await shop.split(container, range_id)
    await writing
    assert len(container.partitions) == 3
    assert sum(each.head.item_count for each in container.partitions.values()) == len(keys)
