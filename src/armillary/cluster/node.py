"""A node of a cluster: its replica, its place among the others, and the account with its doors in the role that it has.
It follows, takes over, leads and hands over by itself (`storage/replication/leadership.py`); here the parts are put
together and exchanged when the role changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, cast

import orjson

from armillary import limits
from armillary.account.account import Account
from armillary.account.following import FollowingAccount
from armillary.account.registry import AccountSettings
from armillary.account.roles import AccountRoles
from armillary.clock import Clock, MovableClock
from armillary.cluster import forwarding
from armillary.cluster.connection_fronts import ConnectionFront, Make
from armillary.cluster.event_keeping import EventKeeping
from armillary.cluster.forwarding import Forwarder
from armillary.cluster.fronts import HttpDoor, HttpFront
from armillary.cluster.full_disks import FullDiskWatch
from armillary.cluster.membership import Membership
from armillary.cluster.new_replicas import peer_addresses
from armillary.cluster.operations import PRIORITIES, Operations
from armillary.cluster.peers.calls import Answer, PeerGone, Peers
from armillary.cluster.peers.row_pushing import PeerRowSource, answer_followers
from armillary.cluster.region_spending import RegionSpending
from armillary.cluster.status import StatusReader
from armillary.cluster.verification import Verification
from armillary.doors.mongo.wire.messages import wants_load_balancing
from armillary.errors import Failure, bad_request
from armillary.net.http import AnswerAtOnce
from armillary.storage.disk_errors import closed
from armillary.storage.log.replicated_log import LogUnavailable, NodeState, ReplicatedLog
from armillary.storage.replication.freshness import ClusterClock
from armillary.storage.replication.leadership import Leadership
from armillary.storage.replication.log_upkeep import LogLimits
from armillary.storage.replication.replicated_engine import ReplicatedEngine

_log = logging.getLogger("armillary.cluster")


class QuickDoor(Protocol):
    @property
    def answer_at_once(self) -> AnswerAtOnce: ...


class NodeDoors(Protocol):
    """The doors of an account, as `tools/serving` makes them."""

    @property
    def sql(self) -> QuickDoor: ...
    @property
    def sql_port(self) -> HttpDoor: ...
    @property
    def table(self) -> HttpDoor: ...
    @property
    def management(self) -> HttpDoor: ...
    @property
    def mongo(self) -> Any: ...
    @property
    def gremlin(self) -> Any: ...
    async def close(self) -> None: ...


MakeDoors = Callable[[Account], Awaitable[NodeDoors]]


class Node:
    def __init__(
        self,
        name: str,
        region: str,
        log: ReplicatedLog,
        engine: ReplicatedEngine,
        peers: Peers,
        *,
        machine: Clock,
        clock: MovableClock | None,
        settings: AccountSettings,
        make_doors: MakeDoors,
        mongo_connection: Make,
        gremlin_connection: Make,
        control_prefix: bytes,
        kept: LogLimits = LogLimits(),  # noqa: B008 - it does not change
        silence_s: float = limits.FOLLOWER_SILENT_SECONDS,
    ) -> None:
        """`machine`: the time of this machine; `clock`: the account's, if a test may move it. `silence_s`: how long
        this node answers without a word of the cluster."""
        self.name = name
        self._log = log
        self._engine = engine
        self._peers = peers
        self._clock = machine
        self._make_doors = make_doors
        self._cluster_clock = ClusterClock(machine, engine.replica)
        self.membership = Membership(name, region, log, engine, machine, self._on_nodes, peers.is_gone)
        self.membership.silence_s = silence_s
        self.forwarder = Forwarder(name, peers, self.membership, machine)
        self.roles = AccountRoles(
            engine,
            clock or self._cluster_clock,
            settings,
            on_opened=self._open_doors,
            on_closing=self._close_doors,
            topology=self.membership,
            on_ceasing=lambda: self.membership.lead(False),
        )
        self.leadership = Leadership(
            name,
            engine,
            log,
            self.roles,
            machine,
            patience=lambda: self.membership.rank() * limits.REGION_PATIENCE_SECONDS + self._disk_watch.patience_s,
            on_state=self.membership.see_leader,
            source=PeerRowSource(peers, self._leader_to_ask),
            kept=kept,
        )
        self.membership.freshness = self.leadership
        self.leadership.is_drained = True  # until the log has said that it is not
        self.membership.on_known = self.leadership.drain
        self.membership.on_keep_events = EventKeeping(peers, self.forwarder, self.roles).ask
        answer_followers(peers, lambda log: self.leadership.commit if log == 0 else None)
        self._spending = RegionSpending(peers, self.membership, lambda: self.roles.account, machine)
        reader = StatusReader(log, engine, peers, self.membership, self.leadership, self.forwarder, machine)
        self.operations = Operations(
            log,
            peers,
            self.membership,
            self.leadership,
            self.roles,
            reader,
            Verification(engine, peers, self.membership),
            machine,
        )
        self._disk_watch = FullDiskWatch(engine.replica, self.leadership, self.operations, reader, machine)
        self.sql = HttpFront("sql", self.forwarder, self.membership, machine, control_prefix=control_prefix)
        self.table = HttpFront("table", self.forwarder, self.membership, machine)
        self.management = HttpFront("management", self.forwarder, self.membership, machine)
        self.mongo = ConnectionFront("mongo", peers, self.membership, mongo_connection, wants_load_balancing)
        self.gremlin = ConnectionFront("gremlin", peers, self.membership, gremlin_connection)
        self._doors: NodeDoors | None = None
        self._has_caught_up = False
        self._opening: asyncio.Task[None] | None = None  # of doors, when something is waited for before
        self.has_doors = asyncio.Event()  # set with the first role that has doors
        self._tasks: list[asyncio.Task[None]] = []
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._telling: set[asyncio.Task[None]] = set()
        peers.handlers |= {
            forwarding.CALL: self._answer_forwarded,
            "leading": self._hear_leader,
        }
        peers.on_relay = self._accept_relayed

    async def start(self, addresses: dict[str, str]) -> None:
        """Announce this node at these addresses, and take a role."""
        self.membership.addresses = addresses
        try:
            await self.membership.exchange()
        except LogUnavailable as error:  # it is tried again every second
            _log.warning("this node cannot be announced yet: %s", error)
        self._tasks = [
            asyncio.create_task(self.membership.run()),
            asyncio.create_task(self.leadership.run()),
            asyncio.create_task(self._spending.run()),
            asyncio.create_task(self._disk_watch.run()),
            asyncio.create_task(self._until_broken()),
        ]

    async def until_failed_or(self, event: asyncio.Event) -> None:
        """Until something has happened. Raises the reason if this node cannot go on."""
        await happened_or_ended(event, self._tasks)

    async def _until_broken(self) -> None:
        await self._broken

    async def retire(self) -> None:
        """Hand over if this node leads, before it stops."""
        try:
            await self.operations.retire()
        except Failure as failure:
            _log.warning("stopping without having handed over: %s", failure.message)

    async def stop(self) -> None:
        """End everything but the engine and the log. The ports are closed before."""
        for task in (*self._tasks, *self._telling):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._telling, return_exceptions=True)
        await self.roles.close(closed())
        await self.membership.depart()

    # Roles.

    async def _open_doors(self, account: Account) -> None:
        if isinstance(account, FollowingAccount):
            self._cluster_clock.follow(self.leadership.freshness)
        account.operations = self.operations
        await self._use_priorities(account)
        if isinstance(account, FollowingAccount) and not (self._has_caught_up and account.secret):
            self._opening = asyncio.create_task(self._open_doors_later(account))
            self._opening.add_done_callback(self._note_opening)
        else:
            await self._enter_role(account)

    async def _open_doors_later(self, account: FollowingAccount) -> None:
        """A node that was started has doors when it has reached what was confirmed then, and an empty replica when the
        first leader's account has come."""
        while not await self._has_reached_confirmed():
            await self._clock.sleep(limits.LOG_POLL_SECONDS)
        await account.has_secret.wait()
        self._has_caught_up = True
        await self._enter_role(account)

    def _note_opening(self, opening: asyncio.Task[None]) -> None:
        if not opening.cancelled() and opening.exception() is not None and not self._broken.done():
            self._broken.set_exception(cast(BaseException, opening.exception()))

    async def _has_reached_confirmed(self) -> bool:
        if await self.leadership.refresh(limits.LEASE_SECONDS):
            return True
        try:  # the leader does not answer: what it has told the log counts
            confirmed = (await self._log.leader()).confirmed
        except LogUnavailable:
            return False
        return self._engine.replica.position.place.seq >= confirmed.seq

    async def _enter_role(self, account: Account) -> None:
        leads = not isinstance(account, FollowingAccount)
        self._has_caught_up = True
        self._doors = doors = await self._make_doors(account)
        self.membership.lead(leads and self.leadership.takes_writes)  # it may have been deposed meanwhile
        self.sql.use(doors.sql_port, is_leaders=leads, at_once=doors.sql.answer_at_once)
        self.table.use(doors.table, is_leaders=leads)
        self.management.use(doors.management, is_leaders=leads)
        self.mongo.use(doors.mongo, is_leaders=leads)
        self.gremlin.use(doors.gremlin, is_leaders=leads)
        self.has_doors.set()
        _log.warning("this node %s", "leads" if leads else "follows")
        if leads:
            for member in self.membership.members:
                if member.name != self.name and member.is_alive:
                    telling = asyncio.create_task(self._tell_leading(member.name))
                    self._telling.add(telling)
                    telling.add_done_callback(self._telling.discard)

    async def _close_doors(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
            self._opening = None
        self.membership.lead(False)
        self._cluster_clock.lead()  # what is opened next may write
        self.sql.close()
        self.table.close()
        self.management.close()
        await asyncio.gather(self.mongo.close(), self.gremlin.close())
        doors, self._doors = self._doors, None
        if doors is not None:
            try:
                await doors.close()
            except Failure as failure:  # transactions of a former leader cannot be undone any more
                _log.info("the doors were closed incompletely: %s", failure.message)

    async def _use_priorities(self, account: Account) -> None:
        def adopt(kept: bytes | None) -> None:
            self.membership.priorities = orjson.loads(kept) if kept is not None else []

        adopt(await account.catalog.kept_setting(PRIORITIES))
        account.catalog.on_setting[PRIORITIES] = adopt

    # Other nodes.

    def _leader_to_ask(self) -> str:
        leader = self.membership.leader
        return leader.name if leader is not None and leader.name != self.name else ""

    def _on_nodes(self, nodes: Sequence[NodeState]) -> None:
        self._peers.use(peer_addresses(nodes))

    async def _tell_leading(self, node: str) -> None:
        """The others would learn it from the log half a second later."""
        try:
            head = {"epoch": self.membership.epoch}
            await self._peers.call(node, "leading", head, limit_s=limits.LEASE_SECONDS)
        except (PeerGone, Failure):
            pass

    async def _hear_leader(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        self.membership.see(caller, int(head["epoch"]))
        return {}, b""

    async def _answer_forwarded(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        front = {"sql": self.sql, "table": self.table, "management": self.management}.get(head["door"])
        if front is None:
            raise bad_request("There is no such door.")
        return await front.answer_forwarded(head, body)

    def _accept_relayed(self, caller: str, head: dict[str, Any]) -> asyncio.Protocol:
        front = {"mongo": self.mongo, "gremlin": self.gremlin}.get(head["door"])
        if front is None:
            raise bad_request("There is no such door.")
        return front.accept_relayed(head)


async def happened_or_ended(event: asyncio.Event, tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Until an event, or until one of the tasks has ended. Raises what that one has raised."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        waiting.cancel()
