"""Compares two revisions of the server within one run: the working tree and another commit (`--compare REV`).

The base revision runs as two processes, the working tree as one. In every round each of the three answers the same
requests for some tens of milliseconds, so that other load on the machine affects all of them alike. The difference
between the two processes of the base revision is noise; a difference between the revisions counts only if it is clearly
larger.
"""

from __future__ import annotations

import math
import os
import re
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from bench import protocol, queries, servers
from bench.protocol import NUMBER_FIRST, PARTITION_FIRST, PARTITIONS
from bench.servers import ROOT, Server

CONNECTIONS: Final = 8  # each with one request in flight
ITEMS: Final = 10_000  # in the container that is read and queried
READ: Final = "point read"
CREATE: Final = "create"
QUERY: Final = "indexed query, 10 items"
REQUESTS: Final = {READ: 240, CREATE: 80, QUERY: 80}  # a turn; each takes about 30 ms
_VARIANTS: Final = 960  # of reads and queries
BASE, AGAIN, NEW = "base", "base again", "working tree"
_ANSWER_S: Final = 30.0
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)


@dataclass(frozen=True)
class Plan:
    sittings: int  # each with new processes: two processes of one revision differ by a percent or two
    seconds: float  # of one sitting


FULL: Final = Plan(sittings=5, seconds=60)
QUICK: Final = Plan(sittings=2, seconds=22)


@dataclass(frozen=True)
class Turn:
    wall_us: float  # for each request
    cpu_us: float  # of the server process, all its threads, for each request


@dataclass(frozen=True)
class Ratio:
    """The working tree's time over the base's: above 1 is slower."""

    median: float
    low: float  # the 95 % interval of the median
    high: float
    total: float  # of the sums over all rounds, which also see costs that come rarely
    noise: float  # difference between two processes of the base revision

    @property
    def spread(self) -> float:
        """Smaller differences are indistinguishable from noise in this run."""
        return max(self.median - self.low, self.high - self.median, self.noise)

    @property
    def verdict(self) -> str:
        if abs(self.median - 1) <= self.spread:
            return "no difference"
        return f"{abs(self.median - 1):.1%} {'slower' if self.median > 1 else 'faster'}"


@dataclass
class Comparison:
    revision: str
    rounds: dict[str, list[dict[str, Turn]]] = field(default_factory=dict)  # by workload; one turn for each process

    def ratio(self, workload: str, of: Callable[[Turn], float]) -> Ratio:
        rows = [{name: of(turn) for name, turn in row.items()} for row in self.rounds[workload]]
        bases = [(row[BASE] + row[AGAIN]) / 2 for row in rows]
        ratios = sorted(row[NEW] / base for row, base in zip(rows, bases, strict=True))
        low, high = _interval(ratios)
        null_low, null_high = _interval(sorted(row[AGAIN] / row[BASE] for row in rows))
        noise = max(abs(null_low - 1), abs(null_high - 1))
        return Ratio(statistics.median(ratios), low, high, sum(row[NEW] for row in rows) / sum(bases), noise)

    def lines(self) -> Iterator[str]:
        rounds = max((len(each) for each in self.rounds.values()), default=0)
        yield f"Working tree / {self.revision}: time for each request (below 1: the working tree is faster), medians of"
        yield f"{rounds} rounds in turns, {CONNECTIONS} connections, durability relaxed. Spread: what this run cannot"
        yield "tell from noise (the 95 % interval of the median, and what two processes of one revision differ by)."
        for title, of in (("processor time of the server", _cpu), ("time to the answer", _wall)):
            yield ""
            yield f"{title:<32}{'base µs':>10}{'tree µs':>10}{'ratio':>8}{'of sums':>9}{'spread':>9}  verdict"
            for workload, rows in self.rounds.items():
                base = statistics.median((of(row[BASE]) + of(row[AGAIN])) / 2 for row in rows)
                new = statistics.median(of(row[NEW]) for row in rows)
                ratio = self.ratio(workload, of)
                figures = f"{base:>10.1f}{new:>10.1f}{ratio.median:>8.3f}{ratio.total:>9.3f}{ratio.spread:>8.1%}"
                yield f"  {workload:<30}{figures}   {ratio.verdict}"

    def to_json(self) -> dict[str, Any]:
        return {
            "revision": self.revision,
            "rounds": {
                workload: [{name: [turn.wall_us, turn.cpu_us] for name, turn in row.items()} for row in rows]
                for workload, rows in self.rounds.items()
            },
        }


def _cpu(turn: Turn) -> float:
    return turn.cpu_us


def _wall(turn: Turn) -> float:
    return turn.wall_us


