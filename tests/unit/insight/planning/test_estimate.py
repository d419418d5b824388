"""What a workload needs: the orders of the worked example as a workload, and the command's own cases."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from unit.insight.planning.orders import CUSTOMERS

from armillary.errors import Failure
from armillary.insight.planning.estimate import EstimateOptions, estimate
from armillary.insight.planning.prices import own_prices
from armillary.insight.planning.workload import read_workload
from armillary.insight.report.estimate_page import estimate_page
from armillary.tools.cli import main

DAY_S = 86_400.0


def document(**changes: Any) -> dict[str, Any]:
    return {
        "container": {"partition_key": ["/customerId"]},
        "data": {
            "size": "300GB",
            "item_bytes": 1024,
            "terms": 10,
            "keys": {"explicit": {str(key): rows for key, rows in CUSTOMERS.items()}},
        },
        "operations": [
            {"kind": "create", "rate": 100},
            {"kind": "read", "rate": 500},
            {"kind": "query", "rate": 60, "filter": ["/customerId"], "rows": 10},
            {"kind": "query", "rate": 30, "filter": ["/country"], "rows": 20},
            {"kind": "query", "rate": 10, "filter": ["/id"], "rows": 1},
        ],
        **changes,
    }


def estimated(content: dict[str, Any], options: EstimateOptions | None = None) -> dict[str, Any]:
    return estimate(read_workload(content, str), own_prices(), options)


def test_orders_by_customer() -> None:
    found = estimated(document())
    manual = found["required"]["manual"]
    assert (manual["throughputRu"], manual["partitions"], manual["createWithRu"]) == (4_500, 8, 4_500)
    assert manual["monthly"]["throughput"] == 262.8
    assert manual["ingestDays"] == pytest.approx(300 * 1024**2 * 7 / 4_500 / DAY_S, rel=0.005)
    assert manual["monthly"]["storage"] == 75.0
    assert found["peak"]["totalRu"] == pytest.approx(2_876, rel=0.005)
    assert found["peak"]["hottestRu"] == pytest.approx(388.6, rel=0.005)
    assert found["peak"]["fanOut"] == pytest.approx(3.8)
    assert found["keys"]["effectiveKeys"] == pytest.approx(1_000)
    assert found["keys"]["fullOnDay"] == pytest.approx(2_391, rel=0.005)
    assert found["warnings"] == []
    assert found["provisioned"] is None
    assert found["breakEven"]["serverlessBelowUse"] == pytest.approx(0.089, rel=0.005)


def test_the_throughput_of_the_workload_is_judged() -> None:
    container = {"partition_key": ["/customerId"], "throughput": 3_000}
    found = estimated(document(container=container))["provisioned"]
    assert (found["partitions"], found["ruPerPartition"]) == (8, 375.0)
    assert found["normalizedRu"] == pytest.approx(388.6 / 375, rel=0.005)
    refused = found["hottestRefusedShare"]
    assert 0.05 < refused["low"] < refused["value"] < refused["high"] < 0.2
    changed = estimated(
        document(container=container, changes=[{"at": "P1D", "throughput": 6_000}]),
        EstimateOptions(horizon_s=2 * DAY_S),
    )
    assert changed["provisioned"]["throughputRu"] == 6_000


def test_autoscale_is_billed_by_the_hours_of_a_week() -> None:
    even = estimated(document())["required"]["autoscale"]
    nights = document(shape={"daily": [0.1] * 16 + [1.0] * 8})
    assert estimated(nights)["required"]["autoscale"]["monthly"]["throughput"] < 0.5 * even["monthly"]["throughput"]
    dynamic = estimated(nights, EstimateOptions(is_dynamic=True))["required"]["autoscale"]["monthly"]
    assert dynamic["throughput"] <= estimated(nights)["required"]["autoscale"]["monthly"]["throughput"]


def test_growth_and_ttl() -> None:
    year = EstimateOptions(horizon_s=365 * DAY_S)
    grown = estimated(document(), year)
    assert grown["storage"]["bytes"] > 10 * 300 * 1024**3
    data = {**document()["data"], "ttl_days": 30}
    kept = estimated(document(data=data), year)
    assert kept["storage"]["bytes"] == pytest.approx(300 * 1024**3)
    cloud = estimated(document(), EstimateOptions(index_share=0.2))
    assert cloud["storage"]["bytes"] == pytest.approx(360 * 1024**3)


@pytest.mark.parametrize("growth", [1.2, 0.5])
def test_rates_that_grow_write_more_and_fill_keys_earlier(growth: float) -> None:
    """Bytes are the sum over time, as the simulator has them, not today's rate all the time."""
    year = EstimateOptions(horizon_s=365 * DAY_S)
    data = {"size": "0GB", "item_bytes": 1024, "keys": {"uniform": 1}}
    steady = estimated(document(data=data), year)
    changed = estimated(document(data=data, shape={"growth_per_month": growth}), year)
    months = 12.0
    times = (growth**months - 1) / math.log(growth) / months
    assert changed["storage"]["bytes"] == pytest.approx(times * steady["storage"]["bytes"], rel=1e-3)
    days, before = changed["keys"]["fullOnDay"], steady["keys"]["fullOnDay"]
    assert days is not None and (days < before if growth > 1 else days > before)


