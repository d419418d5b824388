"""What hostile requests are judged by, for every door: legal requests that are meant to stop the others or to take the
memory. In process (`watched`) by the units of work between two turns of the event loop and by the memory counted; in a
server process (`Bystander`, `soak`) by the clock of a client that reads an item again and again meanwhile, and by the
processor time for which the server's event loop was held, which tells a finding from what else the machine does.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from hostile import watched_server

from armillary import work

STALL_UNITS_MAX = 500_000  # between two turns: half of the 100 ms that a point read may wait
STALL_MS_MAX = 100.0  # of a point read in the soak
ATTEMPTS = 3  # of a request during which a read was slow though the loop was not held: is it slow each time?
GROWTH_MB_MAX = 256
_PAGE_BYTES = 4096


@dataclass
class Watched:
    """What one request took of the others."""

    units: int = 0  # the most between two turns of the event loop
    cpu_ms: float = 0.0  # the same in time of the processor, for those who write evaluators


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    seen = Watched()
    before, work.longest_units = work.longest_units, 0

    async def beat() -> None:
        last_s = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now_s = time.thread_time()
            seen.cpu_ms = max(seen.cpu_ms, (now_s - last_s) * 1000)
            last_s = now_s

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0)
    try:
        yield seen
    finally:
        beating.cancel()
        seen.units = work.longest_units
        work.longest_units = max(before, work.longest_units)


# A server process.


class Bystander:
    """A client in a process of its own that does point reads one after the other and tells how long they took.
    `program` is its source: it writes the milliseconds of its slowest read as a line, whenever it reads a line."""

    def __init__(self, program: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def slowest_ms(self) -> float:
        """Since it was asked last."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Holds:
    """How long a server that runs as `watched_server.py` held its event loop, by the processor time of its thread."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "holds"
        self._path.write_bytes(watched_server.FORMAT.pack(0.0))
        self.program = (watched_server.__file__, str(self._path))

    def begin(self) -> None:
        with self._path.open("r+b") as file:
            file.write(watched_server.FORMAT.pack(0.0))

    def longest_ms(self) -> float:
        return float(watched_server.FORMAT.unpack(self._path.read_bytes())[0])


class Memory:
    """The greatest resident size of a process since `begin`, looked at every few milliseconds."""

    def __init__(self, process_id: int) -> None:
        self._path = Path(f"/proc/{process_id}/statm")
        self._peak_mb = self._first_mb = 0
        self._is_over = False
        threading.Thread(target=self._watch, daemon=True).start()

    def _now_mb(self) -> int:
        return int(self._path.read_text().split()[1]) * _PAGE_BYTES // 2**20

    def _watch(self) -> None:
        with contextlib.suppress(OSError, IndexError):
            while not self._is_over:
                self._peak_mb = max(self._peak_mb, self._now_mb())
                time.sleep(0.005)

    def begin(self) -> None:
        self._first_mb = self._peak_mb = self._now_mb()

    def growth_mb(self) -> int:
        return max(self._peak_mb, self._now_mb()) - self._first_mb

    def close(self) -> None:
        self._is_over = True


@dataclass
class Verdict:
    name: str
    status: int
    seconds: float
    stall_ms: float
    hold_ms: float  # of the event loop, in time of the processor
    growth_mb: int

    @property
    def is_unexplained(self) -> bool:
        """A read was slow, and the server's event loop had its turns."""
        return self.stall_ms > STALL_MS_MAX and self.hold_ms <= STALL_MS_MAX / 2

    @property
    def problems(self) -> list[str]:
        found = []
        if self.status >= 500 or self.status == 0:
            found.append(f"{self.name}: answered with {self.status}")
        if self.stall_ms > STALL_MS_MAX:
            found.append(f"{self.name}: a point read took {self.stall_ms:.0f} ms")
        if self.hold_ms > STALL_MS_MAX:
            found.append(f"{self.name}: the event loop was held for {self.hold_ms:.0f} ms of processor time")
        if self.growth_mb > GROWTH_MB_MAX:
            found.append(f"{self.name}: memory grew by {self.growth_mb} MB")
        return found


def judged(
    name: str, send: Callable[[], int], bystander: Bystander, memory: Memory, holds: Holds, attempts: int = ATTEMPTS
) -> Verdict:
    """Send a request and look at what it did. `send` gives the status. A slow read that the server's processor time
    does not explain may be the machine's: the request is sent again, and the best attempt counts."""
    best = _judged_once(name, send, bystander, memory, holds)
    for _ in range(attempts - 1):
        if not best.is_unexplained:
            break
        again = _judged_once(name, send, bystander, memory, holds)
        best = min(best, again, key=lambda verdict: verdict.stall_ms)
    return best


def _judged_once(name: str, send: Callable[[], int], bystander: Bystander, memory: Memory, holds: Holds) -> Verdict:
    bystander.slowest_ms()
    memory.begin()
    holds.begin()
    begun_s = time.monotonic()
    status = send()
    seconds = time.monotonic() - begun_s
    time.sleep(0.02)  # the read that was under way
    return Verdict(name, status, seconds, bystander.slowest_ms(), holds.longest_ms(), memory.growth_mb())


def table(verdicts: Iterable[Verdict]) -> str:
    lines = [f"{'request':58s} {'answer':>22s} {'slowest read':>13s} {'held (cpu)':>13s} {'memory':>8s}"]
    for each in verdicts:
        word = "answered" if each.status < 300 else "refused"
        lines.append(
            f"{each.name[:58]:58s} {f'{word} {each.status} ({each.seconds:.2f} s)':>22s} {each.stall_ms:10.1f} ms "
            f"{each.hold_ms:10.1f} ms {each.growth_mb:5d} MB"
        )
    return "\n".join(lines)
