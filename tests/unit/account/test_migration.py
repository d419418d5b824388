"""A container that is moved to another partition key while it is written to: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.house import House

from armillary.account import containers
from armillary.account.catalog.records import Record
from armillary.account.catalog.tables import DATABASE, KEY_PATH
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.migration import item_copy, migration
from armillary.account.migration.migration import CAUGHT_UP, FAILED, SWITCHED, Migration, Plan
from armillary.account.migration.target import TABLES
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.visits import run_uncounted_at
from armillary.errors import Failure, Kind
from armillary.model import layout
from armillary.model.encoding import payload_of, unpack_header
from armillary.model.items import strip_system_properties
from armillary.model.key_values import Key
from armillary.model.patch import parse_patch
from armillary.model.resources import ResourceType

Model = dict[str, dict[str, Any]]


@pytest.fixture
async def house() -> AsyncIterator[House]:
    opened = await House.open()
    opened.clock.step_s = 0.0005
    yield opened
    await opened.account.close()
    assert await opened.problems() == []
    await opened.engine.close()


async def fixed(house: House, **policies: Any) -> Container:
    database = await containers.create_database(house.account, {"id": "d"}, None)
    return await containers.create_container(house.account, database, {"id": "c", **policies}, None, is_old_client=True)


async def stored(container: Container) -> Model:
    found: Model = {}
    for partition in container.partitions.values():
        for _, each in await partition.read(lambda view: list(view.scan(layout.ITEMS, layout.space_end(layout.ITEMS)))):
            document = strip_system_properties(orjson.loads(payload_of(each)))
            assert document["id"] not in found
            found[document["id"]] = document
    return found


async def finished(moving: Migration) -> None:
    while not moving.is_ended:  # noqa: ASYNC110
        await asyncio.sleep(0)


class Writer:
    """Does one thing after the other, by the container's name, until it is told to stop."""

    def __init__(self, house: House, model: Model, prefix: str, seed: int) -> None:
        self._house = house
        self._model = model
        self._prefix = prefix
        self._random = random.Random(seed)
        self._count = 0
        self.is_stopping = False

    async def run(self) -> None:
        while not self.is_stopping:
            await self._once()
            await asyncio.sleep(0)

    async def _once(self) -> None:
        own = [each for each in self._model if each.startswith(self._prefix)]
        chosen = self._random.choice(own) if own else None
        kind = self._random.choice(["create", "create", "replace", "move", "patch", "delete"])
        document: dict[str, Any] | None
        if chosen is None or kind == "create":
            self._count += 1
            chosen = f"{self._prefix}{self._count}"
            document = {"id": chosen, "a": self._random.randrange(9), "b": self._random.randrange(30), "n": 0}
        elif kind == "delete":
            document = None
        else:
            document = {**self._model[chosen], "n": self._random.random()}
            if kind == "move":
                document["b"] = self._random.randrange(30)
        while True:
            container = self._house.account.container("d", "c")
            before = self._model.get(chosen)
            try:
                await self._do(container, kind, before, document, chosen)
                break
            except Failure as failure:
                if failure.kind is not Kind.STALE_CONTAINER:
                    raise
        if document is None:
            del self._model[chosen]
        else:
            self._model[chosen] = document

    async def _do(
        self, container: Container, kind: str, before: Any, document: dict[str, Any] | None, item_id: str
    ) -> None:
        clock = self._house.clock
        old_key = ItemOptions(key=container.key_of(before)) if before is not None else ItemOptions()
        if document is None:
            await items.delete(container, item_id, old_key)
        elif before is None:
            await items.create(container, dict(document), ItemOptions(key=container.key_of(document)), clock)
        elif container.key_of(before) != container.key_of(document):
            # A key does not change: the item is taken out and put in again.
            await items.delete(container, item_id, old_key)
            del self._model[item_id]
            await items.create(container, dict(document), ItemOptions(key=container.key_of(document)), clock)
        elif kind == "patch":
            patch = parse_patch([{"op": "set", "path": "/n", "value": document["n"]}])
            await items.patch(container, item_id, patch, old_key)
        else:
            await items.upsert(container, dict(document), ItemOptions(key=container.key_of(document)), clock)


