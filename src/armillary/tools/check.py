"""`armillary check DIR`: opens a data directory, has its account verify itself, and prints what is wrong.

What must hold is known to `account/check.py` and `partition/check.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from armillary.account.check import check_account
from armillary.clock import SystemClock
from armillary.errors import bad_request
from armillary.storage.rocks import RocksEngine


def check(directory: Path) -> int:
    """The exit code: 0 if all is well, 1 if not."""
    # Opening a directory makes it, which is not what somebody who mistyped its name wants.
    if not directory.is_dir() or not any(directory.iterdir()):
        raise bad_request(f"There is no data directory at {directory}. Name the one that was given to --data.")
    problems = asyncio.run(_check(directory))
    print(f"{directory}: {problems} problem{'s' * (problems != 1)} found" if problems else f"{directory}: all is well")
    return 1 if problems else 0


async def _check(directory: Path) -> int:
    engine = await RocksEngine.open(directory)
    try:
        problems = 0
        async for problem in check_account(engine, SystemClock()):
            problems += 1
            print(problem, flush=True)
        return problems
    finally:
        await engine.close()
