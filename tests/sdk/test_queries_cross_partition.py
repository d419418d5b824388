"""Queries over five partitions that the clients plan, fan out and merge: the same rows as from a container of one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError
from sdk.clients import everything, one_page, pages_of, refused
from support.process import ServerProcess

POLICY = {
    "includedPaths": [{"path": "/*"}],
    "excludedPaths": [{"path": "/vector/*"}],
    "compositeIndexes": [
        [{"path": "/team", "order": "ascending"}, {"path": "/n", "order": "descending"}],
        [
            {"path": "/even", "order": "ascending"},
            {"path": "/team", "order": "ascending"},
            {"path": "/n", "order": "ascending"},
        ],
    ],
    "vectorIndexes": [{"path": "/vector", "type": "flat"}],
    "fullTextIndexes": [{"path": "/text"}],
}
VECTORS = {
    "vectorEmbeddings": [{"path": "/vector", "dataType": "float32", "distanceFunction": "cosine", "dimensions": 2}]
}
TEXTS = {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/text", "language": "en-US"}]}
WORDS = ["river", "mountain", "swimming", "sailor", "lighthouse", "storm", "harbour"]


def item(number: int) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": f"{number:02}",
        "pk": f"key {number}",
        "n": number * 7 % 40,
        "team": f"g{number % 3}",
        "even": number % 2 == 0,
        "tags": [number % 4, "all"],
        "ranks": [number * 3 % 40, number],
        "children": [{"grade": f"{number * 11 % 40:02}"}, {"grade": "00"}],
        "deep": {"x": number / 8},
        "vector": [math.cos(number / 10), math.sin(number / 10)],
        "text": " ".join([WORDS[number % 7]] * (1 + number % 3) + [WORDS[number % 5]] + ["calm"] * number),
    }
    if number % 10 == 0:
        del made["deep"]
    return made


ITEMS = [item(number) for number in range(40)]


@pytest.fixture(scope="module")
def filled(server: ServerProcess) -> Iterator[str]:
    """The name of a database with the same items in five partitions and in one. The tests only read."""
    with CosmosClient(server.url, server.key) as client:
        database = client.create_database("merged")
        for name, throughput in (("five", 30_000), ("one", 400)):
            container = database.create_container(
                name,
                PartitionKey("/pk"),
                offer_throughput=throughput,
                indexing_policy=POLICY,
                vector_embedding_policy=VECTORS,
                full_text_policy=TEXTS,
            )
            for each in ITEMS:
                container.create_item(each)
        assert len(list(database.get_container_client("five").read_feed_ranges())) == 5
        yield database.id
        client.delete_database(database.id)


@pytest.fixture
async def pair(client: Any, filled: str) -> tuple[Any, Any]:
    database = client.get_database_client(filled)
    return database.get_container_client("five"), database.get_container_client("one")


def plain(row: Any) -> Any:
    """Without what differs between two containers."""
    return {name: value for name, value in row.items() if not name.startswith("_")} if isinstance(row, dict) else row


ORDERED = [
    "SELECT * FROM c ORDER BY c.n",
    "SELECT * FROM c ORDER BY c.n DESC",
    "SELECT c.id, c.n AS number FROM c WHERE c.even ORDER BY c.n",
    "SELECT VALUE c.n FROM c WHERE c.n > 10 OR c.team = 'g1' ORDER BY c.n DESC",
    "SELECT VALUE c.deep.x FROM c WHERE IS_DEFINED(c.deep) ORDER BY c.deep.x",
    "SELECT VALUE c.deep.x FROM c WHERE c.n < 30 AND IS_NUMBER(c.deep.x) ORDER BY c.n",
    "SELECT c.id FROM c ORDER BY c.team ASC, c.n DESC",
    "SELECT c.id FROM c ORDER BY c.team DESC, c.n ASC",
    "SELECT c.id FROM c ORDER BY c.even, c.team, c.n",
    "SELECT c.id FROM c WHERE c.pk IN ('key 1', 'key 2', 'key 3', 'key 17', 'nobody') ORDER BY c.n",
    "SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'key 5' OR c.pk = 'key 9' OR c.pk = 'key 1'",
    "SELECT VALUE c.ranks[0] FROM c ORDER BY c.ranks[0]",
    "SELECT c.id FROM c WHERE c.n > 3 ORDER BY c.children[0].grade DESC",
    "SELECT DISTINCT TOP 5 VALUE c.ranks[0] FROM c ORDER BY c.ranks[0]",
    "SELECT TOP 7 c.id FROM c ORDER BY c.n",
    "SELECT TOP 0 c.id FROM c ORDER BY c.n",
    "SELECT TOP 7 VALUE t FROM c JOIN t IN c.tags WHERE t != 'all' ORDER BY c.n",
    "SELECT c.id FROM c ORDER BY c.n OFFSET 5 LIMIT 9",
    "SELECT c.id FROM c ORDER BY c.n DESC OFFSET 35 LIMIT 9",
    "SELECT DISTINCT VALUE c.team FROM c ORDER BY c.team",
    "SELECT DISTINCT TOP 2 VALUE c.team FROM c ORDER BY c.team DESC",
    "SELECT DISTINCT VALUE c.team FROM c ORDER BY c.team OFFSET 1 LIMIT 1",
    "SELECT VALUE COUNT(1) FROM c",
    "SELECT VALUE COUNT(c.deep) FROM c WHERE c.n < 20",
    "SELECT VALUE COUNT(1) FROM c WHERE c.n < 0",
    "SELECT VALUE COUNTIF(c.even) FROM c",
    "SELECT VALUE SUM(c.n) FROM c",
    "SELECT VALUE SUM(c.n) FROM c WHERE c.n = 7",
    "SELECT VALUE AVG(c.deep.x) FROM c",
    "SELECT VALUE AVG(c.n) FROM c WHERE c.n = 7",
    "SELECT VALUE MIN(c.n) FROM c WHERE c.n > 3",
    "SELECT VALUE MAX(c.id) FROM c",
    "SELECT TOP 10 VALUE COUNT(c.id) FROM c",
    "SELECT TOP 6 c.id, VectorDistance(c.vector, [1, 2]) AS score FROM c ORDER BY VectorDistance(c.vector, [1, 2])",
    "SELECT c.id FROM c ORDER BY VectorDistance(c.vector, [1, 3], true, {'distanceFunction': 'euclidean'}) "
    "OFFSET 2 LIMIT 5",
    "SELECT TOP 3 c.id FROM c ORDER BY VectorDistance(c.vector, [-1, 1], false, {'distanceFunction': 'dotproduct'})",
]
UNORDERED = [
    "SELECT VALUE c.id FROM c WHERE FullTextContains(c.text, 'swim')",
    "SELECT DISTINCT VALUE c.team FROM c",
    "SELECT DISTINCT c.team, c.even FROM c",
    "SELECT DISTINCT c.team, c.even FROM c ORDER BY c.team",
    "SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags",
]


@pytest.mark.parametrize("query", ORDERED)
async def test_ordered(pair: tuple[Any, Any], query: str) -> None:
    five, one = [await everything(container.query_items(query, max_item_count=4)) for container in pair]
    assert [plain(row) for row in five] == [plain(row) for row in one]
    assert five or "TOP 0" in query


@pytest.mark.parametrize("query", UNORDERED)
async def test_unordered(pair: tuple[Any, Any], query: str) -> None:
    five, one = [await everything(container.query_items(query)) for container in pair]
    assert sorted(map(str, five)) == sorted(map(str, one))
    assert five


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("SELECT TOP 9 c.id FROM c", 9),
        ("SELECT c.id FROM c OFFSET 30 LIMIT 20", 10),
        ("SELECT DISTINCT TOP 2 c.even FROM c", 2),
    ],
)
async def test_counts_without_order(pair: tuple[Any, Any], query: str, count: int) -> None:
    found = await everything(pair[0].query_items(query, max_item_count=3))
    assert len(found) == len({str(row) for row in found}) == count


async def test_parameters(pair: tuple[Any, Any]) -> None:
    query = "SELECT TOP @top c.id FROM c WHERE c.n >= @least AND c.team IN (@a, @b) ORDER BY c.n"
    given = {"@top": 4, "@least": 8, "@a": "g0", "@b": "it's"}
    parameters = [{"name": name, "value": value} for name, value in given.items()]
    five, one = [await everything(each.query_items(query, parameters=parameters)) for each in pair]
    assert five == one
    assert len(five) == 4


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_pages(pair: tuple[Any, Any], size: int) -> None:
    pages = await pages_of(pair[0].query_items("SELECT VALUE c.n FROM c ORDER BY c.n", max_item_count=size))
    assert [row for page in pages for row in page] == list(range(40))
    assert all(len(page) <= size for page in pages)


async def test_undefined_comes_first(pair: tuple[Any, Any]) -> None:
    """The clients compare heads of one type only, so each type is asked for by itself."""
    query = "SELECT VALUE c.id FROM c WHERE IS_DEFINED(c.deep.x) = false ORDER BY c.deep.x"
    assert sorted(await everything(pair[0].query_items(query))) == ["00", "10", "20", "30"]


async def test_continuation_of_a_streamed_query(pair: tuple[Any, Any]) -> None:
    found: list[str] = []
    token = None
    for _ in range(50):
        rows, token = await one_page(
            pair[0].query_items("SELECT VALUE c.id FROM c WHERE c.n >= 3", max_item_count=3), token
        )
        found += rows
        if not token:
            break
    assert sorted(found) == sorted(each["id"] for each in ITEMS if each["n"] >= 3)


async def test_feed_ranges(pair: tuple[Any, Any]) -> None:
    five = pair[0]
    found: list[int] = []
    total = 0
    async for feed_range in five.read_feed_ranges():
        numbers = await everything(five.query_items("SELECT VALUE c.n FROM c ORDER BY c.n", feed_range=feed_range))
        assert numbers == sorted(numbers)
        found += numbers
        total += sum(await everything(five.query_items("SELECT VALUE COUNT(1) FROM c", feed_range=feed_range)))
    assert sorted(found) == list(range(40))
    assert total == 40


async def test_within_one_partition_key(pair: tuple[Any, Any]) -> None:
    five = pair[0]
    grouped = "SELECT c.team, COUNT(1) AS count FROM c GROUP BY c.team"
    assert await everything(five.query_items(grouped, partition_key="key 5")) == [{"team": "g2", "count": 1}]
    ranked = "SELECT c.id FROM c ORDER BY RANK FullTextScore(c.text, 'storm')"
    assert await everything(five.query_items(ranked, partition_key="key 5")) == [{"id": "05"}]
    pinned = "SELECT c.team, COUNT(1) AS count FROM c WHERE c.pk = 'key 5' GROUP BY c.team"
    assert await everything(five.query_items(pinned)) == [{"team": "g2", "count": 1}]


@pytest.mark.parametrize(
    "rank",
    [
        "FullTextScore(c.text, 'river')",
        "FullTextScore(c.text, 'sail boat', 'lighthouse')",
        "RRF(FullTextScore(c.text, 'swim'), VectorDistance(c.vector, [0.6, 0.8]))",
        "RRF(VectorDistance(c.vector, [0.6, 0.8]), FullTextScore(c.text, 'swim'), FullTextScore(c.text, 'river'))",
        "RRF(FullTextScore(c.text, 'swim'), VectorDistance(c.vector, [0.6, 0.8]), [3, 1])",
        "RRF(VectorDistance(c.vector, [0.6, 0.8]), VectorDistance(c.vector, [0, 1]), [1, -1])",
    ],
)
async def test_rankings(pair: tuple[Any, Any], rank: str) -> None:
    query = f"SELECT TOP 5 c.id, c.text FROM c WHERE c.n < 35 ORDER BY RANK {rank}"
    five, one = [await everything(each.query_items(query)) for each in pair]
    assert five == one
    assert len(five) == 5
    [whole] = [each async for each in pair[1].read_feed_ranges()]
    assert await everything(pair[1].query_items(query, feed_range=whole)) == one, "the server ranks as the clients do"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT COUNT(1) FROM c", "NonValueAggregate"),
        ("SELECT VALUE FLOOR(AVG(c.n)) FROM c", "Compositions of aggregates"),
        ("SELECT c.team, COUNT(1) AS count FROM c GROUP BY c.team", "GroupBy"),
        ("SELECT c.id FROM c ORDER BY c.n, c.team", "composite index"),
        ("SELECT c.id FROM c ORDER BY LOWER(c.id)", "Unsupported ORDER BY clause"),
        ("SELECT TOP 1 c.id FROM c ORDER BY VectorDistance(c.vector, [1, 0]) DESC", "Specifying a sorting order"),
        ("SELECT TOP 1 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'a') ASC", "Specifying a sort order"),
    ],
)
async def test_refusals(pair: tuple[Any, Any], query: str, text: str) -> None:
    with refused(400, text=text):
        await everything(pair[0].query_items(query))


async def test_rankings_need_a_limit_everywhere(pair: tuple[Any, Any]) -> None:
    for container in pair:
        for rank in ("VectorDistance(c.vector, [1, 0])", "RANK FullTextScore(c.text, 'storm')"):
            with pytest.raises(ValueError, match="without TOP or LIMIT"):
                await everything(container.query_items(f"SELECT c.id FROM c ORDER BY {rank}"))


async def test_the_refusal_carries_the_plan(pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """For older clients, which do not ask for it."""
    seen: list[CosmosHttpResponseError] = []
    made: Any = CosmosHttpResponseError.__init__

    def watch(self: CosmosHttpResponseError, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        seen.append(self)

    monkeypatch.setattr(CosmosHttpResponseError, "__init__", watch)
    assert await everything(pair[0].query_items("SELECT VALUE COUNT(1) FROM c")) == [40]
    assert [each.sub_status for each in seen] == [1004]
    plan = json.loads(json.loads(seen[0].http_error_message)["additionalErrorInfo"])
    assert plan["queryInfo"]["aggregates"] == ["Count"]
