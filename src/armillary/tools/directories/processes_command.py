"""`armillary processes DIR`: shows which process of a stopped server holds which partitions, and with `--count` moves
them so that another number of processes does. The moves are in `processes/stopped/store_moves.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from armillary import limits
from armillary.clock import SystemClock
from armillary.errors import bad_request
from armillary.processes.stopped.store_moves import PlacedPartition, partitions_of, place_partitions
from armillary.processes.stopped.undivided_engine import UndividedEngine
from armillary.storage.private import Permissions
from armillary.tools.check import refuse_missing
from armillary.tools.screen import Screen, count, size


def run_processes(arguments: dict[str, Any], permissions: Permissions) -> int:
    directory, wanted = arguments["directory"], arguments.get("count")
    screen = Screen(is_json=arguments.get("json", False))
    refuse_missing(directory)
    if wanted is None:
        _show(screen, directory, permissions)
        return 0
    if not 1 <= wanted <= limits.PROCESSES_MAX:
        raise bad_request(f"--count is {wanted}; expected a number of processes from 1 to {limits.PROCESSES_MAX}.")

    def tell(moved: str) -> None:
        if not screen.is_json:
            screen.say(moved)

    moves = asyncio.run(place_partitions(directory, wanted, SystemClock(), permissions, tell))
    if screen.is_json:
        screen.content({"data": str(directory), "processes": wanted, "moved": moves})
        return 0
    processes = f" --processes {wanted}" if wanted > 1 else ""
    screen.say(
        f"Moved {count(moves)} partition{'s' * (moves != 1)}. "
        f"Serve the directory with `armillary serve --data {directory}{processes}`."
    )
    return 0


def _show(screen: Screen, directory: Path, permissions: Permissions) -> None:
    found = asyncio.run(_found(directory, permissions))
    if screen.is_json:
        screen.content({"data": str(directory), "partitions": [asdict(each) for each in found]})
        return
    rows = [
        [f"{each.database}/{each.container}", each.range_id, each.place, count(each.item_count), size(each.size_bytes)]
        for each in found
    ]
    screen.table(("container", ">range", ">process", ">items", ">size"), rows)


async def _found(directory: Path, permissions: Permissions) -> list[PlacedPartition]:
    clock = SystemClock()
    engine = await UndividedEngine.open(directory, clock, permissions)
    try:
        return await partitions_of(engine, clock)
    finally:
        await engine.close()
