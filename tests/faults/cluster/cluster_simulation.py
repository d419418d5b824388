"""A cluster in one process, from a seed: nodes with their disks on one log in memory, clients that write and read
items, and faults: crashes, connections that break before or after a call took effect, delays, failovers of the log that
lose what was not acknowledged, full disks, clocks at unequal rates, leaders that hand over.

Clients use the engine directly: one store, an item is a key. What the account makes of it is left to other tests.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect
from collections import Counter
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from faults.checkers.items import NEVER, Call, Said, Verb, check_items
from faults.cluster.rare_orders import ORDERS, CountingLog, counted
from faults.cluster.simulated_peers import Network, SimulatedSource
from faults.cluster.simulated_replica import Disk, SimulatedDatabase, SimulatedDirectory
from faults.elastic.simulation import SimulatedClock, SimulatedLoop
from faults.ledger import Violation

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.limits import LOG_ROW_BYTES_MAX
from armillary.storage.engine import Txn, View
from armillary.storage.log import rows
from armillary.storage.log.memory_log import MemoryLog, MemoryLogServer
from armillary.storage.log.replicated_log import LogUnavailable
from armillary.storage.log.rows import Place, Row, RowKind, read_group
from armillary.storage.memory import SortedMap
from armillary.storage.overlay import Layer
from armillary.storage.replication.leadership import Leadership
from armillary.storage.replication.local_replica import LocalReplica
from armillary.storage.replication.replicated_engine import ReplicatedEngine

STORE = 1
ITEMS = ("a", "b", "c")
NODES = ("n1", "n2", "n3")
GENERATION = b"simulated log 01"
TOGETHER_SHARE = 0.15  # of the requests, in such a run
SMALL_ROW_BYTES = 40  # in such a run: of one or two items; followers read a group in several portions
RARE_SHARE = 0.6  # of the faults, in a run that has rare orders of events


@dataclass
class Trouble:
    """What the calls of one node meet at the moment."""

    dice: random.Random
    clock: SimulatedClock
    counters: Counter[str]
    is_cut: bool = False  # no connection to the log
    break_chance: float = 0.0
    delay_s_max: float = 0.003
    slow: dict[str, float] = field(default_factory=dict)  # seconds that one call takes, by when and what it is

    async def before(self, call: str) -> None:
        await self._delay(f"before {call}")
        if self.is_cut or self.dice.random() < self.break_chance:
            self.counters[f"{call} not sent"] += 1
            raise LogUnavailable("the connection broke")

    async def _delay(self, place: str) -> None:
        if place in self.slow:
            self.counters[f"slow: {place}"] += 1
        await self.clock.sleep(self.slow.get(place, 0.0) or self.dice.uniform(0.0001, self.delay_s_max))

    async def after(self, call: str) -> None:
        await self._delay(f"after {call}")
        if self.is_cut or self.dice.random() < self.break_chance:
            self.counters[f"{call} not answered"] += 1
            raise LogUnavailable("the answer is lost")


class Node:
    """A node that can be killed and started again."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.disk = Disk()
        self.directory = SimulatedDirectory()
        dice = random.Random(f"{world.seed}/{name}")
        self.trouble = Trouble(dice, world.clock, world.counters)
        self.source = SimulatedSource(world.network, name)
        self.holds_back_s = 0.0
        self.rate = dice.uniform(0.9, 1.1)  # of its boot-time clock
        self._offset_s = dice.uniform(0, 1000)
        self.engine: ReplicatedEngine | None = None
        self.leadership: Leadership | None = None
        self._task: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None
        # What a node keeps in memory of its state: must be that of the published state whenever a request is served.
        self.adopted: dict[bytes, bytes] | None = None  # None: nothing is served yet

    def boot_time_s(self) -> float:
        return self._offset_s + self.world.loop.now_s * self.rate

    async def start(self) -> None:
        world = self.world
        log = CountingLog(world.server, world.clock, self.trouble)
        log.world, log.dice = world, random.Random(f"{world.seed}/{self.name}/again/{world.loop.now_s}")
        try:
            await MemoryLog(world.server, world.clock).register(self.name)
            replica = LocalReplica.open(
                self.directory,
                GENERATION,
                reserve_bytes=2,  # a full disk has nothing, followers may use one of them
                open_database=lambda path: SimulatedDatabase(self.disk),
            )
        except Failure as failure:
            self.failure = failure
            return
        self.engine = ReplicatedEngine(replica, world.clock)
        self.adopted = None
        self.leadership = Leadership(
            self.name, self.engine, log, self, world.clock, boot_time=self.boot_time_s, source=self.source
        )
        self._task = asyncio.ensure_future(self.leadership.run())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()

    async def kill(self) -> None:
        """The process dies at once; its disk keeps what was synced and a part of the rest."""
        task, self._task = self._task, None
        engine, self.engine, self.leadership = self.engine, None, None
        if task is None or engine is None:
            return
        commit = engine._commit
        for each in (task, commit._flying if commit is not None else None, commit._watch if commit else None):
            if each is not None:
                each.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.disk.crash(self.trouble.dice)
        self.trouble.is_cut = False
        self.world.counters["kills"] += 1

    # Roles.

    async def lead(self) -> None:
        self.world.counters["take-overs"] += 1
        self._check_adopted()

    def cease(self) -> None:  # clients here ask every node
        commit = self.leadership.commit if self.leadership is not None else None
        self.world.counters["confirmed and not stored"] += commit is not None and commit.has_failed

    async def follow(self) -> None:
        assert self.engine is not None
        view = self.engine.store(STORE).at_hand()
        self.adopted = dict(view.scan(b"", b"\xff")) if view is not None else {}

    def adopt(self, layer: Layer, notes: bytes) -> None:
        assert self.engine is not None
        view = self.engine.store(STORE).at_hand()
        assert view is not None
        self.adopted = dict(view.scan(b"", b"\xff"))
        self.world.counters["groups followed"] += 1

    def apply_delay_s(self) -> float:
        return self.holds_back_s

    def _check_adopted(self) -> None:
        assert self.engine is not None
        view = self.engine.store(STORE).at_hand()
        if view is None or self.engine.is_leading or self.adopted is None:
            return
        if dict(view.scan(b"", b"\xff")) != self.adopted:
            self.world.violations.append(Violation("adoption", f"{self.name}: memory is not that of its state"))


