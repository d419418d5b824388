"""Splits, merges and crashes under load, in one process, from a seed: nothing is lost, doubled or refused."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest
from faults.elastic.actors import Keys
from faults.elastic.defects import DEFECTS
from faults.elastic.port import Refused
from faults.elastic.world import World, simulate

from armillary.account.registry import AccountSettings
from armillary.account.reshaping.split_and_merge import POINTS, Reshape
from armillary.errors import Failure, Kind

SEEDS, DEFECT_SEEDS = 2, 8
RANGES_MAX = 7
STORAGE_BYTES = 30_000

Events = Callable[[World, asyncio.Event], Awaitable[None]]


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


def run_one(
    seed: int,
    events: Events,
    *,
    seconds: float = 1.0,
    settings: AccountSettings | None = None,
    keys: Keys | None = None,
) -> World:
    async def run(world: World) -> None:
        world.keys = keys or world.keys
        await world.open(world.dice.choice((400, 12_000)))
        await world.run(seconds, events)

    world = simulate(seed, run, settings)
    print(world.report([]))
    return world


@pytest.mark.parametrize("events", [reshapes, reshapes_and_crashes, crashes])
def test_nothing_is_noticed(seed: int, events: Events) -> None:
    reshaped = sum(run_one(each, events).history.tally["ranges"] for each in range(seed, seed + SEEDS))
    assert reshaped > 5 * SEEDS or events is crashes


@pytest.mark.soak
def test_nothing_is_noticed_for_long(seed: int) -> None:
    for each in range(seed, seed + int(os.environ.get("ARMILLARY_SOAK_SEEDS", "2000"))):
        run_one(each, reshapes_and_crashes, seconds=2.0)


def test_storage_splits_by_itself(seed: int) -> None:
    """Small partitions, filled by the clients; a crash now and then. No key fills one alone."""
    settings = AccountSettings(partition_storage_bytes=STORAGE_BYTES)
    world = run_one(seed, crashes, seconds=2.0, settings=settings, keys=Keys(30, 0.3))
    assert world.history.tally["ranges"] >= 5, world.report([])


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", ["split", "merge"])
def test_the_plug_is_pulled_at_every_point(seed: int, point: str, kind: str) -> None:
    hit: list[str] = []

    async def events(world: World, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            await asyncio.sleep(world.dice.uniform(0, 0.05))
            await world.place.is_back.wait()

            def reach(reshape: Reshape, reached: str) -> None:
                if stopping.is_set():
                    return  # what goes on by itself then must not disturb the checks of the outcome
                if reached == point and reshape.is_merge is (kind == "merge") and len(hit) < 3:
                    hit.append(reached)
                    world.pull_plug()
                    world.start(world.restart())

            world.account.reshaper.on_point = reach
            await reshape(world)

    run_one(seed, events)
    assert hit, f"--seed {seed}: no {kind} came to this point"


@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defects_are_noticed(seed: int, defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    DEFECTS[defect](monkeypatch)
    for each in range(seed, seed + DEFECT_SEEDS):
        try:
            run_one(each, reshapes_and_crashes)
        except (AssertionError, Refused, LookupError) as noticed:  # an item that lacks what it must have is noticed too
            print(f"{defect} noticed with --seed {each}: {str(noticed)[:400]}")
            return
    pytest.fail(f"--seed {seed}: {defect} was not noticed in {DEFECT_SEEDS} runs")
