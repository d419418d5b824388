"""What scripts have logged, in the answers to writes with triggers: Python's client cannot ask for it, others can."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.caller import KEY, Caller

from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.net.answers import STAYS_OPEN, Answers
from armillary.storage.memory import MemoryEngine

_ITEMS = "/dbs/db/colls/c/docs"
_HEADERS = {
    "x-ms-documentdb-partitionkey": '["k"]',
    "x-ms-documentdb-script-enable-logging": "true",
    "x-ms-documentdb-pre-trigger-include": "before",
    "x-ms-documentdb-post-trigger-include": "after",
}
_ITEM = {"id": "1", "pk": "k"}


@pytest.fixture
async def call() -> AsyncIterator[Caller]:
    clock = VirtualClock()
    account = await Account.open(MemoryEngine(), clock)
    caller = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await caller("POST", "/dbs", {"id": "db"})
    await caller("POST", "/dbs/db/colls", {"id": "c", "partitionKey": {"paths": ["/pk"]}})
    for name, kind in (("before", "Pre"), ("after", "Post")):
        body = f"function () {{ console.log('{name}'); }}"
        trigger = {"id": name, "body": body, "triggerType": kind, "triggerOperation": "All"}
        assert (await caller("POST", "/dbs/db/colls/c/triggers", trigger))[0] == 201
    yield caller
    await account.close()


async def test_logs_of_triggers(call: Caller) -> None:
    patch = {"operations": [{"op": "set", "path": "/n", "value": 1}]}
    batch = [{"operationType": "Upsert", "resourceBody": _ITEM}]
    requests: list[tuple[str, str, Any, dict[str, str]]] = [
        ("POST", _ITEMS, _ITEM, {}),
        ("POST", _ITEMS, _ITEM, {"x-ms-documentdb-is-upsert": "True"}),
        ("PUT", f"{_ITEMS}/1", _ITEM, {"prefer": "return=minimal"}),
        ("PATCH", f"{_ITEMS}/1", patch, {"content-type": "application/json-patch+json"}),
        ("POST", _ITEMS, batch, {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True"}),
        ("DELETE", f"{_ITEMS}/1", None, {}),
    ]
    answers = Answers((), 0.0)
    for method, path, body, headers in requests:
        status, _, response = await call(method, path, body, **_HEADERS, **headers)
        assert status < 300, (method, response.body)
        assert b"\r\nx-ms-documentdb-script-log-results: before%0Aafter\r\n" in answers.encode(response, STAYS_OPEN)
