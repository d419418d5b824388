"""The queries that this server has so far: all items, by id, equality and ranges on a path, parameters."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos import PartitionKey
from sdk.clients import everything, one_page, pages_of, refused


@pytest.fixture(params=[400, 20_000])
async def filled(request: pytest.FixtureRequest, database: Any) -> Any:
    """20 items, in one partition or in four."""
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=request.param)
    for number in range(20):
        await container.create_item(
            {
                "id": f"{number:02}",
                "pk": f"key {number % 5}",
                "n": number,
                "even": number % 2 == 0,
                "deep": {"list": [number, str(number)], "text": "x" * number},
            },
            no_response=True,
        )
    return container


CASES: list[tuple[str, dict[str, Any], list[int]]] = [
    ("SELECT * FROM c", {}, list(range(20))),
    ("SELECT * FROM root r", {}, list(range(20))),
    ("SELECT * FROM c WHERE c.id = @id", {"@id": "07"}, [7]),
    ("SELECT * FROM c WHERE c.id = '07'", {}, [7]),
    ('SELECT * FROM c WHERE c["id"] = "07"', {}, [7]),
    ("SELECT * FROM c WHERE c.n = @n", {"@n": 3}, [3]),
    ("SELECT * FROM c WHERE c.n = @n", {"@n": 3.0}, [3]),
    ("SELECT * FROM c WHERE c.n = '3'", {}, []),
    ("SELECT * FROM c WHERE c.n > 16", {}, [17, 18, 19]),
    ("SELECT * FROM c WHERE c.n >= 17 AND c.n < 19", {}, [17, 18]),
    ("SELECT * FROM c WHERE c.n <= @top", {"@top": 1}, [0, 1]),
    ("SELECT * FROM c WHERE c.even = true AND c.n > 15", {}, [16, 18]),
    ("SELECT * FROM c WHERE c.pk = 'key 2'", {}, [2, 7, 12, 17]),
    ("SELECT * FROM c WHERE c.pk = @pk AND c.n = 7", {"@pk": "key 2"}, [7]),
    ("SELECT * FROM c WHERE c.deep.text = @text", {"@text": "xxx"}, [3]),
    ("SELECT * FROM c WHERE c.n IN (1, 2, 99)", {}, [1, 2]),
    ("SELECT * FROM c WHERE c.n = 1 OR c.n = 18", {}, [1, 18]),
    ("SELECT * FROM c WHERE NOT (c.n < 18)", {}, [18, 19]),
    ("SELECT * FROM c WHERE c.missing = 1", {}, []),
    ("SELECT * FROM c WHERE IS_DEFINED(c.missing)", {}, []),
]


@pytest.mark.parametrize(("query", "parameters", "expected"), CASES)
async def test_filters(filled: Any, query: str, parameters: dict[str, Any], expected: list[int]) -> None:
    given = [{"name": name, "value": value} for name, value in parameters.items()]
    found = await everything(filled.query_items(query, parameters=given))
    assert sorted(each["n"] for each in found) == expected


async def test_projections(filled: Any) -> None:
    found = await everything(filled.query_items("SELECT VALUE c.n FROM c WHERE c.n < 3"))
    assert sorted(found) == [0, 1, 2]
    found = await everything(filled.query_items("SELECT c.id, c.deep.list[0] AS first FROM c WHERE c.n = 4"))
    assert found == [{"id": "04", "first": 4}]
    found = await everything(filled.query_items("SELECT VALUE {'a': c.n, 'gone': c.missing} FROM c WHERE c.n = 4"))
    assert found == [{"a": 4}]


async def test_within_one_partition_key(filled: Any) -> None:
    query = "SELECT VALUE c.n FROM c WHERE c.n > 5"
    assert await everything(filled.query_items(query, partition_key="key 3")) == [8, 13, 18]
    assert await everything(filled.query_items(query, partition_key="nobody")) == []


@pytest.mark.parametrize("size", [1, 3, 20])
async def test_pages(filled: Any, size: int) -> None:
    pages = await pages_of(filled.query_items("SELECT * FROM c WHERE c.n >= 4", max_item_count=size))
    assert all(len(page) <= size for page in pages)
    assert sorted(each["n"] for page in pages for each in page) == list(range(4, 20))


async def test_continuation(filled: Any) -> None:
    query = "SELECT * FROM c WHERE c.n >= 0"
    found: list[int] = []
    token = None
    for _ in range(30):
        items, token = await one_page(filled.query_items(query, max_item_count=3, partition_key="key 1"), token)
        found += [each["n"] for each in items]
        if not token:
            break
    assert found == [1, 6, 11, 16]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT",
        "SELECT * FROM c WHERE",
        "FROM c",
        "SELECT * FROM c WHERE c.n = @missing",
        "",
        "SELECT * FROM c WHERE (c.n",
    ],
)
async def test_what_is_not_a_query(filled: Any, query: str) -> None:
    with refused(400):
        await everything(filled.query_items(query, partition_key="key 1"))


async def test_a_query_over_partitions_must_be_wanted(filled: Any, flavour: str) -> None:
    if flavour == "aio":
        pytest.skip("the asynchronous client always wants it")
    query = "SELECT * FROM c WHERE c.n = 1"
    with refused(400, text="Cross partition query is required but disabled"):
        await everything(filled.query_items(query, enable_cross_partition_query=False))
    pinned = "SELECT * FROM c WHERE c.pk = 'key 1' AND c.n = 1"
    assert len(await everything(filled.query_items(pinned, enable_cross_partition_query=False))) == 1
