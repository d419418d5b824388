"""kill -9 under load: nothing acknowledged is lost, nothing refused shows, no batch is half there.

`make soak` runs more of it: ARMILLARY_SOAK_CYCLES says how much.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import uvloop
from faults.defective import DEFECTS
from faults.supervisor import Supervisor

CYCLES = 5  # in each part: 50 in all, 15 of them in `make test`


PARTS = [*(("full", part) for part in range(7)), *(("relaxed", part) for part in range(3))]
OFTEN = {("full", 0), ("full", 1), ("relaxed", 0)}


@pytest.mark.parametrize(
    ("durability", "part"), [each if each in OFTEN else pytest.param(*each, marks=pytest.mark.soak) for each in PARTS]
)
def test_nothing_is_lost(tmp_path: Path, seed: int, durability: str, part: int) -> None:
    run_clean(tmp_path, seed + part, durability, CYCLES)


@pytest.mark.soak
@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_nothing_is_lost_for_long(tmp_path: Path, seed: int, durability: str) -> None:
    run_clean(tmp_path, seed, durability, int(os.environ.get("ARMILLARY_SOAK_CYCLES", "2000")))


def run_clean(tmp_path: Path, seed: int, durability: str, cycles: int) -> None:
    async def run() -> None:
        supervisor = Supervisor(tmp_path / "data", durability, seed)
        done = await supervisor.run(cycles)
        assert not supervisor.report(), f"--seed {seed}, cycle {done}\n{supervisor.report()}"
        tally = supervisor.ledger.tally
        # A harness that writes next to nothing finds nothing.
        assert tally["OK"] > 50 * cycles, tally
        assert tally["FAILED"] > 5 * cycles, tally
        assert tally["UNKNOWN"] > cycles, tally

    uvloop.run(run())


@pytest.mark.parametrize(
    ("defect", "durability", "kind"),
    [
        ("acknowledge-before-commit", "full", "lost"),
        ("acknowledge-before-commit", "relaxed", "lost"),
        ("terms-in-a-second-transaction", "full", "check"),
        ("lsn-reused", "full", "lsn"),
        ("lsn-reused", "full", "check"),
    ],
)
def test_planted_defects_are_noticed(tmp_path: Path, seed: int, defect: str, durability: str, kind: str) -> None:
    assert defect in DEFECTS

    async def run() -> None:
        command = ("faults.defective", defect)
        supervisor = Supervisor(tmp_path / "data", durability, seed, command=command)
        cycles = await supervisor.run(8, until=kind)
        kinds = {violation.kind for violation in supervisor.ledger.violations}
        assert kind in kinds, f"--seed {seed}: not noticed in {cycles} cycles, only {kinds}\n{supervisor.report()}"
        noticed = next(str(each) for each in supervisor.ledger.violations if each.kind == kind)
        print(f"{defect} noticed in cycle {cycles}: {noticed[:200]}")

    uvloop.run(run())
