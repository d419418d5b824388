"""Transactional batches and bulk requests as .NET sends them: in HybridRow, and answered in it."""

from __future__ import annotations

import random
import struct
from collections.abc import AsyncIterator
from typing import Any
from zlib import crc32

import orjson
import pytest
from support.caller import KEY, Caller
from support.portions import Amount

from armillary import limits
from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.doors.sql.items.batch_rows import OPERATION, RESULT, read_operations, write_results
from armillary.errors import Failure, Kind
from armillary.model.binary_json.binary_writer import encode
from armillary.model.hybrid_row.record_stream import read_records, write_records
from armillary.model.hybrid_row.rows import read_row, write_row
from armillary.net.http import Response
from armillary.storage.memory import MemoryEngine

DOCS = "/dbs/db/colls/c/docs"
CLIENT = {
    "user-agent": "cosmos-netstandard-sdk/3.62.0|1|X64|Linux|.NET 8.0|N|F 00000001|",
    "x-ms-version": "2020-07-15",
    "x-ms-cosmos-sdk-supportedcapabilities": "25",
    "cache-control": "no-cache",
}
BATCH = {
    **CLIENT,
    "x-ms-documentdb-partitionkey": '["k"]',
    "x-ms-cosmos-is-batch-request": "True",
    "x-ms-cosmos-batch-atomic": "True",
    "x-ms-cosmos-batch-ordered": "True",
}
BULK = {
    **CLIENT,
    "x-ms-documentdb-partitionkeyrangeid": "0",
    "x-ms-cosmos-is-batch-request": "True",
    "x-ms-cosmos-batch-atomic": "False",
    "x-ms-cosmos-batch-continue-on-error": "True",
}
CREATE, PATCH, READ, DELETE, REPLACE, UPSERT = 0, 1, 2, 4, 5, 20


@pytest.fixture
async def call() -> AsyncIterator[Caller]:
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock)
    caller = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await caller("POST", "/dbs", {"id": "db"})
    await caller("POST", "/dbs/db/colls", {"id": "c", "partitionKey": {"paths": ["/pk"]}})
    yield caller
    await account.close()


def row(kind: int, body: Any = None, **columns: Any) -> bytes:
    if body is not None:
        columns["resourceBody"] = body if isinstance(body, bytes) else orjson.dumps(body)
    return write_row(OPERATION, {"operationType": kind, "resourceType": 2, **columns})


async def send(call: Caller, rows: list[bytes], **headers: str) -> tuple[Response, list[dict[str, Any]]]:
    response = await call.send("POST", DOCS, write_records(rows), **headers)
    assert response.body[:1] == b"\x81", response.body
    return response, [read_row(RESULT, each) for each in read_records(response.body)]


def statuses(results: list[dict[str, Any]]) -> list[int]:
    return [each["statusCode"] for each in results]


def record(content: str) -> bytes:
    """The header of a record as the schema of records lays it out, and the record."""
    data = bytes.fromhex(content)
    return struct.pack("<BiiI", 0x81, 2147473649, len(data), crc32(data)) + data


SEGMENT = struct.pack("<BiBi", 0x81, 2147473648, 1, 10)
# The operations and the results of .NET's own tests (BatchSchemaTests), laid out by hand.
TESTED_REQUEST = (
    SEGMENT
    + record("81 7054e17f 43 00000000 02000000 02 4142")
    + record("81 7054e17f 13 05000000 02000000 03 696432 14 09 0c 746865436f6e646974696f6e")
)
TESTED_RESPONSE = (
    SEGMENT
    + record("81 7154e17f 03 99010000 00000000 0b05 00000000 1006 0000000000000000")
    + record("81 7154e17f 0f c8000000 00000000 04 31323334 02 4142 0b05 68010000 1006 0000000000000440")
)


