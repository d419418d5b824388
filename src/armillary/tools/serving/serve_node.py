"""`armillary serve --cluster`: the parts of a cluster's node, opened in order and closed in the opposite order: the
log, the replica, the connection to other nodes, the ports; then the node takes its role and opens the account and its
doors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack
from typing import Any

from armillary.account.account import Account
from armillary.clock import Clock, MovableClock
from armillary.cluster.bootstrap_source import BootstrapSource
from armillary.cluster.new_replicas import ReplicaOpening
from armillary.cluster.node import Node
from armillary.cluster.peers.calls import Peers
from armillary.doors.control.door import PREFIX as CONTROL_PREFIX
from armillary.doors.gremlin.connection import Connection as GremlinConnection
from armillary.doors.mongo.wire.connection import Connection as MongoConnection
from armillary.errors import Failure, bad_request
from armillary.net.connection_limits import Crowd
from armillary.net.listen import Listener
from armillary.storage.log.postgres_log import PostgresLog
from armillary.storage.replication.log_upkeep import LogLimits
from armillary.storage.replication.replicated_engine import ReplicatedEngine
from armillary.storage.replication.rows_waiting import CUT_OFF
from armillary.tools.serving import supervision
from armillary.tools.serving.doors import Doors, Kept, account_settings, host_names, make_doors
from armillary.tools.serving.nodes.node_ports import door_addresses, listen_to_peers, open_node_ports
from armillary.tools.serving.nodes.node_start import claim, control_key_of_cluster, opened_log
from armillary.tools.serving.ports import announce
from armillary.tools.serving.runtime import Runtime
from armillary.tools.serving.start_message import greet
from armillary.tools.settings import Settings

log = logging.getLogger("armillary")


async def serve_node(
    settings: Settings,
    machine: Clock,
    clock: Clock,
    crowd: Crowd,
    hidden: set[str | None],
    stopping: asyncio.Event,
    serving: Callable[[], AbstractContextManager[None]],
    runtime: Runtime,
    shows_strings: bool | None = None,
) -> None:
    """Until told to stop. Raises a Failure if this node cannot go on. A replica that was left too far behind is built
    anew, and the node begins again. `serving`: what is entered while the node serves. `shows_strings`: see
    `start_message.greet`."""
    is_announced = False
    while True:
        async with AsyncExitStack() as opened:
            opening = asyncio.ensure_future(_opened(opened, settings, machine, clock, crowd, hidden, runtime))
            try:
                if not await _before(stopping, opening):
                    return
                node, listeners, primary_key = opening.result()
                if not is_announced:
                    is_announced = True
                    announce(settings, listeners)
                    greet(settings, listeners, primary_key, shows_strings)
                    supervision.tell(supervision.READY)
                runtime.start()
                opened.push_async_callback(runtime.stop)
                with serving():
                    await node.until_failed_or(stopping)
                supervision.tell(supervision.STOPPING)
                log.info("stopping")
                await node.retire()
                return
            except Failure as failure:
                if not failure.details.get(CUT_OFF):
                    raise
                log.warning("%s", failure.message)
            finally:
                if not opening.done():
                    opening.cancel()
                    await asyncio.gather(opening, return_exceptions=True)


async def _before(event: asyncio.Event, work: asyncio.Future[Any]) -> bool:
    """Whether work was done before an event came."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waiting, work], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return work.done()


async def _opened(opened: AsyncExitStack, settings: Settings, *given: Any) -> tuple[Any, dict[str, Listener], str]:
    if settings.cluster_logs == 1:
        return await _open_node(opened, settings, *given)
    from armillary.tools.serving.nodes.spread_node import open_spread_node  # what a cluster with one log does not need

    return await open_spread_node(opened, settings, *given)


async def _open_node(
    opened: AsyncExitStack,
    settings: Settings,
    machine: Clock,
    clock: Clock,
    crowd: Crowd,
    hidden: set[str | None],
    runtime: Runtime,
) -> tuple[Node, dict[str, Listener], str]:
    """Returns when the node has a role and its doors answer; also the account's primary key then."""
    directory, name = claim(opened, settings, machine)
    replicated_log = await _open_log(settings, machine)
    opened.push_async_callback(replicated_log.close)
    peers = Peers(name, replicated_log.cluster_key, machine)
    opened.push_async_callback(peers.close)
    peer_addresses = await listen_to_peers(peers, settings, machine)
    opening = ReplicaOpening(name, settings.region, directory, replicated_log, peers, machine)
    engine = ReplicatedEngine(
        await opening.open(settings.reserve_bytes() or directory.default_reserve_bytes()), machine
    )
    opened.push_async_callback(engine.close)
    source = BootstrapSource(engine, machine)
    opened.push_async_callback(source.close)
    peers.handlers |= source.calls
    control_key = settings.control_key or control_key_of_cluster(replicated_log.cluster_key)
    kept = Kept.made(settings, machine, control_key, runtime)
    hosts = host_names(settings)
    listeners: dict[str, Listener] = {}
    primary_key = settings.key

    async def doors_of(account: Account) -> Doors:
        nonlocal primary_key
        doors = await make_doors(settings, account, machine, kept, hidden)
        await doors.load()
        doors.use(settings, listeners)
        primary_key = doors.credentials.owners[0]
        return doors

    node = Node(
        name,
        settings.region,
        replicated_log,
        engine,
        peers,
        machine=machine,
        clock=clock if isinstance(clock, MovableClock) else None,
        settings=account_settings(settings),
        make_doors=doors_of,
        mongo_connection=lambda roster, guest, door: MongoConnection(door, roster, guest),
        gremlin_connection=lambda roster, guest, door: GremlinConnection(door, roster, hosts, guest),
        control_prefix=CONTROL_PREFIX,
        kept=LogLimits(settings.cluster_log_bytes, settings.cluster_log_hours * 3600.0),
        silence_s=settings.cluster_silence_s,
    )
    opened.push_async_callback(node.stop)
    listeners |= await open_node_ports(opened, settings, machine, crowd, node, kept)
    await node.start(door_addresses(settings, listeners) | peer_addresses)
    await node.until_failed_or(node.has_doors)
    return node, listeners, primary_key


async def _open_log(settings: Settings, clock: Clock) -> PostgresLog:
    url, allows_single = settings.cluster, settings.allows_single_postgres
    assert url is not None
    opened = await opened_log(clock, lambda: PostgresLog.open(url, allows_single=allows_single))
    try:
        count = await opened_log(clock, opened.count)
        if count > 1:
            raise bad_request(f"The cluster has several logs: start its nodes with --cluster-logs {count}.")
    except BaseException:
        await opened.close()
        raise
    return opened
