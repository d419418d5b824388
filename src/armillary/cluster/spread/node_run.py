"""The account of a node of a cluster with several logs, from its opening until the node gets the catalog or loses it.
The node that leads log 0 has the catalog, as the first process of a server has it; the others follow. Which partitions
a node holds changes while the account is open, with the logs that it leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from armillary import limits
from armillary.account.catalog.catalog import CATALOG_STORE
from armillary.account.registry import AccountSettings
from armillary.account.visits.elsewhere.link import Link
from armillary.clock import Clock
from armillary.cluster.logs.leader_watch import LeaderWatch
from armillary.cluster.logs.log_replica import LogReplica
from armillary.cluster.spread.catalog_leases import RenewCatalogLease
from armillary.cluster.spread.node_connections import node_number
from armillary.cluster.spread.node_here import NodeHere
from armillary.cluster.spread.node_places import NodePlaces
from armillary.errors import Failure
from armillary.processes.catalog_owner import CatalogOwner
from armillary.processes.catalog_replica import CatalogReplica
from armillary.processes.divided_account import DividedAccount
from armillary.processes.divided_engine import DividedEngine
from armillary.processes.places import ask_starting
from armillary.processes.rejoining import Rejoining, rejoin
from armillary.processes.server_controls import ServerControls
from armillary.processes.shared_locks import LockTable

_log = logging.getLogger("armillary.cluster")


class NodeRun:
    def __init__(
        self,
        node: str,
        names: Collection[str],
        log_count: int,
        watch: LeaderWatch,
        replicas: Mapping[int, LogReplica],
        machine: Clock,
        life: int,
        on_change: Callable[[], None],
    ) -> None:
        """`names`: of all nodes that are known. `replicas`: those that this node carries. `life`: of the catalog, if
        this node has it: the epoch of log 0 in which it leads; else 0. `on_change`: a node was connected, or lost."""
        self.life = life
        self.is_broken = False  # it cannot go on with the catalog that it has
        self.account: DividedAccount | None = None
        self._replicas = replicas
        self._clock = machine
        self._replica = CatalogReplica()
        self.places = NodePlaces(node, log_count, watch, machine)
        self.places.know(names)
        self.places.holds = lambda log: self.account is not None and log in self.account.held
        self.here = NodeHere(self.places, self._replica, machine, life, self._leads_catalog)
        self.here.on_met = on_change
        self.here.end_process = self._give_up
        self.here.on_left = self._has_left
        self._first: Link | None = None  # the connection to the node whose catalog this one follows
        self._on_change = on_change
        self._renewing: asyncio.Task[None] | None = None

    # Opening.

    async def open_first(
        self, clock: Clock, settings: AccountSettings, controls: ServerControls | None
    ) -> DividedAccount:
        """This node leads log 0. `controls`: what the control API had set, as this node has followed it; the others may
        tell of later ones."""
        here, store = self.here, self._replicas[0].engine.store(CATALOG_STORE)
        here.locks = LockTable()
        owner = await CatalogOwner.open(store, self._replica, self.life, here.number)
        owner.spread = here.spread_change
        here.owner = owner
        here.rejoining.has_catalog.set()
        await here.rejoining.done()
        account = await self._opened(clock, settings, here.rejoining.controls or controls)
        await account.spread_controls()
        return account

    def await_nodes(self, awaited: Collection[str]) -> None:
        """At the node that leads log 0, before it is connected to others. `awaited`: nodes that may have a lease of the
        catalog, of the node that had it before."""
        patience_s = limits.CATALOG_LEASE_SECONDS + limits.CATALOG_LEASE_MARGIN_SECONDS
        self.here.rejoining = Rejoining([node_number(each) for each in awaited], patience_s)

    async def open_further(self, clock: Clock, settings: AccountSettings) -> DividedAccount:
        """Another node has the catalog, and is connected. Raises a Failure if it does not answer."""
        first = self.places.first
        self._first = first.connected
        await self.here.load_catalog()
        self.here.joined = first.life
        self._renewing = asyncio.create_task(self._keep_lease())
        return await self._opened(clock, settings)

    async def _opened(
        self, clock: Clock, settings: AccountSettings, controls: ServerControls | None = None
    ) -> DividedAccount:
        engine = DividedEngine(self._replica, {})
        engine.drop_elsewhere = self.here.drop_store
        if self.life:
            engine.enter(0, self._replicas[0].engine, self._leads(0))
        account = DividedAccount(engine, clock, settings, self.here)
        account.other_places = {}  # doors that keep cursors and transactions are those of the node with the catalog
        if not self.life:
            await account.controls.ask()
        elif controls is not None:
            account.controls.use(controls)
        self.account = account
        await account.begin()
        self.here.open(account)
        return account

    async def close(self, reason: Failure) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        account, self.account = self.account, None
        self.here.lease.end()
        if account is not None:
            await account.close(reason)
        self.here.leave()

    # Places.

    @property
    def held(self) -> set[int]:
        return set(self.account.held) if self.account is not None else set()

    async def enter(self, log: int) -> None:
        """This node leads a log: open its partitions. Raises a Failure if one cannot be opened."""
        assert self.account is not None
        await self.account.enter_place(log, self._replicas[log].engine, self._leads(log))

    async def leave(self, log: int) -> None:
        if self.account is not None:
            await self.account.leave_place(log)

    def _leads(self, log: int) -> Callable[[], bool]:
        engine, here = self._replicas[log].engine, self.here
        return lambda: engine.may_answer_strongly and here.knows_catalog

    def _leads_catalog(self) -> bool:
        replica = self._replicas.get(0)
        return self.life != 0 and replica is not None and replica.may_answer_strongly

    # The node that has the catalog.

    @property
    def has_new_first(self) -> bool:
        """Whether another node has the catalog than the one that this one follows."""
        first = self.places.first
        return self.account is not None and not self.life and first.life > self.here.joined

    async def join(self) -> None:
        """Go on with a node that has got the catalog."""
        assert self.account is not None
        first = self.places.first
        link = first.connected
        assert link is not None
        self._first, life = link, first.life
        await rejoin(self.here, self.account.controls, link)
        if not self.is_broken and link is self.places.first.connected:
            self.here.joined = life

    def _give_up(self, number: int) -> None:
        """A node has not done what it must. Another one gets no lease any more, and opens its account anew."""
        if number == self.here.number:
            self._break()

    def _break(self) -> None:
        self.is_broken = True
        self.here.lease.end()
        self._on_change()

    def _has_left(self, number: int) -> None:
        if self._first is not None and self._first.number == number:
            self.here.lease.end()  # a change of which this node has heard nothing may be acknowledged any time

    async def _keep_lease(self) -> None:
        here = self.here
        while True:
            first = self.places.first
            if first.life == here.joined:
                sent_s = here.lease.now_s()
                try:
                    is_granted = first.connected is self._first and await ask_starting(
                        first, RenewCatalogLease(here.number), limits.CATALOG_LEASE_SECONDS
                    )
                except Failure as failure:
                    _log.info("the lease of the catalog was not renewed: %s", failure.message)
                else:
                    if is_granted:
                        here.lease.renew(sent_s)
                    else:
                        self._break()
                        return
            await self._clock.sleep(limits.CATALOG_RENEW_SECONDS)
