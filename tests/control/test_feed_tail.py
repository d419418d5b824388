"""`armillary feed tail`, and the control request behind it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from support.forked import Forked
from support.process import KEY, clean_environment
from support.server_operator import Operator


@pytest.fixture
def container(operator: Operator, name: str) -> Any:
    with CosmosClient(operator.server.url, KEY) as client:
        database = client.create_database(f"tail-{name}")
        yield database.create_container(
            "c", PartitionKey("/pk"), offer_throughput=20_000, change_feed_policy={"retentionDuration": 10}
        )


def test_it_prints_what_there_is(operator: Operator, container: Any, name: str) -> None:
    for number in range(5):
        container.upsert_item({"id": str(number), "pk": "ä" if number % 2 else "b", "n": number})
    container.upsert_item({"id": "0", "pk": "b", "n": 10})
    container.delete_item("1", "ä")

    def tail(*arguments: str) -> list[dict[str, Any]]:
        shown = operator.command("feed", "tail", f"tail-{name}/c", "--no-follow", *arguments)
        return [json.loads(line) for line in shown.splitlines()]

    assert tail() == []
    assert sorted((row["id"], row["n"]) for row in tail("--from", "beginning")) == [
        ("0", 10),
        ("2", 2),
        ("3", 3),
        ("4", 4),
    ]
    assert len(tail("--from", "2020-01-01T00:00:00Z")) == 4
    assert len(tail("--from", "beginning", "--limit", "2")) == 2
    versions = tail("--from", "beginning", "--mode", "all-versions", "--partition-key", "ä")
    assert [row["metadata"]["operationType"] for row in versions] == ["create", "create", "delete"]
    assert len(tail("--from", "beginning", "--mode", "all-versions", "--partition-key", '["b"]')) == 4
    refused = operator.command("feed", "tail", f"tail-{name}/c", "--from", "yesterday", code=2)
    assert "'from' must be beginning, now or a time" in refused


def test_it_goes_on(operator: Operator, container: Any, name: str) -> None:
    arguments = ["feed", "tail", f"tail-{name}/c", "--mode", "all-versions", "--from", "beginning", "--limit", "3"]
    process = Forked.start(
        *("armillary", *arguments, "--data", str(operator.directory)), environment=clean_environment()
    )
    try:
        container.create_item({"id": "1", "pk": "a"})
        assert json.loads(process.stdout.readline())["current"]["id"] == "1"
        container.upsert_item({"id": "1", "pk": "a", "n": 1})
        assert json.loads(process.stdout.readline())["previous"]["id"] == "1"
        container.delete_item("1", "a")
        assert json.loads(process.stdout.readline())["current"] == {}
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("mode=some", "'mode' must be one of latest, all-versions"),
        ("limit=0", "'limit'"),
        ("from=2020-01-01", "time with its zone"),
        (f"mode=all-versions&from={quote('2020-01-01T00:00:00Z')}", "not from a time"),
        ("position=x", "position"),
        ("key=a", "key"),
        ("what=1", "Unknown query parameter"),
    ],
)
def test_what_cannot_be(operator: Operator, container: Any, name: str, query: str, text: str) -> None:
    status, body = operator.send("GET", f"databases/tail-{name}/containers/c/changes?{query}")
    assert status == 400
    assert text in json.loads(body)["error"]["message"]