@dataclass
class World:
    seed: int
    loop: SimulatedLoop
    clock: SimulatedClock
    counters: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    archive: dict[int, Row] = field(default_factory=dict)  # all acknowledged rows, trimmed ones included
    seen_places: dict[int, bytes] = field(default_factory=dict)
    seen_states: list[tuple[int, bytes, dict[bytes, bytes]]] = field(default_factory=list)
    acknowledged: list[tuple[float, int]] = field(default_factory=list)  # when, and a seq at or behind the write's
    reached: list[tuple[str, int, int]] = field(default_factory=list)  # node, its seq, and the time that it has reached
    acknowledged_places: list[Place] = field(default_factory=list)  # of writes, or behind them
    has_rare_orders: bool = False
    is_set_back: bool = False  # in the end

    def __post_init__(self) -> None:
        self.server = ArchivingServer(self)
        self.dice = random.Random(self.seed)
        self.network = Network(random.Random(f"{self.seed}/network"), self.clock, self.counters, self._find)
        self.nodes = [Node(name, self) for name in NODES]
        self._values = 0
        self._begun: set[asyncio.Task[None]] = set()
        # In half of the runs with rare orders: repetitions may prevent what an order is for.
        self.has_repeated_calls = self.has_rare_orders and random.Random(f"{self.seed}/repeated").random() < 0.5
        self.is_quiet = False  # few requests
        self.is_silent = False  # none but reads, and what an order of events asks for

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """What goes on beside, until the faults end."""
        task = asyncio.ensure_future(work)
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)

    def _find(self, name: str) -> Leadership | None:
        return next((node.leadership for node in self.nodes if node.name == name), None)

    # Clients.

    async def client(self, name: str) -> None:
        dice = random.Random(f"{self.seed}/{name}")
        node = dice.choice(self.nodes)
        while True:
            await self.clock.sleep(dice.uniform(0.0, 3.0 if self.is_quiet else 0.3))
            if self.is_silent:
                continue
            if not await self._ask(name, node, dice):
                leaders = [each for each in self.nodes if each.leadership is not None and each.leadership.leads]
                node = dice.choice(leaders if leaders and dice.random() < 0.8 else self.nodes)

    async def reader(self) -> None:
        """Looks at all nodes, wherever the others go."""
        dice = random.Random(f"{self.seed}/reader")
        while True:
            for node in self.nodes:
                await self.clock.sleep(0.1)
                if node.engine is not None:
                    items = (
                        ITEMS if node.engine.may_answer_strongly else ITEMS[:1]
                    )  # of a follower, its state is looked at
                    for item in items:
                        self._read("reader", node, item, self.loop.now_s)
                if node.leadership is not None and dice.random() < 0.4:
                    await self._read_refreshed(node, node.leadership)

    async def _ask(self, client: str, node: Node, dice: random.Random) -> bool:
        """One request. Returns whether the node has answered it."""
        if self.has_repeated_calls and dice.random() < TOGETHER_SHARE:
            return await self._write_together(client, node)
        item = dice.choice(ITEMS)
        verb = dice.choice([Verb.READ, Verb.READ, Verb.UPSERT, Verb.CREATE, Verb.REPLACE, Verb.DELETE])
        self._values += 1
        value = f"v{self._values}"
        engine = node.engine
        if engine is None:
            return False
        if verb is Verb.READ:
            return self._read(client, node, item, self.loop.now_s)
        written = value if verb is not Verb.DELETE else None
        return await self._answered(client, engine, {item: written}, verb, _write(engine, item, verb, value))

    async def _write_together(self, client: str, node: Node) -> bool:
        """All items in one transaction, whose rows are several."""
        self._values += 1
        values: dict[str, str | None] = dict.fromkeys(ITEMS, f"v{self._values}")
        engine = node.engine
        if engine is None:
            return False
        return await self._answered(client, engine, values, Verb.UPSERT, _write_all(engine, f"v{self._values}"))

    async def _answered(
        self,
        client: str,
        engine: ReplicatedEngine,
        written: dict[str, str | None],
        verb: Verb,
        writing: Awaitable[tuple[Said, bool | None]],
    ) -> bool:
        """Note what a write was answered. Returns whether it was."""
        begun = self.loop.now_s
        try:
            said, found = await writing
        except Failure as failure:
            said, found = Said.UNKNOWN if "not known" in failure.message else Said.REFUSED, None
            self.counters[f"writes {said.value}: {failure.kind.name}"] += 1
            if failure.kind not in (Kind.NOT_LEADER, Kind.UNAVAILABLE, Kind.STORAGE_FULL):
                raise
        except asyncio.CancelledError:
            for item, value in written.items():
                self.calls.append(Call(client, item, verb, begun, NEVER, Said.UNKNOWN, value))
            raise
        ended = NEVER if said is Said.UNKNOWN else self.loop.now_s
        for item, value in written.items():
            self.calls.append(Call(client, item, verb, begun, ended, said, value, was_there=found))
        self.counters[f"{verb.value} {said.value}"] += 1
        if said is Said.OK:
            place = engine.replica.position.place
            self.acknowledged.append((self.loop.now_s, place.seq))
            self.acknowledged_places.append(place)
        return said not in (Said.REFUSED, Said.UNKNOWN)

    async def write_at_new_leader(self, former: Node | None) -> None:
        """A few writes at nodes that lead, but at the former leader."""
        dice = random.Random(self.dice.random())
        for _ in range(4):
            for node in self.nodes:
                if node is not former and node.leadership is not None and node.leadership.leads:
                    await self._ask("order", node, dice)

    def _read(self, client: str, node: Node, item: str, begun: float) -> bool:
        engine = node.engine
        assert engine is not None
        view = engine.store(STORE).at_hand()
        if view is None:
            return False
        if not engine.may_answer_strongly:
            self._check_prefix(node, view)
            self._check_staleness(node)
            self.counters["reads refused without the lease"] += engine.is_leading
            return engine.is_leading
        self._note_read(client, view, item, begun)
        self.counters["strong reads"] += 1
        return True

    def _note_read(self, client: str, view: View, item: str, begun: float) -> None:
        found = view.get(item.encode())
        value = found.decode() if found is not None else None
        said = Said.OK if found is not None else Said.ABSENT
        self.calls.append(Call(client, item, Verb.READ, begun, self.loop.now_s, said, value))

    def _check_prefix(self, node: Node, view: View) -> None:
        """A follower shows the state of its place in the log, and what it keeps in memory is of that state."""
        assert node.engine is not None
        node._check_adopted()
        place = node.engine.replica.position.place
        self.seen_places.setdefault(place.seq, place.chain)
        if self.seen_places[place.seq] != place.chain:
            self.violations.append(Violation("prefix", f"{node.name}: two states are shown for row {place.seq}"))
        self.seen_states.append((place.seq, place.chain, dict(view.scan(b"", b"\xff"))))
        self.counters["follower reads"] += 1

    async def _read_refreshed(self, node: Node, leadership: Leadership) -> None:
        """A follower that has asked the leader answers like the leader."""
        begun = self.loop.now_s
        if not await leadership.refresh(0.2) or node.leadership is not leadership or node.engine is None:
            return
        view = node.engine.store(STORE).at_hand()
        if view is None:
            return
        for item in ITEMS:
            self._note_read("refreshed reader", view, item, begun)
        self.counters["refreshed reads"] += 1

    def _check_staleness(self, node: Node) -> None:
        """Everything that was acknowledged before a follower's state was fresh is in it."""
        assert node.engine is not None
        assert node.leadership is not None
        seq = node.engine.replica.position.place.seq
        self.reached.append((node.name, seq, node.leadership.reached_us))
        seconds, _ = node.leadership.staleness
        fresh_s = self.loop.now_s - seconds / node.rate - 1e-6
        at = bisect(self.acknowledged, (fresh_s, 0))
        if at and self.acknowledged[at - 1][1] > seq:
            ended_s, missing = self.acknowledged[at - 1]
            told = f"{node.name} says that it is {seconds:.3f} s behind, and lacks row {missing} of {ended_s:.3f} s"
            self.violations.append(Violation("bounded", told))
        self.counters["bounded reads"] += seconds < 2.0

    # Faults.

    async def nemesis(self, rounds: int) -> None:
        for _ in range(rounds):
            await self.clock.sleep(self.dice.uniform(0.2, 1.5))
            node = self.dice.choice(self.nodes)
            actions = [
                self._kill,
                self._cut,
                self._shake,
                self._fail_over,
                self._slow,
                self._hand_over,
                self._fill_disk,
            ]
            actions += [
                self._lose_row,
                self._slow_call,
                self._slow_call,
                self._cut_two,
                self._cut_peers,
                self._hold_back,
            ]
            if self.has_rare_orders and self.dice.random() < RARE_SHARE:
                await self.dice.choice(ORDERS)(self)
            else:
                await self.dice.choice(actions)(node)

    async def _kill(self, node: Node) -> None:
        await node.kill()
        await self.clock.sleep(self.dice.uniform(0.0, 2.0))
        await node.start()

    async def _cut(self, node: Node) -> None:
        node.trouble.is_cut = True
        await self.clock.sleep(self.dice.uniform(0.1, 6.0))
        node.trouble.is_cut = False

    async def _cut_two(self, node: Node) -> None:
        """The leader and a follower do not reach the log, but each other."""
        leader = self.leader()
        follower = self.dice.choice([each for each in self.nodes if each is not leader])
        for each in (leader or node, follower):
            each.trouble.is_cut = True
        await self.clock.sleep(self.dice.uniform(2.0, 6.0))
        for each in self.nodes:
            each.trouble.is_cut = False

    async def _cut_peers(self, node: Node) -> None:
        """Followers do not reach the leader: they read the log."""
        node.source.is_cut = True
        self.network.break_chance, self.network.delay_s_max = self.dice.choice([(0.3, 0.002), (0.0, 0.7)])
        await self.clock.sleep(self.dice.uniform(0.5, 4.0))
        self.network.break_chance, self.network.delay_s_max, node.source.is_cut = 0.0, 0.002, False

    async def _hold_back(self, node: Node) -> None:
        """A follower applies rows late, and hears all the time what it lacks."""
        node.holds_back_s = self.dice.uniform(0.2, 3.0)
        await self.clock.sleep(self.dice.uniform(1.0, 3.0))
        node.holds_back_s = 0.0
        self.counters["rows held back"] += 1

    async def _shake(self, node: Node) -> None:
        for each in self.nodes:
            each.trouble.break_chance = self.dice.choice([0.05, 0.2])
        await self.clock.sleep(self.dice.uniform(0.2, 2.0))
        for each in self.nodes:
            each.trouble.break_chance = 0.0

    async def _fail_over(self, node: Node) -> None:
        for _ in range(500):  # a moment when the primary has a row that the standby has not
            newest = self.server.newest
            if newest is not None and newest.seq > self.server.replicated:
                break
            await self.clock.sleep(0.001)
        self.counters["rows lost by failover"] += max(0, len(self.server.rows) - self._replicated_count())
        self.server.fail_over()
        self.counters["failovers of the log"] += 1

    async def _lose_row(self, node: Node) -> None:
        """Followers have read a row that only the primary has; then primary and leader are lost, and another row gets
        its seq."""
        leader = self.leader()
        if leader is None:
            return
        leader.trouble.slow["before standby"] = 0.3
        for _ in range(500):
            newest = self.server.newest
            if newest is not None and newest.seq > self.server.replicated:
                await self.clock.sleep(0.1)
                self.counters["rows lost by failover"] += len(self.server.rows) - self._replicated_count()
                self.server.fail_over()
                await leader.kill()
                break
            await self.clock.sleep(0.001)
        leader.trouble.slow.clear()
        self.is_quiet = True
        await self.clock.sleep(self.dice.uniform(2.0, 6.0))
        self.is_quiet = False
        if leader.engine is None:
            await leader.start()

    async def _slow_call(self, node: Node) -> None:
        """One kind of call takes longer than the lease; the rest goes on."""
        place = self.dice.choice(["before fence", "after renew", "before renew", "after append", "before append"])
        leader = self.leader()
        if place == "before fence":
            for each in self.nodes:
                if each is not leader and self.dice.random() < 0.7:
                    each.trouble.slow[place] = self.dice.uniform(2.5, 6.0)
            if leader is not None:
                await leader.kill()
        elif leader is not None:
            leader.trouble.slow[place] = self.dice.uniform(1.0, 5.0)
            if self.dice.random() < 0.5:
                leader.trouble.slow["before append"] = 5.0
        await self.clock.sleep(self.dice.uniform(4.0, 8.0))
        for each in self.nodes:
            each.trouble.slow.clear()
        if leader is not None and leader.engine is None:
            await leader.start()

    def _replicated_count(self) -> int:
        return sum(row.seq <= self.server.replicated for row in self.server.rows)

    async def _slow(self, node: Node) -> None:
        node.trouble.delay_s_max = self.dice.choice([0.1, 1.0, 4.0])
        await self.clock.sleep(self.dice.uniform(0.5, 4.0))
        node.trouble.delay_s_max = 0.003

    async def _hand_over(self, node: Node) -> None:
        for each in self.nodes:
            if each.leadership is not None and each.leadership.leads:
                each.leadership.hand_over(self.dice.choice(["", *NODES]))
                self.counters["hand-overs"] += 1

    async def _fill_disk(self, node: Node) -> None:
        node.directory.is_full = True
        await self.clock.sleep(self.dice.uniform(0.2, 2.0))
        node.directory.is_full = False

    # Running.

    async def run(self, clients: int, troubles: int) -> None:
        for node in self.nodes:
            await node.start()
        work = [asyncio.ensure_future(self.client(f"c{number}")) for number in range(clients)]
        work.append(asyncio.ensure_future(self.reader()))
        await self.nemesis(troubles)
        for each in (*work, *self._begun):
            each.cancel()  # those that wait for a node that died have no answer
        await asyncio.gather(*work, return_exceptions=True)
        await self._heal()
        await self._last_reads()
        await self._check_reports()
        self.server.keep()
        if self.is_set_back:
            await self._set_back()
        for node in self.nodes:
            if node.failure is not None:
                self.violations.append(Violation("stopped", f"{node.name}: {node.failure!r}"))
            await node.kill()
        self._judge()

    async def _heal(self) -> None:
        for node in self.nodes:
            node.trouble.is_cut, node.trouble.break_chance, node.trouble.delay_s_max = False, 0.0, 0.003
            node.trouble.slow.clear()
            node.source.is_cut = node.directory.is_full = node.disk.is_stalled = False
            node.holds_back_s = 0.0
            if node.engine is None and node.failure is None:
                await node.start()
        await self._come_together()

    async def _come_together(self) -> None:
        for _ in range(400):
            await self.clock.sleep(limits.LEASE_RENEW_SECONDS)
            newest = self.server.newest
            reached = [each.engine.replica.position.place for each in self.nodes if each.engine is not None]
            if newest is not None and all(place == newest.place for place in reached) and self.leader() is not None:
                return
        self.violations.append(Violation("progress", "the nodes do not come together after the last fault"))

    async def _check_reports(self) -> None:
        """Every node goes on to tell how far it has come: else the log would be kept for it for ever."""
        assert self.server.newest is not None
        newest = self.server.newest.seq
        for _ in range(10):
            await self.clock.sleep(limits.LOG_REPORT_SECONDS)
            behind = [name for name, each in self.server.replicas.items() if each.flushed < newest]
            if not behind:
                return
        self.violations.append(Violation("reports", f"{behind} have not told that row {newest} is on their disks"))

    async def _set_back(self) -> None:
        """An operator restores an earlier state of the log: every node has applied more, and must stop and say so."""
        assert self.server.newest is not None
        kept = self.server.newest.seq
        while not (self.archive.keys() - range(kept + 1)):
            leader = self.leader()
            if leader is not None and leader.engine is not None:
                with suppress(Failure):
                    await _write(leader.engine, ITEMS[0], Verb.UPSERT, "lost")
            await self.clock.sleep(limits.LEASE_RENEW_SECONDS)
            self.server.keep()
        await self._come_together()
        self.server.set_back(max(kept, self.server.trimmed))
        self.server.state = replace(self.server.state, renewals=self.server.state.renewals - 1)
        for _ in range(200):
            await self.clock.sleep(limits.LEASE_RENEW_SECONDS)
            if all(node.failure is not None for node in self.nodes):
                break
        for node in self.nodes:
            if isinstance(node.failure, Failure) and "was set back" in node.failure.message:
                node.failure = None
                self.counters["nodes that noticed a log that was set back"] += 1
            else:
                self.violations.append(Violation("set back", f"{node.name} goes on, or stopped otherwise"))

    def leader(self) -> Node | None:
        for node in self.nodes:
            if node.engine is not None and node.engine.may_answer_strongly:
                return node
        return None

    async def _last_reads(self) -> None:
        leader = self.leader()
        if leader is not None:
            for item in ITEMS:
                self._read("last", leader, item, self.loop.now_s)

    def _judge(self) -> None:
        self.violations += check_items(self.calls)
        self._judge_acknowledged()
        states, state = {}, SortedMap()
        group: list[Row] = []
        prefix = STORE.to_bytes(4, "big")
        for _, row in sorted(self.archive.items()):
            group.append(row)
            if row.is_last:
                layer, _ = read_group(group)
                state.apply(layer)
                group = []
            states[row.seq] = row.chain, {key[4:]: value for key, value in state.scan(prefix, prefix + b"\xff")}
        self._judge_times()
        for seq, chain, seen in self.seen_states:
            if seq and (seq not in states or states[seq][0] != chain):
                self.violations.append(Violation("prefix", f"row {seq} was shown and is not in the log"))
            elif seq and states[seq][1] != seen:
                self.violations.append(Violation("prefix", f"the state shown at row {seq} is not that of the log"))

    def _judge_acknowledged(self) -> None:
        """No two leaders have acknowledged the same row: each write is at or before a row of the log."""
        for place in self.acknowledged_places:
            row = self.archive.get(place.seq)
            if row is None or row.place != place:
                self.violations.append(
                    Violation("two leaders", f"a write was acknowledged at {place}, the log has {row}")
                )
        for row in self.archive.values():
            self.counters[f"rows: {row.kind.name}"] += 1
            self.counters["groups of several rows"] += not row.is_last

    def _judge_times(self) -> None:
        """A follower has all rows up to the time that it says it has reached."""
        rows = [row for _, row in sorted(self.archive.items()) if row.kind is RowKind.GROUP]
        times = [row.time_us for row in rows]
        for name, seq, reached_us in self.reached:
            at = bisect(times, reached_us)
            if at and rows[at - 1].seq > seq:
                told = (
                    f"{name} has reached {reached_us} at row {seq}, and lacks row {rows[at - 1].seq} of {times[at - 1]}"
                )
                self.violations.append(Violation("reached", told))


