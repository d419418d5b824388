"""`armillary shell`: statements from a pipe, completion, and a conversation at a pseudo-terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from support.process import KEY, call_armillary, clean_environment
from support.server_operator import Operator

from armillary.tools.remote import Where
from armillary.tools.resolve import resolve
from armillary.tools.shell.completion import ShellCompleter
from armillary.tools.shell.session import Session
from armillary.tools.shell.statements import is_complete, statements

ANSWER_S = 30.0


@pytest.fixture(scope="module")
def shop(operator: Operator) -> str:
    database = CosmosClient(operator.server.url, KEY).create_database("shelled")
    container = database.create_container("orders", PartitionKey("/customer"))
    for number in range(5):
        container.create_item({"id": str(number), "customer": "c", "address": {"city": "Wien"}, "total": number})
    return "shelled/orders"


@pytest.fixture
def session(operator: Operator) -> Iterator[Session]:
    made = Session(resolve({"data": str(operator.directory)}, {}), Where(), "table")
    yield made
    made.close()


def piped(operator: Operator, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    class Pipe(io.StringIO):
        """In the place of the empty one that commands of tests read."""

    with patch("support.process.io.StringIO", lambda: Pipe(text)):
        return call_armillary("shell", *arguments, "--data", str(operator.directory))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1;SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT\n  'a;b' -- no; comment\n;\n", ["SELECT\n  'a;b' -- no; comment"]),
        ('SELECT "it\'s; \\"so\\"";', ['SELECT "it\'s; \\"so\\""']),
        ("\\use a/b\nSELECT 1; \\d\n\\l;\n", ["\\use a/b", "SELECT 1", "\\d", "\\l"]),
        ("-- nothing\n;;\n \n", []),
        ("SELECT 'open;\n", ["SELECT 'open;"]),
    ],
)
def test_statements(text: str, expected: list[str]) -> None:
    assert list(statements(text.splitlines(keepends=True))) == expected


def test_enter_ends_a_complete_statement() -> None:
    complete = ("", "\\d", "SELECT 1;", "SELECT 1; SELECT ';' ; ")
    assert [is_complete(text) for text in complete] == [True] * 4
    assert not any(is_complete(text) for text in ("SELECT", "SELECT ';", "SELECT 1; SELECT 2"))


def test_statements_of_a_pipe(operator: Operator, shop: str) -> None:
    text = (
        f"\\use {shop}\n\\output json\n\\parameter least=3\n"
        "SELECT c.id FROM c\nWHERE c.total >= @least\nORDER BY c.id;\n"
        "\\max 1\nSELECT c.total FROM c ORDER BY c.id; \\explain\n"
    )
    outcome = piped(operator, text)
    assert outcome.returncode == 0, outcome.stderr
    rows, plan = outcome.stdout.split("{\n", 1)
    assert [json.loads(line) for line in rows.splitlines()] == [{"id": "3"}, {"id": "4"}, {"total": 0}]
    assert json.loads("{" + plan)["rows"] == 1
    outcome = piped(operator, "\\l\n\\d\n\\d shelled/orders\n\\partitions\n\\keys\n\\help\n\\quit\nSELECT;", shop)
    assert outcome.returncode == 0, outcome.stderr
    for expected in ("shelled ", "shelled/orders by /customer: 5 items", "Largest partition keys", "\\explain"):
        assert expected in outcome.stdout


def test_a_pipe_ends_at_the_first_error_unless_it_keeps_going(operator: Operator, shop: str) -> None:
    text = "SELEC 1;\n\\output json\nSELECT VALUE COUNT(1) FROM c;\n"
    stopped = piped(operator, text, shop)
    assert (stopped.returncode, stopped.stdout) == (1, "")
    assert stopped.stderr.startswith("armillary: The query is refused at line 1, column 1: ")
    kept = piped(operator, text, shop, "--keep-going")
    assert (kept.returncode, kept.stdout) == (1, "5\n")
    for text, expected in (
        ("SELECT 1;", "No container is in use. Choose one with \\use"),
        ("\\us a/b", "There is no command \\us. Did you mean \\use? See \\help."),
        ("\\use shelled/nothing", "does not exist"),
        ("\\output xml", "The output is one of table, json, csv"),
        ("\\quit now", "\\quit takes no arguments"),
        ("\\explain", "There was no query yet"),
    ):
        refused = piped(operator, text)
        assert refused.returncode == 1 and expected in refused.stderr, refused.stderr


def test_completion(session: Session, shop: str) -> None:
    completer = ShellCompleter(session)

    def offered(text: str) -> list[str]:
        return [each.text for each in completer.get_completions(Document(text), CompleteEvent())]

    assert offered("\\pa") == ["\\partitions", "\\parameter"]
    assert offered("\\use shelled") == [shop]
    assert offered("\\output ") == ["table", "json", "csv"]
    assert offered("SEL") == ["SELECT"] and offered("sel") == ["select"]
    assert offered("SELECT STARTSW") == ["STARTSWITH("]
    assert offered("SELECT c.") == [], "no container is in use"
    session.use(shop)
    assert offered("SELECT c.addr") == ["c.address", "c.address.city"]
    assert "o.total" in offered("\\explain SELECT o.t")
    assert offered("SELECT * FROM orders o WHERE or") == ["or", "order", "orders"]


def test_a_conversation_at_a_terminal(operator: Operator, shop: str, tmp_path: Path) -> None:
    """Several lines up to the semicolon, completion by Tab, an error that does not end it, history for the owner."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "armillary", "shell", "--data", str(operator.directory)],
        env=clean_environment() | {"TERM": "xterm", "XDG_STATE_HOME": str(tmp_path), "COLUMNS": "80"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = ""

    def wait_for(text: str) -> None:
        nonlocal shown
        deadline = time.monotonic() + ANSWER_S
        while text not in (plain := re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)):
            assert time.monotonic() < deadline, shown
            if select.select([ours], [], [], 0.5)[0]:
                shown += os.read(ours, 65536).decode("utf-8", "replace")
                if "\x1b[6n" in shown:  # the editor asks where the cursor is
                    shown = shown.replace("\x1b[6n", "")
                    os.write(ours, b"\x1b[1;1R")
        shown = plain.partition(text)[2]

    try:
        wait_for("armillary>")
        os.write(ours, b"\\use shelled/or\t")
        wait_for("ders")  # what Tab has added
        os.write(ours, b"\r")
        wait_for("shelled/orders>")
        os.write(ours, b"SELEC 1;\r")
        wait_for("The query is refused at line 1")
        wait_for("shelled/orders>")
        os.write(ours, b"SELECT VALUE SUM(c.total)\r")
        wait_for("->")
        os.write(ours, b"FROM c;\r")
        wait_for("1 row, ")
        wait_for("shelled/orders>")
        os.write(ours, b"\x04")
        assert process.wait(ANSWER_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    history = tmp_path / "armillary" / "shell-history"
    assert "+SELECT VALUE SUM(c.total)\n+FROM c;\n" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
