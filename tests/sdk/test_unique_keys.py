"""Unique keys: within a logical partition, for every way to write."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.exceptions import CosmosBatchOperationError
from sdk.clients import everything, refused

POLICY = {"uniqueKeys": [{"paths": ["/name"]}, {"paths": ["/first", "/last/deep"]}]}


@pytest.fixture
async def unique(database: Any) -> Any:
    container = await database.create_container("c", PartitionKey("/pk"), unique_key_policy=POLICY)
    await container.create_item({"id": "1", "pk": "a", "name": "n", "first": "f", "last": {"deep": "l"}})
    return container


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "n"},
        {"first": "f", "last": {"deep": "l"}},
        {"id": "1"},
    ],
)
async def test_violations(unique: Any, changes: dict[str, Any]) -> None:
    with refused(409):
        await unique.create_item({"id": "2", "pk": "a", "name": "other", **changes})
    if "id" not in changes:
        await unique.create_item({"id": "3", "pk": "a", "name": "third"})
        body = {"id": "3", "pk": "a", "name": "third", **changes}
        with refused(409):
            await unique.upsert_item(body)
        with refused(409):
            await unique.replace_item("3", body)
    await unique.create_item({"id": "2", "pk": "b", "name": "other", **changes})


async def test_what_does_not_collide(unique: Any) -> None:
    await unique.create_item({"id": "2", "pk": "a", "name": "N", "first": "f", "last": {"deep": "m"}})
    await unique.create_item({"id": "3", "pk": "a", "name": 5, "first": "g", "last": {"deep": "l"}})
    await unique.create_item({"id": "4", "pk": "a", "name": "5", "first": True})
    await unique.replace_item("1", {"id": "1", "pk": "a", "name": "n", "first": "f", "last": {"deep": "l"}, "x": 1})


async def test_missing_counts_as_null(unique: Any) -> None:
    await unique.create_item({"id": "2", "pk": "a", "first": 1})
    with refused(409):
        await unique.create_item({"id": "3", "pk": "a", "first": 2})
    with refused(409):
        await unique.create_item({"id": "3", "pk": "a", "name": None, "first": 2})


async def test_a_value_is_free_again(unique: Any) -> None:
    await unique.patch_item("1", "a", [{"op": "set", "path": "/name", "value": "moved"}])
    await unique.create_item({"id": "2", "pk": "a", "name": "n"})
    with refused(409):
        await unique.patch_item("1", "a", [{"op": "set", "path": "/name", "value": "n"}])
    await unique.delete_item("2", "a")
    await unique.patch_item("1", "a", [{"op": "set", "path": "/name", "value": "n"}])


async def test_inside_a_batch(unique: Any) -> None:
    with pytest.raises(CosmosBatchOperationError) as caught:
        await unique.execute_item_batch(
            [
                ("create", ({"id": "2", "pk": "a", "name": "m", "first": 1},)),
                ("create", ({"id": "3", "pk": "a", "name": "m", "first": 2},)),
            ],
            "a",
        )
    assert caught.value.error_index == 1
    assert caught.value.operation_responses[1]["statusCode"] == 409
    assert len(await everything(unique.read_all_items())) == 1
    # A value moves from one item to another within one transaction.
    await unique.execute_item_batch(
        [
            ("patch", ("1", [{"op": "set", "path": "/name", "value": "other"}])),
            ("create", ({"id": "2", "pk": "a", "name": "n", "first": 1},)),
        ],
        "a",
    )
