"""`armillary check DIR`: opens a data directory, has its account verify itself, and prints what is wrong.

What must hold is known to `account/check.py` and `partition/check.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from armillary.account.check import check_account
from armillary.clock import SystemClock
from armillary.errors import bad_request
from armillary.storage.private import Permissions
from armillary.storage.rocks import RocksEngine


def check(directory: Path, permissions: Permissions = "private") -> int:
    """The exit code: 0 if all is well, 1 if not."""
    refuse_missing(directory)
    problems = len(asyncio.run(problems_in(directory, lambda problem: print(problem, flush=True), permissions)))
    print(f"{directory}: {problems} problem{'s' * (problems != 1)} found" if problems else f"{directory}: all is well")
    return 1 if problems else 0


def refuse_missing(directory: Path) -> None:
    """Opening a directory makes it, which is not what somebody who mistyped its name wants."""
    try:
        is_there = directory.is_dir() and any(directory.iterdir())
    except OSError as error:
        raise bad_request(f"The data directory at {directory} cannot be read: {error.strerror}.") from None
    if not is_there:
        raise bad_request(f"There is no data directory at {directory}. Name the one that was given to --data.")


async def problems_in(
    directory: Path, tell: Callable[[str], None] | None = None, permissions: Permissions = "private"
) -> list[str]:
    """What is wrong, told as it is found."""
    engine = await RocksEngine.open(directory, permissions=permissions)
    try:
        problems = []
        async for problem in check_account(engine, SystemClock()):
            problems.append(problem)
            if tell is not None:
                tell(problem)
        return problems
    finally:
        await engine.close()