def test_what_cannot_be_computed_is_refused() -> None:
    huge = document(operations=[{"kind": "create", "rate": 1e9}])
    with pytest.raises(Failure, match="more than 16,384 partitions"):
        estimated(huge, EstimateOptions(horizon_s=365 * DAY_S))
    with pytest.raises(Failure, match="grow beyond all numbers"):
        estimated(document(shape={"growth_per_month": 10}), EstimateOptions(horizon_s=365_000 * DAY_S))
    with pytest.raises(Failure, match="expected a size from 1 byte on"):
        estimated(document(limits={"partition_storage": "0GB"}))


def test_a_spike_on_one_key_needs_more() -> None:
    spike = {"at": "P1D", "hours": 2, "factor": 3, "key": "c-0001"}
    with_spike = estimated(document(shape={"spikes": [spike]}))["required"]["manual"]
    assert with_spike["throughputRu"] > 20_000
    assert with_spike["surcharge"] > 2
    too_hot = estimated(document(shape={"spikes": [{**spike, "factor": 9}]}))
    assert too_hot["required"]["manual"] is None
    assert any(text.startswith("No manual throughput") for text in too_hot["warnings"])


def test_few_values_and_full_keys_are_warned_of() -> None:
    data = {**document()["data"], "keys": {"explicit": {"de": 0.76, "at": 0.12, "ch": 0.07, "fr": 0.05}}, "size": 0}
    found = estimated(document(data=data))
    assert found["keys"]["fullOnDay"] == pytest.approx(20 / (0.76 * 100 * 1024 * DAY_S / 1024**3), rel=0.005)
    assert "The key de reaches 20 GB on day 3.2" in " ".join(found["warnings"])
    grown = estimated(document(data={**data, "size": "300GB"}))
    assert "4 values are few for 6 partitions: 72 " in " ".join(grown["warnings"])


def test_the_page_escapes_values_and_has_no_script() -> None:
    data = {**document()["data"], "keys": {"explicit": {"<script>alert(1)</script>": 1.0}}}
    page = estimate_page(estimated(document(data=data)), "1.0")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "http://" not in page
    assert "https://" not in page


WORKLOAD = """
container = { partition_key = ["/customerId"], throughput = 20000 }
data = { size = "100GB", item_bytes = 1024, keys = { zipf = 0.8, count = 100_000 } }
operations = [{ kind = "create", rate = 500 }, { kind = "query", rate = 60, filter = ["/other"], rows = 10 }]
"""


