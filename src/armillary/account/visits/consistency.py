"""Consistency levels on a node of a cluster: what a node must know before it answers a request.

A node that leads answers all levels while its lease holds. Strong and bounded-staleness reads are refused without the
lease; requests that may write append an empty row first, so that answers that write nothing (404, 409, 412, a
procedure that only reads) are never those of a leader that was deposed. A node that follows answers what its state is
fresh enough for, asks the leader once how far it should be, and refuses with STALE_HERE or SESSION_BEHIND otherwise:
the request is then forwarded to the leader.

Each check is made after the request came and before state is read. What is read then holds everything that was
acknowledged at the time of the check. Doors call these functions only if `Account.topology` is not None.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from armillary import limits
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.registry import AccountSettings
from armillary.account.topology import Topology
from armillary.account.visits.visits import Session
from armillary.errors import Failure, Kind
from armillary.storage.replication.group_commit import not_leader

T = TypeVar("T")

STRONG, BOUNDED_STALENESS, SESSION = "Strong", "BoundedStaleness", "Session"
LEVELS: Final = (STRONG, BOUNDED_STALENESS, SESSION, "ConsistentPrefix", "Eventual")  # strongest first
EVENTUAL: Final = LEVELS[-1]
_LEASED: Final = (STRONG, BOUNDED_STALENESS)
# What a node that is behind may say of state that is newer elsewhere; it is asked again once it has caught up.
_CATCHING_UP: Final = (Kind.SESSION_BEHIND, Kind.RANGE_GONE, Kind.STALE_CONTAINER, Kind.NAME_STALE)


async def read(account: Account, topology: Topology, level: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Answer a request that writes nothing. `attempt` may be called twice."""
    if topology.may_answer_strongly:
        return await attempt()
    if topology.leads:
        return await _read_without_lease(level, attempt)
    if level == STRONG:
        raise stale_here()
    if level == BOUNDED_STALENESS and not _is_fresh(topology, account.settings):
        await refresh(topology)
        if not _is_fresh(topology, account.settings):
            raise stale_here()
    try:
        return await attempt()
    except Failure as failure:
        if _is_catalog_miss(failure):
            raise stale_here() from None
        if failure.kind not in _CATCHING_UP:
            raise
        is_caught_up = await refresh(topology)
        if not is_caught_up and failure.kind is not Kind.SESSION_BEHIND:
            raise stale_here() from None
    return await attempt()


def is_readable_at_once(topology: Topology, level: str, container: Container, session: Session | None) -> bool:
    """Whether this node may read a container at a level without asking the leader. False: `read` finds out."""
    if topology.may_answer_strongly:
        return True
    if topology.is_silent or level in _LEASED:
        return False
    return not session or max(session) < container.state.next_range  # it may name ranges that are not known here yet


async def _read_without_lease(level: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """On a leader whose lease is over. Another node may lead by now, so absence and changes of the catalog cannot be
    told."""
    if level in _LEASED:
        raise lease_over()
    try:
        return await attempt()
    except Failure as failure:
        if _is_catalog_miss(failure) or failure.kind in _CATCHING_UP:
            raise lease_over() from None
        raise


async def before_write(account: Account, topology: Topology) -> None:
    """To be awaited before a request that may write is looked at."""
    if not topology.leads:
        raise not_leader()
    if not topology.may_answer_strongly:
        await account.catalog.settle()  # an empty row in the log: this node still leads


def check_silence(topology: Topology) -> None:
    """Refuse everything on a node that has lost the cluster."""
    if topology.is_silent:
        raise silence()


def failure_or_silence(topology: Topology | None, failure: Failure) -> Failure:
    """What a request that failed is refused with. On a node that has lost the cluster the reason may be old: an
    unknown key may be a new one."""
    return silence() if topology is not None and topology.is_silent else failure


async def refresh(topology: Topology) -> bool:
    """Come to the leader's state. False: that was not reached in time."""
    await asyncio.sleep(0)  # requests begin without a task, which timeouts need
    return await topology.refresh(limits.FOLLOWER_REFRESH_SECONDS)


def _is_fresh(topology: Topology, settings: AccountSettings) -> bool:
    seconds, transactions = topology.staleness
    return seconds <= settings.staleness_s and transactions <= settings.staleness_transactions


def _is_catalog_miss(failure: Failure) -> bool:
    """Whether a database, container or another resource of the catalog was not found. A partition counts the charge of
    an item that was not found; nothing counts that of these."""
    return failure.kind is Kind.OWNER_NOT_FOUND or (failure.kind is Kind.NOT_FOUND and not failure.is_metered)


def silence() -> Failure:
    return Failure(
        Kind.UNAVAILABLE,
        "This node of the cluster has heard nothing of the others for too long, so it answers no requests. Try again, "
        "or ask another node.",
        retry_after_ms=limits.CLUSTER_RETRY_MS,
    )


def stale_here() -> Failure:
    return Failure(
        Kind.STALE_HERE,
        "This node of the cluster is not fresh enough for the request, and the node that leads cannot be asked at the "
        "moment. Try again.",
        retry_after_ms=limits.CLUSTER_RETRY_MS,
    )


def lease_over() -> Failure:
    return Failure(
        Kind.UNAVAILABLE,
        "This node of the cluster cannot tell at the moment whether it still leads. Try again.",
        retry_after_ms=limits.CLUSTER_RETRY_MS,
    )
