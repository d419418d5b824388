"""`pytest --cluster N`: what tests start as a server is a cluster of N nodes whose partitions are spread over N logs,
each led by another node, on a PostgreSQL server of the tests. Clients are given the addresses of the second node."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from support.forked import Forked
from support.postgres import PostgresPrograms, PostgresServer
from support.process import READY_S, clean_environment

_OF_ONE_SERVER = ("--durability",)  # settings that a node refuses, with their values


class ClusterServers:
    def __init__(self, node_count: int) -> None:
        self.node_count = node_count
        self._programs = PostgresPrograms()
        self._postgres = PostgresServer(self._programs, "s0")
        self._postgres.configure("max_connections = 500")
        self._postgres.start()
        self._postgres.wait_ready()
        self._databases: dict[Path, str] = {}  # by data directory: a server may be started again
        self._numbers = count()
        self._lock = threading.Lock()
        self._scratch = Path(tempfile.mkdtemp(prefix="armillary-nodes-"))
        self._owner = os.getpid()
        atexit.register(self._close)

    def _close(self) -> None:
        if os.getpid() == self._owner:
            self._postgres.stop()
            self._programs.remove()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def start(
        self, directory: Path | None, arguments: Sequence[str], errors: int, descriptors_max: int | None
    ) -> tuple[Forked, list[Forked], Path]:
        """The node that clients use, which is not ready yet; the others; and its data directory."""
        with self._lock:
            number = next(self._numbers)
        root = directory or self._scratch / f"server{number}"
        url = self._database(root, number)
        given = list(arguments)
        for name in _OF_ONE_SERVER:
            if name in given:
                at = given.index(name)
                del given[at : at + 2]
        nodes = []
        for node in range(self.node_count):
            place = root if node == 1 else root.with_name(f"{root.name}-node{node}")
            own = given if node == 1 else _without_ports(given)
            ports = () if node != 1 and "--sql-port" in own else ("--sql-port", "0") if "--sql-port" not in own else ()
            nodes.append(
                Forked.start(
                    *("armillary", "serve", "--data", str(place), *ports, *own),
                    *("--cluster", url, "--cluster-single-postgres", "--cluster-logs", str(self.node_count)),
                    *("--cluster-port", "0", "--node", f"n{node}"),
                    environment=clean_environment(),
                    stderr=errors,
                    descriptors_max=descriptors_max,
                )
            )
        for node_process in nodes:
            if node_process is not nodes[1]:
                self._until_ready(node_process)
        return nodes[1], [each for each in nodes if each is not nodes[1]], root

    def _database(self, root: Path, number: int) -> str:
        if root not in self._databases or not root.exists():
            self._databases[root] = self._run(self._postgres.new_database(f"d{os.getpid()}x{number}"))
        return self._databases[root]

    def spread(self, root: Path) -> None:
        """Wait until the logs are led by different nodes."""

        async def look() -> None:
            database = self._databases[root].rpartition("/")[2]
            async with asyncio.timeout(READY_S):
                while True:
                    asked = "SELECT string_agg(node, ' ' ORDER BY log) FROM armillary.leaders"
                    leaders = await self._postgres.execute(asked, database=database)
                    if leaders.split()[1:] == [f"n{log}" for log in range(1, self.node_count)]:
                        return  # the catalog, in log 0, stays with the node that was first
                    await asyncio.sleep(0.1)

        self._run(look())

    @staticmethod
    def _run(work: Any) -> Any:
        """In a thread: callers may be inside an event loop."""
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(asyncio.run(work)))
        thread.start()
        thread.join()
        assert found, "PostgreSQL was not asked"
        return found[0]

    @staticmethod
    def _until_ready(process: Forked) -> None:
        line = process.stdout.readline()
        assert line.startswith("ready "), f"a node did not start: {line!r}"


def _without_ports(given: Sequence[str]) -> list[str]:
    """The other nodes on this machine have ports of their own."""
    found, is_port = [], False
    for each in given:
        if is_port:
            found.append("0")
            is_port = False
        else:
            found.append(each)
            is_port = each.endswith("-port")
    return found
