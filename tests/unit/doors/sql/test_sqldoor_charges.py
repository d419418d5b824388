"""Charges over the SQL protocol: itemised on request, refused with 429, and all counted."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from support.caller import KEY, Caller

from armillary.account.account import Account
from armillary.account.overview import container_totals
from armillary.account.registry import AccountSettings
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.net.charged_requests import render_charge
from armillary.net.http import Response
from armillary.storage.memory import MemoryEngine

DOCS = "/dbs/db/colls/c/docs"
EXPLAINED = {"x_armillary_explain": "true"}
QUERY = {"x_ms_documentdb_isquery": "true", "x_ms_documentdb_query_enablecrosspartition": "true"}


class Desk:
    def __init__(self, account: Account, clock: VirtualClock) -> None:
        self.account, self.clock = account, clock
        self.call = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
        self.answered = 0  # hundredths of request units

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Response]:
        status, answered, response = await self.call(method, path, body, **headers)
        self.answered += hundredths(header(response, "x-ms-request-charge") or "0")
        return status, answered, response

    def counted(self) -> int:
        totals = self.account.budgets.metadata.totals
        for container in self.account.containers:
            totals = totals.plus(container_totals(container))
        return totals.charged


@asynccontextmanager
async def a_desk(throughput_ru: int = 400, **settings: Any) -> AsyncIterator[Desk]:
    engine, clock = MemoryEngine(), VirtualClock()
    account = await Account.open(engine, clock, AccountSettings(**settings))
    desk = Desk(account, clock)
    await desk("POST", "/dbs", {"id": "db"})
    body = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
    await desk("POST", "/dbs/db/colls", body, x_ms_offer_throughput=str(throughput_ru))
    yield desk
    await account.close()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with a_desk(11_000) as opened:
        yield opened


def header(response: Response, name: str) -> str | None:
    lines = dict(response.headers)
    if response.lines:
        lines = dict(line.split(b": ", 1) for line in response.lines.split(b"\r\n"))
    value = lines.get(name.encode())
    return value.decode() if value is not None else None


def hundredths(text: str) -> int:
    whole, _, cents = text.partition(".")
    return int(whole) * 100 + int(cents.ljust(2, "0") or 0)


def parts_of(response: Response) -> dict[str, dict[str, Any]]:
    text = header(response, "x-armillary-charge")
    assert text is not None
    parts = orjson.loads(text)
    charge = hundredths(header(response, "x-ms-request-charge") or "0")
    assert sum(round(part["ru"] * 100) for part in parts) == charge
    return {part["what"]: part for part in parts}


def keyed(key: str) -> dict[str, str]:
    return {"x_ms_documentdb_partitionkey": f'["{key}"]', **EXPLAINED}


async def test_items_are_explained(desk: Desk) -> None:
    _, made, response = await desk("POST", DOCS, {"id": "1", "pk": "a", "n": 1}, **keyed("a"))
    parts = parts_of(response)
    assert list(parts) == ["write the item", "add index terms"]
    assert parts["write the item"]["ru"] == 5
    assert parts["write the item"]["bytes"] == len(orjson.dumps(made))
    assert (parts["add index terms"]["count"], parts["add index terms"]["ru"]) == (3, 0.6)
    _, _, response = await desk("GET", f"{DOCS}/1", **keyed("a"))
    assert parts_of(response)["read the item"]["ru"] == 1
    _, _, response = await desk("PUT", f"{DOCS}/1", {"id": "1", "pk": "a", "n": 2}, **keyed("a"))
    parts = parts_of(response)
    assert {what: part["ru"] for what, part in parts.items()} == {
        "remove the old item": 5,
        "write the new item": 5,
        "change index terms": 0.4,
    }
    _, _, response = await desk("PATCH", f"{DOCS}/1", [{"op": "incr", "path": "/n", "value": 1}], **keyed("a"))
    assert parts_of(response)["apply patch operations"] == {"what": "apply patch operations", "count": 1, "ru": 0.4}
    _, _, response = await desk("GET", f"{DOCS}/1", if_none_match=f'"{header(response, "etag")}"', **keyed("a"))
    assert list(parts_of(response)) == ["read the item"]
    status, _, response = await desk("GET", f"{DOCS}/2", **keyed("a"))
    assert (status, parts_of(response)) == (404, {"refuse": {"what": "refuse", "ru": 1.0}})
    _, _, response = await desk("DELETE", f"{DOCS}/1", **keyed("a"))
    assert list(parts_of(response)) == ["remove the item", "remove index terms"]


async def test_nothing_is_explained_unasked(desk: Desk) -> None:
    for wanted in ({}, {"x_armillary_explain": "false"}):
        _, _, response = await desk("GET", "/dbs/db", **wanted)
        assert header(response, "x-armillary-charge") is None
    status, body, _ = await desk("POST", DOCS, {"id": "1", "pk": "a"}, **{**keyed("a"), "x_armillary_explain": "maybe"})
    assert status == 400
    assert "x-armillary-explain" in body["message"]
    assert (await desk("GET", f"{DOCS}/1", **keyed("a")))[0] == 404


async def test_pages_batches_and_metadata_are_explained(desk: Desk) -> None:
    for number in range(5):
        await desk("POST", DOCS, {"id": f"{number}", "pk": f"k{number}", "n": number}, **keyed(f"k{number}"))
    _, _, response = await desk("GET", DOCS, **EXPLAINED)
    assert parts_of(response)["read items"]["count"] == 5
    _, _, response = await desk("POST", DOCS, {"query": "SELECT * FROM c WHERE c.n > 2"}, **QUERY, **EXPLAINED)
    assert {"visit partitions", "precise index scans"} <= parts_of(response).keys()
    _, _, response = await desk("GET", DOCS, a_im="Incremental Feed", **EXPLAINED)
    assert parts_of(response)["read items"]["count"] == 5
    _, _, response = await desk("GET", DOCS, a_im="Incremental Feed", if_none_match="*", **EXPLAINED)
    assert list(parts_of(response)) == ["look for items"]
    batch = {"x_ms_cosmos_is_batch_request": "true", "x_ms_cosmos_batch_atomic": "true"}
    operations = [{"operationType": "Create", "resourceBody": {"id": f"b{n}", "pk": "k1"}} for n in range(3)]
    _, _, response = await desk("POST", DOCS, operations, **batch, **keyed("k1"))
    parts = parts_of(response)
    assert (parts["write the item"]["count"], parts["write the item"]["ru"]) == (3, 15)
    status, _, response = await desk("POST", DOCS, operations, **batch, **keyed("k1"))
    assert (status, list(parts_of(response))) == (207, ["refuse"])
    for path in ("/dbs", "/dbs/db/colls", "/dbs/db/colls/c", "/dbs/db/colls/c/pkranges", "/offers"):
        _, _, response = await desk("GET", path, **EXPLAINED)
        assert list(parts_of(response)) == ["metadata"]
    assert parts_of((await desk("GET", "/", **EXPLAINED))[2]) == {}
    _, _, response = await desk("POST", "/dbs/db/colls/c/operations/partitionkeydelete", **keyed("k1"))
    assert list(parts_of(response)) == ["look for the items", "remove items and their index terms"]


async def test_refusals_look_as_the_service_makes_them() -> None:
    async with a_desk(throughput_mode="enforce") as desk:
        while (answer := await desk("GET", f"{DOCS}/1", **keyed("a")))[0] == 404:
            pass
        status, body, response = answer
        assert status == 429
        assert header(response, "x-ms-substatus") == "3200"
        assert header(response, "x-ms-retry-after-ms") == "1000"
        assert header(response, "x-ms-request-charge") == "0.38"
        assert body["code"] == "429"
        assert body["message"].startswith(
            'Message: {"Errors":["Request rate is large. More Request Units may be needed, so no changes were made. '
            'Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429"]}'
        )
        assert parts_of(response) == {
            "refuse: too many request units": {"what": "refuse: too many request units", "ru": 0.38}
        }
        desk.clock.advance(1)
        assert (await desk("GET", f"{DOCS}/1", **keyed("a")))[0] == 404


async def test_metadata_requests_are_refused_too() -> None:
    async with a_desk(throughput_mode="enforce") as desk:
        desk.clock.advance(1)
        statuses = [(await desk("GET", "/dbs/db"))[0] for _ in range(241)]
        assert statuses == [200] * 240 + [429]
        _, body, _ = await desk("GET", "/dbs/db")
        assert "high rate of metadata requests" in body["message"]
        assert (await desk("POST", DOCS, {"id": "1", "pk": "a"}, **keyed("a")))[0] == 201


async def test_low_priority_and_buckets_over_the_wire() -> None:
    async with a_desk(throughput_mode="enforce") as desk:
        await desk.account.budgets.set_buckets(desk.account.container("db", "c"), {2: 10})
        desk.clock.advance(1)
        bucket = {**keyed("a"), "x_ms_cosmos_throughput_bucket": "2"}
        statuses = [(await desk("GET", f"{DOCS}/1", **bucket))[0] for _ in range(41)]
        assert statuses == [404] * 40 + [429]
        assert (await desk("GET", f"{DOCS}/1", **keyed("a")))[0] == 404
        for name, wrong in (("x_ms_cosmos_throughput_bucket", "6"), ("x_ms_cosmos_priority_level", "Medium")):
            assert (await desk("GET", f"{DOCS}/1", **{**keyed("a"), name: wrong}))[0] == 400


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_counted_is_what_was_answered(seed: int) -> None:
    """A random mix of requests of every kind, right and wrong ones; each explained to the hundredth."""
    print("seed", seed)
    dice = random.Random(seed)
    async with a_desk(1200, throughput_mode="enforce", partition_throughput_ru=1000) as desk:
        refused = 0
        for number in range(500):
            desk.clock.advance(dice.random() / 300)
            key, item_id = f"k{dice.randrange(9)}", f"i{dice.randrange(9)}"
            document = {"id": item_id, "pk": key, "text": "x" * dice.randrange(4000), "n": dice.randrange(5)}
            method, path, body, headers = dice.choice(
                [
                    ("POST", DOCS, document, keyed(key)),
                    ("POST", DOCS, document, {**keyed(key), "x_ms_documentdb_is_upsert": "true"}),
                    ("POST", DOCS, document, keyed("other")),
                    ("GET", f"{DOCS}/{item_id}", None, keyed(key)),
                    ("GET", f"{DOCS}/{item_id}", None, {**keyed(key), "x_ms_consistency_level": "Strong"}),
                    ("PUT", f"{DOCS}/{item_id}", document, {**keyed(key), "if_match": '"x"'}),
                    ("DELETE", f"{DOCS}/{item_id}", None, keyed(key)),
                    ("GET", DOCS, None, {**EXPLAINED, "x_ms_max_item_count": "7"}),
                    ("GET", DOCS, None, {**EXPLAINED, "a_im": "Incremental Feed"}),
                    ("POST", DOCS, {"query": "SELECT c.id FROM c WHERE c.n = 3"}, {**QUERY, **EXPLAINED}),
                    ("POST", DOCS, {"query": "SELECT * FROM c ORDER BY c.n"}, {**QUERY, **EXPLAINED}),
                    ("POST", DOCS, {"query": "SELECT * FRM c"}, {**QUERY, **EXPLAINED}),
                    ("GET", "/dbs/db/colls/missing/docs/1", None, keyed(key)),
                    ("GET", "/dbs/db/colls/missing", None, EXPLAINED),
                    ("GET", "/dbs/db/colls/c/pkranges", None, EXPLAINED),
                    ("POST", "/dbs", {"id": f"d{number}"}, EXPLAINED),
                    ("POST", "/dbs", {"id": "db"}, EXPLAINED),
                    ("GET", "/offers", None, EXPLAINED),
                ]
            )
            status, _, response = await desk(method, path, body, **headers)
            refused += status == 429
            parts_of(response)
        assert refused > 0
        assert desk.counted() == desk.answered


def test_the_charge_as_a_header() -> None:
    assert [render_charge(value) for value in (0.0, 1.0, 2.83, 10.0, 100.5, 1 / 3, 1234567.891)] == [
        b"0", b"1", b"2.83", b"10", b"100.5", b"0.33", b"1234567.89",
    ]  # fmt: skip
