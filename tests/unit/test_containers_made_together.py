"""Several clients make the same container at the same time: one does, and the others find it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.containers import create_container, create_database
from armillary.clock import SystemClock
from armillary.errors import Failure, Kind
from armillary.storage.rocks import RocksEngine

BODY = {
    "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
    "changeFeedPolicy": {"retentionDuration": 10},  # such a container takes a write to be opened
}


async def test_who_is_too_late_finds_it(tmp_path: Path) -> None:
    engine = await RocksEngine.open(tmp_path / "store", "full")
    account = await Account.open(engine, SystemClock())
    database = await create_database(account, {"id": "db"}, None)

    async def ensured(name: str) -> Container:
        try:
            return await create_container(account, database, {"id": name, **BODY}, None)
        except Failure as failure:
            if failure.kind is not Kind.CONFLICT:
                raise
            return account.container("db", name)

    async def looked_for(name: str, until: asyncio.Event) -> None:
        while not until.is_set():
            try:
                account.container("db", name)
            except Failure as failure:
                if failure.kind is not Kind.NOT_FOUND:
                    raise
            await asyncio.sleep(0)

    for name in ("a", "b", "c"):
        is_made = asyncio.Event()
        looking = asyncio.create_task(looked_for(name, is_made))
        first, *others = await asyncio.gather(*(ensured(name) for _ in range(8)))
        is_made.set()
        await looking
        assert all(each is first for each in others)
    await account.close()
    await engine.close()
