"""The requests of .NET's Table SDK (`Microsoft.Azure.Cosmos.Table`), which speaks SQL to the containers of tables, and
the same entities at the Table door."""

from __future__ import annotations

import struct
import uuid
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import orjson
import pytest
from support.caller import KEY as SQL_KEY
from support.caller import Caller
from support.tables import TableHouse, header

from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.model import edm
from armillary.net.http import Response

CLIENT = {
    "user-agent": "documentdb-netcore-sdk/2.11.2 Linux/5 64-bit cosmos-table-sdk/1.0.8",
    "x-ms-version": "2018-12-31",
}
OF_KEY = {**CLIENT, "x-ms-documentdb-partitionkey": '["p"]'}
DOCS = "/dbs/TablesDB/colls/people/docs"
PROCEDURE = "/dbs/TablesDB/colls/people/sprocs/__.sys.tablesBatchOperation"
INSERT, DELETE, REPLACE, MERGE, INSERT_OR_REPLACE, INSERT_OR_MERGE, RETRIEVE = range(7)


class World(NamedTuple):
    sql: Caller
    table: TableHouse


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A table that the SDK has made: DocumentCollectionBaseHelpers."""
    house = await TableHouse.open()
    sql = Caller(SqlDoor(house.account, AccountKeys(SQL_KEY), accepts_aad=False), house.account.clock)
    assert (await sql("POST", "/dbs", {"id": "TablesDB"}, **CLIENT))[0] == 201
    indexes = [{"kind": "Range", "dataType": kind, "precision": -1} for kind in ("Number", "String")]
    table = {
        "id": "people",
        "partitionKey": {"paths": ["/'$pk'"], "kind": "Hash"},
        "indexingPolicy": {"includedPaths": [{"path": "/*", "indexes": indexes}], "excludedPaths": []},
    }
    offered = {**CLIENT, "x-ms-offer-throughput": "800"}
    assert (await sql("POST", "/dbs/TablesDB/colls", table, **offered))[0] == 201
    yield World(sql, house)
    await house.close()


def document(row_key: str, **properties: Any) -> dict[str, Any]:
    """EntityTranslator.GetDocumentFromEntityProperties."""
    return {**properties, "id": row_key, "$pk": "p", "$id": row_key}


def text(value: str) -> dict[str, Any]:
    return {"$t": 2, "$v": value}


def number(value: int) -> dict[str, Any]:
    return {"$t": 16, "$v": value}


def table_etag(etag: str) -> str:
    """EtagHelper.ConvertFromBackEndETagFormat: the time in the etag, which is read as a GUID."""
    raw = uuid.UUID(etag.strip('"')).bytes_le
    order = [13, 12, 11, 10, 9, 8, 15, 14]
    (ticks,) = struct.unpack("<q", bytes(raw[place] for place in order))
    assert 0 <= ticks < 2_650_467_744_000_000_000  # what FromFileTime accepts
    return edm.full_moment_text(ticks + 504_911_232_000_000_000)


def back_end_etag(etag: str) -> str:
    """EtagHelper.ConvertToBackEndETagFormat after it: the first half of the GUID is lost."""
    return '"00000000-0000-0000-' + etag.strip('"')[19:] + '"'


def etag_of(response: Response) -> str:
    lines = dict(line.split(b": ", 1) for line in response.lines.split(b"\r\n")) if response.lines else {}
    return lines.get(b"etag", dict(response.headers).get(b"etag", b"")).decode()


async def test_a_table_of_the_sdk_is_one_of_the_table_door(world: World) -> None:
    status, made, response = await world.sql("POST", DOCS, document("1", name=text("Ada"), age=number(36)), **OF_KEY)
    assert (status, made["_etag"]) == (201, etag_of(response))
    answer = await world.table.ask("GET", "/people(PartitionKey='p',RowKey='1')")
    entity = orjson.loads(answer.body)
    assert (answer.status, entity["name"], entity["age"]) == (200, "Ada", 36)
    assert header(answer, "etag") == f"W/\"datetime'{table_etag(etag_of(response)).replace(':', '%3A')}'\""
    listed = orjson.loads((await world.table.ask("GET", "/Tables")).body)
    assert [each["TableName"] for each in listed["value"]] == ["people"]
    # And the other way round.
    other = {"PartitionKey": "p", "RowKey": "2", "name": "Grace", "big@odata.type": "Edm.Int64", "big": "-5"}
    assert (await world.table.ask("POST", "/people", other)).status == 201
    status, read, _ = await world.sql("GET", f"{DOCS}/2", **OF_KEY)
    assert (status, read["$pk"], read["$id"], read["name"], read["big"]["$t"]) == (200, "p", "2", text("Grace"), 18)
    assert (await world.table.ask("POST", "/Tables", {"TableName": "people"})).status == 409


async def test_etags_that_have_lost_their_first_half(world: World) -> None:
    _, _, first = await world.sql("POST", DOCS, document("1", n=number(1)), **OF_KEY)
    known = {**OF_KEY, "if-match": back_end_etag(etag_of(first))}
    status, _, second = await world.sql("PUT", f"{DOCS}/1", document("1", n=number(2)), **known)
    assert status == 200
    assert etag_of(second) != etag_of(first)  # within one second
    assert (await world.sql("PUT", f"{DOCS}/1", document("1", n=number(3)), **known))[0] == 412
    assert (await world.sql("DELETE", f"{DOCS}/1", **known))[0] == 412
    status, read, response = await world.sql("GET", f"{DOCS}/1", **OF_KEY)
    assert (read["_etag"], etag_of(response)) == (etag_of(second), etag_of(second))
    query = {"query": "select * from entity where (entity['$pk'] = 'p' and entity['n']['$v'] = 2) "}
    headers = {**CLIENT, "x-ms-documentdb-isquery": "True", "x-ms-documentdb-query-enablecrosspartition": "True"}
    status, page, _ = await world.sql("POST", DOCS, query, **headers)
    assert [each["_etag"] for each in page["Documents"]] == [etag_of(second)]
    known = {**OF_KEY, "if-match": back_end_etag(etag_of(second))}
    assert (await world.sql("DELETE", f"{DOCS}/1", **known))[0] == 204
    assert (await world.sql("DELETE", f"{DOCS}/1", **{**OF_KEY, "if-match": "*"}))[0] == 404


async def run(world: World, *operations: tuple[int, dict[str, Any], str | None]) -> tuple[int, Any]:
    """TableExtensionOperationHelper.ExecuteBatchOperationAsync."""
    kinds, documents, etags = zip(*operations, strict=True)
    status, body, _ = await world.sql("POST", PROCEDURE, [list(documents), list(kinds), list(etags)], **OF_KEY)
    return status, orjson.loads(body) if status == 200 else body["message"]


async def test_merges_are_operations_of_the_services_procedure(world: World) -> None:
    status, made = await run(world, (INSERT_OR_MERGE, document("1", a=number(1)), None))
    assert (status, len(made), made[0]["a"]) == (200, 1, number(1))
    status, merged = await run(world, (MERGE, document("1", b=number(2)), back_end_etag(made[0]["_etag"])))
    assert (merged[0]["a"], merged[0]["b"]) == (number(1), number(2))
    status, told = await run(world, (MERGE, document("1", b=number(3)), back_end_etag(made[0]["_etag"])))
    assert (status, "One of the specified" in told) == (400, True)
    status, told = await run(world, (MERGE, document("7", b=number(3)), "*"))
    assert (status, "Resource Not Found" in told) == (400, True)


async def test_batches_are_operations_of_the_services_procedure(world: World) -> None:
    status, rows = await run(
        world,
        (INSERT, document("1", n=number(1)), ""),
        (INSERT, document("2", n=number(2)), ""),
        (INSERT_OR_REPLACE, document("3"), ""),
        (DELETE, document("2"), "*"),
    )
    assert (status, [row.get("id") for row in rows]) == (200, ["1", "2", "3", None])
    status, rows = await run(world, (RETRIEVE, {"id": "1", "$pk": "p"}, ""))
    assert (status, rows[0]["n"]) == (200, number(1))
    status, told = await run(world, (INSERT, document("4"), ""), (INSERT, document("1"), ""))
    assert (status, "Resource with specified id or name already exists" in told, "OperationCount:1." in told) == (
        400,
        True,
        True,
    )
    assert (await world.sql("GET", f"{DOCS}/4", **OF_KEY))[0] == 404
    replaced = (REPLACE, document("1", n=number(9)), '"00000000-0000-0000-7fd8-9d3f96bb01d5"')
    assert (await run(world, replaced))[0] == 400
    wrong: list[list[list[Any]]] = [
        [],
        [[], [], []],
        [[{}], [0], [""]],
        [[{"id": "1"}], [9], [""]],
        [[{"id": "1"}], [0], [5]],
    ]
    for arguments in wrong:
        assert (await world.sql("POST", PROCEDURE, arguments, **OF_KEY))[0] == 400


async def test_other_containers_and_other_clients_are_as_ever(world: World) -> None:
    await world.sql("POST", "/dbs", {"id": "db"}, **CLIENT)
    await world.sql("POST", "/dbs/db/colls", {"id": "c", "partitionKey": {"paths": ["/'$pk'"]}}, **CLIENT)
    path = PROCEDURE.replace("TablesDB/colls/people", "db/colls/c")
    assert (await world.sql("POST", path, [[document("1")], [0], [""]], **OF_KEY))[0] == 404
    plain = {"x-ms-documentdb-partitionkey": '["p"]'}
    _, made, response = await world.sql("POST", DOCS, document("1"), **plain)
    assert made["_etag"] == etag_of(response)
    assert not made["_etag"].startswith('"00000000-0000-0000-')
    assert (await world.sql("PUT", f"{DOCS}/1", document("1"), **plain, **{"if-match": made["_etag"]}))[0] == 200
