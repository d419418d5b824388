"""How far a cluster with several logs grows: 100 nodes and 10,000 partitions, which no machine of ours has, out of
parts that one machine can measure. The catalog is the real one with all its records; plans are made by the real
planner; what nodes ask of PostgreSQL is counted in a cluster of three real nodes and scaled by what causes each call.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.allocation import place_of_store
from armillary.account.catalog.catalog import CATALOG_STORE
from armillary.account.container import Container
from armillary.account.containers import create_container, create_database
from armillary.account.registry import AccountSettings
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.elsewhere.message_table import MESSAGES
from armillary.account.visits.elsewhere.partition_elsewhere import PartitionElsewhere
from armillary.clock import SystemClock
from armillary.cluster.placement.figures import Figures, PlacedLog, PlacedNode, PlacedReplica
from armillary.cluster.placement.planner import plan
from armillary.cluster.placement.record import PlacementRecord
from armillary.cluster.placement.steps import Action
from armillary.model.ranges import KeyRange
from armillary.model.resources import ResourceType
from armillary.partition.partition import Partition
from armillary.processes.catalog_questions import AdoptChange, CatalogState
from armillary.processes.catalog_replica import CatalogReplica, Change
from armillary.storage.engine import Txn
from armillary.storage.memory import MemoryEngine
from bench import servers
from bench.growth_log import Asked, Scale, asked, listed_bytes
from bench.idle import memory_mb
from bench.sections import Aim, Say, row

_RANGES: Final = 10  # of a container
_RU: Final = 10_000 * _RANGES
_GB: Final = 1024**3
_DISK: Final = 16_000 * _GB
_TURNS: Final = 200


@dataclass
class CatalogFigures:
    containers: int
    stored_bytes: int
    loaded_s: float  # from a store
    message_bytes: int  # that a node gets which joins
    joined_s: float  # of its processor, to decode it and load the catalog
    change_bytes: int  # that each node gets when a container changes
    encoded_us: float  # of the catalog's owner, for each node
    adopted_us: float  # of each node
    account_mb: float  # of a node: the catalog with all containers open, and most partitions elsewhere
    opened_s: float


@dataclass
class PlanFigures:
    what: str
    seconds: float
    steps: int
    copies: int


@dataclass
class GrowthFigures:
    scale: Scale
    partitions: int
    catalog: CatalogFigures
    plans: list[PlanFigures]
    asked: list[Asked] = field(default_factory=list)
    skipped: str = ""

    @property
    def statements_per_s(self) -> float:
        return sum(each.scaled_per_s * each.statements for each in self.asked)

    @property
    def postgres_cpu(self) -> float:
        """Processors of PostgreSQL."""
        return sum(each.scaled_per_s * each.cpu_us for each in self.asked) / 1e6

    @property
    def connections(self) -> int:
        """To PostgreSQL: three of each node, and one for the appends of each log."""
        return 3 * self.scale.nodes + self.scale.logs

    def lines(self) -> Iterable[str]:
        scale, catalog = self.scale, self.catalog
        yield ""
        yield (
            f"growth: {scale.nodes} nodes, {self.partitions:,} partitions in {catalog.containers:,} containers, "
            f"{scale.logs} logs with {scale.replicas} replicas"
        )
        yield row("catalog, MB", [f"{catalog.stored_bytes / 1e6:.1f}"])
        yield row("catalog, loaded from its store, s", [f"{catalog.loaded_s:.2f}"])
        yield row("catalog, as a message to a node that joins, MB", [f"{catalog.message_bytes / 1e6:.1f}"])
        yield row("catalog, decoded and loaded there, s", [f"{catalog.joined_s:.2f}"])
        yield row("change of a container, bytes to each node", [f"{catalog.change_bytes:,}"])
        yield row("change of a container, µs of its owner for each node", [f"{catalog.encoded_us:,.0f}"])
        yield row("change of a container, µs to adopt it", [f"{catalog.adopted_us:,.0f}"])
        yield row("a node's memory for catalog, containers and partitions, MB", [f"{catalog.account_mb:.0f}"])
        yield row("all containers opened, s", [f"{catalog.opened_s:.1f}"])
        for each in self.plans:
            yield row(
                f"plan: {each.what} ({each.steps} steps, {each.copies} copies), ms", [f"{1000 * each.seconds:,.0f}"]
            )
        if self.skipped:
            yield f"  PostgreSQL: {self.skipped}"
            return
        yield row("idle: calls a second, of one", ["", "all", "stmts/s", "µs each", "CPU %"])
        for call in self.asked:
            if not call.statements:
                yield row(f"  {call.name}, between nodes, of each {call.cause}", _cells(call)[:2])
                continue
            yield row(f"  {call.name}, of each {call.cause}", _cells(call))
        yield row("idle: statements a second at PostgreSQL", [f"{self.statements_per_s:,.0f}"])
        yield row("idle: processors of PostgreSQL", [f"{self.postgres_cpu:.2f}"])
        yield row("idle: list of nodes, answered by PostgreSQL, MB/s", [f"{self._listed_mb_per_s():.1f}"])
        yield row("connections of PostgreSQL", [f"{self.connections:,}"])
        beats = (scale.nodes - 1) / limits.PEER_BEAT_SECONDS
        yield row(
            "connections of a node to others, and heartbeats it sends a second", [f"{scale.nodes - 1}", f"{beats:.0f}"]
        )

    def _listed_mb_per_s(self) -> float:
        per_s = next((each.scaled_per_s for each in self.asked if each.name == "nodes"), 0.0)
        return per_s * listed_bytes(self.scale) / 1e6

    def aims(self) -> Iterable[Aim]:
        yield Aim("growth: the catalog is loaded by a node that joins, s", self.catalog.joined_s, 5, True)
        yield Aim("growth: the longest plan, s", max(each.seconds for each in self.plans), 5, True)
        cpu = None if self.skipped else self.postgres_cpu
        yield Aim("growth: processors of PostgreSQL while nothing is written", cpu, 1, True)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _cells(call: Asked) -> list[str]:
    statements = call.scaled_per_s * call.statements
    return [
        f"{call.per_s:.2f}",
        f"{call.scaled_per_s:,.0f}",
        f"{statements:,.0f}",
        f"{call.cpu_us:,.0f}",
        f"{call.scaled_per_s * call.cpu_us / 1e4:.1f}",
    ]


def measure(
    directory: Path,
    *,
    is_quick: bool,
    say: Say,
    nodes: int = 100,
    partitions: int = 10_000,
    logs: int = limits.CLUSTER_LOGS_MAX,
) -> GrowthFigures:
    scale = Scale(nodes, logs, limits.PLACEMENT_REPLICAS)
    say(f"growth: a catalog with {partitions:,} partitions")
    pairs = asyncio.run(_grown_catalog(partitions // _RANGES, logs))
    catalog = asyncio.run(_measure_catalog(pairs, partitions // _RANGES))
    with get_context("spawn").Pool(1) as pool:  # a process that has nothing else in its memory
        catalog.account_mb, catalog.opened_s = pool.apply(_account_memory, (pairs, logs))
    say("growth: plans")
    figures = GrowthFigures(scale, partitions, catalog, _measure_plans(scale, partitions))
    say("growth: a cluster of three nodes on PostgreSQL")
    try:
        seconds, small_logs = (10.0, 4) if is_quick else (30.0, 16)
        figures.asked = asyncio.run(asked(directory, scale, logs=small_logs, seconds=seconds))
    except OSError as error:
        raise servers.Unavailable(f"PostgreSQL cannot be started: {error}") from error
    return figures


# The catalog.


class _Elsewhere:
    """A place that is not asked."""

    def __init__(self, number: int) -> None:
        self.number = number


class _SpreadAccount(Account):
    """As a node of a cluster has it that leads one log: partitions of others are elsewhere."""

    log_count = 1

    @property
    def place_count(self) -> int:
        return self.log_count

    def reaches(self, place: int) -> bool:
        return True

    def spread(self, count: int, own: int) -> None:
        self.log_count, self.place = count, own
        self._elsewhere: list[Any] = [_Elsewhere(number) for number in range(count)]
        self.stand_ins = self._stand_in

    def _stand_in(self, container: Container, key_range: KeyRange) -> Partition | None:
        place = place_of_store(key_range.store)
        if place == self.place:
            return None
        rid, first_lsn = container.record.rid, container.state.first_lsn
        return PartitionElsewhere(self._elsewhere[place], rid, key_range, self.clock, lambda: container.map, first_lsn)


Pairs = list[tuple[bytes, bytes]]


async def _grown_catalog(containers: int, logs: int) -> Pairs:
    """What its store has: the default indexing policy, and an offer for each container."""
    engine = MemoryEngine()
    account = _SpreadAccount(engine, SystemClock(), AccountSettings())
    account.spread(logs, 0)
    await account.begin()
    try:
        database = None
        for number in range(containers):
            if number % 50 == 0:
                database = await create_database(account, {"id": f"database-{number // 50:03}"}, None)
            assert database is not None
            definition = {
                "id": f"container-{number:05}",
                "partitionKey": {"paths": ["/tenant"], "kind": "Hash", "version": 2},
            }
            await create_container(account, database, definition, Throughput(_RU))
        return await engine.store(CATALOG_STORE).read(lambda view: list(view.scan(b"", b"\xff" * 16)))
    finally:
        await account.close()


async def _measure_catalog(pairs: Pairs, containers: int) -> CatalogFigures:
    engine, clock = MemoryEngine(), SystemClock()

    await engine.store(CATALOG_STORE).write(lambda txn: _fill(txn, pairs))
    account = _SpreadAccount(engine, clock, AccountSettings())
    begun_s = time.perf_counter()
    await account.catalog.load()
    loaded_s = time.perf_counter() - begun_s
    codec = MESSAGES
    message = codec.encode(CatalogState(1, pairs))
    begun_s = time.perf_counter()
    state: CatalogState = codec.decode(message)
    replica = CatalogReplica()
    replica.load(state.version, state.pairs)
    joined = _SpreadAccount(_OverReplica(replica), clock, AccountSettings())  # type: ignore[arg-type]
    await joined.catalog.load()
    joined_s = time.perf_counter() - begun_s
    record = joined.catalog.of_type(ResourceType.CONTAINER)[containers // 2]
    key = next(key for key, value in pairs if key.endswith(record.rid) and value == record.pack())
    encoding, adopting = [], []
    for turn in range(_TURNS):
        change = Change(replica.version, {key: replace(record, ts=turn).pack()})
        begun_s = time.perf_counter()
        sent = codec.encode(AdoptChange(change.version, change.writes, change.cleared))
        encoded_s = time.perf_counter()
        received: AdoptChange = codec.decode(sent)
        replica.take(Change(received.version, received.writes, received.cleared))
        joined.catalog.adopt(received.writes)
        encoding.append(encoded_s - begun_s)
        adopting.append(time.perf_counter() - encoded_s)
    return CatalogFigures(
        containers=containers,
        stored_bytes=sum(len(key) + len(value) for key, value in pairs),
        loaded_s=loaded_s,
        message_bytes=len(message),
        joined_s=joined_s,
        change_bytes=len(sent),
        encoded_us=statistics.median(encoding) * 1e6,
        adopted_us=statistics.median(adopting) * 1e6,
        account_mb=0.0,
        opened_s=0.0,
    )


def _fill(txn: Txn, pairs: Pairs) -> None:
    for key, value in pairs:
        txn.put(key, value)


class _OverReplica:
    """An engine whose catalog is a copy of another node's."""

    def __init__(self, replica: CatalogReplica) -> None:
        self._replica = replica

    def store(self, number: int) -> CatalogReplica:
        assert number == CATALOG_STORE
        return self._replica


