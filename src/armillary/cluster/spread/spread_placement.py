"""Placement of the logs of a cluster: what this node carries follows the placement record of the catalog, and the node
that has the catalog runs the balancer. While balancing is off, as it is until an operator switches it on, every node
carries all logs, leaders fall to nodes in turns (`preferred_leaders.py`), and only moves that were asked for are made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.allocation import place_of_store
from armillary.clock import Clock
from armillary.cluster.logs.node_logs import NodeLogs
from armillary.cluster.membership import Membership
from armillary.cluster.peers.calls import Peers
from armillary.cluster.placement.balancer import Balancer
from armillary.cluster.placement.node_placement import LedLoad, NodePlacement
from armillary.cluster.placement.operations import Placement
from armillary.cluster.placement.record import SETTING, PlacementRecord
from armillary.storage.log.replicated_log import LogUnavailable

_log = logging.getLogger("armillary.cluster")


class SpreadPlacement:
    def __init__(
        self,
        name: str,
        logs: NodeLogs,
        peers: Peers,
        membership: Membership,
        account: Callable[[], Account | None],
        hand_over: Callable[[int, str], Awaitable[str]],
        clock: Clock,
    ) -> None:
        """The replica of log 0 is open."""
        self.record = PlacementRecord()  # as this node knows it
        self._name = name
        self._logs = logs
        self._account = account
        self._clock = clock
        self._balancer: Balancer | None = None
        self._running: asyncio.Task[None] | None = None
        self._node = NodePlacement(
            name,
            logs,
            peers,
            clock,
            nodes=lambda: membership.nodes,
            regions=lambda: membership.priorities,
            led_loads=self._led_loads,
            free_bytes=lambda: logs.replicas[0].engine.replica.directory.free_bytes(),
            hand_over=hand_over,
        )
        self.operations = Placement(name, peers, lambda: logs.leader_of(0), lambda: self._balancer, clock)

    async def first_carried(self) -> set[int]:
        """The logs to carry until the record is known: those in the directory, and those of which no other node has a
        replica, as in a new cluster."""
        carried = self._logs.wanted
        try:
            for number in range(self._logs.logs.count):
                replicas = await (await self._logs.logs.log(number)).replicas()
                if all(each.node == self._name for each in replicas):
                    carried.add(number)
        except LogUnavailable as error:
            _log.info("the replicas of the logs cannot be read yet: %s", error)
        return carried

    async def begin(self, account: Account, *, has_catalog: bool) -> None:
        """The account was opened."""
        self._adopt(await account.catalog.kept_setting(SETTING))
        account.catalog.on_setting[SETTING] = self._adopt
        if has_catalog:
            self._balancer = Balancer(_FollowedSettings(account, self._adopt), self._node, self._clock)
            self._running = asyncio.create_task(self._balancer.run())

    async def end(self) -> None:
        running, self._running, self._balancer = self._running, None, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def may_even_out(self, log: int) -> bool:
        """Whether the leader of a log is neither the balancer's nor an operator's choice."""
        return not self.record.rules.is_balancing and log not in self.record.leaders

    def _adopt(self, packed: bytes | None) -> None:
        self.record = PlacementRecord.unpack(packed)
        self._node.follow(self.record)

    def _led_loads(self) -> dict[int, LedLoad]:
        account = self._account()
        if account is None:
            return {}
        found = dict.fromkeys(self._logs.led, LedLoad())
        for container in account.containers:
            for partition in container.partitions.values():
                log = place_of_store(partition.range.store)
                if log in found and not partition.is_elsewhere:
                    units, size, count = found[log]
                    spent = partition.meter.spent_ru(limits.METERED_SECONDS)
                    found[log] = LedLoad(units + spent, size + partition.head.size_bytes, count + 1)
        return found


class _FollowedSettings:
    """The settings of the catalog at the node that has it, which hears of its own changes here. Implements
    PlacementStore."""

    def __init__(self, account: Account, on_kept: Callable[[bytes | None], None]) -> None:
        self._catalog = account.catalog
        self._on_kept = on_kept

    async def kept_setting(self, name: str) -> bytes | None:
        return await self._catalog.kept_setting(name)

    async def keep_setting(self, name: str, value: bytes) -> None:
        await self._catalog.keep_setting(name, value)
        self._on_kept(value)
