"""Reading everything page by page, and going on where another reader stopped."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos import PartitionKey
from sdk.clients import everything, one_page, pages_of, refused


@pytest.fixture(params=[400, 20_000])
async def filled(request: pytest.FixtureRequest, database: Any) -> Any:
    """25 items, in one partition or in four."""
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=request.param)
    for number in range(25):
        await container.create_item({"id": f"{number:02}", "pk": number}, no_response=True)
    return container


IDS = [f"{number:02}" for number in range(25)]


@pytest.mark.parametrize("size", [1, 7, 25, 100, -1])
async def test_pages(filled: Any, size: int) -> None:
    pages = await pages_of(filled.read_all_items(max_item_count=size))
    assert sorted(each["id"] for page in pages for each in page) == IDS
    if size > 0:
        assert all(len(page) <= size for page in pages)
    if size == 25 or size == 100:
        assert [len(page) for page in pages if page] in ([25], [len(page) for page in pages])


async def test_a_full_last_page_is_the_last(container: Any) -> None:
    for number in range(4):
        await container.create_item({"id": str(number), "pk": "a"})
    assert [len(page) for page in await pages_of(container.read_all_items(max_item_count=2))] == [2, 2]
    query = container.query_items("SELECT * FROM c", partition_key="a", max_item_count=2)
    assert [len(page) for page in await pages_of(query)] == [2, 2]


async def test_continuation(filled: Any, connect: Any, name: str) -> None:
    """Each page by a client of its own, which knows only the token."""
    found: list[str] = []
    token = None
    for _ in range(20):
        container = (await connect()).get_database_client(name).get_container_client("c")
        items, token = await one_page(container.read_all_items(max_item_count=4), token)
        found += [each["id"] for each in items]
        if not token:
            break
        assert token.isascii()
        assert "\n" not in token
    assert sorted(found) == IDS


async def test_what_changes_between_pages(container: Any) -> None:
    """The token is a place: what was read is not read again, what comes behind it is."""
    for number in range(6):
        await container.create_item({"id": str(number), "pk": "a"})
    items, token = await one_page(container.read_all_items(max_item_count=3))
    assert [each["id"] for each in items] == ["0", "1", "2"]
    for item_id in ("0", "2", "4"):
        await container.delete_item(item_id, "a")
    await container.create_item({"id": "new", "pk": "a"})
    rest = await pages_of(container.read_all_items(max_item_count=3), token)
    assert [each["id"] for page in rest for each in page] == ["3", "5", "new"]


@pytest.mark.parametrize("token", ["nonsense", "{}", "0", "a" * 5000, '{"a":', "-1"])
async def test_tokens_that_are_refused(container: Any, token: str) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    with refused(400):
        await one_page(container.read_all_items(max_item_count=1), token)
    with refused(400):
        await one_page(container.query_items("SELECT * FROM c", partition_key="a", max_item_count=1), token)


async def test_an_empty_container(container: Any) -> None:
    assert await everything(container.read_all_items()) == []
    assert await everything(container.query_items("SELECT * FROM c")) == []
    assert await everything(container.list_conflicts()) == []


async def test_pages_of_large_items_end_early(container: Any) -> None:
    """A page has at most 4 MB, whatever its count."""
    for number in range(6):
        await container.create_item({"id": str(number), "pk": "a", "text": "x" * 1_000_000}, no_response=True)
    pages = await pages_of(container.read_all_items(max_item_count=100))
    assert sum(len(page) for page in pages) == 6
    assert max(len(page) for page in pages) <= 4
    pages = await pages_of(container.query_items("SELECT * FROM c", partition_key="a", max_item_count=100))
    assert sum(len(page) for page in pages) == 6
    assert max(len(page) for page in pages) <= 4
