"""How a follower of a simulation asks the leader: calls with delays, losses and nodes that are cut off."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from armillary import limits
from armillary.clock import Clock, within
from armillary.errors import Failure
from armillary.storage.replication.freshness import SourceUnavailable
from armillary.storage.replication.group_commit import GroupCommit
from armillary.storage.replication.leadership import Leadership
from armillary.storage.replication.recent_rows import LeaderWord, Pushed

T = TypeVar("T")


@dataclass
class Network:
    """What calls between nodes meet at the moment."""

    dice: random.Random
    clock: Clock
    counters: Counter[str]
    find: Callable[[str], Leadership | None]  # by the name of a node; None: it is down
    break_chance: float = 0.0
    delay_s_max: float = 0.002

    async def travel(self) -> None:
        await self.clock.sleep(self.dice.uniform(0.0001, self.delay_s_max))
        if self.dice.random() < self.break_chance:
            self.counters["calls lost between nodes"] += 1
            raise SourceUnavailable("lost")


class SimulatedSource:
    """Implements RowSource for one node."""

    def __init__(self, network: Network, name: str) -> None:
        self._network = network
        self._name = name
        self.is_cut = False

    async def rows(self, after_seq: int, wait_s: float) -> Pushed:
        pushed = await self._within(wait_s + limits.FOLLOWER_CALL_SECONDS, self._rows(after_seq, wait_s))
        self._network.counters["rows pushed" if pushed.rows else "nothing pushed"] += 1
        return pushed

    async def word(self, limit_s: float) -> LeaderWord:
        word = await self._within(limit_s, self._word())
        if not word.is_leased:
            self._network.counters["words without a lease"] += 1
        return word

    async def _within(self, limit_s: float, asking: Coroutine[Any, Any, T]) -> T:
        try:
            return await within(self._network.clock, limit_s, asking)
        except TimeoutError:
            raise SourceUnavailable("late") from None

    async def _rows(self, after_seq: int, wait_s: float) -> Pushed:
        leadership, commit = await self._reach()
        try:
            pushed = await commit.rows(after_seq, wait_s)
        except Failure as failure:
            raise SourceUnavailable(failure.message) from None
        await self._return_from(leadership)
        return pushed

    async def _word(self) -> LeaderWord:
        leadership, commit = await self._reach()
        word = commit.word
        await self._return_from(leadership)
        return word

    async def _reach(self) -> tuple[Leadership, GroupCommit]:
        own = self._network.find(self._name)
        name = own.state.node if own is not None and own.state is not None else ""
        await self._network.travel()
        leadership = self._network.find(name) if name != self._name and not self.is_cut else None
        if leadership is None or leadership.commit is None:
            raise SourceUnavailable("it does not lead")
        return leadership, leadership.commit

    async def _return_from(self, leadership: Leadership) -> None:
        await self._network.travel()
        if self._network.find(leadership.node) is not leadership:
            raise SourceUnavailable("it has died")
