"""Splits, merges and crashes under load, in one process, from a seed: nothing is lost, doubled or refused."""

from __future__ import annotations

import asyncio

from faults.elastic.world import World, simulate


async def crashes(world: World, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        await asyncio.sleep(world.dice.uniform(0.05, 0.5))
        await world.crash()


def test_crashes_alone(seed: int) -> None:
    async def run(world: World) -> None:
        await world.open(12_000)
        await world.run(2.0, crashes)

    world = simulate(seed, run)
    print(world.report([]))
