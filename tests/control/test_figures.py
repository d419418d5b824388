"""What pages and commands are made of, asked of a real server: history, heat, verdict, sample, parse, and the commands
that draw them."""

from __future__ import annotations

import base64
import math
from array import array
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from azure.cosmos import ContainerProxy, CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError
from control.conftest import Start
from support.process import KEY
from support.server_operator import Operator

# Names and values that a page must not take for markup.
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"


@pytest.fixture
def timed(start_operator: Start) -> Operator:
    """Of a server whose clock stands still until it is moved."""
    operator = start_operator("--clock", "movable")
    operator.freeze()
    return operator


def container_of(operator: Operator, name: str, throughput_ru: int = 400) -> ContainerProxy:
    client = CosmosClient(operator.server.url, KEY)
    database = client.create_database_if_not_exists("shop")
    return database.create_container(name, PartitionKey("/pk"), offer_throughput=throughput_ru)


def advance(operator: Operator, seconds: float) -> None:
    operator.ask("POST", "clock", {"advanceSeconds": seconds})


def of(name: str) -> str:
    return f"databases/shop/containers/{quote(name, safe='')}"


def sum_of(heat: dict[str, Any]) -> float:
    return math.fsum(array("f", base64.b64decode(heat["values"])))


def test_the_map_adds_up_to_the_metrics_and_outlives_a_restart(timed: Operator, start_operator: Start) -> None:
    container = container_of(timed, "orders", 20_000)
    for number in range(60):
        container.create_item({"id": str(number), "pk": f"k{number}"})
    for _ in range(5):
        for number in range(20):
            container.read_item(str(number), f"k{number}")
        advance(timed, 10)
    list(container.query_items("SELECT * FROM c", enable_cross_partition_query=True))
    labels = {"database": "shop", "container": "orders"}
    for metric, counter in (("ru", "charge_request_units_total"), ("requests", "requests_total")):
        heat = timed.ask("GET", f"{of('orders')}/heat?metric={metric}")
        wanted = timed.metric(counter, **labels)
        assert sum_of(heat) == pytest.approx(wanted, rel=1e-5)
        assert heat["total"] == pytest.approx(wanted)
        assert heat["keyless"] > 0
    series = timed.ask("GET", f"{of('orders')}/history?step=10")
    assert sum(each or 0 for each in series["requests"]) == timed.metric("requests_total", **labels)
    assert series["items"][-1] == 60
    assert series["partitions"][-1] == 4
    charged_ru = timed.metric("charge_request_units_total", **labels)
    now_s = timed.ask("GET", "clock")["nowSeconds"]
    timed.server.stop()
    assert (timed.directory / "history").stat().st_mode & 0o777 == 0o600
    again = start_operator("--clock", "movable")
    again.freeze()
    advance(again, 3_600)  # the clock is the machine's again; the former one was ahead of it
    heat = again.ask("GET", f"{of('orders')}/heat?from={now_s - 1_800}")
    assert sum_of(heat) == pytest.approx(charged_ru, rel=1e-5)
    assert heat["gaps"]