@pytest.mark.parametrize("number", range(4))
async def test_writers_go_on(house: House, seed: int, number: int) -> None:
    dice = random.Random(seed + number)
    is_fixed = number % 2 == 0
    if is_fixed:
        source = await fixed(house)
    else:
        database = await containers.create_database(house.account, {"id": "d"}, None)
        body = {"id": "c", "partitionKey": {"paths": ["/a"], "kind": "Hash", "version": 2}}
        source = await containers.create_container(house.account, database, body, Throughput.manual(12_000))
    model: Model = {}
    for count in range(400):
        document: dict[str, Any] = {"id": f"old{count}", "a": dice.randrange(9), "b": dice.randrange(30), "n": count}
        await house.put(source, document)
        model[document["id"]] = document
    await house.account.catalog.create(
        ResourceType.PROCEDURE, source.record, "run", {"id": "run", "body": "function () {}"}
    )
    writers = [Writer(house, model, f"{each}-", seed + number * 10 + each) for each in range(4)]
    writers.append(Writer(house, model, "old", seed - number))
    tasks = [asyncio.create_task(each.run()) for each in writers]
    moving = await migration.begin(house.account, source, Plan("new", ("/b",), Throughput.manual(12_000)))
    while not moving.copied:  # noqa: ASYNC110
        await asyncio.sleep(0)
    if not is_fixed:
        await house.account.reshaper.split(source, next(iter(source.partitions)))
    with pytest.raises(Failure, match="being migrated already"):
        await migration.begin(house.account, source, Plan("other", ("/b",)))
    await finished(moving)
    assert moving.stage == SWITCHED, moving.failure
    for _ in range(50):
        await asyncio.sleep(0)
    for each in writers:
        each.is_stopping = True
    await asyncio.gather(*tasks)
    now = house.account.container("d", "c")
    assert now.key is not None and now.key.paths == ("/b",) and len(now.partitions) >= 2
    assert await stored(now) == model
    assert moving.verified is not None and moving.followed > 0
    [script] = house.account.catalog.children(ResourceType.PROCEDURE, now.record.rid)
    assert script.name == "run"
    old = house.account.container("d", "c-before")
    assert old.record.rid == source.record.rid and "changeFeedPolicy" not in old.record.body
    assert now.partitions[0].lsn >= max(each.lsn for each in old.partitions.values())
    # The old one is there as it was, and can be written to under its name.
    await house.put(old, {"id": "more", "a": 1, "b": 1})
    with pytest.raises(Failure):
        house.account.container("d", "new")
    await house.reopen()
    assert await stored(house.account.container("d", "c")) == model


async def test_items_keep_their_times(house: House) -> None:
    source = await fixed(house, defaultTtl=-1)
    house.clock.set(1_700_000_000)
    await house.put(source, {"id": "1", "b": "x", "ttl": 1000}, {"id": "2", "b": "y"}, {"id": "gone", "ttl": 5})
    house.clock.set(1_700_000_500)
    moving = await migration.begin(house.account, source, Plan("new", ("/b",), keep_as="old"))
    await finished(moving)
    assert moving.stage == SWITCHED, moving.failure
    now = house.account.container("d", "c")
    key = now.effective_key(Key(("x",)))
    found = await now.partition_for(key).read_item(key, "1")
    assert found is not None and unpack_header(found).ts == 1_700_000_000
    house.clock.set(1_700_001_001)
    assert await now.partition_for(key).read_item(key, "1") is None


