"""The contestants as processes: started on a free port, stopped at the end. Each says on standard output that it is
ready, or is asked until it answers.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench import protocol

ROOT: Final = Path(__file__).parent.parent
COSMIUM: Final = "github.com/pikami/cosmium/cmd/server@v0.1.15"
_NODE_MODULES: Final = ROOT / "tests/sdk/js/node_modules"
_READY_S: Final = 20.0
_BUILD_S: Final = 300


class Unavailable(Exception):
    """A contestant that cannot take part, and why."""


@dataclass
class Server:
    name: str
    process: subprocess.Popen[str]
    port: int
    has_batches: bool = True
    _containers: int = field(default=0)

    @property
    def pid(self) -> int:
        return self.process.pid

    def new_container(self, items: range) -> str:
        """A container of its own with these items in it."""
        if self._containers == 0:
            protocol.create_database(self.port)
        self._containers += 1
        name = f"container{self._containers}"
        protocol.create_container(self.port, name)
        protocol.preload(self.port, name, items, by_batches=self.has_batches)
        return name

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def start_armillary(directory: Path, durability: str = "full", control_key: str = "") -> Server:
    arguments = ["serve", "--data", str(directory), "--sql-port", "0", "--durability", durability]
    environment = {"ARMILLARY_CONTROL_KEY": control_key} if control_key else {}
    return _start_saying(f"armillary, {durability}", [sys.executable, "-m", "armillary", *arguments], environment)


def start_tables(directory: Path, durability: str, account: str, key: str) -> Server:
    """The same server, reached through its Table door."""
    arguments = ["serve", "--data", str(directory), "--sql-port", "0", "--durability", durability, "--account", account]
    return _start_saying(
        f"armillary, {durability}",
        [sys.executable, "-m", "armillary", *arguments],
        {"ARMILLARY_KEY": key},
        door="table",
    )


def start_bare() -> Server:
    return _start_saying("bare HTTP", [sys.executable, "-m", "bench.bare"])


def start_vercel(*, keeps_alive: bool) -> Server:
    """In memory. Its command line answers every request with `connection: close`; embedded in a program it can be told
    not to, and is several times faster. Both are measured."""
    node = shutil.which("node")
    if node is None or not (_NODE_MODULES / "@vercel/cosmosdb-server").is_dir():
        raise Unavailable("@vercel/cosmosdb-server is not installed: run make bench, which installs it")
    program = (
        f"const options = {{ keepAlive: {'true' if keeps_alive else 'false'} }};"
        "const server = require('@vercel/cosmosdb-server').createHttpServer(options);"
        "server.listen(0, '127.0.0.1', () => console.log('ready http://127.0.0.1:' + server.address().port));"
    )
    name = "cosmosdb-server, keep-alive" if keeps_alive else "cosmosdb-server"
    return _start_saying(name, [node, "-e", program], {"NODE_PATH": str(_NODE_MODULES)})


def start_cosmium(binary: Path | None) -> Server:
    """In memory, without an index; this version knows no batches."""
    program = binary or _build_cosmium()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["-Host", "127.0.0.1", "-Port", str(port), "-DisableTls", "-LogLevel", "silent"]
    process = _spawn([str(program), *arguments], {"GIN_MODE": "release"})
    deadline_s = time.monotonic() + _READY_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return Server("cosmium", process, port, has_batches=False)
    process.kill()
    raise Unavailable("cosmium does not start")


def _build_cosmium() -> Path:
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        raise Unavailable("cosmium is written in Go, and there is no Go here to build it")
    directory = Path(tempfile.gettempdir()) / f"armillary-bench-{COSMIUM.rpartition('@')[2]}"
    program = directory / "server"
    if not program.exists():
        print(f"building {COSMIUM} ...", file=sys.stderr, flush=True)
        environment = os.environ | {"GOBIN": str(directory)}
        built = subprocess.run(
            [go, "install", COSMIUM], env=environment, capture_output=True, text=True, timeout=_BUILD_S, check=False
        )
        if built.returncode != 0:
            reason = (built.stderr.strip().splitlines() or ["no reason given"])[0]
            raise Unavailable(f"go install {COSMIUM} fails here: {reason}")
    return program


def _start_saying(
    name: str, command: list[str], environment: dict[str, str] | None = None, *, door: str = ""
) -> Server:
    process = _spawn(command, environment or {})
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(door + r"=?http://[^ ]*:([0-9]+)" if door else r"http://[^ ]*:([0-9]+)", line)
    if not line.startswith("ready") or found is None:
        process.kill()
        raise Unavailable(f"{name} does not start: {line!r}")
    return Server(name, process, int(found[1]))


def _spawn(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    # Settings of whoever runs the benchmark must not reach the server that is measured.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ARMILLARY_", "COSMIUM_"))}
    return subprocess.Popen(
        command, cwd=ROOT, env=kept | environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