async def _write(engine: ReplicatedEngine, item: str, verb: Verb, value: str) -> tuple[Said, bool | None]:
    key = item.encode()

    def run(txn: Txn) -> tuple[Said, bool | None]:
        present = txn.get(key)
        if verb is Verb.CREATE and present is not None:
            return Said.EXISTS, None
        if verb in (Verb.REPLACE, Verb.DELETE) and present is None:
            return Said.ABSENT, None
        if verb is Verb.DELETE:
            txn.delete(key)
        else:
            txn.put(key, value.encode())
        return Said.OK, (present is not None) if verb is Verb.UPSERT else None

    return await engine.store(STORE).write(run)


async def _write_all(engine: ReplicatedEngine, value: str) -> tuple[Said, bool | None]:
    def run(txn: Txn) -> None:
        for item in ITEMS:
            txn.put(item.encode(), value.encode())

    await engine.store(STORE).write(run)
    return Said.OK, None


class ArchivingServer(MemoryLogServer):
    """Keeps the rows that are trimmed, for the judgement at the end."""

    def __init__(self, world: World) -> None:
        super().__init__(GENERATION)
        self._world = world

    def trim(self, seq: int) -> int:
        self.keep()
        before = len(self.rows)
        first = super().trim(seq)
        self._world.counters["rows trimmed"] += before - len(self.rows)
        return first

    def keep(self) -> None:
        for row in self.rows:
            if row.seq <= self.replicated:
                self._world.archive.setdefault(row.seq, row)


def simulate(
    seed: int, *, clients: int = 4, troubles: int = 8, has_rare_orders: bool = False, is_set_back: bool = False
) -> World:
    """`has_rare_orders`: also draws orders of events that chance does not bring together. `is_set_back`: the log is set
    back in the end."""
    loop = SimulatedLoop()
    try:
        asyncio.set_event_loop(loop)
        world = World(seed, loop, SimulatedClock(loop, seed), has_rare_orders=has_rare_orders, is_set_back=is_set_back)
        row_bytes = SMALL_ROW_BYTES if world.has_repeated_calls else LOG_ROW_BYTES_MAX
        read_bytes = 4 * SMALL_ROW_BYTES if world.has_repeated_calls else limits.LOG_READ_BYTES
        with (
            counted(world.counters),
            patch.object(rows, "LOG_ROW_BYTES_MAX", row_bytes),
            patch.object(limits, "LOG_READ_BYTES", read_bytes),
        ):
            loop.run_until_complete(world.run(clients, troubles))
        return world
    finally:
        asyncio.set_event_loop(None)
        loop.close()
