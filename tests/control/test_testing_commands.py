"""`armillary faults`, `clock` and `mode`: what they change is felt by a client."""

from __future__ import annotations

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from control.conftest import Start
from support.process import KEY
from support.server_operator import Operator


def test_fault_rules_are_added_listed_and_removed(operator: Operator, name: str) -> None:
    container = CosmosClient(operator.server.url, KEY).create_database(name).create_container("c", PartitionKey("/pk"))
    assert "There are no fault rules." in operator.command("faults")
    selected = ("--operation", "create", "--container", f"{name}/c", "--partition-key", "K")
    told = operator.command("faults", "add", *selected, "--count", "1", "--status", "503")
    number = told.split()[1].rstrip(":")
    assert told == f'Rule {number}: create of {name}/c, key ["K"], at most 1: 503.\n'
    container.create_item({"id": "1", "pk": "other"})
    container.create_item({"id": "1", "pk": "K"})  # the client tries again
    listed = operator.command("faults", "list")
    assert [line.split()[-1] for line in listed.splitlines() if "create of" in line] == ["1"]
    assert operator.command("faults", "remove", number) == f"Removed rule {number}, which was hit 1 time.\n"
    told = operator.command("faults", "add", "--rule", '{"operations": "query", "delayMs": 5, "probability": 0.5}')
    assert told.endswith(": query, 50 %: 5 ms late.\n")
    operator.command("faults", "add", "--operation", "write", "--drop", "--after", "--every", "7")
    assert operator.command("faults", "clear") == "Removed 2 rules.\n"
    assert operator.json("faults") == {"faults": []}
    for arguments, expected in (
        (("add", "--operation", "create"), "Say what happens to the requests: give --status 429"),
        (("add", "--status", "418"), "'status' of a fault rule is one of"),
        (("add", "--rule", "{}", "--drop"), "--rule is the whole rule"),
        (("add", "--rule", "no"), "--rule is not JSON"),
        (("remove", "9"), "There is no fault rule 9"),
    ):
        assert expected in operator.command("faults", *arguments, code=2)
    operator.command("databases", "delete", name, "--yes")


def test_the_clock_is_stopped_moved_and_set_going(start_operator: Start, operator: Operator) -> None:
    assert "start the server with --clock movable" in operator.command("clock")
    assert "cannot be moved. Start it with --clock movable." in operator.command("clock", "stop", code=2)
    moved = start_operator("--clock", "movable")
    stopped = moved.json("clock", "stop")
    assert stopped["frozen"] and moved.json("clock", "show")["now"] == stopped["now"]
    for time, seconds in (("90", 90), ("15m", 900), ("1.5h", 5_400), ("2d", 172_800)):
        before = moved.json("clock")["nowSeconds"]
        assert moved.json("clock", "advance", time)["nowSeconds"] == pytest.approx(before + seconds)
    assert "expected such as 90s, 15m" in moved.command("clock", "advance", "soon", code=2)
    assert "(running, " in moved.command("clock", "run")


def test_the_mode_of_containers(operator: Operator, name: str) -> None:
    for container in ("a", "b"):
        operator.command("containers", "create", f"{name}/{container}", "--partition-key", "/pk")
    told = operator.command("mode", "enforce", f"{name}/a")
    assert told == f"{name}/a: enforce, requests beyond the budget are refused with 429.\n"
    shown = operator.json("mode")["containers"]
    modes = {each["name"]: each["mode"] for each in shown if each["database"] == name}
    assert modes == {"a": "enforce", "b": "observe"}
    changed = operator.json("mode", "off", f"{name}/a", f"{name}/b")["containers"]
    assert [each["mode"] for each in changed] == ["off", "off"]
    assert "observe" in operator.command("mode", "default")  # of all containers
    assert {each["mode"] for each in operator.json("mode")["containers"]} == {"observe"}
    operator.command("databases", "delete", name, "--yes")