def test_a_hot_key_is_one_bright_row(timed: Operator) -> None:
    container = container_of(timed, "hot")
    container.create_item({"id": "1", "pk": "hot"})
    for _ in range(6):
        for _ in range(20):
            container.read_item("1", "hot")
        advance(timed, 10)
    heat = timed.ask("GET", f"{of('hot')}/heat?metric=requests&rows=32&columns=60")
    values = array("f", base64.b64decode(heat["values"]))
    columns = len(heat["times"]) - 1
    assert len(values) == columns * (len(heat["bounds"]) - 1)
    bright = {index // columns for index, value in enumerate(values) if value}
    assert len(bright) == 1
    assert [each["kind"] for each in heat["findings"]] == ["too little to say"]
    verdict = timed.ask("GET", f"{of('hot')}/verdict")
    assert (verdict["verdict"], verdict["topLoadShare"]) == ("good", pytest.approx(1.0, abs=0.01))
    assert any(each.startswith("one partition: nothing can be uneven") for each in verdict["reasons"])


def test_full_keys_are_counted_everywhere(start_operator: Start) -> None:
    operator = start_operator("--logical-partition-storage", "20KB")
    container = container_of(operator, "full")
    refused = 0
    for number in range(60):
        try:
            container.create_item({"id": str(number), "pk": "big", "text": "x" * 1_000})
        except CosmosHttpResponseError as error:
            assert error.sub_status == 1014  # noqa: PT017
            refused += 1
    with suppress(CosmosBatchOperationError):
        container.execute_item_batch([("create", ({"id": "b", "pk": "big", "text": "x" * 9_000},))], "big")
    refused += 1
    assert operator.metric("key_full_total", container="full") == refused
    shown = operator.json("partitions", "shop/full")
    assert [each["full"] for each in shown["partitions"]] == [refused]
    assert (shown["largestKeys"][0]["full"], shown["busiestKeys"][0]["full"]) == (refused, refused)
    verdict = shown["verdict"]
    assert (verdict["verdict"], verdict["full"]) == ("poor", refused)
    assert verdict["fullKeys"][0]["key"] == '["big"]'
    assert sum_of(operator.ask("GET", f"{of('full')}/heat?metric=full")) == refused
    assert sum(each or 0 for each in operator.ask("GET", f"{of('full')}/history")["full"]) == refused


def test_no_verdict_while_a_split_runs(operator: Operator, name: str) -> None:
    operator.command("containers", "create", f"{name}/c", "--partition-key", "/pk")
    operator.ask("PUT", "reshapes/pauses", {"points": ["begun"]})
    operator.command("split", f"{name}/c", "--no-wait")
    told = operator.command("partitions", f"{name}/c")
    assert "No verdict: a split of partition 0 is under way: judged when it is done." in told
    operator.ask("PUT", "reshapes/pauses", {"points": []})
    operator.ask("POST", "reshapes/advance", {})
    operator.command("databases", "delete", name, "--yes")


def test_a_sample_tells_paths_and_types(operator: Operator, name: str) -> None:
    with CosmosClient(operator.server.url, KEY) as client:
        database = client.create_database(name)
        policy = {"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/secret/*"}]}
        container = database.create_container("c", PartitionKey("/pk"), indexing_policy=policy)
        for number in range(40):
            address = {"city": f"c{number % 3}"} if number % 2 else None
            document = {"id": str(number), "pk": "a", "n": number, "tags": ["x"], "secret": 1, "address": address}
            container.create_item(document)
    sample = operator.ask("GET", f"databases/{name}/containers/c/sample?count=1000")
    assert (sample["sampled"], sample["of"]) == (40, 40)
    paths = {each["path"]: each for each in sample["paths"]}
    assert paths["/n"]["types"] == {"number": 40}
    assert paths["/n"]["distinct"] == 40
    assert len(paths["/n"]["examples"]) == 3
    assert paths["/address/city"]["share"] == 0.5
    assert paths["/address/city"]["distinct"] == 3
    assert paths["/address"]["types"] == {"object": 20, "null": 20}
    assert paths["/tags/[]"]["types"] == {"string": 40}
    assert paths["/pk"]["isPartitionKey"] is True
    assert paths["/secret"]["isIndexed"] is False
    assert paths["/n"]["isIndexed"] is True
    assert "/_rid" not in paths
    few = operator.ask("GET", f"databases/{name}/containers/c/sample?count=8")
    assert 0 < few["sampled"] <= 8
    operator.command("databases", "delete", name, "--yes")


def test_parse_finds_the_place_of_a_mistake(operator: Operator, name: str) -> None:
    operator.command("containers", "create", f"{name}/c", "--partition-key", "/pk")
    parse = f"databases/{name}/containers/c/parse"
    found = operator.ask("POST", parse, {"query": "SELECT c.a FROM c\nWHERE c.b.d = 'x' AND c.n > @n ORDER BY c.a"})
    assert found["ok"] is True
    assert found["shape"] == "SELECT c . a FROM c WHERE c . b . d = ? AND c . n > ? ORDER BY c . a"
    assert found["paths"] == ["/a", "/b/d", "/n"]
    assert found["advice"] == []
    advised = operator.ask("POST", parse, {"query": "SELECT * FROM c WHERE CONTAINS(c.a, 'x')"})
    assert [each["rule"] for each in advised["advice"]] == ["QA1002"]
    wrong = operator.ask("POST", parse, {"query": "SELECT *\nFROM c WHERE\n  c.a = = 1"})
    assert wrong["ok"] is False
    assert (wrong["error"]["line"], wrong["error"]["column"]) == (3, 9)
    assert "Syntax error" in wrong["error"]["message"]
    operator.command("databases", "delete", name, "--yes")


