"""The tables of all commands as a terminal shows them, at 80 and 120 columns: captures of a pseudo-terminal against the
files in `snapshots/`. `make tests ARGS="tests/control/test_terminal_tables.py --renew-snapshots"` writes them anew.

One server with a stopped clock answers all; one process for each width runs the commands."""

from __future__ import annotations

import argparse
import ast
import asyncio
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from rich.cells import cell_len
from support import terminal_program
from support.process import KEY, READY_S, ServerProcess, clean_environment
from support.process_directories import divided_directory
from support.server_operator import Operator

import armillary
from armillary.tools.cli import _parser
from armillary.tools.guide.command_parser import commands_of

SNAPSHOTS = Path(__file__).parent / "snapshots"
WORKLOADS = Path(__file__).parents[1] / "foresight" / "workloads"
WIDTHS = (80, 120)
ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?")
PROGRESS = re.compile(r"[^\n]*━[^\n]*\d:\d\d:\d\d\n?")  # it was erased again

COUNTRIES = ("de",) * 8 + ("at", "ch")
COMMANDS: dict[str, tuple[str, ...]] = {
    "databases-list": ("databases",),
    "databases-show": ("databases", "show", "shop"),
    "containers-list": ("containers",),
    "containers-show": ("containers", "show", "shop/carts"),
    "partitions": ("partitions", "shop/orders", "--top", "3"),
    "partitions-compared": ("partitions", "shop/orders", "shop/countries", "--top", "2"),
    "partitions-watched": ("partitions", "shop/orders", "--watch", "--times", "1"),
    "keys": ("keys", "shop/countries"),
    "top": ("top", "--times", "1"),
    "query": ("query", "shop/orders", "SELECT * FROM c WHERE c.country = 'at' ORDER BY c.total", "--max-items", "5"),
    "query-values": ("query", "shop/orders", "SELECT VALUE c.country FROM c", "--max-items", "3"),
    "query-explained": ("query", "shop/orders", "SELECT * FROM c WHERE CONTAINS(c.note, 'é')", "--explain"),
    "faults-list": ("faults",),
    "clock-show": ("clock",),
    "script-list": ("script", "list", "shop/orders"),
    "script-run": ("script", "run", "shop/orders", "sum", "--partition-key", "c-01", "--explain", "--dry-run"),
    "capture-list": ("capture", "list"),
    "backup-list": ("backup", "list", "{directory}/backups"),
    "account-keys-list": ("account-keys", "list"),
    "processes": ("processes", "{directory}/divided"),
    "cluster-status": ("cluster", "status"),
    "cluster-plan": ("cluster", "plan"),
    "cluster-verify": ("cluster", "verify"),
    "cluster-try": ("cluster", "try"),
    "mode-show": ("mode",),
    "runtime": ("runtime",),
    "advise": ("advise", "{directory}/orders.jsonl"),
    "scale-model": (
        "scale-model",
        "--workload",
        str(WORKLOADS / "hot-key.toml"),
        "--for",
        "1d",
        "--items",
        "1000",
        "--looks",
        "1",
    ),
    "estimate": ("estimate", "--workload", str(WORKLOADS / "hot-key.toml")),
    "simulate": ("simulate", "--workload", str(WORKLOADS / "scale-ups.toml"), "--for", "30d"),
    "simulate-varied": (
        "simulate",
        "--workload",
        str(WORKLOADS / "even.toml"),
        "--for",
        "5d",
        "--vary",
        "throughput=400,4000",
    ),
}
WITHOUT_SERVER = (
    "cluster-status",
    "cluster-plan",
    "cluster-verify",
    "cluster-try",
    "advise",
    "scale-model",
    "estimate",
    "simulate",
    "simulate-varied",
    "backup-list",
    "processes",
)
# All others: what they print has no columns, or is a table of a command above (the tour, the prompt, a trial's states).
WITHOUT_TABLE = frozenset(
    (
        *("serve", "emulator", "demo", "trust", "portal", "help", "completion", "version", "health"),
        *("databases create", "databases delete", "containers create", "containers delete"),
        *("scale", "split", "merge", "migrate", "report", "shell", "feed tail", "import", "export"),
        *("script show", "script put", "script delete", "capture start", "capture stop", "capture save"),
        *("capture delete", "snapshot", "restore", "backup create", "backup verify", "backup restore", "backup prune"),
        *("check", "upgrade", "config check", "config show", "connection-strings"),
        *("account-keys connection-strings", "account-keys regenerate"),
        *("faults add", "faults remove", "faults clear", "clock stop", "clock advance", "clock run"),
        *("cluster init", "cluster leave", "cluster reset-log", "cluster failover", "cluster failover-region"),
        *("cluster drain", "cluster undrain", "cluster remove", "cluster placement", "cluster move"),
    )
)
PROCEDURE = """function sum() {
  __.filter(doc => doc.total > 0, (error, docs) => __.response.setBody(docs.length));
}"""


