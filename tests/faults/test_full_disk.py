"""A disk that fills up under a loaded server: writers are told, readers go on, and with room everything goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import uvloop
from faults.client import connected
from faults.supervisor import Supervisor
from faults.workload import prepare
from support.disk import small_disk
from support.waiting import until

from armillary.limits import MB

DISK_BYTES = 224 * MB


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES) as path:
        yield path


def fill(disk: Path, leave_bytes: int) -> None:
    """Let other files of the machine take the room."""
    with (disk / "ballast").open("wb", buffering=0) as file:
        while (free_bytes := os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize) > leave_bytes:
            try:
                file.write(b"\0" * min(MB, free_bytes - leave_bytes))
            except OSError:  # the server took the last of it
                return


@pytest.mark.parametrize("durability", ["full", "relaxed"])
@pytest.mark.parametrize("leave_bytes", [32 * MB, 0], ids=["nearly", "entirely"])
def test_full_disk(disk: Path, seed: int, durability: str, leave_bytes: int) -> None:
    async def run() -> None:
        supervisor = Supervisor(disk / "data", durability, seed)
        ledger = supervisor.ledger
        try:
            await supervisor.start()
            async with connected(supervisor.port) as client:
                await prepare(client, ledger)
            for _ in range(2):
                await supervisor.load(0.4)
                fill(disk, leave_bytes)
                await until(partial(refuses_more_than, supervisor, supervisor.refused_full), "writes are refused")
                await supervisor.end_load()
                await supervisor.verify(is_final=False)  # readers go on
                (disk / "ballast").unlink()
                await writes_again(supervisor)
                await supervisor.verify()
            await supervisor.stop()
            await supervisor.check(supervisor.directory)
        finally:
            await supervisor.kill()
        assert not supervisor.report(), f"--seed {seed}\n{supervisor.report()}"

    uvloop.run(run())


def refuses_more_than(supervisor: Supervisor, count: int) -> bool:
    return supervisor.refused_full > count + 50


async def writes_again(supervisor: Supervisor) -> None:
    """Without a restart."""
    before = supervisor.ledger.tally["OK"]
    await supervisor.load(0)
    await until(lambda: supervisor.ledger.tally["OK"] > before + 50, "writes are accepted again")
    await supervisor.end_load()
