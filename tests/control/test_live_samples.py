"""Items of a running container by sampling: the pages that the control API sends, and `armillary advise` with them.
What the server knows exactly has no interval, no request is charged, and where there is no control API that is said.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.process import call_armillary
from support.server_operator import Operator

COUNT = 2_000
PATH = "databases/sampled/containers/orders"
WORKLOAD = """
container = { partition_key = ["/country"] }
data = { item_bytes = 500, keys = { uniform = 100 } }
operations = [
    { kind = "create", rate = 100 },
    { kind = "query", rate = 60, filter = ["/customerId"], rows = 10 },
]
"""


def order(number: int) -> dict[str, Any]:
    return {
        "id": f"o{number}",
        "customerId": f"c{number * 7919 % 400}",
        "country": "de" if number % 10 < 8 else f"c{number % 10}",
        "note": "x" * (number % 300),
    }


@pytest.fixture(scope="module")
def files(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A container of the shared server with items in four partitions, and the files of a command."""
    folder = tmp_path_factory.mktemp("sampled")
    (folder / "orders.jsonl").write_text("".join(json.dumps(order(number)) + "\n" for number in range(COUNT)))
    (folder / "workload.toml").write_text(WORKLOAD)
    operator.ask("POST", "databases", {"name": "sampled"})
    body = {"name": "orders", "partitionKey": "/country", "throughput": 20_000}
    operator.ask("POST", "databases/sampled/containers", body)
    operator.command("import", str(folder / "orders.jsonl"), "sampled/orders")
    return folder


def items(operator: Operator, **asked: int) -> list[dict[str, Any]]:
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    status, body = operator.send("GET", f"{PATH}/sample/items?{query}")
    assert status == 200, body
    return [json.loads(line) for line in body.split(b"\n") if line]


def advised(operator: Operator, files: Path, *more: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    arguments = ("advise", "sampled/orders", "--workload", str(files / "workload.toml"), "--json", *more)
    outcome = call_armillary(*arguments, "--data", str(operator.directory), environment=environment)
    assert outcome.returncode in (0, 3), outcome.stderr
    content: dict[str, Any] = json.loads(outcome.stdout)
    return content


def test_pages_of_all_items_have_each_once(operator: Operator, files: Path) -> None:
    found = [each["id"] for page in range(7) for each in items(operator, count=COUNT, pages=7, page=page)]
    assert Counter(found) == Counter(f"o{number}" for number in range(COUNT))


def test_pages_of_a_sample_have_nothing_in_common(operator: Operator, files: Path) -> None:
    pages = [[each["id"] for each in items(operator, count=600, pages=5, page=page, seed=3)] for page in range(5)]
    found = [each for page in pages for each in page]
    assert len(set(found)) == len(found) and 590 <= len(found) <= 610
    numbers = [int(each[1:]) for each in found]
    assert 900 < sum(numbers) / len(numbers) < 1_100, "items of all times"
    again = [each["id"] for each in items(operator, count=600, pages=5, page=2, seed=3)]
    other = [each["id"] for each in items(operator, count=600, pages=5, page=2, seed=4)]
    assert again == pages[2] != other


@pytest.mark.parametrize("query", ["pages=0", "page=1", "pages=2&page=2", "seed=x", "count=0", "most=5"])
def test_pages_that_do_not_exist_are_refused(operator: Operator, files: Path, query: str) -> None:
    assert operator.send("GET", f"{PATH}/sample/items?{query}")[0] == 400
    assert operator.send("GET", "databases/sampled/containers/none/sample/items")[0] == 404


def test_figures_are_those_of_the_partitions(operator: Operator, files: Path) -> None:
    found = operator.ask("GET", f"{PATH}/sample/figures")
    partitions = operator.ask("GET", f"{PATH}/partitions")
    assert found["items"] == COUNT == sum(each["items"] for each in partitions["partitions"])
    assert found["bytes"] == sum(each["bytes"] for each in partitions["partitions"])
    assert (found["paths"], found["keys"]) == (["/country"], 3)
    assert found["largest"][0] == {"key": ["de"], "bytes": partitions["largestKeys"][0]["bytes"]}


def test_a_sample_is_said_to_be_one(operator: Operator, files: Path) -> None:
    before = operator.ask("GET", f"{PATH}/partitions")
    content = advised(operator, files, "--rows", "1000", "--candidate", "/country")
    assert 1_000 <= content["rows"]["read"] <= 1_010
    assert any(f"of {COUNT:,} items were read, drawn at random" in each for each in content["assumptions"])
    figures = operator.ask("GET", f"{PATH}/sample/figures")
    assert content["inputs"]["sizeBytes"] == pytest.approx(figures["bytes"], rel=1e-5)
    scores = {each["key"]: each["scores"] for each in content["candidates"]}
    share = figures["largest"][0]["bytes"] / figures["bytes"]
    top = scores["/country"]["topShare"]
    assert top["low"] == top["high"] == top["value"] == pytest.approx(share, rel=1e-4)
    assert scores["/customerId"]["topShare"]["low"] < scores["/customerId"]["topShare"]["high"]
    assert scores["/id"]["distinct"]["value"] < COUNT <= scores["/id"]["distinct"]["high"] * 1.05
    after = operator.ask("GET", f"{PATH}/partitions")
    assert [each["chargedRu"] for each in after["partitions"]] == [each["chargedRu"] for each in before["partitions"]]
    assert not any("SQL API" in each for each in content["warnings"])
    assert advised(operator, files, "--rows", "1000", "--candidate", "/country") == content


def test_few_items_are_all_read(operator: Operator, files: Path) -> None:
    content = advised(operator, files)
    assert content["rows"]["read"] == COUNT and content["best"] == "/customerId"
    assert any(each.startswith(f"all {COUNT:,} items of the container were read") for each in content["assumptions"])


def test_without_the_control_api_all_items_are_read_and_that_is_said(operator: Operator, files: Path) -> None:
    content = advised(operator, files, "--rows", "1000", environment={"ARMILLARY_CONTROL_KEY": "A" * 44})
    assert content["rows"]["read"] == COUNT
    assert content["warnings"][0].startswith("all items were read through the SQL API, which charges for them")


def test_a_job_of_the_server_knows_the_same(operator: Operator, files: Path) -> None:
    from control.test_advice_jobs import advised as advised_by_job

    result = advised_by_job(operator, {"container": "sampled/orders", "candidates": ["/country"]})
    top = {each["key"]: each["scores"]["topShare"] for each in result["candidates"]}["/country"]
    assert top["low"] == top["high"] == top["value"]
    assert any(each.startswith(f"all {COUNT:,} items") for each in result["assumptions"])


def test_a_container_that_is_not_there(operator: Operator) -> None:
    outcome = call_armillary("advise", "sampled/none", "--data", str(operator.directory))
    assert outcome.returncode == 2 and "none" in outcome.stderr and "Traceback" not in outcome.stderr, sys.stderr