def test_the_request_and_the_response_of_dotnets_own_tests() -> None:
    first, second = read_records(TESTED_REQUEST)
    assert read_row(OPERATION, first) == {"operationType": CREATE, "resourceType": 2, "resourceBody": b"AB"}
    replaced = {"operationType": REPLACE, "resourceType": 2, "id": "id2", "ifMatch": "theCondition"}
    assert read_row(OPERATION, second) == replaced
    assert write_records([row(CREATE, b"AB"), row(REPLACE, id="id2", ifMatch="theCondition")]) == TESTED_REQUEST
    conflict = {"statusCode": 409, "subStatusCode": 0, "retryAfterMilliseconds": 0, "requestCharge": 0.0}
    found = {"statusCode": 200, "subStatusCode": 0, "eTag": "1234", "resourceBody": b"AB"}
    found |= {"retryAfterMilliseconds": 360, "requestCharge": 2.5}
    assert write_results([conflict, found]) == TESTED_RESPONSE


async def test_all_operations_in_one_batch(call: Caller) -> None:
    item = {"id": "1", "pk": "k", "n": 1}
    response, results = await send(
        call,
        [
            row(CREATE, item),
            row(UPSERT, {"id": "2", "pk": "k"}),
            row(REPLACE, {**item, "n": 2}, id="1"),
            row(PATCH, {"operations": [{"op": "incr", "path": "/n", "value": 40}]}, id="1"),
            row(READ, id="1"),
            row(DELETE, id="2"),
        ],
        **BATCH,
    )
    assert (response.status, statuses(results)) == (200, [201, 201, 200, 200, 200, 204])
    headers = dict(response.headers)
    total_ru = sum(each["requestCharge"] for each in results)
    assert abs(float(headers[b"x-ms-request-charge"]) - total_ru) < 0.1
    assert headers[b"x-ms-session-token"]
    read = orjson.loads(results[4]["resourceBody"])
    assert (read["n"], read["_etag"]) == (42, results[4]["eTag"])
    assert "resourceBody" not in results[5]
    _, kept, _ = await call("GET", f"{DOCS}/1", **{**CLIENT, "x-ms-documentdb-partitionkey": '["k"]'})
    assert kept == read


async def test_a_failed_operation_undoes_the_batch_and_tells_why(call: Caller) -> None:
    response, results = await send(
        call,
        [row(CREATE, {"id": "1", "pk": "k"}), row(READ, id="2"), row(CREATE, {"id": "3", "pk": "k"})],
        **BATCH,
    )
    assert (response.status, statuses(results)) == (207, [424, 404, 424])
    # .NET takes the body of the first failure for the message of the whole batch.
    assert list(orjson.loads(results[1]["resourceBody"])) == ["Errors"]
    assert "resourceBody" not in results[0]
    assert (await call("GET", f"{DOCS}/1", **{"x-ms-documentdb-partitionkey": '["k"]'}))[0] == 404


async def test_preconditions_are_judged_by_the_state_inside_the_batch(call: Caller) -> None:
    """Python's sample transactional_batch.py says so: a replacement whose ETag is from before the batch fails with 412
    if an operation of the batch has changed the item."""
    item = {"id": "1", "pk": "k"}
    _, made, _ = await call("POST", DOCS, item, **{"x-ms-documentdb-partitionkey": '["k"]'})
    stale = row(REPLACE, item, id="1", ifMatch=made["_etag"])
    _, results = await send(call, [row(REPLACE, item, id="1"), stale], **BATCH)
    assert statuses(results) == [424, 412]
    _, results = await send(call, [stale, row(READ, id="1")], **BATCH)
    assert statuses(results) == [200, 200]


