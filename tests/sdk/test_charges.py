"""Request charges as clients see them: the published figures that the formula meets exactly."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from azure.core import MatchConditions
from azure.cosmos import PartitionKey
from sdk.clients import charge_of, everything, refused

# Nothing is indexed but what the service indexes anyway, so that sizes alone count.
SIZE_ONLY = {"indexingMode": "none", "automatic": False}


def sized(size_bytes: int, stored_extra_bytes: int, **more: Any) -> dict[str, Any]:
    """An item that is stored with exactly so many bytes."""
    bare = {"id": "1", "pk": "a", **more, "text": ""}
    return {**bare, "text": "x" * (size_bytes - len(orjson.dumps(bare)) - stored_extra_bytes)}


@pytest.fixture
async def plain(database: Any) -> Any:
    return await database.create_container("plain", PartitionKey("/pk"), indexing_policy=SIZE_ONLY)


async def _extra_bytes(container: Any) -> int:
    """What the server adds to an item: measured on one."""
    probe = {"id": "1", "pk": "a"}
    stored = await container.create_item(probe)
    await container.delete_item("1", "a")
    return len(orjson.dumps(dict(stored))) - len(orjson.dumps(probe))


@pytest.mark.parametrize(
    ("size_kb", "read_ru", "write_ru"),
    [
        (1, 1.00, 5.00),
        (2, 1.04, 6.29),
        (4, 1.14, 6.67),
        (8, 1.33, 7.04),
        (64, 4.76, 22.67),
        (100, 10.0, 49.0),
        (1024, 145.9, 625.0),
    ],
)
async def test_by_size(plain: Any, size_kb: int, read_ru: float, write_ru: float) -> None:
    document = sized(size_kb * 1024, await _extra_bytes(plain))
    created = await plain.create_item(document)
    assert len(orjson.dumps(dict(created))) == size_kb * 1024
    assert charge_of(created) == pytest.approx(write_ru, abs=0.011)
    assert charge_of(await plain.read_item("1", "a")) == pytest.approx(read_ru, abs=0.011)


async def test_small_items_cost_the_least(plain: Any) -> None:
    created = await plain.create_item({"id": "1", "pk": "a"})
    assert charge_of(created) == 5
    assert created.get_response_headers()["x-ms-request-charge"] == "5"
    assert charge_of(await plain.read_item("1", "a")) == 1


async def test_terms_cost(container: Any) -> None:
    """Ten indexed values: 5 + 0.2 * 10; delete the same; two values changed: 10.8; by a patch of two: 11.6."""
    # What every item has indexed (the id, the key) is charged too; the published figures leave it out.
    always = charge_of(await container.create_item({"id": "0", "pk": "a"})) - 5
    document = {"id": "1", "pk": "a"} | {f"p{n}": n for n in range(10)}
    created = charge_of(await container.create_item(document))
    assert created == pytest.approx(7 + always)
    assert charge_of(await container.replace_item("1", {**document, "p0": 60, "p1": 60})) == pytest.approx(10.8)
    operations = [{"op": "set", "path": "/p0", "value": 70}, {"op": "set", "path": "/p1", "value": 70}]
    assert charge_of(await container.patch_item("1", "a", operations)) == pytest.approx(11.6)
    assert charge_of(await container.upsert_item({**document, "p0": 80, "p1": 80})) == pytest.approx(10.8)


async def test_the_more_is_indexed_the_more_it_costs(database: Any, container: Any) -> None:
    plain = await database.create_container("plain", PartitionKey("/pk"), indexing_policy=SIZE_ONLY)
    document = {"id": "1", "pk": "a"} | {f"p{n}": n for n in range(50)}
    assert charge_of(await plain.create_item(document)) == 5
    many = charge_of(await container.create_item(document))
    few = charge_of(await container.create_item({"id": "2", "pk": "a"}))
    assert many - few == pytest.approx(0.2 * 50)
    seen: list[Any] = []
    await container.delete_item("1", "a", response_hook=lambda headers, _: seen.append(headers))
    assert float(seen[0]["x-ms-request-charge"]) == pytest.approx(many)


async def test_failures_are_charged(container: Any) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    with refused(404) as missing:
        await container.read_item("missing", "a")
    with refused(409) as taken:
        await container.create_item({"id": "1", "pk": "a"})
    with refused(412) as changed:
        await container.replace_item(
            "1", {"id": "1", "pk": "a"}, etag='"x"', match_condition=MatchConditions.IfNotModified
        )
    for caught in (missing, taken, changed):
        assert float(caught.value.headers["x-ms-request-charge"]) >= 1


async def test_feeds_and_queries(container: Any) -> None:
    for number in range(7):
        await container.create_item({"id": str(number), "pk": "a", "n": 1})
    seen: list[float] = []

    def note(headers: Any, _: Any) -> None:
        seen.append(float(headers["x-ms-request-charge"]))

    assert len(await everything(container.read_all_items())) == 7
    assert float(container.client_connection.last_response_headers["x-ms-request-charge"]) == pytest.approx(7)
    query = "SELECT * FROM c WHERE c.n = 1"
    assert len(await everything(container.query_items(query, partition_key="a", response_hook=note))) == 7
    assert seen == [pytest.approx(6.7, abs=0.3)]
    seen.clear()
    assert await everything(container.query_items("SELECT * FROM c WHERE c.n = 2", response_hook=note)) == []
    assert seen == [pytest.approx(2.5)]


async def test_every_answer_has_a_charge(client: Any, database: Any, container: Any) -> None:
    for answer in (await database.read(), await container.read()):
        assert 0 < charge_of(answer) <= 2
    seen: list[Any] = []
    await everything(client.list_databases(response_hook=lambda headers, *_: seen.append(headers)))
    for headers in seen:
        assert float(headers["x-ms-request-charge"]) >= 1
        assert headers["x-ms-activity-id"]
