"""A cluster with several logs in one process, from a seed: nodes carry replicas of logs on simulated disks, the
balancer places them, and meanwhile nodes are killed, cut off, drained, emptied and joined, logs are moved by operators,
and loads shift. `cluster_simulation.py` does the same for one log, with more kinds of faults.

The parts of a node below its account are the product's: `NodeLogs`, the leadership of each log, the placement record
in the catalog's log, the balancer. Copies of replicas are simulated: a state of another node that arrives later.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from faults.checkers.items import NEVER, Call, Said, Verb, check_items
from faults.cluster.cluster_simulation import ITEMS, STORE, Trouble, _write
from faults.cluster.simulated_peers import Network, SimulatedSource
from faults.cluster.simulated_replica import Disk, SimulatedDatabase, SimulatedDirectory
from faults.elastic.simulation import SimulatedClock, SimulatedLoop
from faults.ledger import Violation

from armillary import limits
from armillary.cluster.bootstrap import needs_bootstrap
from armillary.cluster.logs.log_replica import LogReplica, LogSettings
from armillary.cluster.logs.node_logs import NodeLogs
from armillary.cluster.membership import has_drained, is_alive
from armillary.cluster.placement.balancer import Balancer
from armillary.cluster.placement.figures import Figures, PlacedLog, PlacedNode, PlacedReplica
from armillary.cluster.placement.planner import plan
from armillary.cluster.placement.record import SETTING, PlacementRecord, PlacementRules
from armillary.errors import Failure, Kind
from armillary.storage.engine import Txn
from armillary.storage.log.memory_log import MemoryLogs, MemoryLogServer
from armillary.storage.log.replicated_log import LogUnavailable, NodeState, ReplicatedLog
from armillary.storage.log.rows import Place, Row, read_group
from armillary.storage.memory import SortedMap
from armillary.storage.overlay import Layer
from armillary.storage.replication.leadership import Leadership
from armillary.storage.replication.local_replica import LocalReplica

LOGS: Final = 3
REGIONS: Final = {"n1": "eu", "n2": "eu", "n3": "us", "n4": "us"}
JOINING: Final = "n5"
SETTINGS_STORE: Final = 2  # in log 0: the settings of the catalog
_GENERATIONS: Final = [b"simulated log %02d" % number for number in range(1, LOGS + 1)]
_STEP_SECONDS_MAX: Final = 30.0
# Shorter than the product's, so that much happens in a run.
_LIMITS: Final = {
    "PLACEMENT_GONE_SECONDS": 15.0,
    "PLACEMENT_REST_SECONDS": 4.0,
    "PLACEMENT_RETRY_SECONDS": 2.0,
    "PLACEMENT_PAUSE_SECONDS": 1.0,
    "LOG_WITHDRAW_SECONDS_MAX": 4.0,
}


class LogHistory(MemoryLogServer):
    """A log, and what clients have seen of it."""

    def __init__(self, number: int, counters: Counter[str]) -> None:
        super().__init__(_GENERATIONS[number])
        self.number = number
        self.calls: list[Call] = []
        self.archive: dict[int, Row] = {}  # all acknowledged rows
        self.acknowledged: list[Place] = []  # of writes, or behind them
        self.seen: list[tuple[str, Place, dict[bytes, bytes]]] = []  # states of followers
        self._counters = counters

    def trim(self, seq: int) -> int:
        self.keep()
        before = len(self.rows)
        first = super().trim(seq)
        self._counters["rows trimmed"] += before - len(self.rows)
        return first

    def keep(self) -> None:
        for row in self.rows:
            if row.seq <= self.replicated:
                self.archive.setdefault(row.seq, row)

    def judge(self) -> list[Violation]:
        self.keep()
        found = check_items(self.calls)
        for place in self.acknowledged:
            row = self.archive.get(place.seq)
            if row is None or row.place != place:
                found.append(Violation("two leaders", f"a write was acknowledged at {place}, the log has {row}"))
        states: dict[int, tuple[bytes, dict[bytes, bytes]]] = {}
        state, group, prefix = SortedMap(), list[Row](), STORE.to_bytes(4, "big")
        for _, row in sorted(self.archive.items()):
            group.append(row)
            if row.is_last:
                state.apply(read_group(group)[0])
                group = []
            states[row.seq] = row.chain, {key[4:]: value for key, value in state.scan(prefix, prefix + b"\xff")}
        for node, place, content in self.seen:
            if place.seq and states.get(place.seq) != (place.chain, content):
                found.append(Violation("prefix", f"the state that {node} showed at row {place.seq} is not the log's"))
        return [Violation(each.kind, f"log {self.number}: {each.text}") for each in found]


class Carrier:
    """A node that can be killed and started again."""

    def __init__(self, name: str, region: str, world: SpreadWorld) -> None:
        self.name = name
        self.region = region
        self.world = world
        self.disks: dict[int, Disk] = {0: Disk()}
        self.databases: dict[int, SimulatedDatabase] = {}
        self.whole: set[int] = set()  # logs of which it has had a replica that could follow
        dice = random.Random(f"{world.seed}/{name}")
        self.trouble = Trouble(dice, world.clock, world.counters)
        self.sources = [SimulatedSource(network, name) for network in world.networks]
        self.is_drained = False
        self.logs: NodeLogs | None = None
        self.failure: BaseException | None = None
        self._rate, self._offset_s = dice.uniform(0.9, 1.1), dice.uniform(0, 1000)
        self._tasks: list[asyncio.Task[None]] = []
        self.balancer: Balancer | None = None

    def boot_time_s(self) -> float:
        return self._offset_s + self.world.loop.now_s * self._rate

    async def start(self) -> None:
        logs = MemoryLogs(self.world.servers, self.world.clock, self.trouble)
        settings = LogSettings(
            self.name,
            self.region,
            lambda replica: _NoRoles(self.world.counters),
            boot_time=self.boot_time_s,
            row_source=lambda number: self.sources[number],
        )
        peers: Any = SimpleNamespace(handlers={})
        self.logs = node_logs = NodeLogs(logs, self, peers, self.world.clock, settings, is_drained=self.is_drained)
        self._tasks = [
            asyncio.ensure_future(each)
            for each in (self._announce(logs), self._run(node_logs), self._follow_record(), self._balance())
        ]

    async def _run(self, logs: NodeLogs) -> None:
        try:
            await logs.start()
            await logs.until_failed()
        except Failure as failure:
            self.failure = failure

    async def _announce(self, logs: MemoryLogs) -> None:
        while True:
            with suppress(LogUnavailable):
                addresses = {"drained": "kept"} if self.is_drained else {}
                await (await logs.log(0)).announce(self.name, self.region, addresses)
            await self.world.clock.sleep(limits.NODE_ANNOUNCE_SECONDS)

    async def kill(self) -> None:
        """The process dies at once; its disks keep what was synced and a part of the rest."""
        logs, self.logs = self.logs, None
        if logs is None:
            return
        tasks, self._tasks = self._tasks, []
        tasks += [*logs._carrying.values(), *([logs._watching] if logs._watching else [])]
        for replica in logs.replicas.values():
            commit = replica.engine._commit
            tasks += [each for each in (commit._flying, commit._watch) if each is not None] if commit else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        logs._failed.cancel()
        self.databases.clear()
        for disk in self.disks.values():
            disk.crash(self.trouble.dice)
        self.trouble.is_cut = False
        self.world.counters["kills"] += 1

    def replica(self, log: int) -> LogReplica | None:
        return self.logs.replicas.get(log) if self.logs is not None else None

    # Implements ReplicaDirectories.

    def present(self) -> set[int]:
        return {0, *self.disks}

    async def open(self, number: int, log: ReplicatedLog) -> LocalReplica:
        while True:
            with suppress(LogUnavailable):
                await log.register(self.name)
                disk = self.disks.setdefault(number, Disk())
                database = SimulatedDatabase(disk)
                replica = LocalReplica.open(
                    SimulatedDirectory(),
                    _GENERATIONS[number],
                    reserve_bytes=2,
                    open_database=lambda path, opened=database: opened,  # type: ignore[misc]
                )
                if not await needs_bootstrap(replica.position, log):
                    self.databases[number] = database
                    self.whole.add(number)
                    return replica
                await self._copy(number)
            await self.world.clock.sleep(limits.LOG_RETRY_SECONDS)

    async def _copy(self, number: int) -> None:
        others = [each for each in self.world.carriers if each is not self and number in each.databases]
        if not others:
            return
        source = self.trouble.dice.choice(others)
        copied = SortedMap()
        copied.copy_from(source.databases[number]._map)
        await self.world.clock.sleep(self.trouble.dice.uniform(0.1, 3.0))
        if self.trouble.dice.random() < 0.2:
            self.world.counters["copies broken"] += 1
            return
        disk = Disk()
        disk.synced = copied
        self.disks[number] = disk
        self.world.counters["copies"] += 1

    async def remove(self, number: int) -> None:
        self.disks.pop(number)
        self.databases.pop(number, None)
        self.whole.discard(number)
        self.world.counters["replicas given up"] += 1
        others = sum(number in each.whole for each in self.world.carriers)
        if others < self.world.replica_count:
            told = f"{self.name} has given up log {number}, of which {others} other nodes have a whole replica"
            self.world.violations.append(Violation("too few replicas", told))

    # The catalog's part.

    async def kept_setting(self, name: str) -> bytes | None:
        replica = self.replica(0)
        view = replica.engine.store(SETTINGS_STORE).at_hand() if replica is not None else None
        return view.get(name.encode()) if view is not None else None

    async def keep_setting(self, name: str, value: bytes) -> None:
        def run(txn: Txn) -> None:
            txn.put(name.encode(), value)

        replica = self.replica(0)
        if replica is None:
            raise Failure(Kind.UNAVAILABLE, "It is not open.")
        await replica.engine.store(SETTINGS_STORE).write(run)

    async def _follow_record(self) -> None:
        """Carry what the record says, as far as this node has followed the catalog."""
        while True:
            await self.world.clock.sleep(0.5)
            catalog = self.replica(0)
            if self.logs is None or catalog is None or catalog.staleness[0] > limits.LEASE_SECONDS:
                continue  # an older record may say otherwise
            packed = await self.kept_setting(SETTING)
            if packed is not None:
                record = PlacementRecord.unpack(packed)
                self.logs.want(record.logs_of(self.name, self.present()))

    async def _balance(self) -> None:
        """While this node leads log 0."""
        while True:
            await self.world.clock.sleep(0.5)
            replica = self.replica(0)
            if replica is None or not replica.takes_writes:
                continue
            self.balancer = Balancer(self, self.world, self.world.clock)
            running = asyncio.ensure_future(self.balancer.run())
            try:
                while self.replica(0) is replica and replica.takes_writes and not running.done():
                    await self.world.clock.sleep(0.2)
            finally:
                self.balancer = None
                running.cancel()
                ended = await asyncio.gather(running, return_exceptions=True)
                if isinstance(ended[0], Exception):
                    self.world.violations.append(Violation("balancer", repr(ended[0])))


class _NoRoles:
    """Implements Roles."""

    def __init__(self, counters: Counter[str]) -> None:
        self._counters = counters

    async def lead(self) -> None:
        self._counters["take-overs"] += 1

    def cease(self) -> None: ...
    async def follow(self) -> None: ...
    def adopt(self, layer: Layer, notes: bytes) -> None: ...
    def apply_delay_s(self) -> float:
        return 0.0


@dataclass
class SpreadWorld:
    """Implements PlacementActions, too."""

    seed: int
    loop: SimulatedLoop
    clock: SimulatedClock
    counters: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.servers = [LogHistory(number, self.counters) for number in range(LOGS)]
        self.networks = [
            Network(random.Random(f"{self.seed}/network/{number}"), self.clock, self.counters, self._finder(number))
            for number in range(LOGS)
        ]
        self.carriers = [Carrier(name, region, self) for name, region in REGIONS.items()]
        self.units = [0.0] * LOGS
        self.replica_count = self.dice.choice([1, 2, 3, 3])
        self._values = 0

    def _finder(self, number: int) -> Any:
        def find(name: str) -> Leadership | None:
            replica = next((each.replica(number) for each in self.carriers if each.name == name), None)
            return replica.leadership if replica is not None else None

        return find

    # Clients.

    async def client(self, name: str) -> None:
        dice = random.Random(f"{self.seed}/{name}")
        while True:
            await self.clock.sleep(dice.uniform(0.0, 0.4))
            number = dice.randrange(LOGS)
            carrying = [each for each in self.carriers if each.replica(number) is not None]
            leading = [each for each in carrying if (r := each.replica(number)) is not None and r.leads]
            if carrying:
                asked = leading if leading and dice.random() < 0.9 else carrying
                await self._ask(name, dice.choice(asked), number, dice)

    async def _ask(self, client: str, node: Carrier, number: int, dice: random.Random) -> None:
        replica, history = node.replica(number), self.servers[number]
        assert replica is not None
        item, begun = dice.choice(ITEMS), self.loop.now_s
        verb = dice.choice([Verb.READ, Verb.READ, Verb.UPSERT, Verb.CREATE, Verb.REPLACE, Verb.DELETE])
        if verb is Verb.READ:
            self.read(client, replica, node.name, item)
            return
        self._values += 1
        value = f"v{self._values}"
        written, was_there = value if verb is not Verb.DELETE else None, None
        said = Said.UNKNOWN
        try:
            said, was_there = await _write(replica.engine, item, verb, value)
        except Failure as failure:
            said = Said.UNKNOWN if "not known" in failure.message else Said.REFUSED
            self.counters[f"writes {said.value}"] += 1
        finally:  # also of a node that was killed
            ended = NEVER if said is Said.UNKNOWN else self.loop.now_s
            history.calls.append(Call(client, item, verb, begun, ended, said, written, was_there=was_there))
        self.counters[f"{verb.value} {said.value}"] += 1
        if said is Said.OK:
            history.acknowledged.append(replica.engine.replica.position.place)

    def read(self, client: str, replica: LogReplica, node: str, item: str) -> None:
        view, history = replica.engine.store(STORE).at_hand(), self.servers[replica.number]
        if view is None:
            return
        if not replica.may_answer_strongly:
            place = replica.engine.replica.position.place
            history.seen.append((node, place, dict(view.scan(b"", b"\xff"))))
            self.counters["follower reads"] += 1
            return
        found, now_s = view.get(item.encode()), self.loop.now_s
        value = found.decode() if found is not None else None
        said = Said.OK if found is not None else Said.ABSENT
        history.calls.append(Call(client, item, Verb.READ, now_s, now_s, said, value))
        self.counters["strong reads"] += 1

    # What happens.

    async def nemesis(self, rounds: int) -> None:
        for _ in range(rounds):
            await self.clock.sleep(self.dice.uniform(0.5, 3.0))
            node = self.dice.choice(self.carriers)
            faults = [self._kill, self._kill_for_long, self._cut, self._shake, self._fail_over, self._cut_peers]
            orders = [self._drain, self._empty, self._empty, self._move, self._move, self._shift, self._join]
            await self.dice.choice([*faults, *orders])(node)

    async def _kill(self, node: Carrier) -> None:
        await node.kill()
        await self.clock.sleep(self.dice.uniform(0.0, 2.0))
        await node.start()

    async def _kill_for_long(self, node: Carrier) -> None:
        """Its replicas are made elsewhere meanwhile."""
        await node.kill()
        await self.clock.sleep(limits.NODE_SILENT_SECONDS + limits.PLACEMENT_GONE_SECONDS + self.dice.uniform(0, 10))
        self.counters["nodes gone for long"] += 1
        await node.start()

    async def _cut(self, node: Carrier) -> None:
        node.trouble.is_cut = True
        await self.clock.sleep(self.dice.uniform(0.1, 6.0))
        node.trouble.is_cut = False

    async def _cut_peers(self, node: Carrier) -> None:
        for source in node.sources:
            source.is_cut = True
        await self.clock.sleep(self.dice.uniform(0.5, 4.0))
        for source in node.sources:
            source.is_cut = False

    async def _shake(self, node: Carrier) -> None:
        for each in self.carriers:
            each.trouble.break_chance = self.dice.choice([0.05, 0.2])
        await self.clock.sleep(self.dice.uniform(0.2, 2.0))
        for each in self.carriers:
            each.trouble.break_chance = 0.0

    async def _fail_over(self, node: Carrier) -> None:
        """All logs are on one PostgreSQL."""
        for _ in range(500):  # a moment when the primary has a row that the standby has not
            if any(server.rows and server.rows[-1].seq > server.replicated for server in self.servers):
                break
            await self.clock.sleep(0.001)
        for server in self.servers:
            self.counters["rows lost by failover"] += sum(row.seq > server.replicated for row in server.rows)
            server.fail_over()
        self.counters["failovers of the log"] += 1

    async def _drain(self, node: Carrier) -> None:
        if node.logs is not None:
            node.is_drained = not node.is_drained
            node.logs.drain(node.is_drained)
            self.counters["drains"] += node.is_drained

    async def _empty(self, node: Carrier) -> None:
        await self._change(lambda record: record.emptying(node.name, node.name not in record.emptied))
        self.counters["nodes emptied"] += 1

    async def _move(self, node: Carrier) -> None:
        log = self.dice.randrange(1, LOGS)
        await self._change(lambda record: record.led_by(log, self.dice.choice([node.name, node.name, ""])))
        self.counters["logs moved"] += 1

    async def _change(self, change: Any) -> None:
        """At the balancer, if there is one."""
        balancer = next((each.balancer for each in self.carriers if each.balancer is not None), None)
        if balancer is not None:
            with suppress(Failure):
                await balancer.change(change)

    async def _shift(self, node: Carrier) -> None:
        self.units = [self.dice.choice([0.0, 1_000.0, 20_000.0]) for _ in range(LOGS)]

    async def _join(self, node: Carrier) -> None:
        if len(self.carriers) == len(REGIONS):
            joined = Carrier(JOINING, "eu", self)
            self.carriers.append(joined)
            await joined.start()
            self.counters["nodes joined"] += 1

    # As PlacementActions: what nodes do they do by themselves, following the record; it is waited for.

    async def figures(self) -> Figures:
        nodes = await MemoryLogs(self.servers, self.clock).log(0)
        known = {each.node: each for each in await nodes.nodes()}
        placed = [
            PlacedNode(each.node, each.region, self._is_reached(each), each.silent_s, has_drained(each), 1 << 40)
            for each in known.values()
        ]
        logs = []
        for server in self.servers:
            replicas = [
                PlacedReplica(each.node, self._is_whole(each.node, server.number), 0)
                for each in server.replicas.values()
            ]
            leader = server.state.node
            leads = leader in known and is_alive(known[leader])
            units = self.units[server.number]
            logs.append(PlacedLog(server.number, leader if leads else "", replicas, units, 1 << 20, 1))
        return Figures(placed, logs)

    def _is_reached(self, node: NodeState) -> bool:
        carrier = self._carrier(node.node)
        return is_alive(node) and carrier.logs is not None and not carrier.trouble.is_cut

    def _carrier(self, name: str) -> Carrier:
        return next(each for each in self.carriers if each.name == name)

    def _is_whole(self, name: str, number: int) -> bool:
        """Of a node that does not answer, what it has told the log is taken. One that is leaving does not count."""
        node = self._carrier(name)
        if node.logs is None:
            return number in node.whole
        return node.replica(number) is not None and number in node.logs.wanted

    async def carry(self, log: int, node: str) -> None:
        carrier, newest = self._carrier(node), self.servers[log].replicated

        def is_whole() -> bool:
            replica = carrier.replica(log)
            return replica is not None and replica.engine.replica.position.place.seq >= newest

        await self._until(is_whole, f"{node} has no whole replica of log {log} yet.")
        self.counters["carried"] += 1

    async def hand_over(self, log: int, node: str) -> None:
        leading = self.servers[log].state.node
        replica = self._carrier(leading).replica(log) if leading else None
        if replica is None:
            raise Failure(Kind.UNAVAILABLE, f"Log {log} has no live leader.")
        if leading != node and (led_by := await replica.hand_over(node)) != node:
            raise Failure(Kind.UNAVAILABLE, f"{led_by} leads log {log}, and not {node}.")
        self.counters["hand-overs"] += 1

    async def give_up(self, log: int, node: str) -> None:
        carrier, server = self._carrier(node), self.servers[log]
        if carrier.logs is None:
            server.replicas.pop(node, None)
            self.counters["replicas of dead nodes given up"] += 1
            return
        await self._until(lambda: node not in server.replicas, f"{node} still has a replica of log {log}.")

    async def _until(self, holds: Any, otherwise: str) -> None:
        until_s = self.loop.now_s + _STEP_SECONDS_MAX
        while not holds():
            if self.loop.now_s > until_s:
                raise Failure(Kind.UNAVAILABLE, otherwise)
            await self.clock.sleep(0.1)

    # A run.

    async def run(self, clients: int, rounds: int) -> None:
        for node in self.carriers:
            await node.start()
        first = self.carriers[0]
        await self.clock.sleep(0.5)
        assert first.logs is not None
        first.logs.want(range(LOGS))
        await self._set_rules()
        work: list[Coroutine[Any, Any, None]] = [self.client(f"c{number}") for number in range(clients)]
        tasks = [asyncio.ensure_future(each) for each in work]
        await self.nemesis(rounds)
        await self._heal()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._come_together()
        for server in self.servers:
            leader = self._carrier(server.state.node).replica(server.number) if server.state.node else None
            for item in ITEMS if leader is not None else ():
                assert leader is not None
                self.read("last", leader, server.state.node, item)
        for node in self.carriers:
            if node.failure is not None:
                self.violations.append(Violation("stopped", f"{node.name}: {node.failure!r}"))
            await node.kill()
        for server in self.servers:
            self.violations += server.judge()

    async def _heal(self) -> None:
        for node in self.carriers:
            node.trouble.is_cut, node.trouble.break_chance = False, 0.0
            if node.logs is None:
                await node.start()
            if node.is_drained:
                await self._drain(node)
        await self._set_rules()

    async def _set_rules(self) -> None:
        """Those of this run, with nothing that an operator has asked for."""
        wanted = PlacementRecord(PlacementRules(self.replica_count))
        for _ in range(200):
            await self.clock.sleep(0.5)
            await self._change(lambda record: replace(wanted, carried=record.carried))
            kept = [PlacementRecord.unpack(await each.kept_setting(SETTING)) for each in self.carriers if each.balancer]
            if kept and all(replace(each, carried={}) == wanted for each in kept):
                return

    async def _come_together(self) -> None:
        """Nothing is left to plan, and every replica has every row."""
        for _ in range(300):
            await self.clock.sleep(limits.LEASE_RENEW_SECONDS)
            balancer = next((each.balancer for each in self.carriers if each.balancer is not None), None)
            if balancer is not None:
                with suppress(Failure):
                    if self._is_settled(await balancer.record(), await self.figures()):
                        return
        self.violations.append(Violation("progress", f"the logs do not come to rest: {await self.figures()}"))

    def _is_settled(self, record: PlacementRecord, figures: Figures) -> bool:
        for server in self.servers:
            newest = server.newest
            replicas = [each.replica(server.number) for each in self.carriers]
            present = [each for each in replicas if each is not None]
            if newest is None or any(each.engine.replica.position.place != newest.place for each in present):
                return False
            if server.number and len(present) != record.rules.replicas:
                return False
            if sum(each.may_answer_strongly for each in present) != 1:
                return False
        return not plan(figures, record, steps_max=1).steps


def simulate_spread(seed: int, *, clients: int = 4, rounds: int = 12) -> SpreadWorld:
    loop = SimulatedLoop()
    try:
        asyncio.set_event_loop(loop)
        world = SpreadWorld(seed, loop, SimulatedClock(loop, seed))
        with patch.dict(vars(limits), _LIMITS):
            loop.run_until_complete(world.run(clients, rounds))
        return world
    finally:
        asyncio.set_event_loop(None)
        loop.close()
