"""The ports of a node of a cluster: the one where other nodes call it, with its certificate, and those of clients."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Protocol

from armillary.clock import Clock
from armillary.cluster.connection_fronts import ConnectionFront
from armillary.cluster.fronts import HttpFront
from armillary.cluster.peers.calls import Peers
from armillary.cluster.peers.handshake import own_certificate
from armillary.net.connection_limits import Crowd
from armillary.net.listen import Listener
from armillary.storage.directory import unusable
from armillary.tools.serving.doors import Kept
from armillary.tools.serving.nodes.node_start import PEERS_DIRECTORY
from armillary.tools.serving.ports import Entrances, in_url, open_ports
from armillary.tools.settings import Settings


class Fronted(Protocol):
    """A node: what answers at its ports, whatever its role."""

    @property
    def sql(self) -> HttpFront: ...
    @property
    def table(self) -> HttpFront: ...
    @property
    def management(self) -> HttpFront: ...
    @property
    def mongo(self) -> ConnectionFront: ...
    @property
    def gremlin(self) -> ConnectionFront: ...


async def listen_to_peers(peers: Peers, settings: Settings, clock: Clock) -> dict[str, str]:
    """What other nodes have to know, to call this one."""
    try:
        context, fingerprint = own_certificate(settings.directory / PEERS_DIRECTORY, clock)
    except OSError as error:
        raise unusable(error) from None
    port = await peers.listen(settings.host, settings.cluster_port, context, fingerprint)
    host = settings.advertised_host or {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    return {"peer": f"{in_url(host)}:{port}", "peer_certificate": fingerprint.hex()}


async def open_node_ports(
    opened: AsyncExitStack, settings: Settings, clock: Clock, crowd: Crowd, node: Fronted, kept: Kept
) -> dict[str, Listener]:
    entrances = Entrances(
        sql=node.sql,
        table=node.table,
        management=node.management,
        mongo=node.mongo.connect,
        gremlin=lambda roster, hosts, guest: node.gremlin.connect(roster, guest),
        sql_at_once=node.sql.answer_at_once,
    )
    listeners = await open_ports(opened, settings, clock, crowd, entrances, kept)
    for door, front in (("mongo", node.mongo), ("gremlin", node.gremlin)):
        if door in listeners:
            front.serve(listeners[door].service)
    return dict(listeners)


def door_addresses(settings: Settings, listeners: Mapping[str, Listener]) -> dict[str, str]:
    return {door: settings.client_url(door, listener.port) for door, listener in listeners.items()}
