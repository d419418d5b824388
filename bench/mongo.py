"""The MongoDB API: single documents compared with a server that only decodes and encodes, bulk inserts compared with
the engine itself, finds through an index, and a grouping pipeline; all of it compared with FerretDB on SQLite if Go can
build it.

`python -m bench.mongo`, or `make bench ARGS="--only mongo"`. The servers take turns; ratios are taken per round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Final, Self

import bson
from pymongo import MongoClient

from bench import mongo_wire as wire
from bench import servers
from bench.idle import memory_mb
from bench.load import cpu_seconds
from bench.mongo_ceiling import BATCH
from bench.sections import Aim, Say, Section, row
from bench.servers import ROOT, Server, Unavailable

ARMILLARY, ECHO, FERRET = "armillary, full", "bare OP_MSG", "ferretdb, sqlite"
ONE_RU, FOUR_RU = 400, 24_000  # what makes one partition, and four
SMALL: Final = 10_000
GROUP: Final = [{"$group": {"_id": "$region", "count": {"$sum": 1}, "total": {"$sum": "$amount"}}}]

READ_RAW = "find_one by _id and shard key, raw messages, 16 connections, requests/s"
READ_PYMONGO = "find_one by _id and shard key, pymongo, requests/s"
FIND_RAW = "find by an indexed field, 10 of 10,000 documents, raw messages, requests/s"
GROUPED = "aggregate $group, documents/s"


@dataclass(frozen=True)
class Plan:
    seconds: float  # of one measurement
    rounds: int
    large: int


FULL = Plan(seconds=3, rounds=5, large=100_000)
QUICK = Plan(seconds=1, rounds=3, large=20_000)


@dataclass
class Figures:
    large: int
    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # by contest and contestant
    cpu_us: dict[str, dict[str, list[float]]] = field(
        default_factory=dict
    )  # of the server, for each request or document
    skipped: list[str] = field(default_factory=list)
    group_first_mb: float = 0.0  # before the pipeline ran for the first time
    group_peak_mb: float = 0.0

    def note(self, contest: str, contestant: str, per_s: float, cpu_us: float | None, say: Say) -> None:
        self.rates.setdefault(contest, {}).setdefault(contestant, []).append(per_s)
        if cpu_us is not None:
            self.cpu_us.setdefault(contest, {}).setdefault(contestant, []).append(cpu_us)
        say(f"{contest}: {contestant} {per_s:,.1f}/s")

    def ratio(self, contest: str, over: str, under: str) -> float | None:
        """The median of the ratios of each round."""
        table = self.rates.get(contest, {})
        pairs = zip(table.get(over, []), table.get(under, []), strict=False)
        ratios = [above / below for above, below in pairs if below]
        return statistics.median(ratios) if ratios else None

    def cpu_ratio(self, contest: str, mine: str, other: str) -> float | None:
        """By CPU time, which other load on the machine affects less."""
        table = self.cpu_us.get(contest, {})
        ratios = [b / a for a, b in zip(table.get(mine, []), table.get(other, []), strict=False) if a]
        return statistics.median(ratios) if ratios else None

    def lines(self) -> Iterator[str]:
        yield ""
        yield "MongoDB (medians of the rounds; documents of 1 KB): rate; processor time of the server for each, µs"
        yield from [f"Skipped: {reason}." for reason in self.skipped]
        for contest, table in self.rates.items():
            yield f"  {contest}"
            for name, rates in table.items():
                median = statistics.median(rates)
                cpu_us = self.cpu_us.get(contest, {}).get(name)
                cells = [f"{median:,.0f}" if median >= 100 else f"{median:,.1f}"]
                yield row(f"  {name}", [*cells, f"{statistics.median(cpu_us):.0f}" if cpu_us else ""])
            for other in [name for name in table if name not in (ARMILLARY, "armillary, pymongo")]:
                for mine in [name for name in table if name.startswith("armillary")]:
                    ratios = [self.ratio(contest, mine, other), self.cpu_ratio(contest, mine, other)]
                    yield row(f"    {mine} / {other}", ["-" if each is None else f"{each:.2f}" for each in ratios])
        yield f"  Peak memory of the pipeline over {self.large:,} documents above before: {self._grown_mb:.0f} MB."

    @property
    def _grown_mb(self) -> float:
        return self.group_peak_mb - self.group_first_mb

    def aims(self) -> Iterable[Aim]:
        for contest in (READ_RAW, READ_PYMONGO):
            yield Aim(f"{contest.rpartition(',')[0]} / {ECHO}", self.ratio(contest, ARMILLARY, ECHO), 0.4)
        for contest in self.rates:
            if contest.startswith("insert"):
                for mine in (ARMILLARY, "armillary, pymongo"):
                    found = self.ratio(contest, mine, "engine, from documents")
                    yield Aim(f"{mine.partition(', ')[2]}: {contest.rpartition(',')[0]} / engine", found, 0.6)
        yield Aim("peak memory of $group above before, MB", self._grown_mb, 200, is_most=True)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, *, is_quick: bool, say: Say) -> Section:
    plan = QUICK if is_quick else FULL
    figures = Figures(plan.large)
    with ExitStack() as opened:
        mine = servers.start_mongo(directory / "armillary", "full")
        opened.callback(mine.stop)
        echo = servers.start_mongo_echo()
        opened.callback(echo.stop)
        contestants = {ARMILLARY: mine}
        try:
            contestants[FERRET] = servers.start_ferret(directory / "ferret")
            opened.callback(contestants[FERRET].stop)
        except Unavailable as reason:
            figures.skipped.append(str(reason))
            say(f"skipped: {reason}")
        for name, server in contestants.items():
            _fill(server, "small", SMALL, is_armillary=name == ARMILLARY)
            say(f"{name}: {SMALL:,} documents loaded")
        for _ in range(plan.rounds):
            _reads(figures, {ECHO: echo, **contestants}, plan, say)
            _finds(figures, contestants, plan, say)
            _inserts(figures, directory, contestants, plan, say)
        _groups(figures, contestants, plan, say)
    return figures


def _fill(server: Server, collection: str, count: int, *, is_armillary: bool) -> None:
    with _client(server) as client:
        database = client[wire.DATABASE]
        if is_armillary:
            database.client.admin.command("shardCollection", f"{wire.DATABASE}.{collection}", key={"region": "hashed"})
        for first in range(0, count, BATCH):
            database[collection].insert_many([wire.document(each) for each in range(first, min(first + BATCH, count))])
        database[collection].create_index("decade")


def _client(server: Server) -> MongoClient[dict[str, Any]]:
    return MongoClient("127.0.0.1", server.port, directConnection=True)


class _Work:
    """Measures the CPU time of a server during a block."""

    def __init__(self, server: Server) -> None:
        self._pid = server.pid
        self._seconds = 0.0

    def __enter__(self) -> Self:
        self._seconds = -cpu_seconds(self._pid)
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds += cpu_seconds(self._pid)

    def each_us(self, count: float) -> float | None:
        return self._seconds / count * 1e6 if count else None


# Single documents, and few of them.


def _reads(figures: Figures, contestants: dict[str, Server], plan: Plan, say: Say) -> None:
    lsid = wire.session()
    for name, server in contestants.items():
        numbers = [each * 7919 % SMALL for each in range(2_000)]
        messages = [wire.find_one("small", each, lsid, is_sharded=name != FERRET) for each in numbers]
        check = wire.check_found(1)
        with _Work(server) as work:
            found = wire.rate(server.port, messages, connections=16, seconds=plan.seconds, check=check)
        figures.note(READ_RAW, name, found, work.each_us(found * plan.seconds), say)
    for name, server in contestants.items():
        with _client(server) as client:
            collection = client[wire.DATABASE]["small"]

            def read(number: int) -> None:
                wanted = wire.key_of(number, is_sharded=name != FERRET)  # noqa: B023 - called before the loop goes on
                if collection.find_one(wanted) is None:  # noqa: B023
                    raise RuntimeError(f"{number} was not found")

            figures.note(READ_PYMONGO, name, _times(read, plan.seconds), None, say)


def _times(run: Callable[[int], None], seconds: float) -> float:
    count, begun_s = 0, time.perf_counter()
    while (taken_s := time.perf_counter() - begun_s) < seconds or not count:
        run(count * 7919 % SMALL)
        count += 1
    return count / taken_s


def _finds(figures: Figures, contestants: dict[str, Server], plan: Plan, say: Say) -> None:
    lsid = wire.session()
    messages = [wire.find_decade("small", each, lsid) for each in range(SMALL // 10)]
    for name, server in contestants.items():
        check = wire.check_found(10)
        begun_s = time.perf_counter()
        for count, answer in enumerate(wire.once(server.port, cycle(messages)), 1):
            taken_s = time.perf_counter() - begun_s
            if taken_s >= plan.seconds:
                break
            if count % 64 == 1:
                check(answer)
        figures.note(FIND_RAW, name, count / taken_s, None, say)


# Bulk inserts.


def _inserts(figures: Figures, directory: Path, contestants: dict[str, Server], plan: Plan, say: Say) -> None:
    for partitions, throughput_ru in ((1, ONE_RU), (4, FOUR_RU)):
        for is_ordered in (True, False):
            shown = f"{'ordered' if is_ordered else 'unordered'}, {partitions} partition{'s' * (partitions > 1)}"
            contest = f"insert_many of {BATCH:,} {shown}, documents/s"
            for kind, (per_s, cpu_us) in _ceilings(directory, throughput_ru, plan.seconds).items():
                figures.note(contest, f"engine, from {kind}", per_s, cpu_us, say)
            mine = contestants[ARMILLARY]
            with _Work(mine) as work:
                per_s, count = _raw_inserts(mine, throughput_ru, is_ordered, plan.seconds)
            figures.note(contest, ARMILLARY, per_s, work.each_us(count), say)
            for name, server in contestants.items():
                if name == ARMILLARY or partitions == 1:
                    found = _pymongo_inserts(server, throughput_ru if name == ARMILLARY else None, is_ordered, plan)
                    shown = "armillary, pymongo" if name == ARMILLARY else f"{name}, pymongo"
                    figures.note(contest, shown, found, None, say)


def _ceilings(directory: Path, throughput_ru: int, seconds: float) -> dict[str, tuple[float, float]]:
    with tempfile.TemporaryDirectory(dir=directory) as place:
        arguments = [f"{place}/stored", "full", str(throughput_ru), f"{seconds:g}"]
        command = [sys.executable, "-m", "bench.mongo_ceiling", *arguments]
        outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    found: dict[str, tuple[float, float]] = json.loads(outcome.stdout)
    return found


def _new_collection(client: MongoClient[dict[str, Any]], throughput_ru: int | None) -> str:
    name = f"inserted{time.monotonic_ns()}"
    if throughput_ru is not None:
        client[wire.DATABASE].command(
            {
                "customAction": "CreateCollection",
                "collection": name,
                "shardKey": "region",
                "offerThroughput": throughput_ru,
            }
        )
    return name


def _raw_inserts(server: Server, throughput_ru: int, is_ordered: bool, seconds: float) -> tuple[float, int]:
    """Prepared messages as insert_many sends them. Returns documents per second, and their number."""
    lsid = wire.session()
    count, spent_s = 0, 0.0
    with _client(server) as client:
        name = _new_collection(client, throughput_ru)
        while spent_s < seconds:
            first = count * BATCH
            encoded = [bson.encode(wire.document(each)) for each in range(first, first + BATCH)]
            message = wire.insert(name, encoded, count, is_ordered=is_ordered, lsid=lsid)
            begun_s = time.perf_counter()
            [received] = wire.once(server.port, [message])
            spent_s += time.perf_counter() - begun_s
            answer = wire.answer_of(received)
            if answer.get("n") != BATCH:
                raise RuntimeError(f"an insert was answered with {answer}")
            count += 1
    return count * BATCH / spent_s, count * BATCH


def _pymongo_inserts(server: Server, throughput_ru: int | None, is_ordered: bool, plan: Plan) -> float:
    count, spent_s = 0, 0.0
    with _client(server) as client:
        name = _new_collection(client, throughput_ru)
        collection = client[wire.DATABASE][name]
        while spent_s < plan.seconds:
            documents = [wire.document(each) for each in range(count * BATCH, (count + 1) * BATCH)]
            begun_s = time.perf_counter()
            collection.insert_many(documents, ordered=is_ordered)
            spent_s += time.perf_counter() - begun_s
            count += 1
        collection.drop()
    return count * BATCH / spent_s


# A pipeline over everything.


def _groups(figures: Figures, contestants: dict[str, Server], plan: Plan, say: Say) -> None:
    for name, server in contestants.items():
        _fill(server, "large", plan.large, is_armillary=name == ARMILLARY)
        say(f"{name}: {plan.large:,} documents loaded")
    figures.group_first_mb = memory_mb(contestants[ARMILLARY].pid)
    for _ in range(plan.rounds):
        for name, server in contestants.items():
            with _client(server) as client:
                collection = client[wire.DATABASE]["large"]
                begun_s = time.perf_counter()
                found = list(collection.aggregate(GROUP))
                taken_s = time.perf_counter() - begun_s
            if len(found) != wire.REGIONS or sum(each["count"] for each in found) != plan.large:
                raise RuntimeError(f"{name}: the pipeline gave {found[:3]}")
            figures.note(GROUPED, name, plan.large / taken_s, None, say)
    figures.group_peak_mb = memory_mb(contestants[ARMILLARY].pid, "VmHWM")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.mongo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter, and with 20,000 documents instead of 100,000")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="armillary-bench-mongo-") as place:
        figures = measure(Path(place), is_quick=options.quick, say=say)
    print("\n".join([*figures.lines(), "", *[aim.line() for aim in figures.aims()]]))
    if options.json is not None:
        options.json.write_text(json.dumps(figures.to_json(), indent=1) + "\n")


if __name__ == "__main__":
    main()
