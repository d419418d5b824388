"""Bad requests straight into the SQL door, thousands of each kind: refused with a reason, never a crash."""

from __future__ import annotations

import asyncio
import random
import re
import time

import orjson
import pytest
import uvloop
from fuzz.leaks import LEAK
from fuzz.targets import ATOMIC, BATCH, TARGETS, Input, docs, gather_continuations
from fuzz.world import CONTAINERS, World
from support.portions import Amount

from armillary.model.binary_json.binary_reader import decode
from armillary.model.binary_json.type_markers import PREAMBLE
from armillary.net.http import Response

COUNT = 20_000
SLOW_S = 5.0
_HEADER_VALUE = re.compile(rb"[\x20-\x7e\t]*")


@pytest.mark.parametrize("name", TARGETS)
def test_only_refusals(name: str, seed: int, amount: Amount) -> None:
    uvloop.run(fuzz(name, seed, amount(COUNT)))


async def fuzz(name: str, seed: int, count: int) -> None:
    print(f"target {name}, --seed {seed}")
    world = await World.make(seed)
    await gather_continuations(world)
    dice = random.Random(f"{seed}/{name}")
    answered: dict[int, int] = {}
    for number in range(count):
        given = TARGETS[name](world, dice)
        began_s, changes = time.thread_time(), world.changes
        try:
            answer = await world.answer(given.method, given.target, given.body, given.headers)
            check_answer(answer)
            if answer.status >= 400 or given.method in ("GET", "HEAD", "OPTIONS"):
                assert world.changes == changes, f"answered {answer.status}, and yet something was stored"
        except Exception as error:
            raise AssertionError(f"--seed {seed}, {name} {number}: {shown(given)}") from error
        assert time.thread_time() - began_s < SLOW_S, f"--seed {seed}, {name} {number} is slow: {shown(given)}"
        answered[answer.status] = answered.get(answer.status, 0) + 1
        if number % 20 == 0:
            await asyncio.sleep(0)  # what goes on by itself gets its turn
        if number % 1000 == 0:
            health = await world.answer("GET", b"/")
            assert health.status == 200, f"--seed {seed}, {name} {number}"
    problems = await world.problems()
    assert not problems, f"--seed {seed}, {name}: {problems[:5]}"
    print(dict(sorted(answered.items())))
    await world.close()


FINDINGS = {
    "a preference that is none, on a write": Input(
        "PATCH",
        docs("plain", b"item"),
        b'{"operations":[{"op":"incr","path":"/n","value":1}]}',
        {b"x-ms-documentdb-partitionkey": b'["k"]', b"prefer": b"return=mintrueimal"},
    ),
    "a preference that is none, on a batch": Input(
        "POST",
        docs("plain"),
        orjson.dumps(BATCH),
        {**ATOMIC, b"x-ms-documentdb-partitionkey": b'["k"]', b"prefer": b"return=most"},
    ),
    "a flag that is none, on a new policy": Input(
        "PUT",
        b"/dbs/db/colls/rules",
        orjson.dumps({"id": "rules", **CONTAINERS["rules"], "defaultTtl": 5}),
        {b"x-ms-documentdb-populatequotainfo": b"perhaps"},
    ),
    "addresses of databases": Input("GET", b"/addresses/?$resolveFor=dbs%2f"),
    "addresses of containers": Input("GET", b"/addresses/?$resolveFor=dbs%2fdb%2fcolls"),
    "a permission for no link": Input(
        "POST",
        b"/dbs/db/users/user/permissions",
        b'{"id":"strange","permissionMode":"All","resource":"a/b/c"}',
    ),
}


@pytest.mark.parametrize("name", FINDINGS)
async def test_earlier_findings(name: str) -> None:
    """What once broke the door, or was refused after it had been done."""
    world = await World.make(0)
    changes = world.changes
    answer = await world.answer(*FINDINGS[name])
    check_answer(answer)
    assert answer.status == 400
    assert world.changes == changes
    await world.close()


def check_answer(answer: Response) -> None:
    assert 200 <= answer.status < 500, (answer.status, answer.body)
    for header_name, value in answer.headers:
        assert _HEADER_VALUE.fullmatch(value), (header_name, value)
    if answer.status >= 400:
        refusal = orjson.loads(answer.body)
        assert isinstance(refusal["code"], str)
        assert refusal["message"]
        assert LEAK.search(answer.body) is None, answer.body
    elif answer.body:
        (decode if answer.body[0] == PREAMBLE else orjson.loads)(answer.body)


def shown(given: Input) -> str:
    """To be pasted into a test."""
    body = repr(given.body) if len(given.body) < 4000 else f"{given.body[:4000]!r}... ({len(given.body)} bytes)"
    return f"await world.answer({given.method!r}, {given.target!r}, {body}, {given.headers!r})"
