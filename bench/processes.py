"""One server with 1, 2 and 4 processes (`armillary serve --processes N`): rates and processor time of point reads,
creates and indexed queries, what it costs to ask another process, and what the others notice while one stands still or
has a long query. All servers have a container of four partitions; they take turns, and each kind of request is compared
with the server of one process turn by turn. The load generator shares the processors, so its share is given.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench import protocol, queries, servers
from bench.lanes import Lane, Turn, accepted_by, closed_loop, connected, paced, process_ids, run
from bench.protocol import NUMBER_FIRST, PARTITION_FIRST, PARTITIONS
from bench.sections import Aim, Say, row
from bench.servers import Server

READ, LOCAL, CREATE, QUERY = "point read", "point read, in the process that accepted", "create", queries.EQUALITY
KINDS: Final = (READ, LOCAL, CREATE, QUERY)
COUNTS: Final = (1, 2, 4)  # of processes
CONNECTIONS: Final = 32
ITEMS: Final = 10_000
EFFICIENCY, ADDED_MS, STRETCH = 0.85, 0.3, 2  # aims
_LARGE_ITEMS: Final = 100_000  # of the container that long queries read
_THROUGHPUT_RU: Final = 40_000  # four partitions
_VARIANTS: Final = 1000  # of queries
STOPPED, LONG_QUERY = "a process that stands still (SIGSTOP)", "a process with long queries"
STALLS: Final = (STOPPED, LONG_QUERY)
_LONG: Final = "SELECT VALUE COUNT(1) FROM c WHERE CONTAINS(c.note, 'slow')"
_CONTROL_KEY: Final = "YmVuY2ggYmVuY2ggYmVuY2ggYmVuY2ggYmVuY2ggYmU="


@dataclass
class ProcessFigures:
    turns: dict[str, dict[int, list[Turn]]] = field(default_factory=dict)  # by kind and number of processes
    accepted: dict[int, list[int]] = field(default_factory=dict)  # connections of each process, by number of processes
    forwarding_ms: list[tuple[float, float]] = field(default_factory=list)  # p50 here and elsewhere, by connection
    calm_ms: dict[str, list[float]] = field(default_factory=dict)  # p99 before each stall
    stalled_ms: dict[str, list[float]] = field(default_factory=dict)  # p99 during it
    paced_per_s: float = 0.0

    def median(self, kind: str, count: int, name: str) -> float:
        found: float = statistics.median(getattr(each, name) for each in self.turns[kind][count])
        return found

    def efficiency(self, kind: str, count: int) -> float | None:
        """Requests for a second of the servers' processor time, relative to one process, turn by turn."""
        turns = self.turns.get(kind, {})
        if not turns.get(count):
            return None
        return statistics.median(one.cpu_us / other.cpu_us for one, other in zip(turns[1], turns[count], strict=True))

    @property
    def added_ms(self) -> float | None:
        """By asking another process, to the p50 of a point read."""
        if not self.forwarding_ms:
            return None
        return statistics.median(elsewhere - here for here, elsewhere in self.forwarding_ms)

    def stretch(self, stall: str) -> float | None:
        """p99 during a stall over that before it, stall by stall."""
        if not self.calm_ms.get(stall):
            return None
        pairs = zip(self.calm_ms[stall], self.stalled_ms[stall], strict=True)
        return statistics.median(during / before for before, during in pairs)

    def lines(self) -> Iterable[str]:
        yield ""
        yield f"processes: {CONNECTIONS} connections, durability full, four partitions; medians of the turns"
        yield row("", ["a second", "CPU µs", "of one's", "generator"])
        for kind, by_count in self.turns.items():
            for count in by_count:
                cells = [f"{self.median(kind, count, 'per_s'):,.0f}", f"{self.median(kind, count, 'cpu_us'):.0f}"]
                cells += [f"{self.efficiency(kind, count):.2f}", f"{self.median(kind, count, 'generator_share'):.0%}"]
                yield row(f"{kind}, {count} processes", cells)
        for here, elsewhere in self.forwarding_ms:
            yield row("p50 of a point read here and elsewhere, ms", [f"{here:.3f}", f"{elsewhere:.3f}"])
        for stall in self.calm_ms:
            before, during = (statistics.median(each[stall]) for each in (self.calm_ms, self.stalled_ms))
            yield row(f"p99 before and during {stall}, ms", [f"{before:.1f}", f"{during:.1f}"])

    def aims(self) -> Iterable[Aim]:
        for kind in self.turns:
            for count in COUNTS[1:]:
                text = f"{kind}: requests for a processor-second, {count} processes over one"
                yield Aim(text, self.efficiency(kind, count), EFFICIENCY)
        yield Aim("added to the p50 of a point read by forwarding, ms", self.added_ms, ADDED_MS, True)
        for stall in STALLS:
            yield Aim(f"p99 of other partitions during {stall}, over before", self.stretch(stall), STRETCH, True)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, *, is_quick: bool, say: Say) -> ProcessFigures:
    figures = ProcessFigures()
    rounds, seconds = (5, 1.0) if is_quick else (9, 2.0)
    with ExitStack() as opened:
        measured = {}
        for count in COUNTS:
            measured[count] = Divided(directory / f"processes-{count}", count)
            opened.callback(measured[count].server.stop)
        run(_measure_rates(figures, measured, rounds, seconds, say))
        _measure_forwarding(figures, measured[2], 500 if is_quick else 3000, say)
        run(_measure_stalls(figures, measured[4], rounds, seconds, say))
    return figures


