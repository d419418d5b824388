"""What a node knows of its cluster: the other nodes, which they announce in the log every second, who leads, and the
order of regions. It is the `Topology` of the node's account.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from armillary import limits
from armillary.account.topology import Member, Staleness
from armillary.clock import Clock, within
from armillary.storage.log.replicated_log import LeaderState, LogUnavailable, NodeState, ReplicatedLog

_log = logging.getLogger(__name__)
_DRAINED: Final = "drained"  # among what a node announces: it does not take over
_KEPT: Final = "kept"  # the value if an operator has drained it: it stays so when it is started again
_STOPPED: Final = "stopped"  # likewise: it has ended in order


def is_alive(node: NodeState) -> bool:
    """Whether a node has announced itself lately, and not that it stops."""
    return node.silent_s < limits.NODE_SILENT_SECONDS and _STOPPED not in node.addresses


def has_drained(node: NodeState) -> bool:
    """Whether a node has announced that it does not take over."""
    return _DRAINED in node.addresses


CLIENT_DOORS: Final = ("sql", "table", "mongo", "gremlin")  # of the addresses that a node announces


class Freshness(Protocol):
    """How fresh the state of this node is."""

    @property
    def staleness(self) -> tuple[float, float]: ...
    @property
    def reached_us(self) -> int: ...
    @property
    def silent_s(self) -> float:
        """Since something was heard of the log or of the leader; 0 on a leader."""

    async def refresh(self, limit_s: float) -> bool: ...


class _Leading(Protocol):
    """The engine, or what knows several."""

    @property
    def may_answer_strongly(self) -> bool: ...


class Membership:
    """Implements `Topology`."""

    def __init__(
        self,
        name: str,
        region: str,
        log: ReplicatedLog,
        engine: _Leading,
        clock: Clock,
        on_nodes: Callable[[Sequence[NodeState]], None],
        is_gone: Callable[[str], bool] = lambda node: False,
    ) -> None:
        """`on_nodes`: told of all nodes, with all their addresses, whenever they were read. `is_gone`: whether a node
        does not answer this one."""
        self._is_gone = is_gone
        self.freshness: Freshness  # to be set before the node begins, and so is the next
        self.on_known: Callable[[bool], None]  # told once what the log says of this node: whether it is drained
        self.on_keep_events: Callable[[bytes], Awaitable[None]]  # asks the leader
        self.silence_s = limits.FOLLOWER_SILENT_SECONDS  # of the whole cluster, after which nothing is answered
        self.name = name
        self.region = region
        self.addresses: dict[str, str] = {}  # of this node, as it announces them
        self.members: Sequence[Member] = ()
        self.version = 1
        self.epoch = 0
        self.leads = False
        self.priorities: Sequence[str] = ()  # regions, as `failover-region` and the operator ordered them
        self.nodes: Sequence[NodeState] = ()
        self._leader_name = ""
        self._log = log
        self._engine = engine
        self._clock = clock
        self._on_nodes = on_nodes
        self._change = asyncio.Event()
        self._is_known = False  # what the log says of this node was read

    # Keeping up.

    async def run(self) -> None:
        """Announce this node and learn of the others, until cancelled."""
        is_told = False
        while True:
            try:
                await self.exchange()
                is_told = False
            except LogUnavailable as error:
                if not is_told:
                    is_told = True
                    _log.warning("the nodes of the cluster cannot be read: %s", error)
            await self._clock.sleep(limits.NODE_ANNOUNCE_SECONDS)

    async def exchange(self) -> None:
        if not self._is_known:
            await self._recall()
        await self._log.announce(self.name, self.region, self.addresses)
        self.nodes = nodes = await self._log.nodes()
        self._on_nodes(nodes)
        members = tuple(
            Member(
                each.node,
                each.region,
                {door: each.addresses[door] for door in CLIENT_DOORS if door in each.addresses},
                is_alive(each),
            )
            for each in sorted(nodes, key=lambda each: each.node)
        )
        if members != self.members:
            self.members = members
            self._tell()

    async def _recall(self) -> None:
        """What was announced of this node before it was started: it stays drained."""
        own = next((each for each in await self._log.nodes() if each.node == self.name), None)
        is_drained = own is not None and own.addresses.get(_DRAINED) == _KEPT
        if not self._is_known:  # another exchange may have been faster
            self._is_known = True
            if is_drained:
                self.drain(True, is_kept=True)
                _log.warning("this node is drained: it does not take over until `armillary cluster undrain`")
            self.on_known(is_drained)

    async def depart(self) -> None:
        """Tell the others that this node stops: they need not wait until it has been silent for long."""
        try:
            announced = self.addresses | {_STOPPED: "true"}
            await within(self._clock, limits.LEASE_SECONDS, self._log.announce(self.name, self.region, announced))
        except (LogUnavailable, TimeoutError) as error:
            _log.info("the others are not told that this node stops: %s", error)

    def see_leader(self, state: LeaderState) -> None:
        """The record of the log was read."""
        self.see(state.node, state.epoch)

    def see(self, leader: str, epoch: int) -> None:
        """A node leads in an epoch; an empty name: the last leader has handed over to any node."""
        if epoch < self.epoch or (leader, epoch) == (self._leader_name, self.epoch):
            return
        if epoch > self.epoch and leader != self.name:
            # This node is deposed and may not have noticed. Clients would take it for the primary of the new epoch.
            self.leads = False
        self._leader_name, self.epoch = leader, epoch
        self._tell()

    def lead(self, leads: bool) -> None:
        """This node's account was opened as the leader's, or takes no writes any more."""
        if leads != self.leads:
            self.leads = leads
            self._tell()

    def drain(self, is_drained: bool, *, is_kept: bool = False) -> None:
        """What this node announces from now on. `is_kept`: it is so when the node is started again, too."""
        value = _KEPT if is_kept or self.addresses.get(_DRAINED) == _KEPT else "true"
        others = {name: value for name, value in self.addresses.items() if name != _DRAINED}
        self.addresses = others | ({_DRAINED: value} if is_drained else {})

    @property
    def is_draining(self) -> bool:
        """Whether this node announces that it does not take over."""
        return _DRAINED in self.addresses

    def is_drained(self, name: str) -> bool:
        """Whether a node has announced that it does not take over."""
        return any(each.node == name and has_drained(each) for each in self.nodes)

    def _tell(self) -> None:
        self.version += 1
        change, self._change = self._change, asyncio.Event()
        change.set()

    # Topology.

    @property
    def leader(self) -> Member | None:
        if self._leader_name == self.name and not self.leads:
            return None
        found = self.member(self._leader_name)
        # A leader that has died is known to be gone long before its announcement is old.
        return replace(found, is_alive=False) if found is not None and self._is_gone(found.name) else found

    def member(self, name: str) -> Member | None:
        return next((each for each in self.members if each.name == name), None)

    @property
    def regions(self) -> Sequence[str]:
        leader = self.member(self._leader_name)
        first = [leader.region] if leader is not None else []
        present = {each.region for each in self.members if each.is_alive}
        ordered = [*first, *(each for each in self.priorities if each in present), *sorted(present)]
        return list(dict.fromkeys(ordered))

    def rank(self) -> int:
        """The place of this node's region in the order of failover; 0 comes first."""
        order = [*self.priorities, *sorted({each.region for each in self.members} - set(self.priorities))]
        return order.index(self.region) if self.priorities and self.region in order else 0

    async def changed(self, version: int, limit_s: float) -> None:
        if self.version == version:
            with suppress(TimeoutError):
                await within(self._clock, limit_s, self._change.wait())

    @property
    def may_answer_strongly(self) -> bool:
        return self._engine.may_answer_strongly

    @property
    def staleness(self) -> Staleness:
        return Staleness(*self.freshness.staleness)

    @property
    def reached_us(self) -> int:
        return self.freshness.reached_us

    @property
    def is_silent(self) -> bool:
        return self.freshness.silent_s > self.silence_s

    async def refresh(self, limit_s: float) -> bool:
        return await self.freshness.refresh(limit_s)

    async def keep_events(self, rid: bytes) -> None:
        await self.on_keep_events(rid)
