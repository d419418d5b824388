"""The corpus of MongoDB behaviour through the released client against a real server: in collections as they come, and
in sharded ones that are spread over four partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus

import pymongo
import pytest
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.database import Database
from pymongo.errors import OperationFailure
from support.mongo_cases import decoded, difference, load_cases
from support.process import ServerProcess

CASES = load_cases()
OWN_CASES = [*load_cases("own_cases"), *load_cases("own_find_cases")]  # in the order of insertion, so of one partition
CODEC: CodecOptions[Any] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
PARTITION_RU = 200  # of which a collection's 400 request units make four partitions


READS = {"find", "aggregate", "count", "distinct"}
WRITING_STAGES = {"$out", "$merge"}
_filled: dict[tuple[int, str], str] = {}  # what a collection holds of so many partitions, if only reads came since


@pytest.fixture(scope="module")
def house() -> Iterator[Database[Any]]:
    _filled.clear()
    server = ServerProcess.start(None, "--partition-throughput", str(PARTITION_RU))
    address = server.doors["mongo"].replace("://", f"://localhost:{quote_plus(server.key)}@")
    client: pymongo.MongoClient[Any] = pymongo.MongoClient(f"{address}/?replicaSet=globaldb")
    yield client.get_database("cases", codec_options=CODEC)
    client.close()
    server.stop()


@pytest.mark.parametrize("case", OWN_CASES, ids=[case["id"] for case in OWN_CASES])
def test_own_case(house: Database[Any], case: dict[str, Any]) -> None:
    check(house, case, 1)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(house: Database[Any], case: dict[str, Any]) -> None:
    for partitions in (1, 4):
        check(house, case, partitions)


def check(house: Database[Any], case: dict[str, Any], partitions: int) -> None:
    house = house.client.get_database(f"cases{partitions}", codec_options=CODEC)
    _fill(house, "c", case["docs"], partitions)
    for name, documents in case.get("other", {}).items():
        _fill(house, name, documents, partitions)
    command = decoded(case["command"])
    is_write = next(iter(command)) not in READS
    if is_write or any(f"'{stage}'" in str(command) for stage in WRITING_STAGES):
        _filled.clear()
    match next(iter(command)):
        case "find":
            command["batchSize"] = 10_000
        case "aggregate":
            command["cursor"] = {"batchSize": 10_000}
    try:
        reply = house.command(command, codec_options=CODEC)
    except OperationFailure as failure:
        if case["expect"].get("error") in (True, failure.code):
            return
        raise
    if "cursor" in reply:
        reply["documents"] = reply["cursor"]["firstBatch"]
    after = []
    if is_write:
        found = house.command({"find": "c", "sort": {"_id": 1}, "batchSize": 10_000}, codec_options=CODEC)
        after = found["cursor"]["firstBatch"]
    assert difference(case, reply, after) is None, f"{partitions} partitions"


def _fill(house: Database[Any], name: str, documents: list[Any], partitions: int) -> None:
    wanted = json.dumps(documents)
    if _filled.pop((partitions, name), None) == wanted:
        _filled[(partitions, name)] = wanted
        return
    house.drop_collection(name)
    if partitions > 1:
        house.command({"shardCollection": f"{house.name}.{name}", "key": {"_id": "hashed"}})
        assert house.command({"collStats": name})["partitions"] == partitions
    elif not documents:
        house.create_collection(name)
    if documents:
        house.command({"insert": name, "documents": decoded(documents)}, codec_options=CODEC)
    _filled[(partitions, name)] = wanted
