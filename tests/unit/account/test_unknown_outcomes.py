"""Changes of the catalog whose outcome is known only after their client was told that it is not known, or after the
client went away: what is stored, what the catalog has in memory and what lives by it are alike, without a restart."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.disk import fail_next_commit
from support.limits import WithLimits
from support.waiting import until

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.catalog.container_state import as_collection
from armillary.account.catalog.records import Record
from armillary.account.check import check_account
from armillary.account.collections import event_feed, indexes
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.throughput import offers
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import SystemClock
from armillary.errors import Failure
from armillary.languages.mongo.indexes.index_definitions import read_definition
from armillary.model.resources import ResourceType
from armillary.storage.directory import DataDirectory
from armillary.storage.rocks import RocksEngine
from armillary.storage.rocks_database import Database

KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}
Change = Callable[[Account, Container], Awaitable[Any]]


@pytest.fixture
async def account(tmp_path: Path) -> AsyncIterator[Account]:
    engine = await RocksEngine.open(tmp_path / "store", "full")
    account = await Account.open(engine, SystemClock())
    yield account
    await account.close()
    await engine.close()


async def a_container(account: Account) -> Container:
    database = await containers.create_database(account, {"id": "db"}, None)
    body = {"id": "c", "partitionKey": KEY}
    return await containers.create_container(account, database, body, Throughput.manual(400), begin=as_collection)


async def replace_policies(account: Account, container: Container) -> None:
    body = {**container.record.body, "defaultTtl": 77, "changeFeedPolicy": {"retentionDuration": 10}}
    await containers.replace_container(account, container, body, None)


async def rename(account: Account, container: Container) -> None:
    await containers.rename_container(account, container, "other")


async def create_index(account: Account, container: Container) -> None:
    await indexes.create_indexes(account, container, [read_definition({"key": {"n": 1}, "name": "n_1"})])


async def scale(account: Account, container: Container) -> None:
    offer = account.catalog.offer_of(container.record)
    assert offer is not None
    wanted = {**offer.body, "content": {"offerThroughput": 20_000}}
    await offers.replace_offer(account, offer, wanted, to_autoscale=False, to_manual=False, if_match=None)


async def watch(account: Account, container: Container) -> None:
    await event_feed.watch(account, container)


async def set_mode(account: Account, container: Container) -> None:
    await account.budgets.set_mode(container, "enforce")


CHANGES: list[Change] = [replace_policies, rename, create_index, scale, watch, set_mode]


def break_storage(monkeypatch: pytest.MonkeyPatch, *, is_stored: bool) -> None:
    """The next change fails, done or not, and the disk is full from then on, until `monkeypatch.undo()`. Not before:
    the engine looks at the disk from time to time, and would refuse the change instead."""

    def fill() -> None:
        monkeypatch.setattr(DataDirectory, "free_bytes", lambda directory: 0)

    fail_next_commit(monkeypatch, "IO error: No space left on device", is_stored=is_stored, on_failing=fill)


def told(container: Container) -> dict[str, Any]:
    """What requests to a container go by."""
    schema = container.schema
    return {
        "name": container.name,
        "body": container.record.body,
        "state": container.record.state,
        "etag": container.record.etag,
        "rules": schema.rules.number,
        "older rules": sorted(schema.older_rules),
        "ttl": schema.rules.default_ttl,
        "indexes": [each["name"] for each in indexes.definitions(container)],
        "events": schema.keeps_events,
        "versions": schema.versions_number,
        "ranges": [each.id for each in container.map.ranges],
    }


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "lost"])
@pytest.mark.parametrize("change", CHANGES)
async def test_what_lives_follows_a_change_that_is_known_late(
    account: Account, monkeypatch: pytest.MonkeyPatch, with_limits: WithLimits, change: Change, is_stored: bool
) -> None:
    container = await a_container(account)
    before = told(container)
    with_limits(UNDECIDED_SECONDS_MAX=0.1)
    break_storage(monkeypatch, is_stored=is_stored)
    with pytest.raises(Failure, match="not known"):
        await change(account, container)
    assert told(container) == before
    pending = account.catalog._outcomes._pending
    assert pending is not None
    monkeypatch.undo()
    with_limits.restore()
    await asyncio.wait([pending])
    assert account.catalog.get(ResourceType.CONTAINER, container.record.rid) is container.record
    assert account.container("db", "other" if is_stored and change is rename else "c") is container
    if not is_stored:
        assert told(container) == before
        await change(account, container)  # can be done again, as nothing is in its way
    if change is scale:
        await account.budgets.keep_up(account.reshaper)
        await account.reshaper.grown(container)
        assert len(container.partitions) == 2
    if change is watch:
        await watch(account, container)
        assert container.are_events_begun
    if change is set_mode:
        assert account.budgets.mode_of(container) == "enforce"
    await account.restated(container)
    await until(lambda: account.reshaper.is_idle, "splits are over")
    assert told(container) != before or change is scale
    again = await Account.open(account.engine, account.clock)
    reopened = again.container("db", container.name)
    assert told(reopened) == told(container)
    await again.close()
    assert [problem async for problem in check_account(account.engine, account.clock)] == []


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "lost"])
async def test_a_container_that_is_known_late_to_be_made(
    account: Account, monkeypatch: pytest.MonkeyPatch, with_limits: WithLimits, is_stored: bool
) -> None:
    database = await containers.create_database(account, {"id": "db"}, None)
    with_limits(UNDECIDED_SECONDS_MAX=0.1)
    break_storage(monkeypatch, is_stored=is_stored)
    with pytest.raises(Failure, match="not known"):
        await containers.create_container(account, database, {"id": "c", "partitionKey": KEY}, None)
    pending = account.catalog._outcomes._pending
    assert pending is not None
    monkeypatch.undo()
    with_limits.restore()
    await asyncio.wait([pending])
    if not is_stored:
        await containers.create_container(account, database, {"id": "c", "partitionKey": KEY}, None)
    container = account.container("db", "c")
    await items.create(container, {"id": "1", "pk": "x"}, ItemOptions(), account.clock)


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "lost"])
async def test_state_that_a_failed_sync_leaves_behind(
    account: Account, monkeypatch: pytest.MonkeyPatch, with_limits: WithLimits, is_stored: bool
) -> None:
    """Known in time, so the client is told what became of it."""
    container = await a_container(account)
    record = container.record
    break_storage(monkeypatch, is_stored=is_stored)
    with_limits(UNDECIDED_SECONDS_MAX=30.0)
    asked = asyncio.create_task(account.catalog.change_state(record, lambda state, _: {**state, "policies": {"a": 1}}))
    await asyncio.sleep(0.05)
    monkeypatch.undo()
    if is_stored:
        await asked
    else:
        with pytest.raises(Failure, match="nothing was changed"):
            await asked
    assert ("policies" in record.state) is is_stored
    again = await Account.open(account.engine, account.clock)
    assert again.container("db", "c").record.state == record.state
    await again.close()


async def test_a_client_that_goes_away_in_the_middle(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its change goes on, and nothing else comes in between."""
    container = await a_container(account)
    gate, sync = threading.Event(), Database.sync

    def slow_sync(database: Database) -> None:
        gate.wait(30)
        sync(database)

    monkeypatch.setattr(Database, "sync", slow_sync)
    asking = asyncio.create_task(replace_policies(account, container))
    await asyncio.sleep(0.05)
    asking.cancel()
    await asyncio.wait([asking])
    with pytest.raises(Failure, match="not known yet"):
        await rename(account, container)
    gate.set()
    await until(lambda: container.schema.rules.default_ttl == 77, "the change is in memory")
    await rename(account, container)
    found: Record | None = account.catalog.get(ResourceType.CONTAINER, container.record.rid)
    assert found is container.record and found.body["defaultTtl"] == 77 and found.name == "other"


async def test_a_container_starts_above_writes_that_are_still_under_way(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their clients get session tokens of the container that was deleted before they were answered."""
    container = await a_container(account)
    gate, sync = threading.Event(), Database.sync

    def slow_sync(database: Database) -> None:
        gate.wait(30)
        sync(database)

    monkeypatch.setattr(Database, "sync", slow_sync)
    writing = [
        asyncio.create_task(items.create(container, {"id": str(number), "pk": "x"}, ItemOptions(), account.clock))
        for number in range(20)
    ]
    (partition,) = container.partitions.values()
    await until(lambda: partition.reached_lsn >= partition.lsn + 20, "all of them have run")
    highest = account.highest_lsn
    gate.set()
    assert all(answer.lsn <= highest for answer in await asyncio.gather(*writing))
