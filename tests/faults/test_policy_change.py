"""Items written while their container's indexing policy changes: every one ends up indexed by the new rules.

In this process, on the real engine: what matters is that readers see a write only when it is durable.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.check import check_account
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.clock import SystemClock
from armillary.storage.rocks import RocksEngine

DEFINITION = {"partitionKey": {"paths": ["/key"], "kind": "Hash", "version": 2}}
TURNS = 30


def changed(name: str, token: int) -> dict[str, object]:
    return {"id": name, **DEFINITION, "indexingPolicy": {"excludedPaths": [{"path": f"/p{token}/*"}]}}


async def test_writes_during_a_change_of_policy(tmp_path: Path, seed: int) -> None:
    print(f"--seed {seed}")
    dice = random.Random(seed)
    clock = SystemClock()
    engine = await RocksEngine.open(tmp_path)
    account = await Account.open(engine, clock)
    database = await containers.create_database(account, {"id": "db"}, None)
    for turn in range(TURNS):
        name = f"c{turn}"
        container = await containers.create_container(account, database, {"id": name, **DEFINITION}, None)

        async def write(item_id: str, container: Container = container) -> None:
            await asyncio.sleep(dice.uniform(0, 0.003))
            await items.upsert(container, {"id": item_id, "key": "k", "p0": 1}, ItemOptions(), clock)

        # The first items of an empty partition are the ones that a scan can miss.
        await asyncio.gather(
            containers.replace_container(account, container, changed(name, 0), None),
            *[write(item_id) for item_id in ("a", "b")],
        )
        if turn % 2:
            await containers.replace_container(account, container, changed(name, 1), None)
        while container.is_restating:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.002)
        await asyncio.gather(write("a"), write("c"))
    problems = [problem async for problem in check_account(engine, clock)]
    await account.close()
    await engine.close()
    assert not problems, f"--seed {seed}: {problems[:5]}"
