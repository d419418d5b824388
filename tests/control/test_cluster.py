"""`armillary cluster`: a cluster that is tried on this machine, as processes, and the commands that operate it."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from support.postgres import unavailable
from support.process import KEY, READY_S, call_armillary, clean_environment, run_armillary
from support.server_operator import Operator


class Trial:
    """A running `armillary cluster try`."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "armillary", "cluster", "try", *arguments],
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.said = ""
        while "Ctrl-C ends it all." not in self.said:
            self.said += (line := self._lines.get(timeout=READY_S))
            if not line:
                break

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def next_line(self) -> str:
        return self._lines.get(timeout=READY_S)

    @property
    def root(self) -> Path:
        found = re.search(r"cluster status --data (\S+)/node1", self.said)
        assert found is not None, self.said
        return Path(found.group(1))

    def url(self, node: str) -> str:
        """Of the SQL door."""
        content = json.loads((self.root / node / "control.json").read_text())
        return str(content["url"])

    def command(self, *arguments: str, node: str = "node1", code: int = 0) -> str:
        outcome = call_armillary("cluster", *arguments, "--data", str(self.root / node))
        assert outcome.returncode == code, outcome.stdout + outcome.stderr
        return outcome.stdout if code == 0 else outcome.stderr

    def json(self, *arguments: str, node: str = "node1") -> Any:
        return json.loads(self.command(*arguments, "--json", node=node))

    def end(self) -> None:
        """By Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(READY_S) == 0
        self._reading.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    running = Trial("--nodes", "3", "--regions", "eu,us")
    if running.process.poll() is not None:
        unavailable(OSError(running.said))
    yield running
    if running.process.poll() is None:
        running.end()


def test_every_node_is_printed_and_takes_requests(trial: Trial) -> None:
    for node in ("node1", "node2", "node3"):
        assert f"AccountEndpoint={trial.url(node)}/;AccountKey={KEY};" in trial.said
    with CosmosClient(trial.url("node1"), KEY) as first, CosmosClient(trial.url("node2"), KEY) as second:
        database = first.create_database("shop")
        database.create_container("orders", PartitionKey("/customer"))
        orders = second.get_database_client("shop").get_container_client("orders")
        orders.create_item({"id": "1", "customer": "a", "total": 5})
        assert database.get_container_client("orders").read_item("1", "a")["total"] == 5


def test_the_status_for_people_and_for_programs(trial: Trial) -> None:
    content = trial.json("status", node="node2")
    assert [(each["name"], each["region"]) for each in content["nodes"]] == [
        ("node1", "eu"),
        ("node2", "us"),
        ("node3", "eu"),
    ]
    assert all(each["alive"] and each["reached"] and each["lagRows"] is not None for each in content["nodes"])
    assert content["leader"] == "node1" and content["node"] == "node2"
    assert content["log"]["newestRow"] >= 2 and content["log"]["bytes"] > 0
    assert content["log"]["wantsSynchronousStandby"] is False
    said = trial.command("status", node="node3")
    assert re.search(r"node1 leads in epoch \d+; asked: node3\.", said)
    assert "follower" in said and "Log: rows 1 to" in said
    assert "losing its disk loses acknowledged writes" in said


def test_control_requests_are_answered_by_every_node(trial: Trial) -> None:
    """Their key is the same; what is of the account goes to the leader."""
    keys = {json.loads((trial.root / node / "control.json").read_text())["key"] for node in ("node1", "node2")}
    assert len(keys) == 1
    outcome = call_armillary("databases", "create", "other", "--data", str(trial.root / "node3"))
    assert outcome.returncode == 0, outcome.stderr


def test_failover_and_drain(trial: Trial) -> None:
    assert trial.json("failover-region", "us", node="node3") == {"leader": "node2"}
    assert trial.command("failover", "node3") == "node3 leads now.\n"
    assert trial.json("status")["priorities"] == ["us", "eu"]
    assert "does not lead until" in trial.command("drain", "node2", node="node3")
    assert "no live node 'node2'" in trial.command("failover", "node2", code=2)
    assert "node2 may lead again" in trial.command("undrain", node="node2")
    assert trial.command("failover", "node2") == "node2 leads now.\n"
    assert "is alive" in trial.command("remove", "node1", node="node2", code=2)
    assert "no node 'node9'" in trial.command("remove", "node9", code=2)
    for arguments in (("plan",), ("placement", "--replicas", "2"), ("move", "1", "node1"), ("drain", "--empty")):
        assert "This cluster has one log" in trial.command(*arguments, code=2)
    assert not any(each["drained"] for each in trial.json("status")["nodes"]), "a refusal changes nothing"
    with CosmosClient(trial.url("node1"), KEY) as client:
        orders = client.get_database_client("shop").get_container_client("orders")
        assert orders.read_item("1", "a")["total"] == 5, "nothing is lost"
        orders.upsert_item({"id": "2", "customer": "a"})


def test_nodes_have_the_same_state(trial: Trial) -> None:
    content = trial.json("verify", node="node1")
    assert content["complete"] and content["equal"]
    assert len({each["digest"] for each in content["nodes"]}) == 1 and len(content["nodes"]) == 3
    assert "3 of 3 nodes have the same state." in trial.command("verify", node="node2")


def test_metrics_of_a_node(trial: Trial) -> None:
    class Place:
        directory, url = trial.root / "node3", trial.url("node3")

    operator = Operator(Place())  # type: ignore[arg-type]
    assert operator.metric("cluster_leads") == 0
    assert operator.metric("cluster_epoch") >= 1
    assert operator.metric("cluster_live_nodes") == 3
    assert operator.metric("cluster_log_readable") == 1
    assert operator.metric("cluster_log_bytes") > 0
    assert operator.metric("cluster_synchronous_standby_missing") == 0
    assert operator.metric("cluster_forwards_total") >= 1
    assert operator.send("GET", "ready", headers={"Authorization": ""})[0] == 200


def test_a_node_that_is_killed_is_reported_and_the_others_go_on(trial: Trial) -> None:
    leader = trial.json("status")["leader"]
    found = re.search(rf"^ *{leader} +\w+ +(\d+) ", trial.said, re.MULTILINE)
    assert found is not None
    os.kill(int(found.group(1)), signal.SIGKILL)
    assert f"{leader} has ended with -9." in trial.next_line()
    other = next(each for each in ("node1", "node2", "node3") if each != leader)
    with CosmosClient(trial.url(other), KEY, enable_endpoint_discovery=False) as client:
        orders = client.get_database_client("shop").get_container_client("orders")
        orders.upsert_item({"id": "3", "customer": "a"})
    status = trial.json("status", node=other)
    assert status["leader"] not in (None, leader)
    assert [each["reached"] for each in status["nodes"] if each["name"] == leader] == [False]
    compared = call_armillary("cluster", "verify", "--json", "--data", str(trial.root / other))
    assert compared.returncode == 1, "a node was not compared"
    assert json.loads(compared.stdout)["equal"]


def test_interrupting_ends_it_all(trial: Trial) -> None:
    root = trial.root
    trial.end()
    assert not root.exists()


def test_a_directory_that_is_not_empty_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    outcome = run_armillary("cluster", "try", "--keep", str(tmp_path))
    assert outcome.returncode == 2
    assert "is not empty" in outcome.stderr


@pytest.mark.parametrize("arguments", [("--nodes", "0"), ("--nodes", "x"), ("--standbys", "9")])
def test_numbers_that_are_refused(arguments: tuple[str, ...]) -> None:
    outcome = call_armillary("cluster", "try", *arguments)
    assert outcome.returncode == 2
    assert "is not a whole number from" in outcome.stderr


def test_a_single_server_refuses(operator: Operator) -> None:
    for verb in (
        ("status",),
        ("failover",),
        ("failover-region", "eu"),
        ("drain",),
        ("undrain",),
        ("remove", "x"),
        ("verify",),
        ("plan",),
        ("move", "1"),
    ):
        assert "This is a single server, not a node of a cluster." in operator.command("cluster", *verb, code=2)
    assert operator.metric("cluster_epoch") == 0
