"""Virtual time that passes while a test waits: whenever what it waits for sleeps, the clock is advanced to the end of
the earliest sleep. For accounts in memory on an ordinary event loop, which nothing but their clock keeps waiting;
`faults/elastic/simulation.py` has a loop that does the same for a whole test, timers of asyncio included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from armillary.clock import VirtualClock

T = TypeVar("T")
_IDLE_TURNS = 50  # of the loop without an end: more than a chain of tasks that wake one another takes
_SLEEPS_MAX = 20_000


async def passing(clock: VirtualClock, work: Awaitable[T]) -> T:
    """The result of `work`."""
    task = asyncio.ensure_future(work)
    try:
        for _ in range(_SLEEPS_MAX):
            for _ in range(_IDLE_TURNS):
                if task.done():
                    return task.result()
                await asyncio.sleep(0)
            clock.advance(clock.next_wake_s or 0.0)
        raise AssertionError(f"not after {_SLEEPS_MAX} sleeps")
    finally:
        task.cancel()


async def passing_until(clock: VirtualClock, holds: Callable[[], bool], what: str) -> None:
    """Returns when `holds()`; `what` is said when it does not after many sleeps."""
    for turn in range(_SLEEPS_MAX):
        if holds():
            return
        await asyncio.sleep(0)
        if turn % _IDLE_TURNS == 0:
            clock.advance(clock.next_wake_s or 0.0)
    raise AssertionError(f"not after {_SLEEPS_MAX // _IDLE_TURNS} sleeps: {what}")
