"""Stopped under load, as an operator would: the server ends by itself, and everything acknowledged is there again."""

from __future__ import annotations

from pathlib import Path

import pytest
import uvloop
from faults.client import connected
from faults.supervisor import Supervisor
from faults.workload import prepare

STOPS = 3


@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_stop_under_load(tmp_path: Path, seed: int, durability: str) -> None:
    async def run() -> None:
        supervisor = Supervisor(tmp_path / "data", durability, seed)
        try:
            await supervisor.start()
            async with connected(supervisor.port) as client:
                await prepare(client, supervisor.ledger)
            for _ in range(STOPS):
                await supervisor.load_well(0.5)
                await supervisor.stop()
                await supervisor.end_load()
                await supervisor.check(supervisor.directory)
                await supervisor.start()
                await supervisor.verify()
            await supervisor.stop()
        finally:
            await supervisor.kill()
        assert not supervisor.report(), f"--seed {seed}\n{supervisor.report()}"
        assert supervisor.ledger.tally["OK"] > 50 * STOPS

    uvloop.run(run())
