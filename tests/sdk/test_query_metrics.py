"""What queries took, which indexes they used and what could be better about them, as the clients show it."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos import PartitionKey
from sdk.clients import everything

METRICS = "x-ms-documentdb-query-metrics"
INDEXES = "x-ms-cosmos-index-utilization"
ADVICE = "x-ms-cosmos-query-advice"


@pytest.fixture(params=[400, 20_000])
async def filled(request: pytest.FixtureRequest, database: Any) -> Any:
    """Ten items of two keys, in one partition or in four."""
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=request.param)
    for number in range(10):
        await container.create_item({"id": f"{number}", "pk": "a" if number % 2 else "b", "n": number})
    return container


async def ask(container: Any, text: str, **options: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """The rows, and the headers of each answer."""
    seen: list[dict[str, Any]] = []
    paged = container.query_items(text, response_hook=lambda headers, _: seen.append(dict(headers)), **options)
    return await everything(paged), seen


def pairs(header: str) -> dict[str, str]:
    return dict(piece.split("=", 1) for piece in header.split(";"))


async def test_query_metrics(filled: Any) -> None:
    rows, answers = await ask(filled, "SELECT * FROM c WHERE c.n < 4", populate_query_metrics=True)
    assert len(rows) == 4
    pages = [pairs(answer[METRICS]) for answer in answers]
    for name in ("retrievedDocumentCount", "outputDocumentCount"):
        assert sum(int(page[name]) for page in pages) == 4
    assert all(float(page["totalExecutionTimeInMs"]) > 0 and page["indexUtilizationRatio"] == "1.00" for page in pages)
    for answer in answers:
        parts = pairs(answer["x-armillary-charge-details"])
        assert sum(map(float, parts.values())) == pytest.approx(float(answer["x-ms-request-charge"]), abs=0.01)


async def test_a_count_in_a_logical_partition_retrieves_nothing(filled: Any) -> None:
    rows, answers = await ask(filled, "SELECT VALUE COUNT(1) FROM c", partition_key="a", populate_query_metrics=True)
    metrics = pairs(answers[-1][METRICS])
    assert rows == [5] and float(answers[-1]["x-ms-request-charge"]) < 20
    assert (metrics["retrievedDocumentCount"], metrics["retrievedDocumentSize"]) == ("0", "0")
    assert float(metrics["indexUtilizationRatio"]) == 1


async def test_index_metrics(filled: Any) -> None:
    _, answers = await ask(filled, "SELECT * FROM c", partition_key="a", populate_index_metrics=True)
    found = answers[-1][INDEXES]
    assert [each["IndexSpec"] for each in found["UtilizedSingleIndexes"]] == ["/pk/?"]
    assert found["PotentialSingleIndexes"] == found["UtilizedCompositeIndexes"] == []
    _, answers = await ask(
        filled, "SELECT * FROM c WHERE c.n > 2 AND c.m = 1", partition_key="a", populate_index_metrics=True
    )
    assert answers[-1][INDEXES]["PotentialCompositeIndexes"][0]["IndexSpecs"] == ["/m ASC", "/n ASC"]


async def test_query_advice(filled: Any) -> None:
    text = "SELECT * FROM c WHERE CONTAINS(c.id, 'x') AND c.ts < GetCurrentTimestamp()"
    _, answers = await ask(filled, text, partition_key="a", populate_query_advice=True)
    assert "QA1002" in answers[-1][ADVICE] and "QA1009" in answers[-1][ADVICE]
    assert "consider using STARTSWITH" in answers[-1][ADVICE]
    _, answers = await ask(filled, "SELECT * FROM c", partition_key="a")
    assert not answers[-1].keys() & {METRICS, INDEXES, ADVICE}
