"""Nodes of a cluster with several logs in the tests' own process, with accounts, on logs in memory. They call each
other on sockets of this machine, and keep their replicas on disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import orjson
from support.house import KEY
from support.operated_node import NoDoors
from support.peers import Certificate
from support.waiting import PATIENCE_S, until

from armillary.account import containers
from armillary.account.changes.change_feed import read_changes
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.queries import item_pages
from armillary.account.registry import AccountSettings
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import SystemClock
from armillary.cluster.logs.replica_directories import NodeDirectories
from armillary.cluster.peers.calls import PeerGone, Peers
from armillary.cluster.spread.spread_node import SpreadNode
from armillary.errors import Failure, Kind
from armillary.model.documents import json_text
from armillary.model.resources import ResourceType
from armillary.processes.divided_account import DividedAccount
from armillary.storage.directory import DataDirectory
from armillary.storage.log.memory_log import MemoryLogs, MemoryLogServer

T = TypeVar("T")

# Limits for tests, which wait for leases to end.
QUICK = {
    "LEASE_SECONDS": 0.5,
    "LEASE_RENEW_SECONDS": 0.05,
    "LEASE_MARGIN_SECONDS": 0.1,
    "CATALOG_LEASE_SECONDS": 0.5,
    "CATALOG_RENEW_SECONDS": 0.1,
    "NODE_ANNOUNCE_SECONDS": 0.05,
    "LINK_DIAL_SECONDS": 0.05,
    "LEADERS_EVEN_SECONDS": 0.1,
    "BOOTSTRAP_RETRY_SECONDS": 0.01,
}


async def _no_doors(account: DividedAccount) -> NoDoors:
    return NoDoors()


def _no_connection(*_: Any) -> asyncio.Protocol:
    raise NotImplementedError


async def repeated(work: Callable[[], Awaitable[T]]) -> T:
    """Until it is not refused with a retry-after any more: on a busy machine leases end in between."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await work()
            except Failure as failure:
                if failure.retry_after_ms is None:
                    raise
            await asyncio.sleep(0.02)


class _CutPeers(Peers):
    is_cut: Callable[[str], bool] = staticmethod(lambda node: False)

    async def _dial_anew(self, node: str, *, relays: bool = False) -> Any:
        if self.is_cut(node):
            raise PeerGone(f"Node {node} is cut off.", was_sent=False)
        return await super()._dial_anew(node, relays=relays)


class OneSpreadNode:
    """A node that can be stopped, killed (`kill`), and started again."""

    def __init__(
        self, name: str, path: Path, servers: Sequence[MemoryLogServer], certificate: Certificate, make_doors: Any
    ) -> None:
        self.name = name
        self._path = path
        self._servers = servers
        self._certificate = certificate
        self._make_doors = make_doors
        self.is_running = False
        self.cut: set[str] = set()  # nodes that are not reached
        self.node: SpreadNode
        self.peers: _CutPeers

    async def start(self) -> None:
        clock = SystemClock()
        logs = MemoryLogs(self._servers, clock)
        self.peers = _CutPeers(self.name, logs.cluster_key, clock)
        self.peers.is_cut = lambda node: node in self.cut
        port = await self.peers.listen("127.0.0.1", 0, *self._certificate)
        self._directory = DataDirectory.claim(self._path)
        directories = NodeDirectories(self._path, self._directory, self.name, "eu", self.peers, clock, reserve_bytes=0)
        self.node = SpreadNode(
            self.name,
            "eu",
            logs,
            directories,
            self.peers,
            machine=clock,
            clock=None,
            settings=AccountSettings(),
            make_doors=self._make_doors,
            mongo_connection=_no_connection,
            gremlin_connection=_no_connection,
            control_prefix=b"/_armillary",
        )
        self.is_running = True
        await self.node.open({"peer": f"127.0.0.1:{port}", "peer_certificate": self._certificate[1].hex()})
        await self.node.start({"sql": f"http://{self.name}.test"})

    async def stop(self) -> None:
        await self.node.retire()
        await self.kill()

    async def kill(self) -> None:
        """Without handing over."""
        if not self.is_running:
            return
        self.is_running = False
        await self.peers.close()
        await self.node.stop()
        self._directory.release()

    @property
    def account(self) -> DividedAccount:
        account = self.node.account
        if account is None:
            raise Failure(Kind.UNAVAILABLE, f"The account of {self.name} is not open.", retry_after_ms=1)
        return account


