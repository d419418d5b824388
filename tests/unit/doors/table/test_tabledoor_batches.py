"""Entity-group transactions in process: the rules of a batch, what is answered, and that nothing is done by halves; and
one table used through the core and through the door while its partition splits."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.tables import TableHouse, error_of, header, new_table

from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.doors.table.entities.multipart import boundary_of, parts_of, request_of
from armillary.errors import Failure
from armillary.model.key_values import Key

KIND = {"Content-Type": "multipart/mixed; boundary=batch_1"}


@pytest.fixture
async def house() -> AsyncIterator[TableHouse]:
    made = await TableHouse.open()
    assert (await made.ask("POST", "/Tables", {"TableName": "people"})).status == 201
    yield made
    await made.close()


def change(method: str, row: str, body: Any = None, *, table: str = "people", key: str = "p", **headers: str) -> str:
    keys = f"(PartitionKey='{key}',RowKey='{row}')" if method != "POST" else ""
    text = orjson.dumps({"PartitionKey": key, "RowKey": row, **(body or {})}).decode() if method != "DELETE" else ""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join(
        [f"{method} http://elsewhere.example/{table}{keys} HTTP/1.1", "Content-Type: application/json", *lines]
    )
    return f"Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n{head}\r\n\r\n{text}"


def batch(*changes: str) -> bytes:
    inner = "".join(f"--changeset_1\r\n{each}\r\n" for each in changes) + "--changeset_1--\r\n"
    return f"--batch_1\r\nContent-Type: multipart/mixed; boundary=changeset_1\r\n\r\n{inner}--batch_1--\r\n".encode()


async def run(house: TableHouse, *changes: str) -> list[tuple[int, str]]:
    """The status of each part, and for a refusal its code and message."""
    answer = await house.ask("POST", "/$batch", batch(*changes), KIND)
    assert answer.status == 202, answer.body
    outer = parts_of(answer.body, boundary_of((header(answer, "content-type") or "").encode()), 100)
    assert len(outer) == 1
    results = []
    for part in parts_of(outer[0].content, boundary_of(outer[0].headers[b"content-type"]), 100):
        status = re.match(rb"HTTP/1\.1 ([0-9]{3}) ", part.content)
        assert status is not None
        body = part.content.partition(b"\r\n\r\n")[2].strip()
        error = orjson.loads(body).get("odata.error") if body.startswith(b"{") else None
        results.append(
            (int(status[1]), f"{error['code']} {error['message']['value'].splitlines()[0]}" if error else "")
        )
    return results


async def rows(house: TableHouse) -> set[str]:
    answer = await house.ask("GET", "/people()")
    return {each["RowKey"] for each in orjson.loads(answer.body)["value"]}


async def test_all_verbs_in_one_batch(house: TableHouse) -> None:
    for row in ("put", "merge", "delete"):
        await house.ask("POST", "/people", {"PartitionKey": "p", "RowKey": row, "old": 1})
    results = await run(
        house,
        change("POST", "plain"),
        change("POST", "quiet", Prefer="return-no-content"),
        change("PUT", "put", {"new": 2}, If_Match="*"),
        change("PUT", "put-or-new"),
        change("PATCH", "merge", {"new": 2}, If_Match="*"),
        change("MERGE", "merge-or-new"),
        change("DELETE", "delete", If_Match="*"),
    )
    assert [status for status, _ in results] == [201, 204, 204, 204, 204, 204, 204]
    assert await rows(house) == {"plain", "quiet", "put", "put-or-new", "merge", "merge-or-new"}


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        (
            [change("POST", "a"), change("POST", "there")],
            409,
            "EntityAlreadyExists 1:The specified entity already exists.",
        ),
        (
            [change("POST", "a"), change("PUT", "b", If_Match="*")],
            404,
            "ResourceNotFound 1:The specified resource does",
        ),
        (
            [change("POST", "a"), change("DELETE", "there", If_Match='W/"x"')],
            412,
            "UpdateConditionNotSatisfied 1:The update",
        ),
        (
            [change("POST", "a"), change("POST", "b", key="q")],
            400,
            "CommandsInBatchActOnDifferentPartitions 1:All commands",
        ),
        (
            [change("POST", "a"), change("POST", "b", table="other")],
            400,
            "CommandsInBatchActOnDifferentPartitions 1:All",
        ),
        ([change("POST", "a"), change("PUT", "a")], 400, "InvalidDuplicateRow 1:The batch request contains multiple"),
        ([change("POST", "a"), change("GET", "there")], 400, "InvalidInput 1:One of the request inputs is not valid."),
        ([change("POST", "a"), change("DELETE", "there")], 400, "MissingRequiredHeader 1:A required HTTP header"),
        ([change("POST", "a", {"1": 2})], 400, "PropertyNameInvalid 0:The property name '1' is invalid."),
        ([change("POST", "a", table="nobody")], 404, "ResourceNotFound 0:The specified resource does not exist."),
        (
            [change("POST", str(n)) for n in range(101)],
            400,
            "InvalidInput 100:The batch request operation exceeds the maximum 100",
        ),
    ],
)
async def test_one_that_fails_undoes_all(house: TableHouse, changes: list[str], status: int, text: str) -> None:
    await house.ask("POST", "/people", {"PartitionKey": "p", "RowKey": "there"})
    results = await run(house, *changes)
    assert len(results) == 1 and results[0][0] == status and results[0][1].startswith(text), results
    assert await rows(house) == {"there"}


async def test_batches_at_their_limits(house: TableHouse) -> None:
    assert len(await run(house, *[change("POST", f"{n:03}") for n in range(100)])) == 100
    assert await run(house) == []
    large = {"text": "x" * 100_000}
    assert [status for status, _ in await run(house, *[change("PUT", str(n), large) for n in range(19)])] == [204] * 19
    answer = await house.ask("POST", "/$batch", batch(*[change("PUT", str(n), large) for n in range(22)]), KIND)
    assert error_of(answer)[:2] == (413, "RequestBodyTooLarge")


async def test_line_feeds_will_do_and_a_query_may_stand_alone(house: TableHouse) -> None:
    plain = batch(change("POST", "a")).replace(b"\r\n", b"\n")
    assert (await house.ask("POST", "/$batch", plain, KIND)).status == 202
    assert await rows(house) == {"a"}
    inner = (
        b"Content-Type: application/http\r\n\r\nGET http://h/people(PartitionKey='p',RowKey='a') HTTP/1.1\r\n\r\n\r\n"
    )
    query = b"--batch_1\r\n%b--batch_1--" % inner
    answer = await house.ask("POST", "/$batch", query, KIND)
    assert answer.status == 202 and b"HTTP/1.1 200 OK" in answer.body and b'"RowKey":"a"' in answer.body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--batch_1--",
        b"--batch_1\r\n\r\n",
        batch(change("POST", "a"))[:-12],
        batch(change("POST", "a")).replace(b"changeset_1--", b"changeset_2--"),
        batch(change("POST", "a").replace("application/http", "text/plain")),
        batch(change("POST", "a").replace(" HTTP/1.1", "")),
        batch(change("POST", "a").replace("http://", "ftp://")),
        batch(change("POST", "a", Content_Length="5")),
        batch(change("POST", "a", Content_Length="5000")),
        batch(change("POST", "a")) + batch(change("POST", "b")),
        b"--batch_1\r\nContent-Type: application/http\r\n\r\nPUT http://h/people HTTP/1.1\r\n\r\n{}\r\n--batch_1--",
    ],
)
async def test_what_is_no_batch_is_refused(house: TableHouse, body: bytes) -> None:
    answer = await house.ask("POST", "/$batch", body, KIND)
    if body.count(b"--batch_1--") == 2:  # what follows the end is no part
        assert answer.status == 202 and await rows(house) == {"a"}
        return
    assert error_of(answer)[:2] == (400, "InvalidInput")
    assert await rows(house) == set()


def test_boundaries() -> None:
    text: bytes | None
    for text in (
        b'multipart/mixed; boundary="a b"',
        b"Multipart/Mixed;charset=utf-8;boundary=x",
        b"multipart/mixed; boundary=x; q=1",
    ):
        assert boundary_of(text) in (b"a b", b"x")
    for text in (None, b"", b"multipart/mixed", b"multipart/mixed; boundary=", b"application/json"):
        with pytest.raises(Failure):
            boundary_of(text)
    part = parts_of(
        b"--b\r\nContent-Type: application/http\r\n\r\nPOST /t HTTP/1.1\r\nA: 1\r\n\r\n{}\r\n--b--", b"b", 1
    )[0]
    request = request_of(part)
    assert (request.method, request.target, request.headers, request.body) == ("POST", b"/t", {b"a": b"1"}, b"{}")


async def test_one_table_through_core_and_door_while_it_splits(seed: int) -> None:
    """Same items, etags and charges on both sides; queries, continuations and batches go on over the split."""
    print("seed", seed)
    dice = random.Random(seed)
    house = await TableHouse.open()
    table = await new_table(house.account)
    for number in range(200):
        body = {"PartitionKey": f"p{number % 20}", "RowKey": f"{number:03}", "n": number}
        assert (await house.ask("POST", "/people", body)).status == 201
    first = await house.ask("GET", "/people()?$top=70&$filter=n%20ge%200")
    reshape = await house.account.reshaper.split(table, table.map.ranges[0].id)
    written: dict[str, int] = {}
    while house.account.reshaper.running(table):
        number = dice.randrange(200)
        row = f"{number:03}"
        if dice.random() < 0.5:
            target = f"/people(PartitionKey='p{number % 20}',RowKey='{row}')"
            assert (await house.ask("MERGE", target, {"seen": number}, {"If-Match": "*"})).status == 204
        else:
            options = ItemOptions(key=Key((f"p{number % 20}",)))
            before = await items.read(table, row, options)
            document = {**orjson.loads(before.payload or b""), "seen": {"$t": 16, "$v": number}}
            await items.replace(table, row, document, options, house.account.clock)
        written[row] = number
        await asyncio.sleep(0)
    await house.account.reshaper.finished(reshape)
    assert len(table.map.ranges) == 2
    found = orjson.loads(first.body)["value"]
    token = header(first, "x-ms-continuation-nextpartitionkey")
    while token is not None:
        page = await house.ask("GET", f"/people()?$top=70&$filter=n%20ge%200&NextPartitionKey={token}")
        assert page.status == 200, page.body
        found += orjson.loads(page.body)["value"]
        token = header(page, "x-ms-continuation-nextpartitionkey")
    assert sorted(each["RowKey"] for each in found) == [f"{number:03}" for number in range(200)]
    for number in range(200):
        row, key = f"{number:03}", f"p{number % 20}"
        seen = await items.read(table, row, ItemOptions(key=Key((key,))))
        answer = await house.ask("GET", f"/people(PartitionKey='{key}',RowKey='{row}')")
        assert float(header(answer, "x-ms-request-charge") or 0) == seen.charge_ru
        assert orjson.loads(answer.body).get("seen") == written.get(row)
        etag = header(answer, "etag") or ""
        assert (
            await house.ask("PUT", f"/people(PartitionKey='{key}',RowKey='{row}')", {}, {"If-Match": etag})
        ).status == 204
    await house.close()
