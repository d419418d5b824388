"""A cluster on PostgreSQL with two synchronous standbys, all on this machine, beside a single server with full
durability: writes and reads of a leader, what a follower costs, how far it is behind, how long a failover takes, and
how fast a new node is built. PostgreSQL, the nodes and the load generator share the processors, so ratios are what
counts.
"""

from __future__ import annotations

import asyncio
import http.client
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from armillary.storage.log.postgres_log import PostgresLog
from armillary.tools.cluster.scratch_postgres import PostgresPrograms, PostgresServer, hosts_url
from bench import compare, load, protocol, servers
from bench.compare import Contestant
from bench.load import Measured, cpu_seconds, run_wrk
from bench.protocol import BATCH_ITEMS, NUMBER_FIRST
from bench.sections import Aim, Say, row
from bench.servers import Server

_ITEMS: Final = 10_000
_CONNECTIONS: Final = (1, 16, 64)
CREATE, BATCH, READ = "create 1 KB", "batch of 100 creates", "point read"
SINGLE, LEADER = "single server, full", "leader, PostgreSQL with 2 standbys"
_READ_TURNS: Final = 200
_PATIENCE_S: Final = 60.0
_TABLE_ROWS: Final = 256  # of the log: small, so that it is trimmed during the run and a new node has to be copied


@dataclass
class ClusterFigures:
    rates: dict[str, dict[str, dict[int, list[float]]]] = field(default_factory=dict)
    cpu_us: dict[str, dict[str, dict[int, list[float]]]] = field(default_factory=dict)
    read_turns_us: dict[str, list[float]] = field(default_factory=dict)  # processor time of a read, in short turns
    follower_cpu_ratio: list[float] = field(default_factory=list)  # of an applied write, over the leader's
    follower_read_ratio: list[float] = field(default_factory=list)  # processor time of a read
    forwarded_per_s: list[float] = field(default_factory=list)
    lag_ms: list[float] = field(default_factory=list)
    lag_rate_per_s: float = 0.0
    failover_s: list[float] = field(default_factory=list)
    postgres_failover_s: list[float] = field(default_factory=list)
    built_mb_per_s: list[float] = field(default_factory=list)

    def add(self, what: str, name: str, connections: int, measured: Measured) -> None:
        for figures, value in ((self.rates, measured.per_s), (self.cpu_us, measured.server_cpu_us)):
            figures.setdefault(what, {}).setdefault(name, {}).setdefault(connections, []).append(value)

    def ratio(self, what: str, connections: int) -> float | None:
        """Of the leader's rate to the single server's, round by round."""
        if what not in self.rates:
            return None
        pairs = zip(self.rates[what][LEADER][connections], self.rates[what][SINGLE][connections], strict=True)
        return statistics.median(leader / single for leader, single in pairs)

    @property
    def read_ratio(self) -> float | None:
        """Of the single server's processor time for a read to the leader's, turn by turn."""
        if not self.read_turns_us:
            return None
        pairs = zip(self.read_turns_us[SINGLE], self.read_turns_us[LEADER], strict=True)
        return statistics.median(single / leader for single, leader in pairs)

    def lines(self) -> Iterable[str]:
        yield ""
        yield "cluster: items/s at 1, 16 and 64 connections, and µs of the server's processor time at 64"
        for what, by_name in self.rates.items():
            for name, by_connections in by_name.items():
                cells = [f"{statistics.median(by_connections[each]):,.0f}" for each in _CONNECTIONS]
                cells.append(f"{statistics.median(self.cpu_us[what][name][_CONNECTIONS[-1]]):,.0f}")
                yield row(f"{what}: {name}", cells)
            yield row(f"  {LEADER} / {SINGLE}", [f"{self.ratio(what, each):.2f}" for each in _CONNECTIONS])
        if self.read_ratio is not None:
            medians = [f"{statistics.median(self.read_turns_us[name]):.1f}" for name in (SINGLE, LEADER)]
            yield row("point read in turns: µs of single server, leader; ratio", [*medians, f"{self.read_ratio:.2f}"])
        yield row("writes forwarded by a follower, 64 connections, items/s", _cells(self.forwarded_per_s, "{:,.0f}"))
        yield row("follower: processor time of an applied write over the leader's", _cells(self.follower_cpu_ratio))
        yield row("follower: processor time of a read over the leader's", _cells(self.follower_read_ratio))
        if self.lag_ms:
            lag = sorted(self.lag_ms)
            cells = [f"{lag[len(lag) // 2]:.1f}", f"{_p99(lag):.1f}", f"{lag[-1]:.1f}"]
            yield row(f"lag at {self.lag_rate_per_s:,.0f} writes/s: p50, p99, most, ms", cells)
        yield row("a write after kill -9 of the leader, s", _cells(self.failover_s))
        yield row("a write after kill -9 of PostgreSQL's primary and a promotion, s", _cells(self.postgres_failover_s))
        yield row("a new node is copied, MB/s", _cells(self.built_mb_per_s, "{:.0f}"))

    def aims(self) -> Iterable[Aim]:
        yield Aim("creates of a leader over a single server's, 64 connections", self.ratio(CREATE, 64), 0.5)
        yield Aim("point reads of a leader over a single server's, 64 connections", self.ratio(READ, 64), 0.95)
        yield Aim("processor time of a single server's read over a leader's, in turns", self.read_ratio, 0.95)
        yield Aim("follower: processor time of an applied write", _median(self.follower_cpu_ratio), 0.5, True)
        yield Aim("follower: processor time of a read", _median(self.follower_read_ratio), 1.1, True)
        yield Aim("lag p99 at a quarter of the highest rate, ms", _p99(sorted(self.lag_ms)), 100, True)
        yield Aim("failover of a leader, s", max(self.failover_s, default=None), 5, True)
        yield Aim("failover of PostgreSQL, s", max(self.postgres_failover_s, default=None), 30, True)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, *, is_quick: bool, say: Say) -> ClusterFigures:
    figures = ClusterFigures()
    with ExitStack() as opened:
        try:
            database = _Postgres(directory / "postgres")
        except OSError as error:
            raise servers.Unavailable(f"PostgreSQL cannot be started: {error}") from error
        opened.callback(database.stop)
        single = servers.start_armillary(directory / "single")
        opened.callback(single.stop)
        cluster = _Cluster(directory, database.url)
        opened.callback(cluster.stop)
        leader = cluster.start("a")
        seconds, rounds = (2.0, 1) if is_quick else (3.0, 3)
        _measure_leader(figures, single, leader, seconds, rounds, say)
        _measure_reads_in_turns(figures, single, leader, say)
        follower = cluster.start("b")
        _measure_follower(figures, leader, follower, seconds, rounds, say)
        _measure_lag(figures, leader, follower, 100 if is_quick else 300, say)
        _measure_building(figures, cluster, 30_000 if is_quick else 200_000, say)
        _measure_failover(figures, cluster, 1 if is_quick else 3, say)
        _measure_postgres_failover(figures, cluster, database, say)
    return figures


