"""Change feeds over partitions that split and merge meanwhile: nothing is missing or comes twice, all in order."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from support.house import House

from armillary.account.account import Account
from armillary.account.changes.change_feed import read_changes
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure, Kind
from armillary.model.encoding import payload_of, unpack_header
from armillary.model.key_values import Key
from armillary.model.keys import SPACE_HIGH, SPACE_LOW

KEYS = 40


class Consumer:
    """Reads as a client does that knows ranges: one position for each stretch of keys, sent to the range that holds it;
    a range that is gone is looked up anew, and its position goes on with those that took its place."""

    def __init__(self, low: bytes, high: bytes) -> None:
        self._work: list[tuple[bytes, bytes, str | None, int | None]] = [(low, high, None, None)]
        self.versions: list[str] = []
        self.values: dict[str, float] = {}
        self._lsns: dict[bytes, int] = {}

    async def turn(self, account: Account, container: Container, page_items: int) -> int:
        """One request. How many items it brought."""
        low, high, position, range_id = self._work.pop(0)
        if range_id is None:
            for key_range in reversed(container.map.overlapping(low, high)):
                cut = (max(low, key_range.low), min(high, key_range.high), position, key_range.id)
                self._work.insert(0, cut)
            low, high, position, range_id = self._work.pop(0)
        options = FeedOptions(
            range_id=str(range_id), epk_range=(low, high), continuation=position, page_items=page_items
        )
        try:
            page = await read_changes(account, container, options)
        except Failure as failure:
            if failure.kind is not Kind.RANGE_GONE:
                raise
            self._work.insert(0, (low, high, position, None))
            return await self.turn(account, container, page_items)
        for lsn, stored, _ in page.items:
            self.note(lsn, stored)
        self._work.append((low, high, page.continuation, range_id))
        return len(page.items)

    async def drain(self, account: Account, container: Container) -> None:
        quiet = 0
        while quiet <= len(self._work):
            quiet = 0 if await self.turn(account, container, 1000) else quiet + 1

    def note(self, lsn: int, stored: bytes) -> None:
        item, epk = orjson.loads(payload_of(stored)), unpack_header(stored).epk
        assert lsn >= self._lsns.get(epk, 0), "changes of one key are out of order"
        self._lsns[epk] = lsn
        self.versions.append(item["_etag"])
        self.values[item["id"]] = item["n"]


class Crowd(Consumer):
    """Reads all there is with one position, as plain REST does."""

    def __init__(self) -> None:
        super().__init__(SPACE_LOW, SPACE_HIGH)
        self._position: str | None = None

    async def turn(self, account: Account, container: Container, page_items: int) -> int:
        page = await read_changes(account, container, FeedOptions(continuation=self._position, page_items=page_items))
        self._position = page.continuation
        for lsn, stored, _ in page.items:
            self.note(lsn, stored)
        return len(page.items)


@pytest.mark.parametrize("seed", range(4))
async def test_splits_and_merges(seed: int) -> None:
    print("seed", seed)
    dice = random.Random(seed)
    house = await House.open()
    account = house.account
    container = await house.container()
    middle = container.effective_key(Key((7,)))
    consumers = [Consumer(SPACE_LOW, SPACE_HIGH), Consumer(SPACE_LOW, middle), Consumer(middle, SPACE_HIGH), Crowd()]
    model: dict[str, float] = {}
    written: dict[str, str] = {}  # the last etag of each item
    splits = merges = 0
    for _ in range(150):
        for _ in range(dice.randrange(6)):
            pk = dice.randrange(KEYS)
            document: dict[str, Any] = {"id": f"{pk}-{dice.randrange(3)}", "pk": pk, "n": dice.random()}
            answer = await items.upsert(container, document, ItemOptions(key=Key((pk,))), house.clock)
            assert answer.etag is not None
            model[document["id"]], written[document["id"]] = document["n"], answer.etag
        for consumer in consumers:
            if dice.random() < 0.6:
                await consumer.turn(account, container, dice.choice([1, 3, 20]))
        roll = dice.random()
        ranges = container.map.ranges
        if roll < 0.08 and len(ranges) < 6:
            chosen = dice.choice(ranges)
            try:
                reshape = await account.reshaper.split(container, chosen.id)
            except Failure as failure:
                if failure.kind is not Kind.BAD_REQUEST:  # a single key cannot be divided
                    raise
                continue
            await account.reshaper.finished(reshape)
            splits += 1
        elif roll < 0.15 and len(ranges) > 1:
            at = dice.randrange(len(ranges) - 1)
            reshape = await account.reshaper.merge(container, ranges[at].id, ranges[at + 1].id)
            await account.reshaper.finished(reshape)
            merges += 1
    assert splits and merges
    for consumer in consumers:
        await consumer.drain(account, container)
        assert len(consumer.versions) == len(set(consumer.versions)), "a version came twice"
    assert consumers[0].values == consumers[3].values == model
    assert consumers[1].values | consumers[2].values == model
    assert set(written.values()) <= set(consumers[0].versions)
    await house.close()
