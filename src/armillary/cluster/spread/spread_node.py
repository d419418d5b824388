"""A node of a cluster with several logs: each log is led by one of the nodes, which holds the partitions whose stores
are in it, and every node answers for all of them. The node that leads log 0 has the catalog. What `armillary serve
--processes` has as processes are nodes here, and a place is a log (`processes/`).

The account is opened when the catalog is in reach, and anew when this node gets or loses it (`node_run.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson

from armillary import limits
from armillary.account.registry import AccountSettings
from armillary.clock import Clock, MovableClock, within
from armillary.cluster import forwarding
from armillary.cluster.connection_fronts import ConnectionFront, Make
from armillary.cluster.forwarding import Forwarder
from armillary.cluster.fronts import HttpFront
from armillary.cluster.logs.log_replica import LogReplica, LogSettings
from armillary.cluster.logs.node_logs import NodeLogs
from armillary.cluster.logs.replica_directories import ReplicaDirectories
from armillary.cluster.membership import Membership
from armillary.cluster.new_replicas import peer_addresses
from armillary.cluster.node import NodeDoors, happened_or_ended
from armillary.cluster.operations import PRIORITIES
from armillary.cluster.peers.calls import Answer, Peers
from armillary.cluster.spread.log_roles import LogRoles, SpreadClock, patience_s, preferred_leader
from armillary.cluster.spread.node_connections import DOOR
from armillary.cluster.spread.node_links import NodeLinks
from armillary.cluster.spread.node_run import NodeRun
from armillary.cluster.spread.spread_front import SpreadFront
from armillary.cluster.spread.spread_operations import SpreadOperations
from armillary.cluster.spread.spread_placement import SpreadPlacement
from armillary.errors import Failure, Kind, Reason, bad_request
from armillary.processes.divided_account import DividedAccount
from armillary.processes.server_controls import ServerControls
from armillary.storage.disk_errors import closed
from armillary.storage.log.replicated_log import LogUnavailable, NodeState, ReplicatedLogs
from armillary.storage.replication.group_commit import not_leader
from armillary.storage.replication.lease import BootTime, boot_time_s
from armillary.storage.replication.log_upkeep import LogLimits

_log = logging.getLogger("armillary.cluster")

MakeDoors = Callable[[DividedAccount], Awaitable[NodeDoors]]
_PASSING = (Kind.NOT_LEADER, Kind.UNAVAILABLE, Kind.STORAGE_FULL)  # what keeps this node from leading now


class SpreadNode:
    def __init__(
        self,
        name: str,
        region: str,
        logs: ReplicatedLogs,
        directories: ReplicaDirectories,
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
        boot_time: BootTime = boot_time_s,
    ) -> None:
        """See `Node`. It is opened by `open`."""
        self.name = name
        self._peers = peers
        self._clock = machine
        self._settings = settings
        self._make_doors = make_doors
        self._change = asyncio.Event()
        self._led: dict[int, int] = {}  # logs that this node leads, and their epochs
        self._is_cut_off = False  # from the other nodes, for a while
        self._giving_up: set[int] = set()  # logs that are about to be handed over
        self._controls: ServerControls | None = None  # what the control API had set when an account was closed
        self._former = ""  # the node that had the catalog before this one
        self._run: NodeRun | None = None
        self._links: NodeLinks | None = None
        self._doors: NodeDoors | None = None
        self.has_doors = asyncio.Event()  # set with the first account that has doors
        self._tasks: list[asyncio.Task[None]] = []
        log_settings = LogSettings(name, region, self._roles_of, self._patience, kept, boot_time)
        self.logs = NodeLogs(logs, directories, peers, machine, log_settings, is_drained=True)
        self._account_clock = clock or SpreadClock(machine, lambda: self.logs.replicas)
        self._silence_s = silence_s
        self._region = region
        self._control_prefix = control_prefix
        self._makes = mongo_connection, gremlin_connection
        self.membership: Membership
        self.forwarder: Forwarder
        self.operations: SpreadOperations
        self.placement: SpreadPlacement

    async def open(self, addresses: dict[str, str]) -> None:
        """Announce where other nodes call this one, and follow all logs. Raises a Failure if a replica cannot."""
        log = await self.logs.logs.log(0)
        self.membership = membership = Membership(
            self.name, self._region, log, self, self._clock, self._on_nodes, self._peers.is_gone
        )
        membership.silence_s = self._silence_s
        membership.addresses = addresses
        membership.on_known = self._use_drained
        membership.on_keep_events = self._keep_events
        self.forwarder = Forwarder(self.name, self._peers, membership, self._clock)
        prefix, may_answer = self._control_prefix, self._may_answer
        self.sql = SpreadFront("sql", self.forwarder, membership, self._clock, may_answer, control_prefix=prefix)
        self.table = SpreadFront("table", self.forwarder, membership, self._clock, may_answer)
        self.management = HttpFront("management", self.forwarder, membership, self._clock)
        self.mongo = ConnectionFront("mongo", self._peers, membership, self._makes[0])
        self.gremlin = ConnectionFront("gremlin", self._peers, membership, self._makes[1])
        self._peers.handlers |= {forwarding.CALL: self._answer_forwarded}
        self._peers.on_relay = self._accept_relayed
        try:
            await membership.exchange()
        except LogUnavailable as error:  # it is tried again every second
            _log.warning("this node cannot be announced yet: %s", error)
        await self.logs.start()
        membership.freshness = self.logs.replicas[0].leadership
        self.operations = SpreadOperations(self.logs, self._peers, membership, self, self.forwarder, self._clock)
        given = self.name, self.logs, self._peers, membership, lambda: self.account, self.hand_over, self._clock
        self.placement = SpreadPlacement(*given)
        self.operations.placement = self.placement.operations
        self.logs.want(await self.placement.first_carried())

    async def start(self, addresses: dict[str, str]) -> None:
        """Announce the doors, and take part."""
        self.membership.addresses |= addresses
        self._tasks = [
            asyncio.create_task(self.membership.run()),
            asyncio.create_task(self._watch_leaders()),
            asyncio.create_task(self._keep_account()),
            asyncio.create_task(self._keep_even()),
            asyncio.create_task(self._keep_reachable()),
            asyncio.create_task(self.logs.until_failed()),
        ]

    async def until_failed_or(self, event: asyncio.Event) -> None:
        """Until something has happened. Raises the reason if this node cannot go on."""
        await happened_or_ended(event, self._tasks)

    async def retire(self) -> None:
        """Hand over all logs that this node leads, before it stops."""
        self.membership.drain(True)
        try:
            await self.membership.exchange()
        except LogUnavailable:
            pass
        self.logs.is_drained = True
        await asyncio.gather(*(self._given_up(log) for log in sorted(self._led.keys() - {0})))
        await self.logs.retire()

    async def stop(self) -> None:
        """End everything, the replicas too. The ports are closed before."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._end_run(closed())
        await self.logs.stop()
        await self.logs.close()
        await self.membership.depart()

    @property
    def account(self) -> DividedAccount | None:
        """None: it is not open."""
        return self._run.account if self._run is not None and self.has_doors.is_set() else None

    @property
    def held(self) -> set[int]:
        """The logs whose partitions this node serves."""
        return self._run.held if self._run is not None else set()

    @property
    def may_answer_strongly(self) -> bool:
        """Whether this node has the catalog for certain."""
        replica = self.logs.replicas.get(0)
        return self.membership.leads and replica is not None and replica.may_answer_strongly

    def _may_answer(self) -> bool:
        return self._run is not None and self._run.account is not None and self._run.here.knows_catalog

    # Roles in logs.

    def _roles_of(self, replica: LogReplica) -> LogRoles:
        return LogRoles(replica.number, self)

    def has_taken(self, log: int) -> None:
        self._led[log] = self.logs.epoch_of(log)
        self._tell()

    def has_ceased(self, log: int) -> None:
        if self._led.pop(log, None) is not None:
            if log == 0:
                self.membership.lead(False)
            self._tell()

    async def has_left(self, log: int) -> None:
        run = self._run
        while run is not None and run is self._run and log in run.held:
            await self._changed(limits.LOG_POLL_SECONDS)

    def _patience(self, log: int) -> float:
        cut_off_s = limits.CUT_OFF_PATIENCE_SECONDS if self._is_cut_off else 0.0
        if log == 0:
            return cut_off_s + self.membership.rank() * limits.REGION_PATIENCE_SECONDS
        return cut_off_s + patience_s(log, self.name, self._live())

    def _live(self) -> list[str]:
        """Nodes that may lead."""
        membership = self.membership
        return [each.name for each in membership.members if each.is_alive and not membership.is_drained(each.name)]

    async def hand_over(self, log: int, successor: str = "") -> str:
        """Let another node lead a log that this one leads. Returns the node that leads it then."""
        replica = self.logs.replicas.get(log)
        if replica is None or log not in self._led:
            raise not_leader()
        self._giving_up.add(log)
        self._tell()
        try:
            until_s = self._clock.monotonic_s() + limits.HAND_OVER_SECONDS_MAX
            while log and log in self.held and self._clock.monotonic_s() < until_s:
                await self._changed(limits.LOG_POLL_SECONDS)
            return await replica.hand_over(successor)
        finally:
            self._giving_up.discard(log)
            self._tell()

    async def _given_up(self, log: int) -> None:
        try:
            await self.hand_over(log)
        except Failure as failure:
            _log.warning("log %d was not handed over: %s", log, failure.message)

    async def _keep_reachable(self) -> None:
        """A node that is on the smaller side of the cluster, or does not reach the catalog, leads no log for long: its
        partitions could not be used at the others."""
        since_s = self._clock.monotonic_s()
        while True:
            await self._clock.sleep(limits.CATALOG_RENEW_SECONDS)
            run, others = self._run, self._others()
            places = [run.places.nodes.get(each) for each in others] if run is not None else []
            reached = sum(place is not None and place.connected is not None for place in places)
            # Of two nodes that do not reach each other, the one with the catalog goes on.
            is_reaching = 2 * reached >= len(others) - 1 and (self._may_answer() or 0 in self._led)
            if is_reaching:
                since_s = self._clock.monotonic_s()
            self._is_cut_off = self._clock.monotonic_s() - since_s > limits.CUT_OFF_SECONDS
            if self._is_cut_off and self._led and not self.logs.is_drained:
                _log.warning("this node does not reach the others: it hands its logs over")
                await asyncio.gather(*(self._given_up(log) for log in sorted(self._led)))

    async def _keep_even(self) -> None:
        """Let each log be led by the node that its number falls to, one after the other."""
        while True:
            await self._clock.sleep(limits.LEADERS_EVEN_SECONDS)
            if not self._may_answer() or self.logs.is_drained or self._is_cut_off:
                continue
            for log in filter(self.placement.may_even_out, sorted(self._led.keys() - {0})):
                preferred = preferred_leader(log, self._live())
                if preferred == self.name or not await self._can_lead(log, preferred):
                    continue
                try:
                    await self.hand_over(log, preferred)
                except Failure as failure:
                    _log.info("log %d is not handed over to %s yet: %s", log, preferred, failure.message)
                break

    async def _can_lead(self, log: int, node: str) -> bool:
        """Whether a node has applied the log, and has its account open."""
        run, replica = self._run, self.logs.replicas.get(log)
        place = run.places.nodes.get(node) if run is not None else None
        if place is None or place.connected is None or not place.serves or replica is None:
            return False
        try:
            found = [each for each in await replica.candidates() if each.node == node]
        except LogUnavailable:
            return False
        applied = replica.engine.replica.position.place.seq
        return bool(found) and applied - found[0].applied <= limits.EVEN_LAG_ROWS_MAX

    # The account.

    async def _keep_account(self) -> None:
        while True:
            change = self._change
            try:
                await self._step()
            except Failure as failure:
                if failure.kind not in _PASSING:
                    raise
                _log.warning("the account is not open as it should be: %s", failure.message)
                await self._clock.sleep(limits.LOG_POLL_SECONDS)
                continue
            if change is self._change:
                await self._changed(limits.LEASE_RENEW_SECONDS)

    async def _step(self) -> None:
        life = self._led.get(0, 0)
        if self._run is not None and (self._run.life != life or self._run.is_broken):
            await self._end_run(_role_changes())
        run = self._run or self._begin_run(life)
        if run.account is None:
            if not life and run.places.first.connected is None:
                return
            await self._open(run)
        if run.has_new_first:
            await run.join()
        if run.is_broken or run.life != self._led.get(0, 0):
            return
        wanted = self._led.keys() - self._giving_up
        for log in run.held - wanted - {0}:
            await run.leave(log)
            self._tell()
        for log in sorted(wanted - run.held):
            await self._enter(run, log)

    async def _enter(self, run: NodeRun, log: int) -> None:
        try:
            await run.enter(log)
        except Failure as failure:
            if failure.kind not in _PASSING:
                raise
            _log.warning("the partitions in log %d cannot be opened: %s", log, failure.message)
            await self._clock.sleep(limits.FORWARD_RETRY_SECONDS)
        else:
            _log.warning("this node leads log %d", log)

    def _begin_run(self, life: int) -> NodeRun:
        names = [each.node for each in self.membership.nodes]
        watch, replicas = self.logs.watch, self.logs.replicas
        self._run = run = NodeRun(
            self.name, names, self.logs.logs.count, watch, replicas, self._clock, life, self._tell
        )
        if life:
            awaited = [each for each in self._others() if each != self._former] if life > 1 else []
            run.await_nodes(awaited)
        self._links = NodeLinks(self.name, self._peers, run.here, run.places, self._others, self._clock)
        return run

    async def _open(self, run: NodeRun) -> None:
        """Raises a Failure if it cannot be opened now."""
        opening = asyncio.create_task(self._opened(run))
        try:
            while not opening.done():
                change = asyncio.create_task(self._change.wait())
                await asyncio.wait([opening, change], return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
                if run.is_broken or run.life != self._led.get(0, 0):
                    opening.cancel()
                    await asyncio.gather(opening, return_exceptions=True)
            if opening.cancelled():
                raise not_leader()
            opening.result()
        except Failure:
            await self._end_run(_role_changes())
            if run.life and self._led.get(0) == run.life:
                self.logs.replicas[0].leadership.hand_over("")
            raise
        finally:
            opening.cancel()

    async def _opened(self, run: NodeRun) -> None:
        settings = self._settings
        if run.life:
            account = await run.open_first(self._account_clock, settings, self._controls)
        else:  # histories of load and captures are kept by the node that has the catalog
            further = replace(settings, history_path=None, captures_path=None)
            account = await run.open_further(self._account_clock, further)
        account.operations = self.operations
        leads = run.life != 0
        if leads:
            await self._use_priorities(account)
        await self.placement.begin(account, has_catalog=leads)
        self._doors = doors = await self._make_doors(account)
        run.here.services = getattr(doors, "control", None)
        self.sql.use(doors.sql_port, is_leaders=True, at_once=doors.sql.answer_at_once)
        self.table.use(doors.table, is_leaders=True)
        self.management.use(doors.management, is_leaders=leads)
        self.mongo.use(doors.mongo, is_leaders=leads)
        self.gremlin.use(doors.gremlin, is_leaders=leads)
        self.membership.lead(leads)
        run.here.become_ready()
        self.has_doors.set()
        _log.warning("this node %s", "has the catalog" if leads else "follows the catalog")

    async def _end_run(self, reason: Failure) -> None:
        run, self._run = self._run, None
        self.membership.lead(False)
        if run is not None:
            await self.placement.end()
        for front in (self.sql, self.table, self.management):
            front.close()
        await asyncio.gather(self.mongo.close(), self.gremlin.close())
        links, self._links = self._links, None
        if links is not None:
            await links.close()
        doors, self._doors = self._doors, None
        if doors is not None:
            try:
                await doors.close()
            except Failure as failure:
                _log.info("the doors were closed incompletely: %s", failure.message)
        if run is not None:
            if run.account is not None and self.has_doors.is_set():
                self._controls = run.account.controls.present()
            await run.close(reason)
        self._tell()

    async def _use_priorities(self, account: DividedAccount) -> None:
        def adopt(kept: bytes | None) -> None:
            self.membership.priorities = orjson.loads(kept) if kept is not None else []

        adopt(await account.catalog.kept_setting(PRIORITIES))
        account.catalog.on_setting[PRIORITIES] = adopt

    def _tell(self) -> None:
        change, self._change = self._change, asyncio.Event()
        change.set()

    async def _changed(self, limit_s: float) -> None:
        with suppress(TimeoutError):
            await within(self._clock, limit_s, self._change.wait())

    # Other nodes.

    def _others(self) -> list[str]:
        return [each.name for each in self.membership.members if each.name != self.name and each.is_alive]

    def _on_nodes(self, nodes: Sequence[NodeState]) -> None:
        self._peers.use(peer_addresses(nodes))
        if self._run is not None:
            self._run.places.know(each.node for each in nodes)

    def _use_drained(self, is_drained: bool) -> None:
        """The log has said whether an operator has drained this node."""
        self.logs.drain(is_drained)

    async def _keep_events(self, rid: bytes) -> None:
        raise bad_request("Change stream events are kept by the node that has the catalog.")

    async def _watch_leaders(self) -> None:
        version = 0
        while True:
            leader = self.logs.watch.leader(0)
            if leader.node not in ("", self.name):
                self._former = leader.node
            self.membership.see(leader.node, leader.epoch)
            await self.logs.watch.changed(version or self.logs.watch.version, limits.LEASE_RENEW_SECONDS)
            version = self.logs.watch.version

    async def _answer_forwarded(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        front = {"sql": self.sql, "table": self.table, "management": self.management}.get(head["door"])
        if front is None:
            raise bad_request("There is no such door.")
        if not self.membership.leads:
            raise not_leader()
        return await front.answer_forwarded(head, body)

    def _accept_relayed(self, caller: str, head: dict[str, Any]) -> asyncio.Protocol:
        if head["door"] == DOOR:
            if self._links is None:
                raise Failure(Kind.UNAVAILABLE, "This node of the cluster has not found its role yet.")
            return self._links.accept(caller, head)
        front = {"mongo": self.mongo, "gremlin": self.gremlin}.get(head["door"])
        if front is None:
            raise bad_request("There is no such door.")
        return front.accept_relayed(head)


def _role_changes() -> Failure:
    return Failure(
        Kind.UNAVAILABLE,
        "The role of this node of the cluster changes at this moment. Try again.",
        retry_after_ms=100,
        details={"reason": Reason.ROLE_CHANGED},
    )