def _interval(ordered: list[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the median of sorted values."""
    reach = 0.98 * math.sqrt(len(ordered))
    low = max(0, math.floor(len(ordered) / 2 - reach))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + reach))
    return ordered[low], ordered[high]


def measure(revision: str, *, is_quick: bool, directory: Path | None, say: Callable[[str], None]) -> Comparison:
    plan = QUICK if is_quick else FULL
    name = _git("rev-parse", "--short", f"{revision}^{{commit}}").decode().strip()
    comparison = Comparison(name)
    with tempfile.TemporaryDirectory(prefix="armillary-compare-", dir=directory) as temporary:
        base = Path(temporary) / "base"
        _check_out(name, base)
        for sitting in range(plan.sittings):
            place = Path(temporary) / f"sitting{sitting}"
            place.mkdir()
            rounds = _sit(comparison, base, place, plan.seconds)
            say(f"{name} and the working tree, sitting {sitting + 1} of {plan.sittings}: {rounds} rounds")
    return comparison


def _git(*arguments: str) -> bytes:
    outcome = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if outcome.returncode != 0:
        raise SystemExit(f"git {arguments[0]} fails: {outcome.stderr.decode().strip()}")
    return outcome.stdout


def _check_out(revision: str, directory: Path) -> None:
    """Export the files of a commit, without adding a worktree to the repository."""
    with tarfile.open(fileobj=BytesIO(_git("archive", "--format=tar", revision, "src"))) as archive:
        archive.extractall(directory, filter="data")


def _sit(comparison: Comparison, base: Path, directory: Path, seconds: float) -> int:
    """Start the three processes, run rounds for the given time, stop them. Returns the number of rounds."""
    with ExitStack() as opened:
        tried: dict[str, Contestant] = {}
        for name, source in ((BASE, base / "src"), (NEW, ROOT / "src"), (AGAIN, base / "src")):
            server = _start(name, source, directory / name.replace(" ", "-"))
            opened.callback(server.stop)
            tried[name] = Contestant(server)
            opened.callback(tried[name].close)
        for workload in REQUESTS:  # warm-up: what is compiled, cached and allocated the first time
            for contestant in tried.values():
                contestant.turn(workload)
        names = list(tried)
        rounds = 0
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for workload in REQUESTS:
                order = names[rounds % 3 :] + names[: rounds % 3]
                row = {name: tried[name].turn(workload) for name in order}
                comparison.rounds.setdefault(workload, []).append(row)
            rounds += 1
        return rounds


def _start(name: str, source: Path, directory: Path) -> Server:
    environment = {"PYTHONPATH": str(source)}
    probe = [sys.executable, "-c", "import armillary; print(armillary.__file__)"]
    found = subprocess.run(probe, env=os.environ | environment, capture_output=True, text=True, check=True).stdout
    if not Path(found.strip()).is_relative_to(source):
        raise SystemExit(f"the source of the {name} is not what would run: {found.strip()}")
    return servers.start_armillary(directory, "relaxed", environment=environment)


class Contestant:
    """One server process with its connections and containers."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._items = server.new_container(range(NUMBER_FIRST, NUMBER_FIRST + ITEMS))
        self._created = server.new_container(range(0))
        self._next = NUMBER_FIRST
        self._sockets: list[socket.socket] = []
        # Signatures are valid for 15 minutes, longer than a sitting.
        step = ITEMS // _VARIANTS
        numbers = range(NUMBER_FIRST, NUMBER_FIRST + step * _VARIANTS, step)
        self._prepared = {
            READ: [text.encode() for text in protocol.read_texts(self._items, numbers)],
            QUERY: [
                queries.query_text(self._items, queries.EQUALITY, ITEMS, turn).encode() for turn in range(_VARIANTS)
            ],
        }

    def container_of(self, workload: str) -> str:
        return self._created if workload == CREATE else self._items

    @staticmethod
    def count_of(workload: str) -> int:
        """The requests of a turn."""
        return REQUESTS[workload]

    def _connected(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._server.port), _ANSWER_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    def turn(self, workload: str) -> Turn:
        if not self._sockets:  # opened late: the server closes idle connections while the others are filled
            self._sockets = [self._connected() for _ in range(CONNECTIONS)]
        requests = list(self._requests(workload))
        threads_before = thread_cpu_ns(self._server.pid)
        begin_s = time.perf_counter()
        for at in range(0, len(requests), CONNECTIONS):
            for connection, request in zip(self._sockets, requests[at:], strict=False):
                connection.sendall(request)
            for connection in self._sockets:
                _read_answer(connection)
        wall_s = time.perf_counter() - begin_s
        cpu_ns = sum(after - threads_before.get(thread, 0) for thread, after in thread_cpu_ns(self._server.pid).items())
        return Turn(wall_s * 1e6 / len(requests), cpu_ns / 1e3 / len(requests))

    def _requests(self, workload: str) -> Iterator[bytes]:
        first, self._next = self._next, self._next + REQUESTS[workload]
        if workload == CREATE:
            text = protocol.create_text(self._created)
            for number in range(first, self._next):
                yield protocol.filled(text, number, PARTITION_FIRST + number % PARTITIONS).encode()
        else:
            prepared = self._prepared[workload]
            for number in range(first, self._next):
                yield prepared[number * 7919 % len(prepared)]  # 7919 is prime to their number


def _read_answer(connection: socket.socket) -> None:
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0:
        received += _some(connection)
    if not received.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 201 ")):
        raise SystemExit(f"a request of the comparison was answered with: {received[:400]!r}")
    length = _LENGTH.search(received, 0, end + 2)
    if length is None:
        raise SystemExit(f"an answer without a length: {received[:400]!r}")
    missing = end + 4 + int(length[1]) - len(received)
    while missing > 0:
        missing -= len(_some(connection))


def _some(connection: socket.socket) -> bytes:
    received = connection.recv(1 << 18)
    if not received:
        raise SystemExit("the server closed a connection of the comparison")
    return received


def thread_cpu_ns(pid: int) -> dict[str, int]:
    """Processor time of each thread, in user and kernel mode, from the scheduler's own count (Linux)."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[thread.name] = int((thread / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended
            continue
    return found
