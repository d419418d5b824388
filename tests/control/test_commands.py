"""The commands from end to end: a process that asks another one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from azure.cosmos import CosmosClient
from control.conftest import Start
from support.process import KEY, ServerProcess, call_armillary, clean_environment, run_armillary
from support.server_operator import Operator


def test_the_examples_of_the_issue(operator: Operator, name: str) -> None:
    told = operator.command(
        "containers", "create", f"{name}/orders", "--partition-key", "/customerId", "--throughput", "20000"
    )
    assert told == f"Created the container {name}/orders with 20,000 RU/s over 4 partitions.\n"
    told = operator.command("containers", "create", f"{name}/old", "--fixed")
    assert "over 1 partition." in told
    listed = operator.json("containers", "list", name)["containers"]
    assert [(each["name"], each["partitionKey"], each["fixed"]) for each in listed] == [
        ("orders", ["/customerId"], False),
        ("old", None, True),
    ]
    table = operator.command("containers", "list", name)
    assert f"{name}/orders" in table and "/customerId" in table and "none (fixed)" in table
    assert name in operator.command("databases")
    assert name in [each["name"] for each in operator.json("databases")["databases"]]
    assert operator.command("scale", f"{name}/orders", "30000") == f"{name}/orders has 30,000 RU/s.\n"
    shown = operator.json("containers", "show", f"{name}/orders")
    assert shown["throughput"]["ru"] == 30_000
    assert shown["definition"]["partitionKey"]["paths"] == ["/customerId"]
    assert operator.command("containers", "delete", f"{name}/old", "--yes") == f"Deleted the container {name}/old.\n"
    assert operator.json("databases", "delete", name, "--yes") == {"deleted": name}


def test_a_good_key_beside_a_bad_one(operator: Operator, name: str) -> None:
    for container, path in (("good", "/customer"), ("bad", "/country")):
        operator.command(
            "containers", "create", f"{name}/{container}", "--partition-key", path, "--throughput", "20000"
        )
    with CosmosClient(operator.server.url, KEY) as client:
        database = client.get_database_client(name)
        for number in range(120):
            document = {"id": str(number), "customer": f"c{number}", "country": "de", "text": "x" * 200}
            for container in ("good", "bad"):
                database.get_container_client(container).create_item(document)
    drawn = operator.command("partitions", f"{name}/good", f"{name}/bad", "--top", "3")
    assert drawn.count("Verdict: good") == 1 and drawn.count("Verdict: poor") == 1
    assert "Side by side" in drawn and "█" in drawn
    assert f"The better key is that of {name}/good: " in drawn
    assert '"de"' in drawn and "100 %" in drawn
    good, bad = operator.json("partitions", f"{name}/good", f"{name}/bad")
    assert len(good["largestKeys"]) == 10
    assert sum(each["items"] for each in good["partitions"]) == 120
    assert [each["items"] for each in bad["partitions"] if each["items"]] == [120]
    assert (good["verdict"]["verdict"], bad["verdict"]["verdict"]) == ("good", "poor")
    keys = operator.json("keys", f"{name}/bad")
    assert [(each["key"], each["items"]) for each in keys["largestKeys"]] == [(["de"], 120)]
    assert '"de"' in operator.command("keys", f"{name}/bad")
    operator.command("databases", "delete", name, "--yes")


def test_levels_autoscale_and_definitions(operator: Operator, name: str, tmp_path: Path) -> None:
    definition = tmp_path / "definition.json"
    definition.write_text(json.dumps({"defaultTtl": 60}))
    made = operator.json(
        *("containers", "create", f"{name}/c", "--partition-key", "/tenant", "--partition-key", "/user"),
        *("--autoscale", "4000", "--definition", str(definition)),
    )
    assert (made["partitionKey"], made["throughput"]["autoscale"]) == (["/tenant", "/user"], True)
    assert operator.json("containers", "show", f"{name}/c")["definition"]["defaultTtl"] == 60
    told = operator.command("scale", f"{name}/c", "--autoscale", "6000")
    assert told == f"{name}/c has up to 6,000 RU/s.\n"
    operator.command("databases", "delete", name, "--yes")


def test_refusals_are_one_sentence(operator: Operator, name: str, tmp_path: Path) -> None:
    for arguments, expected in (
        (("containers", "show", "nothing/here"), "does not exist"),
        (("containers", "show", "nothing"), "write DATABASE/CONTAINER"),
        (("containers", "create", f"{name}/c"), "--partition-key"),
        (("scale", "nothing/here"), "Give the new throughput"),
        (("scale", "nothing", "400"), "does not exist"),
        (("partitions", "nothing/here", "--top", "0"), "--top is 0"),
        (("databases", "delete", "nothing"), "Nothing was deleted"),
        (("containers", "create", f"{name}/c", "--definition", str(tmp_path / "none")), "cannot be read"),
    ):
        told = operator.command(*arguments, code=2)
        assert expected in told, told
        assert "Traceback" not in told
    assert name not in [each["name"] for each in operator.json("databases")["databases"]]


def test_who_has_no_server_or_no_key_is_told(tmp_path: Path, start_operator: Start) -> None:
    outcome = run_armillary("databases", "--data", str(tmp_path / "none"))
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert "There is no control key" in outcome.stderr
    operator = start_operator()
    assert operator.key not in operator.server.log
    outcome = run_armillary("databases", "--data", str(operator.directory), environment={"ARMILLARY_CONTROL_KEY": KEY})
    assert outcome.returncode == 2  # also a key of the account
    other = "YW5vdGhlciBrZXkgdGhhbiB0aGUgc2VydmVycw=="
    outcome = run_armillary(
        "databases", "--data", str(operator.directory), environment={"ARMILLARY_CONTROL_KEY": other}
    )
    assert "The control key is wrong" in outcome.stderr
    operator.server.stop()
    told = operator.command("databases", code=2)
    assert told.startswith(f"armillary: No server answers at {operator.server.url}")
    assert told.count("\n") == 1


def test_the_key_outlives_a_restart_and_is_for_the_owner_alone(start_operator: Start) -> None:
    first = start_operator()
    file = first.directory / "control.json"
    assert file.stat().st_mode & 0o777 == 0o600
    first.server.stop()
    second = start_operator()
    assert second.key == first.key
    assert second.json("databases") == {"databases": []}
    assert json.loads(file.read_text())["url"] == second.server.url


def test_a_server_in_memory_makes_a_key_that_commands_find(tmp_path: Path, runtime_directory: Path) -> None:
    server = ServerProcess.start(None)
    file = runtime_directory / "armillary" / f"memory-{server.port}" / "control.json"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert json.loads(file.read_text())["key"] not in server.log
    asked = ("databases", "--json")
    outcome = call_armillary(*asked, "--url", server.url, directory=tmp_path)
    assert json.loads(outcome.stdout) == {"databases": []}, outcome.stderr
    outcome = call_armillary(*asked, environment={"ARMILLARY_SQL_PORT": str(server.port)}, directory=tmp_path)
    assert json.loads(outcome.stdout) == {"databases": []}, outcome.stderr
    for arguments in (("--data", str(tmp_path / "none")), ("--url", f"http://db.example:{server.port}")):
        outcome = call_armillary(*asked, *arguments, directory=tmp_path)
        assert (outcome.returncode, "There is no control key in" in outcome.stderr) == (2, True), arguments
        told, _, running = outcome.stderr.partition(" In memory run: ")
        assert told.endswith("with --url."), outcome.stderr
        assert server.url in running.removesuffix(".\n").split(", "), "others may be of tests beside this one"
    server.stop()
    assert not file.parent.exists()


def test_a_server_in_memory_with_a_key_of_the_settings(tmp_path: Path) -> None:
    key = "Y29udHJvbCBrZXkgb2YgdGhlIHRlc3Rz"
    server = ServerProcess.start(None, "--control-key", key)
    outcome = run_armillary(
        "databases", "--json", "--url", server.url, environment={"ARMILLARY_CONTROL_KEY": key, "ARMILLARY_MEMORY": "1"}
    )
    assert json.loads(outcome.stdout) == {"databases": []}, outcome.stderr
    assert key not in server.log
    server.stop()


def test_https_with_the_servers_own_certificate(operator: Operator) -> None:
    operator.command("trust")
    url = operator.server.url.replace("http:", "https:")
    assert "databases" in operator.json("databases", "--url", url)


def test_output_may_be_closed_early(operator: Operator) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    outcome = subprocess.run(
        [sys.executable, "-m", "armillary", "databases", "--json", "--data", str(operator.directory)],
        env=clean_environment() | {"PYTHONUNBUFFERED": "1"},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    os.close(writing)
    assert outcome.stderr == ""
    assert outcome.returncode == 141
