"""Every number of a report has its interval, or the report says what it rests on: all commands that look ahead, as
JSON, in a terminal of 80 columns and as a page. Of the JSON every number is looked at; the terminal and the page may
show no number that the JSON does not have, and show both ends of every interval beside its value.
"""

from __future__ import annotations

import html
import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from armillary import __version__
from armillary.tools.cli import main

WORKLOAD = """
container = { partition_key = ["/customerId"], autoscale = 20000 }
data = { size = "60GB", item_bytes = 1024, ttl_days = 40, keys = { zipf = 0.9, count = 5_000 } }
operations = [
    { kind = "create", rate = 300 },
    { kind = "upsert", rate = 20, existing = 0.5 },
    { kind = "query", rate = 30, filter = ["/other"], rows = 10 },
]
shape = { daily = [0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.2, 0.2, 0.2, 0.2] }
"""
SMALL = """
container = { partition_key = ["/customerId"], throughput = 4000 }
data = { item_bytes = 1024, keys = { zipf = 1.0, count = 500 } }
operations = [{ kind = "create", rate = 10 }, { kind = "read", rate = 20 }]
"""
ADVISED_LOAD = """
container = { partition_key = ["/id"] }
data = { item_bytes = 500, keys = { uniform = 100 } }
operations = [
    { kind = "create", rate = 100 },
    { kind = "read", rate = 50 },
    { kind = "query", rate = 60, filter = ["/customerId"], rows = 10 },
    { kind = "query", rate = 30, filter = ["/country"], rows = 20 },
]
"""
PLANNED = ("--for", "20d", "--step", "1h")
REPORTS = {
    "estimate of rates": ("", ("estimate", "--reads", "500", "--creates", "100", "--cross-queries", "9")),
    "estimate": (WORKLOAD, ("estimate", "--for", "12mo", "--as", "cloud")),
    "estimate of an older edition": (SMALL, ("estimate", "--profile", "2018")),
    "simulate": (WORKLOAD, ("simulate", *PLANNED)),
    "simulate with variations": (SMALL, ("simulate", *PLANNED, "--vary", "throughput=4000,8000")),
    "scale-model": (SMALL, ("scale-model", "--for", "10d", "--items", "1000", "--looks", "1")),
}
COUNTS = [*range(1, 10), 403, 429, 99]  # of runs, and of figures that agree; status codes; p99
# What was given, and counts of the report itself.
GIVEN = {"version", "inputs", "values", "eventsLeftOff", "prices"}


def bare_numbers(content: Any, rests_on: Mapping[str, str], path: tuple[str, ...] = ()) -> Iterator[str]:
    """Numbers of a report that have neither an interval nor an assumption, and that no sentence of `restsOn` is for: by
    the name of the part that they are in, or by names with dots."""
    if isinstance(content, dict):
        if "restsOn" in content:
            rests_on, path = content["restsOn"], ()
        has_interval = content.get("low") is not None and content.get("high") is not None
        has_interval = has_interval or bool(content.get("assumes"))
        for name, value in content.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if name not in GIVEN and not (is_number and has_interval):
                yield from bare_numbers(value, rests_on, (*path, name))
    elif isinstance(content, list):
        for each in content:
            yield from bare_numbers(each, rests_on, path)
    elif isinstance(content, int | float) and not isinstance(content, bool) and not _is_said(path, rests_on):
        yield ".".join(path)


def _is_said(path: tuple[str, ...], rests_on: Mapping[str, str]) -> bool:
    return any(rests_on.get(".".join(path[:length])) for length in range(1, len(path) + 1))


NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w])")
# As they are, in percent, per 100 RU/s, and in the units of sizes and times.
SCALES = (1.0, 100.0, *(1024.0**-power for power in range(1, 5)), 1 / 3600, 1 / 60, 1 / 86_400)


