"""Stored procedures compared with plain requests: an empty procedure with a point read, and one that creates a hundred
items with a hundred creates, both at durability full. One connection, in turns; the result is the median over rounds of
the ratio of median times. Empty calls and reads are also measured over sixteen connections.
"""

from __future__ import annotations

import json
import socket
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench import load, protocol, servers
from bench.protocol import NUMBER_FIRST, PARTITION_FIRST, container_link, filled, partition_header, request_text, signed
from bench.sections import Aim, Say, row

ITEMS: Final = 100
CONNECTIONS: Final = 16
EMPTY: Final = "function () {}"
IMPORT: Final = """function (documents) {
    var collection = getContext().getCollection(), link = collection.getSelfLink(), count = 0;
    next();
    function next() {
        if (count === documents.length) return getContext().getResponse().setBody(count);
        if (!collection.createDocument(link, documents[count], created)) getContext().getResponse().setBody(count);
    }
    function created(error) { if (error) throw error; count++; next(); }
}"""


@dataclass
class ScriptFigures:
    """Seconds, one for each round."""

    read_s: list[float] = field(default_factory=list)
    empty_s: list[float] = field(default_factory=list)
    import_s: list[float] = field(default_factory=list)
    creates_s: list[float] = field(default_factory=list)
    busy_reads: list[float] = field(default_factory=list)  # per second, over many connections
    busy_calls: list[float] = field(default_factory=list)

    def lines(self) -> Iterable[str]:
        yield ""
        yield "stored procedures, one connection, durability full, ms"
        for name, found in (
            ("point read", self.read_s),
            ("call of an empty procedure", self.empty_s),
            (f"procedure that creates {ITEMS} items of 1 KB", self.import_s),
            (f"{ITEMS} single creates", self.creates_s),
        ):
            yield row(name, [f"{1000 * each:.2f}" for each in found])
        yield ""
        yield f"the same over {CONNECTIONS} connections, each second"
        yield row("point reads", [f"{each:,.0f}" for each in self.busy_reads])
        yield row("calls of an empty procedure", [f"{each:,.0f}" for each in self.busy_calls])

    def aims(self) -> Iterable[Aim]:
        yield Aim("call of an empty procedure / point read", _ratio(self.empty_s, self.read_s), 3, is_most=True)
        yield Aim(f"{ITEMS} single creates / procedure that does it", _ratio(self.creates_s, self.import_s), 3)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, *, is_quick: bool, say: Say) -> ScriptFigures:
    figures = ScriptFigures()
    server = servers.start_armillary(directory)
    try:
        container = server.new_container(range(NUMBER_FIRST, NUMBER_FIRST + ITEMS))
        client = _Client(server.port, container)
        client.store("empty", EMPTY)
        client.store("import", IMPORT)
        client.warm()
        for turn in range(3 if is_quick else 7):
            figures.read_s.append(_median_s(client.read, 300))
            figures.empty_s.append(_median_s(client.run_empty, 300))
            figures.import_s.append(_median_s(client.run_import, 3 if is_quick else 5))
            figures.creates_s.append(_median_s(client.create_all, 2 if is_quick else 3))
            for found, text in ((figures.busy_reads, client.read_text), (figures.busy_calls, client.empty_text)):
                script = load.from_table([text.decode()])
                busy = load.run_wrk(
                    server.port, script, connections=CONNECTIONS, seconds=1 if is_quick else 3, cpu_pid=server.pid
                )
                found.append(busy.per_s)
            empty, times = (
                _ratio(figures.empty_s[-1:], figures.read_s[-1:]),
                figures.creates_s[-1] / figures.import_s[-1],
            )
            say(f"scripts, round {turn + 1}: empty call {empty:.2f} of a read; creates {times:.1f} times slower")
        client.close()
    finally:
        server.stop()
    return figures


def _median_s(call: Callable[[], None], count: int) -> float:
    taken = []
    for _ in range(count):
        begun_s = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun_s)
    return statistics.median(taken)


def _ratio(over: list[float], under: list[float]) -> float:
    return statistics.median([a / b for a, b in zip(over, under, strict=True)])


class _Client:
    """Requests as text over one socket, to keep the client's share of the time small."""

    def __init__(self, port: int, container: str) -> None:
        self._port = port
        self._link = container_link(container)
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        [self.read_text] = [
            each.encode() for each in protocol.read_texts(container, range(NUMBER_FIRST, NUMBER_FIRST + 1))
        ]
        self.empty_text = self._execution("empty", "[]")
        self._create_headers = protocol.create_headers(container)
        self._next = NUMBER_FIRST + 10 * ITEMS

    def store(self, name: str, body: str) -> None:
        path = f"/{self._link}/sprocs"
        protocol.call(self._port, "POST", "sprocs", self._link, path, json.dumps({"id": name, "body": body}), {})

    def warm(self) -> None:
        for call in (self.read, self.run_empty):
            for _ in range(100):
                call()

    def read(self) -> None:
        self._ask(self.read_text)

    def run_empty(self) -> None:
        self._ask(self.empty_text)

    def run_import(self) -> None:
        self._ask(self._execution("import", f"[[{','.join(self._items())}]]"))

    def create_all(self) -> None:
        headers = self._create_headers | partition_header(str(PARTITION_FIRST))
        for body in self._items():
            self._ask(request_text("POST", f"/{self._link}/docs", headers, body, has_holes=False).encode())

    def _items(self) -> list[str]:
        first, self._next = self._next, self._next + ITEMS
        return [filled(protocol.item(), number, PARTITION_FIRST) for number in range(first, first + ITEMS)]

    def _execution(self, name: str, body: str) -> bytes:
        link = f"{self._link}/sprocs/{name}"
        headers = signed("POST", "sprocs", link, partition_header(str(PARTITION_FIRST)))
        return request_text("POST", f"/{link}", headers, body, has_holes=False).encode()

    def _ask(self, text: bytes) -> None:
        self._socket.sendall(text)
        answer = self._socket.recv(1 << 16)
        while b"\r\n\r\n" not in answer:
            answer += self._socket.recv(1 << 16)
        head, _, body = answer.partition(b"\r\n\r\n")
        status = int(head[9:12])
        assert status < 300, answer
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        while len(body) < length:
            body += self._socket.recv(1 << 16)

    def close(self) -> None:
        self._socket.close()