@pytest.mark.parametrize("condition", ["ifMatch", "ifNoneMatch"])
async def test_a_read_of_the_known_state_is_not_modified(call: Caller, condition: str) -> None:
    """For either condition: BatchSessionTokenPropertiesTest of .NET, bulkETagTest of Java. The batch is then answered
    with 207, and nothing is undone."""
    _, made, _ = await call("POST", DOCS, {"id": "1", "pk": "k"}, **{"x-ms-documentdb-partitionkey": '["k"]'})
    known = row(READ, id="1", **{condition: made["_etag"]})
    response, results = await send(call, [row(READ, id="1"), known, row(CREATE, {"id": "2", "pk": "k"})], **BATCH)
    assert (response.status, statuses(results)) == (207, [200, 304, 201])
    assert (await call("GET", f"{DOCS}/2", **{"x-ms-documentdb-partitionkey": '["k"]'}))[0] == 200


async def test_operations_that_want_no_content(call: Caller) -> None:
    item = {"id": "1", "pk": "k"}
    rows = [row(UPSERT, item, minimalReturnPreference=True), row(UPSERT, item), row(READ, id="1")]
    _, results = await send(call, rows, **BATCH)
    assert ["resourceBody" in each for each in results] == [False, True, True]
    assert all("eTag" in each for each in results)
    _, results = await send(call, rows, prefer="return=minimal", **BATCH)
    assert ["resourceBody" in each for each in results] == [False, False, True]
    # The JSON form has the same member.
    batch = [{"operationType": "Upsert", "resourceBody": item, "minimalReturnPreference": True}]
    _, results, _ = await call("POST", DOCS, batch, **BATCH)
    assert "resourceBody" not in results[0]


async def test_an_item_that_is_not_to_be_indexed(call: Caller) -> None:
    rows = [
        row(CREATE, {"id": f"{n}", "pk": "k", "n": 1}, indexingDirective=word)
        for n, word in enumerate(["Exclude", "Default"])
    ]
    _, results = await send(call, rows, **BATCH)
    assert statuses(results) == [201, 201]
    query = {"x-ms-documentdb-isquery": "True", "x-ms-documentdb-partitionkey": '["k"]'}
    _, found, _ = await call("POST", DOCS, {"query": "SELECT VALUE c.id FROM c WHERE c.n = 1"}, **query)
    assert found["Documents"] == ["1"]
    response = await call.send("POST", DOCS, write_records([row(READ, id="1", indexingDirective="Never")]), **BATCH)
    assert response.status == 400


async def test_items_in_binary_json(call: Caller) -> None:
    item = {"id": "1", "pk": "k", "text": "a text of several words"}
    _, results = await send(call, [row(CREATE, encode(item, 100)), row(READ, id="1")], **BATCH)
    assert statuses(results) == [201, 200]
    assert orjson.loads(results[1]["resourceBody"])["text"] == item["text"]


async def test_bulk_requests_answer_each_operation(call: Caller) -> None:
    """With AllowBulkExecution the operations on one range come together, each with its key."""
    keys = ["a", "b", "c"]
    rows = [row(CREATE, {"id": "1", "pk": key}, partitionKey=f'["{key}"]') for key in keys]
    response, results = await send(call, rows, **BULK)
    assert (response.status, statuses(results)) == (200, [201, 201, 201])
    rows = [
        row(CREATE, {"id": "1", "pk": "a"}, partitionKey='["a"]'),
        row(READ, id="1", partitionKey='["b"]'),
        row(DELETE, id="1", partitionKey='["c"]'),
        row(READ, id="1", partitionKey='["c"]'),
    ]
    response, results = await send(call, rows, **BULK)
    assert (response.status, statuses(results)) == (207, [409, 200, 204, 404])


async def test_a_bulk_request_for_a_range_that_is_gone(call: Caller) -> None:
    """.NET reads the ranges again and groups the operations anew after 410/1002."""
    body = write_records([row(READ, id="1", partitionKey='["a"]')])
    response = await call.send("POST", DOCS, body, **{**BULK, "x-ms-documentdb-partitionkeyrangeid": "7"})
    assert (response.status, dict(response.headers)[b"x-ms-substatus"]) == (410, b"1002")
    assert orjson.loads(response.body)["code"] == "Gone"


