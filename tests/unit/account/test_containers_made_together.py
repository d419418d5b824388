"""Containers that are made while others look for them, and while storage fails: later requests find what is
stored, without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.disk import fail_next_commit
from support.limits import WithLimits

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.containers import create_container, create_database, delete_container
from armillary.clock import SystemClock
from armillary.errors import Failure, Kind
from armillary.model.resources import ResourceType
from armillary.partition.partition import Partition
from armillary.storage.directory import DataDirectory
from armillary.storage.rocks import RocksEngine

BODY = {
    "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
    "changeFeedPolicy": {"retentionDuration": 10},  # such a container takes a write to be opened
}


@pytest.fixture
async def account(tmp_path: Path) -> AsyncIterator[Account]:
    engine = await RocksEngine.open(tmp_path / "store", "full")
    account = await Account.open(engine, SystemClock())
    yield account
    await account.close()
    await engine.close()


async def test_who_is_too_late_finds_it(account: Account) -> None:
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


async def test_storage_fails_while_it_is_opened(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    database = await create_database(account, {"id": "db"}, None)
    opening = Partition.open

    async def failing(partition: Partition) -> None:
        raise Failure(Kind.UNAVAILABLE, "The disk went away.")

    monkeypatch.setattr(Partition, "open", failing)
    with pytest.raises(Failure):
        await create_container(account, database, {"id": "c", **BODY}, None)
    with pytest.raises(Failure) as refused:
        account.container("db", "c")
    assert refused.value.kind is Kind.UNAVAILABLE
    monkeypatch.setattr(Partition, "open", opening)
    await account._open_the_rest()
    found = account.container("db", "c")
    assert await create_container(account, database, {"id": "other", **BODY}, None)
    await delete_container(account, found, None)
    await create_container(account, database, {"id": "c", **BODY}, None)


@pytest.mark.parametrize("is_stored", [True, False])
async def test_whether_it_was_made_is_known_after_a_failed_sync(
    account: Account, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    database = await create_database(account, {"id": "db"}, None)
    fail_next_commit(monkeypatch, "IO error: the disk went away", is_stored=is_stored)
    if is_stored:
        made = await create_container(account, database, {"id": "c", **BODY}, None)
        assert account.container("db", "c") is made
    else:
        with pytest.raises(Failure, match="nothing was changed"):
            await create_container(account, database, {"id": "c", **BODY}, None)
        await create_container(account, database, {"id": "c", **BODY}, None)
    again = await Account.open(account.engine, account.clock)
    assert len(again.catalog.of_type(ResourceType.CONTAINER)) == 1
    await again.close()


@pytest.mark.parametrize("is_stored", [True, False])
async def test_nobody_waits_for_a_disk_that_stays_full(
    account: Account, monkeypatch: pytest.MonkeyPatch, with_limits: WithLimits, is_stored: bool
) -> None:
    """Changes are refused until it is known what became of the first; then memory is what is stored."""
    with_limits(UNDECIDED_SECONDS_MAX=0.2)
    database = await create_database(account, {"id": "db"}, None)
    doomed = await create_container(account, database, {"id": "c", **BODY}, None)
    other = await create_container(account, database, {"id": "other", **BODY}, None)
    monkeypatch.setattr(DataDirectory, "free_bytes", lambda directory: 0)
    fail_next_commit(monkeypatch, "IO error: No space left on device", is_stored=is_stored)
    with pytest.raises(Failure, match="is not known"):
        await delete_container(account, doomed, None)
    with pytest.raises(Failure, match="is not known yet"):
        await delete_container(account, other, None)
    assert account.container("db", "c") is doomed
    monkeypatch.undo()
    with_limits.restore()
    pending = account.catalog._outcomes._pending
    assert pending is not None
    await asyncio.wait([pending])
    if is_stored:
        with pytest.raises(Failure):
            account.container("db", "c")
        await create_container(account, database, {"id": "c", **BODY}, None)
    else:
        await delete_container(account, doomed, None)
    await delete_container(account, other, None)
    again = await Account.open(account.engine, account.clock)
    assert [each.name for each in again.catalog.of_type(ResourceType.CONTAINER)] == (["c"] if is_stored else [])
    await again.close()