def numbers_in(content: Any) -> Iterator[float]:
    """All numbers of a JSON, those inside its texts too."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from numbers_in(name)
            yield from numbers_in(value)
    elif isinstance(content, list):
        for each in content:
            yield from numbers_in(each)
    elif isinstance(content, str):
        yield from (float(each.replace(",", "")) for each in NUMBER.findall(content))
        yield from (float(each) for each in re.findall(r"\d+", content))
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield abs(float(content))


def unknown_numbers(shown: str, content: Any) -> list[str]:
    """Numbers of a text that are no number of the JSON in any unit, rounded as they are written."""
    known = sorted({number * scale for number in numbers_in(content) for scale in SCALES})
    found = []
    for text in NUMBER.findall(shown):
        value, decimals = float(text.replace(",", "")), len(text.partition(".")[2])
        margin = 0.5001 * 10.0**-decimals
        at = bisect_left(known, value - margin)
        if at == len(known) or known[at] > value + margin:
            found.append(text)
    return found


def intervals_in(content: Any) -> Iterator[Mapping[str, float]]:
    if isinstance(content, dict):
        if content.get("low") is not None and content.get("high") is not None:
            yield content
        content = list(content.values())
    if isinstance(content, list):
        for each in content:
            yield from intervals_in(each)


def text_of(page: str) -> str:
    """What a reader sees of a page: no markup, styles or coordinates."""
    page = re.sub(r"<(style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def lacks_interval(shown: str, found: Mapping[str, float]) -> bool:
    """Whether an interval is nowhere in a text as `low to high`, in any unit."""
    for low, _, high, _ in re.findall(r"(\d[\d,]*(\.\d+)?)[ %KMGTB]* to (\d[\d,]*(\.\d+)?)", shown):
        if not unknown_numbers(low, found["low"]) and not unknown_numbers(high, found["high"]):
            return False
    return True


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", REPORTS)
def test_every_number_has_its_interval_or_what_it_rests_on(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload, (command, *options) = REPORTS[name]
    if workload:
        file = tmp_path / "workload.toml"
        file.write_text(workload)
        options += ["--workload", str(file)]
    page = tmp_path / "report.html"
    assert main([command, *options, "--json", "--html", str(page)]) == 0
    content = json.loads(capsys.readouterr().out)
    assert not sorted(set(bare_numbers(content, {})))
    assert main([command, *options]) == 0
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= 80
    first = content["runs"][0]["result"] if "runs" in content else content
    paragraphs = one_line(re.sub(r"^[- ] ", "", shown, flags=re.MULTILINE))
    for sentence in (*first["restsOn"].values(), *first["assumptions"]):
        assert sentence in paragraphs
        assert html.escape(sentence) in page.read_text()
    for text in (paragraphs, one_line(text_of(page.read_text()))):
        assert not unknown_numbers(text, {**content, "armillary": __version__, "limits": COUNTS})
        assert not [each for each in intervals_in(content) if lacks_interval(text, each)]


ADVISED = {
    "decided": ("--workload", "--size", "300GB", "--growth", "1GB/day"),
    "with a throughput": ("--workload", "--size", "300GB", "--autoscale", "20000", "--known", "/customerId"),
    "undecided": ("--size", "300GB"),
}


@pytest.mark.parametrize("name", ADVISED)
def test_every_number_of_an_advice_has_its_interval_or_what_it_rests_on(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # short names, which no line breaks
    items = [
        {
            "id": f"o{n}",
            "customerId": f"c{n * 7919 % 400}",
            "country": f"x{n % 4 and 1}",
            "shop": f"s{n % 9}",
            "n": n % 50,
        }
        for n in range(1_500)
    ]
    rows, page, load = Path("rows.jsonl"), Path("report.html"), Path("workload.toml")
    rows.write_text("".join(json.dumps(each) + "\n" for each in items))
    load.write_text(ADVISED_LOAD)
    options = [str(rows)]
    for each in ADVISED[name]:
        options += [each, str(load)] if each == "--workload" else [each]
    assert main(["advise", *options, "--json", "--html", str(page)]) in (0, 3)
    content = json.loads(capsys.readouterr().out)
    assert "candidates" not in content["restsOn"], "each figure of a candidate has a sentence of its own"
    assert not sorted(set(bare_numbers(content, {})))
    for each in content["candidates"]:
        for score, found in each["scores"].items():
            assert found is None or (found["low"] is None) == bool(found["assumes"]), score
    main(["advise", *options])
    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines()) <= 80
    paragraphs = one_line(re.sub(r"^[- +]+ ", "", shown, flags=re.MULTILINE))
    sentences = [*content["restsOn"].values(), *content["assumptions"]]
    for each in content["candidates"]:  # the figures of the table with their intervals
        assert [figure for figure in each["figures"] if " to " in figure or "(exact)" in figure] == each["figures"]
        sentences += each["figures"]
    for sentence in sentences:
        assert sentence in paragraphs
        assert html.escape(sentence) in page.read_text()
    for text in (paragraphs, one_line(text_of(page.read_text()))):
        assert not unknown_numbers(text, {**content, "armillary": __version__, "limits": COUNTS})


def test_a_number_that_the_json_has_not_is_found() -> None:
    content = {"ru": 4854.3, "share": 0.0714, "bytes": 3 * 1024**3, "says": "day 10.2"}
    assert not unknown_numbers("4,854 RU/s, 7.1 %, 3.0 GB on day 10.2 of k7 at 80%", {**content, "goal": 0.8})
    assert unknown_numbers("4,855 RU/s, 7.2 %, 3.1 GB", content) == ["4,855", "7.2", "3.1"]
    found = {"value": 0.02, "low": 0.011, "high": 0.031}
    assert not lacks_interval("2.00% (1.10% to 3.10%)", found) and lacks_interval("2.00% (1.10% to 3.20%)", found)


def test_a_number_without_either_is_found() -> None:
    content = {
        "inputs": {"days": 3},
        "restsOn": {"peak": "the rates"},
        "peak": {"ru": 1.5},
        "share": {"value": 0.2, "low": 0.1, "high": 0.3},
        "runs": [{"restsOn": {"totals": "steps"}, "totals": {"ru": 2}, "extra": {"ru": 7}}],
        "money": {"total": 3.5},
        "candidates": [{"ru": 1, "days": 2, "score": {"value": 3, "low": None, "assumes": "growth"}}],
    }
    content["restsOn"] |= {"candidates.ru": "the requests"}  # type: ignore[operator]
    assert sorted(bare_numbers(content, {})) == ["candidates.days", "extra.ru", "money.total"]
