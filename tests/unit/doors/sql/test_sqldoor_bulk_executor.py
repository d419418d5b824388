"""The requests of the bulk executor libraries: procedures of the service that write many items of one partition key
range. What they answer was read in the sources of documentdb-bulkexecutor 2.12.5 for Java."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.caller import KEY, Caller
from support.limits import WithLimits

from armillary.account.account import Account
from armillary.account.faults import FaultRule
from armillary.account.items import items
from armillary.account.queries import item_pages
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.errors import Kind
from armillary.storage.memory import MemoryEngine

DOCS = "/dbs/db/colls/c/docs"
RANGE = {"x-ms-documentdb-partitionkeyrangeid": "0", "x-ms-version": "2018-12-31"}
OPTIONS = {  # as the library sends them
    "disableAutomaticIdGeneration": True,
    "softStopOnConflict": False,
    "systemCollectionId": None,
    "enableBsonSchema": False,
    "enableUpsert": False,
    "softStopOnBadRequest": True,
}


class Bulk:
    """The procedures of a container."""

    def __init__(self, caller: Caller, account: Account, clock: VirtualClock) -> None:
        self.call = caller
        self.account = account
        self.clock = clock

    async def run(self, name: str, *arguments: Any, **headers: str) -> tuple[int, Any, float]:
        path = f"/dbs/db/colls/c/sprocs/__.sys.{name}"
        status, body, response = await self.call("POST", path, [*arguments, None], **(RANGE | headers))
        lines = dict(response.headers)
        return status, body, float(lines.get(b"x-ms-request-charge", b"0"))

    async def insert(self, documents: list[Any], **options: Any) -> tuple[int, Any]:
        texts = [each if isinstance(each, str) else orjson.dumps(each).decode() for each in documents]
        status, body, _ = await self.run("commonBulkInsert", texts, OPTIONS | options)
        return status, body

    async def patch(self, *items: dict[str, Any]) -> tuple[int, Any]:
        status, body, _ = await self.run("bulkPatch", list(items), "pk")
        return status, body

    async def delete(self, condition: str, limit: int = 1000) -> tuple[int, Any]:
        query = {"rootSymbol": "c", "filterExpr": condition, "orderByExpr": None, "sqlParameterCollection": None}
        status, body, _ = await self.run("commonDelete", query | {"limit": limit})
        return status, body

    async def ids(self) -> list[str]:
        status, body, _ = await self.call("GET", DOCS, **{"x-ms-max-item-count": "-1"})
        assert status == 200
        return sorted(each["id"] for each in body["Documents"])

    async def read(self, item_id: str, key: str) -> dict[str, Any]:
        _, body, _ = await self.call("GET", f"{DOCS}/{item_id}", **{"x-ms-documentdb-partitionkey": f'["{key}"]'})
        return {name: value for name, value in body.items() if not name.startswith("_")}


@pytest.fixture
async def bulk() -> AsyncIterator[Bulk]:
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock)
    caller = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await caller("POST", "/dbs", {"id": "db"})
    await caller("POST", "/dbs/db/colls", {"id": "c", "partitionKey": {"paths": ["/pk"]}})
    yield Bulk(caller, account, clock)
    await account.close()


def item(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"i{number}", "pk": f"p{number % 3}", "n": number, **more}


async def test_documents_of_many_keys_are_stored(bulk: Bulk) -> None:
    assert await bulk.insert([item(n) for n in range(20)]) == (200, {"count": 20, "errorCode": 0})
    assert len(await bulk.ids()) == 20
    assert await bulk.read("i7", "p1") == item(7)


async def test_the_charge_is_that_of_the_writes(bulk: Bulk) -> None:
    _, _, one = await bulk.call("POST", DOCS, item(0), **{"x-ms-documentdb-partitionkey": '["p0"]'})
    ru = float(dict(one.headers).get(b"x-ms-request-charge", b"0")) or _line_charge(one.lines)
    texts = [orjson.dumps(item(n)).decode() for n in range(1, 6)]
    status, _, charged = await bulk.run("commonBulkInsert", texts, OPTIONS)
    assert status == 200
    assert charged == pytest.approx(5 * ru, rel=0.02)


def _line_charge(lines: bytes) -> float:
    return next(float(line.split(b": ")[1]) for line in lines.split(b"\r\n") if line.startswith(b"x-ms-request-charge"))


async def test_a_conflict_undoes_the_whole_call(bulk: Bulk) -> None:
    await bulk.insert([item(3)])
    status, _ = await bulk.insert([item(1), item(2), item(3), item(4)])
    assert status == 409
    assert await bulk.ids() == ["i3"]


async def test_a_soft_stop_keeps_what_was_before(bulk: Bulk) -> None:
    await bulk.insert([item(3)])
    status, body = await bulk.insert([item(1), item(2), item(3), item(4)], softStopOnConflict=True)
    assert (status, body["count"], body["errorCode"]) == (200, 2, 409)
    assert orjson.loads(body["failedDoc"]) == item(3)
    assert await bulk.ids() == ["i1", "i2", "i3"]


@pytest.mark.parametrize("bad", ["no JSON", '{"pk": "p0"}', "[]", '{"id": 5, "pk": "p0"}'])
async def test_a_bad_document_is_told_from_the_others(bulk: Bulk, bad: str) -> None:
    status, body = await bulk.insert([item(1), bad, item(2)])
    assert (status, body) == (200, {"count": 1, "errorCode": 400, "failedDoc": bad})
    assert await bulk.ids() == ["i1"]


async def test_upserts_and_made_ids(bulk: Bulk) -> None:
    await bulk.insert([item(1)])
    assert await bulk.insert([item(1, n=5)], enableUpsert=True) == (200, {"count": 1, "errorCode": 0})
    assert (await bulk.read("i1", "p1"))["n"] == 5
    await bulk.insert([{"pk": "p0"}], disableAutomaticIdGeneration=False)
    assert len(await bulk.ids()) == 2


async def test_a_call_does_so_many_and_the_client_sends_the_rest(bulk: Bulk, with_limits: WithLimits) -> None:
    with_limits(BULK_PROCEDURE_OPERATIONS_MAX=4)
    assert (await bulk.insert([item(n) for n in range(10)]))[1] == {"count": 4, "errorCode": 0}
    assert (await bulk.delete("c.n >= 0"))[1] == {"count": 4, "done": True}
    await bulk.insert([item(n) for n in range(4)])
    await bulk.insert([item(n) for n in range(4, 8)])
    assert (await bulk.delete("c.n >= 0"))[1] == {"count": 4, "done": False}
    assert (await bulk.delete("c.n >= 0"))[1]["count"] == 4
    assert await bulk.ids() == []


async def test_updates_of_large_items_are_done_in_portions(bulk: Bulk) -> None:
    """A small request is not to make many copies of a large item at once."""
    await bulk.insert([item(1, text="x" * 900_000)])
    change = {"id": "i1", "pk": "p1", "updates": [{"type": "Inc", "field": "n", "value": 1}]}
    assert await bulk.patch(*[change] * 100) == (200, {"count": 3, "errorCode": 0})
    assert (await bulk.read("i1", "p1"))["n"] == item(1)["n"] + 3


async def test_updates(bulk: Bulk) -> None:
    await bulk.insert([item(1, tags=["a", "b", "a", 1, True], old=1), item(2)])
    updates = [
        {"type": "Set", "field": "address.city", "value": "Bern"},
        {"type": "Inc", "field": "n", "value": 2.5},
        {"type": "Inc", "field": "made", "value": 1},
        {"type": "Unset", "field": "old", "value": ""},
        {"type": "Unset", "field": "none.here", "value": ""},
        {"type": "Remove", "field": "tags", "value": "a"},
        {"type": "Remove", "field": "tags", "value": 1},
        {"type": "Push", "field": "tags", "value": ["x", "y"], "slice": None, "position": None},
        {"type": "Push", "field": "list", "value": [0]},
    ]
    again = {"id": "i1", "pk": "p1", "updates": [{"type": "Inc", "field": "n", "value": 10}]}
    answer = await bulk.patch({"id": "i1", "pk": "p1", "updates": updates}, again)
    assert answer == (200, {"count": 2, "errorCode": 0})
    wanted = {"id": "i1", "pk": "p1", "n": 13.5, "made": 1, "address": {"city": "Bern"}}
    assert await bulk.read("i1", "p1") == wanted | {"tags": ["b", True, "x", "y"], "list": [0]}


async def test_a_missing_item_ends_the_updates(bulk: Bulk) -> None:
    await bulk.insert([item(1), item(2)])
    updates = [{"type": "Set", "field": "n", "value": 0}]
    keyed = [{"id": name, "pk": key, "updates": updates} for name, key in (("i1", "p1"), ("i9", "p0"), ("i2", "p2"))]
    assert await bulk.patch(*keyed) == (200, {"count": 1, "errorCode": 404})
    assert [(await bulk.read(f"i{n}", f"p{n}"))["n"] for n in (1, 2)] == [0, 2]


@pytest.mark.parametrize(
    "update",
    [
        {"type": "Set", "field": "id", "value": "x"},
        {"type": "Set", "field": "_etag", "value": "x"},
        {"type": "Set", "field": "a..b", "value": 1},
        {"type": "Set", "field": None, "value": 1},
        {"type": "Bit", "field": "n", "value": 1},
        {"type": "Inc", "field": "n", "value": "1"},
        {"type": "Push", "field": "n", "value": 1},
        {"type": "Push", "field": "l", "value": [1], "position": 0},
        {"type": ["Set"], "field": "n", "value": 1},
        [],
    ],
)
async def test_updates_that_are_refused(bulk: Bulk, update: Any) -> None:
    await bulk.insert([item(1)])
    assert (await bulk.patch({"id": "i1", "pk": "p1", "updates": [update]}))[0] == 400
    assert await bulk.read("i1", "p1") == item(1)


@pytest.mark.parametrize(
    "update",
    [
        {"type": "Set", "field": "n.x", "value": 1},
        {"type": "Set", "field": "pk", "value": "p2"},
        {"type": "Inc", "field": "pk", "value": 1},
        {"type": "Push", "field": "n", "value": [1]},
        {"type": "Remove", "field": "n", "value": 1},
    ],
)
async def test_updates_that_do_not_fit_the_item(bulk: Bulk, update: Any) -> None:
    await bulk.insert([item(1)])
    answer = await bulk.patch({"id": "i1", "pk": "p1", "updates": [update]})
    assert answer == (200, {"count": 0, "errorCode": 400})
    assert await bulk.read("i1", "p1") == item(1)


async def test_a_delete_reaches_its_range_alone(bulk: Bulk) -> None:
    offered = {"x-ms-offer-throughput": "20000"}
    assert (await bulk.call("DELETE", "/dbs/db/colls/c"))[0] == 204
    await bulk.call("POST", "/dbs/db/colls", {"id": "c", "partitionKey": {"paths": ["/pk"]}}, **offered)
    for number in range(12):
        document = {"id": "i", "pk": f"p{number}", "n": 1}
        assert (await bulk.call("POST", DOCS, document, **{"x-ms-documentdb-partitionkey": f'["p{number}"]'}))[0] == 201
    _, ranges, _ = await bulk.call("GET", "/dbs/db/colls/c/pkranges")
    assert len(ranges["PartitionKeyRanges"]) > 1
    for condition, count in (("c.pk = 'p3' AND c.n = 1", 1), ("c.n = 1", 11)):
        counts = []
        for each in ranges["PartitionKeyRanges"]:
            own = {"x-ms-documentdb-partitionkeyrangeid": each["id"]}
            query = {"rootSymbol": "c", "filterExpr": condition, "limit": 1000}
            status, body, _ = await bulk.run("commonDelete", query, **own)
            assert (status, body["done"]) == (200, True)
            counts.append(body["count"])
        assert sum(counts) == count
    texts = [orjson.dumps({"id": "i", "pk": f"p{number}"}).decode() for number in range(12)]
    status, _, _ = await bulk.run("commonBulkInsert", texts, OPTIONS)
    assert status == 410, "documents of another range"


async def test_deletes(bulk: Bulk) -> None:
    await bulk.insert([item(n) for n in range(10)])
    assert await bulk.delete("c.n < 4") == (200, {"count": 4, "done": True})
    assert await bulk.delete("c.n < 4") == (200, {"count": 0, "done": True})
    assert await bulk.ids() == [f"i{n}" for n in range(4, 10)]


@pytest.mark.parametrize(
    "condition", ["c.n <", "true ORDER BY c.n", "true GROUP BY c.n", "true OFFSET 1 LIMIT 2", "udf.f(c)", 5]
)
async def test_deletes_that_are_refused(bulk: Bulk, condition: Any) -> None:
    await bulk.insert([item(1)])
    assert (await bulk.delete(condition))[0] == 400
    assert await bulk.ids() == ["i1"]


async def test_arguments_that_are_refused(bulk: Bulk) -> None:
    for name in ("commonBulkInsert", "bulkPatch", "commonDelete"):
        assert (await bulk.run(name))[0] == 400
        assert (await bulk.run(name, 5, 5))[0] == 400
        assert (await bulk.call("POST", f"/dbs/db/colls/c/sprocs/__.sys.{name}", []))[0] == 400, "no range"
    for option in ({"enableBsonSchema": True}, {"systemCollectionId": "x"}, {"unknown": 1}):
        assert (await bulk.insert([item(1)], **option))[0] == 400
    assert (await bulk.run("commonBulkInsert", [], OPTIONS, **{"x-ms-documentdb-partitionkeyrangeid": "9"}))[0] == 410
    assert (await bulk.run("commonRead"))[0] == 404
    assert (await bulk.insert(["x" * 2_100_000]))[0] == 413
    assert (await bulk.insert([]))[1] == {"count": 0, "errorCode": 0}


async def test_items_that_change_meanwhile(bulk: Bulk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update is made of what is there when it is stored; a delete is of what the query saw."""
    await bulk.insert([item(1), item(2)])
    read, select = items.read, item_pages.select

    async def other_client_writes() -> None:
        monkeypatch.undo()
        document = item(1, other=True)
        assert (await bulk.call("PUT", f"{DOCS}/i1", document, **{"x-ms-documentdb-partitionkey": '["p1"]'}))[0] == 200

    async def read_before(*arguments: Any) -> Any:
        answer = await read(*arguments)
        await other_client_writes()
        return answer

    async def select_before(*arguments: Any) -> Any:
        answer = await select(*arguments)
        await other_client_writes()
        return answer

    monkeypatch.setattr(items, "read", read_before)
    updates = [{"type": "Inc", "field": "n", "value": 5}]
    assert (await bulk.patch({"id": "i1", "pk": "p1", "updates": updates}))[1] == {"count": 1, "errorCode": 0}
    assert await bulk.read("i1", "p1") == item(1, other=True, n=6)
    monkeypatch.setattr(item_pages, "select", select_before)
    assert (await bulk.delete("true"))[1] == {"count": 1, "done": False}
    assert (await bulk.delete("true"))[1] == {"count": 1, "done": True}


