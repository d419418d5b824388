"""Whole nodes of a cluster in the tests' own process: the parts of `armillary serve --cluster` on a log in memory, with
doors that answer nothing. They call each other on sockets of this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.peers import Certificate
from support.replicas import local_replica
from support.waiting import until

from armillary.account.account import Account
from armillary.account.registry import AccountSettings
from armillary.clock import SystemClock
from armillary.cluster.node import Node
from armillary.cluster.peers.calls import Peers
from armillary.storage.log.memory_log import MemoryLog, MemoryLogServer
from armillary.storage.replication.replicated_engine import ReplicatedEngine


class NoDoors:
    sql: Any = SimpleNamespace(answer_at_once=None)
    sql_port: Any = None
    table: Any = None
    management: Any = None
    mongo: Any = None
    gremlin: Any = None

    async def close(self) -> None:
        return


async def _no_doors(account: Account) -> NoDoors:
    return NoDoors()


def _no_connection(*_: Any) -> asyncio.Protocol:
    raise NotImplementedError


class OperatedNode:
    def __init__(self, path: Path, server: MemoryLogServer, name: str, region: str) -> None:
        clock = SystemClock()
        self.name = name
        self.log = MemoryLog(server, clock)
        self.engine = ReplicatedEngine(local_replica(path / name, server), clock)
        self.peers = Peers(name, server.cluster_key, clock)
        self.node = Node(
            name,
            region,
            self.log,
            self.engine,
            self.peers,
            machine=clock,
            clock=None,
            settings=AccountSettings(),
            make_doors=_no_doors,
            mongo_connection=_no_connection,
            gremlin_connection=_no_connection,
            control_prefix=b"/_armillary",
        )
        self.operations = self.node.operations

    async def start(self, certificate: Certificate) -> None:
        port = await self.peers.listen("127.0.0.1", 0, *certificate)
        peer = {"peer": f"127.0.0.1:{port}", "peer_certificate": certificate[1].hex()}
        await self.node.start({"sql": f"http://{self.name}.test", **peer})
        await self.node.until_failed_or(self.node.has_doors)

    async def stop(self) -> None:
        await self.node.stop()
        await self.peers.close()
        await self.engine.close()

    @property
    def leads(self) -> bool:
        return self.node.membership.leads


async def start_nodes(path: Path, certificate: Certificate, **regions: str) -> dict[str, OperatedNode]:
    """Nodes by name; the first of them leads, and all know of all."""
    server = MemoryLogServer(b"generation of it")
    nodes = {name: OperatedNode(path, server, name, region) for name, region in regions.items()}
    for name, node in nodes.items():
        await node.log.register(name)  # first: the leader may trim rows before the last node is started
    for node in nodes.values():
        await node.start(certificate)
    for node in nodes.values():
        await node.node.membership.exchange()
    first = next(iter(nodes.values()))
    await until(lambda: first.leads, "the first node leads")
    for node in nodes.values():
        membership = node.node.membership
        await until(lambda membership=membership: membership.leader is not None, "the leader is known")  # type: ignore[misc]
    return nodes
