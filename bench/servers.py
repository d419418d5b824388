"""The measured servers as processes: started on a free port, stopped at the end. Each prints that it is ready, or is
polled until it answers.
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
FERRET: Final = "github.com/FerretDB/FerretDB@v1.24.2"
_FERRET_MAIN: Final = """package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: os.Args[1]},
		Handler:   "sqlite",
		SQLiteURL: os.Args[2],
		Logger:    quiet,
	})
	if err != nil {
		panic(err)
	}
	server.Run(context.Background())
}
"""
GREMLIN_SERVER: Final = "org.apache.tinkerpop:gremlin-server:3.7.3"
_NODE_MODULES: Final = ROOT / "tests/sdk/js/node_modules"
_READY_S: Final = 20.0
_BUILD_S: Final = 900
_LOAD_S: Final = 300.0  # for a server that loads a large graph at start


_GREMLIN_SERVER: Final = """\
host: 127.0.0.1
port: {port}
evaluationTimeout: 600000
graphs: {{graph: {directory}/graph.properties}}
scriptEngines:
  gremlin-groovy:
    plugins:
      org.apache.tinkerpop.gremlin.server.jsr223.GremlinServerGremlinPlugin: {{}}
      org.apache.tinkerpop.gremlin.tinkergraph.jsr223.TinkerGraphGremlinPlugin: {{}}
      org.apache.tinkerpop.gremlin.jsr223.ScriptFileGremlinPlugin: {{files: [{directory}/start.groovy]}}
serializers:
  - className: org.apache.tinkerpop.gremlin.util.ser.GraphSONMessageSerializerV3
    config:
      ioRegistries: [org.apache.tinkerpop.gremlin.tinkergraph.structure.TinkerIoRegistryV3]
maxContentLength: 10485760
"""


class Unavailable(Exception):
    """A server cannot be started on this machine; the message says why."""


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
        """Create a container with these items."""
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


def start_armillary(
    directory: Path,
    durability: str = "full",
    control_key: str = "",
    environment: dict[str, str] | None = None,
    processes: int = 1,
) -> Server:
    arguments = ["serve", "--data", str(directory), "--sql-port", "0", "--durability", durability]
    arguments += ["--processes", str(processes)] if processes > 1 else []
    environment = (environment or {}) | ({"ARMILLARY_CONTROL_KEY": control_key} if control_key else {})
    return _start_saying(f"armillary, {durability}", [sys.executable, "-m", "armillary", *arguments], environment)


def start_node(directory: Path, url: str, name: str) -> Server:
    """A node of the cluster whose log this PostgreSQL holds."""
    arguments = ["serve", "--data", str(directory), "--sql-port", "0", "--cluster-port", "0", "--node", name]
    environment = {"ARMILLARY_CLUSTER": url}
    return _start_saying(f"node {name}", [sys.executable, "-m", "armillary", *arguments], environment)


def start_tables(directory: Path, durability: str, account: str, key: str) -> Server:
    """Armillary, with its Table endpoint."""
    arguments = ["serve", "--data", str(directory), "--sql-port", "0", "--durability", durability, "--account", account]
    return _start_saying(
        f"armillary, {durability}",
        [sys.executable, "-m", "armillary", *arguments],
        {"ARMILLARY_KEY": key},
        door="table",
    )


def start_door(directory: Path, door: str, arguments: list[str], environment: dict[str, str]) -> Server:
    """Armillary; the port is of one of its doors."""
    command = [sys.executable, "-m", "armillary", "serve", "--data", str(directory), "--sql-port", "0", *arguments]
    return _start_saying(f"armillary, {door}", command, environment, door=door)


def start_mongo(directory: Path, durability: str) -> Server:
    """Armillary, with its MongoDB endpoint."""
    arguments = [
        "serve",
        "--data",
        str(directory),
        "--sql-port",
        "0",
        "--durability",
        durability,
        "--mongo-auth",
        "off",
    ]
    return _start_saying(f"armillary, {durability}", [sys.executable, "-m", "armillary", *arguments], door="mongo")


def start_mongo_echo() -> Server:
    return _start_saying("bare OP_MSG", [sys.executable, "-m", "bench.mongo_echo"], door="mongo")


def start_ferret(directory: Path) -> Server:
    """FerretDB on SQLite, with its default durability."""
    program = _build_ferret()
    directory.mkdir()
    port = _free_port()
    return _start_listening("ferretdb, sqlite", [str(program), f"127.0.0.1:{port}", f"file:{directory}/"], port)


def start_gremlin(directory: Path) -> Server:
    """Armillary, with its Gremlin endpoint."""
    arguments = ["serve", "--data", str(directory), "--sql-port", "0"]
    return _start_saying("armillary", [sys.executable, "-m", "armillary", *arguments], door="gremlin")


def start_gremlin_echo() -> Server:
    return _start_saying("bare websocket", [sys.executable, "-m", "bench.gremlin_echo"], door="gremlin")


def start_gremlin_server(graph: Path) -> Server:
    """TinkerPop's Gremlin Server with TinkerGraph: in memory, loaded from a file at start."""
    libraries, port = _fetch_gremlin_server(), _free_port()
    directory = graph.parent
    (directory / "graph.properties").write_text(
        "gremlin.graph=org.apache.tinkerpop.gremlin.tinkergraph.structure.TinkerGraph\n"
        f"gremlin.tinkergraph.graphLocation={graph}\ngremlin.tinkergraph.graphFormat=graphson\n"
    )
    (directory / "start.groovy").write_text("def globals = [:]\nglobals << [g : traversal().withEmbedded(graph)]\n")
    (directory / "server.yaml").write_text(_GREMLIN_SERVER.format(port=port, directory=directory))
    command = ["java", "-Xmx4g", "-cp", f"{libraries}/*", "org.apache.tinkerpop.gremlin.server.GremlinServer"]
    return _start_listening("gremlin server", [*command, str(directory / "server.yaml")], port, ready_s=_LOAD_S)


