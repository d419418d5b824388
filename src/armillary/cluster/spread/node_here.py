"""This node as the others ask it. It is made anew whenever the node gets the catalog or loses it: to the others it is a
process then that was started anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

from armillary import limits
from armillary.account.account import Account
from armillary.account.visits.elsewhere.link import Link
from armillary.clock import Clock
from armillary.cluster.spread.catalog_leases import CatalogLease, GrantedLeases
from armillary.cluster.spread.node_connections import ConnectingNode, Standing
from armillary.cluster.spread.node_places import NodePlace, NodePlaces
from armillary.errors import Failure, Kind
from armillary.processes.catalog_replica import CatalogReplica, Change
from armillary.processes.partition_questions import ProcessReady
from armillary.processes.places import ProcessHere
from armillary.processes.rejoining import Rejoining

_log = logging.getLogger(__name__)


class NodeHere(ProcessHere, ConnectingNode):
    rejoining: Rejoining  # of the node that has the catalog

    def __init__(
        self, places: NodePlaces, replica: CatalogReplica, clock: Clock, life: int, leads_catalog: Callable[[], bool]
    ) -> None:
        """`life`: of the catalog, if this node has it; else 0. `leads_catalog`: whether it has it for certain."""
        super().__init__(places, replica, clock)
        self.nodes = places
        self.life = life
        self.joined = 0  # the life whose catalog this node follows
        self.lease = CatalogLease()
        self.leases = GrantedLeases(lambda number: leads_catalog() and number in self.followers, clock)
        self.on_met: Callable[[], None] = lambda: None
        self._account: Account | None = None
        self._leads_catalog = leads_catalog

    @property
    def account(self) -> Account:
        if self._account is None:
            raise Failure(
                Kind.UNAVAILABLE,
                "This node of the cluster opens its partitions at this moment. Try again.",
                retry_after_ms=limits.CLUSTER_RETRY_MS,
            )
        return self._account

    @account.setter
    def account(self, account: Account) -> None:
        self._account = account

    def leave(self) -> None:
        """The account is closed."""
        self._account = None

    @property
    def knows_catalog(self) -> bool:
        """Whether the catalog is known here as it is, so that requests may be answered."""
        return self._leads_catalog() if self.life else self.lease.holds

    # Connections.

    @property
    def standing(self) -> Standing:
        return Standing(self.life, self.joined)

    def met_node(self, link: Link, standing: Standing) -> None:
        place = cast(NodePlace, self.places[link.number])
        if place.connected is not None:
            self.parted(place.connected)
        place.life, place.serves = standing.life, False
        place.use(link, is_ready=True)
        if self.is_ready:
            link.tell(ProcessReady(self.number))
        if self.life:
            if self.locks is not None:
                self.locks.leave(link.number)  # of a former run of that node, or it tells them again
            if not standing.joined:
                self.rejoining.joined(link.number)
        self.on_met()

    def is_met_ready(self, number: int) -> None:
        cast(NodePlace, self.places[number]).serves = True

    def parted(self, link: Link) -> None:
        place = cast(NodePlace, self.places[link.number])
        if place.connected is not link:
            return
        place.use(None, is_ready=False)
        place.life, place.serves = 0, False
        self.followers.discard(link.number)
        self.on_left(link.number)
        self.on_met()

    # Changes of the catalog.

    async def spread_change(self, change: Change, origin: int, is_late: bool) -> int:
        """Nodes that have not taken it over answer nothing any more when this returns."""
        lsn = await super().spread_change(change, origin, is_late)
        await self.leases.over(self.followers)
        return lsn
