"""Bad requests straight into the control door: refused with a reason in its form, never a crash, never without the
key."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import orjson
import pytest
import uvloop
from fuzz.mutation import mutated_bytes, mutated_json
from support.portions import Amount

from armillary.account.account import Account
from armillary.account.check import check_account
from armillary.clock import MovableClock
from armillary.doors.control.door import ControlDoor
from armillary.net.http import Request, Response
from armillary.storage.memory import MemoryEngine

KEY = b"Y29udHJvbCBrZXkgb2YgdGhlIHRlc3Rz"
COUNT = 10_000
C = b"databases/db/containers/c"
HEADERS = {b"host": b"localhost", b"authorization": b"Bearer " + KEY, b"content-type": b"application/json"}

BODIES: dict[str, tuple[str, bytes, Any]] = {
    "databases": ("POST", b"databases", {"name": "new", "throughput": 400}),
    "containers": (
        "POST",
        b"databases/db/containers",
        {"name": "new", "partitionKey": ["/a", "/b"], "autoscale": 1000, "definition": {"defaultTtl": 5}},
    ),
    "fixed": ("POST", b"databases/db/containers", {"name": "fixed", "fixed": True, "throughput": 400}),
    "throughput": ("PUT", C + b"/throughput", {"throughput": 400}),
    "mode": ("PUT", C + b"/mode", {"mode": "enforce"}),
    "buckets": ("PUT", C + b"/buckets", {"1": 50, "2": 100}),
    "split": ("POST", C + b"/split", {"partition": 77, "boundary": "0A0B"}),
    "merge": ("POST", C + b"/merge", {"partitions": [55, 66]}),
    "pauses": ("PUT", b"reshapes/pauses", {"points": ["begun", "held"]}),
    "faults": (
        "POST",
        b"faults",
        {
            "operations": ["write"],
            "database": "db",
            "container": "c",
            "key": ["K", 1, None, {}],
            "range": 0,
            "skip": 1,
            "every": 2,
            "count": 3,
            "probability": 0.5,
            "seed": 1,
            "status": 410,
            "subStatus": 1002,
            "retryAfterMs": 5,
            "delayMs": 1,
            "after": True,
        },
    ),
    "clock": ("POST", b"clock", {"frozen": True, "advanceSeconds": 0.5}),
}
PATHS = (
    *(b"", b"health", b"ready", b"metrics", b"databases", b"databases/db", b"containers", b"clock", b"reshapes"),
    *(C, C + b"/partitions?top=5", C + b"/keys?top=5", C + b"/reshapes", C + b"/reshapes/1/advance", b"faults/1"),
)


def check(response: Response, what: object) -> None:
    assert response.status < 500, (what, response.body)
    content = response.body
    if response.status >= 400:
        error = orjson.loads(content)["error"]
        assert error.keys() == {"code", "message"} and error["message"], what
        for leak in (b"Traceback", b'File "', b"armillary/"):
            assert leak not in content, what


async def make() -> tuple[MemoryEngine, Account, ControlDoor]:
    engine, clock = MemoryEngine(), MovableClock()
    account = await Account.open(engine, clock)
    door = ControlDoor(account, KEY.decode(), clock=clock)
    for path, body in (
        (b"databases", {"name": "db"}),
        (b"databases/db/containers", {"name": "c", "partitionKey": "/k"}),
    ):
        request = Request("POST", b"/_armillary/" + path, HEADERS, orjson.dumps(body), False, "")
        assert (await door.answer(request)).status == 201
    return engine, account, door


@pytest.mark.parametrize("name", BODIES)
def test_bodies(name: str, seed: int, amount: Amount) -> None:
    async def run() -> None:
        engine, account, door = await make()
        dice = random.Random(f"{seed}/{name}")
        method, path, template = BODIES[name]
        for number in range(amount(COUNT)):
            body = mutated_json(dice, template)
            request = Request(method, b"/_armillary/" + path, HEADERS, body, False, "")
            check(await door.answer(request), (seed, name, number, body[:300]))
            if number % 50 == 0:
                await asyncio.sleep(0)
                account.faults.rules.clear()
        assert [problem async for problem in check_account(engine, account.clock)] == []
        await account.close()
        await engine.close()

    uvloop.run(run())


def test_paths_and_headers(seed: int, amount: Amount) -> None:
    async def run() -> None:
        engine, account, door = await make()
        dice = random.Random(f"{seed}/paths")
        for number in range(amount(COUNT)):
            target = b"/_armillary/" + mutated_bytes(dice, dice.choice(PATHS))
            method = dice.choice(("GET", "HEAD", "PUT", "PATCH", "OPTIONS", "TRACE", "x"))
            headers = dict(HEADERS)
            if dice.random() < 0.3:
                header = dice.choice((b"host", b"authorization", b"origin", b"content-type"))
                headers[header] = mutated_bytes(dice, headers.get(header, b"http://localhost"))
            response = await door.answer(Request(method, target, headers, b"{}", False, ""))
            check(response, (seed, number, method, target, headers))
            is_open = target.partition(b"?")[0].strip(b"/") in (b"_armillary/health", b"_armillary/ready")
            given = headers[b"authorization"]
            has_key = given[:7].lower() == b"bearer " and given[7:].strip() == KEY
            if not has_key and not is_open:
                assert response.status in (400, 401, 403), (seed, number, target, headers)
        await account.close()
        await engine.close()

    uvloop.run(run())
