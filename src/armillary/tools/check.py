"""`armillary check DIR`: opens a data directory, a server's with all its processes or a replica's, has its account
verify itself, and prints what is wrong; it writes nothing. With `--repair` items that lie in another partition than
their key says are moved first, which a replica refuses: its leader repairs.

The invariants are in `account/check.py` and `partition/check.py`, the repair in `account/misplaced_items.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from armillary.account.check import check_account
from armillary.account.misplaced_items import drop_versions, find_misplaced, move, partitions_with_stray_versions
from armillary.clock import SystemClock
from armillary.errors import bad_request
from armillary.processes.stopped.undivided_engine import open_whole
from armillary.storage.private import Permissions, open_file
from armillary.storage.rocks import RocksEngine


def check(directory: Path, permissions: Permissions = "private", *, is_repairing: bool = False) -> int:
    """The exit code: 0 if all is well, 1 if not."""
    refuse_missing(directory)
    if is_repairing:
        print(asyncio.run(repair(directory, permissions)), flush=True)
    problems = len(asyncio.run(problems_in(directory, lambda problem: print(problem, flush=True), permissions)))
    print(f"{directory}: {problems} problem{'s' * (problems != 1)} found" if problems else f"{directory}: all is well")
    return 1 if problems else 0


def refuse_missing(directory: Path) -> None:
    """Opening a directory creates it, so a mistyped name must be refused before."""
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
    clock = SystemClock()
    engine = await open_whole(directory, clock, permissions)
    try:
        problems = []
        async for problem in check_account(engine, clock):
            problems.append(problem)
            if tell is not None:
                tell(problem)
        return problems
    finally:
        await engine.close()


class SetAside:
    """The file of items that cannot be moved, beside the data directory. It is made with the first of them, and each is
    on the disk before its item is removed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0

    def add(self, content: dict[str, Any]) -> None:
        if not self.count:
            open_file(self.path, "xb").close()
        with open_file(self.path, "r+b") as file:
            file.seek(0, os.SEEK_END)
            file.write(orjson.dumps(content) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.count += 1


async def repair(directory: Path, permissions: Permissions = "private") -> str:
    """Move misplaced items to where they belong, after a copy of the directory was made of links. What was done."""
    clock = SystemClock()
    engine = await RocksEngine.open(directory, permissions=permissions)
    try:
        misplaced = [each async for each in find_misplaced(engine, clock)]
        strays = await partitions_with_stray_versions(engine, clock)
        if not misplaced and not strays:
            return f"{directory}: nothing to repair"
        copy = _free_name(directory, "before-repair")
        (await engine.checkpoint()).rename(copy)
        aside = SetAside(_free_name(directory, "misplaced", ".jsonl"))
        moved = sum([await move(each, clock, aside.add) for each in misplaced])
        for partition in strays:
            await drop_versions(partition)
    finally:
        await engine.close()
    told = f"{directory}: moved {moved} items to the partitions that they belong to"
    if aside.count:
        told += f", wrote {aside.count} that cannot be there to {aside.path}"
    if strays:
        told += ", dropped the versions that were kept of such items where they lay"
    return f"{told}; the directory as it was is {copy}"


def _free_name(directory: Path, word: str, ending: str = "") -> Path:
    path = directory.resolve()
    names = (path.with_name(f"{path.name}-{word}-{number}{ending}") for number in count(1))
    return next(name for name in names if not name.exists())
