"""`armillary advise`: sources, what it prints and writes, exit codes, refusals, the same bytes for the same input."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.json_schema import faults

from armillary.insight.advice.reading import value_counts
from armillary.tools.cli import main

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "advice-schema.json").read_text())
WORKLOAD = """
container = { partition_key = ["/id"] }
data = { item_bytes = 500, keys = { uniform = 100 } }
operations = [
    { kind = "create", rate = 100 },
    { kind = "query", rate = 60, filter = ["/customer/id"], rows = 10 },
    { kind = "query", rate = 30, filter = ["/country"], rows = 20 },
]
"""
HOSTILE = "<script>alert(1)</script>\x1b[31m"


def row(number: int) -> dict[str, Any]:
    return {
        "id": f"o{number}",
        "customer": {"id": f"c{number * 7919 % 400}"},
        "country": HOSTILE if number % 4 else "at",
        "at": f"2026-01-{1 + number // 60 % 28:02}T10:{number % 60:02}:00Z",
    }


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("rows") / "orders.jsonl"
    path.write_text("".join(json.dumps(row(number)) + "\n" for number in range(1_500)))
    return str(path)


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("load") / "workload.toml"
    path.write_text(WORKLOAD)
    return str(path)


@pytest.fixture
def advised(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = main(["advise", *arguments, "--json"])
        said = capsys.readouterr()
        assert code != 2, said.err
        content = json.loads(said.out)
        assert faults(content, SCHEMA) == []
        return code, content

    return run


Advised = Callable[..., tuple[int, dict[str, Any]]]


def test_the_verdict_as_json(advised: Advised, rows: str, workload: str) -> None:
    code, content = advised(rows, "--workload", workload, "--size", "300GB")
    assert code == 0 and content["best"] == "/customer/id" and content["verdict"] == "good"
    assert content["text"].startswith("Use /customer/id. /country alone reaches 20 GB for ")
    words = {each["key"]: each["verdict"] for each in content["candidates"]}
    assert words["/country"] == "impossible"
    assert content["rows"]["read"] == 1_500 and content["rows"]["writtenAt"] == "/at"


def test_undecided_is_exit_code_3(advised: Advised, rows: str) -> None:
    code, content = advised(rows)
    assert code == 3 and content["best"] is None and content["verdict"] == "undecided"
    assert content["undecided"] and content["conditions"]


def test_the_same_input_gives_the_same_bytes(rows: str, workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    def said() -> str:
        main(["advise", rows, "--workload", workload, "--json", "--seed", "5"])
        return capsys.readouterr().out

    assert said() == said()


def test_the_output_fits_80_columns(rows: str, workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", rows, "--workload", workload, "--size", "300GB"]) == 0
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.startswith("Use /customer/id.") and "\x1b" not in text
    assert "What would change the verdict" in text and "Assumptions" in text


def test_the_report_is_one_small_page_without_script(rows: str, workload: str, tmp_path: Path) -> None:
    page = tmp_path / "advice.html"
    assert main(["advise", rows, "--workload", workload, "--size", "300GB", "--json", "--html", str(page)]) == 0
    text = page.read_text()
    assert len(text.encode()) < 500_000
    assert "<script" not in text and "&lt;script&gt;" in text and "\x1b" not in text
    assert re.findall(r'(?:src|href)="', text) == []
    assert "Use /customer/id." in text and "<svg" in text


def test_sources(advised: Advised, tmp_path: Path, workload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    items = [row(number) for number in range(1_100)]
    (tmp_path / "rows.json").write_text(json.dumps(items))
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt") as packed:
        packed.writelines(json.dumps(item) + "\n" for item in items)
    with (tmp_path / "rows.csv").open("w", newline="") as table:
        writer = csv.writer(table)
        writer.writerow(["id", "customer.id", "country", "at"])
        writer.writerows([item["id"], item["customer"]["id"], item["country"], item["at"]] for item in items)
    for name in ("rows.json", "rows.jsonl.gz", "rows.csv"):
        code, content = advised(str(tmp_path / name), "--workload", workload, "--size", "300GB")
        assert (code, content["rows"]["read"]) == (0, 1_100), name
        assert content["best"] == "/customer/id" or name == "rows.csv"
    stream = io.TextIOWrapper(io.BytesIO("".join(json.dumps(item) + "\n" for item in items).encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    code, content = advised("-", "--workload", workload, "--size", "300GB")
    assert content["best"] == "/customer/id"


def test_broken_rows_are_counted(advised: Advised, tmp_path: Path, workload: str) -> None:
    lines = [json.dumps(row(number)) for number in range(1_200)]
    lines[5:5] = ["{broken", "[1, 2]", '"text"', '{"a":' * 2_000, "\ufeff{}", ""]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(lines))
    code, content = advised(str(file), "--workload", workload, "--size", "300GB")
    assert code == 0 and content["rows"]["bad"] == 5
    assert content["rows"]["badExamples"][0].startswith("row 6: It is not JSON")
    assert any("5 rows could not be read" in warning for warning in content["warnings"])


def test_candidates_that_are_asked_for(advised: Advised, rows: str, workload: str) -> None:
    _, content = advised(
        rows, "--workload", workload, "--candidate", "/country,/customer/id", "--candidate", "/nothing"
    )
    found = {each["key"]: each for each in content["candidates"]}
    assert found["/country,/customer/id"]["kind"] == "hierarchical"
    assert found["/nothing"]["verdict"] == "impossible" and found["/nothing"]["gates"][0]["gate"] == "G1"


def test_the_cloud_counts_the_index(advised: Advised, rows: str, workload: str) -> None:
    _, own = advised(rows, "--workload", workload, "--items", "1000000")
    _, cloud = advised(rows, "--workload", workload, "--items", "1000000", "--as", "cloud")
    assert cloud["inputs"]["sizeBytes"] == pytest.approx(1.2 * own["inputs"]["sizeBytes"], rel=1e-4)


def test_growth_and_horizon(advised: Advised, rows: str, workload: str) -> None:
    _, content = advised(rows, "--workload", workload, "--size", "10GB", "--growth", "1GB/week", "--horizon", "70d")
    assert content["inputs"]["horizonBytes"] == pytest.approx(20 * 1024**3, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["no-such.jsonl"], "no-such.jsonl cannot be read"),
        (["{rows}", "--growth", "much"], "--growth is 'much'; expected a size by time such as 2GB/day."),
        (["{rows}", "--size", "1GB", "--items", "5"], "Give --size or --items, not both."),
        (["{rows}", "--throughput", "400", "--serverless"], "Give one of --throughput and --serverless."),
        (["{rows}", "--candidate", "/a,/b,/c,/d"], "has 4 levels"),
        (["{rows}", "--candidate", "/a,/a"], "names a path twice"),
        (["{rows}", "--candidate", "a"], "could not be accepted"),
        (["{rows}", "--rows", "5"], "--rows is 5; expected a number from 1000"),
        (["{rows}", "--presence", "2"], "--presence is 2; expected a share from 0 to 1."),
        (["{rows}", "--index-share", "0.3"], "--index-share goes with --as cloud"),
        (["{rows}", "--workload", "none.toml"], "none.toml cannot be read"),
        (["{rows}", "--requests", "none.gz"], "none.gz cannot be read"),
        (["{rows}", "--requests", "{rows}"], "is damaged, or is no capture"),
    ],
)
def test_refusals(arguments: list[str], expected: str, rows: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", *(each.replace("{rows}", rows) for each in arguments)]) == 2
    said = capsys.readouterr()
    assert expected in said.err and said.out == ""


def test_without_the_extra_it_names_it(
    rows: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(value_counts, "datasketches", None)
    assert main(["advise", rows]) == 2
    assert "pip install 'armillary[foresight]'" in capsys.readouterr().err


def test_what_is_unique_is_looked_at(advised: Advised, rows: str, workload: str, tmp_path: Path) -> None:
    file = tmp_path / "definition.json"
    file.write_text(json.dumps({"uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/at"]}]}}))
    options = (rows, "--workload", workload, "--size", "300GB", "--definition", str(file))
    _, content = advised(*options)
    assert any(text.startswith("the unique key (/at) holds inside one value of /cust") for text in content["warnings"])
    indexes = [{"key": {"_id": 1}, "unique": True}, {"key": {"country": 1, "id": 1}, "unique": True, "name": "c"}]
    file.write_text(json.dumps({"indexes": indexes}))
    _, content = advised(*options)
    found = {each["key"]: [gate["gate"] for gate in each["gates"]] for each in content["candidates"]}
    assert "G6" in found["/customer/id"] and found["/id"] == []
    assert content["best"] == "/id"


def test_definitions_that_are_none(rows: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "definition.json"
    for text in ("{", "[]", '{"indexes": 5}', '{"indexes": [{"unique": true}]}', '{"indexingPolicy": 3}'):
        file.write_text(text)
        assert main(["advise", rows, "--definition", str(file)]) == 2
        assert str(file) in capsys.readouterr().err


def test_an_export_of_the_cloud_does_not_say_what_queries_pin(advised: Advised, rows: str, tmp_path: Path) -> None:
    export = tmp_path / "requests.csv"
    lines = ["TimeGenerated [UTC],OperationName,StatusCode,RequestCharge"]
    lines += [
        f"2026-01-01T10:{number // 60 % 60:02}:{number % 60:02}Z,{'Create' if number % 2 else 'Query'},200,5.5"
        for number in range(1_200)
    ]
    export.write_text("\n".join(lines))
    code, content = advised(rows, "--requests", f"azure:{export}", "--size", "300GB")
    assert code == 3 and content["inputs"]["captured"] == 1_200
    assert content["undecided"] == [
        "the requests do not say what queries filter by (--workload, or --must with that path)"
    ]
    assert {each["key"]: each["verdict"] for each in content["candidates"]}["/country"] == "impossible"
    code, content = advised(rows, "--requests", f"azure:{export}", "--size", "300GB", "--must", "/customer/id")
    assert code == 0 and content["best"] == "/customer/id"


def test_every_figure_has_its_interval_or_what_it_rests_on(
    advised: Advised, rows: str, workload: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = (rows, "--workload", workload, "--size", "300GB", "--growth", "1GB/day")
    _, content = advised(*options)
    for each in content["candidates"]:
        for name, score in each["scores"].items():
            if score is None:
                continue
            has_interval = score["low"] is not None and score["high"] is not None
            assert has_interval or score["assumes"], (each["key"], name)
            assert not has_interval or score["low"] <= score["value"] <= score["high"], (each["key"], name, score)
        assert each["requiredRu"] is None or each["scores"]["requiredRu"]["value"] == each["requiredRu"]
    page = tmp_path / "advice.html"
    main(["advise", *options, "--html", str(page)])
    text = " ".join(capsys.readouterr().out.split())
    best = content["candidates"][0]
    for figure in best["figures"]:
        assert "(" in figure and figure in text and figure.replace("<", "&lt;") in page.read_text()
    assert "are for the requests of" in text and "intervals are about sampling alone" in text


@pytest.mark.parametrize("name", ["cut.jsonl.gz", "none.jsonl.gz"])
def test_a_damaged_archive_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = gzip.compress("".join(json.dumps(row(number)) + "\n" for number in range(2_000)).encode())
    file = tmp_path / name
    file.write_bytes(packed[: len(packed) // 2] if name.startswith("cut") else b"hello")
    assert main(["advise", str(file)]) == 2
    assert "is no whole gzip file" in capsys.readouterr().err


def test_a_line_that_is_too_long_is_a_bad_row(advised: Advised, tmp_path: Path, workload: str) -> None:
    file = tmp_path / "rows.jsonl.gz"
    with gzip.open(file, "wt", compresslevel=1) as packed:
        packed.write('{"id": "x", "text": "' + "x" * (17 << 20) + '"}\n')
        packed.writelines(json.dumps(row(number)) + "\n" for number in range(1_100))
    code, content = advised(str(file), "--workload", workload, "--size", "300GB")
    assert (code, content["rows"]["read"], content["rows"]["bad"]) == (0, 1_100, 1)
    assert "row 1: It is longer than 16 MB" in content["rows"]["badExamples"][0]


def test_ctrl_c_ends_the_reading(tmp_path: Path) -> None:
    """Also where the rows come from a pipe that is silent."""
    page = tmp_path / "advice.html"
    process = subprocess.Popen(
        [sys.executable, "-m", "armillary", "advise", "-", "--format", "jsonl", "--html", str(page)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stderr is not None
    with process.stdin, process.stderr:
        # More than a pipe holds: what is written has been read.
        process.stdin.write("".join(json.dumps(row(number)) + "\n" for number in range(4_000)).encode())
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        text = process.stderr.read().decode()
    assert process.wait() == 128 + signal.SIGINT
    assert re.search(r"ended while reading, after [\d,]+ rows; nothing is written", text)
    assert "Traceback" not in text and not page.exists()


def test_many_paths_are_bounded(advised: Advised, tmp_path: Path) -> None:
    file = tmp_path / "wide.jsonl"
    with file.open("w") as lines:
        for number in range(1_000):
            more = {f"p{number * 100 + each}": each for each in range(100)}
            lines.write(json.dumps({**row(number), **more}) + "\n")
    _, content = advised(str(file), "--must", "/customer/id")
    beyond = "values were not looked at: the rows have more than 2,000 different paths, /p"
    assert any(beyond in each for each in content["warnings"])
    assert content["rows"]["valuesNotLookedAt"] > 90_000
    assert len(content["candidates"]) <= 64


def test_a_table_of_many_columns(advised: Advised, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was left out is said; a path that is named is counted wherever its column stands."""
    file = tmp_path / "wide.csv"
    names = [f"c{column}" for column in range(2_200)]
    with file.open("w", newline="") as table:
        writer = csv.writer(table)
        writer.writerow(["id", "tenantId", *names, "region"])
        for number in range(60):
            writer.writerow([f"i{number}", f"t{number % 20}", *[number % 7] * len(names), f"r{number % 3}"])
    _, content = advised(str(file), "--candidate", "/region")
    assert content["rows"]["paths"] == 64 and content["rows"]["pathsNotCounted"] == 2_001 - 64
    assert content["rows"]["valuesNotLookedAt"] == 60 * 202
    assert {"/region", "/tenantId"} <= {each["key"] for each in content["candidates"]}
    assert main(["advise", str(file)]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "12,180 values were not looked at: the rows have more than 2,000 different paths, /c1998 is the first" in said
    )
    assert "1,936 paths were not counted" in said and "name those that matter with --candidate or --must" in said


