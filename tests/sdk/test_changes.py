"""The change feed, in both modes: from every start, in every scope, and going on where another reader stopped."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from sdk.clients import everything, refused
from support.process import ServerProcess


async def ids_of(container: Any, **options: Any) -> list[str]:
    return [each["id"] for each in await everything(container.query_items_change_feed(**options))]


async def read_on(container: Any, **options: Any) -> tuple[list[str], str]:
    """All there is now, and the token to go on with."""
    found = await ids_of(container, **options)
    return found, container.client_connection.last_response_headers["etag"]


@pytest.fixture(params=[400, 20_000])
async def many(request: pytest.FixtureRequest, database: Any) -> Any:
    """A container over one partition, or over four."""
    return await database.create_container("c", PartitionKey("/pk"), offer_throughput=request.param)


async def test_from_the_beginning(many: Any) -> None:
    for number in range(10):
        await many.create_item({"id": str(number), "pk": number, "n": 0})
    await many.replace_item("3", {"id": "3", "pk": 3, "n": 1})
    await many.upsert_item({"id": "4", "pk": 4, "n": 1})
    await many.patch_item("5", 5, [{"op": "incr", "path": "/n", "value": 1}])
    await many.delete_item("6", 6)
    for size in (1, 3, 100):
        options = {"start_time": "Beginning", "max_item_count": size}
        found = await everything(many.query_items_change_feed(**options))
        assert sorted(each["id"] for each in found) == [*"012345789"]
        assert {each["id"] for each in found if each["n"]} == {"3", "4", "5"}
    stored = await many.read_item("3", 3)
    changed = next(each for each in found if each["id"] == "3")
    assert {name: value for name, value in changed.items() if name != "_lsn"} == stored
    assert isinstance(changed["_lsn"], int)


async def test_order_of_writing(container: Any) -> None:
    for name in "abcd":
        await container.create_item({"id": name, "pk": name})
    await container.replace_item("b", {"id": "b", "pk": "b"})
    found = await everything(container.query_items_change_feed(start_time="Beginning"))
    assert [each["id"] for each in found] == [*"acdb"]
    lsns = [each["_lsn"] for each in found]
    assert lsns == sorted(lsns)


async def test_from_now_on(many: Any) -> None:
    for number in range(5):
        await many.create_item({"id": f"old{number}", "pk": number})
    found, token = await read_on(many)
    assert found == []
    for number in range(5):
        await many.create_item({"id": str(number), "pk": number})
    found, token = await read_on(many, continuation=token)
    assert sorted(found) == [*"01234"]
    found, token = await read_on(many, continuation=token)
    assert found == []
    await many.upsert_item({"id": "old1", "pk": 1})
    assert await ids_of(many, continuation=token) == ["old1"]


async def test_from_a_time_on(many: Any) -> None:
    made = [await many.create_item({"id": str(number), "pk": number}) for number in range(5)]
    latest = datetime.fromtimestamp(made[-1]["_ts"], UTC)
    assert set(await ids_of(many, start_time=latest)) >= {"4"}
    assert sorted(await ids_of(many, start_time=latest - timedelta(minutes=5))) == [*"01234"]
    assert await ids_of(many, start_time=latest + timedelta(minutes=5)) == []
    assert sorted(await ids_of(many, start_time=latest - timedelta(minutes=5), max_item_count=1)) == [*"01234"]


async def test_of_one_key(many: Any) -> None:
    for number in range(12):
        await many.create_item({"id": str(number), "pk": number % 3})
    assert await ids_of(many, start_time="Beginning", partition_key=1) == ["1", "4", "7", "10"]
    found, token = await read_on(many, start_time="Beginning", partition_key=2, max_item_count=2)
    assert found == ["2", "5", "8", "11"]
    await many.create_item({"id": "more", "pk": 2})
    await many.create_item({"id": "other", "pk": 1})
    assert await ids_of(many, continuation=token) == ["more"]
    assert await ids_of(many, start_time="Beginning", partition_key="none of it") == []


async def test_of_hierarchical_keys(database: Any) -> None:
    key = PartitionKey(["/tenant", "/user"], kind="MultiHash")
    container = await database.create_container("c", key, offer_throughput=20_000)
    for number in range(12):
        await container.create_item({"id": str(number), "tenant": f"t{number % 2}", "user": f"u{number % 3}"})
    assert await ids_of(container, start_time="Beginning", partition_key=["t1", "u0"]) == ["3", "9"]
    of_tenant = await ids_of(container, start_time="Beginning", partition_key=["t0"])
    assert of_tenant == ["0", "2", "4", "6", "8", "10"]


async def test_of_feed_ranges(many: Any) -> None:
    ranges = await everything(many.read_feed_ranges())
    for number in range(20):
        await many.create_item({"id": str(number), "pk": number})
    found, tokens = [], []
    for feed_range in ranges:
        part, token = await read_on(many, start_time="Beginning", feed_range=feed_range, max_item_count=3)
        found += part
        tokens.append(token)
    assert sorted(found) == sorted(map(str, range(20)))
    for number in range(20):
        await many.upsert_item({"id": str(number), "pk": number})
    again = [name for token in tokens for name in await ids_of(many, continuation=token)]
    assert sorted(again) == sorted(map(str, range(20)))
    of_key = await many.feed_range_from_partition_key(7)
    assert await ids_of(many, start_time="Beginning", feed_range=of_key) == ["7"]


async def test_with_bare_positions(many: Any) -> None:
    """Named a range's id, the clients leave it out of the request: they ask for the whole container, and their token is
    the server's own etag."""
    options: dict[str, Any] = {"partition_key_range_id": "0", "max_item_count": 3}
    for number in range(10):
        await many.create_item({"id": str(number), "pk": number})
    found, token = await read_on(many, is_start_from_beginning=True, **options)
    assert sorted(found) == [*"0123456789"]
    await many.upsert_item({"id": "3", "pk": 3})
    found, token = await read_on(many, continuation=token, **options)
    assert found == ["3"]
    assert await ids_of(many, continuation=token, **options) == []
    with refused(400, 0, "ahead"):
        await ids_of(many, continuation='"999999999"', **options)