class Divided:
    """A server with its container, and the process that holds each item."""

    def __init__(self, directory: Path, count: int) -> None:
        self.count = count
        self.server = servers.start_armillary(directory, control_key=_CONTROL_KEY, processes=count)
        self.container, self.large = "container1", "large"
        protocol.create_database(self.server.port)
        for name, items in ((self.container, ITEMS), (self.large, _LARGE_ITEMS if count == COUNTS[-1] else 0)):
            if items:
                protocol.create_container(self.server.port, name, _THROUGHPUT_RU)
                numbers = range(NUMBER_FIRST, NUMBER_FIRST + items)
                protocol.preload(self.server.port, name, numbers, by_batches=True)
        self._next = NUMBER_FIRST + 10 * ITEMS
        self.holders = _holders(self.server, self.container)  # by logical partition
        self.numbers: dict[int, list[int]] = defaultdict(list)  # of items, by the process that holds them
        for number in range(NUMBER_FIRST, NUMBER_FIRST + ITEMS):
            self.numbers[self.holders[protocol.batched_partition(number)]].append(number)
        self.processes = sorted(self.numbers)

    def reads(self, *processes: int) -> list[bytes]:
        """Of items that these processes hold."""
        numbers = [number for each in processes for number in self.numbers[each]]
        texts = [text.encode() for number in numbers for text in protocol.read_texts(self.container, _only(number))]
        random.Random(len(texts)).shuffle(texts)
        return texts

    def requests(self, kind: str, lanes_of: int) -> Iterator[bytes]:
        """`lanes_of`: the process that has accepted the connection."""
        if kind == CREATE:
            return self._creates()
        if kind == QUERY:
            return itertools.cycle(self._queries())
        return itertools.cycle(self.reads(*([lanes_of] if kind == LOCAL else self.processes)))

    def _creates(self) -> Iterator[bytes]:
        text = protocol.create_text(self.container)
        while True:
            self._next += 1
            yield protocol.filled(text, self._next, PARTITION_FIRST + self._next % PARTITIONS).encode()

    def _queries(self) -> list[bytes]:
        """Each is about one logical partition, as most queries of applications are."""
        found = []
        step = ITEMS // _VARIANTS
        for turn in range(_VARIANTS):
            first = NUMBER_FIRST + turn * step // 10 * 10
            body = json.dumps(
                {"query": queries.TEXTS[QUERY], "parameters": [{"name": "@decade", "value": f"d{first // 10}"}]}
            )
            headers = {"content-type": "application/query+json", "x-ms-documentdb-isquery": "True"}
            headers |= protocol.partition_header(str(protocol.batched_partition(first)))
            found.append(_query_text(self.container, body, headers))
        random.Random(step).shuffle(found)
        return found

    def long_query(self, process: int) -> bytes:
        """It reads all items of a partition that this process holds."""
        held = next(each for each in _partitions(self.server, self.large) if each.get("process", 0) == process)
        headers = {
            "content-type": "application/query+json",
            "x-ms-documentdb-isquery": "True",
            "x-ms-documentdb-partitionkeyrangeid": str(held["id"]),
        }
        return _query_text(self.large, json.dumps({"query": _LONG, "parameters": []}), headers)


async def _measure_rates(
    figures: ProcessFigures, measured: dict[int, Divided], rounds: int, seconds: float, say: Say
) -> None:
    for number in range(rounds + 1):
        for kind in KINDS:
            for count, divided in measured.items():
                if kind == LOCAL and count == 1:
                    turn = figures.turns[READ][1][-1] if number else None  # the same
                else:
                    lanes = await connected(divided.server, CONNECTIONS)
                    await _greet(lanes, divided)
                    owners = accepted_by(divided.server, lanes)
                    figures.accepted[count] = [owners.count(each) for each in divided.processes]
                    turn = await _turn(divided, lanes, owners, kind, seconds)
                    for lane in lanes:
                        lane.close()
                if number and turn is not None:  # the first round warms up
                    figures.turns.setdefault(kind, {}).setdefault(count, []).append(turn)
                    say(f"{kind}, round {number}, {count} processes: {turn.per_s:,.0f}/s, {turn.cpu_us:.0f} µs")


async def _turn(divided: Divided, lanes: Sequence[Lane], owners: Sequence[int], kind: str, seconds: float) -> Turn:
    by_owner = {owner: divided.requests(kind, owner) for owner in set(owners)}
    requests = [by_owner[owner] for owner in owners]
    return await closed_loop(divided.server, lanes, requests, seconds)


