"""Estimates and simulations over the control API of a real server."""

from __future__ import annotations

from typing import Any

import pytest
from support.server_operator import Operator

WORKLOAD = {
    "container": {"partition_key": ["/customerId"], "throughput": 20_000},
    "data": {"item_bytes": 1024, "terms": 10, "keys": {"zipf": 1.0, "count": 100_000}},
    "operations": [{"kind": "create", "rate": 1000}, {"kind": "read", "rate": 5000}],
}


def ended(operator: Operator, job: str) -> dict[str, Any]:
    while True:
        found: dict[str, Any] = operator.ask("GET", f"jobs/{job}?wait=5000")
        if found["state"] in ("done", "failed"):
            return found


def test_an_estimate_is_answered_at_once(operator: Operator) -> None:
    found = operator.ask("POST", "estimate", {"workload": WORKLOAD, "for": "30d"})
    assert found["required"]["manual"]["throughputRu"] >= 12_000
    assert found["provisioned"] is not None
    small = {**WORKLOAD, "container": {"partition_key": ["/customerId"]}}
    assert operator.ask("POST", "estimate", {"workload": small})["provisioned"] is None


def test_simulations_are_jobs(operator: Operator) -> None:
    job = operator.ask("POST", "simulations", {"workload": WORKLOAD, "for": "30d"})["job"]
    found = ended(operator, job)
    assert (found["kind"], found["state"], found["share"]) == ("simulation", "done", 1.0)
    assert found["result"]["totals"]["partitions"] > 30
    compared = {"workload": WORKLOAD, "for": "5d", "vary": ["container.throughput=20000,40000"]}
    runs = ended(operator, operator.ask("POST", "simulations", compared)["job"])["result"]["runs"]
    assert [each["values"] for each in runs] == [{"container.throughput": 20_000}, {"container.throughput": 40_000}]
    assert operator.send("DELETE", f"jobs/{job}")[0] == 200
    assert operator.send("GET", f"jobs/{job}")[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("estimate", {"workload": []}, "'workload' must be an object"),
        ("estimate", {"workload": {}}, "container"),
        ("estimate", {"workload": WORKLOAD, "for": "soon"}, "'for' must be a time such as 30d"),
        ("estimate", {"workload": WORKLOAD, "horizon": "1d"}, "Unknown field 'horizon'"),
        (
            "estimate",
            {"workload": WORKLOAD | {"data": {"item_bytes": 1, "keys": {"file": "/etc/passwd"}}}},
            "cannot name",
        ),
        ("simulations", {"workload": WORKLOAD, "as": "moon"}, "one of armillary, cloud"),
    ],
)
def test_what_cannot_be_answered_is_refused(operator: Operator, path: str, body: Any, sentence: str) -> None:
    status, answer = operator.send("POST", path, body)
    assert status == 400
    assert sentence in answer.decode()


def test_a_simulation_that_cannot_be_made_says_why(operator: Operator) -> None:
    workload = {**WORKLOAD, "container": {"partition_key": ["/customerId"]}}
    found = ended(operator, operator.ask("POST", "simulations", {"workload": workload})["job"])
    assert found["state"] == "failed"
    assert "needs one of throughput, autoscale and serverless" in found["error"]
