"""What is understood and not offered yet is refused by name, whatever the client, and nothing is done."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError

SCRIPT = "function () { getContext().getResponse().setBody(1); }"


async def trigger_of_a_patch(container: Any) -> None:
    await container.scripts.create_trigger({"id": "t", "body": SCRIPT, "triggerType": "Pre", "triggerOperation": "All"})
    patch = [{"op": "set", "path": "/n", "value": 1}]
    await container.patch_item("1", "a", patch, pre_trigger_include="t")


async def function_in_a_condition(container: Any) -> None:
    patch = [{"op": "set", "path": "/n", "value": 1}]
    await container.patch_item("1", "a", patch, filter_predicate="FROM c WHERE udf.f(c)")


FEATURES = {
    "triggers of patches": trigger_of_a_patch,
    "user-defined functions in conditions of patches": function_in_a_condition,
}


@pytest.mark.parametrize("feature", FEATURES)
async def test_refused(client: Any, name: str, feature: str) -> None:
    database = await client.create_database(name)
    container = await database.create_container("c", PartitionKey("/pk"))
    await container.create_item({"id": "1", "pk": "a"})
    with pytest.raises(CosmosHttpResponseError) as caught:
        await FEATURES[feature](container)
    assert caught.value.status_code == 400
    assert "not supported yet" in caught.value.message
    rows = container.read_all_items()
    assert [row["id"] async for row in rows] == ["1"]
