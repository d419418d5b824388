"""`armillary simulate`: what it prints and writes, variations, refusals, and the same bytes for the same input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from armillary.errors import Failure
from armillary.insight.simulation.variations import parse_variations, varied
from armillary.tools.cli import main
from armillary.tools.foresight.simulate import spark

WORKLOAD = """
container = { partition_key = ["/customerId"], throughput = 20000 }
data = { size = "10GB", item_bytes = 1024, keys = { explicit = { "<b>hot</b>" = 0.3, cool = 0.4, cold = 0.3 } } }
operations = [{ kind = "create", rate = 500 }, { kind = "query", rate = 60, filter = ["/other"], rows = 10 }]
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "workload.toml"
    path.write_text(WORKLOAD)
    return str(path)


def test_the_output_fits_80_columns(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--workload", file, "--for", "1mo", "--step", "1h"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    text = "\n".join(lines)
    assert "In the end 3 keys are full" in text
    assert "Prices of 2024-07-01" in text
    assert "Not known here: the latency of the cloud" in text


def test_the_same_input_gives_the_same_bytes(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages, texts = [], []
    for turn in range(2):
        page = tmp_path / f"{turn}.html"
        assert (
            main(["simulate", "--workload", file, "--for", "10d", "--step", "1h", "--json", "--html", str(page)]) == 0
        )
        pages.append(page.read_bytes())
        texts.append(capsys.readouterr().out)
    assert pages[0] == pages[1]
    assert texts[0] == texts[1]
    content = json.loads(texts[0])
    assert content["version"] == 1
    assert len(content["timeline"]) == 240


def test_the_page_escapes_values_and_has_no_script(file: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["simulate", "--workload", file, "--for", "1mo", "--step", "1h", "--html", str(page), "--json"]) == 0
    text = page.read_text("utf-8")
    assert "<b>hot</b>" not in text
    assert "&lt;b&gt;hot&lt;/b&gt;" in text
    assert "<script" not in text
    assert "://" not in text
    assert len(text) < 500_000


def test_variations_are_compared(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "--workload", file, "--for", "5d", "--step", "1h", "--vary", "throughput=20000,40000"]
    page = tmp_path / "runs.html"
    assert main([*arguments, "--vary", "operations.0.rate=100,500", "--html", str(page)]) == 0
    text = capsys.readouterr().out
    assert " 4: throughput = 40000, operations.0.rate = 500" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "differs from run 1" in text
    assert "<b>" in page.read_text("utf-8")
    assert main([*arguments, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [each["values"] for each in runs] == [{"throughput": 20_000}, {"throughput": 40_000}]
    assert runs[0]["differing"] == []
    assert {"money", "partitions"} <= set(runs[1]["differing"])


def test_values_of_variations() -> None:
    assert parse_variations(["a=1,2.5", "b=x,true"]) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": True},
        {"a": 2.5, "b": "x"},
        {"a": 2.5, "b": True},
    ]
    document = {"container": {"throughput": 400, "partition_key": ["/a"]}, "operations": [{"rate": 2.0}]}
    changed = varied(document, {"autoscale": 1_000, "rates": 3})
    assert changed == {"container": {"autoscale": 1_000, "partition_key": ["/a"]}, "operations": [{"rate": 6.0}]}
    assert document["operations"] == [{"rate": 2.0}]
    assert varied(document, {"operations.0.rate": 7})["operations"] == [{"rate": 7}]
    with pytest.raises(Failure, match=r"--vary thruput: a workload has no such field; .*throughput"):
        varied(document, {"thruput": 7})


def test_other_seeds_lay_keys_elsewhere(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(file).write_text(WORKLOAD.replace('explicit = { "<b>hot</b>" = 0.3, cool = 0.4, cold = 0.3 }', "uniform = 40"))
    assert main(["simulate", "--workload", file, "--for", "2d", "--step", "1h", "--vary", "seed=1,2,1", "--json"]) == 0
    found = [each["result"]["totals"]["normalizedP99"] for each in json.loads(capsys.readouterr().out)["runs"]]
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["throughput"], "expected a name and values"),
        (["a=1,"], "a value is empty"),
        (["a=1", "a=2"], "names a twice"),
        (["a=1,2,3,4,5,6,7,8,9", "b=1,2,3,4,5,6,7,8"], "makes 72 runs; at most 64"),
    ],
)
def test_wrong_variations_are_refused(texts: list[str], expected: str) -> None:
    with pytest.raises(Failure, match=expected):
        parse_variations(texts)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--vary", "operations.7.rate=1"], "--vary operations.7.rate: the workload has no such field"),
        (["--vary", "data.colour=red"], "data.colour is not known; known are"),
        (["--vary", "rates=many"], "--vary rates=many: expected a factor"),
        (["--vary", "seed=-1"], "--vary seed=-1: expected a whole number"),
        (["--for", "1s"], "--for is 1s; expected a time from 1min"),
        (["--for", "12mo", "--step", "1s"], "365.0 days in steps of 1 s"),
        (["--prices", "none.toml"], "none.toml cannot be read"),
    ],
)
def test_refusals_of_the_command(
    arguments: list[str], expected: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--workload", file, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"armillary: {expected}")


def test_without_numpy_the_extra_is_named(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("armillary.insight.simulation.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert main(["simulate", "--workload", file]) == 2
    assert "pip install 'armillary[foresight]'" in capsys.readouterr().err


def test_lines_of_blocks() -> None:
    assert spark([0.0, 0.0, 0.0]) == "▁▁▁"
    assert spark([0.0, 1.0, 2.0, 7.0]) == "▁▂▃█"
    assert len(spark([float(number) for number in range(1_000)])) == 48
