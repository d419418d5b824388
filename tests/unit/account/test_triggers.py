"""Triggers of bulk requests: each operation is a transaction of its own with those that are for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.house import House

from armillary.account.container import Container
from armillary.account.items.items import ItemOptions, Member
from armillary.account.items.triggers import bulk_with_triggers, triggers_by_member
from armillary.errors import Failure, Kind
from armillary.model.key_values import Key
from armillary.model.patch import parse_patch
from armillary.model.resources import ResourceType
from armillary.partition.operations import Outcome, Verb

COUNT = """function () {
    if (__.response.getBody().n > 2) throw new Error(499, "too many");
    __.readDocument(__.getAltLink() + "/docs/count", function (error, count) {
        count = count || {id: "count", pk: "a", written: 0};
        count.written++;
        __.upsertDocument(__.getSelfLink(), count);
        console.log(count.written);
    });
}"""


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await House.open()
    yield house
    await house.close()


def member(verb: Verb, item_id: str, **more: Any) -> Member:
    document = {"id": item_id, "pk": "a", **more} if verb in (Verb.CREATE, Verb.UPSERT) else None
    patch = parse_patch([{"op": "incr", "path": "/n", "value": 1}]) if verb is Verb.PATCH else None
    return Member(verb, item_id, document, patch, ItemOptions(key=Key(("a",))))


MEMBERS = [
    member(Verb.CREATE, "1", n=1),
    member(Verb.CREATE, "1", n=1),
    member(Verb.PATCH, "1"),
    member(Verb.PATCH, "1"),
    member(Verb.READ, "1"),
    member(Verb.UPSERT, "2", n=0),
]


async def run(house: House, container: Container, *, continues: bool) -> tuple[list[Any], str]:
    body = {"id": "count", "body": COUNT, "triggerType": "Post", "triggerOperation": "All"}
    await house.account.catalog.create(ResourceType.TRIGGER, container.record, "count", body)
    triggers = triggers_by_member(house.account, container, [each.verb for each in MEMBERS], [], ["count"])
    assert [len(each.after) for each in triggers] == [1, 1, 1, 1, 0, 1]
    done = await bulk_with_triggers(house.account, container, "0", MEMBERS, triggers, continues=continues)
    told = [each.kind if isinstance(each, Failure) else _n(each) for each in done.answer.members]
    return told, done.log


def _n(outcome: Outcome) -> Any:
    assert outcome.payload is not None
    return orjson.loads(outcome.payload)["n"]


async def test_each_for_itself(house: House) -> None:
    container = await house.container()
    told, log = await run(house, container, continues=True)
    assert told == [1, Kind.CONFLICT, 2, Kind.SCRIPT_FAILED, 2, 0]
    assert log.split() == ["1", "2", "3"]


async def test_up_to_the_first_that_fails(house: House) -> None:
    container = await house.container()
    told, log = await run(house, container, continues=False)
    assert told == [1, Kind.CONFLICT, *[Kind.FAILED_DEPENDENCY] * 4]
    assert log == "1"