def test_unknown_parameters_are_refused(operator: Operator, name: str) -> None:
    operator.command("containers", "create", f"{name}/c", "--partition-key", "/pk")
    for path, expected in (
        ("history?steps=10", "Unknown query parameter 'steps'"),
        ("history?step=15", "multiple of 10"),
        ("history?step=10&from=0", "too many"),
        ("history?from=soon", "'from' must be a time"),
        ("history?from=2026-01-31T12:00:00", "with its zone"),
        ("history?from=9999999999", "later than"),
        ("heat?metric=heat", "'metric' must be one of ru,"),
        ("heat?colour=1", "Unknown query parameter"),
        ("heat?rows=1440&columns=1440", "too many cells"),
        ("heat?rows=0", "'rows' must be a whole number"),
        ("verdict?width=x", "Unknown query parameter"),
        ("verdict?with=nothing", "does not name a container"),
        ("verdict?with=nothing/here", "does not exist"),
        ("verdict?with=a/b,a/b,a/b,a/b", "at most 3"),
        ("verdict?since=1", "'since' must be"),
        ("sample?count=0", "'count' must be"),
        ("sample?size=1", "Unknown query parameter"),
        ("partitions?keys=some", "'keys' must be all or none"),
        ("partitions?keys=none&tops=1", "Unknown query parameter"),
    ):
        status, body = operator.send("GET", f"databases/{name}/containers/c/{path}")
        assert status in (400, 404), path
        assert expected in body.decode(), body
    for content in ({}, {"query": 1}, {"query": "SELECT 1", "more": 1}):
        assert operator.send("POST", f"databases/{name}/containers/c/parse", content)[0] == 400
    assert "largestKeys" not in operator.ask("GET", f"databases/{name}/containers/c/partitions?keys=none")
    operator.command("databases", "delete", name, "--yes")


def test_without_a_history(start_operator: Start) -> None:
    operator = start_operator("--history-memory", "0")
    container = container_of(operator, "c")
    for number in range(100):
        container.create_item({"id": str(number), "pk": f"k{number}"})
    status, body = operator.send("GET", f"{of('c')}/heat")
    assert status == 400
    assert "--history-memory" in body.decode()
    verdict = operator.ask("GET", f"{of('c')}/verdict")
    assert verdict["verdict"] == "good"
    assert any("history of load is off" in each for each in verdict["reasons"])
    assert not (operator.directory / "history").exists()
    operator.command("report", "shop/c", "--html", str(operator.directory / "report.html"))
    assert "No history of load is kept." in (operator.directory / "report.html").read_text("utf-8")


# Commands.


def test_watching_and_top(operator: Operator, name: str) -> None:
    operator.command("containers", "create", f"{name}/c", "--partition-key", "/pk", "--throughput", "20000")
    drawn = operator.command("partitions", f"{name}/c", "--watch", "--times", "2", "--every", "0.1")
    assert drawn.count(f"{name}/c") == 2
    assert drawn.count("share of bytes") == 2
    assert f"{name}/c" in operator.command("top", "--times", "1", "--top", "1000")
    found = operator.json("top", "--top", "1000", "--sort", "full")["containers"]
    assert f"{name}/c" in [each["name"] for each in found]
    for arguments, expected in (
        (("partitions", f"{name}/c", "--times", "2"), "--times does not go with"),
        (("partitions", f"{name}/c", "--watch", "--top", "3"), "--top does not go with"),
        (("partitions", f"{name}/c", "--watch", "--every", "0"), "--every is 0"),
        (("top", "--json", "--times", "1"), "--times does not go with"),
        (("top", "--top", "0"), "--top is 0"),
        (("partitions", *[f"{name}/c"] * 5), "at most 4"),
    ):
        assert expected in operator.command(*arguments, code=2)
    operator.command("databases", "delete", name, "--yes")


def test_a_report_is_one_inert_file(operator: Operator, name: str, tmp_path: Path) -> None:
    container_name = HOSTILE.replace("/", "|")
    with CosmosClient(operator.server.url, KEY) as client:
        database = client.create_database(name)
        container = database.create_container(container_name.replace("\\", ""), PartitionKey("/pk"))
        for number in range(120):
            container.create_item({"id": str(number), "pk": HOSTILE if number % 2 else f"k{number}"})
        container.read_item("1", HOSTILE)
    file = tmp_path / "report.html"
    told = operator.command("report", f"{name}/{container_name}", "--html", str(file), "--hours", "1")
    assert told.startswith(f"Wrote {file} (")
    page = file.read_text("utf-8")
    assert len(page) < 500_000
    assert "<script" not in page
    assert "<img" not in page
    assert "onerror=alert(2)&gt;" in page
    assert "Verdict: " in page
    assert "<svg" in page
    assert "http://" not in page
    assert "Content-Security-Policy" in page
    for arguments, expected in (
        (("--html", str(tmp_path / "none" / "r.html")), "cannot be written"),
        (("--html", str(file), "--hours", "0"), "--hours is 0"),
    ):
        assert expected in operator.command("report", f"{name}/{container_name}", *arguments, code=2)
    operator.command("databases", "delete", name, "--yes")
