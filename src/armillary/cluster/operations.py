"""What an operator does with a cluster: handing over, the order of regions, draining, removing nodes. It can be asked
of any node; what another node has to do is called there. A node or a log that does not answer is asked again for a
while (`_repeated`): connections break while the machine is busy or roles change. Status and metrics are in `status.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import orjson

from armillary import audit, limits
from armillary.account.account import Account
from armillary.account.cluster_operations import ClusterStatus, NodeDigest, OwnFigures, PlacementOperations
from armillary.clock import Clock, within
from armillary.cluster.membership import Membership, is_alive
from armillary.cluster.peers.calls import Answer, PeerGone, Peers
from armillary.cluster.status import StatusReader
from armillary.cluster.verification import MARK, Verification
from armillary.errors import Failure, Kind, bad_request
from armillary.storage.log.replicated_log import LogUnavailable, ReplicatedLog
from armillary.storage.replication.group_commit import not_leader

T = TypeVar("T")
PRIORITIES: Final = "failover-priorities"  # the setting of the catalog: a list of regions

HAND_OVER: Final = "hand-over"
_REGION: Final = "fail-over-region"
_DRAIN: Final = "drain"


class Led(Protocol):
    """`Leadership` of the log, or what leads several."""

    @property
    def leads(self) -> bool: ...
    @property
    def is_drained(self) -> bool: ...
    def hand_over(self, successor: str = "") -> None: ...
    def drain(self, is_drained: bool) -> None: ...


class Served(Protocol):
    @property
    def account(self) -> Account | None:
        """None: between two roles."""


class Operations:
    """Implements `ClusterOperations`."""

    def __init__(
        self,
        log: ReplicatedLog,
        peers: Peers,
        membership: Membership,
        leadership: Led,
        roles: Served,
        reader: StatusReader,
        verification: Verification,
        clock: Clock,
    ) -> None:
        self.placement: PlacementOperations | None = None
        self._log = log
        self._peers = peers
        self._membership = membership
        self._leadership = leadership
        self._roles = roles
        self._reader = reader
        self._verification = verification
        self._clock = clock
        peers.handlers |= {
            HAND_OVER: self._hand_over_on_call,
            _REGION: self._fail_over_region_on_call,
            _DRAIN: self._drain_on_call,
            **reader.calls,
            **verification.calls,
        }

    @property
    def node(self) -> str:
        return self._membership.name

    async def status(self) -> ClusterStatus:
        return await self._reader.status()

    async def own_figures(self) -> OwnFigures:
        return await self._reader.own_figures()

    # Comparing nodes.

    async def begin_verification(self) -> int:
        async def mark() -> int:
            return await self._at_leader(MARK, {}, self._verification.mark, answer="mark")

        return await self._repeated("The verification", mark)

    async def digests(self, mark: int) -> Sequence[NodeDigest]:
        return await self._verification.digests(mark)

    # Handing over.

    async def fail_over(self, successor: str) -> str:
        membership = self._membership
        former: tuple[str, int] | None = None  # the node that is to hand over, and its epoch

        async def attempt() -> str:
            nonlocal former
            if former is None and membership.leader is not None:
                former = membership.leader.name, membership.epoch
            return await self._at_leader(HAND_OVER, {"successor": successor}, lambda: self.hand_over(successor))

        def found() -> str | None:
            """A second hand-over would move on from the node that the first one has chosen."""
            leader = membership.leader
            if leader is None or former is None or membership.epoch <= former[1]:
                return None
            is_chosen = leader.name == successor if successor else leader.name != former[0]
            return leader.name if is_chosen else None

        leader = await self._repeated(f"The failover to {successor or 'another node'}", attempt, found)
        audit.record("cluster.handed_over", node=leader)
        return leader

    async def hand_over(self, successor: str = "") -> str:
        """Let another node lead; returns when one does. Refused on a node that does not lead, and if there is no other
        node that may."""
        epoch = self._membership.epoch
        await self._give_up(successor)
        return await self._next_leader(epoch)

    async def retire(self) -> None:
        """This node stops: nodes that hand over meanwhile do not choose it. Raises a Failure if it leads and no other
        node takes over."""
        self._membership.drain(True)
        if not self._leadership.leads:
            self._leadership.drain(True)
            await self._announce()
            return
        epoch = self._membership.epoch
        if await self._give_up(""):
            await self._next_leader(epoch)
        else:  # no other node answers: they may stop, too
            await self._until(lambda: not self._leadership.leads)

    async def _give_up(self, successor: str) -> str:
        """Begin to hand over. Returns the node that is to lead; empty: any node may."""
        await self._announce()  # nodes that stop at the same time say so
        name = self._membership.name
        others = [each for each in self.candidates() if each != name]
        if successor == name:
            raise bad_request(f"The node '{successor}' leads already.")
        if successor and successor not in others:
            named = ", ".join(others) or "none"
            raise bad_request(f"There is no live node '{successor}' that could take over; there are: {named}.")
        if not others:
            raise bad_request("There is no other live node to hand over to.")
        chosen = successor or await self.preferred(others)
        self._leadership.hand_over(chosen)
        return chosen

    async def fail_over_region(self, region: str) -> str:
        async def attempt() -> str:
            return await self._at_leader(_REGION, {"region": region}, lambda: self._fail_over_region(region))

        leader = await self._repeated(f"The failover to the region '{region}'", attempt)
        audit.record("cluster.handed_over", node=leader, region=region)
        return leader

    async def _fail_over_region(self, region: str) -> str:
        """At the leader. The order is kept before the hand-over: if that fails, nodes of the region take over next."""
        membership = self._membership
        if not self._leadership.leads or self._roles.account is None:
            raise not_leader()
        await self._announce()  # nodes that have come lately
        there = self.candidates(region)
        if not there:
            present = ", ".join(membership.regions) or "none"
            raise bad_request(f"The region '{region}' has no live node that could lead. Regions with nodes: {present}.")
        known = [*membership.priorities, *membership.regions]
        order = list(dict.fromkeys([region, *known]))
        await self._roles.account.catalog.keep_setting(PRIORITIES, orjson.dumps(order))
        membership.priorities = order
        if membership.region == region:
            return membership.name
        return await self.hand_over(await self._reader.most_applied(there) or there[0])

    def candidates(self, region: str | None = None) -> list[str]:
        """Nodes that may lead."""
        members = self._membership.members
        return [
            each.name
            for each in members
            if each.is_alive and region in (None, each.region) and not self._membership.is_drained(each.name)
        ]

    async def preferred(self, others: Sequence[str]) -> str:
        """The node to hand over to: of those with room on their disks, of the first region that has one, what has
        applied most. Empty if none of them answers: then any node may take over."""
        others = await self._reader.with_room(others) or others
        regions = {each.name: each.region for each in self._membership.members}
        order = [*self._membership.priorities, *self._membership.regions]
        first = min((order.index(regions[each]) for each in others), default=0)
        return await self._reader.most_applied([each for each in others if regions[each] == order[first]])

    async def _next_leader(self, epoch: int) -> str:
        """The leader of a later epoch, as soon as there is one."""
        membership = self._membership
        await self._until(lambda: membership.epoch > epoch and membership.leader is not None)
        assert membership.leader is not None
        return membership.leader.name

    async def _until(self, is_done: Callable[[], bool]) -> None:
        until_s = self._clock.monotonic_s() + limits.HAND_OVER_SECONDS_MAX
        while not is_done():
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise Failure(Kind.UNAVAILABLE, "No other node has taken over yet.", retry_after_ms=1_000)
            await self._membership.changed(self._membership.version, left_s)

    async def _at_leader(
        self, call: str, head: dict[str, Any], here: Callable[[], Awaitable[T]], answer: str = "leader"
    ) -> T:
        """What the leader does: `here`, or by a call whose answer has it under this name."""
        if self._leadership.leads:
            return await here()
        leader = self._membership.leader
        if leader is None:
            raise Failure(Kind.UNAVAILABLE, "No node of the cluster leads at the moment. Try again.")
        found, _ = await self._call(leader.name, call, head)
        outcome: T = found[answer]
        return outcome

    # Draining and removing.

    async def drain(self, node: str) -> None:
        await self._repeated(f"Draining '{node}'", lambda: self._drain_at(node, True))
        audit.record("cluster.drained", node=node)

    async def undrain(self, node: str) -> None:
        await self._repeated(f"Undraining '{node}'", lambda: self._drain_at(node, False))
        audit.record("cluster.undrained", node=node)

    async def _drain_at(self, node: str, is_drained: bool) -> None:
        if node == self._membership.name:
            await self._drain(is_drained)
            return
        if self._membership.member(node) is None:
            raise _no_node(node)
        await self._call(node, _DRAIN, {"is_drained": is_drained})
        await self._announce()  # reads the others too, so that the next request sees it

    async def _drain(self, is_drained: bool) -> None:
        """On this node."""
        membership, leadership = self._membership, self._leadership
        await self._announce()  # another node may be drained at the same time
        if is_drained and not [each for each in self.candidates() if each != membership.name]:
            raise bad_request(
                f"'{membership.name}' is the only live node that may lead: without it there would be no leader. Start "
                "another node, or undrain one."
            )
        membership.drain(is_drained, is_kept=True)
        if is_drained and leadership.leads:
            try:
                await self.hand_over()
            except Failure:
                membership.drain(False)
                raise
        leadership.drain(is_drained)
        await self._announce()

    async def remove(self, node: str) -> None:
        is_begun = False

        async def attempt() -> None:
            nonlocal is_begun
            try:
                nodes = {each.node: each for each in await self._log.nodes()}
                replicas = {each.node for each in await self._log.replicas()}
                leader = await self._log.leader()
                if node not in nodes and node not in replicas:
                    if is_begun:  # by the attempt before, whose outcome was not known
                        return
                    raise _no_node(node)
                if node in nodes and is_alive(nodes[node]):
                    raise Failure(Kind.CONFLICT, f"The node '{node}' is alive. Stop it before it is removed.")
                if leader.node == node:
                    raise Failure(
                        Kind.CONFLICT, f"The node '{node}' is the last that has led. Remove it when another node leads."
                    )
                is_begun = True
                await self._log.remove(node)
                await self._log.forget(node)
            except LogUnavailable as error:
                raise Failure(Kind.UNAVAILABLE, f"The replicated log does not answer: {error}.") from None

        await self._repeated(f"Removing '{node}'", attempt)
        audit.record("cluster.node_removed", node=node)
        await self._announce()

    async def _announce(self) -> None:
        try:
            await within(self._clock, limits.LEASE_SECONDS, self._membership.exchange())
        except (LogUnavailable, TimeoutError):  # announced with the next exchange
            pass

    # Other nodes.

    async def _repeated(
        self, what: str, attempt: Callable[[], Awaitable[T]], found: Callable[[], T | None] = lambda: None
    ) -> T:
        """Repeat what may be done twice until it is answered, for a limited time. `found`: the outcome, if an attempt
        was carried out whose answer was lost."""
        until_s = self._clock.monotonic_s() + limits.OPERATION_SECONDS_MAX
        is_passing = False
        while True:
            try:
                return await attempt()
            except Failure as failure:
                was_passing, is_passing = is_passing, failure.kind in (Kind.UNAVAILABLE, Kind.NOT_LEADER)
                if not is_passing and not was_passing:
                    raise
                leading = await self._told_leader()
                outcome = found()
                if outcome is not None:
                    return outcome
                if not is_passing:
                    raise
                reason = failure.message
            if self._clock.monotonic_s() >= until_s:
                raise Failure(
                    Kind.UNAVAILABLE,
                    f"{what} was not answered within {limits.OPERATION_SECONDS_MAX:g} s, and may still be carried out. "
                    f"{reason} {leading} Look with `armillary cluster status` at a node that answers, and repeat the "
                    "command if it was not carried out.",
                )
            await self._clock.sleep(limits.OPERATION_RETRY_SECONDS)

    async def _told_leader(self) -> str:
        """Which node leads, by the log, as a sentence; this node knows it then, too."""
        try:
            state = await within(self._clock, limits.LEASE_SECONDS, self._log.leader())
        except (LogUnavailable, TimeoutError):
            return "The replicated log does not answer either, so which node leads is not known."
        self._membership.see_leader(state)
        return f"The log names {state.node or 'no node'} as the leader, in epoch {state.epoch}."

    async def _call(self, node: str, name: str, head: dict[str, Any]) -> Answer:
        try:
            patience_s = limits.HAND_OVER_SECONDS_MAX + limits.LEASE_SECONDS  # a node may hand over before it answers
            return await self._peers.call(node, name, head, limit_s=patience_s)
        except PeerGone as gone:
            raise Failure(Kind.UNAVAILABLE, str(gone)) from None

    async def _hand_over_on_call(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        return {"leader": await self.hand_over(str(head["successor"]))}, b""

    async def _fail_over_region_on_call(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        return {"leader": await self._fail_over_region(str(head["region"]))}, b""

    async def _drain_on_call(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        await self._drain(bool(head["is_drained"]))
        return {}, b""


def _no_node(node: str) -> Failure:
    return Failure(Kind.NOT_FOUND, f"The cluster has no node '{node}'. `armillary cluster status` lists its nodes.")