def test_a_table_without_names_is_told(advised: Advised, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("".join(f"{number},c{number % 40},2026-01-01\n" for number in range(1_100)))
    _, content = advised(str(file))
    assert any("does the first line of the file hold values?" in each for each in content["warnings"])


def test_rows_without_ids_do_not_decide_by_themselves(advised: Advised, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"k": number % 300, "v": "x"}) + "\n" for number in range(1_100)))
    code, content = advised(str(file))
    assert code == 3 and "/id and /k" in content["undecided"][0]


def test_no_rows_are_undecided(advised: Advised, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is said of keys: of no rows all and none have a value."""
    file = tmp_path / "rows.jsonl"
    file.write_text("")
    code, content = advised(str(file))
    assert code == 3 and content["candidates"] == []
    assert content["text"] == "Undecided: there are no rows: read 1,000 more at least."
    assert main(["advise", str(file)]) == 3
    assert "impossible" not in capsys.readouterr().out


def test_a_key_of_several_types_is_told(advised: Advised, tmp_path: Path, workload: str) -> None:
    items = [row(number) for number in range(1_200)]
    for item in items[:300]:
        item["customer"]["id"] = int(item["customer"]["id"][1:])
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(item) + "\n" for item in items))
    _, content = advised(str(file), "--workload", workload, "--size", "300GB")
    warning = next(each for each in content["warnings"] if each.startswith("/customer/id"))
    assert "/customer/id holds numbers in 300 rows and texts in 900 rows" in warning
    assert re.search(r'a query for (\d+) does not find "\1"', warning)
