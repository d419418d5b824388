"""`armillary cluster init|leave|reset-log`: data directories of stopped servers and nodes become a cluster's, a single
server's, or the origin of a new log. What they do is in `cluster/directories.py`.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any, Final

from armillary.clock import SystemClock
from armillary.cluster import directories
from armillary.cluster.directories import Left
from armillary.errors import Failure, Kind, bad_request
from armillary.storage.log.postgres_log import PostgresLog
from armillary.storage.log.postgres_log_maker import PostgresLogMaker
from armillary.storage.log.replicated_log import LogRefused, LogUnavailable
from armillary.tools.control_file import CONTROL_FILE
from armillary.tools.screen import Screen, count
from armillary.tools.serving.nodes.node_start import NAME_FILE, PEERS_DIRECTORY
from armillary.tools.settings import Settings

# A single server makes its own: these are of the cluster that was left.
_OF_CLUSTER: Final = (NAME_FILE, CONTROL_FILE)


def init(screen: Screen, arguments: dict[str, Any], settings: Settings) -> int:
    directory: Path = arguments["from"]
    position = asyncio.run(_init(directory, settings))
    if screen.is_json:
        screen.content({"data": str(directory), "row": position})
    else:
        screen.say(
            f"{directory} is the first replica of a new cluster. Start it with `armillary serve --cluster URL --data "
            f"{directory}`; nodes with empty data directories join it then."
        )
    return 0


async def _init(directory: Path, settings: Settings) -> int:
    position = await directories.init(_maker(settings), directory, SystemClock(), settings.data_permissions)
    return position.place.seq


def leave(screen: Screen, arguments: dict[str, Any], settings: Settings) -> int:
    directory = settings.directory
    left = asyncio.run(_leave(directory, settings, accepts_loss=arguments.get("accept_loss", False)))
    for name in _OF_CLUSTER:
        (directory / name).unlink(missing_ok=True)
    shutil.rmtree(directory / PEERS_DIRECTORY, ignore_errors=True)
    row = left.position.place.seq
    if screen.is_json:
        content = {"data": str(directory), "row": row, "missingRows": left.missing_rows, "removed": left.is_removed}
        screen.content(content)
        return 0
    screen.say(
        f"{directory} is a single server's data directory now, with the state at row {count(row)} of the log. Serve it "
        f"with `armillary serve --data {directory}`."
    )
    if not left.is_removed:
        screen.say("The cluster was not told: `armillary cluster remove` at one of its nodes forgets this node.")
    return 0


async def _leave(directory: Path, settings: Settings, *, accepts_loss: bool) -> Left:
    permissions = settings.data_permissions
    if settings.cluster is None:
        return await directories.leave(directory, None, accepts_loss=accepts_loss, permissions=permissions)
    name_file = directory / NAME_FILE
    name = name_file.read_text("utf-8").strip() if name_file.exists() else None
    log = await _open_log(settings)
    try:
        return await directories.leave(directory, log, name, accepts_loss=accepts_loss, permissions=permissions)
    finally:
        await log.close()


def reset_log(screen: Screen, arguments: dict[str, Any], settings: Settings) -> int:
    directory: Path = arguments["from"]
    accepts_loss: bool = arguments.get("accept_loss", False)
    reset = asyncio.run(
        directories.reset_log(
            _maker(settings), directory, accepts_loss=accepts_loss, permissions=settings.data_permissions
        )
    )
    if screen.is_json:
        former = reset.former
        screen.content(
            {
                "data": str(directory),
                "epoch": former.place.epoch,
                "row": former.place.seq,
                "timeMicroseconds": former.time_us,
            }
        )
    else:
        screen.say(reset.sentence)
    return 0


def _url(settings: Settings) -> str:
    if settings.cluster is None:
        raise bad_request(
            "Name the database of the log: --cluster, or better ARMILLARY_CLUSTER, which shows no password."
        )
    return settings.cluster


def _maker(settings: Settings) -> PostgresLogMaker:
    try:
        return PostgresLogMaker(_url(settings), allows_single=settings.allows_single_postgres)
    except LogRefused as refusal:
        raise bad_request(str(refusal)) from None


async def _open_log(settings: Settings) -> PostgresLog:
    """The log that is there; opening it would make one."""
    try:
        if await _maker(settings).generation() is None:
            raise bad_request("The database holds no log. Leave --cluster out, and accept the loss with --accept-loss.")
        return await PostgresLog.open(_url(settings), allows_single=settings.allows_single_postgres)
    except LogRefused as refusal:
        raise bad_request(str(refusal)) from None
    except LogUnavailable as error:
        raise Failure(
            Kind.UNAVAILABLE, f"The replicated log does not answer: {error}. Run the same command again."
        ) from None
