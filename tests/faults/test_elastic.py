"""The released clients on a server that splits and merges partitions and is killed: they notice only its death.

`make soak` runs the long form: ARMILLARY_SOAK_ROUNDS says how often.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import uvloop
from faults.elastic.actors import Keys
from faults.elastic.soak import Events, Soak
from support.process import SETTINGS

PARTITION_RU = 1000
SPLITS, DEPTH, THROUGHPUT_SPLITS, MERGES, KILLS = 20, 3, 5, 5, 10


@pytest.fixture(autouse=True)
def _impatient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose first request is refused asks three times more, half a second apart."""
    monkeypatch.setenv("AZURE_COSMOS_HEALTH_CHECK_RETRY_AFTER_MS", "10")


def run(soak: Soak, events: Events) -> None:
    # One partition; or one in each process, since the children of a split stay in its process.
    uvloop.run(soak.run(int(SETTINGS[1]) * PARTITION_RU if SETTINGS else 400, events))
    print(soak.report())


def options(storage: str) -> tuple[str, ...]:
    return ("--partition-storage", storage, "--partition-throughput", str(PARTITION_RU))


def test_short(tmp_path: Path, seed: int) -> None:
    async def events(soak: Soak) -> None:
        await soak.until(lambda found: len(found) > 2, "splits by storage")
        await soak.kill()
        count = len(await soak.partitions())
        await soak.scale((count + 4) * PARTITION_RU)
        await asyncio.sleep(soak.dice.uniform(0, 0.3))
        await soak.kill()
        await soak.until(lambda found: len(found) >= count + 4, "splits by throughput")
        await soak.scale(PARTITION_RU)
        for _ in range(2):
            assert await soak.merge(), soak.refusal
            await soak.reshaped()
        await soak.split()
        await asyncio.sleep(soak.dice.uniform(0, 0.2))
        await soak.kill()
        await soak.reshaped()

    clients = {"aio": 6, "sync": 4, "js": 6}
    soak = Soak(tmp_path / "data", seed, *options("400KB"), clients=clients, ballast_bytes=4000, keys=Keys(100, 0.7))
    run(soak, events)
    assert soak.history.tally["kills"] == 3


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(int(os.environ.get("ARMILLARY_SOAK_ROUNDS", "1"))))
def test_long(tmp_path: Path, seed: int, round_: int) -> None:
    async def kills(soak: Soak) -> None:
        for _ in range(KILLS):
            await asyncio.sleep(soak.dice.uniform(1, 12))
            await soak.kill()

    async def reshapes(soak: Soak) -> None:
        # One partition at first, and each split makes two of one.
        await soak.until(lambda _: len(soak.ranges) > 2 * SPLITS and soak.depth > DEPTH, "splits by storage")
        count = len(await soak.partitions())
        await soak.scale((count + THROUGHPUT_SPLITS) * PARTITION_RU)
        await soak.until(lambda found: len(found) >= count + THROUGHPUT_SPLITS, "splits by throughput")
        await soak.scale(PARTITION_RU)
        merged = 0
        while merged < MERGES:
            merged += await soak.merge()
            await soak.reshaped()
        soak.history.tally["merges"] = merged

    async def events(soak: Soak) -> None:
        await asyncio.gather(kills(soak), reshapes(soak))

    clients = {"aio": 5, "sync": 5, "js": 6}
    keys = Keys(300, 0.4)
    soak = Soak(tmp_path / "data", seed + round_, *options("300KB"), clients=clients, ballast_bytes=8000, keys=keys)
    run(soak, events)
