"""Cosmos binary JSON at the SQL door: bodies in either format store the same item at the same charge, and answers are
binary for clients that accept nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.caller import KEY, Caller

from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.doors.sql.serialization import text_body
from armillary.model.binary_json.binary_writer import encode
from armillary.net.http import Response
from armillary.storage.memory import MemoryEngine

DOCS = "/dbs/db/colls/c/docs"
OF_KEY = {"x-ms-documentdb-partitionkey": '["k"]'}
QUERY = {**OF_KEY, "x-ms-documentdb-isquery": "True"}
ASKS = {"x-ms-cosmos-supported-serialization-formats": "CosmosBinary"}
ITEM = {"id": "1", "pk": "k", "name": "a name of an item", "numbers": [1, 2.5, -3], "inner": {"type": None}}


@pytest.fixture
async def call() -> AsyncIterator[Caller]:
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock)
    caller = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await caller("POST", "/dbs", {"id": "db"})
    await caller("POST", "/dbs/db/colls", {"id": "c", "partitionKey": {"paths": ["/pk"]}})
    yield caller
    await account.close()


def binary(value: Any) -> bytes:
    return encode(value, len(orjson.dumps(value)))


def charge(response: Response) -> bytes:
    lines = dict(line.split(b": ", 1) for line in response.lines.split(b"\r\n"))
    return lines[b"x-ms-request-charge"]


def kept(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if not name.startswith("_")}


async def test_a_binary_body_stores_what_its_text_does(call: Caller) -> None:
    status, made, response = await call("POST", DOCS, binary(ITEM), **OF_KEY)
    assert (status, kept(made)) == (201, ITEM)
    status, same, text_response = await call("POST", DOCS, {**ITEM, "id": "2"}, **OF_KEY)
    assert (status, charge(text_response)) == (201, charge(response))
    assert len(orjson.dumps(same)) == len(orjson.dumps(made))
    status, replaced, _ = await call("PUT", f"{DOCS}/1", binary({**ITEM, "n": 7}), **OF_KEY)
    assert (status, replaced["n"]) == (200, 7)
    upsert = {**OF_KEY, "x-ms-documentdb-is-upsert": "True"}
    status, replaced, _ = await call("POST", DOCS, binary({**ITEM, "n": 8}), **upsert)
    assert (status, replaced["n"]) == (200, 8)
    patch = {"operations": [{"op": "incr", "path": "/n", "value": 1}]}
    status, patched, _ = await call("PATCH", f"{DOCS}/1", binary(patch), **OF_KEY)
    assert (status, patched["n"]) == (200, 9)
    asked = {"query": "SELECT VALUE c.n FROM c WHERE c.n = @n", "parameters": [{"name": "@n", "value": 9}]}
    status, page, _ = await call("POST", DOCS, binary(asked), **QUERY)
    assert (status, page["Documents"]) == (200, [9])


async def test_answers_are_binary_for_clients_that_accept_nothing_else(call: Caller) -> None:
    status, made, response = await call("POST", DOCS, binary(ITEM), **OF_KEY, **ASKS)
    assert (status, response.body[0], kept(made)) == (201, 0x80, ITEM)
    status, read, response = await call("GET", f"{DOCS}/1", None, **OF_KEY, **ASKS)
    assert (status, response.body[0], read) == (200, 0x80, made)
    _, _, text_response = await call("GET", f"{DOCS}/1", None, **OF_KEY)
    assert charge(response) == charge(text_response)
    status, page, response = await call("GET", DOCS, None, **OF_KEY, **ASKS)
    assert (status, response.body[0], page["Documents"], page["_count"]) == (200, 0x80, [made], 1)
    query = {"query": "SELECT * FROM c"}
    status, page, response = await call("POST", DOCS, query, **QUERY, **ASKS)
    assert (status, response.body[0], page["Documents"]) == (200, 0x80, [made])


async def test_other_answers_are_text(call: Caller) -> None:
    await call("POST", DOCS, ITEM, **OF_KEY)
    both = {"x-ms-cosmos-supported-serialization-formats": "JsonText, CosmosBinary"}
    for path, headers in ((f"{DOCS}/1", {**OF_KEY, **both}), (f"{DOCS}/2", {**OF_KEY, **ASKS}), ("/dbs/db", ASKS)):
        _, _, response = await call("GET", path, None, **headers)
        assert response.body[:1] == b"{"
    _, _, response = await call("POST", DOCS, ITEM, **OF_KEY, **ASKS)
    assert (response.status, response.body[:1]) == (409, b"{")
    minimal = {**OF_KEY, **ASKS, "prefer": "return=minimal"}
    status, _, response = await call("POST", DOCS, {**ITEM, "id": "3"}, **minimal)
    assert (status, response.body) == (201, b"")


async def test_an_unknown_format_is_refused_before_anything_is_stored(call: Caller) -> None:
    unknown = {"x-ms-cosmos-supported-serialization-formats": "HybridRow"}
    status, refused, _ = await call("POST", DOCS, ITEM, **OF_KEY, **unknown)
    assert status == 400
    assert "a list with JsonText or CosmosBinary" in refused["message"]
    assert (await call("GET", f"{DOCS}/1", None, **OF_KEY))[0] == 404


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"\x80\xea\x05", "not valid Cosmos binary JSON: the body ends in the middle of a value"),
        (b"\x80\xd0", "must be a JSON object, not null"),
        (b"\x81\x00\x00", "is not valid JSON"),
        (b"\xef\xbb\xbf{}", "is not valid JSON"),
        (b"PK\x03\x04", "is not valid JSON"),
    ],
)
async def test_bodies_in_no_format(call: Caller, body: bytes, cause: str) -> None:
    status, refused, _ = await call("POST", DOCS, body, **OF_KEY)
    assert status == 400
    assert cause in refused["message"]


async def test_the_text_that_a_body_stands_for_has_the_limit_of_texts(call: Caller) -> None:
    payload = b"\x71\xff\x00" + b"a" * 765  # base64 is longer than its bytes
    numbers = b"\xe4" + (len(payload) * 5_000).to_bytes(4, "little") + payload * 5_000
    status, refused, _ = await call("POST", DOCS, b"\x80\xe9\x81n" + numbers, **OF_KEY)
    assert (status, "stands for" in refused["message"]) == (413, True)
    status, refused, _ = await call("POST", DOCS, binary({**ITEM, "long": "ä" * 1_100_000}), **OF_KEY)
    assert status == 413


async def test_a_long_body_gives_way() -> None:
    values = list(range(40)) * 5_000
    body = encode({"values": values}, 10_000_000)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    assert orjson.loads(await text_body(body)) == {"values": values}
    counting.cancel()
    assert turns > 50
