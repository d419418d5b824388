"""The account over the memory engine: random work compared with a plain dictionary, then the self-check; and a check
that the self-check itself sees damage."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.house import AccountHouse
from support.passing_time import passing
from support.refusals import refused, refused_later
from support.waiting import until

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.items import items
from armillary.account.items.items import ItemOptions, Member
from armillary.account.registry import AccountSettings
from armillary.account.throughput import offers
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.model import layout
from armillary.model.key_values import Key
from armillary.model.resources import ResourceType
from armillary.partition.operations import Result, Verb
from armillary.storage.memory import MemoryEngine

KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}


House = AccountHouse[VirtualClock]


@pytest.fixture
async def house() -> AsyncIterator[House]:
    settings = AccountSettings(logical_partition_bytes_max=200_000)
    house = await House.begin(MemoryEngine(), VirtualClock(), settings)
    yield house
    assert await house.problems() == []
    await house.close()


def a_document(dice: random.Random) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": f"i{dice.randrange(30)}",
        "pk": dice.choice(["a", "b", "c", None, 5, True]),
        "n": dice.randrange(5),
        "tags": [dice.choice("xyz") for _ in range(dice.randrange(4))],
        "deep": {"text": "t" * dice.randrange(300), "none": None},
    }
    if dice.random() < 0.2:
        document["ttl"] = dice.choice([3, 50, -1])
    if dice.random() < 0.1:
        del document["pk"]
    return document


@pytest.mark.parametrize("seed", range(4))
async def test_random_work_equals_a_dictionary(house: House, seed: int) -> None:
    print("seed", seed)
    dice = random.Random(seed)
    container = await house.create(throughput_ru=30_000, defaultTtl=-1)
    model: dict[tuple[Any, str], tuple[dict[str, Any], float]] = {}

    def now() -> float:
        return house.clock.now_s()

    def alive(place: tuple[Any, str]) -> dict[str, Any] | None:
        document, expires_s = model.get(place, (None, 0.0))
        return document if document is not None and expires_s > now() else None

    for _ in range(600):
        house.clock.advance(dice.random())
        document = a_document(dice)
        key = container.key_of(document)
        place = (repr(key), document["id"])
        ttl = document.get("ttl", -1)
        expires_s = int(now()) + ttl if ttl > 0 else float("inf")
        options = ItemOptions(key=key)
        present = alive(place)
        match dice.choice(["create", "upsert", "replace", "delete", "read", "patch"]):
            case "create":
                if present is not None:
                    await refused_later(items.create(container, document, options, house.clock), kind=Kind.CONFLICT)
                    continue
                await items.create(container, document, options, house.clock)
                model[place] = (document, expires_s)
            case "upsert":
                answer = await items.upsert(container, document, options, house.clock)
                assert answer.result is (Result.REPLACED if present is not None else Result.CREATED)
                model[place] = (document, expires_s)
            case "replace":
                work = items.replace(container, document["id"], document, options, house.clock)
                if present is None:
                    await refused_later(work, kind=Kind.NOT_FOUND)
                    continue
                await work
                model[place] = (document, expires_s)
            case "delete":
                if present is None:
                    await refused_later(items.delete(container, document["id"], options), kind=Kind.NOT_FOUND)
                    continue
                await items.delete(container, document["id"], options)
                del model[place]
            case "read" | "patch":
                if present is None:
                    await refused_later(items.read(container, document["id"], options), kind=Kind.NOT_FOUND)
                    continue
                read = await items.read(container, document["id"], options)
                assert read.payload is not None
                stored = orjson.loads(read.payload)
                assert {name: value for name, value in stored.items() if name[0] != "_"} == present
    assert await house.problems() == []


async def test_an_expired_item_frees_its_id_and_its_unique_values(house: House) -> None:
    unique = {"uniqueKeys": [{"paths": ["/email"]}]}
    container = await house.create(defaultTtl=10, uniqueKeyPolicy=unique)
    first = {"id": "1", "pk": "a", "email": "x"}
    await items.create(container, first, ItemOptions(), house.clock)
    await refused_later(items.create(container, {**first, "id": "2"}, ItemOptions(), house.clock), kind=Kind.CONFLICT)
    house.clock.advance(11)
    await items.create(container, {**first, "id": "2"}, ItemOptions(), house.clock)
    await items.create(container, {"id": "1", "pk": "a", "email": "y"}, ItemOptions(), house.clock)
    assert container.partitions[0].head.item_count == 2


async def test_a_batch_is_all_or_nothing_and_shows_its_own_writes(house: House) -> None:
    container = await house.create()
    members = [
        Member(Verb.CREATE, document={"id": "1", "pk": "a", "n": 1}),
        Member(Verb.READ, "1"),
        Member(Verb.CREATE, document={"id": "1", "pk": "a"}),
    ]
    answer = await items.batch(container, Key(("a",)), members, ItemOptions(), house.clock)
    assert not answer.is_done
    kinds = [member.kind for member in answer.members if isinstance(member, Failure)]
    assert kinds == [Kind.FAILED_DEPENDENCY, Kind.FAILED_DEPENDENCY, Kind.CONFLICT]
    await refused_later(items.read(container, "1", ItemOptions(key=Key(("a",)))), kind=Kind.NOT_FOUND)
    answer = await items.batch(container, Key(("a",)), members[:2], ItemOptions(), house.clock)
    assert answer.is_done
    assert (await items.read(container, "1", ItemOptions(key=Key(("a",))))).result is Result.READ


async def test_a_member_with_another_key_fails_the_batch(house: House) -> None:
    container = await house.create()
    members = [Member(Verb.CREATE, document={"id": "1", "pk": "b"})]
    answer = await items.batch(container, Key(("a",)), members, ItemOptions(), house.clock)
    assert [member.kind for member in answer.members if isinstance(member, Failure)] == [Kind.KEY_MISMATCH]


async def test_a_full_logical_partition_refuses_growth_only(house: House) -> None:
    container = await house.create()
    text = "t" * 60_000
    for number in range(3):
        await items.create(container, {"id": str(number), "pk": "a", "t": text}, ItemOptions(), house.clock)
    grown = {"id": "3", "pk": "a", "t": text}
    await refused_later(items.create(container, grown, ItemOptions(), house.clock), kind=Kind.KEY_FULL)
    await items.create(container, {**grown, "pk": "b"}, ItemOptions(), house.clock)
    await items.replace(container, "0", {"id": "0", "pk": "a", "t": "small"}, ItemOptions(), house.clock)
    await items.create(container, grown, ItemOptions(), house.clock)


async def test_numbers_and_lsns_go_on_after_reopening(house: House) -> None:
    container = await house.create()
    first = await items.create(container, {"id": "1", "pk": "a"}, ItemOptions(), house.clock)
    await items.delete(container, "1", ItemOptions(key=Key(("a",))))
    again = await Account.open(house.engine, house.clock)
    reopened = again.container("db", "c")
    second = await items.create(reopened, {"id": "1", "pk": "a"}, ItemOptions(), house.clock)
    await again.close()
    assert second.lsn == first.lsn + 2
    assert first.payload is not None and second.payload is not None
    assert orjson.loads(first.payload)["_rid"] != orjson.loads(second.payload)["_rid"]


async def test_deleting_a_database_empties_its_stores(house: House) -> None:
    container = await house.create()
    await items.create(container, {"id": "1", "pk": "a"}, ItemOptions(), house.clock)
    store = house.engine.store(container.map.ranges[0].store)
    await containers.delete_database(house.account, house.account.database("db"), None)
    assert await store.read(lambda view: list(view.scan(b"", b"\xff"))) == []
    assert house.account.catalog.of_type(ResourceType.OFFER) == []
    refused(lambda: house.account.owner_container("db", "c"), kind=Kind.OWNER_NOT_FOUND)


async def test_a_new_indexing_policy_reaches_stored_items(house: House) -> None:
    container = await house.create(throughput_ru=30_000)
    for number in range(500):
        await items.create(container, {"id": str(number), "pk": number, "a": number}, ItemOptions(), house.clock)
    policy = {"includedPaths": [{"path": "/b/?"}], "excludedPaths": [{"path": "/*"}]}
    body = {**container.record.body, "indexingPolicy": policy, "defaultTtl": 1000}
    await containers.replace_container(house.account, container, body, None)
    await items.create(container, {"id": "new", "pk": 1, "b": 1}, ItemOptions(), house.clock)
    assert await house.problems() == []  # half way, too
    await until(lambda: not container.is_restating, "all items follow the policy")
    assert await house.problems() == []


async def test_throughput_decides_the_number_of_partitions(house: House) -> None:
    counts = {400: 1, 6000: 1, 6100: 2, 11_000: 2, 12_000: 2, 30_000: 5}
    assert {ru: Throughput.manual(ru).partition_count(10_000) for ru in counts} == counts
    container = await house.create(throughput_ru=11_000)
    assert [key_range.high.hex().upper() for key_range in container.map.ranges] == ["1" + "F" * 31, "FF"]
    offer = offers.offer_of(house.account, container.record)
    assert offer is not None
    wanted = {**offer.to_json(), "content": {"offerThroughput": 50_000}}
    await offers.replace_offer(house.account, offer, wanted, to_autoscale=False, to_manual=False, if_match=None)
    await passing(house.clock, house.account.reshaper.grown(container))
    assert len(container.partitions) == 5


DAMAGES = {
    "an item": (layout.ITEMS, "lacks|counts|change"),
    "an id": (layout.IDS, "not found by its id"),
    "a member": (layout.MEMBERS, "not a member"),
    "a term": (layout.TERMS, "lacks its index term"),
    "a change": (layout.CHANGES, "no change entry"),
    "a size": (layout.SIZES, "no size entry"),
    "the unique value": (layout.UNIQUE, "does not hold its values"),
    "the expiry": (layout.EXPIRY, "no expiry entry"),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_the_check_sees_damage(damage: str) -> None:
    house = await House.begin(MemoryEngine(), VirtualClock())
    container = await house.create(defaultTtl=100, uniqueKeyPolicy={"uniqueKeys": [{"paths": ["/u"]}]})
    for number in range(3):
        await items.create(container, {"id": str(number), "pk": "a", "u": number}, ItemOptions(), house.clock)
    space, expected = DAMAGES[damage]
    store = house.engine.store(container.map.ranges[0].store)
    pairs = await store.read(lambda view: list(view.scan(space, layout.space_end(space))))
    key, value = pairs[0]
    await store.write(lambda txn: txn.delete(key))
    assert any(word in problem for problem in await house.problems() for word in expected.split("|"))
    await store.write(lambda txn: txn.put(key, value))
    await store.write(lambda txn: txn.put(key[:-1] + bytes([key[-1] ^ 0x40]), value))
    assert await house.problems() != []
    await house.close()


async def test_a_write_that_outlives_its_container_leaves_nothing(house: House) -> None:
    container = await house.create()
    await containers.delete_container(house.account, container, None)
    work = items.create(container, {"id": "1", "pk": "a"}, ItemOptions(), house.clock)
    await refused_later(work, kind=Kind.OWNER_NOT_FOUND)
    store = house.engine.store(container.map.ranges[0].store)
    assert await store.read(lambda view: list(view.scan(b"", b"\xff"))) == []


async def test_policies_that_change_again_before_the_items_followed(house: House) -> None:
    container = await house.create(throughput_ru=30_000)
    for number in range(300):
        await items.create(container, {"id": str(number), "pk": number, "a": 1}, ItemOptions(), house.clock)
    for turn in range(12):
        policy = {"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": f"/p{turn}/?"}]}
        body = {**container.record.body, "indexingPolicy": policy, "defaultTtl": 1000 + turn}
        await containers.replace_container(house.account, container, body, None)
        for _ in range(turn):
            await asyncio.sleep(0)
    await until(lambda: not container.is_restating, "all items follow the policy")
    stored = house.account.catalog.find(ResourceType.CONTAINER, container.database.rid, "c")
    assert stored is not None
    assert stored.container_state.rules_number == container.schema.rules.number == 13
    assert stored.body["defaultTtl"] == 1011
