"""Advice over the control API of a real server: on a container with what was captured, and on a file that is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from azure.cosmos import CosmosClient
from control.test_foresight_jobs import ended
from support.server_operator import Operator

BINARY = {"Content-Type": "application/octet-stream"}
ROWS = 1_200
REQUESTS = {
    "container": {"partition_key": ["/customerId"]},
    "data": {"item_bytes": 1024, "keys": {"uniform": 1000}},
    "operations": [
        {"kind": "create", "rate": 100},
        {"kind": "query", "rate": 100, "filter": ["/customerId"], "rows": 10},
    ],
}


def order(number: int) -> dict[str, Any]:
    country = "de" if number % 10 < 8 else "at"
    return {"id": f"o{number}", "customerId": f"c{number * 7 % 400}", "country": country, "note": "x" * 200}


def lines(rows: int = ROWS) -> bytes:
    return b"\n".join(json.dumps(order(number)).encode() for number in range(rows))


def upload(operator: Operator, content: bytes, part_bytes: int = 100_000) -> str:
    name = str(operator.ask("POST", "uploads", {})["id"])
    for number, at in enumerate(range(0, len(content), part_bytes)):
        send_part(operator, name, number, content[at : at + part_bytes])
    return name


def send_part(operator: Operator, name: str, number: int, part: bytes, status: int = 200) -> str:
    found, answer = operator.send_bytes("PUT", f"uploads/{name}/parts/{number}", part, BINARY)
    assert found == status, answer
    return answer.decode()


def advised(operator: Operator, body: dict[str, Any]) -> dict[str, Any]:
    found = ended(operator, operator.ask("POST", "advice", body)["job"])
    assert found["state"] == "done", found["error"]
    result: dict[str, Any] = found["result"]
    return result


def verdicts(result: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: each["verdict"] for each in result["candidates"]}


def test_a_file_that_is_sent_is_judged_and_forgotten(operator: Operator) -> None:
    name = upload(operator, lines())
    send_part(operator, name, 3, lines()[300_000:400_000])  # the last one again: its answer may have been lost
    options = {"workload": REQUESTS, "size": "500GB", "never": ["/note"], "candidates": ["/country"]}
    found = advised(operator, {"upload": name, **options})
    assert found["rows"]["read"] == ROWS and found["best"] == "/customerId"
    assert verdicts(found)["/country"] == "impossible"
    strip = found["strips"]["/country"]
    assert len(strip["byteShares"]) == len(strip["ruPerSecond"]) and sum(strip["byteShares"]) == pytest.approx(
        1, abs=1e-4
    )
    assert sum(each > 0 for each in strip["byteShares"]) == 2
    assert operator.send("DELETE", f"uploads/{name}")[0] == 404
    assert operator.send("POST", "advice", {"upload": name})[0] == 404


def test_few_rows_and_lines_that_are_no_items(operator: Operator) -> None:
    name = upload(operator, lines(5) + b'\n{"id": \n[1]\n\n')
    found = advised(operator, {"upload": name})
    assert (found["verdict"], found["rows"]["read"], found["rows"]["bad"]) == ("undecided", 5, 2)
    assert "read 995 more" in found["undecided"][0]


def test_uploads_are_bounded(operator: Operator) -> None:
    first, second = (str(operator.ask("POST", "uploads", {})["id"]) for _ in range(2))
    assert operator.send("POST", "uploads", {})[0] == 409
    assert "0 is next, not 1" in send_part(operator, first, 1, b"{}", 400)
    assert operator.send("PUT", f"uploads/{first}/parts/0", {})[0] == 415
    assert operator.send("POST", "advice", {"upload": first})[0] == 400
    for number in range(16):
        send_part(operator, first, number, b" " * (4 << 20))
    assert "larger than 64 MB" in send_part(operator, first, 16, b" ", 413)
    assert operator.send("DELETE", f"uploads/{first}")[0] == 404
    assert operator.send("DELETE", f"uploads/{second}")[0] == 200


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "An advice needs rows"),
        ({"container": "a/b", "upload": "x"}, "An advice needs rows"),
        ({"container": "orders"}, "must be DATABASE/CONTAINER"),
        ({"container": "no/such"}, "There is no container 'no/such'"),
        ({"upload": "x", "size": "much"}, "'size' must be a size such as 500GB"),
        ({"upload": "x", "growth": "1GB/fortnight"}, "'growth' must be a size a day"),
        ({"upload": "x", "horizon": "soon"}, "'horizon' must be a time"),
        ({"upload": "x", "must": ["customerId"]}, "customerId"),
        ({"upload": "x", "throughput": 400, "autoscale": 1000}, "Give one of throughput and autoscale"),
        ({"upload": "x", "workload": {}}, "container"),
        ({"upload": "x", "capture": "1"}, "A capture is of a container"),
        ({"upload": "x", "speed": 1}, "Unknown field 'speed'"),
    ],
)
def test_what_cannot_be_advised_on_is_refused(operator: Operator, body: Any, sentence: str) -> None:
    status, answer = operator.send("POST", "advice", body)
    assert status in (400, 404)
    assert sentence in answer.decode()


def test_a_container_is_judged_by_what_was_captured(operator: Operator) -> None:
    operator.ask("POST", "databases", {"name": "advised"})
    body = {"name": "orders", "partitionKey": "/country", "throughput": 20_000}
    operator.ask("POST", "databases/advised/containers", body)
    path = "databases/advised/containers/orders"
    capture = operator.ask("POST", f"{path}/captures", {"values": True})["id"]
    client = CosmosClient(operator.server.url, operator.server.key)
    container = client.get_database_client("advised").get_container_client("orders")
    for at in range(0, ROWS, 60):
        for country in ("de", "at"):
            batch = [order(number) for number in range(at, at + 60) if order(number)["country"] == country]
            container.execute_item_batch([("create", (each,)) for each in batch], country)
    assert operator.send("POST", "advice", {"container": "advised/orders", "capture": capture})[0] == 409
    operator.ask("POST", f"{path}/captures/{capture}/stop", {})
    found = advised(operator, {"container": "advised/orders", "capture": capture, "candidates": ["/country"]})
    assert (found["rows"]["read"], found["inputs"]["source"]) == (ROWS, "advised/orders")
    assert found["inputs"]["requests"] == f"the capture {capture}" and found["inputs"]["captured"] >= ROWS
    assert "/country" in verdicts(found)
    assert operator.send("POST", "advice", {"container": "advised/orders", "capture": "none"})[0] == 404
