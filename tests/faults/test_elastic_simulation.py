"""Splits, merges and crashes under load, in one process, from a seed: nothing is lost, doubled or refused."""

from __future__ import annotations

import asyncio

import pytest
from faults.elastic.world import World, simulate

from armillary.errors import Failure, Kind

SEEDS = 5
RANGES_MAX = 7


async def crashes(world: World, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        await asyncio.sleep(world.dice.uniform(0.05, 0.5))
        await world.crash()


async def reshapes(world: World, stopping: asyncio.Event) -> None:
    """Splits where there are few ranges, merges where there are many, wherever it hits."""
    while not stopping.is_set():
        await asyncio.sleep(world.dice.uniform(0, 0.1))
        await reshape(world)


async def reshape(world: World) -> None:
    account = world.place.account
    if account is None:
        return
    container = account.owner_container(*world.place.names)
    ranges = container.map.ranges
    at = world.dice.randrange(len(ranges))
    try:
        if at + 1 < len(ranges) and world.dice.random() < len(ranges) / RANGES_MAX:
            await world.ask(account.reshaper.merge(container, ranges[at].id, ranges[at + 1].id))
        else:
            await world.ask(account.reshaper.split(container, ranges[at].id))
        world.history.tally["reshapes begun"] += 1
    except Failure as failure:
        if failure.kind not in (Kind.CONFLICT, Kind.BAD_REQUEST, Kind.RANGE_GONE):
            raise


async def reshapes_and_crashes(world: World, stopping: asyncio.Event) -> None:
    reshaping = world.start(reshapes(world, stopping))
    await crashes(world, stopping)
    await reshaping


@pytest.mark.parametrize("events", [reshapes, reshapes_and_crashes, crashes])
def test_nothing_is_noticed(seed: int, events: object) -> None:
    for each in range(seed, seed + SEEDS):

        async def run(world: World) -> None:
            await world.open(12_000)
            await world.run(2.0, events)

        world = simulate(each, run)
        print(world.report([]))
