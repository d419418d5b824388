"""The released clients on a server that splits and merges partitions and is killed: they notice only its death."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop
from faults.elastic.soak import Soak


@pytest.mark.timeout(120)
def test_short(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_COSMOS_HEALTH_CHECK_RETRY_AFTER_MS", "10")

    async def events(soak: Soak) -> None:
        for _ in range(2):
            await asyncio.sleep(soak.dice.uniform(1, 3))
            await soak.kill()
        await asyncio.sleep(2)

    async def run() -> None:
        soak = Soak(
            tmp_path / "data",
            seed,
            clients={"aio": 6, "sync": 4, "js": 6},
            ballast_bytes=2000,
        )
        await soak.run(10_000, events)
        print(soak.report())

    uvloop.run(run())