async def _greet(lanes: Sequence[Lane], divided: Divided) -> None:
    """A request on each, so that every connection has been accepted."""
    text = divided.reads(divided.processes[0])[0]
    for lane in lanes:
        await lane.ask(text)


def _measure_forwarding(figures: ProcessFigures, divided: Divided, reads: int, say: Say) -> None:
    """One request at a time, over one connection; here and elsewhere take turns."""

    async def compare(lane: Lane, owner: int) -> tuple[float, float]:
        here = itertools.cycle(divided.reads(owner))
        elsewhere = itertools.cycle(divided.reads(*(each for each in divided.processes if each != owner)))
        taken: tuple[list[float], list[float]] = ([], [])
        for number in range(2 * reads):
            text = next(elsewhere if number % 2 else here)
            begun_s = time.perf_counter()
            await lane.ask(text)
            taken[number % 2].append((time.perf_counter() - begun_s) * 1e3)
        return statistics.median(taken[0]), statistics.median(taken[1])

    async def measure_all() -> None:
        lanes = await connected(divided.server, 6)
        await _greet(lanes, divided)
        for lane, owner in zip(lanes, accepted_by(divided.server, lanes), strict=True):
            figures.forwarding_ms.append(await compare(lane, owner))
        for lane in lanes:
            lane.close()

    run(measure_all())
    say(f"forwarding adds {figures.added_ms:.3f} ms to a p50 of {figures.forwarding_ms[0][0]:.3f}")


async def _measure_stalls(figures: ProcessFigures, divided: Divided, rounds: int, seconds: float, say: Say) -> None:
    """Reads of partitions whose process does not stall, over connections that it has not accepted."""
    figures.paced_per_s = figures.median(READ, divided.count, "per_s") / 4
    stalling = divided.processes[-1]
    others = [each for each in divided.processes if each != stalling]
    pid = process_ids(divided.server)[stalling]
    for stall in STALLS:
        for number in range(rounds):
            lanes = await connected(divided.server, CONNECTIONS + 8)
            await _greet(lanes, divided)
            owners = accepted_by(divided.server, lanes)
            texts = itertools.cycle(divided.reads(*others))
            kept = [(lane, texts) for lane, owner in zip(lanes[1:], owners[1:], strict=True) if owner != stalling]
            before = await paced(kept, figures.paced_per_s, seconds)
            if stall == STOPPED:
                os.kill(pid, signal.SIGSTOP)
                try:
                    during = await paced(kept, figures.paced_per_s, seconds)
                finally:
                    os.kill(pid, signal.SIGCONT)
            else:
                with _asking(lanes[0], divided.long_query(stalling)):
                    during = await paced(kept, figures.paced_per_s, seconds)
            figures.calm_ms.setdefault(stall, []).append(_p99(before))
            figures.stalled_ms.setdefault(stall, []).append(_p99(during))
            say(f"{stall}, round {number + 1}: p99 {_p99(before):.1f} ms before, {_p99(during):.1f} during")
            for lane in lanes:
                lane.close()


class _asking:  # noqa: N801 - reads as a function
    """A connection that sends a request again and again until the end of the block."""

    def __init__(self, lane: Lane, request: bytes) -> None:
        self._lane = lane
        self._request = request

    def __enter__(self) -> None:
        self._lane.follow(lambda: self._lane.send(self._request))
        self._lane.send(self._request)

    def __exit__(self, *_: object) -> None:
        self._lane.follow(None)


def _p99(taken_ms: list[float]) -> float:
    return sorted(taken_ms)[len(taken_ms) * 99 // 100]


def _only(number: int) -> range:
    return range(number, number + 1)


def _query_text(container: str, body: str, extra: dict[str, str]) -> bytes:
    link = protocol.container_link(container)
    headers = protocol.signed("POST", "docs", link, extra | {"x-ms-max-item-count": "-1"})
    return protocol.request_text("POST", f"/{link}/docs", headers, body, has_holes=False).encode()


def _partitions(server: Server, container: str) -> list[dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    path = f"/_armillary/databases/{protocol.DATABASE}/containers/{container}/partitions"
    connection.request("GET", path, headers={"authorization": f"Bearer {_CONTROL_KEY}"})
    found: list[dict[str, Any]] = json.loads(connection.getresponse().read())["partitions"]
    connection.close()
    return found


def _holders(server: Server, container: str) -> dict[int, int]:
    """The process that holds each logical partition of the container."""
    processes = {str(each["id"]): each.get("process", 0) for each in _partitions(server, container)}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    found = {}
    for number in range(NUMBER_FIRST, NUMBER_FIRST + ITEMS, protocol.BATCH_ITEMS):
        partition = protocol.batched_partition(number)
        link = f"{protocol.container_link(container)}/docs/item-{number}"
        headers = protocol.signed("GET", "docs", link, protocol.partition_header(str(partition)))
        connection.request("GET", "/" + link, headers=headers)
        answer = connection.getresponse()
        answer.read()
        found[partition] = processes[answer.getheader("x-ms-documentdb-partitionkeyrangeid") or ""]
    connection.close()
    return found