async def test_batches_are_whole(container: Any) -> None:
    await container.create_item({"id": "before", "pk": "a"})
    await container.execute_item_batch([("create", ({"id": f"b{n}", "pk": "a"},)) for n in range(7)], "a")
    await container.create_item({"id": "after", "pk": "a"})
    pages = []
    feed = container.query_items_change_feed(start_time="Beginning", max_item_count=2)
    async for page in feed.by_page():
        pages.append([each["id"] async for each in page])
    assert [len(page) for page in pages if page] == [1, 7, 1]


async def test_expired_items_are_gone(database: Any) -> None:
    container = await database.create_container("c", PartitionKey("/pk"), default_ttl=-1)
    await container.create_item({"id": "brief", "pk": "a", "ttl": 1})
    await container.create_item({"id": "lasting", "pk": "a"})
    while await ids_of(container, start_time="Beginning") != ["lasting"]:
        pass


async def test_charges(container: Any) -> None:
    charges: list[float] = []
    options = {
        "start_time": "Beginning",
        "response_hook": lambda headers, _: charges.append(float(headers["x-ms-request-charge"])),
    }
    for number in range(4):
        await container.create_item({"id": str(number), "pk": number})
    await everything(container.query_items_change_feed(**options))
    assert charges == [4.0, 1.0]


@pytest.mark.parametrize("size", [2, 100])
async def test_over_a_split(container: Any, size: int) -> None:
    """Positions of before it go on in both children: of the container, of its one feed range, of a key."""
    for number in range(20):
        await container.create_item({"id": str(number), "pk": number})
    feed_range = (await everything(container.read_feed_ranges()))[0]
    scopes: list[dict[str, Any]] = [{}, {"feed_range": feed_range}, {"partition_key": 7}]
    tokens = []
    for scope in scopes:
        pages = container.query_items_change_feed(start_time="Beginning", max_item_count=size, **scope).by_page()
        first = [each["id"] async for each in await anext(pages)]
        tokens.append((first, pages.continuation_token))
    await container.replace_throughput(11_000)
    while (await container.get_throughput()).properties["content"].get("isOfferReplacePending"):
        pass
    await container.create_item({"id": "new", "pk": 7})
    for (first, token), scope in zip(tokens, scopes, strict=True):
        rest = await ids_of(container, continuation=token, max_item_count=size)
        of_key = ["7", "new"]
        everybody = [*map(str, range(20)), "new"]
        assert sorted(first + rest) == sorted(of_key if "partition_key" in scope else everybody)
    assert len(await everything(container.read_feed_ranges(force_refresh=True))) == 2


