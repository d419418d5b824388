"""Bad requests straight into the management door: bodies with something wrong, addresses, and tokens. Only refusals
with a reason; a request that is refused stores nothing."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
import pytest
import uvloop
from fuzz.leaks import LEAK
from fuzz.mutation import mutated_bytes, mutated_json
from fuzz.world import WatchedEngine
from support.management import ACCOUNT, CONTROL_KEY, VERSION, ManagementHouse
from support.portions import Amount

from armillary.account.check import check_account
from armillary.net.http import HANG_UP, Response

COUNT = 6_000
_HEADER_VALUE = re.compile(rb"[\x20-\x7e\t]*")
KEYED = {"paths": ["/pk"], "kind": "Hash", "version": 2}
POLICY = {
    "indexingMode": "consistent",
    "includedPaths": [{"path": "/*"}],
    "excludedPaths": [{"path": "/quiet/*"}],
    "compositeIndexes": [[{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "descending"}]],
}
CONTAINER = {"partitionKey": KEYED, "indexingPolicy": POLICY, "defaultTtl": 10}
INDEXES = [{"key": {"keys": ["a", "b"]}, "options": {"unique": True}}, {"key": {"keys": ["_ts"]}, "options": {}}]
BODIES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("/sqlDatabases/d", {"id": "d"}, {"throughput": 800}),
    ("/sqlDatabases/d/containers/c", {"id": "c", **CONTAINER}, {}),
    ("/gremlinDatabases/d/graphs/g", {"id": "g", **CONTAINER}, {"autoscaleSettings": {"maxThroughput": 2000}}),
    ("/mongodbDatabases/d/collections/m", {"id": "m", "shardKey": {"a": "Hash"}, "indexes": INDEXES}, {}),
    ("/tables/t", {"id": "t"}, {"throughput": 400}),
    ("/sqlDatabases/d/throughputSettings/default", {"throughput": 900}, {}),
    ("/sqlDatabases/d/containers/c/throughputSettings/default", {"autoscaleSettings": {"maxThroughput": 2000}}, {}),
)
JSON = {"content-type": "application/json"}


class World:
    def __init__(self, house: ManagementHouse, engine: WatchedEngine) -> None:
        self.house, self.engine = house, engine

    @classmethod
    async def make(cls) -> World:
        engine = WatchedEngine()
        world = cls(await ManagementHouse.open(engine=engine), engine)
        await world.house.put("/sqlDatabases/d", {"id": "d"}, throughput=500)
        await world.house.put("/sqlDatabases/d/containers/c", {"id": "c", **CONTAINER}, throughput=600)
        return world

    async def close(self) -> None:
        problems = [problem async for problem in check_account(self.engine, self.house.account.clock)]
        assert not problems, problems[:5]
        await self.house.close()


Target = Callable[[World, random.Random], Coroutine[Any, Any, Response]]


def check_answer(answer: Response) -> None:
    assert 200 <= answer.status < 500, answer.status
    for name, value in answer.headers:
        assert _HEADER_VALUE.fullmatch(value), (name, value)
    assert LEAK.search(answer.body) is None, answer.body
    if answer.status >= 400:
        error = orjson.loads(answer.body)["error"]
        assert error["code"] and error["message"]


async def bodies(world: World, dice: random.Random) -> Response:
    path, resource, options = dice.choice(BODIES)
    properties = (
        {"resource": resource, "options": options} if options or "/throughput" not in path else {"resource": resource}
    )
    body = mutated_json(dice, {"properties": properties})
    return await world.house.send("PUT", f"{ACCOUNT}{path}{VERSION}", JSON, body)


async def texts(world: World, dice: random.Random) -> Response:
    path, resource, _ = dice.choice(BODIES)
    body = mutated_bytes(dice, orjson.dumps({"properties": {"resource": resource}}))
    return await world.house.send("PUT", f"{ACCOUNT}{path}{VERSION}", JSON, body)


async def addresses(world: World, dice: random.Random) -> Response:
    path = dice.choice(["", "/listKeys", "/sqlDatabases/d/containers/c/throughputSettings/default/migrateToAutoscale"])
    target = mutated_bytes(dice, f"{ACCOUNT}{path}{VERSION}".encode())
    visible = bytes(byte for byte in target if 0x20 < byte < 0x7F) or b"/"  # all that the network lets into a target
    return await world.house.send(dice.choice(("GET", "DELETE", "HEAD", "PUT", "POST")), visible)


async def tokens(world: World, dice: random.Random) -> Response:
    genuine = f"Bearer {CONTROL_KEY}".encode()
    value = bytes(byte for byte in mutated_bytes(dice, genuine) if 0x20 <= byte < 0x7F).decode()
    before = world.engine.changes
    answer = await world.house.send("DELETE", f"{ACCOUNT}/sqlDatabases/none{VERSION}", {"authorization": value})
    is_same = value[:7].lower() == "bearer " and value[7:].strip() == CONTROL_KEY
    assert answer.status == (404 if is_same else 401)
    assert world.engine.changes == before
    return answer


TARGETS: dict[str, Target] = {"bodies": bodies, "texts": texts, "addresses": addresses, "tokens": tokens}


@pytest.mark.parametrize("name", TARGETS)
def test_only_refusals(name: str, seed: int, amount: Amount) -> None:
    uvloop.run(fuzz(name, seed, amount(COUNT)))


async def fuzz(name: str, seed: int, count: int) -> None:
    print(f"target {name}, --seed {seed}")
    world = await World.make()
    dice = random.Random(f"{seed}/{name}")
    answered: dict[int, int] = {}
    for number in range(count):
        world.engine.begin_request()
        before = world.engine.changes
        try:
            answer = await TARGETS[name](world, dice)
            assert answer is not HANG_UP
            check_answer(answer)
            if answer.status >= 400:
                assert world.engine.changes == before, (answer.body, "and yet something was stored")
        except Exception as error:
            raise AssertionError(f"--seed {seed}, {name} {number}") from error
        answered[answer.status] = answered.get(answer.status, 0) + 1
    print(dict(sorted(answered.items())))
    await world.close()
