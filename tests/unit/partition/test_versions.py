"""The change feed of all versions: what each write left, how long that is kept, and when keeping begins and ends."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from support.house import KEY, House

from armillary.account import containers
from armillary.account.changes.change_feed import change_row, read_changes
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure
from armillary.model import layout
from armillary.model.key_values import Key
from armillary.partition.upkeep.ttl_sweep import sweep_expired
from armillary.partition.upkeep.upkeep import forget_versions
from armillary.storage.engine import View

POLICY = {"retentionDuration": 10}


async def versions(house: House, container: Container, position: str = "0", **options: Any) -> list[dict[str, Any]]:
    page = await read_changes(
        house.account, container, FeedOptions(continuation=position, **options), has_all_versions=True
    )
    return [orjson.loads(change_row(each, container)) for each in page.items]


def told(rows: list[dict[str, Any]]) -> list[tuple[str, Any, Any]]:
    """What was done, with the value before and after."""
    return [
        (row["metadata"]["operationType"], row.get("previous", {}).get("n"), row["current"].get("n")) for row in rows
    ]


async def replace(house: House, container: Container, **policies: Any) -> None:
    await containers.replace_container(house.account, container, {"id": "c", "partitionKey": KEY, **policies}, None)


async def entries(container: Container) -> int:
    """In both spaces."""

    def count(view: View) -> int:
        return sum(1 for _ in view.scan(layout.VERSIONS, layout.space_end(layout.IMAGES)))

    return sum([await each.read(count) for each in container.partitions.values()])


@pytest.mark.parametrize(
    ("paths", "document", "named"),
    [
        (['/"a b"'], {"a b": 1}, {"a b": 1}),
        (["/'le/vel'"], {"le/vel": "x"}, {"le/vel": "x"}),
        (["/address/zip"], {"address": {"zip": 8000}}, {"address/zip": 8000}),
        (["/tenant", '/"the user"/id'], {"tenant": "t", "the user": {"id": 5}}, {"tenant": "t", "the user/id": 5}),
        (["/tenant", "/user/id"], {"tenant": "t", "user": 1}, {"tenant": "t"}),
    ],
)
async def test_a_delete_names_the_key_of_its_item(
    paths: list[str], document: dict[str, Any], named: dict[str, Any]
) -> None:
    """Each value under its path, without the first slash and without quotes."""
    house = await House.open()
    key = {"paths": paths, "kind": "MultiHash" if len(paths) > 1 else "Hash", "version": 2}
    container = await house.container(partitionKey=key, changeFeedPolicy=POLICY)
    await house.put(container, {"id": "a", **document})
    await house.delete(container, {"id": "a", **document})
    assert (await versions(house, container))[-1]["metadata"]["partitionKey"] == named


async def test_what_each_write_left() -> None:
    house = await House.open()
    container = await house.container(changeFeedPolicy=POLICY, defaultTtl=-1)
    begun_s = int(house.clock.now_s())
    for n in (1, 2):
        await house.put(container, {"id": "a", "pk": 1, "n": n})
    await house.delete(container, {"id": "a", "pk": 1})
    await house.put(container, {"id": "b", "pk": 2, "n": 3, "ttl": 5})
    house.clock.advance(7)
    await sweep_expired(container.partitions[0], house.clock.now_s())
    rows = await versions(house, container)
    assert told(rows) == [
        ("create", None, 1),
        ("replace", 1, 2),
        ("delete", 2, None),
        ("create", None, 3),
        ("delete", 3, None),
    ]
    metadata = [row["metadata"] for row in rows]
    assert metadata[0] == {"operationType": "create", "lsn": 1, "crts": begun_s}
    assert metadata[1] == {"operationType": "replace", "lsn": 2, "crts": begun_s, "previousImageLSN": 1}
    assert rows[1]["previous"] == rows[0]["current"]
    assert metadata[2]["id"] == "a" and metadata[2]["partitionKey"] == {"pk": 1}
    assert "timeToLiveExpired" not in metadata[2]
    assert metadata[4]["timeToLiveExpired"] is True
    assert metadata[4]["crts"] == begun_s + 7
    assert [row["metadata"]["lsn"] for row in await versions(house, container, "3")] == [4, 5]
    assert told(await versions(house, container, key=(2,))) == told(rows[3:])
    await house.close()


async def test_an_item_that_is_written_twice_in_one_transaction() -> None:
    house = await House.open()
    container = await house.container(changeFeedPolicy=POLICY)
    members = [
        items.Member(items.Verb.UPSERT, None, {"id": "a", "pk": 1, "n": n}, options=ItemOptions(key=Key((1,))))
        for n in (1, 2)
    ]
    members.append(items.Member(items.Verb.DELETE, "a", options=ItemOptions(key=Key((1,)))))
    answer = await items.batch(container, Key((1,)), members, ItemOptions(key=Key((1,))), house.clock)
    assert answer.is_done
    rows = await versions(house, container, page_items=1)  # a transaction is never cut
    assert told(rows) == [("create", None, 1), ("replace", 1, 2), ("delete", 2, None)]
    assert {row["metadata"]["lsn"] for row in rows} == {1}
    await house.close()


async def test_versions_are_kept_for_a_while() -> None:
    house = await House.open()
    container = await house.container(changeFeedPolicy=POLICY)
    await house.put(container, {"id": "a", "pk": 1, "n": 1}, {"id": "a", "pk": 1, "n": 2})
    house.clock.advance(9 * 60)
    await house.put(container, {"id": "a", "pk": 1, "n": 3})
    house.clock.advance(2 * 60)
    await forget_versions(container.partitions[0], container.schema, house.clock.now_s())
    with pytest.raises(Failure, match="goes back to 2, behind the position 0"):
        await versions(house, container)
    assert told(await versions(house, container, "2")) == [("replace", 2, 3)]
    house.clock.advance(9 * 60)
    await forget_versions(container.partitions[0], container.schema, house.clock.now_s())
    assert await entries(container) == 0
    assert told(await versions(house, container, "3")) == []
    await house.reopen()
    container = house.account.container("d400", "c")
    with pytest.raises(Failure, match="goes back to 3"):
        await versions(house, container, "2")
    assert not await house.problems()
    await house.close()


async def test_keeping_begins_and_ends_with_the_policy() -> None:
    house = await House.open()
    container = await house.container()
    await house.put(container, {"id": "a", "pk": 1, "n": 1})
    with pytest.raises(Failure, match="must be enabled"):
        await versions(house, container)
    assert await entries(container) == 0
    await replace(house, container, changeFeedPolicy=POLICY)
    await house.put(container, {"id": "a", "pk": 1, "n": 2})
    with pytest.raises(Failure, match="goes back to 1"):
        await versions(house, container)
    assert told(await versions(house, container, "1")) == [("replace", 1, 2)]
    await replace(house, container, changeFeedPolicy={"retentionDuration": 20})
    assert told(await versions(house, container, "1")) == [("replace", 1, 2)]
    # Off and on: what was done between is missing, so what was kept before is of no use.
    await replace(house, container, changeFeedPolicy={"retentionDuration": 0})
    assert await entries(container) == 0
    await house.put(container, {"id": "a", "pk": 1, "n": 3})
    await replace(house, container, changeFeedPolicy=POLICY)
    await house.put(container, {"id": "a", "pk": 1, "n": 4})
    with pytest.raises(Failure, match="goes back to 3"):
        await versions(house, container, "2")
    assert told(await versions(house, container, "3")) == [("replace", 3, 4)]
    await house.reopen()
    assert told(await versions(house, house.account.container("d400", "c"), "3")) == [("replace", 3, 4)]
    assert not await house.problems()
    await house.close()


async def test_keeping_ends_during_a_split() -> None:
    house = await House.open()
    container = await house.container(changeFeedPolicy=POLICY)
    await house.put(container, *[{"id": "a", "pk": n, "n": n} for n in range(8)])
    house.account.reshaper.pause({"copied"})
    reshape = await house.account.reshaper.split(container, 0)
    while reshape.point != "copied":  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0)
    await replace(house, container)
    house.account.reshaper.pause(set())
    await house.account.reshaper.finished(reshape)
    assert len(container.partitions) == 2
    assert await entries(container) == 0
    await house.close()


async def test_a_gap_in_one_partition_is_known_to_its_children() -> None:
    """Keeping ends and begins again while a range is being split: whatever its children have is behind the gap."""
    house = await House.open()
    container = await house.container(changeFeedPolicy=POLICY)
    await house.put(container, *[{"id": "a", "pk": n, "n": n} for n in range(8)])
    house.account.reshaper.pause({"copied"})
    reshape = await house.account.reshaper.split(container, 0)
    while reshape.point != "copied":  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0)
    await replace(house, container)
    await house.put(container, {"id": "a", "pk": 0, "n": 10})
    await replace(house, container, changeFeedPolicy=POLICY)
    await house.put(container, {"id": "a", "pk": 0, "n": 11})
    house.account.reshaper.pause(set())
    await house.account.reshaper.finished(reshape)
    assert len(container.partitions) == 2
    with pytest.raises(Failure, match="goes back to 9"):
        await versions(house, container)
    assert told(await versions(house, container, "9")) == [("replace", 10, 11)]
    for partition in container.partitions.values():
        await forget_versions(partition, container.schema, house.clock.now_s())
    assert await entries(container) == 2
    assert not await house.problems()
    await house.close()
