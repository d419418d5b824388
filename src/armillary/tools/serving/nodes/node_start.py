"""What every node of a cluster starts with, however many logs there are: its data directory, its name, the key of its
control API, which is the same on all nodes, and the replicated log.
"""

from __future__ import annotations

import base64
import hmac
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, TypeVar

from armillary.clock import Clock
from armillary.errors import Failure, Kind, bad_request
from armillary.storage.directory import DataDirectory, unusable, write_private
from armillary.storage.log.replicated_log import LogRefused, LogUnavailable
from armillary.tools.settings import Settings

log = logging.getLogger("armillary")
T = TypeVar("T")

NAME_FILE: Final = "node"
PEERS_DIRECTORY: Final = "peers"  # the directory of the certificate that other nodes see
_CONTROL_CONTEXT: Final = b"armillary control key 1"
_LOG_RETRY_S: Final = 2.0


def claim(opened: AsyncExitStack, settings: Settings, clock: Clock) -> tuple[DataDirectory, str]:
    """The data directory, which no other server uses, and the node's name."""
    directory = DataDirectory.claim(settings.directory, settings.data_permissions)
    opened.callback(directory.release)
    try:
        return directory, _node_name(settings, clock)
    except OSError as error:
        raise unusable(error) from None


def _node_name(settings: Settings, clock: Clock) -> str:
    """The name that was given at the first start, or made then."""
    file: Path = settings.directory / NAME_FILE
    kept = file.read_text("utf-8").strip() if file.exists() else None
    if kept is not None:
        if settings.node not in (None, kept):
            raise bad_request(
                f"The data directory is of the node '{kept}', and --node is '{settings.node}'. Leave out --node, or "
                "name another directory."
            )
        return kept
    name = settings.node or f"node-{clock.random_bytes(4).hex()}"
    write_private(file, name.encode() + b"\n")
    return name


def control_key_of_cluster(cluster_key: bytes) -> str:
    """The same on all nodes, which send control requests on to the leader."""
    return base64.b64encode(hmac.digest(cluster_key, _CONTROL_CONTEXT, "sha256")).decode("ascii")


async def opened_log(clock: Clock, work: Callable[[], Awaitable[T]]) -> T:
    """What is asked of PostgreSQL, which may be started at the same time: it is waited for. What its operator has to
    change is refused."""
    is_told = False
    while True:
        try:
            return await work()
        except LogRefused as refusal:
            raise Failure(Kind.BAD_REQUEST, str(refusal)) from None
        except LogUnavailable as error:
            if not is_told:
                is_told = True
                log.warning("waiting for PostgreSQL: %s", error)
            await clock.sleep(_LOG_RETRY_S)
        except ImportError:
            raise bad_request("A cluster needs the package asyncpg: pip install 'armillary[cluster]'.") from None