class SpreadNodes:
    def __init__(self, nodes: Sequence[OneSpreadNode], log_count: int) -> None:
        self.nodes = {each.name: each for each in nodes}
        self.log_count = log_count

    def __getitem__(self, name: str) -> OneSpreadNode:
        return self.nodes[name]

    @property
    def running(self) -> list[OneSpreadNode]:
        return [each for each in self.nodes.values() if each.is_running]

    def holders(self, log: int) -> list[str]:
        return [each.name for each in self.running if log in each.node.held]

    @property
    def first(self) -> OneSpreadNode:
        found = [each for each in self.running if each.node.membership.leads]
        if len(found) != 1:
            raise Failure(Kind.UNAVAILABLE, "No node has the catalog.", retry_after_ms=1)
        return found[0]

    async def served(self) -> None:
        """Each log is led by one node, and all nodes serve."""

        def is_served() -> bool:
            are_open = all(each.node.account is not None and each.node._may_answer() for each in self.running)
            firsts = [each for each in self.running if each.node.membership.leads]
            return are_open and len(firsts) == 1 and all(len(self.holders(log)) == 1 for log in range(self.log_count))

        await until(is_served, "all logs are served")

    async def create(self, name: str = "c", throughput_ru: int = 40_000, at: str = "") -> Container:
        """Partitioned by /pk, as a node has it."""
        return await repeated(lambda: self._create(name, throughput_ru, at))

    async def _create(self, name: str, throughput_ru: int, at: str) -> Container:
        account = self[at].account if at else self.first.account
        found = account.catalog.find(ResourceType.DATABASE, b"", "db")
        if found is None:
            found = await containers.create_database(account, {"id": "db"}, None)
        body = {"id": name, "partitionKey": KEY}
        return await containers.create_container(account, found, body, Throughput.manual(throughput_ru))

    async def put(self, at: str, *given: dict[str, Any], name: str = "c") -> None:
        for document in given:
            await repeated(lambda document=document: self._put(at, document, name))  # type: ignore[misc]

    async def _put(self, at: str, document: dict[str, Any], name: str) -> None:
        account = self[at].account
        container = account.container("db", name)
        await items.upsert(container, dict(document), ItemOptions(key=container.key_of(document)), account.clock)

    async def read(self, at: str, document: dict[str, Any], name: str = "c") -> Any:
        async def look() -> Any:
            container = self[at].account.container("db", name)
            return await items.read(container, document["id"], ItemOptions(key=container.key_of(document)))

        return await repeated(look)

    async def ids(self, at: str, name: str = "c") -> list[str]:
        """Of the items that a node finds in all partitions."""
        return await repeated(lambda: self._ids(at, name))

    async def _ids(self, at: str, name: str) -> list[str]:
        account = self[at].account
        found: list[str] = []
        options = FeedOptions(page_items=1_000)
        while True:
            page = await item_pages.read_feed(account, account.container("db", name), options)
            found += [orjson.loads(each)["id"] for each in page.rows]
            if page.continuation is None:
                return sorted(found)
            options = replace(options, continuation=page.continuation)

    async def changes(self, at: str, token: str | None, name: str = "c") -> tuple[list[str], str]:
        """The ids of what was changed since a place in the feed, and where it goes on."""
        return await repeated(lambda: self._changes(at, token, name))

    async def _changes(self, at: str, token: str | None, name: str) -> tuple[list[str], str]:
        account, found = self[at].account, []
        while True:
            container = account.container("db", name)
            page = await read_changes(account, container, FeedOptions(continuation=token))
            token = page.continuation
            found += [orjson.loads(json_text(each.stored, container.schema))["id"] for each in page.items]
            if page.is_end:
                return sorted(found), token

    def cut_off(self, name: str) -> None:
        """Break all connections between this node and the others, and let none be made. The logs are reached."""
        for each in self.running:
            each.cut = set(self.nodes) - {name} if each.name == name else {name}
            for connection in list(each.peers._connections):
                if connection.node in each.cut:
                    connection.end("it is cut")
            links = each.node._links
            for other in each.cut & set(links._connections if links is not None else ()):
                assert links is not None
                links._connections[other].end()

    def heal(self) -> None:
        for each in self.running:
            each.cut = set()

    async def close(self) -> None:
        for each in self.running:
            await each.kill()


@asynccontextmanager
async def spread_nodes(
    path: Path, certificate: Certificate, servers: Sequence[MemoryLogServer], names: str = "abc", make_doors: Any = None
) -> AsyncIterator[SpreadNodes]:
    cluster = SpreadNodes(
        [OneSpreadNode(each, path / each, servers, certificate, make_doors or _no_doors) for each in names],
        len(servers),
    )
    try:
        await asyncio.gather(*(each.start() for each in cluster.nodes.values()))
        await cluster.served()
        yield cluster
    finally:
        await cluster.close()