async def test_after_a_restart(connect: Any, start_server: Callable[..., ServerProcess]) -> None:
    server = start_server()
    database = await (await connect(server.url)).create_database("db")
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=11_000)
    for number in range(10):
        await container.create_item({"id": str(number), "pk": number})
    found, token = await read_on(container, start_time="Beginning")
    assert len(found) == 10
    server.stop()
    client = await connect(start_server().url)
    container = client.get_database_client("db").get_container_client("c")
    assert await ids_of(container, continuation=token) == []
    await container.upsert_item({"id": "3", "pk": 3})
    assert await ids_of(container, continuation=token) == ["3"]


ALL_VERSIONS = "AllVersionsAndDeletes"


async def versions_of(container: Any, **options: Any) -> list[tuple[str, str, Any, Any]]:
    """What was done to which item, with a value before and after."""
    rows = await everything(container.query_items_change_feed(**options))
    told = []
    for row in rows:
        known = row["current"] or row["previous"]
        kind = row["metadata"]["operationType"]
        told.append((known["id"], kind, row.get("previous", {}).get("n"), row["current"].get("n")))
    return told


@pytest.fixture(params=[400, 20_000])
async def kept(request: pytest.FixtureRequest, database: Any) -> Any:
    """The same, where all versions are kept."""
    policy = {"retentionDuration": 10}
    return await database.create_container(
        "c", PartitionKey("/pk"), offer_throughput=request.param, change_feed_policy=policy, default_ttl=-1
    )


async def test_all_versions(kept: Any) -> None:
    found, token = await read_on(kept, mode=ALL_VERSIONS)
    assert found == []
    for number in range(4):
        await kept.create_item({"id": str(number), "pk": number, "n": 0})
    await kept.replace_item("1", {"id": "1", "pk": 1, "n": 1})
    await kept.patch_item("1", 1, [{"op": "incr", "path": "/n", "value": 1}])
    await kept.delete_item("1", 1)
    await kept.create_item({"id": "1", "pk": 1, "n": 5})
    for size in (1, 100):
        told = await versions_of(kept, continuation=token, max_item_count=size)
        assert [each[1:] for each in told if each[0] == "1"] == [
            ("create", None, 0),
            ("replace", 0, 1),
            ("replace", 1, 2),
            ("delete", 2, None),
            ("create", None, 5),
        ]
        assert sorted(each[0] for each in told) == ["0", *["1"] * 5, "2", "3"]


async def test_all_versions_of_a_key_and_a_range(kept: Any) -> None:
    scopes: list[dict[str, Any]] = [{"partition_key": 7}]
    scopes += [{"feed_range": each} for each in await everything(kept.read_feed_ranges())]
    tokens = [(await read_on(kept, mode=ALL_VERSIONS, **scope))[1] for scope in scopes]
    for number in range(10):
        await kept.create_item({"id": str(number), "pk": number, "n": 0})
    await kept.delete_item("7", 7)
    of_key, *of_ranges = [await versions_of(kept, continuation=token) for token in tokens]
    assert of_key == [("7", "create", None, 0), ("7", "delete", 0, None)]
    assert sum(map(len, of_ranges)) == 11


async def test_expiry_is_marked(kept: Any) -> None:
    _, token = await read_on(kept, mode=ALL_VERSIONS)
    await kept.create_item({"id": "1", "pk": "a", "ttl": 1})
    await kept.create_item({"id": "2", "pk": "a"})
    while len(await versions_of(kept, continuation=token)) < 3:
        pass
    rows = await everything(kept.query_items_change_feed(continuation=token))
    metadata = rows[-1]["metadata"]
    assert (metadata["operationType"], metadata["timeToLiveExpired"], metadata["id"]) == ("delete", True, "1")
    assert rows[-1]["previous"]["ttl"] == 1


async def test_all_versions_need_a_policy(container: Any) -> None:
    with refused(400, text="must be enabled"):
        await everything(container.query_items_change_feed(mode=ALL_VERSIONS))
