"""Reading change feeds: all changes of a container, page by page over one connection, in both modes. The target is a
number of changes per second; also printed are the rate of a plain read feed of the same items, and the rate that the
server's CPU time alone would allow, which other load on the machine does not affect.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench import protocol, servers
from bench.load import cpu_seconds
from bench.protocol import NUMBER_FIRST, container_link, request_text, signed
from bench.sections import Aim, Say, row

AIM_PER_S: Final = 50_000
_PAGE_ITEMS: Final = 1000
_CONTAINER: Final = "feed"


PLAIN, LATEST, ALL_VERSIONS = "read feed", "change feed, latest version", "change feed, all versions"
MODES: Final = {PLAIN: None, LATEST: "Incremental Feed", ALL_VERSIONS: "Full-Fidelity Feed"}


@dataclass
class FeedFigures:
    """Items or changes a second, one figure for each round."""

    per_s: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MODES})
    per_cpu_s: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MODES})

    def lines(self) -> Iterable[str]:
        yield ""
        yield f"feeds of items of 1 KB, one connection, pages of {_PAGE_ITEMS}, a second"
        for name in MODES:
            yield row(name, [f"{each:,.0f}" for each in self.per_s[name]])
            yield row(f"{name}, a second of the server's processor", [f"{each:,.0f}" for each in self.per_cpu_s[name]])

    def aims(self) -> Iterable[Aim]:
        for name in (LATEST, ALL_VERSIONS):
            yield Aim(f"{name}: changes a second", statistics.median(self.per_s[name]), AIM_PER_S)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, *, is_quick: bool, say: Say) -> FeedFigures:
    count = 20_000 if is_quick else 100_000
    figures = FeedFigures()
    server = servers.start_armillary(directory, "relaxed")
    try:
        protocol.create_database(server.port)
        protocol.create_container(server.port, _CONTAINER, changeFeedPolicy={"retentionDuration": 60})
        numbers = range(NUMBER_FIRST, NUMBER_FIRST + count)
        protocol.preload(server.port, _CONTAINER, numbers, by_batches=True)
        with _Reader(server.port, _CONTAINER) as reader:
            for turn in range(3 if is_quick else 5):
                for name, mode in MODES.items():
                    cpu_s, begun_s = cpu_seconds(server.process.pid), time.perf_counter()
                    reader.read_all(mode, count)
                    figures.per_s[name].append(count / (time.perf_counter() - begun_s))
                    cpu_s = cpu_seconds(server.process.pid) - cpu_s
                    figures.per_cpu_s[name].append(count / max(cpu_s, 0.01))
                    say(f"{name}, round {turn + 1}: {figures.per_s[name][-1]:,.0f}/s")
    finally:
        server.stop()
    return figures


class _Reader:
    """Requests as text over one socket; only the headers of the answers are parsed."""

    def __init__(self, port: int, container: str) -> None:
        self._link = container_link(container)
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._buffer = bytearray(16 << 20)

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def read_all(self, mode: str | None, count: int) -> None:
        """Read the feed from the beginning until this many changes were received."""
        found, position = 0, '"0"' if mode is not None else ""
        while True:
            headers = {"x-ms-max-item-count": str(_PAGE_ITEMS)}
            if mode is not None:
                headers |= {"A-IM": mode, "If-None-Match": position}
            elif position:
                headers["x-ms-continuation"] = position
            status, head = self._ask(headers)
            found += int(head.get(b"x-ms-item-count", b"0"))
            position = head.get(b"etag" if mode is not None else b"x-ms-continuation", b"").decode()
            if status == 304 or not position:
                break
        assert found == count, f"{found} instead of {count}"

    def _ask(self, headers: dict[str, str]) -> tuple[int, dict[bytes, bytes]]:
        text = request_text(
            "GET", f"/{self._link}/docs", signed("GET", "docs", self._link, headers), "", has_holes=False
        )
        self._socket.sendall(text.encode())
        view, end, filled = memoryview(self._buffer), -1, 0
        while end < 0:
            filled += self._socket.recv_into(view[filled:])
            end = self._buffer.find(b"\r\n\r\n", 0, filled)
        lines = bytes(view[:end]).split(b"\r\n")
        head = dict(map(_pair, lines[1:]))
        length = end + 4 + int(head.get(b"content-length", b"0"))
        while filled < length:
            filled += self._socket.recv_into(view[filled:])
        return int(lines[0].split()[1]), head


def _pair(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b": ")
    return name.lower(), value
