"""The paths that all items of a partition have: never one too many, whatever is written, restated or looked at, and
exactly the right ones after a look."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.waiting import until

from armillary import limits, work
from armillary.account import containers
from armillary.account.account import Account
from armillary.account.check import check_account
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions, Member
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import VirtualClock
from armillary.errors import Failure
from armillary.model import layout
from armillary.model.encoding import payload_of
from armillary.model.key_values import Key
from armillary.partition.operations import Verb
from armillary.partition.partition import Partition
from armillary.partition.upkeep.upkeep import CoverageScan
from armillary.partition.writing.path_coverage import COVERAGE_KEY, PathCoverage, load_coverage, paths_of
from armillary.storage.engine import Engine, Txn, View
from armillary.storage.memory import MemoryEngine
from armillary.storage.rocks import RocksEngine

KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}
ALWAYS = {"/id", "/pk", "/_ts"}
NAMES = "abcd"


@pytest.fixture(params=["memory", "rocks"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    opened: Engine = MemoryEngine() if request.param == "memory" else await RocksEngine.open(tmp_path / "d", "relaxed")
    yield opened
    await opened.close()


async def a_container(account: Account) -> Container:
    database = await containers.create_database(account, {"id": "db"}, None)
    body = {"id": "c", "partitionKey": KEY}
    return await containers.create_container(account, database, body, Throughput.manual(400))


def the_partition(container: Container) -> Partition:
    (partition,) = container.partitions.values()
    return partition


async def known(partition: Partition) -> PathCoverage:
    found = await partition.read(load_coverage)
    assert found is not None
    return found


async def truth(partition: Partition) -> set[str]:
    def all_have(view: View) -> set[str]:
        pairs = view.scan(layout.ITEMS, layout.space_end(layout.ITEMS))
        return set.intersection(*({f"/{name}" for name in orjson.loads(payload_of(stored))} for _, stored in pairs))

    # Of the system properties only _ts is in the index.
    return {path for path in await partition.read(all_have) if path == "/_ts" or not path.startswith("/_")}


async def look(container: Container) -> None:
    looking = await CoverageScan.begin(the_partition(container), container.schema)
    while looking is not None and not await looking.go_on():
        pass


def a_document(dice: random.Random) -> dict[str, Any]:
    document: dict[str, Any] = {"id": f"i{dice.randrange(12)}", "pk": dice.choice("xy")}
    for name in NAMES:
        if dice.random() < 0.9:
            document[name] = dice.choice([1, "s", None, [1], {"deep": 1}])
    return document


async def write(container: Container, dice: random.Random, clock: VirtualClock) -> None:
    document = a_document(dice)
    options = ItemOptions(key=Key((document["pk"],)), directive=dice.choice(["Default"] * 30 + ["Exclude"]))
    try:
        match dice.choice(["upsert", "upsert", "delete", "batch"]):
            case "upsert":
                await items.upsert(container, document, options, clock)
            case "delete":
                await items.delete(container, document["id"], options)
            case "batch":
                others = [{**a_document(dice), "pk": document["pk"]} for _ in range(3)]
                members = [Member(Verb.UPSERT, document=each) for each in [document, *others]]
                await items.batch(container, Key((document["pk"],)), members, ItemOptions(), clock)
    except Failure:
        pass


@pytest.mark.parametrize("seed", range(6))
async def test_a_path_is_known_only_if_every_item_has_it(engine: Engine, seed: int) -> None:
    print("seed", seed)
    dice, clock = random.Random(seed), VirtualClock()
    account = await Account.open(engine, clock)
    container = await a_container(account)
    for turn in range(40):
        work: list[Coroutine[Any, Any, object]] = [write(container, dice, clock) for _ in range(dice.randrange(1, 6))]
        if dice.random() < 0.3:
            work.append(look(container))
        if dice.random() < 0.1:
            policy = {"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": f"/{dice.choice(NAMES)}/?"}]}
            body = {**container.record.body, "indexingPolicy": policy}
            work.insert(0, containers.replace_container(account, container, body, None))
        dice.shuffle(work)
        await asyncio.gather(*work)
        assert [problem async for problem in check_account(engine, clock)] == [], turn
    await until(lambda: not container.is_restating, "all items follow the policy")
    partition = the_partition(container)
    if dice.random() < 0.5:
        await items.upsert(container, {"id": "all", "pk": "x"} | dict.fromkeys(NAMES, 1), ItemOptions(), clock)
        await look(container)
        is_indexed = container.schema.rules.indexing.is_indexed
        exact = {path for path in await truth(partition) if is_indexed(path)}
        # An item that was kept out of the index has no term at all.
        assert (await known(partition)).paths in (exact, set())
    await account.close()


async def test_what_grows_and_what_shrinks_it() -> None:
    engine, clock = MemoryEngine(), VirtualClock()
    account = await Account.open(engine, clock)
    container = await a_container(account)
    partition = the_partition(container)

    async def put(item_id: str, **members: Any) -> set[str]:
        await items.upsert(container, {"id": item_id, "pk": "x", **members}, ItemOptions(), clock)
        return set((await known(partition)).paths)

    assert await put("1", a=1, b={"c": 1}, tags=[1]) == ALWAYS | {"/a", "/b", "/b/c", "/tags"}
    before = await known(partition)
    assert await put("2", a=1, b={"c": 1}, tags=[], d=1) == before.paths
    assert await known(partition) == before, "nothing is stored that says nothing new"
    assert await put("3", a=1) == ALWAYS | {"/a"}
    await items.delete(container, "3", ItemOptions(key=Key(("x",))))
    assert (await known(partition)).paths == ALWAYS | {"/a"}, "only a look tells more"
    await look(container)
    assert (await known(partition)).paths == ALWAYS | {"/a", "/b", "/b/c", "/tags"}
    for item_id in "12":
        await items.delete(container, item_id, ItemOptions(key=Key(("x",))))
    assert await put("4", z=1) == ALWAYS | {"/z"}, "a first item knows all"
    await account.close()
    await engine.close()


FIRST = {"id": "first", "pk": "x", "kind": 1, "total": 1}
# What is written at once into a partition that was emptied: each lacks a path that the one before it has.
AT_ONCE = [{"id": "1", "pk": "x", "kind": 2, "due": 5}, {"id": "2", "pk": "x", "kind": 1, "total": 2}]


def creating(container: Container, clock: VirtualClock) -> list[Any]:
    return [items.create(container, each, ItemOptions(), clock) for each in AT_ONCE]


def in_batches(container: Container, clock: VirtualClock) -> list[Any]:
    """The partition is emptied and filled by one transaction, while the other is under way."""
    members = [Member(Verb.DELETE, item_id="first"), Member(Verb.CREATE, document=AT_ONCE[0])]
    return [
        items.batch(container, Key(("x",)), members, ItemOptions(), clock),
        items.create(container, AT_ONCE[1], ItemOptions(), clock),
    ]


def expiring(container: Container, clock: VirtualClock) -> list[Any]:
    """The one item has expired and is in the way: a create takes it out first."""
    clock.advance(100)
    again = {**AT_ONCE[0], "id": "first"}
    return [
        items.create(container, again, ItemOptions(), clock),
        items.create(container, AT_ONCE[1], ItemOptions(), clock),
    ]


@pytest.mark.parametrize("way", [creating, in_batches, expiring])
async def test_two_writes_at_once_into_an_emptied_partition(engine: Engine, way: Any) -> None:
    clock = VirtualClock()
    account = await Account.open(engine, clock)
    container = await a_container(account)
    if way is expiring:
        await containers.replace_container(account, container, {**container.record.body, "defaultTtl": 50}, None)
        await until(lambda: not container.is_restating, "all items follow the policy")
    await items.create(container, FIRST, ItemOptions(), clock)
    if way is creating:
        await items.delete(container, "first", ItemOptions(key=Key(("x",))))
    await asyncio.gather(*way(container, clock))
    partition = the_partition(container)
    for path in ("/due", "/total"):
        assert not await partition.read(partial(partition.is_everywhere, path=path))
    assert await partition.read(lambda view: partition.is_everywhere(view, "/kind"))
    assert [problem async for problem in check_account(engine, clock)] == []
    await account.close()


async def test_a_write_beside_the_beginning_and_the_end_of_a_look(engine: Engine) -> None:
    """Both change what is stored before the partition knows of it."""
    clock = VirtualClock()
    account = await Account.open(engine, clock)
    container = await a_container(account)
    partition = the_partition(container)
    await items.create(container, {"id": "0", "pk": "x", "a": 1, "b": 1}, ItemOptions(), clock)
    await items.create(container, {"id": "1", "pk": "x", "a": 1}, ItemOptions(), clock)
    await items.delete(container, "1", ItemOptions(key=Key(("x",))))
    begun, _ = await asyncio.gather(
        partition.begin_coverage_scan(), items.create(container, {"id": "2", "pk": "x", "a": 1}, ItemOptions(), clock)
    )
    assert begun is not None
    found = frozenset(await truth(partition)) | {"/b"}  # as if the item was read before the other was written
    lacking = {"id": "3", "pk": "x", "a": 1}
    await asyncio.gather(
        partition.end_coverage_scan(begun, found), items.create(container, lacking, ItemOptions(), clock)
    )
    assert (await known(partition)).paths == ALWAYS | {"/a"}
    await account.close()


async def test_a_coverage_of_an_older_format_is_not_trusted_until_all_items_were_looked_at(engine: Engine) -> None:
    """Versions before format 3 could store a path that not all items have; their heads name no generation."""
    clock = VirtualClock()
    account = await Account.open(engine, clock)
    container = await a_container(account)
    for number in range(30):
        await items.create(container, {"id": str(number), "pk": "x", "a": 1}, ItemOptions(), clock)
    await account.close()
    store = engine.store(container.map.ranges[0].store)
    wrong = PathCoverage(7, container.schema.rules.number, 0, frozenset(ALWAYS | {"/a", "/b"}))

    def age(txn: Txn) -> None:
        head = txn.get(layout.HEAD_KEY)
        assert head is not None
        txn.put(layout.HEAD_KEY, head[:36])
        txn.put(COVERAGE_KEY, wrong.pack())

    await store.write(age)
    assert [problem async for problem in check_account(engine, clock)] == [], "what is not trusted is no problem"
    account = await Account.open(engine, clock)
    container = account.container("db", "c")
    partition = the_partition(container)
    assert partition.wants_coverage_scan
    await items.upsert(container, {"id": "1", "pk": "x", "a": 1, "b": 1}, ItemOptions(), clock)
    for path in ("/a", "/b"):
        assert not await partition.read(partial(partition.is_everywhere, path=path))
    await look(container)
    assert (await known(partition)).paths == ALWAYS | {"/a"}
    assert (await known(partition)).generation > wrong.generation
    assert [problem async for problem in check_account(engine, clock)] == []
    await account.close()


async def test_a_store_of_before_is_looked_at_once_it_is_opened() -> None:
    engine, clock = MemoryEngine(), VirtualClock()
    account = await Account.open(engine, clock)
    container = await a_container(account)
    for number in range(30):
        await items.create(container, {"id": str(number), "pk": "x", "a": 1}, ItemOptions(), clock)
    await account.close()
    store = engine.store(container.map.ranges[0].store)
    await store.write(lambda txn: txn.delete(COVERAGE_KEY))
    account = await Account.open(engine, clock)
    container = account.container("db", "c")
    partition = the_partition(container)
    assert partition.wants_coverage_scan
    await items.create(container, {"id": "new", "pk": "x", "a": 1}, ItemOptions(), clock)
    assert not await partition.read(lambda view: partition.is_everywhere(view, "/a"))
    begun = await CoverageScan.begin(partition, container.schema)
    assert begun is not None and not partition.wants_coverage_scan
    assert not await partition.read(lambda view: partition.is_everywhere(view, "/a"))
    while not await begun.go_on():
        pass
    assert await partition.read(lambda view: partition.is_everywhere(view, "/a"))
    generation = (await partition.read(partition.head_in)).coverage_generation
    wrong = PathCoverage(generation, container.schema.rules.number, 0, frozenset(["/a", "/b"]))
    await store.write(lambda txn: txn.put(COVERAGE_KEY, wrong.pack()))
    problems = [problem async for problem in check_account(engine, clock)]
    assert len(problems) == 31 and all("/b" in problem for problem in problems)
    await account.close()
    await engine.close()


def test_the_paths_of_a_wide_item_are_counted_as_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """180,000 of them took 70 ms of one piece; now readers have their turn."""
    terms = [(f"/p{number}", b"") for number in range(20_000)]
    few = PathCoverage(1, 1, 1, frozenset(["/p1", "/p2", "/q"]))
    spent: list[int] = []
    monkeypatch.setattr(work, "spend", spent.append)
    assert not few.holds(1, terms)
    assert few.after_item(1, terms, 2).paths == {"/p1", "/p2"}
    assert len(paths_of(terms)) == limits.COVERED_PATHS_MAX
    assert sum(spent) >= 3 * 20_000 and max(spent) <= limits.WORK_SLICE_UNITS
