"""`armillary upgrade DIR`: brings a data directory to the newest format, verifies it, and keeps the state before it
until `--commit` or `--rollback`. How the state is kept is in `storage/operating/format_upgrade.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from armillary.account.account import Account
from armillary.clock import SystemClock
from armillary.errors import Failure, bad_request
from armillary.storage.directory import FORMAT_VERSION
from armillary.storage.operating import format_upgrade
from armillary.storage.private import Permissions
from armillary.storage.rocks import RocksEngine
from armillary.tools.check import problems_in, refuse_missing


def upgrade(
    directory: Path, permissions: Permissions = "private", *, is_committed: bool = False, is_undone: bool = False
) -> int:
    """The exit code: 0 if all is well, 1 if the upgraded directory has problems."""
    refuse_missing(directory)
    if is_committed and is_undone:
        raise bad_request("--commit keeps the upgrade and --rollback undoes it. Give one of them.")
    if is_committed:
        former = format_upgrade.commit(directory, permissions)
        print(f"{directory}: the upgrade from format {former} is committed; the state before it is removed.")
        return 0
    if is_undone:
        former = format_upgrade.roll_back(directory, permissions)
        print(
            f"{directory}: back at format {former}, as it was before the upgrade. Start the version of Armillary that "
            "wrote it; this one would upgrade it again."
        )
        return 0
    return _upgrade(directory, permissions)


def _upgrade(directory: Path, permissions: Permissions) -> int:
    present, former = format_upgrade.formats_of(directory)
    if present == FORMAT_VERSION and former is None:
        print(f"{directory}: has format {present}, which is the newest; nothing to upgrade.")
        return 0
    size_bytes = format_upgrade.keep_former(directory, permissions)
    try:
        asyncio.run(_open_once(directory, permissions))
        problems = asyncio.run(problems_in(directory, lambda problem: print(problem, flush=True), permissions))
    except Failure:
        format_upgrade.roll_back(directory, permissions)
        print(f"{directory}: the upgrade failed and was undone.")
        raise
    print(f"{directory}: upgraded from format {present} to {FORMAT_VERSION}.")
    print(f"The state before it is kept ({size_bytes / 1_000_000:,.1f} MB, shared with the present one at first).")
    print(f"When applications run well on it: armillary upgrade {directory} --commit")
    print(f"To go back, which loses what is written from now on: armillary upgrade {directory} --rollback")
    if problems:
        print(f"{len(problems)} problems were found. Go back, and report them.")
    return 1 if problems else 0


async def _open_once(directory: Path, permissions: Permissions) -> None:
    """Opening an account brings its records to the newest format."""
    engine = await RocksEngine.open(directory, permissions=permissions)
    try:
        account = await Account.open(engine, SystemClock())
        await account.close()
    finally:
        await engine.close()
