"""Expired items leave in bulk: with the keys that their terms have, leaving what any delete leaves, and for little work
an item. Work is counted as calls of functions, which no other program on the machine changes."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
from support.house import House

from armillary import limits
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions, Member
from armillary.model import layout
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.key_values import Key
from armillary.partition.check import check_partition
from armillary.partition.history import log
from armillary.partition.operations import Verb
from armillary.partition.partition import Partition
from armillary.partition.upkeep.ttl_sweep import sweep_expired
from armillary.storage.engine import View

CALLS_MAX = 200  # to sweep one small item, storage in memory included: 176; 259 when it was deleted as a client deletes

POLICIES: dict[str, dict[str, Any]] = {
    "default": {},
    "paths": {
        "indexingPolicy": {
            "includedPaths": [{"path": "/a/*"}, {"path": "/b/[]/?"}, {"path": "/absent/?"}],
            "excludedPaths": [{"path": "/*"}, {"path": "/a/c/?"}],
        }
    },
    "composite": {
        "indexingPolicy": {"compositeIndexes": [[{"path": "/n"}, {"path": "/text", "order": "descending"}]]},
    },
    "unique": {"uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/n"]}]}},
}


def random_value(dice: random.Random, depth: int = 3) -> Any:
    kind = dice.randrange(9 if depth else 6)
    if kind == 0:
        return dice.choice([None, True, False])
    if kind == 1:
        return dice.choice([0, -0.0, 0.5, -3.25, 1e300, 7, -7, 2**53, 2**53 + 1, 2**63])
    if kind <= 5:
        text = dice.choice(["", "plain", "ünï", "nul\x00", "one\x01", "x" * 126, "y" * 127, "é" * 70, "tab\t", "\x7f"])
        return text + dice.choice(["", "", str(dice.randrange(5))])
    if kind == 6:
        return [random_value(dice, depth - 1) for _ in range(dice.randrange(4))]
    return {dice.choice("abcd/\"'"): random_value(dice, depth - 1) for _ in range(dice.randrange(4))}


def document(dice: random.Random, number: int) -> dict[str, Any]:
    more = {name: random_value(dice) for name in "abc" if dice.random() < 0.8}
    return {"id": f"{number}", "pk": "x", "n": number, "text": "t" * dice.choice([0, 10, 300, 5_000]), **more}


@pytest.mark.parametrize("name", ["default", "paths"])
def test_keys_are_those_of_the_terms(name: str) -> None:
    dice = random.Random(13)
    given: Any = POLICIES[name].get("indexingPolicy")
    if name == "paths":
        given = {**given, "includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/a/c/?"}, {"path": "/b/*"}]}
    policy = IndexingPolicy.parse(given, key_definition=None, has_ttl=True)
    rid = (77).to_bytes(layout.RID_BYTES, "big")

    class Prefixes(dict[str, bytes]):
        def __missing__(self, path: str) -> bytes:
            return path.encode() + b"\xfe"

    for number in range(500):
        given = document(dice, number)
        keys = policy.term_keys(given, 1_700_000_000, Prefixes(), rid)
        terms = policy.terms(given, 1_700_000_000).terms
        assert keys is not None
        assert set(keys) == {path.encode() + b"\xfe" + term + rid for path, term in terms}, given


def test_policies_that_ask_for_more_are_not_walked_only() -> None:
    policy = IndexingPolicy.parse(POLICIES["composite"]["indexingPolicy"], key_definition=None, has_ttl=True)
    assert policy.term_keys({"id": "1"}, 1, {}, bytes(8)) is None


def the_partition(container: Container) -> Partition:
    (partition,) = container.partitions.values()
    return partition


async def fill(house: House, container: Container, documents: list[dict[str, Any]]) -> None:
    for first in range(0, len(documents), limits.BATCH_OPERATIONS_MAX):
        part = documents[first : first + limits.BATCH_OPERATIONS_MAX]
        members = [Member(Verb.CREATE, item_id=each["id"], document=dict(each)) for each in part]
        assert (await items.batch(container, Key(("x",)), members, ItemOptions(), house.clock)).is_done


def everything(view: View) -> list[tuple[bytes, Any]]:
    """All that a store holds; of tombstones what does not tell how and when the item went."""
    found: list[tuple[bytes, Any]] = []
    for key, value in view.scan(b"\x00", b"\xff"):
        if key[:1] == layout.CHANGES and value != log.WRITTEN:
            change = log.unpack_change(key, value)
            found.append((key, (change.rid, change.epk, change.item_id)))
        else:
            found.append((key, value))
    return found


@pytest.mark.parametrize("name", POLICIES)
async def test_a_sweep_leaves_what_deletes_leave(name: str) -> None:
    dice = random.Random(7)
    documents = [{**document(dice, number), "ttl": -1 if number % 3 == 0 else 60} for number in range(90)]
    left: list[list[tuple[bytes, Any]]] = []
    for is_swept in (True, False):
        house = await House.open()
        container = await house.container(defaultTtl=-1, **POLICIES[name])
        await fill(house, container, documents)
        partition = the_partition(container)
        if is_swept:
            house.clock.advance(100)
            assert await sweep_expired(partition, house.clock.now_s()) == 60
        else:
            members = [Member(Verb.DELETE, item_id=each["id"]) for each in documents if each["ttl"] == 60]
            assert (await items.batch(container, Key(("x",)), members, ItemOptions(), house.clock)).is_done
        schema, key_range = container.schema, partition.range
        assert await partition.read(lambda view: list(check_partition(view, schema, key_range))) == []  # noqa: B023
        assert partition.head.item_count == 30
        left.append(await partition.read(everything))
        await house.close()
    assert left[0] == left[1]


async def test_small_items_are_swept_with_little_work() -> None:
    house = await House.open()
    container = await house.container(defaultTtl=-1)
    documents = [
        {"id": f"{n}", "pk": "x", "ttl": 60, "name": f"item {n}", "price": n * 1.5, "at": {"city": "c", "zip": n}}
        for n in range(400)
    ]
    await fill(house, container, documents)
    house.clock.advance(100)
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        swept = await sweep_expired(the_partition(container), house.clock.now_s())
    finally:
        sys.setprofile(None)
    assert swept == 400
    print(f"{calls / 400:.0f} calls an item")
    assert calls / 400 < CALLS_MAX
    await house.close()
