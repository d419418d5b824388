"""Ordered queries that a client resumes with a `resumeFilter` beside the text (Rust's azure_data_cosmos, .NET's)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.caller import KEY, Caller

from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.storage.memory import MemoryEngine

_KEY = {"x-ms-documentdb-partitionkey": '["k"]'}
_QUERY = {**_KEY, "x-ms-documentdb-isquery": "True", "content-type": "application/query+json"}
_DOCS = "/dbs/db/colls/c/docs"
_NOT_THERE = object()
_KEYS: list[Any] = [None, False, True, -1.5, 0, 0, 7, 2**53, "", "a", "a", "ä"]
_COMPOSITE = [
    [{"path": "/n", "order": first}, {"path": "/m", "order": "ascending"}] for first in ("ascending", "descending")
]


@pytest.fixture
async def call() -> AsyncIterator[Caller]:
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock)
    caller = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await caller("POST", "/dbs", {"id": "db"})
    body = {"id": "c", "partitionKey": {"paths": ["/pk"]}, "indexingPolicy": {"compositeIndexes": _COMPOSITE}}
    await caller("POST", "/dbs/db/colls", body)
    for number, key in enumerate([*_KEYS, [1], {"x": 1}]):
        item = {"id": f"{number:02}", "pk": "k", "n": key, "m": number % 3, "not": {"there": 1}}
        assert (await caller("POST", _DOCS, item, **_KEY))[0] == 201
    yield caller
    await account.close()


async def _rows(call: Caller, text: str, resume_filter: Any = _NOT_THERE, **headers: str) -> list[Any]:
    """The rows of all pages."""
    body: dict[str, Any] = {"query": text, "parameters": [{"name": "@p", "value": 1}]}
    if resume_filter is not _NOT_THERE:
        body["resumeFilter"] = resume_filter
    rows: list[Any] = []
    continuation: dict[str, str] = {}
    while True:
        status, page, response = await call("POST", _DOCS, body, **_QUERY, **headers, **continuation)
        assert status == 200, page
        rows += page["Documents"]
        token = dict(response.headers).get(b"x-ms-continuation")
        if token is None:
            return rows
        continuation = {"x-ms-continuation": token.decode()}


# As Rust's client sends them: the rewritten query of the plan, its filter replaced by `true`.
def _envelope(order: str) -> str:
    paths = [part.split(" ")[0] for part in order.split(", ")]
    items = ", ".join([f'{{"item": {path}}}' for path in paths])
    return (
        f"SELECT c._rid, [{items}] AS orderByItems, c.id AS payload FROM c WHERE (@p = 1) AND (true) ORDER BY {order}"
    )


@pytest.mark.parametrize("page_size", ["1", "1000"])
@pytest.mark.parametrize("order", ["c.n ASC", "c.n DESC", "c.n ASC, c.m ASC", "c.n DESC, c.m ASC"])
async def test_a_query_goes_on_at_each_of_its_rows(call: Caller, order: str, page_size: str) -> None:
    whole = await _rows(call, _envelope(order))
    assert len(whole) == len(_KEYS) + 2
    keys = [[item.get("item", []) for item in row["orderByItems"]] for row in whole]
    for place, values in enumerate(keys):
        if any(isinstance(value, dict) or value == [1] for value in values):
            continue
        alike = [number for number, other in enumerate(keys) if repr(other) == repr(values)]  # False is not 0
        first, last = alike[0], alike[-1] + 1
        for asked, expected in (
            ({"value": values, "rid": whole[place]["_rid"], "exclude": False}, whole[first:]),
            ({"value": values, "exclude": False}, whole[first:]),
            ({"value": values, "exclude": True}, whole[last:]),
        ):
            assert await _rows(call, _envelope(order), asked, **{"x-ms-max-item-count": page_size}) == expected


async def test_rows_without_the_property(call: Caller) -> None:
    order = "SELECT VALUE c.id FROM c ORDER BY c.none"
    whole = await _rows(call, order)
    assert await _rows(call, order, {"value": [[]], "exclude": False}) == whole
    assert await _rows(call, order, {"value": [[]], "exclude": True}) == []
    assert await _rows(call, order, {"value": [3]}) == []


async def test_none_means_from_the_beginning(call: Caller) -> None:
    order = "SELECT VALUE c.id FROM c ORDER BY c.id"
    assert await _rows(call, order, None) == await _rows(call, order)


@pytest.mark.parametrize(
    ("text", "asked", "said"),
    [
        ("c.n", [], "is an object"),
        ("c.n", {"rid": "a"}, "is an object"),
        ("c.n", {"value": []}, "is an object"),
        ("c.n", {"value": [1], "inclusive": True}, "inclusive"),
        ("c.n", {"value": [1], "exclude": 1}, "'exclude' is true or false"),
        ("c.n", {"value": [1], "rid": 1}, "'rid' a string"),
        ("c.n", {"value": [1, 2]}, "has 2 values, and the query orders by 1"),
        ("c.n", {"value": [{"type": "array", "low": 1, "high": 2}]}, "an array or an object"),
        ("", {"value": [1]}, "ORDER BY"),
    ],
)
async def test_what_is_no_resume_filter_is_refused(call: Caller, text: str, asked: Any, said: str) -> None:
    query = f"SELECT * FROM c ORDER BY {text}" if text else "SELECT * FROM c"
    status, answer, _ = await call("POST", _DOCS, {"query": query, "resumeFilter": asked}, **_QUERY)
    assert status == 400 and said in answer["message"], answer
