"""`armillary serve --cluster --cluster-logs N`: the parts of a node whose cluster has several logs, opened in order and
closed in the opposite order. `serve_node.py` has those of a cluster with one log, and what they have in common.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from functools import partial

from armillary.clock import Clock, MovableClock
from armillary.cluster.logs.replica_directories import NodeDirectories
from armillary.cluster.peers.calls import Peers
from armillary.cluster.spread.spread_node import SpreadNode
from armillary.doors.control.call import no_pages
from armillary.doors.control.door import PREFIX as CONTROL_PREFIX
from armillary.doors.gremlin.connection import Connection as GremlinConnection
from armillary.doors.mongo.wire.connection import Connection as MongoConnection
from armillary.errors import bad_request
from armillary.net.connection_limits import Crowd
from armillary.net.listen import Listener
from armillary.processes.divided_account import DividedAccount
from armillary.storage.log.postgres_logs import PostgresLogs
from armillary.storage.replication.log_upkeep import LogLimits
from armillary.tools.serving.doors import Doors, Kept, account_settings, host_names, make_doors
from armillary.tools.serving.nodes.node_ports import door_addresses, listen_to_peers, open_node_ports
from armillary.tools.serving.nodes.node_start import claim, control_key_of_cluster, opened_log
from armillary.tools.serving.processes.forwarded_requests import pages_of_others
from armillary.tools.serving.runtime import Runtime
from armillary.tools.settings import Settings

log = logging.getLogger("armillary")


async def open_spread_node(
    opened: AsyncExitStack,
    settings: Settings,
    machine: Clock,
    clock: Clock,
    crowd: Crowd,
    hidden: set[str | None],
    runtime: Runtime,
) -> tuple[SpreadNode, dict[str, Listener], str]:
    """Returns when the doors answer; also the account's primary key then."""
    directory, name = claim(opened, settings, machine)
    logs = await _open_logs(settings, machine)
    opened.push_async_callback(logs.close)
    peers = Peers(name, logs.cluster_key, machine)
    opened.push_async_callback(peers.close)
    peer_addresses = await listen_to_peers(peers, settings, machine)
    directories = NodeDirectories(
        settings.directory,
        directory,
        name,
        settings.region,
        peers,
        machine,
        reserve_bytes=settings.reserve_bytes() or directory.default_reserve_bytes(),
        permissions=settings.data_permissions,
    )
    control_key = settings.control_key or control_key_of_cluster(logs.cluster_key)
    kept = Kept.made(settings, machine, control_key, runtime)
    hosts = host_names(settings)
    listeners: dict[str, Listener] = {}
    primary_key = settings.key

    async def doors_of(account: DividedAccount) -> Doors:
        nonlocal primary_key
        account.controls.runtime = runtime
        doors = await make_doors(settings, account, machine, kept, hidden)
        await doors.load()
        doors.use(settings, listeners)
        kept.facts.other_pages = partial(pages_of_others, account.here.places) if account.plans else no_pages
        primary_key = doors.credentials.owners[0]
        return doors

    node = SpreadNode(
        name,
        settings.region,
        logs,
        directories,
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
    await node.open(peer_addresses)
    listeners |= await open_node_ports(opened, settings, machine, crowd, node, kept)
    await node.start(door_addresses(settings, listeners))
    await node.until_failed_or(node.has_doors)
    return node, listeners, primary_key


async def _open_logs(settings: Settings, clock: Clock) -> PostgresLogs:
    """The number of logs is settled when the first of them is led: a log that came later would have no replicas, and
    nodes that do not know of it could lead the others."""
    assert settings.cluster is not None
    url, count, allows_single = settings.cluster, settings.cluster_logs, settings.allows_single_postgres
    logs = await opened_log(clock, lambda: PostgresLogs.open(url, allows_single=allows_single))
    states = await opened_log(clock, logs.leaders)
    if logs.count == count:
        return logs
    await logs.close()
    if states[0].epoch:
        raise bad_request(
            f"The cluster was made with --cluster-logs {logs.count}, and --cluster-logs is {count}: the number of its "
            "logs cannot be changed."
        )
    return await opened_log(clock, lambda: PostgresLogs.open(url, count=count, allows_single=allows_single))
