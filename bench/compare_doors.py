"""Compares the MongoDB, Table and Gremlin doors of two revisions: the working tree and another commit, in turns of half
a second, by the server's processor time. `python -m bench.compare_doors REV`; three minutes, Linux and wrk.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Final

import bson

from bench import gremlin, gremlin_wire, mongo, servers, tables
from bench import mongo_wire as wire
from bench.compare import _git, thread_cpu_ns
from bench.load import run_wrk
from bench.servers import ROOT, Server

CONNECTIONS: Final = 16
ROUNDS: Final = 12
SECONDS: Final = 0.5
VERTICES: Final = 1_000
BASE, NEW = "base", "working tree"

Turn = Callable[[], float]  # sends requests, and returns their number


def measure(revision: str, say: Callable[[str], None]) -> dict[str, list[dict[str, float]]]:
    """The processor time of each request in µs, by what was asked, round and revision."""
    name = _git("rev-parse", "--short", f"{revision}^{{commit}}").decode().strip()
    rounds: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="armillary-doors-") as temporary, ExitStack() as opened:
        place = Path(temporary)
        with tarfile.open(fileobj=BytesIO(_git("archive", "--format=tar", name, "src", "bench"))) as archive:
            archive.extractall(place / "source", filter="data")
        sources = {BASE: place / "source", NEW: ROOT}
        kinds: dict[str, dict[str, tuple[Server, Turn]]] = {}
        for each, root in sources.items():
            for kind, server, turn in _turns(place / each.replace(" ", "-"), root, opened):
                kinds.setdefault(kind, {})[each] = server, turn
        for number in range(ROUNDS + 1):
            for kind, contestants in kinds.items():
                row = {}
                for each in (BASE, NEW) if number % 2 else (NEW, BASE):
                    server, turn = contestants[each]
                    before = thread_cpu_ns(server.pid)
                    count = turn()
                    spent_ns = sum(ns - before.get(thread, 0) for thread, ns in thread_cpu_ns(server.pid).items())
                    row[each] = spent_ns / 1e3 / max(count, 1)
                if number:  # the first one warms up
                    rounds.setdefault(kind, []).append(row)
            say(f"round {number} of {ROUNDS}")
    return rounds


def lines(revision: str, rounds: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    yield f"{'processor time of the server':<34}{revision + ' µs':>14}{'tree µs':>10}{'ratio':>8}   quartiles"
    for kind, rows in rounds.items():
        base, new = (statistics.median(row[each] for row in rows) for each in (BASE, NEW))
        ratios = [row[BASE] / row[NEW] for row in rows]
        low, _, high = statistics.quantiles(ratios, n=4)
        yield f"{kind:<34}{base:>14.1f}{new:>10.1f}{statistics.median(ratios):>7.2f}x   {low:.2f} to {high:.2f}"


def _turns(directory: Path, root: Path, opened: ExitStack) -> Iterator[tuple[str, Server, Turn]]:
    directory.mkdir()
    environment = {"PYTHONPATH": str(root / "src")}
    durability = ["--durability", "relaxed"]
    server = _serve(directory / "mongo", environment, "mongo", [*durability, "--mongo-auth", "off"], opened)
    yield "MongoDB find_one by _id and key", server, _find_one(server)
    yield "MongoDB insert_many, a document", server, _insert_many(server)
    keyed = environment | {"ARMILLARY_KEY": tables.KEY}
    server = _serve(directory / "table", keyed, "table", [*durability, "--account", tables.ACCOUNT], opened)
    tables.prepare(server.port)
    yield "Table get", server, _wrk(server, tables.gets)
    firsts = iter(range(1_000_000, 1_000_000_000, 1_000_000))
    yield "Table insert", server, _wrk(server, lambda: tables.inserts(next(firsts)))
    store = directory / "graph"
    fill = [sys.executable, "-m", "bench.gremlin_graph", str(store), str(VERTICES), "1000"]
    subprocess.run(fill, cwd=root, env=servers.clean_environment() | environment, check=True)
    server = _serve(store, environment, "gremlin", durability, opened)
    for is_bound in (False, True):
        yield f"Gremlin V by id, {'binding' if is_bound else 'text'}", server, _vertices(server, is_bound=is_bound)


def _serve(directory: Path, environment: dict[str, str], door: str, more: list[str], opened: ExitStack) -> Server:
    server = servers.start_door(directory, door, more, environment)
    opened.callback(server.stop)
    return server


def _find_one(server: Server) -> Turn:
    mongo._fill(server, "small", mongo.SMALL, is_armillary=True)
    lsid = wire.session()
    messages = [wire.find_one("small", each * 7919 % mongo.SMALL, lsid, is_sharded=True) for each in range(2_000)]
    check = wire.check_found(1)

    def turn() -> float:
        return SECONDS * wire.rate(server.port, messages, connections=CONNECTIONS, seconds=SECONDS, check=check)

    return turn


def _insert_many(server: Server) -> Turn:
    lsid, numbers = wire.session(), iter(range(10**9))
    with mongo._client(server) as client:
        name = mongo._new_collection(client, mongo.ONE_RU)

    def turn() -> float:
        number = next(numbers)
        first = number * mongo.BATCH
        encoded = [bson.encode(wire.document(each)) for each in range(first, first + mongo.BATCH)]
        [received] = wire.once(server.port, [wire.insert(name, encoded, number, is_ordered=True, lsid=lsid)])
        assert wire.answer_of(received).get("n") == mongo.BATCH
        return float(mongo.BATCH)

    return turn


def _wrk(server: Server, script: Callable[[], str]) -> Turn:
    def turn() -> float:
        found = run_wrk(server.port, script(), connections=CONNECTIONS, seconds=1, cpu_pid=server.pid)
        assert not found.errors
        return found.per_s

    return turn


def _vertices(server: Server, *, is_bound: bool) -> Turn:
    messages = [gremlin._point(number, is_bound=is_bound, name="") for number in range(0, VERTICES, 2)]

    def turn() -> float:
        return SECONDS * gremlin_wire.rate(server.port, messages, connections=CONNECTIONS, seconds=SECONDS)

    return turn


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.compare_doors", description=__doc__)
    parser.add_argument("revision", help="the commit beside which the working tree is measured")
    revision: str = parser.parse_args().revision
    print("\n".join(lines(revision, measure(revision, lambda text: print(text, file=sys.stderr)))))


if __name__ == "__main__":
    main()
