"""A replica set of MongoDB doors in the tests' own process: a topology that tests set, and the doors of a pair of
accounts of which one leads and the other follows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from support.mongo_house import MongoHouse, mongo_at
from support.replicas import Pair

from armillary.account.collections import event_feed
from armillary.account.topology import Member, Staleness, Topology
from armillary.errors import Failure, Kind
from armillary.storage.replication.group_commit import GroupCommit

REGIONS = {"a": "eu", "b": "us", "c": "us"}


def member(name: str, *, is_alive: bool = True, url: str | None = None) -> Member:
    return Member(name, REGIONS.get(name, "eu"), {"mongo": url or f"mongodb://{name}.example:27017"}, is_alive)


class SetTopology(Topology):
    """What a node knows, as the test sets it."""

    def __init__(self, name: str, leader: str | None, *, names: Sequence[str] = ("a", "b", "c")) -> None:
        self._name = name
        self._members = [member(each) for each in names]
        self._leader = leader
        self._changed = asyncio.Event()
        self.number = 7
        self.epochs = 3
        self.has_lease = True
        self.silent = False
        self.reached = 1_700_000_000_000_000
        self.on_refresh: Callable[[float], Awaitable[bool]] = _never
        self.on_keep_events: Callable[[bytes], Awaitable[None]] = _unreachable

    def change(self, *, leader: str | None = None, members: Sequence[Member] | None = None) -> None:
        if leader != self._leader:
            self.epochs += 1
        self._leader = leader
        if members is not None:
            self._members = list(members)
        self.number += 1
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def name(self) -> str:
        return self._name

    @property
    def region(self) -> str:
        return REGIONS[self._name]

    @property
    def version(self) -> int:
        return self.number

    @property
    def members(self) -> Sequence[Member]:
        return self._members

    @property
    def leader(self) -> Member | None:
        return next((each for each in self._members if each.name == self._leader), None)

    @property
    def leads(self) -> bool:
        return self._leader == self._name

    @property
    def epoch(self) -> int:
        return self.epochs

    @property
    def regions(self) -> Sequence[str]:
        return ["eu", "us"]

    async def changed(self, version: int, limit_s: float) -> None:
        if version == self.number:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), limit_s)

    @property
    def may_answer_strongly(self) -> bool:
        return self.leads and self.has_lease

    @property
    def staleness(self) -> Staleness:
        return Staleness(0.0, 0.0)

    @property
    def reached_us(self) -> int:
        return self.reached

    @property
    def is_silent(self) -> bool:
        return self.silent

    async def refresh(self, limit_s: float) -> bool:
        return await self.on_refresh(limit_s)

    async def keep_events(self, rid: bytes) -> None:
        await self.on_keep_events(rid)


async def _nothing() -> None:
    return


async def _never(limit_s: float) -> bool:
    return False


async def _unreachable(rid: bytes) -> None:
    raise Failure(Kind.UNAVAILABLE, "No node of the cluster leads at the moment.")


class MongoPair:
    """The doors of a node that leads and of one that follows."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.topologies = SetTopology("a", "a"), SetTopology("b", "a")
        pair.leader.topology, pair.follower.topology = self.topologies
        self.leader: MongoHouse = mongo_at(pair.leader)
        self.follower: MongoHouse = mongo_at(pair.follower)
        self.on_closing: Callable[[], Awaitable[None]] = _nothing  # when no node leads, before the doors are closed

    @classmethod
    async def open(cls, path: Path) -> Self:
        return cls(await Pair.open(path))

    async def step(self) -> None:
        await self.pair.step()
        for each in self.topologies:
            each.reached = int(self.pair.clock.now_s() * 1_000_000)

    def connect(self) -> None:
        """The follower reaches the leader: it asks it, and waits for what the leader has written."""

        async def refresh(limit_s: float) -> bool:
            await self.step()
            return True

        async def keep_events(rid: bytes) -> None:
            container = self.pair.leader.container_by_rid(rid)
            assert container is not None
            await event_feed.watch(self.pair.leader, container)

        self.topologies[1].on_refresh = refresh
        self.topologies[1].on_keep_events = keep_events

    async def exchange(self) -> None:
        """Both change their roles; their doors are closed, and made anew on the accounts of the new roles."""
        await self.step()
        for topology in self.topologies:
            topology.change(leader=None)
        await self.on_closing()
        await self.close_doors()
        await self.pair.exchange(Failure(Kind.NOT_LEADER, "Another node of the cluster leads now."))
        self.topologies = self.topologies[::-1]
        self.pair.leader.topology, self.pair.follower.topology = self.topologies
        self.leader, self.follower = mongo_at(self.pair.leader), mongo_at(self.pair.follower)
        for topology in self.topologies:
            topology.change(leader=self.topologies[0].name)

    async def close_doors(self) -> None:
        await self.leader.door.close()
        await self.follower.door.close()

    @property
    def rows(self) -> int:
        """Of the log, as far as the leader has appended."""
        return self.pair.leading_engine.replica.position.place.seq

    def end_lease(self) -> None:
        self.topologies[0].has_lease = False
        self._commit._lease.end()

    def depose(self) -> None:
        """Another node leads. The topology knows before the first refusal, as `Roles.cease` sees to."""
        self.topologies[0].change(leader=None)
        self._commit._stop(Failure(Kind.NOT_LEADER, "Another node of the cluster leads now."))

    @property
    def _commit(self) -> GroupCommit:
        commit = self.pair.leading_engine._commit
        assert commit is not None
        return commit

    async def close(self) -> None:
        await self.close_doors()
        await self.pair.close()


def secondary(body: dict[str, Any], mode: str = "secondary") -> dict[str, Any]:
    return {**body, "$readPreference": {"mode": mode}}
