"""Items that a filter chooses get a container of their own while all items are written to: none is lost, none is in
both containers, and those that come to be chosen or cease to be are where they belong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.house import House

from armillary.account import containers
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.migration import migration, moved_items
from armillary.account.migration.migration import CAUGHT_UP, FAILED, MOVED, REMOVING, Migration, Plan
from armillary.account.throughput.provisioning import Throughput
from armillary.errors import Failure, Kind
from armillary.model import layout
from armillary.model.encoding import payload_of
from armillary.model.items import strip_system_properties
from armillary.model.resources import ResourceType

Document = dict[str, Any]
FILTER = "c.size > 20"
PLAN = Plan("t", ("/b",), filter=FILTER, switches=False)
MOVING = Plan("t", ("/b",), filter=FILTER, switches=False, removes=True)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    opened = await House.open()
    opened.clock.step_s = 0.0005
    yield opened
    await opened.account.close()
    assert await opened.problems() == []
    await opened.engine.close()


async def made(house: House, paths: tuple[str, ...] = ("/a",), throughput_ru: int = 20_000) -> Container:
    database = await containers.create_database(house.account, {"id": "d"}, None)
    kind = "Hash" if len(paths) == 1 else "MultiHash"
    body = {"id": "c", "partitionKey": {"paths": list(paths), "kind": kind, "version": 2}}
    return await containers.create_container(house.account, database, body, Throughput(throughput_ru))


async def stored(container: Container) -> dict[str, Document]:
    found: dict[str, Document] = {}
    for partition in container.partitions.values():
        for _, each in await partition.read(lambda view: list(view.scan(layout.ITEMS, layout.space_end(layout.ITEMS)))):
            document = strip_system_properties(orjson.loads(payload_of(each)))
            assert document["id"] not in found
            found[document["id"]] = document
    return found


async def ended(moving: Migration) -> None:
    while not moving.is_ended:  # noqa: ASYNC110
        await asyncio.sleep(0)


def is_chosen(document: Document) -> bool:
    return bool(document["size"] > 20)


class Application:
    """Writes items of its own to the shared container, and to the new one where it is told to."""

    def __init__(self, house: House, prefix: str, seed: int) -> None:
        self._house = house
        self._prefix = prefix
        self._random = random.Random(seed)
        self._count = 0
        self._homes: dict[str, str] = {}  # of items that it has met in the new container
        self.model: dict[str, Document] = {}
        self.is_stopping = False
        self.redirected = 0

    async def run(self) -> None:
        while not self.is_stopping:
            await self.once()
            await asyncio.sleep(0)

    async def once(self) -> None:
        own = list(self.model)
        kind = self._random.choice(["create", "create", "replace", "resize", "delete"])
        if not own or kind == "create":
            self._count += 1
            item_id = f"{self._prefix}{self._count}"
            wanted: Document | None = {
                "id": item_id,
                "a": self._random.randrange(9),
                "b": self._random.randrange(30),
                "size": self._random.randrange(40),
            }
        else:
            item_id = self._random.choice(own)
            wanted = None if kind == "delete" else {**self.model[item_id], "n": self._random.random()}
            if wanted is not None and kind == "resize":
                wanted["size"] = self._random.randrange(40)
        await self._write(item_id, wanted)

    async def _write(self, item_id: str, wanted: Document | None) -> None:
        before = self.model.get(item_id)
        home = self._homes.get(item_id, "c")
        try:
            await self._do(home, item_id, before, wanted)
        except Failure as failure:
            # NOT_FOUND: it was removed already, and would not be chosen any more.
            is_removed = failure.kind is Kind.NOT_FOUND and before is not None and is_chosen(before)
            if home != "c" or not (failure.kind is Kind.FORBIDDEN or is_removed):
                raise
            self.redirected += 1
            if before is not None and not is_chosen(before):
                # It stays here as it was, and would have come to belong there.
                await self._do("c", item_id, before, None)
                before = None
            await self._do("t", item_id, before, wanted)
            self._homes[item_id] = "t"
        if wanted is None:
            del self.model[item_id]
            self._homes.pop(item_id, None)
        else:
            self.model[item_id] = wanted

    async def _do(self, name: str, item_id: str, before: Document | None, wanted: Document | None) -> None:
        container, clock = self._house.account.container("d", name), self._house.clock
        options = ItemOptions(key=container.key_of(wanted or before or {}))
        if wanted is None:
            await items.delete(container, item_id, options)
        elif before is None:
            await items.create(container, dict(wanted), options, clock)
        else:
            await items.replace(container, item_id, dict(wanted), options, clock)


async def begun(house: House, plan: Plan) -> Migration:
    return await migration.begin(house.account, house.account.container("d", "c"), plan)


async def whereabouts(house: House) -> tuple[dict[str, Document], dict[str, Document]]:
    account = house.account
    return await stored(account.container("d", "c")), await stored(account.container("d", "t"))


@pytest.mark.parametrize("seed", range(4))
async def test_items_are_moved_under_writers(house: House, seed: int) -> None:
    await made(house)
    applications = [Application(house, prefix, 10 * seed + place) for place, prefix in enumerate("xyz")]
    for application in applications:
        for _ in range(80):
            await application.once()
    running = [asyncio.create_task(application.run()) for application in applications]
    moving = await begun(house, MOVING)
    await ended(moving)
    assert moving.failure is None and moving.stage == MOVED
    for application in applications:
        application.is_stopping = True
    await asyncio.gather(*running)
    source, target = await whereabouts(house)
    model = {item_id: item for application in applications for item_id, item in application.model.items()}
    assert not source.keys() & target.keys()
    assert source | target == model
    assert not [item for item in source.values() if is_chosen(item)]
    assert house.account.container("d", "t").state.migration is None
    assert "changeFeedPolicy" not in house.account.container("d", "c").record.body
    for application in applications:  # they go on by being told
        for _ in range(40):
            await application.once()
    assert sum(application.redirected for application in applications) > 0


async def test_a_copy_follows_items_that_change_sides(house: House) -> None:
    await made(house)
    application = Application(house, "x", 1)
    for _ in range(150):
        await application.once()
    for _ in range(2):  # the second run resumes: it brings the changes since the first
        running = asyncio.create_task(application.run())
        moving = await begun(house, PLAN)
        await ended(moving)
        assert moving.failure is None and moving.stage == CAUGHT_UP
        application.is_stopping = True
        await running
        application.is_stopping = False
    moving = await begun(house, PLAN)
    await ended(moving)
    source, target = await whereabouts(house)
    assert source == application.model
    assert target == {item_id: item for item_id, item in source.items() if is_chosen(item)}
    assert application.redirected == 0


async def test_a_move_that_is_interrupted_while_it_removes(house: House) -> None:
    container = await made(house)
    application = Application(house, "x", 3)
    for _ in range(400):
        await application.once()
    moving = await begun(house, MOVING)
    while moving.stage != REMOVING or not moving.removed:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await moving.stop()
    refused = await refusal(house, PLAN)
    assert "--remove" in refused
    assert "was begun with the filter" in await refusal(house, Plan("t", ("/b",), filter="c.size > 3", switches=False))
    with pytest.raises(Failure, match="are still here"):
        await moved_items.lift_fence(house.account, container, "t")
    application.is_stopping = False
    for _ in range(30):
        await application.once()
    again = await begun(house, MOVING)
    await ended(again)
    assert again.stage == MOVED and again.copied == 0
    source, target = await whereabouts(house)
    assert source | target == application.model and not source.keys() & target.keys()
    assert "c.size > 20" in [each.filter for each in container.state.moved]
    await moved_items.lift_fence(house.account, container, "t")
    document = {"id": "again", "a": 1, "b": 1, "size": 30}
    await items.create(container, document, ItemOptions(key=container.key_of(document)), house.clock)
    with pytest.raises(Failure, match="No items of 'c' were moved to 't'"):
        await moved_items.lift_fence(house.account, container, "t")


async def refusal(house: House, plan: Plan) -> str:
    with pytest.raises(Failure) as caught:
        await begun(house, plan)
    return caught.value.message


async def test_a_tenant_by_a_prefix_of_a_hierarchical_key(house: House) -> None:
    container = await made(house, ("/tenant", "/user"))
    for number in range(60):
        document = {"id": str(number), "tenant": f"t{number % 3}", "user": f"u{number % 7}", "size": 1}
        await items.create(container, document, ItemOptions(key=container.key_of(document)), house.clock)
    plan = Plan("t", ("/tenant", "/user"), filter="c.tenant = 't1'", switches=False, removes=True)
    moving = await begun(house, plan)
    await ended(moving)
    assert (moving.stage, moving.removed) == (MOVED, 20)
    source, target = await whereabouts(house)
    assert {item["tenant"] for item in target.values()} == {"t1"} and len(source) == 40
    document = {"id": "new", "tenant": "t1", "user": "u1"}
    with pytest.raises(Failure, match="moved to the container 't'"):
        await items.create(container, document, ItemOptions(key=container.key_of(document)), house.clock)


async def test_items_that_would_be_one_are_refused_and_nothing_is_removed(house: House) -> None:
    container = await made(house)
    for number in range(2):  # the same id under two keys, and one new key
        document = {"id": "twin", "a": number, "b": 7, "size": 30}
        await items.create(container, document, ItemOptions(key=container.key_of(document)), house.clock)
    moving = await begun(house, MOVING)
    await ended(moving)
    assert moving.stage == FAILED and moving.failure is not None and "share an id" in moving.failure.message
    assert not container.state.moved
    assert sum(each.head.item_count for each in container.partitions.values()) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("c.a =", "Syntax error"),
        ("udf.f(c)", "depends on the item alone"),
        ("c.a < RAND()", "depends on the item alone"),
        ("c._ts < GetCurrentTimestamp()", "depends on the item alone"),
        ("FROM c WHERE c.a = 1", "Syntax error"),
        ("d.a = 1 AND c.b = 2", "could not be resolved"),
        ("c.a = '" + "x" * 5_000 + "'", "at most 4096 characters"),
    ],
)
async def test_filters_that_are_refused(house: House, text: str, reason: str) -> None:
    await made(house)
    assert reason in await refusal(house, Plan("t", ("/b",), filter=text, switches=False))
    assert [each.name for each in house.account.catalog.of_type(ResourceType.CONTAINER)] == ["c"]