def test_the_command_fits_80_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page = tmp_path / "w.toml", tmp_path / "e.html"
    file.write_text(WORKLOAD)
    assert main(["estimate", "--workload", str(file), "--for", "12mo", "--html", str(page)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    text = "\n".join(lines)
    assert re.search(r"manual +\d", text)
    assert "prices of 2024-07-01" in text
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_the_command_takes_rates_and_answers_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["estimate", "--reads", "500", "--creates", "100", "--item-size", "1KB", "--size", "300GB", "--json"]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert main(arguments) == 0
    assert capsys.readouterr().out == first
    assert json.loads(first)["required"]["manual"]["throughputRu"] == 1_800


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "Give --workload FILE, or rates"),
        (["--workload", "none.toml"], "none.toml cannot be read: No such file"),
        (["--workload", "x", "--reads", "1"], "--reads goes without --workload"),
        (["--reads", "1", "--size", "many"], "--size is 'many'; expected a size"),
        (["--reads", "1", "--for", "long"], "--for is 'long'; expected a time"),
        (["--reads", "1", "--utilisation", "7"], "--utilisation is 7; expected"),
        (["--reads", "1", "--index-share", "0.1"], "--index-share goes with --as cloud"),
        (["--reads", "1", "--seed", "-1"], "--seed is -1"),
        (["--reads", "1", "--throughput", "450"], "--throughput: The offer should"),
        (["--creates", "1", "--reads", "-5"], "--reads is -5.0; expected a number from 0 to 1,000,000,000."),
        (["--cross-queries", "1", "--rows", "-5"], "--rows is -5.0; expected"),
        (["--reads", "1", "--distinct", "0"], "--distinct is 0; expected a whole number from 1 to"),
        (["--reads", "1", "--zipf", "9"], "--zipf is 9.0; expected a number from 0 to 5."),
        (["--reads", "1", "--zipf", "1", "--distinct", "0"], "--distinct is 0; expected"),
    ],
)
def test_refusals_of_the_command(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"armillary: {expected}")


def test_options_for_the_limits_of_partitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They hold for all commands, before the limits of the workload file; a key holds no more than its partition."""
    rates = ("--reads", "500", "--creates", "100", "--size", "300GB")
    assert main(["estimate", *rates, "--partition-storage", "10GB", "--partition-throughput", "5000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["required"]["manual"]["partitions"] == 32
    assert "A partition holds 10 GB and carries 5,000 RU/s, one key holds 10 GB" in found["assumptions"][1]
    file = tmp_path / "workload.toml"
    file.write_text(
        'container = { partition_key = ["/k"], throughput = 4000 }\nlimits = { partition_storage = "40GB" }\n'
        'data = { size = "300GB", item_bytes = 1024, keys = { uniform = 5000 } }\n'
        'operations = [{ kind = "create", rate = 10 }]\n'
    )
    planned = ["simulate", "--workload", str(file), "--for", "2d", "--json"]
    counts = []
    for options in ((), ("--partition-storage", "5GB")):
        assert main([*planned, *options]) == 0
        counts.append(json.loads(capsys.readouterr().out)["timeline"][-1]["partitions"])
    assert counts[1] >= 4 * counts[0]
    assert main([*planned, "--partition-storage", "5GB", "--vary", "limits.partition_storage=1GB,2GB"]) == 2
    assert "goes without options for the limits" in capsys.readouterr().err


def test_no_throughput_beyond_the_maximum_is_advised(capsys: pytest.CaptureFixture[str]) -> None:
    """20 TB are more partitions than the highest throughput creates, and carry more than may be set."""
    assert main(["estimate", "--reads", "500", "--creates", "10", "--size", "20TB"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "create with 1,000,000 RU/s (167 partitions, which split as they fill up), done in" in said
    assert "Up to 1,000,000 RU/s no partition has to split." in said
    assert main(["estimate", "--reads", "500", "--creates", "10", "--size", "2TB"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "scale to 520,000, done in" in said and "Up to 640,000 RU/s no partition has to split." in said


def test_what_is_not_in_the_report_rests_on_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--reads", "500", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["provisioned"] is None and "provisioned" not in content["restsOn"]
    assert all(content[part] is not None for part in content["restsOn"])
