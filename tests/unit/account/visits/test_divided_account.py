"""Accounts whose partitions are elsewhere answer every request as others do, with the same charges. Each scenario runs
twice: on an account as usual, and on one whose partitions are reached over a link."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.caller import KEY, Caller
from support.divided import Spread, divide

from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.storage.memory import MemoryEngine

ITEMS = "/dbs/db/colls/c/docs"


def single_items() -> Iterator[tuple[str, str, Any, dict[str, str]]]:
    for number in range(12):
        key = f"k{number % 5}"
        in_key = {"x_ms_documentdb_partitionkey": f'["{key}"]'}
        item = {"id": str(number), "pk": key, "n": number, "text": "ä" * number}
        yield "POST", ITEMS, item, in_key
        yield "POST", ITEMS, item, in_key
        yield "GET", f"{ITEMS}/{number}", None, in_key
        yield "GET", f"{ITEMS}/none", None, in_key
        yield "PUT", f"{ITEMS}/{number}", {**item, "n": -1}, in_key
        yield "POST", ITEMS, {**item, "n": 2}, {**in_key, "x_ms_documentdb_is_upsert": "True"}
        yield "PUT", f"{ITEMS}/{number}", {**item, "n": 3}, {**in_key, "if_match": '"no"'}
        patch = {"operations": [{"op": "incr", "path": "/n", "value": 1.5}], "condition": "FROM c WHERE c.n > 0"}
        yield "PATCH", f"{ITEMS}/{number}", patch, {**in_key, "content_type": "application/json-patch+json"}
        yield "GET", f"{ITEMS}/{number}", None, {**in_key, "x_ms_session_token": "0:1#1000"}
        if number % 3 == 0:
            yield "DELETE", f"{ITEMS}/{number}", None, in_key
            yield "DELETE", f"{ITEMS}/{number}", None, in_key

    measured = {"x_ms_documentdb_populatequotainfo": "True", "x_ms_documentdb_populatepartitionstatistics": "True"}
    yield "GET", "/dbs/db/colls/c", None, measured
    yield "GET", "/dbs/db/colls/c/pkranges", None, {}


async def answers() -> list[Any]:
    clock = VirtualClock()
    engine = MemoryEngine()
    account = await Account.open(engine, clock)
    call = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await call("POST", "/dbs", {"id": "db"})
    body = {"id": "c", "partitionKey": {"paths": ["/pk"], "version": 2}}
    await call("POST", "/dbs/db/colls", body, x_ms_offer_throughput="30000")
    found = []
    for method, path, given, headers in single_items():
        status, answer, response = await call(method, path, given, **headers)
        lines = [b": ".join(each) for each in response.headers] + response.lines.split(b"\r\n")
        told = sorted(line for line in lines if not line.startswith(b"x-ms-activity-id"))
        message = answer.pop("message", "") if answer is not None else ""
        found.append((status, answer, message.partition("ActivityId")[0], told))
    await account.close()
    await engine.close()
    return found


@pytest.mark.parametrize("spread", [Spread(), Spread(places=2, has_own=True)], ids=["elsewhere", "three places"])
async def test_single_items(monkeypatch: pytest.MonkeyPatch, spread: Spread) -> None:
    expected = await answers()
    divide(monkeypatch, spread)
    assert await answers() == expected
    assert spread.frames > 0.7 * len(expected)
