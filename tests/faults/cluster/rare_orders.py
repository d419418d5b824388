"""Orders of events that chance brings about too seldom, and that single rules of the log are for. A run that has them
draws them like other faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest.mock import patch

from armillary.storage.log.memory_log import MemoryLog
from armillary.storage.log.replicated_log import LeaderState
from armillary.storage.log.rows import Place, Row
from armillary.storage.replication.rows_waiting import RowsWaiting

if TYPE_CHECKING:
    import random
    from collections import Counter

    from faults.cluster.cluster_simulation import World

REPEATED_SHARE = 0.1  # of the calls that are sent again
SOON_S_MAX, LATE_S_MAX = 0.005, 6.0  # also before the first one has come

Order = Callable[["World"], Awaitable[None]]


async def late_answer_to_a_renewal(world: World) -> None:
    """Another node takes over before the leader hears that its renewal succeeded, and its next one is late, too."""
    leader = world.leader()
    if leader is None:
        return
    slow = leader.trouble.slow
    slow["after renew"] = world.dice.uniform(3.5, 5.0)
    await _counted(world, "slow: after renew")
    slow["before renew"] = 4.0
    world.is_silent = True  # a write would tell the leader
    await _counted(world, "take-overs")
    await world.write_at_new_leader(leader)
    await world.clock.sleep(world.dice.uniform(2.0, 4.0))
    world.is_silent = False
    slow.clear()


async def late_fence(world: World) -> None:
    """A node raises the epoch, and comes to its fence when another one has taken over since. It does not hear soon that
    it does not lead."""
    leader = world.leader()
    late, other = world.dice.sample([each for each in world.nodes if each is not leader], 2)
    late.trouble.slow |= {"before fence": world.dice.uniform(3.5, 5.0), "before renew": 3.0}
    other.trouble.is_cut = True
    if leader is not None:
        await leader.kill()
    await _counted(world, "slow: before fence")
    other.trouble.is_cut = False
    await _counted(world, "take-overs")
    world.is_silent = True
    await world.clock.sleep(world.dice.uniform(1.0, 3.0))
    await world.write_at_new_leader(other)
    await world.clock.sleep(1.0)
    world.is_silent = False
    late.trouble.slow.clear()
    if leader is not None and leader.engine is None:
        await leader.start()


async def row_read_and_lost(world: World) -> None:
    """A follower has read a row that is lost when the log fails over. What is confirmed it hears late, when another row
    has that seq."""
    leader, server = world.leader(), world.server
    if leader is None:
        return
    for each in world.nodes:
        each.source.is_cut = True  # they read the log
    await world.clock.sleep(1.5)
    leader.trouble.slow["before standby"] = 3.0
    await _counted(world, "slow: before standby")
    await world.clock.sleep(0.3)
    blind = world.dice.choice([each for each in world.nodes if each is not leader])
    blind.trouble.slow["before leader"] = world.dice.uniform(5.0, 6.0)
    await _counted(world, "slow: before leader", 2.0)
    await world.clock.sleep(0.3)  # for both of its questions
    world.is_silent = True
    world.counters["rows lost by failover"] += sum(row.seq > server.replicated for row in server.rows)
    server.fail_over()
    await leader.kill()
    await _counted(world, "take-overs")
    await world.clock.sleep(world.dice.uniform(3.0, 5.0))
    blind.trouble.slow.clear()
    world.is_silent = False
    leader.trouble.slow.clear()
    for each in world.nodes:
        each.source.is_cut = False
    await leader.start()


async def stalled_storage(world: World) -> None:
    """The storage of the leader takes no writes, for longer than it waits for that."""
    leader = world.leader()
    if leader is None:
        return
    leader.disk.is_stalled = True
    await world.clock.sleep(world.dice.uniform(1.0, 6.0))
    leader.disk.is_stalled = False


async def _counted(world: World, counter: str, limit_s: float = 8.0) -> None:
    """Until something has happened once more, for a limited time."""
    before, ends_s = world.counters[counter], world.loop.now_s + limit_s
    while world.counters[counter] == before and world.loop.now_s < ends_s:
        await world.clock.sleep(0.002)


ORDERS: Sequence[Order] = (late_answer_to_a_renewal, late_fence, row_read_and_lost, stalled_storage)


class CountingLog(MemoryLog):
    """Counts attempts to lead that failed. Where the world has that, calls also reach the server a second time,
    before or after others: what a connection had sent before it broke."""

    world: World
    dice: random.Random
    _is_fencing = False

    async def append(self, rows: Sequence[Row]) -> None:
        server = self._server

        def arrive() -> str:
            is_new = server.at(rows[0].seq) is None
            return ("appends that came late" if is_new else "appends that came again") if server.add(rows) else ""

        self._send_again(arrive)
        await super().append(rows)

    async def renew(self, seen: LeaderState, confirmed: Place) -> LeaderState | None:
        def arrive() -> str:
            return self._replaced("renewals that came late", seen, replace(seen, confirmed=confirmed))

        self._send_again(arrive)
        return await super().renew(seen, confirmed)

    async def take(self, seen: LeaderState, node: str, time_us: int) -> tuple[LeaderState, Row] | None:
        def arrive() -> str:  # and the connection breaks before the fence
            return self._replaced("takes that came late", seen, replace(seen, epoch=seen.epoch + 1, node=node))

        self._send_again(arrive)
        self._is_fencing = False
        taken = await super().take(seen, node, time_us)
        self.world.counters["fences overtaken" if self._is_fencing else "takes lost"] += taken is None
        return taken

    def _replaced(self, what: str, seen: LeaderState, wanted: LeaderState) -> str:
        if self._server.state != seen:
            return ""
        self._server.state = replace(wanted, renewals=seen.renewals + 1)
        return what

    def _send_again(self, arrive: Callable[[], str]) -> None:
        if self.world.has_repeated_calls and self.dice.random() < REPEATED_SHARE:
            self.world.begin(self._arrive(arrive, self._server.lineage))

    async def _arrive(self, arrive: Callable[[], str], lineage: int) -> None:
        await self._clock.sleep(self.dice.uniform(0.0, self.dice.choice([SOON_S_MAX, LATE_S_MAX])))
        if self._server.lineage == lineage and (what := arrive()):  # else its server is gone
            self.world.counters[what] += 1

    async def _begin(self, call: str) -> None:
        await super()._begin(call)
        self._is_fencing = self._is_fencing or call == "fence"


@contextmanager
def counted(counters: Counter[str]) -> Iterator[None]:
    """Count what followers do with rows that were never acknowledged."""
    forget, confirm = RowsWaiting.forget, RowsWaiting.confirm

    def count_forgotten(self: RowsWaiting) -> None:
        counters["rows forgotten"] += len(self._rows)
        forget(self)

    def count_others(self: RowsWaiting, place: Place) -> None:
        at = place.seq - self._applied.seq - 1
        counters["confirmations of another row"] += 0 <= at < len(self._rows) and self._rows[at].place != place
        confirm(self, place)

    with patch.object(RowsWaiting, "forget", count_forgotten), patch.object(RowsWaiting, "confirm", count_others):
        yield