def order_of(number: int) -> dict[str, object]:
    order = {"id": f"{number:03}", "customer": f"c-{number % 15:02}", "country": COUNTRIES[number % 10]}
    return {**order, "total": number * 1.5, "note": "Çok güzel, très bien, 漂亮 " * (number % 3)}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("terminal")


@pytest.fixture(scope="module")
def shop(directory: Path) -> Iterator[Operator]:
    server = ServerProcess.start(directory / "data", "--durability", "relaxed", "--clock", "movable")
    operator = Operator(server)
    operator.command("clock", "stop")
    with CosmosClient(server.url, KEY) as client:
        database = client.create_database("shop")
        by_customer = database.create_container("orders", PartitionKey("/customer"), offer_throughput=20_000)
        by_country = database.create_container("countries", PartitionKey("/country"), offer_throughput=20_000)
        database.create_container("carts", PartitionKey(["/tenant", "/user"], kind="MultiHash"), default_ttl=60)
        client.create_database("a-database-with-a-long-name-that-takes-space", offer_throughput=400)
        for order in map(order_of, range(120)):
            by_customer.create_item(order)
            by_country.create_item(order)
        by_customer.scripts.create_stored_procedure({"id": "sum", "body": PROCEDURE})
    (directory / "orders.jsonl").write_text("".join(f"{json.dumps(order_of(each))}\n" for each in range(1000)))
    rules = (
        ("--operation", "write", "--container", "shop/orders", "--every", "7", "--status", "429"),
        ("--operation", "query", "--probability", "0", "--seed", "1", "--delay-ms", "500"),
    )
    operator.command("clock", "advance", "1s")  # RU/s are those of complete seconds
    operator.command("faults", "add", *rules[1])
    operator.command("backup", "create", str(directory / "backups"))
    operator.command("capture", "start", "shop/carts", "--for", "15m")
    operator.command("capture", "stop", "shop/carts")
    operator.command("faults", "add", *rules[0])
    asyncio.run(divided_directory(directory / "divided"))
    yield operator
    server.stop()


def captured(width: int, shop: Operator, directory: Path) -> dict[str, str]:
    """What a terminal of that width shows for each command."""
    listed = []
    for name, words in COMMANDS.items():
        arguments = [word.format(directory=directory) if "{directory}" in word else word for word in words]
        place = [] if name in WITHOUT_SERVER else ["--data", str(shop.directory)]
        listed.append([name, [*arguments, *place]])
    file = directory / f"commands-{width}.json"
    file.write_text(json.dumps(listed))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {name: value for name, value in clean_environment().items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "support.terminal_program", str(file)],
        env=environment | {"TERM": "xterm", "LC_ALL": "C.UTF-8"},
        cwd=directory,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    pieces = []
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(ours)
    assert process.wait(READY_S) == 0, b"".join(pieces).decode("utf-8", "replace")[-3000:]
    text = ESCAPE.sub("", b"".join(pieces).decode("utf-8")).replace("\r", "")
    shown = {}
    for part in text.split(terminal_program.MARK)[1:-1]:
        name, _, content = part.partition("\n")
        shown[name] = "\n".join(line.rstrip() for line in masked(content).splitlines()).strip("\n") + "\n"
    return shown


