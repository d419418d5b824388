"""The processes of a cluster on this machine: PostgreSQL with two synchronous standbys, nodes in two regions, and a
link on each way between them.

Nodes learn each other's addresses from PostgreSQL. The links to it replace them, so that each node finds its own links
to the others there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
from faults.cluster_processes.links import Link
from faults.server import Server
from support.postgres import PostgresServer, PostgresTrio
from support.waiting import PATIENCE_S

from armillary.tools.cluster.scratch_postgres import free_port

REGIONS = ("West", "West", "East", "East")
STALENESS_S = 5  # the T of bounded staleness
CONTROL_KEY = "YSBjb250cm9sIGtleSBmb3IgdGhlIG5lbWVzaXM="
LOOK_S = 0.02
ANSWER_S = 5.0  # of PostgreSQL


async def waits_for(holds: Callable[[], Awaitable[bool]], what: str, limit_s: float = PATIENCE_S) -> None:
    """Ask again and again, for a limited time."""
    ends_s = time.monotonic() + limit_s
    while not await holds():
        if time.monotonic() > ends_s:
            raise AssertionError(f"not in {limit_s:.0f} s: {what}")
        await asyncio.sleep(LOOK_S)


class NodeProcess(Server):
    """A node, which has the same ports whenever it runs."""

    def __init__(self, name: str, region: str, directory: Path, url: str, *arguments: str) -> None:
        self.name = name
        self.region = region
        self.cluster_port, self.mongo_port = free_port(), free_port()
        super().__init__(
            directory,
            None,
            *("--node", name, "--region", region, "--cluster-port", str(self.cluster_port), "--consistency", "Strong"),
            *("--mongo-port", str(self.mongo_port), "--table-port", "0", "--gremlin-port", "0"),
            *("--staleness-seconds", str(STALENESS_S), "--control-key", CONTROL_KEY, *arguments),
            port=free_port(),
        )
        self.environment = {"ARMILLARY_CLUSTER": url}
        self.incarnation = 0  # how often it was started
        self.is_paused = False
        self.is_serving = False  # started, and neither killed nor told to stop

    @property
    def is_up(self) -> bool:
        return self._server is not None

    @property
    def is_running(self) -> bool:
        return self._server is not None and self._server.poll() is None

    @property
    def whole_log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    async def start(self, *, is_waiting: bool = True, environment: dict[str, str] | None = None) -> None:
        self.incarnation += 1
        await super().start(is_waiting=is_waiting, environment=self.environment | (environment or {}))
        self.is_serving = is_waiting

    def pause(self) -> None:
        """As a machine that stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        if self.is_paused and self.is_up:
            os.kill(self.pid, signal.SIGCONT)
        self.is_paused = False

    async def kill(self) -> None:
        self.is_paused = self.is_serving = False
        await super().kill()

    async def stop(self) -> int:
        self.is_serving = False
        return await super().stop()


class ClusterProcesses:
    def __init__(self, trio: PostgresTrio, scratch: Path, kind: type[NodeProcess] = NodeProcess) -> None:
        self.trio = trio
        self._kind = kind
        self.scratch = scratch
        self.nodes: dict[str, NodeProcess] = {}
        self.postgres_links: dict[tuple[str, str], Link] = {}  # by node and server
        self.peer_links: dict[tuple[str, str], Link] = {}  # by the node that connects and the other

    async def start(self, *names: str, arguments: tuple[str, ...] = ()) -> None:
        for name, region in zip(names, REGIONS, strict=False):
            await self.add(name, region, *arguments)
        await asyncio.gather(*(node.start() for node in self.nodes.values()))

    async def add(self, name: str, region: str, *arguments: str, directory: Path | None = None) -> NodeProcess:
        """A node that is not started yet, with its links."""
        for server in self.trio.servers:
            self.postgres_links[name, server.name] = await Link.listen(server.port)
        hosts = ",".join(f"127.0.0.1:{self.postgres_links[name, each.name].port}" for each in self.trio.servers)
        url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=primary"
        node = self._kind(name, region, directory or self.scratch / name, url, *arguments)
        for other in self.nodes.values():
            await self._join(node, other)
            await self._join(other, node)
        self.nodes[name] = node
        return node

    async def _join(self, caller: NodeProcess, other: NodeProcess) -> None:
        link = self.peer_links[caller.name, other.name] = await Link.listen(other.cluster_port)
        for server in self.trio.servers:
            replaced = self.postgres_links[caller.name, server.name].replaced
            replaced[b"127.0.0.1:%d" % other.cluster_port] = b"127.0.0.1:%d" % link.port

    async def close(self) -> None:
        for node in self.nodes.values():
            node.resume()
        await asyncio.gather(*(node.kill() for node in self.nodes.values()))
        for link in (*self.postgres_links.values(), *self.peer_links.values()):
            await link.close()

    # Looking.

    async def leader(self) -> NodeProcess:
        """The node that the log names as the leader."""
        found: list[NodeProcess] = []

        async def look() -> bool:
            found[:] = [self.nodes[name] for name in [await self.leader_name()] if name in self.nodes]
            return bool(found)

        await waits_for(look, "a node leads")
        return found[0]

    async def leader_name(self) -> str:
        return str(await self._ask("SELECT node FROM armillary.leaders WHERE log = 0"))

    async def epoch(self) -> int:
        """-1: PostgreSQL cannot be asked."""
        return int(await self._ask("SELECT epoch FROM armillary.leaders WHERE log = 0") or -1)

    async def _ask(self, statement: str) -> Any:
        """Empty if PostgreSQL does not answer: it may be paused."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self.trio.primary.execute(statement)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            return ""

    async def followers(self) -> list[NodeProcess]:
        leader = await self.leader()
        return [node for node in self.nodes.values() if node is not leader and node.is_up]

    def links_of(self, node: NodeProcess) -> list[Link]:
        """To PostgreSQL."""
        return [link for (name, _), link in self.postgres_links.items() if name == node.name]

    def peer_links_of(self, node: NodeProcess) -> list[Link]:
        return [link for pair, link in self.peer_links.items() if node.name in pair]

    async def diagnosis(self) -> str:
        """What nodes have logged last, and what PostgreSQL waits for."""
        told = [f"{node.name}:\n{node.log_text[-2000:]}" for node in self.nodes.values()]
        statement = """
            SELECT string_agg(concat_ws(' ', pid, client_port, state, wait_event_type, wait_event,
                now() - xact_start, pg_blocking_pids(pid), query), E'\\n') FROM pg_stat_activity
            WHERE pid <> pg_backend_pid()"""
        return "\n".join([*told, f"{self.trio.primary.name}:", str(await self._ask(statement))])

    # PostgreSQL.

    async def rejoin(self, server: PostgresServer) -> None:
        """A server that was the primary becomes a standby, from a new base backup."""
        await asyncio.to_thread(server.rebuild, self.trio.primary)
        server.start()
        await asyncio.to_thread(server.wait_ready)
        self.trio.standbys.append(server)
        await self.trio.streaming()
