"""`armillary query` against a real server: rows as table, JSON and CSV, the charge, the plan, and refusals."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from control.conftest import Start
from support.process import KEY, call_armillary, clean_environment
from support.server_operator import Operator

from armillary.errors import Failure
from armillary.tools.querying.row_output import RowOutput
from armillary.tools.screen import Screen

ITEMS = 250


@pytest.fixture(scope="module")
def orders(operator: Operator) -> str:
    """A container with 250 orders on 4 partitions."""
    database = CosmosClient(operator.server.url, KEY).create_database("queried")
    container = database.create_container("orders", PartitionKey("/customer"), offer_throughput=20_000)
    for number in range(ITEMS):
        city = ("Berlin", "Wien", "Bern")[number % 3]
        container.create_item({"id": f"{number:03}", "customer": f"c{number % 20}", "city": city, "total": number})
    return "queried/orders"


def test_tables_json_and_csv_have_the_same_rows(operator: Operator, orders: str) -> None:
    asked = ("query", orders, "SELECT c.id, c.total, c.city FROM c WHERE c.city = @city ORDER BY c.id;")
    given = ("--parameter", "city=Wien")
    expected = [{"id": f"{number:03}", "total": number, "city": "Wien"} for number in range(1, ITEMS, 3)]
    lines = operator.command(*asked, *given, "--output", "json").splitlines()
    assert [json.loads(line) for line in lines] == expected
    cells = list(csv.DictReader(io.StringIO(operator.command(*asked, *given, "--output", "csv"))))
    assert cells == [{**row, "total": str(row["total"])} for row in expected]
    table = operator.command(*asked, *given)
    assert [line.split()[0] for line in table.splitlines() if line.endswith(" Wien ")] == [r["id"] for r in expected]
    assert f"{len(expected)} rows, " in table and "4 partitions visited" in table


def test_pages_are_streamed_and_limited(operator: Operator, orders: str) -> None:
    table = operator.command("query", orders, "SELECT c.id FROM c")
    assert table.count(" id ") > 1, "a table for each page"
    assert f"{ITEMS} rows, " in table
    told = operator.command("query", orders, "SELECT c.id FROM c", "--max-items", "7", "--output", "json")
    assert len(told.splitlines()) == 7
    told = operator.command("query", orders, "SELECT c.id FROM c", "--partition-key", "c3")
    assert "1 partition visited" in told
    assert operator.command("query", orders, "SELECT VALUE COUNT(1) FROM c", "--output", "csv") == f"value\n{ITEMS}\n"


def test_the_plan_adds_up(operator: Operator, orders: str) -> None:
    asked = ("query", orders, "SELECT * FROM c WHERE CONTAINS(c.city, 'er') AND c.total >= 0", "--explain")
    drawn = operator.command(*asked)
    assert "Advice QA1002: CONTAINS reads every value of the path" in drawn
    assert "charged for" in drawn and "access" in drawn
    plan = json.loads(operator.command(*asked, "--output", "json"))
    assert plan["chargeRu"] == pytest.approx(sum(each["ru"] for each in plan["charge"]), abs=0.02)
    assert plan["chargeRu"] == pytest.approx(sum(each["ru"] for each in plan["partitions"]), abs=0.02)
    assert len(plan["partitions"]) == 4 and plan["rows"] == 167


def test_refusals_say_the_next_step(operator: Operator, orders: str) -> None:
    for arguments, expected in (
        ((orders, "SELECT *\nFRM c"), "The query is refused at line 2, column 1: "),
        (("queried/nothing", "SELECT * FROM c"), "There is no container queried/nothing. `armillary containers`"),
        ((orders, " "), "The query is empty"),
        ((orders, "SELECT * FROM c", "--parameter", "city"), "expected NAME=VALUE"),
        ((orders, "SELECT * FROM c WHERE c.city = @city"), "given. Give it with --parameter city=VALUE"),
        ((orders, "SELECT * FROM c", "--max-items", "0"), "--max-items is 0"),
        ((orders, "SELECT * FROM c", "--explain", "--output", "csv"), "leave out --output csv"),
        ((orders, "SELECT * FROM c", "--key", "d3Jvbmcgd3Jvbmcgd3Jvbmc="), "does not accept the account key"),
    ):
        told = operator.command("query", *arguments, code=2)
        assert expected in told and told.count("\n") == 1, told


def test_a_query_that_is_always_refused_ends(operator: Operator, orders: str) -> None:
    rule = operator.ask("POST", "faults", {"operations": "query", "status": 429, "retryAfterMs": 1})
    try:
        told = operator.command("query", orders, "SELECT * FROM c", "--timeout", "0.2", code=2)
        assert f"{orders} has refused the query for lack of throughput (429) for 0.2 s." in told
        assert f"`armillary scale {orders} RU`" in told
        assert operator.ask("GET", f"faults/{rule['id']}")["hits"] > 1, "it was repeated"
    finally:
        operator.ask("DELETE", f"faults/{rule['id']}")


def test_columns_that_come_late_are_refused_in_csv(capsys: pytest.CaptureFixture[str]) -> None:
    output = RowOutput("csv", Screen())
    output.write([{"id": "1", "tags": ["a", "b"]}, {"id": "2"}])
    with pytest.raises(Failure, match=r"'late', for which the first 1,000 rows gave no column. Name the properties"):
        output.write([{"id": "3"}, {"id": "4", "late": 1}])
    assert capsys.readouterr().out == 'id,tags\n1,"[""a"",""b""]"\n2,\n3,\n'


def test_without_a_control_key_the_account_key_suffices(operator: Operator, orders: str) -> None:
    asked = ("query", orders, "SELECT VALUE COUNT(1) FROM c", "--output", "csv", "--url", operator.server.url)
    outcome = call_armillary(*asked, "--data", str(operator.directory / "none"), "--key", KEY)
    assert outcome.stdout == f"value\n{ITEMS}\n", outcome.stderr


def test_a_control_key_that_may_only_read(start_operator: Start) -> None:
    """Queries are asked with the account's read-only key; without one the command says what to do."""
    control = "YSBrZXkgdGhhdCBtYXkgb25seSByZWFkMQ=="
    operator = start_operator("--control-read-only-key", control)
    operator.command("containers", "create", "a/b", "--partition-key", "/pk")
    asked = ("query", "a/b", "SELECT VALUE COUNT(1) FROM c", "--output", "csv", "--url", operator.server.url)
    environment = {"ARMILLARY_CONTROL_KEY": control}
    refused = call_armillary(*asked, environment=environment)
    assert refused.returncode == 2 and "the account has no read-only key to query with" in refused.stderr
    operator.command("account-keys", "regenerate", "primaryReadonly")
    assert call_armillary(*asked, environment=environment).stdout == "value\n0\n"


def test_ctrl_c_ends_a_query(operator: Operator, orders: str) -> None:
    """A fault rule makes the server slow: the query waits for its answer when the signal comes."""
    rule = {"operations": "query", "database": "queried", "delayMs": 60_000}
    made = operator.ask("POST", "faults", rule)
    arguments = ("query", orders, "SELECT * FROM c", "--data", str(operator.directory))
    process = subprocess.Popen(
        [sys.executable, "-m", "armillary", *arguments],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where the tests run in background
    )
    try:
        while not operator.ask("GET", f"faults/{made['id']}")["hits"]:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
        assert (process.returncode, output, errors) == (130, b"", b"")
    finally:
        process.kill()
        operator.ask("DELETE", f"faults/{made['id']}")
