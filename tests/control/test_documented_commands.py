"""The commands and requests that the pages about snapshots, backups and keys show are run as they stand there, one
after the other, on a real server."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from control.conftest import Start
from support.process import KEY
from support.server_operator import Operator

from armillary.tools.cli import main

DOCS = Path(__file__).parents[2] / "docs"


def lines_of(page: str, beginning: str) -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith(beginning)]


@pytest.fixture
def shop(start_operator: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    operator = start_operator()
    database = CosmosClient(operator.server.url, KEY).create_database("shop")
    database.create_container("orders", PartitionKey("/pk")).create_item({"id": "1", "pk": "1"})
    monkeypatch.setenv("ARMILLARY_DATA", str(operator.directory))
    monkeypatch.chdir(tmp_path)
    return operator


def run(line: str, tmp_path: Path, operator: Operator) -> None:
    """Paths of the page become some of the test."""
    command = line.partition("#")[0].replace("/var/lib/armillary-new", str(tmp_path / "new"))
    command = command.replace("/var/lib/armillary", str(operator.directory)).replace("/backups", str(tmp_path))
    assert main(shlex.split(command)[1:]) == 0, line


def test_snapshots_and_backups(shop: Operator, tmp_path: Path) -> None:
    commands = lines_of("backup.md", "armillary ")
    assert len(commands) >= 10
    for line in commands:
        run(line, tmp_path, shop)
    assert {each["name"] for each in shop.ask("GET", "databases")["databases"]} == {"shop", "shop-copy"}
    shop.server.check(tmp_path / "new")


def test_snapshots_in_memory(shop: Operator) -> None:
    requests = lines_of("backup.md", "curl ")
    assert len(requests) == 2
    for line in requests:
        words = shlex.split(line)
        path = words[3].removeprefix("$CONTROL/")
        body = json.loads(words[words.index("-d") + 1]) if "-d" in words else None
        shop.ask(words[2], path, body)


def test_keys(shop: Operator, tmp_path: Path) -> None:
    commands = lines_of("security.md", "armillary ")
    assert len(commands) == 4
    for line in commands:
        run(line, tmp_path, shop)
    keys = shop.ask("GET", "account/keys")["keys"]
    assert len({KEY, keys["primary"], keys["secondary"]}) == 3
