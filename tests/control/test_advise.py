"""`armillary advise` on a container that is in use, with the requests of a capture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import CosmosClient
from support.process import call_armillary
from support.server_operator import Operator

pytestmark = [
    pytest.mark.usefixtures("collected"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
CUSTOMERS, ROWS, QUERIES = 200, 1_200, 150


def command(operator: Operator, *arguments: str) -> Any:
    directory = operator.server.directory
    assert directory is not None
    outcome = call_armillary(*arguments, "--data", str(directory), "--json")
    assert outcome.returncode in (0, 3), outcome.stderr
    return outcome.returncode, json.loads(outcome.stdout)


@pytest.mark.parametrize("values", [(), ("--values",)], ids=["digests", "values"])
def test_a_container_in_use_is_advised_by_its_items_and_requests(
    operator: Operator, name: str, tmp_path: Path, values: tuple[str, ...]
) -> None:
    place = f"{name}/orders"
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(
            json.dumps({"id": f"o{number}", "customerId": f"c{number % CUSTOMERS}", "state": f"s{number % 3}"}) + "\n"
            for number in range(ROWS)
        )
    )
    command(operator, "containers", "create", place, "--partition-key", "/state")
    command(operator, "capture", "start", place, *values)
    command(operator, "import", str(rows), place, "--state", str(tmp_path / "state"))
    with CosmosClient(operator.server.url, operator.server.key) as client:
        container = client.get_database_client(name).get_container_client("orders")
        for number in range(QUERIES):
            found = container.query_items(
                "SELECT * FROM c WHERE c.customerId = @customer",
                parameters=[{"name": "@customer", "value": f"c{number % CUSTOMERS}"}],
                enable_cross_partition_query=True,
            )
            assert len(list(found)) == ROWS // CUSTOMERS
        container.read_item("o7", partition_key="s1")
    (capture,) = command(operator, "capture", "list", place)[1]["captures"]
    command(operator, "capture", "stop", place, capture["id"])
    file = tmp_path / "capture.gz"
    command(operator, "capture", "save", place, capture["id"], str(file))

    code, alone = command(operator, "advise", place)
    assert code == 3 and alone["rows"]["read"] == ROWS
    code, content = command(operator, "advise", place, "--requests", str(file), "--size", "400GB")
    assert code == 0, content["undecided"]
    assert content["best"] == "/customerId", content["text"]
    assert content["inputs"]["captured"] == ROWS + QUERIES + 1
    words = {each["key"]: each["verdict"] for each in content["candidates"]}
    assert words["/state"] == "impossible"
    fan_out = {each["key"]: each["scores"]["fanOut"]["value"] for each in content["candidates"]}
    assert fan_out["/customerId"] == 1.0 and fan_out["/state"] > 1.0
    assert not any("could not be joined" in warning for warning in content["warnings"])
