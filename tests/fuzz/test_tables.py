"""Bad requests straight into the Table door, twenty thousand of each kind: filters, batches (boundaries, nested parts,
wrong lengths), signatures, entities and addresses. Only refusals with a reason; nothing is stored by halves."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

import orjson
import pytest
import uvloop
from fuzz.leaks import LEAK
from fuzz.mutation import mutated_bytes, mutated_json
from fuzz.world import WatchedEngine
from support.portions import Amount
from support.tables import TableHouse

from armillary.account.check import check_account
from armillary.net.http import Response

COUNT = 20_000
_HEADER_VALUE = re.compile(rb"[\x20-\x7e\t]*")
_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")

ENTITY = {
    "PartitionKey": "p",
    "RowKey": "r",
    "n": 1,
    "text": "it's",
    "big@odata.type": "Edm.Int64",
    "big": "9007199254740993",
    "time@odata.type": "Edm.DateTime",
    "time": "2024-01-05T10:11:12.1234567Z",
    "bytes@odata.type": "Edm.Binary",
    "bytes": "AQI=",
    "guid@odata.type": "Edm.Guid",
    "guid": "c9da6455-213d-42c9-9a79-3e9149a57833",
    "ratio": 1.5,
    "truth": True,
}
FILTERS = (
    b"PartitionKey eq 'p' and RowKey ge 'a' and not (n lt 5 or text eq 'it''s')",
    b"big gt 9007199254740992L or time le datetime'2024-01-05T10:11:12.1234567Z'",
    b"guid'c9da6455-213d-42c9-9a79-3e9149a57833' eq guid and bytes ne X'0102' and truth",
    b"((ratio ge -1.5e3)) and (Timestamp gt datetime'2000-01-01') or not truth",
)


class World:
    def __init__(self, house: TableHouse, engine: WatchedEngine) -> None:
        self.house, self.engine = house, engine

    @classmethod
    async def make(cls) -> World:
        engine = WatchedEngine()
        world = cls(await TableHouse.open(engine), engine)
        await world.house.ask("POST", "/Tables", {"TableName": "people"})
        await world.house.ask("POST", "/people", ENTITY)
        return world

    async def close(self) -> None:
        problems = [problem async for problem in check_account(self.engine, self.house.account.clock)]
        assert not problems, problems[:5]
        await self.house.close()


Target = Callable[[World, random.Random], Coroutine[Any, Any, Response]]


def check_answer(answer: Response) -> None:
    assert 200 <= answer.status < 300 or 400 <= answer.status < 500 or answer.status == 501, answer.status
    for name, value in answer.headers:
        assert _HEADER_VALUE.fullmatch(value), (name, value)
    assert LEAK.search(answer.body) is None, answer.body
    if answer.status >= 400 and not answer.body.startswith(b"<?xml"):
        error = orjson.loads(answer.body)["odata.error"]
        assert error["code"] and error["message"]["value"]


def visible(text: bytes) -> bytes:
    """The network lets neither blanks nor control characters into a target."""
    return bytes(byte for byte in text if 0x20 < byte < 0x7F)


async def filters(world: World, dice: random.Random) -> Response:
    text = mutated_bytes(dice, dice.choice(FILTERS))
    table = b"/Tables()" if dice.random() < 0.1 else b"/people()"
    return await world.house.ask("GET", table + b"?$filter=" + quote(text, safe="").encode())


async def addresses(world: World, dice: random.Random) -> Response:
    target = dice.choice(
        (
            b"/people(PartitionKey='p',RowKey='r')",
            b"/people()?$select=n,text&$top=5",
            b"/Tables('people')",
            b"/localhost/people?comp=acl",
            b"/?restype=service&comp=properties",
        )
    )
    return await world.house.ask("GET", visible(mutated_bytes(dice, target)) or b"/")


async def entities(world: World, dice: random.Random) -> Response:
    body = mutated_json(dice, ENTITY)
    method = dice.choice(("POST", "PUT", "MERGE"))
    if method == "POST":
        return await world.house.ask("POST", "/people", body)
    headers = {"If-Match": dice.choice(("*", "W/\"datetime'x'\"", ""))} if dice.random() < 0.5 else {}
    return await world.house.ask(method, "/people(PartitionKey='p',RowKey='r')", body, headers)


def batch(dice: random.Random) -> bytes:
    parts = []
    for number in range(dice.randrange(1, 4)):
        method, where = dice.choice(
            (("POST", ""), ("PUT", "(PartitionKey='p',RowKey='%d')"), ("DELETE", "(PartitionKey='p',RowKey='r')"))
        )
        target = f"http://h/people{where % number if '%' in where else where}"
        body = orjson.dumps({**ENTITY, "RowKey": f"{number}"}).decode() if method != "DELETE" else ""
        guard = "If-Match: *\r\n" if method == "DELETE" else ""
        length = f"Content-Length: {len(body)}\r\n" if dice.random() < 0.5 else ""
        parts.append(
            "--changeset_1\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
            f"{method} {target} HTTP/1.1\r\nContent-Type: application/json\r\nContent-ID: {number}\r\n"
            f"{guard}{length}\r\n{body}\r\n"
        )
    inner = "".join(parts) + "--changeset_1--\r\n"
    return f"--batch_1\r\nContent-Type: multipart/mixed; boundary=changeset_1\r\n\r\n{inner}--batch_1--\r\n".encode()


async def batches(world: World, dice: random.Random) -> Response:
    body = batch(dice)
    for _ in range(dice.choice((0, 1, 1, 2))):
        body = mutated_bytes(dice, body)
    kind = b"multipart/mixed; boundary=batch_1"
    if dice.random() < 0.1:
        kind = visible(mutated_bytes(dice, kind))
    before = world.engine.changes
    answer = await world.house.ask("POST", "/$batch", body, {"Content-Type": kind.decode()})
    statuses = [int(status) for status in _STATUS.findall(answer.body)] if answer.status == 202 else [answer.status]
    is_done = answer.status == 202 and all(status < 300 for status in statuses)
    assert world.engine.changes - before <= is_done, (answer.status, statuses)
    if answer.status == 202 and not is_done:
        assert len(statuses) == 1
        assert re.search(rb'"value":"[0-9]+:', answer.body)
    return answer


async def signatures(world: World, dice: random.Random) -> Response:
    house = world.house
    before = world.engine.changes
    if dice.random() < 0.5:
        headers = house.signed("POST", b"/people", {"Content-Type": "application/json"}, is_lite=dice.random() < 0.5)
        name = dice.choice((b"authorization", b"x-ms-date", b"content-type"))
        genuine = headers[name]
        value = bytes(byte for byte in mutated_bytes(dice, genuine) if 0x20 <= byte < 0x7F)
        answer = await house.send("POST", b"/people", {**headers, name: value}, b"{}")
        # Blanks at the ends are the network's; of the content type only the signature of all of it knows.
        is_same = value == genuine or (
            name == b"content-type" and headers[b"authorization"].startswith(b"SharedKeyLite")
        )
        assert is_same or answer.status in (400, 401, 403, 415), answer.status
    else:
        terms = b"sv=2019-02-02&tn=people&sp=raud&se=2033-01-01T00%3A00%3A00Z&sip=127.0.0.1&sig=AAAA"
        query = terms + b"&spk=a&srk=b&epk=z&erk=z"
        answer = await house.send("GET", b"/people()?" + visible(mutated_bytes(dice, query)), {b"host": b"h"})
        assert answer.status in (400, 401, 403, 501), answer.status
    assert world.engine.changes == before
    return answer


TARGETS: dict[str, Target] = {
    "filters": filters,
    "addresses": addresses,
    "entities": entities,
    "batches": batches,
    "signatures": signatures,
}


@pytest.mark.parametrize("name", TARGETS)
def test_only_refusals(name: str, seed: int, amount: Amount) -> None:
    uvloop.run(fuzz(name, seed, amount(COUNT)))


async def fuzz(name: str, seed: int, count: int) -> None:
    print(f"target {name}, --seed {seed}")
    world = await World.make()
    dice = random.Random(f"{seed}/{name}")
    answered: dict[int, int] = {}
    for number in range(count):
        before = world.engine.changes
        try:
            answer = await TARGETS[name](world, dice)
            check_answer(answer)
            if answer.status >= 400:
                assert world.engine.changes == before, f"answered {answer.status}, and yet something was stored"
        except Exception as error:
            raise AssertionError(f"--seed {seed}, {name} {number}") from error
        answered[answer.status] = answered.get(answer.status, 0) + 1
    print(dict(sorted(answered.items())))
    await world.close()
