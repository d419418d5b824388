"""The one request path: what is admitted is paid for or given back, whatever becomes of the visit; a partition that is
being split or merged is waited for and its successor asked; what reads through copies of a partition is counted too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from support.collections import Shop

from armillary.account.collections import document_operations
from armillary.account.collections.document_operations import inserting
from armillary.account.collections.transactions import Transaction
from armillary.account.container import Container
from armillary.account.throughput.budgets import Budgets
from armillary.account.visits import visits
from armillary.account.visits.read_visits import ReadItem, count_items
from armillary.account.visits.visits import Visit
from armillary.errors import Failure, Kind
from armillary.model.bson.bson_values import encode
from armillary.model.keys import Key
from armillary.partition.partition import Partition


@dataclass(slots=True)
class Done:
    charge_ru: float = 3.0


@dataclass(slots=True)
class Scripted(Visit[Done]):
    """Does what a test says."""

    epk: bytes
    failures: list[BaseException]
    asked: list[Partition]

    async def run(self, container: Container, partition: Partition) -> Done:
        self.asked.append(partition)
        if self.failures:
            raise self.failures.pop(0)
        return Done()


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = await Shop.open()
    yield shop
    await shop.close()


def spent(container: Container) -> int:
    """Of the budget of this second, in hundredths of request units."""
    [partition] = container.partitions.values()
    budget = partition.meter.budget
    assert budget is not None
    return budget.spent


async def metered(shop: Shop) -> Container:
    container = await shop.container()
    [partition] = container.partitions.values()
    partition.meter.budget = Budgets(shop.account, shop.account.history)._budget(partition.meter, 40_000)
    return container


@pytest.mark.parametrize(
    "failure",
    [asyncio.CancelledError(), RuntimeError("a defect"), KeyboardInterrupt()],
    ids=["cancelled", "defect", "interrupted"],
)
async def test_a_visit_that_ends_badly_gives_its_deposit_back(shop: Shop, failure: BaseException) -> None:
    container = await metered(shop)
    with pytest.raises(type(failure)):
        await visits.run(container, Scripted(b"", [failure], []))
    assert spent(container) == 0


async def test_a_visit_that_is_refused_pays_what_the_failure_costs(shop: Shop) -> None:
    container = await metered(shop)
    refused = Failure(Kind.CONFLICT, "It is there.", charge_ru=2.0)
    with pytest.raises(Failure) as caught:
        await visits.run(container, Scripted(b"", [refused], []))
    assert spent(container) == 200
    assert caught.value.is_metered and caught.value.details["range_id"] == 0


async def test_a_visit_waits_for_a_split_and_is_charged_once(shop: Shop) -> None:
    container = await metered(shop)
    [partition] = container.partitions.values()
    visit = Scripted(b"", [Failure(Kind.RANGE_BUSY, "Splitting.")], [])
    partition.hold()
    task = asyncio.ensure_future(visits.run(container, visit))
    await asyncio.sleep(0)
    assert not task.done() and spent(container) == 0
    partition.release()
    assert (await task).charge_ru == 3.0
    assert spent(container) == 300 and len(visit.asked) == 2


async def test_what_a_transaction_reads_is_counted_by_the_real_partition(shop: Shop) -> None:
    container = await shop.collection("k")
    await shop.insert(container, {"_id": 1, "k": "a"})
    [partition] = container.partitions.values()
    transaction = await Transaction.begin(container, Key(("a",)), shop.clock)
    before = partition.meter.totals
    found = await document_operations.find(transaction.within(container, Key(("a",))), Key(("a",)), 1)
    assert found.document is not None
    assert partition.meter.totals.requests == before.requests + 1
    await transaction.abort()


async def test_counting_is_charged_by_every_partition(shop: Shop) -> None:
    container = await shop.collection("k", 20_000)
    documents = [{"_id": number, "k": number} for number in range(40)]
    operations = [inserting(container, each, encode(each), shop.clock) for each in documents]
    await document_operations.write_many(container, operations, stops=True)
    before = [each.meter.totals.requests for each in container.partitions.values()]
    counted = await count_items(container)
    after = [each.meter.totals.requests for each in container.partitions.values()]
    assert counted.count == 40 and len(before) > 1
    assert [late - early for late, early in zip(after, before, strict=True)] == [1] * len(before)
    assert counted.charge_ru == float(len(before))


async def test_a_read_of_what_is_not_there_costs_what_it_did(shop: Shop) -> None:
    container = await metered(shop)
    answer = await visits.run(container, ReadItem(container.effective_key(Key(("a",))), "none"))
    assert (answer.payload, answer.charge_ru) == (None, 1.0)
