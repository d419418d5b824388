"""commitTransaction that is sent again: it is answered by what became of the first one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bson.binary import Binary
from bson.int64 import Int64
from support.mongo_house import MongoHouse

from armillary.account.collections.spanning_transactions import SpanningTransaction
from armillary.account.visits.write_visits import write_conflict

FRAME = {"lsid": {"id": Binary(bytes(16), 4)}, "txnNumber": Int64(1), "autocommit": False}
COMMIT = {"commitTransaction": 1, **FRAME}
really_commit = SpanningTransaction.commit


async def opened() -> MongoHouse:
    """With a transaction over two collections, not committed."""
    house = await MongoHouse.open()
    for name in ("a", "b"):
        await house.ask({"insert": name, "documents": [{"_id": 0}]})
    begin = {"insert": "a", "documents": [{"_id": 1}], **FRAME, "startTransaction": True}
    assert (await house.ask(begin))["ok"] == 1.0
    assert (await house.ask({"insert": "b", "documents": [{"_id": 1}], **FRAME}))["ok"] == 1.0
    return house


async def counts(house: MongoHouse) -> list[int]:
    return [(await house.ask({"count": name}))["n"] for name in ("a", "b")]


async def commit(house: MongoHouse) -> dict[str, Any]:
    return await house.ask(COMMIT, client=house.visitor(), database="admin")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_second_commit_waits_for_the_first(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    house = await opened()
    go_on = asyncio.Event()

    async def slow(self: SpanningTransaction, record: Any = None) -> None:
        await go_on.wait()
        if fails:
            raise write_conflict()
        await really_commit(self, record)

    monkeypatch.setattr(SpanningTransaction, "commit", slow)
    both = [asyncio.ensure_future(commit(house)) for _ in range(2)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(each.done() for each in both)
    assert (await house.ask({"insert": "a", "documents": [{}], **FRAME}))["code"] == 256
    go_on.set()
    first, second = await asyncio.gather(*both)
    assert [first.get("code"), second.get("code")] == ([112, 251] if fails else [None, None])
    assert await counts(house) == ([1, 1] if fails else [2, 2])
    await house.close()


@pytest.mark.parametrize("is_written", [False, True])
async def test_a_commit_that_was_cancelled(is_written: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    house = await opened()

    async def cancelled(self: SpanningTransaction, record: Any = None) -> None:
        if is_written:
            await really_commit(self, record)
        raise asyncio.CancelledError

    monkeypatch.setattr(SpanningTransaction, "commit", cancelled)
    with pytest.raises(asyncio.CancelledError):
        await commit(house)
    again = await commit(house)
    assert again.get("code") == (None if is_written else 251)
    assert await counts(house) == ([2, 2] if is_written else [1, 1])
    # What it has written is free for others.
    other = {"update": "a", "updates": [{"q": {"_id": 0}, "u": {"$set": {"n": 1}}}]}
    assert (await house.ask(other))["nModified"] == 1
    await house.close()
