"""In-memory snapshots for tests: the time to take a snapshot of a container with 10,000 items, and to restore it after
some of them were written, over the control API of a real server.
"""

from __future__ import annotations

import http.client
import statistics
import time
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench import protocol, servers
from bench.protocol import NUMBER_FIRST
from bench.sections import Aim, Say, row

_ITEMS: Final = 10_000
_CONTAINER: Final = "kept"
_AIM_MS: Final = 20.0
_AIM_CHANGES: Final = 100
CHANGES: Final = (0, _AIM_CHANGES, 1_000, 5_000)
_CONTROL_KEY: Final = b64encode(b"the operator of this run").decode()


@dataclass
class SnapshotFigures:
    """Milliseconds, one figure for each round, by the number of items written between snapshot and restore."""

    taken_ms: dict[int, list[float]] = field(default_factory=lambda: {count: [] for count in CHANGES})
    restored_ms: dict[int, list[float]] = field(default_factory=lambda: {count: [] for count in CHANGES})

    def lines(self) -> Iterable[str]:
        yield ""
        yield f"snapshots in memory of {_ITEMS:,} items of 1 KB, ms"
        yield row("taken", [f"{each:.1f}" for each in self.taken_ms[_AIM_CHANGES]])
        for count, figures in self.restored_ms.items():
            yield row(f"restored after {count:,} writes", [f"{each:.1f}" for each in figures])

    def aims(self) -> Iterable[Aim]:
        taken = statistics.median(self.taken_ms[_AIM_CHANGES])
        yield Aim(f"snapshot of {_ITEMS:,} items taken, ms", taken, _AIM_MS, is_most=True)
        restored = statistics.median(self.restored_ms[_AIM_CHANGES])
        yield Aim(f"restored after {_AIM_CHANGES} writes, ms", restored, _AIM_MS, is_most=True)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, *, is_quick: bool, say: Say) -> SnapshotFigures:
    figures = SnapshotFigures()
    server = servers.start_armillary(directory, "relaxed", _CONTROL_KEY)
    try:
        protocol.create_database(server.port)
        protocol.create_container(server.port, _CONTAINER)
        numbers = range(NUMBER_FIRST, NUMBER_FIRST + _ITEMS)
        protocol.preload(server.port, _CONTAINER, numbers, by_batches=True)
        operator = _Operator(server.port)
        for turn in range(3 if is_quick else 9):
            for count in CHANGES:
                figures.taken_ms[count].append(operator.time_ms("snapshots/x"))
                written = range(NUMBER_FIRST + _ITEMS, NUMBER_FIRST + _ITEMS + count)
                protocol.preload(server.port, _CONTAINER, written, by_batches=True)
                figures.restored_ms[count].append(operator.time_ms("snapshots/x/restore"))
            say(f"snapshots, round {turn + 1}: restored in {figures.restored_ms[_AIM_CHANGES][-1]:.1f} ms")
    finally:
        server.stop()
    return figures


class _Operator:
    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._headers = {"Authorization": f"Bearer {_CONTROL_KEY}"}

    def time_ms(self, path: str) -> float:
        begun_s = time.perf_counter()
        self._connection.request("POST", f"/_armillary/{path}", headers=self._headers)
        response = self._connection.getresponse()
        body = response.read()
        assert response.status < 300, body
        return (time.perf_counter() - begun_s) * 1_000
