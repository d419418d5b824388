"""A load generator in this process: connections (lanes) to one server, each with one request in flight. In a closed
loop a lane sends the next request when it has the answer; paced, all lanes together keep a rate, and an answer's time
counts from when its request was due. It needs no wrk, and tells which process of the server has accepted a connection.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import uvloop

from bench.compare import thread_cpu_ns
from bench.servers import Server

ANSWER_S: Final = 90.0
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)
_IS_DONE: Final = (b"HTTP/1.1 200 ", b"HTTP/1.1 201 ")

Requests = Iterator[bytes]


@dataclass(frozen=True)
class Turn:
    """Some seconds of load on one server."""

    requests: int
    wall_s: float
    server_cpu_s: float  # of all its processes
    generator_cpu_s: float

    @property
    def per_s(self) -> float:
        return self.requests / self.wall_s

    @property
    def cpu_us(self) -> float:
        """Of the server, for each request."""
        return self.server_cpu_s * 1e6 / self.requests

    @property
    def generator_share(self) -> float:
        """Of the processor time that the server and the generator have used."""
        return self.generator_cpu_s / (self.generator_cpu_s + self.server_cpu_s)


class Lane(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._received = b""
        self._wanted_bytes = 0
        self._on_answer: Callable[[], None] | None = None

    @property
    def port(self) -> int:
        """Of this end."""
        assert self._transport is not None
        port: int = self._transport.get_extra_info("sockname")[1]
        return port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._transport.write(request)

    async def ask(self, request: bytes) -> bytes:
        self._answer = asyncio.get_running_loop().create_future()
        self.send(request)
        return await self._answer

    def follow(self, on_answer: Callable[[], None] | None) -> None:
        """What is called with each answer, in a closed loop."""
        self._on_answer = on_answer

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        if len(received) < self._wanted_bytes:
            self._received = received
            return
        end = received.find(b"\r\n\r\n")
        length = _LENGTH.search(received, 0, end + 2) if end >= 0 else None
        size = end + 4 + int(length[1]) if length is not None else len(received) + 1
        if len(received) < size:
            self._received, self._wanted_bytes = received, size
            return
        self._received, self._wanted_bytes = b"", 0
        if not received.startswith(_IS_DONE):
            raise SystemExit(f"a request of the benchmark was answered with: {received[:400]!r}")
        if self._answer is not None:
            self._answer.set_result(received)
            self._answer = None
        elif self._on_answer is not None:
            self._on_answer()

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


async def connected(server: Server, count: int) -> list[Lane]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Lane, "127.0.0.1", server.port))[1] for _ in range(count)]


async def closed_loop(server: Server, lanes: Sequence[Lane], requests: Sequence[Requests], seconds: float) -> Turn:
    """As many requests as the lanes can send one after the other; each has its own, or shares them."""
    count, running = 0, len(lanes)
    all_done = asyncio.get_running_loop().create_future()
    ends_s = time.perf_counter() + seconds

    def followed(lane: Lane, requests: Requests) -> Callable[[], None]:
        def go_on() -> None:
            nonlocal count, running
            count += 1
            if time.perf_counter() < ends_s:
                lane.send(next(requests))
                return
            running -= 1
            if not running:
                all_done.set_result(None)

        return go_on

    for lane, given in zip(lanes, requests, strict=True):
        lane.follow(followed(lane, given))
    before_s, own_before_s, begun_s = server_cpu_s(server), time.process_time(), time.perf_counter()
    for lane, given in zip(lanes, requests, strict=True):
        lane.send(next(given))
    async with asyncio.timeout(seconds + ANSWER_S):
        await all_done
    wall_s = time.perf_counter() - begun_s
    return Turn(count, wall_s, server_cpu_s(server) - before_s, time.process_time() - own_before_s)


async def paced(lanes: Sequence[tuple[Lane, Requests]], per_s: float, seconds: float) -> list[float]:
    """How long the answers took, in milliseconds, with a request due each 1/`per_s` seconds, lane by lane in turn. One
    that is due while its lane waits for an answer is sent late, and its time counts all the same."""
    begun_s = time.perf_counter()
    taken_ms: list[float] = []

    async def drive(lane: Lane, requests: Requests, offset: int) -> None:
        for number in range(offset, int(per_s * seconds), len(lanes)):
            due_s = begun_s + number / per_s
            early_s = due_s - time.perf_counter()
            if early_s > 0:
                await asyncio.sleep(early_s)
            await lane.ask(next(requests))
            taken_ms.append((time.perf_counter() - due_s) * 1e3)

    async with asyncio.timeout(seconds + ANSWER_S):
        await asyncio.gather(*(drive(lane, requests, offset) for offset, (lane, requests) in enumerate(lanes)))
    return taken_ms


def run(work: Coroutine[Any, Any, None]) -> None:
    uvloop.run(work)


# Processes of the server.


def process_ids(server: Server) -> dict[int, int]:
    """By their numbers. Of a server with one process: the server itself."""
    found = {}
    for pid in _children(server.pid):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\x00")
        if b"armillary.tools.serving.processes.start" in words:
            found[int(words[-2])] = pid
    return found or {0: server.pid}


def server_cpu_s(server: Server) -> float:
    """Of all its processes so far."""
    return sum(sum(thread_cpu_ns(pid).values()) for pid in _family(server.pid)) / 1e9


def _family(pid: int) -> Iterable[int]:
    yield pid
    for child in _children(pid):
        yield from _family(child)


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]


def accepted_by(server: Server, lanes: Sequence[Lane]) -> list[int]:
    """The number of the process that has accepted each lane's connection (Linux)."""
    inodes: dict[int, str] = {}  # of the server's sockets, by the port at our end
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[1].rpartition(":")[2], 16) == server.port:
            inodes[int(words[2].rpartition(":")[2], 16)] = words[9]
    owners = {}
    for number, pid in process_ids(server).items():
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            try:
                owners[os.readlink(handle)] = number
            except OSError:
                continue  # it was closed meanwhile
    return [owners[f"socket:[{inodes[lane.port]}]"] for lane in lanes]
