"""Servers of an older edition of the service: the commands and jobs that look ahead use the limits of the server that
they are about, and commands without a server those of --profile.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from control.conftest import Start
from support.process import call_armillary

from armillary.insight.planning.partition_counts import PartitionLimits
from armillary.tools.cli import main
from armillary.tools.foresight.inputs import asked_limits
from armillary.tools.profiles import PROFILES
from armillary.tools.resolve import resolve
from armillary.tools.serving.doors import account_settings

WORKLOAD: dict[str, Any] = {
    "container": {"partition_key": ["/customerId"], "throughput": 20_000},
    "data": {"size": "100GB", "item_bytes": 1024, "keys": {"uniform": 10_000}},
    "operations": [{"kind": "create", "rate": 100}],
}
TOML = """
container = { partition_key = ["/customerId"], throughput = 20000 }
data = { size = "100GB", item_bytes = 1024, keys = { uniform = 10_000 } }
operations = [{ kind = "create", rate = 100 }]
"""
OF_2018 = "A partition holds 10 GB and carries 10,000 RU/s, one key holds 10 GB"


@pytest.mark.parametrize("profile", PROFILES)
def test_limits_are_those_of_a_server_of_the_edition(profile: str) -> None:
    served = PartitionLimits.of(account_settings(resolve({"profile": profile}, {})))
    assert asked_limits({"profile": profile}) == served
    assert PartitionLimits.from_json(served.to_json()) == served


def test_commands_take_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "workload.toml"
    file.write_text(TOML)

    def asked(command: str, *options: str, code: int = 0) -> Any:
        assert main([command, "--workload", str(file), *options]) == code
        return capsys.readouterr()

    partitions = {}
    for profile in ("today", "2018"):
        found = json.loads(asked("estimate", "--profile", profile, "--json").out)
        partitions[profile] = found["provisioned"]["partitions"]
        assert found["inputs"]["partitionStorageBytes"] == (50 << 30 if profile == "today" else 10 << 30)
    # 20,000 RU/s make 4 partitions today and 2 then, which hold 100 GB as 4 of 50 GB and as 16 of 10 GB.
    assert partitions == {"today": 4, "2018": 16}
    simulated = json.loads(asked("simulate", "--profile", "2018", "--for", "1d", "--step", "1h", "--json").out)
    assert simulated["timeline"][0]["partitions"] >= 10
    assert any(OF_2018 in each for each in simulated["assumptions"])
    file.write_text(TOML.replace("20000", "1000"))
    for command in ("estimate", "simulate", "scale-model"):
        assert "between 10100 and 250000" in asked(command, "--profile", "2016", code=2).err


def test_a_live_server_is_judged_by_its_own_limits(start_operator: Start, tmp_path: Path) -> None:
    operator = start_operator("--profile", "2018", "--logical-partition-storage", "5GB")
    operator.ask("POST", "databases", {"name": "shop"})
    body = {"name": "orders", "partitionKey": "/customerId", "throughput": 1_000}
    operator.ask("POST", "databases/shop/containers", body)
    rows = tmp_path / "rows.jsonl"
    lines = (json.dumps({"id": f"o{number}", "customerId": f"c{number % 40}"}) + "\n" for number in range(1_000))
    rows.write_text("".join(lines))
    operator.command("import", str(rows), "shop/orders")
    # One of forty customers of 300 GB has 7.5 GB: too much for this server, not for today's.
    advised = ("advise", "shop/orders", "--candidate", "/customerId", "--size", "300GB", "--json")

    def verdict(*options: str) -> Any:
        outcome = call_armillary(*advised, *options, "--data", str(operator.directory))
        assert outcome.returncode in (0, 3), outcome.stderr
        return json.loads(outcome.stdout)

    own, todays = verdict(), verdict("--profile", "today")
    words = [
        next(each["verdict"] for each in content["candidates"] if each["key"] == "/customerId")
        for content in (own, todays)
    ]
    assert words[0] == "impossible" and words[1] != "impossible"
    assert any("one key holds 5 GB" in each for each in own["assumptions"])
    estimated = operator.ask("POST", "estimate", {"workload": WORKLOAD})
    assert estimated["provisioned"]["partitions"] == 16
    assert any("one key holds 5 GB" in each for each in estimated["assumptions"])
