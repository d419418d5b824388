"""Leases of the catalog: a node answers requests only as long as it knows the catalog as it is. The node that leads log
0 has every other one take over a change before it acknowledges it. One that cannot be reached may answer clients still,
who reach it: so it is not counted on any more, and the change waits until its lease is over. It has no effect on what
is stored, which the logs decide.

Leases are renewed twice a second, and counted by their holders from before they asked. A node that has another catalog,
or has missed a change, gets none: it opens its account anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from armillary import limits
from armillary.account.visits.elsewhere.place import LocalPlace, Question
from armillary.clock import Clock
from armillary.storage.replication.lease import BootTime, Lease, boot_time_s

_log = logging.getLogger(__name__)


class _Granting(Protocol):
    """A node (`node_here.py`)."""

    leases: GrantedLeases


@dataclass(slots=True)
class RenewCatalogLease(Question):
    """Asked of the node that has the catalog. The answer is whether the lease is granted."""

    number: int

    async def answer(self, here: LocalPlace) -> bool:
        return cast(_Granting, here).leases.grant(self.number)


class GrantedLeases:
    """At the node that has the catalog."""

    def __init__(self, may_grant: Callable[[int], bool], clock: Clock, boot_time: BootTime = boot_time_s) -> None:
        """`may_grant`: whether this node has the catalog for certain, and tells a node of its changes."""
        self._may_grant = may_grant
        self._clock = clock
        self._boot_time = boot_time
        self._until_s: dict[int, float] = {}  # by node

    def grant(self, number: int) -> bool:
        if not self._may_grant(number):
            return False
        self._until_s[number] = self._boot_time() + limits.CATALOG_LEASE_SECONDS + limits.CATALOG_LEASE_MARGIN_SECONDS
        return True

    def left_s(self, number: int) -> float:
        """Seconds for which a node may still answer."""
        return max(0.0, self._until_s.get(number, 0.0) - self._boot_time())

    async def over(self, numbers: set[int]) -> None:
        """Wait until the leases of all nodes but these are over."""
        while left_s := max((self.left_s(each) for each in self._until_s if each not in numbers), default=0.0):
            _log.warning("a change of the catalog waits %.1f s for a node that does not answer", left_s)
            await self._clock.sleep(left_s)


class CatalogLease(Lease):
    """Of another node."""

    def __init__(self, boot_time: BootTime = boot_time_s) -> None:
        super().__init__(boot_time, limits.CATALOG_LEASE_SECONDS)
