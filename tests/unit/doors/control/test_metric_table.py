"""The table of metrics: names by Prometheus' rules, the page of documentation and the dashboard have exactly those."""

from __future__ import annotations

import json
import re
from pathlib import Path

from armillary.doors.control.metrics.metric_table import METRICS, Page
from armillary.net.requests.request_watch import BOUNDS_S, FINE_S, PER_S, SLOTS, Observed, slot_of
from armillary.query.compiled_cache import CompiledCache

ROOT = Path(__file__).parents[4]
NAMES = {metric.name for metric in METRICS}
UNITS = ("_bytes", "_seconds", "_request_units", "_total", "_rows", "_transactions", "_ratio")


def test_names_follow_the_rules_of_prometheus() -> None:
    assert len(NAMES) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"(armillary|process)_[a-z0-9]+(_[a-z0-9]+)*", metric.name)
        assert metric.kind in ("counter", "gauge", "histogram")
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.kind != "histogram" or metric.name.endswith("_seconds")
        assert not re.search(r"_(ms|milliseconds|kb|mb|percent)(_|$)", metric.name), "base units"
        assert metric.meaning.endswith(".")


def test_the_page_of_documentation_lists_every_metric() -> None:
    text = (ROOT / "docs" / "operations.md").read_text("utf-8")
    rows = re.findall(r"^\| `((?:armillary|process)_\w+)` \| (\w+) \| ([^|]*)\| (.+) \|$", text, re.MULTILINE)
    found = [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), meaning) for name, kind, labels, meaning in rows]
    assert found == [tuple(metric)[:4] for metric in METRICS]


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    dashboard = json.loads((ROOT / "examples" / "grafana" / "armillary.json").read_text("utf-8"))
    histograms = {metric.name for metric in METRICS if metric.kind == "histogram"}
    served = (NAMES - histograms) | {f"{name}_{end}" for name in histograms for end in ("bucket", "sum", "count")}
    labels = {metric.name: {*metric.labels, "job", "instance", "le"} for metric in METRICS}
    shown = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            names = set(re.findall(r"\b(?:armillary|process)_\w+", expression))
            assert names and names <= served, f"{panel['title']}: {names - served}"
            shown |= names
            known = set().union(*(labels[re.sub(r"_(bucket|count|sum)$", "", name)] for name in names))
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            used |= {word for words in re.findall(r"by \(([^)]*)\)", expression) for word in words.split(", ")}
            assert used <= known, f"{panel['title']}: {used - known}"
    for wanted in ("disk_free_bytes", "errors_total", "refused_total", "key_full_total", "storage_level_bytes"):
        assert f"armillary_{wanted}" in shown
    identities = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identities)) == len(identities)


def test_every_duration_falls_into_its_bucket() -> None:
    observed = Observed()
    for bound in BOUNDS_S:
        for elapsed_s in (bound * 0.99, bound * 1.01):
            before = list(observed.buckets)
            observed.note(elapsed_s, 200, None)
            [changed] = [index for index, count in enumerate(observed.buckets) if count != before[index]]
            assert changed == slot_of(elapsed_s)
    observed.note(3600.0, 200, None)
    assert observed.buckets[-1] == 2
    assert len(SLOTS) == FINE_S * PER_S + 1


def test_a_histogram_is_cumulative_and_labels_are_escaped() -> None:
    observed = Observed()
    for elapsed_s in (0.00005, 0.0002, 0.0002, 20.0):
        observed.note(elapsed_s, 200, None)
    page = Page()
    page.add_times("request_duration_seconds", [((("door", "sql"), ("operation", 'a"b\\c')), observed)])
    lines = [line for line in page.text(is_node=False).splitlines() if line.startswith("armillary_request_duration")]
    counts = [int(line.rsplit(" ", 1)[1]) for line in lines if "_bucket" in line]
    assert counts == sorted(counts)
    assert counts[:2] == [1, 3]
    assert counts[-1] == 4
    assert r'operation="a\"b\\c"' in lines[0]
    assert 'le="+Inf"' in lines[len(counts) - 1]


def test_a_cache_is_bounded_and_counts() -> None:
    cache: CompiledCache[str, int] = CompiledCache("test", size_max=10)
    assert cache.get("a") is None
    cache.keep("a", 1, 6)
    cache.keep("b", 2, 4)
    assert (cache.get("a"), cache.get("b")) == (1, 2)
    cache.keep("c", 3, 5)  # the size is exceeded: the one that was used longest ago goes
    assert ("a" in cache, len(cache)) == (False, 2)
    cache.keep("c", 4, 6)
    assert (cache.get("c"), cache.hits, cache.misses) == (4, 3, 1)


def test_pages_of_several_processes_are_added_up() -> None:
    labels = (("door", "sql"), ("operation", "read_item"))
    first, second = Page(), Page()
    for page, count in ((first, 1), (second, 3)):
        observed = Observed()
        for _ in range(count):
            observed.note(0.25, 200, None)
        page.add_times("request_duration_seconds", [(labels, observed)])
        page.add("responses_total", [((*labels, ("status", str(199 + count))), count)])
        page.add_one("disk_free_bytes", 1000 + count)
        page.add_one("event_loop_lag_worst_seconds", count / 10)
    alone = Page.of(second.told())
    first.adopt(second.told())
    of_both, of_second = [page.text(is_node=False) for page in (first, alone)]
    assert of_second == second.text(is_node=False)
    for line in (
        'armillary_request_duration_seconds_count{door="sql",operation="read_item"} 4',
        'armillary_request_duration_seconds_sum{door="sql",operation="read_item"} 1.0',
        'armillary_responses_total{door="sql",operation="read_item",status="200"} 1',
        'armillary_responses_total{door="sql",operation="read_item",status="202"} 3',
        "armillary_disk_free_bytes 1001",
        "armillary_event_loop_lag_worst_seconds 0.3",
    ):
        assert line in of_both.splitlines()