def _account_memory(pairs: Pairs, logs: int) -> tuple[float, float]:
    """Memory in MB and seconds, to open an account of which one log's partitions are here."""
    return asyncio.run(_open_account(pairs, logs))


async def _open_account(pairs: Pairs, logs: int) -> tuple[float, float]:
    import os

    engine = MemoryEngine()
    await engine.store(CATALOG_STORE).write(lambda txn: _fill(txn, pairs))
    account = _SpreadAccount(engine, SystemClock(), AccountSettings())
    account.spread(logs, logs - 1)
    before_mb, begun_s = memory_mb(os.getpid()), time.perf_counter()
    await account.catalog.load()
    for record in account.catalog.of_type(ResourceType.CONTAINER):
        await account.enter(record)
    return memory_mb(os.getpid()) - before_mb, time.perf_counter() - begun_s


# Plans.


def _measure_plans(scale: Scale, partitions: int) -> list[PlanFigures]:
    chance = random.Random(20)
    names = [f"node{number:03}" for number in range(scale.nodes)]
    nodes = [PlacedNode(name, ("eu", "us", "asia")[n % 3], True, 0.0, False, _DISK) for n, name in enumerate(names)]
    everywhere = tuple(PlacedReplica(name, True) for name in names)
    size = 10 * _GB * partitions // scale.logs
    logs = [
        PlacedLog(
            number,
            names[0],
            everywhere if number == 0 else everywhere[:1],
            20_000 * chance.random(),
            int(size * chance.uniform(0.5, 1.5)),
            partitions // scale.logs,
        )
        for number in range(scale.logs)
    ]
    begun = Figures(nodes, logs)
    found, spread = _timed("a new cluster, everything on one node", begun, PlacementRecord())
    plans = [found, _timed("nothing to do", spread, PlacementRecord())[0]]
    more = PlacedNode("node-new", "eu", True, 0.0, False, _DISK)
    joined = Figures([*spread.nodes, more], [_with_replica(spread.logs[0], more.name), *spread.logs[1:]])
    plans.append(_timed("a node joins", joined, PlacementRecord())[0])
    lost = [replace(each, is_alive=False, silent_s=1e6) if each.name == names[1] else each for each in spread.nodes]
    led = [replace(each, leader=_other(each, names[1])) for each in spread.logs]
    plans.append(_timed("a node is gone", Figures(lost, led), PlacementRecord())[0])
    plans.append(_timed("a node is emptied", spread, PlacementRecord(emptied=(names[2],)))[0])
    shifted = [replace(each, units_per_s=20_000 * chance.random()) for each in spread.logs]
    plans.append(_timed("all loads have changed", Figures(spread.nodes, shifted), PlacementRecord())[0])
    return plans