def start_bare() -> Server:
    return _start_saying("bare HTTP", [sys.executable, "-m", "bench.bare"])


def start_vercel(*, keeps_alive: bool) -> Server:
    """Vercel's emulator, in memory. Its command line answers every request with `connection: close`; embedded in a
    program it can keep connections alive, and is several times faster. Both are measured."""
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
    """Cosmium: in memory, without an index; this version has no batches."""
    program = binary or _build_cosmium()
    port = _free_port()
    arguments = ["-Host", "127.0.0.1", "-Port", str(port), "-DisableTls", "-LogLevel", "silent"]
    started = _start_listening("cosmium", [str(program), *arguments], port, {"GIN_MODE": "release"})
    started.has_batches = False
    return started


def _build_ferret() -> Path:
    """Build FerretDB as an embedded library: its own main package needs files that are not part of the module."""
    directory = Path(tempfile.gettempdir()) / f"armillary-bench-ferretdb-{FERRET.rpartition('@')[2]}"
    program = directory / "ferretdb"
    if not program.exists():
        module, _, version = FERRET.partition("@")
        directory.mkdir(exist_ok=True)
        (directory / "go.mod").write_text(f"module bench\n\ngo 1.22\n\nrequire {module} {version}\n")
        (directory / "main.go").write_text(_FERRET_MAIN)
        _run_go(FERRET, ["build", "-mod=mod", "-o", str(program), "."], directory, {})
    return program


def _fetch_gremlin_server() -> Path:
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        raise Unavailable(f"{GREMLIN_SERVER} needs Java and Maven, which are not here")
    group, artifact, version = GREMLIN_SERVER.split(":")
    directory = Path(tempfile.gettempdir()) / f"armillary-bench-{artifact}-{version}"
    libraries = directory / "lib"
    if not (libraries / f"{artifact}-{version}.jar").exists():
        directory.mkdir(exist_ok=True)
        dependency = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        (directory / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>bench</groupId>'
            "<artifactId>bench</artifactId><version>1</version>"
            f"<dependencies><dependency>{dependency}</dependency></dependencies></project>\n"
        )
        print(f"fetching {GREMLIN_SERVER} ...", file=sys.stderr, flush=True)
        fetched = subprocess.run(
            [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libraries}"],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=_BUILD_S,
            check=False,
        )
        if fetched.returncode != 0:
            raise Unavailable(f"Maven cannot fetch {GREMLIN_SERVER}")
    return libraries


def _build_cosmium() -> Path:
    directory = Path(tempfile.gettempdir()) / f"armillary-bench-{COSMIUM.rpartition('@')[2]}"
    program = directory / "server"
    if not program.exists():
        _run_go(COSMIUM, ["install", COSMIUM], ROOT, {"GOBIN": str(directory)})
    return program


def _run_go(what: str, arguments: list[str], directory: Path, environment: dict[str, str]) -> None:
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        raise Unavailable(f"{what} is written in Go, and there is no Go here to build it")
    print(f"building {what} ...", file=sys.stderr, flush=True)
    built = subprocess.run(
        [go, *arguments],
        cwd=directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
        check=False,
    )
    if built.returncode != 0:
        reason = (built.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unavailable(f"go cannot build {what} here: {reason}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _start_listening(
    name: str, command: list[str], port: int, environment: dict[str, str] | None = None, *, ready_s: float = _READY_S
) -> Server:
    """A server that prints nothing: it is ready when it accepts connections."""
    process = _spawn(command, environment or {})
    deadline_s = time.monotonic() + ready_s
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return Server(name, process, port)
    process.kill()
    raise Unavailable(f"{name} does not start")


def _start_saying(
    name: str, command: list[str], environment: dict[str, str] | None = None, *, door: str = ""
) -> Server:
    process = _spawn(command, environment or {})
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(f"{door}=[a-z]+://[^ ]*:([0-9]+)" if door else "http://[^ ]*:([0-9]+)", line)
    if not line.startswith("ready") or found is None:
        process.kill()
        raise Unavailable(f"{name} does not start: {line!r}")
    return Server(name, process, int(found[1]))


def _spawn(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    environment = clean_environment() | environment
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def clean_environment() -> dict[str, str]:
    """The environment without its own ARMILLARY settings, which must not reach the measured server."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ARMILLARY_", "COSMIUM_"))}
