"""Budgets that are enforced, and what released clients make of it: 429, and retries that come neither too early nor
too late."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError
from sdk.clients import refused
from sdk.conftest import Connect
from support.process import ServerProcess
from support.server_operator import Operator

HERE = Path(__file__).parent / "js"
LARGE = "x" * 100_000  # few such items spend a second's units, however slow the machine


@pytest.fixture(scope="module")
def enforcing() -> Iterator[ServerProcess]:
    """Each partition carries 200 RU/s: 400 RU/s make four of them."""
    server = ServerProcess.start(None, "--throughput", "enforce", "--partition-throughput", "200")
    yield server
    server.stop()


@pytest.fixture
async def hot(connect: Connect, enforcing: ServerProcess, name: str) -> Any:
    client = await connect(enforcing.url)
    database = await client.create_database(name)
    return await database.create_container("c", PartitionKey("/pk"), offer_throughput=400)


async def test_the_clients_own_retries_succeed(hot: Any) -> None:
    """100 RU/s a partition, and seven times as much of writes to one key: some seconds of them, and no error."""
    statuses: list[int] = []

    def note(response: Any) -> None:
        statuses.append(response.http_response.status_code)

    for number in range(12):
        await hot.create_item({"id": str(number), "pk": "a", "large": LARGE}, raw_response_hook=note)
    assert statuses.count(201) == 12
    assert statuses.count(429) > 0
    found = hot.query_items("SELECT VALUE COUNT(1) FROM c", partition_key="a")
    assert [count async for count in found] == [12]


async def test_a_client_that_does_not_retry_is_told_how_long_to_wait(hot: Any) -> None:
    await hot.create_item({"id": "1", "pk": "a", "large": LARGE})
    hot.client_connection.connection_policy.RetryOptions._max_retry_attempt_count = 0
    with refused(429, 3200, "Request rate is large") as caught:
        while True:
            await hot.read_item("1", "a")
    wait_ms = int(caught.value.headers["x-ms-retry-after-ms"])
    assert 0 < wait_ms <= 1000
    assert caught.value.headers["x-ms-request-charge"] == "0.38"
    await asyncio.sleep(wait_ms / 1000)
    await hot.read_item("1", "a")


async def test_a_hot_key_gets_its_share_and_the_others_see_nothing_of_it(
    start_server: Callable[..., ServerProcess], name: str
) -> None:
    """Five seconds of a clock that the test moves: however slow the machine, none of them ends early."""
    operator = Operator(start_server("--throughput", "enforce", "--partition-throughput", "200", "--clock", "movable"))
    operator.ask("POST", "clock", {"frozen": True})
    async with CosmosClient(operator.server.url, operator.server.key) as client:
        database = await client.create_database(name)
        container = await database.create_container("c", PartitionKey("/pk"), offer_throughput=400)
        ranges: dict[str, str] = {}
        for number in range(20):
            document = {"id": "1", "pk": f"k{number}"}
            made = await container.create_item(document)
            ranges.setdefault(made.get_response_headers()["x-ms-documentdb-partitionkeyrangeid"], document["pk"])
        hot, cold, *_ = ranges.values()
        client.client_connection.connection_policy.RetryOptions._max_retry_attempt_count = 0

        async def read(key: str) -> bool:
            try:
                await container.read_item("1", key)
            except CosmosHttpResponseError as error:
                if error.status_code != 429:
                    raise
                return False
            return True

        for _ in range(5):
            operator.ask("POST", "clock", {"advanceSeconds": 1})
            served = refusals = 0
            while refusals < 30:
                outcomes = await asyncio.gather(*[read(hot) for _ in range(8)], read(cold))
                assert outcomes.pop()
                served += sum(outcomes)
                refusals += len(outcomes) - sum(outcomes)
            assert served == 100


async def test_low_priority_and_buckets(hot: Any) -> None:
    await hot.create_item({"id": "1", "pk": "a"}, priority="Low", throughput_bucket=2)
    assert (await hot.read_item("1", "a", priority="High", throughput_bucket=5))["id"] == "1"
    rows = hot.query_items("SELECT * FROM c", partition_key="a", priority="Low", throughput_bucket=1)
    assert len([row async for row in rows]) == 1
    with refused(400):
        await hot.read_item("1", "a", throughput_bucket=6)


async def test_charges_are_explained(connect: Connect, hot: Any, enforcing: ServerProcess, name: str) -> None:
    client = await connect(enforcing.url, headers={"x-armillary-explain": "true"})
    container = client.get_database_client(name).get_container_client("c")
    made = await container.create_item({"id": "1", "pk": "a"})
    headers = made.get_response_headers()
    parts = orjson.loads(headers["x-armillary-charge"])
    assert [part["what"] for part in parts] == ["write the item", "add index terms"]
    assert sum(part["ru"] for part in parts) == pytest.approx(float(headers["x-ms-request-charge"]))


async def test_serverless_accounts(connect: Connect, name: str) -> None:
    server = ServerProcess.start(None, "--serverless")
    try:
        client = await connect(server.url)
        database = await client.create_database(name)
        with refused(400, text="is not supported for serverless accounts"):
            await database.create_container("c", PartitionKey("/pk"), offer_throughput=400)
        container = await database.create_container("c", PartitionKey("/pk"))
        await container.create_item({"id": "1", "pk": "a"})
        with refused(400, text="Reading or replacing offers is not supported for serverless accounts."):
            await container.get_throughput()
    finally:
        server.stop()


@pytest.mark.parametrize("client", ["javascript"])
def test_javascripts_own_retries_succeed(enforcing: ServerProcess, client: str) -> None:
    node = shutil.which("node")
    assert node is not None
    run = subprocess.run(
        [node, "throttled.mjs"],
        cwd=HERE,
        env={**os.environ, "TEST_ENDPOINT": enforcing.url, "TEST_KEY": enforcing.key, "NODE_NO_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    outcome = json.loads(run.stdout)
    assert outcome["retries"] > 0
    assert (outcome["created"], outcome["count"], outcome["failed"]) == (40, 40, 0)