def _timed(what: str, figures: Figures, record: PlacementRecord) -> tuple[PlanFigures, Figures]:
    begun_s = time.perf_counter()
    found = plan(figures, record, steps_max=100_000)
    seconds = time.perf_counter() - begun_s
    copies = sum(each.action is Action.CARRY for each in found.steps)
    logs = {each.number: each for each in figures.logs}
    for step in found.steps:
        log = logs[step.log]
        match step.action:
            case Action.CARRY:
                logs[step.log] = _with_replica(log, step.node)
            case Action.GIVE_UP:
                logs[step.log] = replace(log, replicas=tuple(each for each in log.replicas if each.node != step.node))
            case Action.HAND_OVER:
                logs[step.log] = replace(log, leader=step.node)
    nodes = [replace(each, free_bytes=_free_bytes(each.name, logs.values())) for each in figures.nodes]
    return PlanFigures(what, seconds, len(found.steps), copies), Figures(nodes, list(logs.values()))


def _free_bytes(node: str, logs: Iterable[PlacedLog]) -> int:
    carried = (each.size_bytes for each in logs if each.number and any(one.node == node for one in each.replicas))
    return _DISK - sum(carried)


def _with_replica(log: PlacedLog, node: str) -> PlacedLog:
    return replace(log, replicas=(*log.replicas, PlacedReplica(node, True)))


def _other(log: PlacedLog, node: str) -> str:
    """The leader, after this node has died."""
    return log.leader if log.leader != node else next(each.node for each in log.replicas if each.node != node)
