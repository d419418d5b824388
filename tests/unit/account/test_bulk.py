"""Bulk requests: one transaction where nothing stands against it, and otherwise each operation for itself."""

from __future__ import annotations

from typing import Any

from support.house import House

from armillary.account.items.bulk import run_bulk
from armillary.account.items.items import ItemOptions, Member
from armillary.account.visits.write_visits import BatchAnswer
from armillary.errors import Failure
from armillary.model.key_values import Key
from armillary.partition.operations import Outcome, Result, Verb


def member(verb: Verb, document: dict[str, Any]) -> Member:
    options = ItemOptions(key=Key((document["pk"],)))
    if verb is Verb.DELETE:
        return Member(verb, document["id"], options=options)
    return Member(verb, document=dict(document), options=options)


def told(answer: BatchAnswer) -> list[Any]:
    return [each.kind.name if isinstance(each, Failure) else each.result for each in answer.members]


def lsns(answer: BatchAnswer) -> set[int]:
    return {each.lsn for each in answer.members if isinstance(each, Outcome)}


async def test_writes_of_one_request_are_one_transaction() -> None:
    house = await House.open()
    container = await house.container()
    documents = [{"id": str(number), "pk": number % 3} for number in range(50)]
    answer = await run_bulk(container, "0", [member(Verb.CREATE, each) for each in documents], house.clock)
    assert told(answer) == [Result.CREATED] * 50 and len(lsns(answer)) == 1
    assert len({each.etag for each in answer.members if isinstance(each, Outcome)}) == 50
    assert answer.charge_ru == sum(each.charge_ru for each in answer.members)
    mixed = [member(Verb.UPSERT, {**documents[0], "n": 1}), member(Verb.DELETE, documents[0])]
    mixed.append(member(Verb.CREATE, {**documents[0], "n": 2}))
    answer = await run_bulk(container, "0", mixed, house.clock)
    assert told(answer) == [Result.REPLACED, Result.DELETED, Result.CREATED]
    assert container.partitions[0].head.item_count == 50
    await house.close()


async def test_what_fails_fails_alone() -> None:
    house = await House.open()
    container = await house.container(uniqueKeyPolicy={"uniqueKeys": [{"paths": ["/mail"]}]})
    wanted = [
        member(Verb.CREATE, {"id": "1", "pk": 1, "mail": "a"}),
        member(Verb.CREATE, {"id": "2", "pk": 1, "mail": "a"}),
        member(Verb.CREATE, {"id": "3", "pk": 1, "mail": "b"}),
        member(Verb.DELETE, {"id": "4", "pk": 1}),
        member(Verb.CREATE, {"id": "5/", "pk": 1, "ttl": "long"}),
        member(Verb.UPSERT, {"id": "3", "pk": 1, "mail": "c"}),
    ]
    answer = await run_bulk(container, "0", wanted, house.clock)
    assert told(answer) == [
        Result.CREATED,
        "CONFLICT",
        Result.CREATED,
        "NOT_FOUND",
        "BAD_REQUEST",
        Result.REPLACED,
    ]
    assert len(lsns(answer)) == 3
    # What is wrong by itself does not keep the others apart.
    answer = await run_bulk(container, "0", [wanted[4], member(Verb.CREATE, {"id": "6", "pk": 1})], house.clock)
    assert told(answer) == ["BAD_REQUEST", Result.CREATED]
    await house.close()
