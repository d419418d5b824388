"""Snapshots as files, on both engines: what is restored from one is what was in it, whatever door wrote it, under its
own name or another; a file that is not whole restores nothing."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from support.kept_house import KeptHouse, fill, open_house
from support.limits import WithLimits

from armillary import limits
from armillary.account import containers
from armillary.account.collections import document_operations
from armillary.account.container import Container
from armillary.account.snapshots import snapshot_files
from armillary.account.snapshots.snapshot_files import parts
from armillary.account.snapshots.snapshot_import import SnapshotImport
from armillary.account.snapshots.snapshots import take
from armillary.account.throughput.provisioning import Throughput
from armillary.errors import Failure, Kind
from armillary.model import layout
from armillary.model.bson.bson_values import encode
from armillary.model.encoding import payload_of
from armillary.model.resources import ResourceType
from armillary.storage.engine import View


@pytest.fixture(params=["memory", "rocks"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KeptHouse]:
    async with open_house(request.param, tmp_path / "data") as house:
        yield house


async def written(house: KeptHouse, *scope: str) -> bytes:
    snapshot = await take(house.account, scope)
    try:
        return b"".join([part async for part in parts(snapshot)])
    finally:
        snapshot.release()


async def restored(house: KeptHouse, file: bytes, *target: str, replaces: bool = False) -> SnapshotImport:
    arrival = SnapshotImport(house.account, target or None, replaces=replaces)
    dice, at = random.Random(len(file)), 0
    try:
        while at < len(file):
            size = dice.choice([1, 100, 10_000, 1_000_000])
            await arrival.feed(file[at : at + size])
            at += size
        await arrival.finish()
    except BaseException:
        await arrival.abandon()
        raise
    return arrival


def without_rids(texts: list[bytes]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in orjson.loads(text).items() if name not in ("_rid", "_self")} for text in texts
    ]


async def rich(house: KeptHouse) -> Container:
    """A container over several partitions, with items of two doors, scripts, and users of its database."""
    container = await house.create(throughput_ru=20_000, defaultTtl=-1)
    await fill(house, container)
    document = {"_id": ObjectId(), "pk": "k1", "n": Int64(1), "d": Decimal128("1.50"), "list": [1, 2.0, None]}
    await document_operations.write(
        container, document_operations.inserting(container, document, encode(document), house.clock)
    )
    catalog = house.account.catalog
    await catalog.create(ResourceType.FUNCTION, container.record, "f", {"id": "f", "body": "function () {}"})
    user = await catalog.create(ResourceType.USER, container.database, "u", {"id": "u"})
    links = {"byName": "dbs/db/colls/c/docs/i1", "byRid": container.record.self_link}
    for name, link in links.items():
        body = {"id": name, "permissionMode": "Read", "resource": link}
        await catalog.create(ResourceType.PERMISSION, user, name, body)
    return container


async def test_a_database_comes_back_under_its_name(house: KeptHouse) -> None:
    container = await rich(house)
    before, rid = without_rids(await house.contents()), container.rid_text
    file = await written(house, "db")
    await containers.delete_database(house.account, house.account.database("db"), None)
    arrival = await restored(house, file)
    assert arrival.item_count == 41
    assert without_rids(await house.contents()) == before
    assert house.container().rid_text != rid
    assert [each.low for each in house.container().map.ranges] == [each.low for each in container.map.ranges]
    assert house.container().record.body == container.record.body
    await house.check()
    await house.put(house.container(), {"id": "later", "pk": "k1"})
    await house.check()


async def test_everything_can_have_another_name(house: KeptHouse) -> None:
    await rich(house)
    before = without_rids(await house.contents())
    await restored(house, await written(house, "db"), "copy")
    catalog, account = house.account.catalog, house.account
    copy = account.container("copy", "c")
    assert without_rids(await house.contents(database="copy")) == before
    user = catalog.find(ResourceType.USER, account.database("copy").rid, "u")
    assert user is not None
    found = {each.name: each.body["resource"] for each in catalog.children(ResourceType.PERMISSION, user.rid)}
    assert found == {"byName": "dbs/copy/colls/c/docs/i1", "byRid": copy.record.self_link.strip("/")}
    assert catalog.find(ResourceType.FUNCTION, copy.record.rid, "f") is not None
    offer = catalog.offer_of(copy.record)
    assert offer is not None
    assert offer.body["content"]["offerThroughput"] == 20_000
    assert offer.body["offerResourceId"] == copy.rid_text
    await house.check()


async def test_versions_come_along(house: KeptHouse) -> None:
    """Each is an item as it was, with rids of its own."""
    container = await house.create(changeFeedPolicy={"retentionDuration": 10})
    await fill(house, container)
    await fill(house, container)
    await house.delete(container, {"id": "i1", "pk": "k1"})
    await restored(house, await written(house, "db"), "copy")
    copy = house.account.container("copy", "c")
    for partition, other in zip(container.partitions.values(), copy.partitions.values(), strict=True):
        found, expected = await other.read(_images), await partition.read(_images)
        assert len(expected) > 30
        assert without_rids(found) == without_rids(expected)
        assert {orjson.loads(text)["_self"][: len(copy.record.self_link)] for text in found} == {copy.record.self_link}
    await house.check()


def _images(view: View) -> list[bytes]:
    return [payload_of(stored) for _, stored in view.scan(layout.IMAGES, layout.space_end(layout.IMAGES))]


async def test_a_container_goes_to_any_database(house: KeptHouse) -> None:
    await rich(house)
    before = without_rids(await house.contents())
    file = await written(house, "db", "c")
    await restored(house, file, "db", "other")
    assert without_rids(await house.contents("other")) == before
    await restored(house, file, "new", "c")
    assert house.account.container("new", "c").database.name == "new"
    await house.check()


async def test_one_that_shared_its_throughput_has_some_of_its_own(house: KeptHouse) -> None:
    account = house.account
    database = await containers.create_database(account, {"id": "db"}, Throughput.manual(400))
    body = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash"}}
    container = await containers.create_container(account, database, body, None)
    await fill(house, container)
    assert account.catalog.offer_of(container.record) is None
    await restored(house, await written(house, "db", "c"), "alone", "c")
    assert account.catalog.offer_of(account.container("alone", "c").record) is not None
    await restored(house, await written(house, "db"), "shared")
    assert account.catalog.offer_of(account.container("shared", "c").record) is None
    await house.check()


async def test_what_is_there_stays_unless_it_may_go(house: KeptHouse) -> None:
    container = await rich(house)
    file = await written(house, "db")
    before = without_rids(await house.contents())
    await house.put(container, {"id": "since", "pk": "k1"})
    with pytest.raises(Failure) as refused:
        await restored(house, file)
    assert refused.value.kind is Kind.CONFLICT
    assert len(await house.contents()) == 42
    await restored(house, file, replaces=True)
    assert without_rids(await house.contents()) == before
    with pytest.raises(Failure) as refused:
        await restored(house, file, "db", "c")
    assert refused.value.kind is Kind.BAD_REQUEST
    await house.check()


async def test_a_database_that_goes_meanwhile(house: KeptHouse) -> None:
    await rich(house)
    file = await written(house, "db", "c")
    await containers.create_database(house.account, {"id": "other"}, None)
    arrival = SnapshotImport(house.account, ("other", "c"))
    await arrival.feed(file)
    await containers.delete_database(house.account, house.account.database("other"), None)
    with pytest.raises(Failure) as refused:
        await arrival.finish()
    assert refused.value.kind is Kind.OWNER_NOT_FOUND
    await arrival.abandon()
    await house.check()


async def test_a_whole_account(house: KeptHouse) -> None:
    await rich(house)
    await house.create("empty")
    await containers.create_database(house.account, {"id": "bare"}, None)
    before = without_rids(await house.contents())
    file = await written(house)
    for name in ("db", "bare"):
        await containers.delete_database(house.account, house.account.database(name), None)
    await restored(house, file)
    assert without_rids(await house.contents()) == before
    assert await house.contents("empty") == []
    assert house.account.database("bare")
    await house.check()


@pytest.mark.parametrize("limit", [{"SNAPSHOT_PART_BYTES": 2_000}, {"SNAPSHOT_PART_ENTRIES": 20}], ids=str)
async def test_it_is_made_of_parts_of_bounded_size(
    house: KeptHouse, with_limits: WithLimits, limit: dict[str, int]
) -> None:
    with_limits(**limit)
    await rich(house)
    snapshot = await take(house.account, ("db",))
    sizes = [len(part) async for part in parts(snapshot)]
    snapshot.release()
    assert len(sizes) > 20
    assert max(sizes) < 6_000
    before = without_rids(await house.contents())
    await restored(house, await written(house, "db"), "copy")
    assert without_rids(await house.contents(database="copy")) == before


async def test_what_is_not_whole_restores_nothing(house: KeptHouse, with_limits: WithLimits) -> None:
    with_limits(SNAPSHOT_PART_BYTES=2_000)
    await rich(house)
    file = await written(house, "db")
    dice = random.Random(7)
    wrong = [file[: dice.randrange(len(file))] for _ in range(20)] + [
        file + b"x",
        b"",
        b"{}",
        b"armillary snapshot 9\n",
    ]
    for _ in range(60):
        at = dice.randrange(len(file))
        wrong.append(file[:at] + bytes([file[at] ^ 1 << dice.randrange(8)]) + file[at + 1 :])
    for each in wrong:
        with pytest.raises(Failure) as refused:
            await restored(house, each, "copy")
        assert refused.value.kind is Kind.BAD_REQUEST
    assert house.account.catalog.find(ResourceType.DATABASE, b"", "copy") is None
    await house.check()
    # Nothing is left of what was read before the damage was found.
    number = max(each.store for each in house.container().state.ranges)
    for store in range(number + 1, number + 200):
        assert await house.engine.store(store).read(lambda view: next(view.scan(b"", b"\xff" * 8), None)) is None


def test_pairs_are_bounded() -> None:
    bomb = snapshot_files.pack_pairs([(b"k", bytes(limits.SNAPSHOT_FRAME_BYTES_MAX + 1))])
    with pytest.raises(Failure):
        snapshot_files.unpack_pairs(bomb)
    pairs = [(b"", b""), (b"a" * 5_000, b"b"), (b"\xff", bytes(1_000))]
    assert snapshot_files.unpack_pairs(snapshot_files.pack_pairs(pairs)) == pairs


# A file whose digests are right, and whose content is not what a snapshot holds.


def rewritten(file: bytes, change: Callable[[bytes, Any], Any]) -> bytes:
    """The same file with other frames: `change` is given the kind and the content, and gives the content, several of
    them as a list behind None, or None to leave it out."""
    writer = snapshot_files.FrameWriter()
    made = [writer.begin()]
    for frame in snapshot_files.FrameReader().feed(file):
        if frame.kind == snapshot_files.END:
            continue
        if frame.kind == snapshot_files.PAIRS:
            made.append(writer.frame(frame.kind, frame.payload))
            continue
        made += [
            writer.frame(frame.kind, orjson.dumps(each)) for each in change(frame.kind, orjson.loads(frame.payload))
        ]
    return b"".join([*made, writer.end()])


TYPE, RID, OWNER, NAME, BODY, STATE = range(6)


def _record(of_type: str, place: int, value: Any) -> Callable[[bytes, Any], list[Any]]:
    def change(kind: bytes, content: Any) -> list[Any]:
        if kind == snapshot_files.RECORD and content[TYPE] == of_type:
            content[place] = value(content[place]) if callable(value) else value
        return [content]

    return change


def _added(of_type: str, **parts: Any) -> Callable[[bytes, Any], list[Any]]:
    """A copy of a record beside it, with other parts."""

    def change(kind: bytes, content: Any) -> list[Any]:
        if kind != snapshot_files.RECORD or content[TYPE] != of_type:
            return [content]
        places = {"type": TYPE, "rid": RID, "owner": OWNER, "name": NAME}
        copy = list(content)
        for name, value in parts.items():
            copy[places[name]] = value
        return [content, copy]

    return change


def _header(**parts: Any) -> Callable[[bytes, Any], list[Any]]:
    return lambda kind, content: [{**content, **parts} if kind == snapshot_files.HEADER else content]


def _ranges(change: Callable[[list[Any]], Any]) -> Callable[[bytes, Any], list[Any]]:
    return _record("colls", STATE, lambda state: {**state, "ranges": change(state["ranges"])})


OTHER_RID = "0badf00d"
TAMPERED = {
    "a name with a slash": _record("dbs", NAME, "a/colls/b"),
    "a path for a name": _record("colls", NAME, "../c"),
    "a line end in a name": _record("colls", NAME, "c\r\nset-cookie: a=b"),
    "no name": _record("colls", NAME, ""),
    "a number for a name": _record("colls", NAME, 5),
    "a user's name": _record("users", NAME, "a/b"),
    "a function's name": _record("udfs", NAME, "f\nf"),
    "a database that is not said": _added("dbs", rid=OTHER_RID, name="other"),
    "two of one name": _added("colls", rid="0badf00d0badf00d"),
    "two of one rid": _added("colls", name="d"),
    "a permission without a user": _record("permissions", OWNER, ""),
    "a permission of a database": _added("permissions", rid="0badf00d0badf00d", name="p", owner=OTHER_RID),
    "a function of nothing": _record("udfs", OWNER, OTHER_RID),
    "a database in a database": _record("dbs", OWNER, OTHER_RID),
    "an item among the records": _added("udfs", rid="0badf00d0badf00d", type="docs"),
    "a type that is none": _record("udfs", TYPE, "files"),
    "a rid that is none": _record("udfs", RID, "../../x"),
    "a body that is none": _record("colls", BODY, "body"),
    "a definition that is none": _record("colls", BODY, lambda body: {**body, "partitionKey": {"paths": 5}}),
    "a policy that is none": _record("colls", BODY, lambda body: {**body, "indexingPolicy": []}),
    "no state": _record("colls", STATE, None),
    "no partitions": _ranges(lambda _: []),
    "partitions that are none": _ranges(lambda _: {"id": 1}),
    "a gap between partitions": _ranges(lambda ranges: ranges[1:]),
    "one partition twice": _ranges(lambda ranges: [ranges[0], *ranges]),
    "a partition's id": _ranges(lambda ranges: [{**ranges[0], "id": "0/../1"}, *ranges[1:]]),
    "another scope": _header(scope=["other"]),
    "a scope that is a path": _header(scope=["../db"]),
    "a scope of three": _header(scope=["a", "b", "c"]),
    "a scope that is none": _header(scope="db"),
    "a container's scope": _header(scope=["db", "c"]),
    "two headers": lambda kind, content: [content, content] if kind == snapshot_files.HEADER else [content],
    "a store of nothing": lambda kind, content: [{**content, "range": 99} if kind == snapshot_files.STORE else content],
    "a store at a path": lambda kind, content: [
        {**content, "container": "../x"} if kind == snapshot_files.STORE else content
    ],
}


@pytest.mark.parametrize("name", TAMPERED)
async def test_a_file_that_was_tampered_with_restores_nothing(name: str, tmp_path: Path) -> None:
    async with open_house("memory", tmp_path / "data") as house:
        await rich(house)
        file = await written(house, "db")
        assert rewritten(file, lambda _, content: [content]) == file
        await containers.delete_database(house.account, house.account.database("db"), None)
        with pytest.raises(Failure) as refused:
            await restored(house, rewritten(file, TAMPERED[name]))
        assert refused.value.kind is Kind.BAD_REQUEST, refused.value.message
        assert house.account.catalog.of_type(ResourceType.DATABASE) == []
        await house.check()
