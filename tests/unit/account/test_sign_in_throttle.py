"""Failed sign-ins are slowed by address at every door, and nothing else is."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.cosmos import CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError
from azure.data.tables import TableServiceClient
from gremlin_python.driver.client import Client as GremlinClient
from gremlin_python.driver.protocol import GremlinServerError
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from support.caller import KEY as CALLER_KEY
from support.caller import Caller
from support.limits import WithLimits
from support.process import KEY
from support.waiting import until

from armillary import limits
from armillary.account.account import Account
from armillary.account.security.sign_in_throttle import SignInThrottle
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.net.http import HANG_UP, Request, Response
from armillary.storage.memory import MemoryEngine
from armillary.tools.resolve import resolve
from armillary.tools.serving.serve import serve

WRONG = "d3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmctd3Jvbmc="


class CountedSleeps(VirtualClock):
    """A clock whose sleeps end at once, and are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)


async def test_the_first_are_free_and_the_others_stand_in_line() -> None:
    clock = CountedSleeps()
    waits = clock.sleeps
    throttle = SignInThrottle(clock)
    for _ in range(limits.SIGN_IN_FAILURES_FREE):
        assert await throttle.refused("10.0.0.1")
    assert waits == []
    length = int(limits.SIGN_IN_WAIT_SECONDS_MAX * limits.SIGN_IN_FAILURES_PER_S)
    answered = [await throttle.refused("10.0.0.1") for _ in range(2 * length)]
    assert answered == [True] * length + [False] * length, "beyond the line there is no answer"
    assert waits == pytest.approx([(place + 1) / limits.SIGN_IN_FAILURES_PER_S for place in range(length)], rel=1e-3)
    waits.clear()
    assert await throttle.refused("10.0.0.2") and waits == [], "another address is not concerned"
    clock.advance(1 / limits.SIGN_IN_FAILURES_PER_S)
    assert [await throttle.refused("10.0.0.1") for _ in range(2)] == [True, False]
    clock.advance((limits.SIGN_IN_FAILURES_FREE + length) / limits.SIGN_IN_FAILURES_PER_S)
    waits.clear()
    for _ in range(limits.SIGN_IN_FAILURES_FREE):
        assert await throttle.refused("10.0.0.1")
    assert waits == []


async def test_those_that_are_answered_at_once_count_too() -> None:
    clock = CountedSleeps()
    throttle = SignInThrottle(clock)
    for _ in range(limits.SIGN_IN_FAILURES_FREE):
        throttle.count("10.0.0.1")
    assert await throttle.refused("10.0.0.1") and len(clock.sleeps) == 1


async def test_addresses(with_limits: WithLimits) -> None:
    clock = CountedSleeps()
    waits = clock.sleeps
    with_limits(SIGN_IN_FAILURES_FREE=2)
    throttle = SignInThrottle(clock)
    for address in ("2001:db8::1", "2001:db8::ffff:1"):  # one customer's
        await throttle.refused(address)
    assert waits == []
    await throttle.refused("2001:db8:0:0:5::")
    assert len(waits) == 1
    for address in ("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.1", "fe80::1%eth0", "", "nonsense"):
        await throttle.refused(address)
    assert len(waits) == 2
    with_limits(SIGN_IN_ADDRESSES_MAX=10)
    for number in range(100):
        await throttle.refused(f"10.1.0.{number}")
    assert len(throttle) <= 10 + 5


async def test_a_client_that_signs_correctly_never_waits() -> None:
    """All share one address here, and it has used up everything."""
    engine, clock = MemoryEngine(), VirtualClock()
    account = await Account.open(engine, clock)
    door = SqlDoor(account, AccountKeys(CALLER_KEY), accepts_aad=False)
    door.throttle = SignInThrottle(clock)
    good = Caller(door, clock)
    strangers = [asyncio.create_task(_stranger(door, clock)) for _ in range(limits.SIGN_IN_FAILURES_FREE + 10)]
    await asyncio.sleep(0)
    for _ in range(3):
        status, _, _ = await asyncio.wait_for(good("GET", "/dbs"), 30)
        assert status == 200
    held = [each for each in strangers if not each.done()]
    assert len(held) == 10, "those wait meanwhile"
    for _ in range(200):
        strangers.append(asyncio.create_task(_stranger(door, clock)))
    await asyncio.sleep(0)
    assert sum(1 for each in strangers if each.done() and each.result() is HANG_UP) > 100
    for each in strangers:
        each.cancel()
    await asyncio.gather(*strangers, return_exceptions=True)
    await account.close()
    await engine.close()


