"""A virtual clock's sleeps end when it is advanced, in the order of their ends."""

from __future__ import annotations

import asyncio

from armillary.clock import MovableClock, SystemClock, VirtualClock


async def test_sleeps_end_when_the_virtual_clock_is_advanced() -> None:
    clock, woken = VirtualClock(), list[str]()

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    tasks = [asyncio.create_task(sleep(*each)) for each in (("late", 2.0), ("early", 1.0), ("cancelled", 1.0))]
    await asyncio.sleep(0)
    tasks.pop().cancel()
    clock.advance(0.5)
    await asyncio.sleep(0)
    assert woken == []
    clock.advance(2.0)
    await asyncio.gather(*tasks)
    assert woken == ["early", "late"]


async def test_real_clocks_sleep() -> None:
    clock = MovableClock()
    clock.freeze()
    await clock.sleep(0.001)
    await SystemClock().sleep(0.001)