async def test_the_target_is_split_while_a_portion_is_written(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the writes to two of its partitions."""
    source = await fixed(house)
    await house.put(source, *[{"id": f"i{number}", "b": f"b{number}"} for number in range(40)])
    splits: list[Any] = []

    async def split_after_the_first(container: Container, *given: Any) -> Any:
        done = await run_uncounted_at(container, *given)
        if not splits:
            reshaper = house.account.reshaper
            splits.append(await reshaper.split(container, container.map.ranges[-1].id))
            splits.append(await reshaper.split(container, container.map.ranges[0].id))
            for each in splits:
                await reshaper.finished(each)
        return done

    monkeypatch.setattr(item_copy, "run_uncounted_at", split_after_the_first)
    moving = await migration.begin(house.account, source, Plan("new", ("/b",), Throughput.manual(12_000)))
    await finished(moving)
    assert moving.stage == SWITCHED, moving.failure
    assert len(await stored(house.account.container("d", "c"))) == 40 and splits


async def test_items_that_would_be_one_are_not_mixed(house: House) -> None:
    source = await house.container(12_000)
    names = source.database.name, source.name
    await house.put(source, {"id": "1", "pk": "a", "b": 1}, {"id": "1", "pk": "b", "b": 1})
    moving = await migration.begin(house.account, source, Plan("new", ("/b",)))
    await finished(moving)
    assert moving.stage == FAILED and moving.failure is not None
    assert "has 2 items, 'new' 1" in moving.failure.message
    assert house.account.container(*names) is source and "changeFeedPolicy" not in source.record.body
    # Once one of them has another id it goes on with what is there.
    await items.delete(source, "1", ItemOptions(key=Key(("b",))))
    await house.put(source, {"id": "2", "pk": "b", "b": 1})
    moving = await migration.begin(house.account, source, Plan("new", ("/b",)))
    await finished(moving)
    assert moving.stage == SWITCHED, moving.failure
    assert set(await stored(house.account.container(*names))) == {"1", "2"}


async def test_taken_up_after_a_restart(house: House) -> None:
    source = await fixed(house)
    for count in range(300):
        await house.put(source, {"id": str(count), "b": count % 7})
    moving = await migration.begin(house.account, source, Plan("new", ("/b",)))
    while moving.copied < 100:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await house.reopen()
    source = house.account.container("d", "c")
    assert "changeFeedPolicy" in source.record.body
    await house.delete(source, {"id": "5", "b": 5})
    await house.put(source, {"id": "6", "b": 1, "n": "new"}, {"id": "more", "b": 3})
    with pytest.raises(Failure, match="another partition key"):
        await migration.begin(house.account, source, Plan("new", ("/other",)))
    moving = await migration.begin(house.account, source, Plan("new", ("/b",)))
    await finished(moving)
    assert moving.stage == SWITCHED, moving.failure
    found = await stored(house.account.container("d", "c"))
    assert len(found) == 300 and "5" not in found and found["6"] == {"id": "6", "b": 1, "n": "new"}


async def test_without_switching_and_refusals(house: House) -> None:
    source = await fixed(house)
    await house.put(source, {"id": "1", "b": 1})
    moving = await migration.begin(house.account, source, Plan("new", ("/b",), switches=False))
    await finished(moving)
    assert moving.stage == CAUGHT_UP
    assert house.account.container("d", "c") is source and "changeFeedPolicy" not in source.record.body
    assert await stored(house.account.container("d", "new")) == {"1": {"id": "1", "b": 1}}
    for plan, said in (
        (Plan("c", ("/b",)), "a name of its own"),
        (Plan("c-before", ("/b",)), "a name of its own"),
        (Plan("x", ("/b",), keep_as="new"), "already"),
        (Plan("x", ("/b/*",)), "."),
    ):
        with pytest.raises(Failure, match=said):
            await migration.begin(house.account, source, plan)
    moving = await migration.begin(house.account, source, Plan("new", ("/b",)))
    assert await migration.begin(house.account, source, Plan("new", ("/b",))) is moving  # by one who was cut off
    with pytest.raises(Failure, match="in another way"):
        await migration.begin(house.account, source, Plan("new", ("/b",), switches=False))
    await finished(moving)
    source = house.account.container("d", "c")
    with pytest.raises(Failure, match="partitioned by /b already"):
        await migration.begin(house.account, source, Plan("new", ("/b",)))
    other = await containers.create_container(house.account, source.database, {"id": "other"}, None, is_old_client=True)
    await house.put(other, {"id": "1"})
    with pytest.raises(Failure, match="not begun as a copy"):
        await migration.begin(house.account, source, Plan("other", None, keep_as="third"))


@pytest.mark.parametrize("path", [KEY_PATH, "/'$pk'"])
async def test_tables_stay_tables(house: House, path: str) -> None:
    assert TABLES == DATABASE
    database = await containers.create_database(house.account, {"id": TABLES}, None)
    body = {"id": "t", "partitionKey": {"paths": [path], "kind": "Hash", "version": 2}}
    table = await containers.create_container(house.account, database, body, None)
    with pytest.raises(Failure, match="is a table"):
        await migration.begin(house.account, table, Plan("new", ("/b",)))


async def permission(house: House, user: Record, name: str, resource: str, *key: str) -> Record:
    body: dict[str, Any] = {"id": name, "permissionMode": "All", "resource": resource}
    if key:
        body["resourcePartitionKey"] = list(key)
    return await house.account.catalog.create(ResourceType.PERMISSION, user, name, body)


async def test_permissions_go_with_the_name_but_for_those_of_keys(house: House) -> None:
    """A value of the old key is not to open what has the same value of the new one."""
    source = await house.container(400)
    catalog = house.account.catalog
    script = await catalog.create(ResourceType.PROCEDURE, source.record, "run", {"id": "run", "body": "function () {}"})
    database = source.database
    user = await catalog.create(ResourceType.USER, database, "u", {"id": "u"})
    rids = f"dbs/{database.rid_text}/colls/{source.rid_text}"
    await permission(house, user, "name", source.link)
    await permission(house, user, "rid", f"{rids}/")
    await permission(house, user, "script", f"{rids}/sprocs/{script.rid_text}")
    await permission(house, user, "item", f"{rids}/docs/{source.rid_text}")
    await permission(house, user, "key", source.link, "ada")
    await permission(house, user, "database", f"dbs/{database.name}")
    moving = await migration.begin(house.account, source, Plan("new", ("/b",)))
    await finished(moving)
    assert moving.stage == SWITCHED, moving.failure
    new = house.account.container(database.name, source.name.removesuffix("-before"))
    made = {each.name: each.rid_text for each in catalog.children(ResourceType.PROCEDURE, new.record.rid)}
    found = {each.name: each.body["resource"] for each in catalog.children(ResourceType.PERMISSION, user.rid)}
    assert found == {
        "name": new.link,
        "rid": f"dbs/{database.rid_text}/colls/{new.rid_text}",
        "script": f"dbs/{database.rid_text}/colls/{new.rid_text}/sprocs/{made['run']}",
        "item": f"{rids}/docs/{source.rid_text}",
        "key": f"{new.link}-before",
        "database": f"dbs/{database.name}",
    }
    assert moving.permissions_left == 2


async def test_what_is_changed_meanwhile_is_carried_over(house: House) -> None:
    source = await house.container(400, changeFeedPolicy={"retentionDuration": 10})
    for count in range(100):
        await house.put(source, {"id": str(count), "pk": "a", "b": count})
    moving = await migration.begin(house.account, source, Plan("new", ("/b",)))
    policy = {"includedPaths": [{"path": "/b/?"}], "excludedPaths": [{"path": "/*"}]}
    body = {**source.record.body, "indexingPolicy": policy, "defaultTtl": 1000}
    await containers.replace_container(house.account, source, body, None)
    await finished(moving)
    assert moving.stage == SWITCHED, moving.failure
    new = house.account.container(source.database.name, "c")
    assert (new.record.body["defaultTtl"], new.record.body["changeFeedPolicy"]) == (1000, {"retentionDuration": 10})
    assert {"path": "/b/?"} in new.record.body["indexingPolicy"]["includedPaths"]
    await house.account.restated(new)
    assert all(each.versions_number == new.schema.versions_number > 0 for each in new.partitions.values())
