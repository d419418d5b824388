"""Partition splits: how fast a partition is copied on an idle server, and how a split affects clients under load.

One server, two containers of the same size. The first is split without other load. The second is read and written over
several connections for some seconds, and then during its split; the latency of every request is recorded, and the
maximum is the longest pause that a client saw.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import secrets
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench import protocol, servers
from bench.protocol import DATABASE, NUMBER_FIRST, PARTITION, batched_partition, filled
from bench.servers import Server

CONNECTIONS: Final = 16
WRITES_SHARE: Final = 0.3
_POLL_S: Final = 0.005


@dataclass
class SplitFigures:
    items: int
    copied_per_s: float
    balance: float  # the smaller child's share of the bytes
    before_p99_ms: float
    during_p99_ms: float
    longest_ms: float  # of any answer during the split
    longest_write_ms: float
    during_s: float
    requests_per_s: tuple[float, float]  # before and during

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, items: int, *, seconds: float, say: Callable[[str], None]) -> SplitFigures:
    key = b64encode(secrets.token_bytes(32)).decode()
    server = servers.start_armillary(directory, control_key=key)
    try:
        numbers = range(NUMBER_FIRST, NUMBER_FIRST + items)
        control = _Control(server, key)
        first = server.new_container(numbers)
        say(f"split: {items:,} items loaded")
        begun_s = time.monotonic()
        control.split(first)
        taken_s = time.monotonic() - begun_s
        balance = control.balance(first)
        say(f"split of an idle container: {items / taken_s:,.0f} items/s, {balance:.0%} in the smaller child")
        second = server.new_container(numbers)
        load = _Load(server.port, second, numbers)
        figures = asyncio.run(load.run(seconds, lambda: control.split(second)))
        before, during = figures
        during_s = max(each.end_s for each in during) - min(each.end_s - each.taken_s for each in during)
        return SplitFigures(
            items,
            items / taken_s,
            balance,
            _percentile_ms(before, 0.99),
            _percentile_ms(during, 0.99),
            1000 * max(each.taken_s for each in during),
            1000 * max(each.taken_s for each in during if each.is_write),
            during_s,
            (len(before) / seconds, len(during) / during_s),
        )
    finally:
        server.stop()


def lines(figures: SplitFigures) -> Iterator[str]:
    yield ""
    yield f"split of a partition with {figures.items:,} items of 1 KB, {CONNECTIONS} connections reading and writing"
    yield f"  copied without load: {figures.copied_per_s:,.0f} items/s; the smaller child has {figures.balance:.1%}"
    before, during = figures.requests_per_s
    yield f"  requests/s: {before:,.0f} before, {during:,.0f} during the {figures.during_s:.1f} s that it took"
    yield f"  99th percentile: {figures.before_p99_ms:.1f} ms before, {figures.during_p99_ms:.1f} ms during"
    yield f"  longest answer during it: {figures.longest_ms:.0f} ms, of a write {figures.longest_write_ms:.0f} ms"


@dataclass(frozen=True, slots=True)
class _Answer:
    end_s: float
    taken_s: float
    is_write: bool


class _Control:
    def __init__(self, server: Server, key: str) -> None:
        self._port = server.port
        self._key = key

    def _ask(self, verb: str, path: str, body: dict[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        headers = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        text = json.dumps(body) if body is not None else None
        connection.request(verb, f"/_armillary/databases/{DATABASE}/containers/{path}", text, headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        assert response.status < 300, (verb, path, response.status, content)
        return json.loads(content) if content else None

    def split(self, container: str) -> None:
        """Split a container; returns when the children serve requests."""
        self._ask("POST", f"{container}/split", {})
        while self._ask("GET", f"{container}/reshapes")["reshapes"]:
            time.sleep(_POLL_S)

    def balance(self, container: str) -> float:
        sizes: list[int] = [each["bytes"] for each in self._ask("GET", f"{container}/partitions")["partitions"]]
        assert len(sizes) == 2
        return min(sizes) / sum(sizes)


class _Load:
    """Clients that read and write single items, each with one request in flight."""

    def __init__(self, port: int, container: str, numbers: range) -> None:
        self._port = port
        self._container = container
        self._numbers = numbers
        self._answers: list[_Answer] = []
        self._is_over = False

    async def run(self, seconds: float, split: Callable[[], None]) -> tuple[list[_Answer], list[_Answer]]:
        clients = [asyncio.create_task(self._client(random.Random(number))) for number in range(CONNECTIONS)]
        await asyncio.sleep(0.5)
        self._answers.clear()
        await asyncio.sleep(seconds)
        before, self._answers = self._answers, []
        await asyncio.to_thread(split)
        self._is_over = True
        await asyncio.gather(*clients)
        return before, self._answers

    async def _client(self, dice: random.Random) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        item = protocol.item()
        headers = protocol.create_headers(self._container, {"x-ms-documentdb-is-upsert": "True"})
        feed = f"/{protocol.container_link(self._container)}/docs"
        revision = NUMBER_FIRST
        while not self._is_over:
            number = dice.choice(self._numbers)
            partition = batched_partition(number)
            is_write = dice.random() < WRITES_SHARE
            if is_write:
                revision += 1
                body = filled(item, number, partition, revision)
                lines_ = {name: value.replace(PARTITION, str(partition)) for name, value in headers.items()}
                text = protocol.request_text("POST", feed, lines_, body, has_holes=False)
            else:
                text = next(protocol.read_texts(self._container, range(number, number + 1)))
            begun_s = time.monotonic()
            writer.write(text.encode())
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head[9:12])
            assert status in (200, 201), head
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            end_s = time.monotonic()
            self._answers.append(_Answer(end_s, end_s - begun_s, is_write))
        writer.close()


def _percentile_ms(answers: list[_Answer], share: float) -> float:
    times_s = sorted(each.taken_s for each in answers)
    return 1000 * times_s[int(len(times_s) * share)]
