"""What `GET watch` costs the server for a container of 1,000 partitions: processor time of an answer, and for how long
it holds the event loop. In this process, without sockets: the first answer has all partitions, the later ones the 100
that have changed since.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import orjson

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.clock import VirtualClock
from armillary.doors.control.door import ControlDoor
from armillary.net.http import Request, Response
from bench.portal_browser import CONTROL_KEY
from bench.sections import Aim, row

PARTITIONS: Final = 1_000
CHANGED: Final = 100


@dataclass
class WatchFigures:
    first_ms: list[float] = field(default_factory=list)
    later_ms: list[float] = field(default_factory=list)
    held_ms: float = 0.0
    first_bytes: int = 0
    later_bytes: int = 0

    def lines(self) -> Iterable[str]:
        yield ""
        yield f"portal: watch of {PARTITIONS:,} partitions"
        yield row("", ["cpu ms", "KB"])
        yield row("first answer, compressed", [f"{median(self.first_ms):.2f}", f"{self.first_bytes / 1024:.1f}"])
        yield row(
            f"answer when {CHANGED} have changed", [f"{median(self.later_ms):.2f}", f"{self.later_bytes / 1024:.1f}"]
        )
        yield row("longest hold of the event loop, ms", [f"{self.held_ms:.1f}"])

    def aims(self) -> Iterable[Aim]:
        yield Aim(f"watch, {PARTITIONS:,} partitions, {CHANGED} changed, ms of cpu", median(self.later_ms), 5, True)
        yield Aim("watch, longest hold of the event loop, ms", self.held_ms, 10, True)
        yield Aim("watch, first answer, KB", self.first_bytes / 1024, 150, True)
        yield Aim(f"watch, {CHANGED} changed, KB", self.later_bytes / 1024, 20, True)


async def measure_watch(account: Account, clock: VirtualClock, container: Container, *, times: int) -> WatchFigures:
    """`clock`: the account's, which is moved on by a second before each request, so that figures are compared."""
    figures = WatchFigures()
    door = ControlDoor(account, CONTROL_KEY)
    partitions = list(container.partitions.values())[:: PARTITIONS // CHANGED]
    gc.collect()
    gc.freeze()  # as a server does at its start
    for turn in range(2 * times):
        if turn == times:  # the loop is watched in turns of its own: watching takes processor time too
            held = asyncio.create_task(_longest_hold(figures))
        clock.advance(1)
        first, taken_ms = await _asked(door, 0, b"gzip")
        if turn < times:
            figures.first_ms.append(taken_ms)
        figures.first_bytes = len(first.body)
        number = account.events.number
        clock.advance(1)
        for partition in partitions:
            partition.meter.spend(1.0 + turn, partition.range.low)
        later, taken_ms = await _asked(door, number, b"")
        if turn < times:
            figures.later_ms.append(taken_ms)
        figures.later_bytes = len(later.body)
        (found,) = orjson.loads(later.body)["containers"].values()
        assert len(found["partitions"]) == CHANGED, len(found["partitions"])
    held.cancel()
    with suppress(asyncio.CancelledError):
        await held
    return figures


async def _asked(door: ControlDoor, since: int, accepted: bytes) -> tuple[Response, float]:
    """An answer and the milliseconds of processor time that it took, those of the compressing thread included."""
    headers = {
        b"host": b"127.0.0.1",
        b"authorization": f"Bearer {CONTROL_KEY}".encode(),
        b"accept-encoding": accepted,
    }
    target = f"/_armillary/watch?since={since}&containers=bench/items".encode()
    begun_s = time.process_time()
    response = await door.answer(Request("GET", target, headers, b"", False, "127.0.0.1"))
    taken_ms = (time.process_time() - begun_s) * 1000
    assert response.status == 200, response.body
    return response, taken_ms


async def _longest_hold(figures: WatchFigures) -> None:
    """The longest time, of this thread's processor, between two turns of the loop."""
    before_s = time.thread_time()
    while True:
        await asyncio.sleep(0)
        now_s = time.thread_time()
        figures.held_ms = max(figures.held_ms, (now_s - before_s) * 1000)
        before_s = now_s
