"""The table of docs/compatibility.md, made of the outcomes of tests/sdk: what released clients do here, counted.

A run of all of tests/sdk compares the table with what it saw and fails if they differ; `--write-compatibility` (make
docs) writes it. So the table cannot claim what the tests do not show.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
BEGIN, END = "<!-- compatibility: begin -->\n", "<!-- compatibility: end -->"

# Test files (and the words that JavaScript tests begin with) to what a reader looks for.
AREAS = {
    "databases": "Databases",
    "containers": "Containers and their policies",
    "offers": "Throughput: manual, autoscale, shared by a database",
    "items": "Items: create, read, replace, upsert, delete",
    "partition_keys": "Partition keys: every type and path, hierarchical",
    "ranges": "Physical partitions and feed ranges",
    "splits": "Partitions that split under the clients",
    "patch": "Patch",
    "batch": "Transactional batch",
    "bulk": "Bulk",
    "read_items": "Reading many items",
    "feeds": "Read feeds, pages, delete by partition key",
    "changes": "Change feed",
    "queries": "Queries: filters, projections, parameters",
    "queries_cross_partition": "Queries over several partitions, merged by the client",
    "query_metrics": "Query metrics, index metrics, query advice",
    "etags": "ETags and preconditions",
    "ttl": "Time to live",
    "unique_keys": "Unique keys",
    "sessions": "Sessions",
    "consistency": "Consistency levels",
    "permissions": "Users, permissions, resource tokens",
    "scripts": "Stored procedures, triggers, user-defined functions",
    "charges": "Request charges",
    "throttling": "Budgets that are enforced: 429, and the clients' own retries",
    "transport": "http and https on one port, keys, host names",
    "restart": "Everything is kept over a restart",
    "tables": "**Table**: `azure-data-tables`, its `aio`, `@azure/data-tables`",
    "mongo": "**MongoDB**: `pymongo`, its asynchronous client, `mongodb` and `mongosh` of npm",
    "gremlin": "**Gremlin**: `gremlinpython`, `gremlin` of npm",
    "not_yet": "Not yet: refused by name",
}
_JAVASCRIPT = {
    "partition keys": "partition_keys",
    "merged queries": "queries_cross_partition",
    "query metrics": "query_metrics",
    "ttl and unique keys": "ttl",
    "users and permissions": "permissions",
    "a wrong key is refused": "transport",
    "https on the same port": "transport",
    "the account document": "transport",
    "conflicts": "items",
    "delete all items of a partition key": "feeds",
    "responses without content when none is wanted": "items",
}
CLIENTS = ("Python", "Python, asynchronous", "JavaScript")

_passed: Counter[tuple[str, str]] = Counter()
_run: Counter[tuple[str, str]] = Counter()
_not_yet: dict[str, None] = {}
_stale = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-compatibility", action="store_true", help="write the table in docs/compatibility.md")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    place = _place(report.nodeid)
    if place is None or (report.when != "call" and report.outcome == "passed") or report.skipped:
        return
    _run[place] += 1
    _passed[place] += report.outcome == "passed"
    if place[0] == "not_yet" and (found := re.search(r"\[(?:sync|aio)-(.+)\]$", report.nodeid)):
        _not_yet[found[1]] = None


def _place(nodeid: str) -> tuple[str, str] | None:
    """The area and the client of a test, by its id."""
    found = re.match(r"(?:tests/)?sdk/test_(\w+)\.py::([^\[]*)(?:\[(.*)\])?$", nodeid, re.DOTALL)
    if found is None:
        return None
    area, parameters = found[1], found[3] or ""
    if area == "javascript":
        word = parameters.partition(".mjs-")[2].partition(":")[0]
        word = _JAVASCRIPT.get(word, word.split(" ")[0])
        return (word, CLIENTS[2]) if word in AREAS else None
    if area not in AREAS:
        return None
    words = parameters.split("-")
    if "javascript" in words or found[2] == "test_mongosh":
        return area, CLIENTS[2]
    return area, CLIENTS[1] if "aio" in words else CLIENTS[0]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    global _stale
    has_run_all = {area for area, _ in _run} == set(AREAS) and not session.config.getoption("keyword")
    if not has_run_all:
        return
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    made = f"{head}{BEGIN}{_table()}{END}{tail}"
    if session.config.getoption("--write-compatibility"):
        PAGE.write_text(made)
    elif made != text:
        _stale = True
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _stale:
        terminalreporter.write_line("docs/compatibility.md: the table is not what the tests show; run `make docs`.")


def _table() -> str:
    rows = [f"| | {' | '.join(CLIENTS)} |", "|---|---|---|---|"]
    rows.append("| **SQL**: `azure-cosmos`, its `aio`, `@azure/cosmos` | | | |")
    for area, title in AREAS.items():
        if area != "not_yet":
            rows.append(f"| {title} | {' | '.join(_cell(area, client) for client in CLIENTS)} |")
    refused = ", ".join(_not_yet)
    return (
        "Tests with the released clients against a real server process that pass:\n\n"
        + "\n".join(rows)
        + f"\n\nNot yet, and refused by name: {refused}.\n"
    )


def _cell(area: str, client: str) -> str:
    run, passed = _run[area, client], _passed[area, client]
    return "" if not run else str(run) if passed == run else f"{passed} of {run}"
