"""Session tokens: what they look like, that readers see their own writes, and that no read goes back in time."""

from __future__ import annotations

from typing import Any

import pytest
from azure.cosmos import PartitionKey
from sdk.clients import everything, refused

TOKEN = "x-ms-session-token"


async def test_writes_move_on_and_reads_do_not(container: Any) -> None:
    tokens = []
    for number in range(3):
        created = await container.create_item({"id": str(number), "pk": "a"})
        tokens.append(created.get_response_headers()[TOKEN])
        read = await container.read_item(str(number), "a")
        assert read.get_response_headers()[TOKEN] == tokens[-1]
    assert len(set(tokens)) == 3
    lsns = [int(token.partition("#")[2]) for token in tokens]
    assert lsns == sorted(lsns)
    assert all(token.startswith("0:1#") for token in tokens)


async def test_the_client_keeps_what_it_needs(container: Any) -> None:
    headers = (await container.create_item({"id": "1", "pk": "a"})).get_response_headers()
    properties = await container.read()
    assert headers["x-ms-alt-content-path"].endswith("/colls/items")
    assert headers["x-ms-content-path"] == properties["_rid"]
    assert headers["x-ms-documentdb-partitionkeyrangeid"] == "0"
    kept = container.client_connection.session.session_container.rid_to_session_token
    assert list(kept[properties["_rid"]]) == ["0"]


async def test_errors_carry_a_token_too(container: Any) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    with refused(404) as caught:
        await container.read_item("2", "a")
    assert caught.value.headers[TOKEN].startswith("0:1#")
    with refused(409) as caught:
        await container.create_item({"id": "1", "pk": "a"})
    assert caught.value.headers[TOKEN].startswith("0:1#")


async def test_another_client_reads_with_the_token(container: Any, connect: Any, name: str) -> None:
    created = await container.create_item({"id": "1", "pk": "a"})
    token = created.get_response_headers()[TOKEN]
    other = (await connect()).get_database_client(name).get_container_client("items")
    assert (await other.read_item("1", "a", session_token=token))["id"] == "1"
    assert len(await everything(other.query_items("SELECT * FROM c", partition_key="a", session_token=token))) == 1
    assert len(await everything(other.read_all_items(session_token=token))) == 1


async def test_a_token_ahead_is_refused(container: Any) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    with refused(404, 1002):
        await container.read_item("1", "a", session_token="0:1#999999")
    with refused(404, 1002):
        await everything(container.query_items("SELECT * FROM c", partition_key="a", session_token="0:1#999999"))
    with refused(404, 1002):
        await everything(container.read_all_items(session_token="0:1#999999"))
    # Of a range that this container does not have: nothing to wait for.
    assert (await container.read_item("1", "a", session_token="77:1#999999"))["id"] == "1"


@pytest.mark.parametrize("token", ["nonsense", "0:", "0:x#1", ":1#5", "0:1#5,", "0:1#5;1:1#5"])
async def test_malformed(container: Any, token: str) -> None:
    await container.create_item({"id": "1", "pk": "a"})
    with refused(400):
        await container.read_item("1", "a", session_token=token)


async def test_each_range_has_its_own(database: Any) -> None:
    container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=20_000)
    tokens = set()
    for number in range(30):
        created = await container.create_item({"id": str(number), "pk": number})
        tokens.add(created.get_response_headers()[TOKEN].partition(":")[0])
        assert (await container.read_item(str(number), number))["id"] == str(number)
    assert tokens == {"0", "1", "2", "3"}
    assert len(await everything(container.query_items("SELECT * FROM c"))) == 30


async def test_a_batch_counts(container: Any) -> None:
    first = await container.create_item({"id": "0", "pk": "a"})
    answers = await container.execute_item_batch([("create", ({"id": str(n), "pk": "a"},)) for n in (1, 2, 3)], "a")
    token = answers.get_response_headers()[TOKEN]
    assert token != first.get_response_headers()[TOKEN]
    read = await container.read_item("3", "a", session_token=token)
    assert read.get_response_headers()[TOKEN] == token
