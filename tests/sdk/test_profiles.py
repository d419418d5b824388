"""The figures of the editions of Microsoft's articles, as a released client meets them under `--profile`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.cosmos import CosmosClient, DatabaseProxy, PartitionKey, ThroughputProperties
from azure.cosmos.exceptions import CosmosHttpResponseError
from azure.data.tables import TableServiceClient
from support.process import ServerProcess
from support.server_operator import Operator

KEY = PartitionKey("/deviceId")


@contextmanager
def served(directory: Path | None, *arguments: str) -> Iterator[tuple[ServerProcess, CosmosClient]]:
    server = ServerProcess.start(directory, *arguments)
    try:
        with CosmosClient(server.url, server.key, retry_total=0) as client:
            client.client_connection.connection_policy.RetryOptions._max_retry_attempt_count = 0
            yield server, client
    finally:
        server.stop()


def refusal(database: DatabaseProxy, throughput: int | ThroughputProperties) -> str:
    with pytest.raises(CosmosHttpResponseError) as caught:
        database.create_container("refused", KEY, offer_throughput=throughput)
    assert caught.value.status_code == 400
    return str(caught.value.message)


def partition_count(database: DatabaseProxy, throughput: int | None) -> int:
    container = database.create_container(f"of-{throughput}", KEY, offer_throughput=throughput)
    return len(list(container.read_feed_ranges()))


@pytest.mark.parametrize(
    ("profile", "least_ru", "most_ru", "counts"),
    [
        ("2016", 10_100, 250_000, {10_100: 2, 20_000: 2, 20_100: 3, 250_000: 25}),
        ("2017", 2_500, 1_000_000, {2_500: 1, 10_000: 1, 10_100: 2}),
        ("2018", 1_000, 100_000, {1_000: 1, 10_000: 1, 100_000: 10}),
        ("today", 400, 1_000_000, {400: 1, 6_000: 1, 10_000: 2}),
    ],
)
def test_throughputs_and_partitions(profile: str, least_ru: int, most_ru: int, counts: dict[int, int]) -> None:
    with served(None, "--profile", profile) as (_, client):
        database = client.create_database("db")
        values = f"between {least_ru} and {most_ru} inclusive in increments of 100"
        below, above = refusal(database, least_ru - 100), refusal(database, most_ru + 100)
        assert values in below
        assert f"less than required minimum throughput {least_ru}" in below
        assert f"and {most_ru} inclusive in increments of 100" in above
        assert {ru: partition_count(database, ru) for ru in counts} == counts
        # Without a throughput a container gets the least there is.
        partition_count(database, None)
        container = database.get_container_client("of-None")
        assert container.get_throughput().offer_throughput == least_ru
        with pytest.raises(CosmosHttpResponseError, match=f"required minimum throughput {least_ru}"):
            container.replace_throughput(least_ru - 100)
        if most_ru < 1_000_000:
            for wanted in (most_ru + 100, ThroughputProperties(auto_scale_max_throughput=most_ru + 1_000)):
                assert str(most_ru) in refusal(database, wanted)
            with pytest.raises(CosmosHttpResponseError, match=f"between {least_ru} and {most_ru}"):
                container.replace_throughput(most_ru + 100)
            with pytest.raises(CosmosHttpResponseError, match=f"between 400 and {most_ru}"):
                client.create_database("shared", offer_throughput=most_ru + 100)
        # Those that share the throughput of a set have none of their own, and need no least.
        shared = client.create_database("set", offer_throughput=400)
        shared.create_container("member", KEY)


def test_enforcement_is_on_and_a_full_key_is_refused(tmp_path: Path) -> None:
    small = ("--partition-storage", "64KB", "--logical-partition-storage", "32KB", "--clock", "movable")
    with served(tmp_path / "data", "--profile", "2018", *small) as (server, client):
        container = client.create_database("db").create_container("c", KEY, offer_throughput=1_000)

        def fill() -> None:
            for number in range(100):
                container.create_item({"id": str(number), "deviceId": "hot", "text": "x" * 4_000})

        values = {f"p{number}": number for number in range(400)}  # each is indexed, and charged

        def write_too_much() -> None:
            for number in range(1_000):
                container.create_item({"id": str(number), "deviceId": str(number), "values": values})

        with pytest.raises(CosmosHttpResponseError, match=r"reached maximum size of 0\.03125 MB") as full:
            fill()
        assert (full.value.status_code, full.value.sub_status) == (403, 1014)
        Operator(server).ask("POST", "clock", {"frozen": True})
        with pytest.raises(CosmosHttpResponseError) as throttled:
            write_too_much()
        assert throttled.value.status_code == 429


def test_tables_may_have_less() -> None:
    with served(None, "--profile", "2017", "--table-throughput", "700") as (server, _):
        credential = AzureNamedKeyCredential("localhost", server.key)
        with TableServiceClient(server.doors["table"], credential=credential) as tables:
            people = tables.create_table("people")
            people.create_entity({"PartitionKey": "Smith", "RowKey": "Ben"})
            assert people.get_entity("Smith", "Ben")["RowKey"] == "Ben"


def test_a_given_setting_comes_before_the_profile() -> None:
    given = ("--partitioned-throughput-min", "400", "--throughput", "observe", "--partition-headroom", "on")
    with served(None, "--profile", "2016", *given) as (server, client):
        database = client.create_database("db")
        assert partition_count(database, 400) == 1
        assert partition_count(database, 10_000) == 2
        assert "between 400 and 250000" in refusal(database, 300_000)
    log = server.log
    assert "profile 2016: partition-throughput 10000, partition-storage 10GB" in log
    assert "set otherwise: throughput, partition-headroom, partitioned-throughput-min" in log


def test_a_directory_under_another_profile_keeps_what_it_has(tmp_path: Path) -> None:
    with served(tmp_path / "data") as (_, client):
        container = client.create_database("db").create_container("c", KEY, offer_throughput=7_000)
        container.create_item({"id": "1", "deviceId": "a"})
    with served(tmp_path / "data", "--profile", "2016") as (server, client):
        database = client.get_database_client("db")
        container = database.get_container_client("c")
        assert container.get_throughput().offer_throughput == 7_000
        assert len(list(container.read_feed_ranges())) == 2
        container.upsert_item({"id": "1", "deviceId": "a", "again": True})
        with pytest.raises(CosmosHttpResponseError, match="required minimum throughput 10100"):
            container.replace_throughput(8_000)
        assert container.replace_throughput(20_000).offer_throughput == 20_000
        assert "10100" in refusal(database, 400)
    assert "was under the profile today and comes under 2016" in server.log
    with served(tmp_path / "data", "--profile", "2016") as (server, _):
        pass
    assert "comes under" not in server.log
    with served(tmp_path / "data") as (server, client):
        assert partition_count(client.get_database_client("db"), 400) == 1
    assert "was under the profile 2016 and comes under today" in server.log
