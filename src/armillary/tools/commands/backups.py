"""`armillary backup`: create, list, verify, restore and prune backups of a whole account. A running server
makes a checkpoint of its data directory, which this process copies while the server continues. The layout of a
directory of backups is in `backup_directory.py`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from armillary.clock import SystemClock
from armillary.errors import Failure, Kind
from armillary.processes.stopped.undivided_engine import open_whole
from armillary.storage.directory import process_directories
from armillary.storage.replication.stopped_replica import StoppedDirectory
from armillary.tools.backup_directory import Backup, BackupDirectory
from armillary.tools.check import problems_in, refuse_missing
from armillary.tools.place import Place
from armillary.tools.screen import Screen, size


def create(place: Place, screen: Screen, arguments: dict[str, Any]) -> int:
    directory = BackupDirectory.make(Path(arguments["directory"]), place.permissions)
    taken = datetime.fromtimestamp(SystemClock().now_s(), UTC).isoformat(timespec="seconds")
    with _checkpoint(place) as source:
        backup = directory.add(source, taken)
    if screen.is_json:
        screen.content(_shown(backup))
    else:
        screen.say(
            f"Backup {backup.number} in {directory.path}: {size(backup.size_bytes)}, of which "
            f"{size(backup.copied_bytes)} were new."
        )
    return 0


def list_backups(place: Place, screen: Screen, arguments: dict[str, Any]) -> int:
    backups = BackupDirectory.open(Path(arguments["directory"])).backups
    if screen.is_json:
        screen.content({"backups": [_shown(each) for each in backups]})
    else:
        rows = [[each.number, each.taken, size(each.size_bytes), size(each.copied_bytes)] for each in backups]
        screen.table((">number", "taken", ">size", ">new"), rows)
    return 0


def verify(place: Place, screen: Screen, arguments: dict[str, Any]) -> int:
    """The exit code: 0 if all is well, 1 if not."""
    directory = BackupDirectory.open(Path(arguments["directory"]))
    backup = directory.find(arguments.get("number"))
    problems = list(directory.damages(backup))
    if not problems:
        with directory.opened(backup) as opened:
            problems = asyncio.run(problems_in(opened, permissions=place.permissions))
    if screen.is_json:
        screen.content({"number": backup.number, "problems": problems})
    else:
        for problem in problems:
            screen.say(problem)
        found = f"{len(problems)} problem{'s' * (len(problems) != 1)} found" if problems else "all is well"
        screen.say(f"Backup {backup.number} of {backup.taken}: {found}.")
    return 1 if problems else 0


def restore(place: Place, screen: Screen, arguments: dict[str, Any]) -> int:
    directory = BackupDirectory.open(Path(arguments["directory"]))
    backup = directory.find(arguments.get("number"))
    target = Path(arguments["to"])
    directory.restore(backup, target, place.permissions)
    with StoppedDirectory.open(target, place.permissions, owner="first") as restored:
        position = restored.position
    if screen.is_json:
        replica = {"replicaAtRow": position.place.seq} if position is not None else {}
        screen.content({"number": backup.number, "data": str(target), **replica})
    elif position is None:
        processes = f" --processes {1 + max(numbers)}" if (numbers := process_directories(target)) else ""
        screen.say(
            f"Restored backup {backup.number} of {backup.taken}. "
            f"Serve it with `armillary serve --data {target}{processes}`."
        )
    else:
        screen.say(
            f"Restored backup {backup.number} of {backup.taken}: a replica of a cluster, at row {position.place.seq} "
            "of its log. Serve it as a new node of that cluster, which continues from there, or make it a single "
            "server's with `armillary cluster leave`."
        )
    return 0


def prune(place: Place, screen: Screen, arguments: dict[str, Any]) -> int:
    removed, freed_bytes = BackupDirectory.open(Path(arguments["directory"])).prune(arguments["keep"])
    if screen.is_json:
        screen.content({"removed": removed, "freedBytes": freed_bytes})
    else:
        screen.say(f"Removed {removed} backup{'s' * (removed != 1)}, {size(freed_bytes)}.")
    return 0


@contextmanager
def _checkpoint(place: Place) -> Iterator[Path]:
    server = place.server()
    if server is None:
        source = asyncio.run(_checkpoint_here(place))
        try:
            yield source
        finally:
            shutil.rmtree(source, ignore_errors=True)
        return
    made = server.post("checkpoints", body={})
    try:
        source = Path(made["path"])
        if not os.path.isdir(source):  # Path.is_dir would raise where a directory above is closed
            raise Failure(
                Kind.BAD_REQUEST,
                "The server's data directory cannot be read from here. Back up on the server's machine, as its user.",
            )
        yield source
    finally:
        try:
            server.delete("checkpoints", made["id"])
        except Failure as failure:
            if failure.kind is not Kind.UNAVAILABLE:  # a server that stopped meanwhile removes it when it starts
                raise


async def _checkpoint_here(place: Place) -> Path:
    refuse_missing(place.directory)
    engine = await open_whole(place.directory, SystemClock(), place.permissions)
    try:
        return await engine.checkpoint()
    finally:
        await engine.close()


def _shown(backup: Backup) -> dict[str, Any]:
    return {
        "number": backup.number,
        "taken": backup.taken,
        "copiedBytes": backup.copied_bytes,
        "sizeBytes": backup.size_bytes,
        "files": len(backup.entries),
    }
