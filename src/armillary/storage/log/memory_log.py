"""The replicated log in memory: the reference for the log on PostgreSQL, and the log of simulations.

A `MemoryLogServer` is the log itself, as a primary with a synchronous standby: a row is in the primary at once, and
acknowledged when the standby has it. `fail_over` makes the standby the primary, which loses rows that were not
acknowledged. Each node has a `MemoryLog`, its connection. `Faults` decides what each call meets: delays, and
connections that break before or after the call took effect. Nothing survives the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Protocol

from armillary.clock import Clock
from armillary.limits import LOG_POLL_SECONDS, LOG_RETRY_SECONDS
from armillary.storage.log.replicated_log import (
    LOG_EXISTS,
    Deposed,
    LeaderState,
    LogFigures,
    LogRefused,
    LogUnavailable,
    NodeState,
    ReplicaState,
)
from armillary.storage.log.rows import START, Place, Row, RowKind, new_row


class Faults(Protocol):
    """What the calls of one node meet. Both may wait by the clock of the simulation, or raise LogUnavailable."""

    async def before(self, call: str) -> None: ...

    async def after(self, call: str) -> None:
        """The call has taken effect; raising loses its answer."""


class NoFaults:
    async def before(self, call: str) -> None:
        return

    async def after(self, call: str) -> None:
        return


class MemoryLogServer:
    """The log, the leader's record and the replicas, as the database server has them."""

    def __init__(self, generation: bytes, origin: Row | None = None) -> None:
        """With an origin the log continues from a state."""
        before = origin.place if origin is not None else START
        self.rows: list[Row] = [origin] if origin is not None else []  # of the primary
        self.replicated = before.seq  # the newest seq that the standby has too
        self.state = LeaderState(generation, before.epoch, "", 0, before)
        self.cluster_key = blake2b(generation, digest_size=32).digest()  # simulations have the same one each time
        self.replicas: dict[str, ReplicaState] = {}
        self.nodes: dict[str, tuple[NodeState, float]] = {}  # with when each announced itself last
        self.trimmed = max(0, before.seq - 1)  # rows up to this seq are gone
        self.lineage = 0  # grows with every failover: connections to the former primary are dead
        self.changed = asyncio.Event()

    @property
    def newest(self) -> Row | None:
        return self.rows[-1] if self.rows else None

    def at(self, seq: int) -> Row | None:
        first = self.rows[0].seq if self.rows else 0
        at = seq - first
        return self.rows[at] if 0 <= at < len(self.rows) else None

    def add(self, rows: Sequence[Row]) -> bool:
        """Insert where the row before has the same epoch and chain; a row that is there already stays. Returns whether
        all of them are in the log now."""
        before = self.at(rows[0].seq - 1)
        if before is None or before.epoch != rows[0].epoch or not rows[0].follows(before.place):
            return False
        if self.at(rows[0].seq) is not None:
            return all(self.at(row.seq) == row for row in rows)
        self.rows.extend(rows)
        self._wake()
        return True

    def add_fence(self, epoch: int, node: str, time_us: int) -> Row:
        """The fence names its node: after a failover that has lost one, another node may take the same epoch."""
        newest = self.newest
        place = newest.place if newest is not None else START
        time_us = max(time_us, newest.time_us) if newest is not None else time_us
        count = newest.transactions if newest is not None else 0
        fence = new_row(
            place,
            epoch,
            RowKind.FENCE,
            confirmed=START,
            time_us=time_us,
            transactions=count,
            is_last=True,
            data=node.encode(),
        )
        self.rows.append(fence)
        self._wake()
        return fence

    def replicate(self, seq: int) -> None:
        """The standby has received everything up to a seq."""
        self.replicated = max(self.replicated, seq)

    def fail_over(self) -> None:
        """The primary is lost: the standby goes on with what it has."""
        self.rows = [row for row in self.rows if row.seq <= self.replicated]
        self.lineage += 1
        self._wake()

    def set_back(self, seq: int) -> None:
        """An operator restores an earlier state: acknowledged rows are lost. No promise covers this; nodes must
        notice."""
        self.replicated = min(self.replicated, seq)
        self.fail_over()

    def trim(self, seq: int) -> int:
        """Remove rows up to a seq, but never the newest."""
        if self.rows:
            seq = min(seq, self.rows[-1].seq - 1)
            self.rows = [row for row in self.rows if row.seq > seq]
            self.trimmed = max(self.trimmed, seq)
        return self.trimmed + 1

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class MemoryLog:
    """The connection of one node."""

    def __init__(self, server: MemoryLogServer, clock: Clock, faults: Faults | None = None) -> None:
        self._server = server
        self._clock = clock
        self._faults = faults or NoFaults()
        self._is_closed = False

    @property
    def cluster_key(self) -> bytes:
        return self._server.cluster_key

    async def leader(self) -> LeaderState:
        await self._begin("leader")
        state = self._server.state
        await self._faults.after("leader")
        return state

    async def take(self, seen: LeaderState, node: str, time_us: int) -> tuple[LeaderState, Row] | None:
        await self._begin("take")
        server = self._server
        if server.state != seen:
            return None
        state = replace(seen, epoch=seen.epoch + 1, node=node, renewals=seen.renewals + 1)
        server.state = state
        await self._faults.after("take")
        await self._begin("fence")
        if server.state.epoch != state.epoch:
            return None
        fence = server.add_fence(state.epoch, node, time_us)
        await self._acknowledged("fence", fence.seq)
        return state, fence

    async def renew(self, seen: LeaderState, confirmed: Place) -> LeaderState | None:
        await self._begin("renew")
        server = self._server
        if (server.state.epoch, server.state.renewals) != (seen.epoch, seen.renewals):
            return None
        server.state = state = replace(seen, renewals=seen.renewals + 1, confirmed=confirmed)
        await self._faults.after("renew")
        return state

    async def resign(self, seen: LeaderState, successor: str) -> bool:
        await self._begin("resign")
        server = self._server
        if (server.state.epoch, server.state.renewals) != (seen.epoch, seen.renewals):
            return False
        server.state = replace(seen, renewals=seen.renewals + 1, node=successor)
        await self._faults.after("resign")
        return True

    async def append(self, rows: Sequence[Row]) -> None:
        while not self._is_closed:
            try:
                await self._begin("append")
                if not self._server.add(rows):
                    raise Deposed
                await self._acknowledged("append", rows[-1].seq)
                return
            except LogUnavailable:
                await self._clock.sleep(LOG_RETRY_SECONDS)
        raise LogUnavailable("closed")

    def rest(self) -> None:
        return

    async def read(self, after_seq: int, bytes_max: int, *, is_certain: bool = False) -> list[Row]:
        await self._begin("read")
        found: list[Row] = []
        size_bytes = 0
        for row in self._server.rows:
            if row.seq <= after_seq:
                continue
            size_bytes += len(row.data)
            if found and size_bytes > bytes_max:
                break
            found.append(row)
        await self._faults.after("read")
        return found

    async def newest(self) -> Place:
        await self._begin("newest")
        newest = self._server.newest
        await self._faults.after("newest")
        return newest.place if newest is not None else START

    async def lowest(self) -> int:
        await self._begin("lowest")
        lowest = self._server.trimmed + 1
        await self._faults.after("lowest")
        return lowest

    async def tail(self, after_seq: int) -> None:
        await self._begin("tail")
        newest = self._server.newest
        if newest is not None and newest.seq > after_seq:
            return
        waiter = asyncio.ensure_future(self._server.changed.wait())
        pause = asyncio.ensure_future(self._clock.sleep(LOG_POLL_SECONDS))
        try:
            await asyncio.wait([waiter, pause], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
            pause.cancel()

    async def register(self, node: str) -> int:
        await self._begin("register")
        server = self._server
        seq = min((each.flushed for each in server.replicas.values()), default=server.trimmed)
        seq = max(seq, server.trimmed)
        server.replicas.setdefault(node, ReplicaState(node, seq, seq))
        await self._faults.after("register")
        return server.replicas[node].flushed

    async def report(self, node: str, applied: int, flushed: int) -> bool:
        await self._begin("report")
        if node not in self._server.replicas:
            return False
        self._server.replicas[node] = ReplicaState(node, applied, flushed)
        await self._faults.after("report")
        return True

    async def replicas(self) -> list[ReplicaState]:
        await self._begin("replicas")
        return list(self._server.replicas.values())

    async def remove(self, node: str) -> None:
        await self._begin("remove")
        self._server.replicas.pop(node, None)
        await self._faults.after("remove")

    async def withdraw(self, node: str, applied: int) -> bool:
        await self._begin("withdraw")
        server = self._server
        others = [each for each in server.replicas.values() if each.node != node]
        if server.state.node != node and any(each.flushed >= applied for each in others):
            server.replicas.pop(node, None)
        is_gone = node not in server.replicas
        await self._faults.after("withdraw")
        return is_gone

    async def announce(self, node: str, region: str, addresses: dict[str, str]) -> None:
        await self._begin("announce")
        self._server.nodes[node] = NodeState(node, region, addresses, 0.0), self._clock.elapsed_s()

    async def nodes(self) -> list[NodeState]:
        await self._begin("nodes")
        now_s = self._clock.elapsed_s()
        return [replace(state, silent_s=now_s - told_s) for _, (state, told_s) in sorted(self._server.nodes.items())]

    async def forget(self, node: str) -> None:
        await self._begin("forget")
        self._server.nodes.pop(node, None)

    async def figures(self) -> LogFigures:
        await self._begin("figures")
        server, newest = self._server, self._server.newest
        return LogFigures(
            newest_seq=newest.seq if newest is not None else 0,
            newest_time_us=newest.time_us if newest is not None else 0,
            newest_transactions=newest.transactions if newest is not None else 0,
            lowest_seq=server.trimmed + 1,
            size_bytes=sum(len(row.data) for row in server.rows),
            dead_rows=0,
            wants_standby=True,
            has_standby=True,
        )

    async def trim(self) -> int:
        await self._begin("trim")
        server = self._server
        lowest = min((each.flushed for each in server.replicas.values()), default=0)
        first = server.trim(lowest - 1)
        await self._faults.after("trim")
        return first

    async def close(self) -> None:
        self._is_closed = True

    async def _begin(self, call: str) -> None:
        if self._is_closed:
            raise LogUnavailable("closed")
        await self._faults.before(call)

    async def _acknowledged(self, call: str, seq: int) -> None:
        """Wait until the standby has the row. A failover meanwhile breaks the connection, and the row may be lost."""
        server = self._server
        lineage = server.lineage
        await self._faults.before("standby")
        if server.lineage != lineage:
            raise LogUnavailable("the primary is gone")
        server.replicate(seq)
        await self._faults.after(call)


class MemoryLogMaker:
    """Where a test keeps the log that it makes."""

    def __init__(self, server: MemoryLogServer | None = None) -> None:
        self.server = server

    async def generation(self) -> bytes | None:
        return self.server.state.generation if self.server is not None else None

    async def holds(self, place: Place) -> bool:
        if self.server is None:
            return False
        row = self.server.at(place.seq)
        return place.seq <= self.server.trimmed or (row is not None and row.chain == place.chain)

    async def make(self, generation: bytes, origin: Row, *, replaces: bool) -> None:
        present = await self.generation()
        if present == generation:
            return
        if present is not None and not replaces:
            raise LogRefused(LOG_EXISTS)
        self.server = MemoryLogServer(generation, origin)


class MemoryLogs:
    """The connections of one node to several logs. Implements ReplicatedLogs. `servers` is shared by all nodes: logs
    are added to it."""

    def __init__(self, servers: Sequence[MemoryLogServer], clock: Clock, faults: Faults | None = None) -> None:
        for server in servers:
            server.nodes = servers[0].nodes  # nodes announce themselves to the cluster, not to a log
        self._servers = servers
        self._clock = clock
        self._faults = faults or NoFaults()
        self._logs: dict[int, MemoryLog] = {}
        self._is_closed = False

    @property
    def cluster_key(self) -> bytes:
        return self._servers[0].cluster_key

    @property
    def count(self) -> int:
        return len(self._servers)

    async def log(self, number: int) -> MemoryLog:
        if number not in self._logs:
            self._logs[number] = self._new_log(self._servers[number], self._clock, self._faults)
        return self._logs[number]

    def _new_log(self, server: MemoryLogServer, clock: Clock, faults: Faults) -> MemoryLog:
        return MemoryLog(server, clock, faults)

    async def leaders(self) -> Sequence[LeaderState]:
        if self._is_closed:
            raise LogUnavailable("closed")
        await self._faults.before("leaders")
        states = [each.state for each in self._servers]
        await self._faults.after("leaders")
        return states

    async def close(self) -> None:
        self._is_closed = True
        for log in self._logs.values():
            await log.close()