class _Postgres:
    """A primary and two standbys, one of which must have a row before it is acknowledged; on disk, synced."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        for each in (directory, *directory.parents):
            if each.stat().st_uid == directory.stat().st_uid and each.name.startswith("armillary-bench-"):
                each.chmod(0o711)  # PostgreSQL does not run as root, and has to reach its own directory
        self._programs = PostgresPrograms(directory)
        primary = PostgresServer(self._programs, "s0")
        self.servers = [primary, *(PostgresServer(self._programs, name, follows=primary) for name in ("s1", "s2"))]
        for server in self.servers:
            server.configure("synchronous_standby_names = 'ANY 1 (s0, s1, s2)'")
            server.start()
        for server in self.servers:
            server.wait_ready()
        self.url = hosts_url(self.servers, "postgres")
        asyncio.run(self._create_log())

    async def _create_log(self) -> None:
        log = await PostgresLog.open(self.url, table_rows=_TABLE_ROWS)
        await log.close()

    def fail_over(self) -> None:
        """The primary dies, and the first standby is promoted, as Patroni or an operator does."""
        self.servers[0].kill()
        asyncio.run(self._promote(self.servers[1]))
        self.servers[2].follow(self.servers[1])
        self.servers[2].reload()

    async def _promote(self, server: PostgresServer) -> None:
        import asyncpg

        connection = await asyncpg.connect(server.url())
        try:
            await connection.execute("SELECT pg_promote(true)")
        finally:
            await connection.close()

    def stop(self) -> None:
        for server in self.servers:
            server.stop()
        self._programs.remove()


class _Cluster:
    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        self._url = url
        self.nodes: dict[str, Server] = {}

    def start(self, name: str) -> Server:
        self.nodes[name] = servers.start_node(self.path_of(name), self._url, name)
        return self.nodes[name]

    def path_of(self, name: str) -> Path:
        return self._directory / f"node-{name}"

    def kill(self, name: str) -> None:
        node = self.nodes.pop(name)
        node.process.kill()
        node.stop()

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop()


def _measure_leader(
    figures: ClusterFigures, single: Server, leader: Server, seconds: float, rounds: int, say: Say
) -> None:
    contestants = ((SINGLE, single), (LEADER, leader))
    numbers = range(NUMBER_FIRST, NUMBER_FIRST + _ITEMS)
    kept = {name: server.new_container(numbers) for name, server in contestants}
    fresh = NUMBER_FIRST + 10 * load.NUMBERS_PER_RUN
    for turn in range(rounds):
        for connections in _CONNECTIONS:
            for what in (READ, CREATE, BATCH):
                for name, server in contestants:
                    fresh += load.NUMBERS_PER_RUN
                    scripts: dict[str, Callable[[str, int], str]] = {
                        READ: lambda container, _: load.reads(container, numbers),
                        CREATE: load.creates,
                        BATCH: load.batches,
                    }
                    measured = run_wrk(
                        server.port,
                        scripts[what](kept[name], fresh),
                        connections=connections,
                        seconds=seconds,
                        cpu_pid=server.pid,
                        items=BATCH_ITEMS if what == BATCH else 1,
                    )
                    _check(measured, what)
                    figures.add(what, name, connections, measured)
                    say(f"{what}, round {turn + 1}, {connections:2}: {name} {measured.per_s:,.0f}/s")


def _measure_reads_in_turns(figures: ClusterFigures, single: Server, leader: Server, say: Say) -> None:
    """In turns of some ten milliseconds, so that other load on the machine affects both alike."""
    contestants = {SINGLE: Contestant(single), LEADER: Contestant(leader)}
    for each in contestants.values():
        each.turn(compare.READ)  # warm-up
    for _ in range(_READ_TURNS):
        for name, each in contestants.items():
            figures.read_turns_us.setdefault(name, []).append(each.turn(compare.READ).cpu_us)
    for each in contestants.values():
        each.close()
    say(f"point read in {_READ_TURNS} turns: a single server's processor time / the leader's {figures.read_ratio:.2f}")


def _measure_follower(
    figures: ClusterFigures, leader: Server, follower: Server, seconds: float, rounds: int, say: Say
) -> None:
    numbers = range(NUMBER_FIRST, NUMBER_FIRST + _ITEMS)
    container = leader.new_container(numbers)
    fresh = NUMBER_FIRST + 150 * load.NUMBERS_PER_RUN
    for turn in range(rounds):
        fresh += load.NUMBERS_PER_RUN
        before_s = cpu_seconds(follower.pid)
        script = load.creates(container, fresh)
        written = run_wrk(leader.port, script, connections=64, seconds=seconds, cpu_pid=leader.pid)
        _until_same(leader, follower, container)
        applied_us = (cpu_seconds(follower.pid) - before_s) * 1e6 / max(1, written.requests)
        figures.follower_cpu_ratio.append(applied_us / written.server_cpu_us)
        fresh += load.NUMBERS_PER_RUN
        forwarded = run_wrk(
            follower.port, load.creates(container, fresh), connections=64, seconds=seconds, cpu_pid=follower.pid
        )
        _check(forwarded, "forwarded create")
        figures.forwarded_per_s.append(forwarded.per_s)
        _until_same(leader, follower, container)
        reads = [
            run_wrk(
                each.port, load.reads(container, numbers), connections=64, seconds=seconds, cpu_pid=each.pid
            ).server_cpu_us
            for each in (leader, follower)
        ]
        figures.follower_read_ratio.append(reads[1] / reads[0])
        say(
            f"follower, round {turn + 1}: {applied_us:.0f} µs for an applied write of {written.server_cpu_us:.0f}, "
            f"{reads[1]:.0f} µs for a read of {reads[0]:.0f}, {forwarded.per_s:,.0f} forwarded/s"
        )


def _measure_lag(figures: ClusterFigures, leader: Server, follower: Server, probes: int, say: Say) -> None:
    """Time from the acknowledgement of a write at the leader until a follower shows it, at a quarter of the highest
    rate of writes."""
    container = leader.new_container(range(0))
    highest = max(max(each) for each in figures.rates[CREATE][LEADER].values())
    figures.lag_rate_per_s = rate = highest / 4
    stopping = threading.Event()
    writers = [
        threading.Thread(target=_write_steadily, args=(leader, container, n, rate / 4, stopping)) for n in range(4)
    ]
    for each in writers:
        each.start()
    try:
        first = 900_000_000
        reading = http.client.HTTPConnection("127.0.0.1", follower.port, timeout=30)
        writing = http.client.HTTPConnection("127.0.0.1", leader.port, timeout=30)
        for number in range(first, first + probes):
            _create(writing, container, number)
            acknowledged_s = time.perf_counter()
            while not _is_there(reading, container, number):
                pass
            figures.lag_ms.append((time.perf_counter() - acknowledged_s) * 1000)
    finally:
        stopping.set()
        for each in writers:
            each.join()
    say(f"lag at {rate:,.0f} writes/s: p99 {_p99(sorted(figures.lag_ms)):.1f} ms")


def _measure_building(figures: ClusterFigures, cluster: _Cluster, items: int, say: Say) -> None:
    """A node joins whose rows are not in the log any more."""
    cluster.nodes["a"].new_container(range(NUMBER_FIRST, NUMBER_FIRST + items))
    begun_s = time.monotonic()
    cluster.start("c")
    taken_s = time.monotonic() - begun_s
    size_mb = sum(file.stat().st_size for file in (cluster.path_of("c") / "rocks").glob("*.sst")) / 2**20
    figures.built_mb_per_s.append(size_mb / taken_s)
    say(f"a new node was ready after {taken_s:.1f} s, with {size_mb:.0f} MB of tables")


def _measure_failover(figures: ClusterFigures, cluster: _Cluster, rounds: int, say: Say) -> None:
    container = cluster.nodes["a"].new_container(range(0))
    leader = "a"
    for turn in range(rounds):
        cluster.kill(leader)
        taken_s, next_leader = _until_written(next(iter(cluster.nodes.values())), container, turn)
        figures.failover_s.append(taken_s)
        say(f"failover: {taken_s:.2f} s")
        cluster.start(leader)
        leader = next_leader


def _measure_postgres_failover(figures: ClusterFigures, cluster: _Cluster, database: _Postgres, say: Say) -> None:
    node = next(iter(cluster.nodes.values()))
    protocol.create_container(node.port, "over")
    begun_s = time.monotonic()
    database.fail_over()
    _until_written(node, "over", 1000)
    figures.postgres_failover_s.append(time.monotonic() - begun_s)
    say(f"failover of PostgreSQL: {figures.postgres_failover_s[-1]:.2f} s")


# Single requests.


def _create(connection: http.client.HTTPConnection, container: str, number: int) -> tuple[int, str]:
    """The status, and the node that has carried it out."""
    partition = protocol.batched_partition(number)
    body = protocol.filled(protocol.item(), number, partition)
    headers = protocol.create_headers(container) | protocol.partition_header(str(partition))
    connection.request("POST", f"/{protocol.container_link(container)}/docs", body.encode(), headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.getheader("x-armillary-node") or ""


def _is_there(connection: http.client.HTTPConnection, container: str, number: int) -> bool:
    link = f"{protocol.container_link(container)}/docs/item-{number}"
    extra = protocol.partition_header(str(protocol.batched_partition(number)))
    connection.request("GET", "/" + link, headers=protocol.signed("GET", "docs", link, extra))
    answer = connection.getresponse()
    answer.read()
    return answer.status == 200


def _write_steadily(leader: Server, container: str, lane: int, rate: float, stopping: threading.Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", leader.port, timeout=30)
    begun_s = time.monotonic()
    for count in range(10**9):
        if stopping.is_set():
            break
        _create(connection, container, NUMBER_FIRST + lane * 50_000_000 + count)
        ahead_s = begun_s + count / rate - time.monotonic()
        if ahead_s > 0:
            time.sleep(ahead_s)
    connection.close()


def _until_same(leader: Server, follower: Server, container: str) -> None:
    """A last write, and until the follower shows it."""
    number = 999_000_000 - int(time.monotonic() * 1000) % 10_000_000
    writing = http.client.HTTPConnection("127.0.0.1", leader.port, timeout=30)
    reading = http.client.HTTPConnection("127.0.0.1", follower.port, timeout=30)
    _create(writing, container, number)
    ends_s = time.monotonic() + _PATIENCE_S
    while not _is_there(reading, container, number):
        if time.monotonic() > ends_s:
            raise RuntimeError("the follower does not catch up")
        time.sleep(0.01)


def _until_written(node: Server, container: str, turn: int) -> tuple[float, str]:
    """Seconds until a write through a node succeeds, and the node that leads then."""
    begun_s = time.monotonic()
    number = 700_000_000 + turn * 1000
    while time.monotonic() - begun_s < _PATIENCE_S:
        connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=30)
        try:
            number += 1
            status, leader = _create(connection, container, number)
            if status == 201:
                return time.monotonic() - begun_s, leader
        except OSError:
            pass
        finally:
            connection.close()
    raise RuntimeError("no write succeeds")


def _check(measured: Measured, what: str) -> None:
    if measured.errors:
        raise RuntimeError(f"{what}: {measured.errors} of {measured.requests} requests failed")


def _p99(ordered: list[float]) -> float | None:
    return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] if ordered else None


def _median(found: list[float]) -> float | None:
    return statistics.median(found) if found else None


def _cells(found: list[float], form: str = "{:.2f}") -> list[str]:
    return [form.format(each) for each in found]
