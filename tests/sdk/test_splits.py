"""Partitions that split and merge while released clients are at work: they notice nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError
from sdk.clients import everything

COUNT = 120


@pytest.fixture
async def filled(database: Any) -> Any:
    """120 items over 40 keys in one partition, known to the client as such."""
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=400)
    for number in range(COUNT):
        await container.create_item({"id": str(number), "pk": number % 40, "n": number, "even": number % 2 == 0})
    assert len(await everything(container.read_feed_ranges())) == 1
    return container


async def split(container: Any, throughput: int = 11_000) -> None:
    await container.replace_throughput(throughput)
    while (await container.get_throughput()).properties["content"].get("isOfferReplacePending", False):
        pass


async def numbers(rows: Any) -> list[int]:
    return [row["n"] if isinstance(row, dict) else row async for row in rows]


async def test_ranges_after_a_split(filled: Any) -> None:
    await split(filled)
    ranges = await everything(filled.read_feed_ranges(force_refresh=True))
    assert len(ranges) == 2
    parts = [await numbers(filled.query_items("SELECT * FROM c", feed_range=each)) for each in ranges]
    assert sorted(parts[0] + parts[1]) == list(range(COUNT))
    assert all(parts)
    await split(filled, 30_000)
    assert len(await everything(filled.read_feed_ranges(force_refresh=True))) == 3


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM c",
        "SELECT * FROM c WHERE c.even = true",
        "SELECT * FROM c ORDER BY c.n DESC",
        "SELECT VALUE c.n FROM c WHERE c.n > 10 ORDER BY c.n",
        "SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n",
        "SELECT * FROM c OFFSET 20 LIMIT 60",
        "SELECT TOP 70 * FROM c ORDER BY c.n",
    ],
)
async def test_pages_go_on_over_a_split(filled: Any, text: str) -> None:
    expected = await numbers(filled.query_items(text))
    rows = filled.query_items(text, max_item_count=7)
    found: list[int] = []
    async for row in rows:
        found.append(row["n"] if isinstance(row, dict) else row)
        if len(found) == 30:
            await split(filled)
    if "ORDER" in text:
        assert found == expected
    elif "OFFSET" in text:
        assert len(found) == len(set(found)) == len(expected)
    else:
        assert sorted(found) == sorted(expected)


async def test_an_old_map_gives_no_row_twice(database: Any) -> None:
    """The client adds some ranges to a query twice when it goes by an old map. The answer that asks for a plan names
    a range that it does not know, so it gets a new map first."""
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=11_000)
    for number in range(40):
        await container.create_item({"id": str(number), "pk": number, "n": number})
    text = "SELECT * FROM c ORDER BY c.n"
    assert await numbers(container.query_items(text)) == list(range(40))
    for throughput in (25_000, 45_000):
        await split(container, throughput)
        assert await numbers(container.query_items(text)) == list(range(40))


async def test_a_continuation_of_before_a_split(filled: Any) -> None:
    for options in ({"partition_key": 7}, {"feed_range": (await everything(filled.read_feed_ranges()))[0]}):
        text = "SELECT VALUE c.n FROM c"
        expected = await numbers(filled.query_items(text, **options))
        pages = filled.query_items(text, max_item_count=2, **options).by_page()
        found = [row async for row in await anext(pages)]
        token = pages.continuation_token
        await split(filled)
        rest = filled.query_items(text, max_item_count=2, **options).by_page(token)
        async for page in rest:
            found += [row async for row in page]
        assert sorted(found) == sorted(expected)


async def test_reading_many_items_by_an_old_map(filled: Any) -> None:
    wanted = [(str(number), number % 40) for number in range(COUNT)]
    await split(filled)
    found = await filled.read_items(wanted)
    assert sorted(row["n"] for row in found) == list(range(COUNT))


async def test_sessions_over_a_split(filled: Any, connect: Any) -> None:
    token = ""

    def remember(headers: Any, *_: Any) -> None:
        nonlocal token
        token = headers["x-ms-session-token"]

    await filled.upsert_item({"id": "1", "pk": 1, "n": -1}, response_hook=remember)
    await split(filled)
    item = await filled.read_item("1", 1, session_token=token)
    assert item["n"] == -1
    written = await filled.upsert_item({"id": "1", "pk": 1, "n": -2}, response_hook=remember)
    assert (await filled.read_item("1", 1, session_token=token))["_etag"] == written["_etag"]
    found = filled.query_items("SELECT * FROM c WHERE c.pk = 1", partition_key=1, session_token=token)
    assert -2 in await numbers(found)


async def test_etags_and_batches_over_a_split(filled: Any) -> None:
    before = await filled.read_item("3", 3)
    await split(filled)
    after = await filled.read_item("3", 3)
    assert after == before
    await filled.replace_item("3", {**after, "n": 1000}, etag=before["_etag"], match_condition=_if_match())
    with pytest.raises(CosmosHttpResponseError) as caught:
        await filled.replace_item("3", {**after, "n": 1001}, etag=before["_etag"], match_condition=_if_match())
    assert caught.value.status_code == 412
    results = await filled.execute_item_batch(
        [("create", ({"id": "new", "pk": 3, "n": 5},)), ("read", ("43",)), ("delete", ("83",))], partition_key=3
    )
    assert [each["statusCode"] for each in results] == [201, 200, 204]


def _if_match() -> Any:
    from azure.core import MatchConditions

    return MatchConditions.IfNotModified


async def test_writers_at_work_while_storage_splits(connect: Any, start_server: Any, seed: int) -> None:
    print(f"--seed {seed}")
    dice = random.Random(seed)
    server = start_server("--partition-storage", "100KB")
    client = await connect(server.url)
    database = await client.create_database("db")
    container = await database.create_container("c", PartitionKey("/pk"))
    expected = {}
    for number in range(300):
        item: dict[str, Any] = {"id": str(dice.randrange(150)), "n": number, "text": "t" * 4000}
        item["pk"] = f"key {int(item['id']) % 50}"
        await container.upsert_item(item)
        expected[item["id"]] = number
        if number % 40 == 0:
            found = container.query_items("SELECT * FROM c ORDER BY c.n")
            assert await numbers(found) == sorted(expected.values())
    assert len(await everything(container.read_feed_ranges(force_refresh=True))) >= 4
    assert {row["id"]: row["n"] async for row in container.read_all_items()} == expected


async def test_everything_is_there_after_a_restart(connect: Any, start_server: Any) -> None:
    server = start_server()
    database = await (await connect(server.url)).create_database("db")
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=400)
    for number in range(30):
        await container.create_item({"id": str(number), "pk": number, "n": number})
    await container.replace_throughput(40_000)  # and do not wait
    server.kill()
    server = start_server()
    client = await connect(server.url)
    container = client.get_database_client("db").get_container_client("c")
    while (await container.get_throughput()).properties["content"].get("isOfferReplacePending", False):
        pass
    assert len(await everything(container.read_feed_ranges())) == 4
    assert sorted(await numbers(container.read_all_items())) == list(range(30))
