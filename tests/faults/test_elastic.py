"""The released clients on a server that splits and merges partitions and is killed: they notice only its death."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop
from faults.elastic.actors import Keys
from faults.elastic.soak import Soak

PARTITION_RU = 1000


@pytest.mark.timeout(120)
def test_short(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_COSMOS_HEALTH_CHECK_RETRY_AFTER_MS", "10")

    async def events(soak: Soak) -> None:
        await soak.until(lambda found: len(found) > 2, "splits by storage")
        await soak.kill()
        count = len(await soak.partitions())
        assert await soak.scale((count + 2) * PARTITION_RU)
        await asyncio.sleep(soak.dice.uniform(0, 0.3))
        await soak.kill()
        await soak.until(lambda found: len(found) >= count + 2, "splits by throughput")
        assert await soak.scale(PARTITION_RU)
        for _ in range(2):
            await soak.merge()
            await soak.reshaped()
        await soak.split()
        await asyncio.sleep(soak.dice.uniform(0, 0.2))
        await soak.kill()
        await soak.reshaped()
        await asyncio.sleep(0.5)

    async def run() -> None:
        soak = Soak(
            tmp_path / "data",
            seed,
            *("--partition-storage", "400KB", "--partition-throughput", str(PARTITION_RU)),
            clients={"aio": 6, "sync": 4, "js": 6},
            ballast_bytes=4000,
            keys=Keys(100, 0.7),
        )
        await soak.run(400, events)
        print(soak.report())

    uvloop.run(run())