async def test_fault_rules_meet_the_procedures(bulk: Bulk) -> None:
    bulk.account.faults.add(FaultRule(frozenset(["execute"]), count=1, kind=Kind.THROTTLED, retry_after_ms=5))
    assert (await bulk.insert([item(1)]))[0] == 429
    assert (await bulk.insert([item(1)]))[0] == 200


async def test_a_call_that_is_refused_as_a_whole_is_charged_for_its_reads(bulk: Bulk) -> None:
    """The answered charge is what the partition has counted, also where budgets are enforced and reads use them up."""
    await bulk.insert([item(n) for n in range(500)])
    meter = bulk.account.container("db", "c").partitions[0].meter
    updates = [{"type": "Set", "field": "x", "value": 1}]
    keyed = [{"id": f"i{n}", "pk": f"p{n % 3}", "updates": updates} for n in range(500)]
    query = {"rootSymbol": "c", "filterExpr": "true", "limit": 100}
    for name, arguments, least in (("bulkPatch", [keyed[:4], "pk"], 4), ("commonDelete", [query], 3)):
        bulk.account.faults.add(FaultRule(frozenset(["execute"]), count=1, kind=Kind.THROTTLED, retry_after_ms=5))
        before = meter.totals.charged_ru
        status, _, charged = await bulk.run(name, *arguments)
        assert status == 429 and charged >= least
        assert charged == pytest.approx(meter.totals.charged_ru - before)
    meter.is_enforcing = True
    bulk.clock.advance(10)
    before = meter.totals.charged_ru
    status, _, charged = await bulk.run("bulkPatch", keyed, "pk")
    assert status == 429 and charged >= 400
    assert charged == pytest.approx(meter.totals.charged_ru - before)
