"""A real `armillary serve` in a process of its own, for tests and benchmarks."""

from __future__ import annotations

import asyncio
import io
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

from support.forked import Forked

from armillary.storage.private import private_umask
from armillary.tools.cli import main

KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
READY_S = STOP_S = 90.0  # of a machine that has other work too
CLUSTERS: list[Any] = []  # what starts clusters in the place of servers (pytest --cluster)
SETTINGS: list[str] = []  # of every server that is not started with others of the same name (pytest --processes)


def run_armillary(
    *arguments: str, environment: dict[str, str] | None = None, directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Any command that ends by itself, in a process of its own."""
    with tempfile.TemporaryFile("w+") as errors:
        is_server = arguments[0] == "serve" and not {*SETTINGS[:1], "--cluster"} & {*arguments}
        process = Forked.start(
            *("armillary", *arguments, *(SETTINGS if is_server else ())),
            environment=clean_environment() | (environment or {}),
            stderr=errors.fileno(),
            directory=directory,
        )
        with process.stdout as output:
            said = output.read()
        code = process.wait(READY_S)
        errors.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, said, errors.read())


def call_armillary(
    *arguments: str, environment: dict[str, str] | None = None, directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The same command in this process, which spares loading its modules: for tests of what a command does and says,
    not of its process. In a thread, since commands run event loops of their own and callers may be inside one."""
    printed = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]

    def call() -> int:
        try:
            return main(arguments)
        except SystemExit as exit_:  # arguments that are refused while they are parsed, and --help
            return exit_.code if isinstance(exit_.code, int) else 1

    with (
        _environment_with(environment or {}),
        patch("sys.stdin", io.StringIO()),
        redirect_stdout(printed[0]),
        redirect_stderr(printed[1]),
        chdir(directory or "."),
        ThreadPoolExecutor(1) as thread,
    ):
        code = thread.submit(call).result()
    output, errors = (stream.buffer.getvalue().decode() for stream in printed)
    return subprocess.CompletedProcess(list(arguments), code, output, errors)


@contextmanager
def _environment_with(variables: dict[str, str]) -> Iterator[None]:
    """Only what differs is changed, and changed back: clients in other threads of the tests read the environment at the
    same time, and must not find it empty."""
    unwanted = [name for name in os.environ if name.startswith("ARMILLARY_") and name not in variables]
    before = {name: os.environ.get(name) for name in (*unwanted, *variables)}
    for name in unwanted:
        del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def clean_environment() -> dict[str, str]:
    """Without the settings of the tests' own environment, and with compiled modules kept: compiling all of them takes
    longer than the rest of a server's start."""
    unwanted = ("ARMILLARY_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return kept | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class ServerProcess:
    """Made by `start`, which returns when the server says that it is ready."""

    def __init__(self, process: subprocess.Popen[str] | Forked, directory: Path | None, log: Path) -> None:
        self.process = process
        self.directory = directory
        self.key = KEY
        self.doors: dict[str, str] = {}
        self._log = log
        self._log_text = ""  # once the process has ended
        self._other_nodes: list[Forked] = []  # of the cluster that this is a node of

    @classmethod
    def start(
        cls,
        directory: Path | None,
        *arguments: str,
        descriptors_max: int | None = None,
        program: Sequence[str] | None = None,
    ) -> Self:
        """On a free port. `directory` None: in memory. `descriptors_max`: of open files and connections. `program`:
        what a new interpreter is given in place of the server's own module."""
        place = ["--memory"] if directory is None else ["--data", str(directory)]
        others: list[Forked] = []
        root: Path | None = None
        handle, log = tempfile.mkstemp(prefix="armillary-test-", suffix=".log")
        port = [] if "--sql-port" in arguments else ["--sql-port", "0"]
        if not {*SETTINGS[:1], "--cluster"} & {*arguments}:
            arguments = (*arguments, *SETTINGS)
        process: subprocess.Popen[str] | Forked
        with os.fdopen(handle, "w") as errors:
            if program is None and CLUSTERS and not {"--cluster", "--processes"} & {*arguments}:
                cluster = CLUSTERS[0]
                process, others, root = cluster.start(directory, [*port, *arguments], errors.fileno(), descriptors_max)
            elif program is None:
                process = Forked.start(
                    *("armillary", "serve", *place, *port, *arguments),
                    environment=clean_environment(),
                    stderr=errors.fileno(),
                    descriptors_max=descriptors_max,
                )
            else:
                assert descriptors_max is None
                process = subprocess.Popen(
                    [sys.executable, *program, "serve", *place, *port, *arguments],
                    env=clean_environment(),
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
        server = cls(process, directory, Path(log))
        server._other_nodes = others
        try:
            line = server._first_line()
        except BaseException:
            server.kill()
            raise
        if not line.startswith("ready "):
            server.kill()
            raise AssertionError(f"the server did not start: {line!r}\n{server.log}")
        if root is not None:
            try:
                CLUSTERS[0].spread(root)
            except BaseException:
                server.kill()
                raise
        server.doors = dict(word.split("=", 1) for word in line.split()[1:])
        return server

    @property
    def url(self) -> str:
        """Of the SQL door, over http."""
        return self.doors["sql"]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace") if self._log.exists() else self._log_text

    def stop(self) -> int:
        """As an operator would. The exit code; 0 is asserted unless the server had been killed before."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            for other in self._other_nodes:
                other.send_signal(signal.SIGTERM)
            code = self.process.wait(STOP_S)
            assert code == 0, f"the server ended with {code}\n{self.log}"
        for other in self._other_nodes:
            other.wait(STOP_S)
        self._tidy()
        return self.process.wait()

    def kill(self) -> None:
        """As a crash would."""
        self.process.kill()
        for other in self._other_nodes:
            other.kill()
        self.process.wait(STOP_S)
        self._tidy()

    @staticmethod
    def check(directory: Path) -> None:
        """What `armillary check` looks at, for a directory that no server is using any more. In this process, where
        modules are loaded once for all directories, and in a thread: callers may be inside an event loop."""
        from armillary.tools.check import problems_in

        if CLUSTERS and directory.with_name(f"{directory.name}-node0").exists():
            return  # the directory of a node has the catalog and a part of the partitions

        def found() -> list[str]:
            with private_umask():
                return asyncio.run(problems_in(directory))

        with ThreadPoolExecutor(1) as thread:
            problems = thread.submit(found).result()
        assert not problems, "\n".join(problems)

    def _first_line(self) -> str:
        """Read in a thread: a server that hangs must not hang the tests."""
        stream = self.process.stdout
        assert stream is not None
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda: lines.put(stream.readline()), daemon=True).start()
        try:
            return lines.get(timeout=READY_S)
        except queue.Empty:
            return ""

    def _tidy(self) -> None:
        for each in (self.process, *self._other_nodes):
            if each.stdout is not None:
                each.stdout.close()
        self._log_text = self.log
        self._log.unlink(missing_ok=True)
