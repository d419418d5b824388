"""Data directories of stopped nodes, for tests of the commands that work on them."""

from __future__ import annotations

from pathlib import Path

from support.grown_account import grow
from support.replicas import Pair

from armillary.account.account import Account
from armillary.account.check import check_account
from armillary.clock import SystemClock, VirtualClock
from armillary.storage.engine import Engine
from armillary.storage.log.memory_log import MemoryLogServer
from armillary.storage.replication.state_digest import digest_of_state
from armillary.storage.replication.stopped_replica import StoppedDirectory
from armillary.storage.rocks import RocksEngine


async def single_server(path: Path) -> None:
    """The directory of a single server with an account."""
    engine, clock = await RocksEngine.open(path, "relaxed"), VirtualClock()
    account = await Account.open(engine, clock)
    await grow(account, clock)
    await account.close()
    await engine.close()


async def two_replicas(path: Path) -> MemoryLogServer:
    """The directories of a leader and a follower, `a` and `b`, which have the same state."""
    pair = await Pair.open(path)
    await grow(pair.leader, pair.clock)
    await pair.step()
    await pair.close()
    return pair.server


def state_of_directory(path: Path) -> bytes:
    """A digest of what is stored, position aside."""
    with StoppedDirectory.open(path) as directory:
        kept = directory._database.keep()
        try:
            return digest_of_state(kept)
        finally:
            kept.release()


async def problems_of(engine: Engine) -> list[str]:
    return [problem async for problem in check_account(engine, SystemClock())]
