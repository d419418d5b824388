"""Preconditions: If-Match and If-None-Match on every operation that takes them."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core import MatchConditions
from azure.cosmos.exceptions import CosmosAccessConditionFailedError
from sdk.clients import refused

UNCHANGED = MatchConditions.IfNotModified
CHANGED = MatchConditions.IfModified
PRESENT = MatchConditions.IfPresent
MISSING = MatchConditions.IfMissing


@pytest.fixture
async def first(container: Any) -> Any:
    return await container.create_item({"id": "1", "pk": "a", "n": 1})


async def test_replace(container: Any, first: Any) -> None:
    body = {"id": "1", "pk": "a", "n": 2}
    second = await container.replace_item("1", body, etag=first["_etag"], match_condition=UNCHANGED)
    assert second["_etag"] != first["_etag"]
    with refused(412, text="(PreconditionFailed)"):
        await container.replace_item("1", {**body, "n": 3}, etag=first["_etag"], match_condition=UNCHANGED)
    assert await container.read_item("1", "a") == second
    await container.replace_item("1", body, match_condition=PRESENT)
    with refused(404):
        await container.replace_item("2", {"id": "2", "pk": "a"}, etag=first["_etag"], match_condition=UNCHANGED)


async def test_delete(container: Any, first: Any) -> None:
    with refused(412):
        await container.delete_item("1", "a", etag='"other"', match_condition=UNCHANGED)
    assert await container.read_item("1", "a") == first
    await container.delete_item("1", "a", etag=first["_etag"], match_condition=UNCHANGED)
    with refused(404):
        await container.delete_item("1", "a", etag=first["_etag"], match_condition=UNCHANGED)


async def test_upsert(container: Any, first: Any) -> None:
    with refused(412):
        await container.upsert_item({"id": "1", "pk": "a"}, etag='"other"', match_condition=UNCHANGED)
    assert await container.read_item("1", "a") == first
    await container.upsert_item({"id": "1", "pk": "a", "n": 2}, etag=first["_etag"], match_condition=UNCHANGED)
    with refused(412):
        await container.upsert_item({"id": "1", "pk": "a"}, match_condition=MISSING)
    await container.upsert_item({"id": "2", "pk": "a"}, match_condition=MISSING)
    # There is nothing whose etag could differ: created.
    await container.upsert_item({"id": "3", "pk": "a"}, etag='"other"', match_condition=UNCHANGED)


async def test_a_read_ignores_if_match(container: Any, first: Any) -> None:
    """The header is documented for writes alone (common request headers of the REST API)."""
    assert await container.read_item("1", "a", etag='"other"', match_condition=UNCHANGED) == first


async def test_read(container: Any, first: Any) -> None:
    seen: list[Any] = []
    options = {"etag": first["_etag"], "match_condition": CHANGED}
    unchanged = await container.read_item("1", "a", response_hook=lambda got, _: seen.append(got), **options)
    assert not unchanged
    assert seen[0]["etag"] == first["_etag"]
    assert float(seen[0]["x-ms-request-charge"]) == 1
    await container.upsert_item({"id": "1", "pk": "a", "n": 2})
    assert (await container.read_item("1", "a", **options))["n"] == 2


async def test_writes_race(container: Any, first: Any) -> None:
    """Of many who saw the same version, one wins."""
    outcomes: list[int | None] = []
    for number in range(5):
        try:
            await container.replace_item(
                "1", {"id": "1", "pk": "a", "n": number}, etag=first["_etag"], match_condition=UNCHANGED
            )
            outcomes.append(200)
        except CosmosAccessConditionFailedError as lost:
            outcomes.append(lost.status_code)
    assert outcomes == [200, 412, 412, 412, 412]


async def test_databases_and_containers_have_etags(database: Any, container: Any) -> None:
    before = (await container.read())["_etag"]
    await container.create_item({"id": "1", "pk": "a"})
    assert (await container.read())["_etag"] == before
    assert (await database.read())["_etag"] == (await database.read())["_etag"]
