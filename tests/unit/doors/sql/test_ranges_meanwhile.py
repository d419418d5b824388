"""Lists of partition key ranges, and change streams, while partitions are split and processes are missing: what is read
before and after a wait must not be mixed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from support.caller import KEY, Caller
from support.divided import ALLOWED, Spread, divide

from armillary.account.account import Account
from armillary.account.collections import event_feed
from armillary.account.collections.event_visits import EventsRead
from armillary.account.container import Container
from armillary.account.visits import uncounted_visits
from armillary.account.visits.elsewhere.place import Unreached
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.doors.sql.resources import lists
from armillary.storage.memory import MemoryEngine

RANGES = "/dbs/db/colls/c/pkranges"


class House:
    def __init__(self, account: Account, caller: Caller) -> None:
        self.account = account
        self.ask = caller

    @classmethod
    async def made(cls) -> House:
        clock = VirtualClock()
        account = await Account.open(MemoryEngine(), clock)
        caller = Caller(SqlDoor(account, AccountKeys(KEY, KEY, KEY), accepts_aad=False), clock)
        await caller("POST", "/dbs", {"id": "db"})
        key = {"paths": ["/pk"], "version": 2}
        status, *_ = await caller(
            "POST", "/dbs/db/colls", {"id": "c", "partitionKey": key}, **{"x-ms-offer-throughput": "20000"}
        )
        assert status == 201
        return cls(account, caller)

    @property
    def container(self) -> Container:
        return self.account.container("db", "c")

    async def split(self) -> None:
        """The last one."""
        reshaper = self.account.reshaper
        await reshaper.finished(await reshaper.split(self.container, self.container.map.ranges[-1].id))

    async def listed(self, etag: str = "") -> tuple[list[str], str]:
        headers = {"A-IM": "Incremental feed"} | ({"if-none-match": etag} if etag else {})
        status, content, response = await self.ask(
            "GET", RANGES, **{name.lower(): value for name, value in headers.items()}
        )
        found = dict(response.headers).get(b"etag", b"").decode()
        assert status in (200, 304), content
        return [each["id"] for each in content["PartitionKeyRanges"]] if content else [], found


@pytest.fixture
async def house() -> AsyncIterator[House]:
    made = await House.made()
    yield made
    await made.account.close()


async def test_a_split_ends_while_figures_are_asked_for(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async def renew(*_: Any) -> None:
        await house.split()

    monkeypatch.setattr(lists, "renew_figures", renew)
    ids, etag = await house.listed()
    assert ids == [str(each.id) for each in house.container.map.ranges]
    monkeypatch.undo()
    assert await house.listed(etag) == ([], etag)


async def test_the_etag_is_that_of_the_ranges_that_are_listed(house: House) -> None:
    """A process has taken over the record of a split, and does not serve from the children yet."""
    before = await house.listed()
    container = house.container
    record = container.record
    container.record = replace(record, state=replace(record.container_state, next_range=99).to_json())
    assert await house.listed() == before
    container.record = record
    await house.split()
    ids, etag = await house.listed(before[1])
    assert len(ids) == 2 and etag != before[1]


async def test_ranges_are_listed_while_a_process_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    divide(monkeypatch, Spread(places=2, has_own=True, allowed=ALLOWED))
    house = await House.made()
    asked = []

    async def missing(*given: Any) -> None:
        asked.append(given)
        raise Unreached

    monkeypatch.setattr(uncounted_visits, "run_uncounted_at", missing)
    ids, _ = await house.listed()
    assert len(ids) == 4 and asked
    await house.account.close()


async def test_a_split_ends_while_a_change_stream_is_read(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def split_after_the_first(*given: Any) -> EventsRead:
        asked.append(given)
        if len(asked) == 1:
            await house.split()
        return EventsRead([], b"")

    monkeypatch.setattr(event_feed, "run_uncounted_at", split_after_the_first)
    _, position = await event_feed.read(house.container, event_feed.beginning(), 100, None)
    assert [each.low for each in position] == [each.low for each in house.container.map.ranges]
