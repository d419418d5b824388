"""A cluster of real processes for released clients: nodes in regions that can be killed and started again at the same
addresses, on one PostgreSQL server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from faults.cluster_processes.processes import CONTROL_KEY, NodeProcess, waits_for
from support.postgres import PostgresPrograms, PostgresServer, unavailable
from support.process import KEY, run_armillary

from armillary.account.security.connection_strings import connection_string

ACCOUNT = "localhost"


class ClientNode(NodeProcess):
    """A node of an account with the consistency level of sessions."""

    def __init__(self, name: str, region: str, directory: Path, url: str, *arguments: str) -> None:
        # Of two arguments with the same name the later one counts.
        options = ("--cluster-single-postgres", "--consistency", "Session", *arguments)
        super().__init__(name, region, directory, url, *options)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class ClientCluster:
    """Made by `start`; the first node leads."""

    def __init__(self, scratch: Path, regions: Mapping[str, str], *arguments: str) -> None:
        self._programs = PostgresPrograms()
        self._postgres = PostgresServer(self._programs, "s0")
        self._postgres.start()
        self._postgres.wait_ready()
        self.nodes = {
            name: ClientNode(name, region, scratch / name, self._postgres.url(), *arguments)
            for name, region in regions.items()
        }

    @classmethod
    async def start(cls, scratch: Path, regions: Mapping[str, str], *arguments: str) -> Self:
        """Where PostgreSQL cannot be started, the test is skipped."""
        try:
            cluster = cls(scratch, regions, *arguments)
        except OSError as error:
            unavailable(error)
            raise
        first, *others = cluster.nodes.values()
        try:
            await first.start()
            await asyncio.gather(*(node.start() for node in others))
            for node in cluster.nodes.values():
                await cluster.known_at(node)
        except BaseException:
            await cluster.close()
            raise
        return cluster

    async def close(self) -> None:
        await asyncio.gather(*(node.kill() for node in self.nodes.values()))
        self._postgres.stop()
        self._programs.remove()

    # What clients are given.

    @property
    def mongo_uri(self) -> str:
        """Names all nodes."""
        hosts = ",".join(f"127.0.0.1:{node.mongo_port}" for node in self.nodes.values())
        return connection_string("mongo", f"mongodb://{hosts}", ACCOUNT, KEY, is_secure=False)

    # Operating.

    async def leader(self) -> ClientNode:
        return self.nodes[str(await self._postgres.execute("SELECT node FROM armillary.leaders"))]

    async def kill_leader(self) -> tuple[ClientNode, float]:
        """As a machine that dies. The node, and how long it took until another one led."""
        leader, epoch = await self.leader(), await self.epoch()
        begun_s = time.monotonic()
        await leader.kill()
        await self.taken_over(epoch)
        return leader, time.monotonic() - begun_s

    async def taken_over(self, epoch: int) -> None:
        """Until a node leads in a later epoch than this one."""

        async def look() -> bool:
            return await self.epoch() > epoch

        await waits_for(look, "another node takes over")

    async def epoch(self) -> int:
        """Grows with every change of the leader."""
        return int(await self._postgres.execute("SELECT epoch FROM armillary.leaders"))

    async def known_at(self, node: ClientNode) -> None:
        """Until a node knows all others. What it tells clients before that, they keep for minutes."""

        async def look() -> bool:
            found = await self.command("status", at=node)
            return len([each for each in found["nodes"] if each["alive"]]) == len(self.nodes)

        await waits_for(look, f"{node.name} knows of all nodes")

    async def command(self, *arguments: str, at: ClientNode | None = None) -> Any:
        """`armillary cluster …` at this node, or at any that runs. In a process, which has its own environment: threads
        of clients read that of the tests at the same time."""
        asked = at or next(node for node in self.nodes.values() if node.is_serving)
        options = ("--json", "--data", str(asked.directory))
        key = {"ARMILLARY_CONTROL_KEY": CONTROL_KEY}
        outcome = await asyncio.to_thread(run_armillary, "cluster", *arguments, *options, environment=key)
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
        return json.loads(outcome.stdout)