async def test_what_is_refused(call: Caller) -> None:
    for rows, status, cause in [
        ([row(CREATE, {"id": "1", "pk": "k"}, timeToLiveInSeconds=3)], 400, "timeToLiveInSeconds"),
        ([row(READ, binaryId=b"1234")], 400, "binaryId"),
        ([row(READ, id="1", effectivePartitionKey=b"12")], 400, "effectivePartitionKey"),
        ([row(9, id="1")], 400, "operationType 9"),
        ([write_row(OPERATION, {"resourceType": 2, "id": "1"})], 400, "operationType None"),
        ([write_row(OPERATION, {"operationType": READ, "resourceType": 109, "id": "1"})], 400, "resourceType"),
        ([write_row(RESULT, {"statusCode": 200})], 400, "the schema 2145473649"),
        ([row(CREATE, b'{"id":')], 400, "not valid JSON"),
        ([row(CREATE, b"\x80\xff")], 400, "binary JSON"),
        ([row(CREATE)], 400, "needs a JSON object"),
        ([row(READ)], 400, "needs the 'id'"),
        ([], 400, "no operations"),
        ([row(READ, id="1")] * (limits.BATCH_OPERATIONS_MAX + 1), 400, "more operations"),
        ([row(CREATE, {"id": "1", "pk": "k", "t": "t" * limits.BATCH_BYTES_MAX})], 413, "too large"),
        # 3 MB of text in half a megabyte of binary JSON: references to one long string.
        ([row(CREATE, _repeated("s" * 500_000, 6))], 413, "too large"),
    ]:
        response = await call.send("POST", DOCS, write_records(rows), **BATCH)
        assert (response.status, cause in orjson.loads(response.body)["message"]) == (status, True), response.body
    assert (await call.send("POST", DOCS, b"\x81", **BATCH)).status == 400
    assert (await call.send("POST", DOCS, b"<xml/>", **BATCH)).status == 415


def _repeated(text: str, times: int) -> bytes:
    """An array of a string and references to it."""
    values = struct.pack("<BI", 0xC2, len(text)) + text.encode() + b"\xc3\x06" * times
    return struct.pack("<BBI", 0x80, 0xE4, len(values)) + values


def test_mutated_bodies_are_refused_or_read(seed: int, amount: Amount) -> None:
    """Half of them as they are, where the CRC-32 finds the damage; half with the CRC-32 of the damaged row, so that
    the rows are read."""
    dice = random.Random(seed)
    item = {"id": "1", "pk": "k", "n": [1, 2.5, None], "t": "text"}
    rows = [
        row(CREATE, item, ifNoneMatch="*", partitionKey='["k"]'),
        row(PATCH, {"operations": [{"op": "set", "path": "/n", "value": 1}]}, id="1", ifMatch="etag"),
        row(UPSERT, encode(item, 100), minimalReturnPreference=True, indexingDirective="Include"),
    ]
    whole = write_records(rows)
    refused = []
    count = amount(10_000)
    for number in range(count):
        if number % 2:
            damaged = list(rows)
            place = dice.randrange(len(rows))
            damaged[place] = _mutated(damaged[place], dice)
            body = write_records(damaged)
        else:
            body = _mutated(whole, dice)
        try:
            read_operations(body)
        except Failure as failure:
            refused.append(failure.kind)
    assert set(refused) == {Kind.BAD_REQUEST}
    assert len(refused) > 0.6 * count


def _mutated(body: bytes, dice: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(changed))
        match dice.randrange(4):
            case 0:
                changed[at] ^= 1 << dice.randrange(8)
            case 1:
                changed[at] = dice.choice([0, 1, 0x7F, 0x80, 0x81, 0xFF])
            case 2:
                changed[at:at] = dice.randbytes(dice.randint(1, 4))
            case _:
                del changed[at : at + dice.randint(1, 8)]
    return bytes(changed)
