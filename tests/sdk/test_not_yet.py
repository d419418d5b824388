"""What is understood and not offered yet is refused by name, whatever the client, and nothing is done."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError


async def run(container: Any, call: str) -> None:
    await container.scripts.create_stored_procedure({"id": "p", "body": f"function () {{ {call}; }}"})
    await container.scripts.execute_stored_procedure("p", partition_key="a")


async def attachments(container: Any) -> None:
    await run(container, "__.createAttachment(__.getAltLink() + '/docs/1', {id: 'x', contentType: 'y', media: 'z'})")


async def spatial_functions(container: Any) -> None:
    await run(container, "__.spatial.isValid({type: 'Point', coordinates: [0, 0]})")


FEATURES = {
    "attachments": attachments,
    "`__.spatial` in scripts (queries have it)": spatial_functions,
}


@pytest.mark.parametrize("feature", FEATURES)
async def test_refused(client: Any, name: str, feature: str) -> None:
    database = await client.create_database(name)
    container = await database.create_container("c", PartitionKey("/pk"))
    await container.create_item({"id": "1", "pk": "a"})
    with pytest.raises(CosmosHttpResponseError) as caught:
        await FEATURES[feature](container)
    assert caught.value.status_code == 400
    assert "not supported" in caught.value.message
    rows = container.read_all_items()
    assert [row["id"] async for row in rows] == ["1"]
