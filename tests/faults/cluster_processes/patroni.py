"""PostgreSQL servers that Patroni runs, with etcd: it starts them, promotes a standby when the primary is gone, and
names the synchronous standbys. The programs are in the directory that the variable PATRONI_PROGRAMS names.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
from faults.cluster_processes.processes import waits_for
from support.postgres import PostgresPrograms

from armillary.tools.cluster.scratch_postgres import _as_user, _own, free_port

NAMES = ("s0", "s1", "s2")
# Patroni takes no shorter lease. A primary that its Patroni can look after is replaced sooner.
LEASE_S = 20
PROMOTED_S = 90.0
DYNAMIC = {
    "ttl": LEASE_S,
    "loop_wait": 1,
    "retry_timeout": 3,
    "primary_start_timeout": 0,
    "synchronous_mode": True,
    "synchronous_mode_strict": True,
    "postgresql": {"use_pg_rewind": True, "parameters": {"wal_log_hints": "on", "max_connections": 60}},
}


class PatroniServer:
    """Implements what the cluster of processes uses of a server."""

    def __init__(self, name: str, programs: PostgresPrograms, patroni: Path, etcd_port: int) -> None:
        self.name = name
        self.port, self.rest_port = free_port(), free_port()
        self._patroni = patroni
        self.directory = programs.scratch / name
        self.directory.mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        login = {"username": "postgres", "password": "postgres"}
        configuration = {
            "scope": "armillary",
            "name": name,
            "restapi": {"listen": f"127.0.0.1:{self.rest_port}", "connect_address": f"127.0.0.1:{self.rest_port}"},
            "etcd3": {"host": f"127.0.0.1:{etcd_port}"},
            "bootstrap": {
                "dcs": DYNAMIC,
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}, "no-sync"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.directory / "data"),
                "bin_dir": str(programs.programs),
                "pgpass": str(self.directory / "pgpass"),
                "authentication": {"superuser": login, "replication": login, "rewind": login},
                "pg_hba": ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
                "parameters": {
                    "unix_socket_directories": "",
                    "shared_buffers": "16MB",
                    "dynamic_shared_memory_type": "mmap",
                    "wal_keep_size": "128MB",
                },
            },
        }
        self._file = self.directory / "patroni.json"  # YAML, too
        self._file.write_text(json.dumps(configuration))
        for path in (self.directory, self._file):
            _own(path)

    @property
    def log(self) -> str:
        return (self.directory / "patroni.log").read_text("utf-8", "replace")

    def start(self) -> None:
        """The server with its Patroni, or Patroni beside a server that runs on."""
        with (self.directory / "patroni.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._patroni, self._file], stdout=log, stderr=log, cwd="/", start_new_session=True, **_as_user()
            )

    def kill_patroni(self) -> None:
        """The server runs on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def signal_patroni(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def signal_server(self, number: signal.Signals) -> None:
        """The server's processes, the first one before those that it started."""
        try:
            first = int((self.directory / "data" / "postmaster.pid").read_text().split()[0])
            pids = [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]
        except (OSError, IndexError, ValueError):
            return
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        """As a machine that dies."""
        self.kill_patroni()
        self.signal_server(signal.SIGKILL)

    def role(self) -> str:
        """As its Patroni says it: "primary", "replica", "synchronous" for one that may be promoted; or empty."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.rest_port}/patroni", timeout=2) as answer:
                told = json.load(answer)
        except (OSError, ValueError):
            return ""
        state, role = str(told.get("state", "")), str(told.get("role", ""))
        if role in ("master", "primary"):
            return "primary" if state == "running" else ""
        if told.get("replication_state") != "streaming":
            return ""
        return "synchronous" if told.get("sync_standby") else "replica"

    async def execute(self, statement: str, *arguments: Any) -> Any:
        connection = await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{self.port}/postgres")
        try:
            return await connection.fetchval(statement, *arguments)
        finally:
            await connection.close()


class PatroniTrio:
    def __init__(self, programs: PostgresPrograms, patroni_programs: Path) -> None:
        self._programs = programs
        self._etcd_directory = programs.scratch / "etcd"
        self._etcd_directory.mkdir()
        _own(self._etcd_directory)
        self._etcd_port = free_port()
        self._etcd_program = patroni_programs / "etcd"
        self._etcd: subprocess.Popen[bytes] | None = None
        self.servers = [PatroniServer(name, programs, patroni_programs / "patroni", self._etcd_port) for name in NAMES]
        self.primary = self.servers[0]

    async def start(self) -> None:
        self.start_etcd()
        for server in self.servers:
            server.start()
        await self.settled()

    def start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{free_port()}"
        with (self._etcd_directory / "log").open("ab") as log:
            self._etcd = subprocess.Popen(
                [
                    *(self._etcd_program, "--data-dir", self._etcd_directory / "data", "--name", "one"),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", f"one={peer}"),
                ],
                stdout=log,
                stderr=log,
                cwd="/",
                **_as_user(),
            )

    @asynccontextmanager
    async def etcd_stopped(self) -> AsyncIterator[None]:
        assert self._etcd is not None
        self._etcd.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._etcd.send_signal(signal.SIGCONT)

    async def settled(self) -> None:
        """One primary with two standbys that stream, one of them synchronous."""

        async def look() -> bool:
            roles = await asyncio.gather(*(asyncio.to_thread(server.role) for server in self.servers))
            if sorted(roles) != ["primary", "replica", "synchronous"]:
                return False
            self.primary = self.servers[roles.index("primary")]
            names = await self.primary.execute("SELECT current_setting('synchronous_standby_names')")
            return bool(names) and "*" not in names

        try:
            await waits_for(look, "Patroni has a primary and two standbys", PROMOTED_S)
        except AssertionError:
            for server in self.servers:
                print(server.name, server.log[-3000:])
            raise

    def stop(self) -> None:
        for server in self.servers:
            if server._process is not None:
                server.signal_patroni(signal.SIGCONT)
                server.kill_patroni()
            server.signal_server(signal.SIGCONT)
            server.signal_server(signal.SIGKILL)
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait()


def programs_of_patroni() -> Path | None:
    named = os.environ.get("PATRONI_PROGRAMS")
    found = shutil.which("patroni", path=named) if named else None
    return Path(found).parent if found is not None and shutil.which("etcd", path=named) else None
