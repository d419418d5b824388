"""Ordered inserts over several partitions: neighbours go in one transaction, and all is as if they went one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bson.binary import Binary
from bson.int64 import Int64
from support.mongo_house import MongoHouse

from armillary.storage.memory import MemoryEngine
from armillary.storage.rocks import RocksEngine

SEED = 20261116
FOUR_RU = 24_000  # what makes four partitions
LSID = {"id": Binary(bytes(16), 4)}


@pytest.fixture(params=["memory", "rocks"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MongoHouse]:
    engine = MemoryEngine() if request.param == "memory" else await RocksEngine.open(tmp_path / "store", "full")
    opened = await MongoHouse.open(engine)
    made = await opened.ask(
        {"customAction": "CreateCollection", "collection": "c", "shardKey": "s", "offerThroughput": FOUR_RU}
    )
    assert made["ok"] == 1.0 and len(opened.account.container("test", "c").partitions) == 4
    yield opened
    await opened.close()


def _documents(first: int, count: int) -> list[dict[str, Any]]:
    dice = Random(SEED + first)
    return [{"_id": first + each, "s": f"s{dice.randrange(50)}"} for each in range(count)]


async def _ids(house: MongoHouse) -> list[int]:
    answer = await house.ask({"find": "c", "batchSize": 10_000})
    return sorted(each["_id"] for each in answer["cursor"]["firstBatch"])


@pytest.mark.parametrize("place", [0, 1, 63, 64, 130, 199])
async def test_what_is_behind_a_failure_is_not_there(house: MongoHouse, place: int) -> None:
    documents = _documents(0, 200)
    await house.ask({"insert": "c", "documents": [documents[place]]})
    answer = await house.ask({"insert": "c", "documents": documents})
    assert answer["n"] == place
    assert [(each["index"], each["code"]) for each in answer["writeErrors"]] == [(place, 11000)]
    assert await _ids(house) == list(range(place + 1))


async def test_a_document_twice(house: MongoHouse) -> None:
    documents = _documents(0, 100)
    documents.insert(70, documents[40])
    answer = await house.ask({"insert": "c", "documents": documents})
    assert (answer["n"], answer["writeErrors"][0]["index"]) == (70, 70)
    assert await _ids(house) == list(range(70))


async def test_a_command_that_comes_again_while_it_is_under_way(house: MongoHouse) -> None:
    """Whatever is done by which of them, each statement is done once."""
    command = {"insert": "c", "documents": _documents(0, 150), "lsid": LSID, "txnNumber": Int64(1)}
    answers = await asyncio.gather(*[house.ask(command) for _ in range(3)])
    assert [(each["n"], each.get("writeErrors")) for each in answers] == [(150, None)] * 3
    assert await _ids(house) == list(range(150))
    again = await house.ask(command)
    assert (again["n"], len(again["retriedStmtIds"])) == (150, 150)


async def test_commands_that_compete(house: MongoHouse) -> None:
    """Of two that insert the same documents each stops at the first that the other had."""
    documents = _documents(0, 150)
    answers = await asyncio.gather(*[house.ask({"insert": "c", "documents": documents}) for _ in range(2)])
    assert sum(each["n"] for each in answers) == len(await _ids(house))
    for answer in answers:
        if "writeErrors" in answer:
            assert answer["writeErrors"][0]["index"] == answer["n"]