def masked(text: str) -> str:
    """Times, ids of captures and keys have the same length each time."""
    text = TIME.sub(lambda found: re.sub(r"\d", "0", found.group()), text)
    text = re.sub(r"\.\d{3}\+00:00", ".000+00:00", text)
    text = re.sub(r"\b[0-9a-f]{12}\b", "0" * 12, text)
    text = re.sub(r"\(stopped, \d+ s behind the machine\)", "(stopped)", text)
    text = PROGRESS.sub("", text)
    return re.sub(r"[A-Za-z0-9+/]{80,}={0,2}", lambda found: "k" * len(found.group()), text)


@pytest.fixture(scope="module")
def screens(shop: Operator, directory: Path) -> dict[int, dict[str, str]]:
    """Always in this order: the commands of one width count as requests in the tables of the next."""
    return {width: captured(width, shop, directory) for width in WIDTHS}


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_are_those_of_the_snapshots(
    width: int, screens: dict[int, dict[str, str]], request: pytest.FixtureRequest
) -> None:
    shown = screens[width]
    assert list(shown) == list(COMMANDS)
    wide = {
        name: line
        for name, text in shown.items()
        for line in text.splitlines()
        if cell_len(line) > width and any(mark in line for mark in "─█░")
    }
    assert not wide, "tables do not fit the screen"
    if request.config.getoption("--renew-snapshots"):
        SNAPSHOTS.mkdir(exist_ok=True)
        for name, text in shown.items():
            (SNAPSHOTS / f"{name}-{width}.txt").write_text(text, "utf-8")
    differing = []
    for name, text in shown.items():
        file = SNAPSHOTS / f"{name}-{width}.txt"
        if not file.exists() or file.read_text("utf-8") != text:
            differing.append(f"{file.name}:\n{text}")
    assert not differing, "\n".join([*differing, "--renew-snapshots writes the files anew"])


def test_every_table_of_the_commands_is_among_them(screens: dict[int, dict[str, str]], directory: Path) -> None:
    """By the calls in the source: a command that draws a table needs a snapshot of it."""
    root = Path(armillary.__file__).parent
    drawing = {
        (path.relative_to(root).as_posix(), node.lineno)
        for path in (root / "tools").rglob("*.py")
        if path.name != "screen.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in ("table", "made_table")
    }
    for width in WIDTHS:
        drawn = {(file, line) for file, line in json.loads((directory / f"commands-{width}.json.tables").read_text())}
        assert drawn == drawing


def all_commands(parser: argparse.ArgumentParser, *path: str) -> Iterator[str]:
    verbs = commands_of(parser)
    if not verbs:
        yield " ".join(path)
    for verb, below in verbs.items():
        yield from all_commands(below, *path, verb)


def test_every_command_is_among_them_or_prints_no_table() -> None:
    """By the parsers: a new command is put into one of the two lists."""
    program = _parser()
    shown = set()
    for words in COMMANDS.values():
        given = vars(program.parse_args(words))
        verb = given.get("verb") or next(iter(commands_of(commands_of(program)[words[0]])), "")
        shown.add(f"{words[0]} {verb}".strip())
    commands = set(all_commands(program))
    assert shown <= commands
    assert commands - shown == WITHOUT_TABLE


def test_every_snapshot_has_its_command() -> None:
    expected = {f"{name}-{width}.txt" for name in COMMANDS for width in WIDTHS}
    assert {path.name for path in SNAPSHOTS.iterdir()} == expected