async def _stranger(door: SqlDoor, clock: VirtualClock) -> Response:
    headers = {
        b"x-ms-date": formatdate(clock.now_s(), usegmt=True).encode(),
        b"authorization": b"type%3Dmaster%26ver%3D1.0%26sig%3D" + b"A" * 43 + b"%3D",
    }
    return await door.answer(Request("GET", b"/dbs", headers, b"", False, "test"))


def _sql(url: str, key: str) -> None:
    CosmosClient(url, key, retry_total=0).get_database_account()


def _table(url: str, key: str) -> None:
    from azure.core.credentials import AzureNamedKeyCredential

    with TableServiceClient(url, credential=AzureNamedKeyCredential("localhost", key), retry_total=0) as client:
        list(client.list_tables())


def _mongo(url: str, key: str) -> None:
    client: MongoClient[Any]
    with MongoClient(url, username="localhost", password=key, serverSelectionTimeoutMS=20_000) as client:
        client.admin.command("listDatabases")


def _gremlin(url: str, key: str) -> None:
    client = GremlinClient(url, "g", username="/dbs/d/colls/g", password=key)
    try:
        client.submit("g.V()").all().result()
    finally:
        client.close()


REFUSALS = (CosmosHttpResponseError, ClientAuthenticationError, HttpResponseError, OperationFailure, GremlinServerError)


async def test_every_door_tells_of_its_failures_and_of_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    refused: list[str] = []

    async def note(_: SignInThrottle, address: str) -> bool:
        refused.append(address)
        return True

    monkeypatch.setattr(SignInThrottle, "refused", note)
    thresholds = gc.get_threshold()
    given = {"memory": True, "sql-port": "0", "control-key": WRONG.lower(), "log-level": "error"}
    settings = resolve({**given, "management-port": "0"}, {})
    serving = asyncio.create_task(serve(settings))
    printed: list[str] = []

    def is_ready() -> bool:
        printed.append(capfd.readouterr().out)
        return serving.done() or "ready " in "".join(printed)

    await until(is_ready, "the server is ready")
    doors = dict(word.split("=", 1) for word in "".join(printed).split()[1:])
    attempts: dict[str, Callable[[str, str], None]] = {
        "sql": _sql,
        "table": _table,
        "mongo": _mongo,
        "gremlin": lambda url, key: _gremlin(f"{url}/gremlin", key),
    }
    for name, attempt in attempts.items():
        with pytest.raises(REFUSALS):
            await asyncio.to_thread(attempt, doors[name], WRONG)
        assert refused and set(refused) == {"127.0.0.1"}, name
        refused.clear()
    for name in ("sql", "table", "mongo"):
        await asyncio.to_thread(attempts[name], doors[name], KEY)
    with pytest.raises(GremlinServerError, match=r"NotFound|not exist"):  # known, and there is no such graph
        await asyncio.to_thread(attempts["gremlin"], doors["gremlin"], KEY)
    assert refused == []
    reader, writer = await asyncio.open_connection("127.0.0.1", int(doors["sql"].rpartition(":")[2]))
    writer.write(b"GET /_armillary/v1/databases HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n")
    assert b" 401 " in await reader.readline()
    writer.close()
    assert refused == ["127.0.0.1"]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(doors["management"].rpartition(":")[2]))
    writer.write(b"GET /subscriptions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n")
    assert b" 401 " in await reader.readline()
    writer.close()
    assert refused == ["127.0.0.1"] * 2
    os.kill(os.getpid(), signal.SIGTERM)
    await serving
    gc.unfreeze()
    gc.set_threshold(*thresholds)
