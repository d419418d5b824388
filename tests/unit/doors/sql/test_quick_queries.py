"""The fast path of queries against the general path: random queries to two accounts with the same history, one of which
is asked by the general path alone. Answers are compared byte for byte, and so is what was counted. Pages are followed
to their end, so that both paths go on from each other's continuations."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.caller import Caller
from support.limits import WithLimits
from support.topology import FRESH, FakeTopology, following
from support.two_paths import (
    CONTAINERS,
    KEYS,
    OPTIONAL,
    House,
    disturb,
    key_text,
    pass_time,
    shown,
    signed_headers,
    twice,
)

from armillary.account.faults import FaultRule
from armillary.account.registry import AccountSettings
from armillary.errors import Kind
from armillary.model.binary_json.binary_writer import encode
from armillary.net.http import Request, Response
from armillary.storage.rocks import RocksEngine

_CONTAINERS: dict[str, dict[str, Any]] = {
    **CONTAINERS,
    "unindexed": {"partitionKey": {"paths": ["/pk"]}, "indexingPolicy": {"indexingMode": "none", "automatic": False}},
}
_QUERIES = (
    "SELECT * FROM c WHERE c.number = @n",
    "SELECT * FROM c WHERE c.number >= @n AND c.number < @m",
    "SELECT * FROM c WHERE c.number > @n",
    "SELECT c.id, c.number FROM c WHERE c.number = @n",
    "SELECT VALUE c.filler FROM c WHERE c.number IN (@n, @m)",
    "SELECT * FROM c WHERE c.pk = @k",
    "SELECT * FROM c WHERE c.pk = @k AND c.number = @n",
    "SELECT * FROM c WHERE c.pk = @k AND c.id = '1'",
    "SELECT * FROM c WHERE c.id = '1'",
    "SELECT * FROM c",
    "SELECT TOP 3 * FROM c WHERE c.number = @n",
    "SELECT * FROM c WHERE c.number = @n OFFSET 1 LIMIT 2",
    "SELECT * FROM c ORDER BY c.number",
    "SELECT VALUE COUNT(1) FROM c",
    "SELECT c.number, COUNT(1) AS n FROM c GROUP BY c.number",
    "SELECT DISTINCT c.number FROM c",
    "SELECT VALUE x FROM c JOIN x IN c.tags",
    "SELECT * FROM c WHERE c.number = @missing",
    "SELECT * FROM c WHERE STARTSWITH(c.filler, 'z') AND c.number = @n",
    "SELECT 1",
    "SELEC",
    "SELECT udf.f(c.number) FROM c",
)
_OPTIONAL: dict[bytes, tuple[bytes, ...]] = {
    **OPTIONAL,
    b"content-type": (b"application/json", b"application/query+json; charset=utf-8", b""),
    b"x-ms-documentdb-isquery": (b"False", b"true", b"x"),
    b"x-ms-documentdb-query-enablecrosspartition": (b"False", b"x"),
    b"x-ms-documentdb-populatequerymetrics": (b"False",),
    b"x-ms-cosmos-populateindexmetrics": (b"True",),
    b"x-ms-cosmos-is-query-plan-request": (b"False", b"x"),
    b"x-ms-documentdb-responsecontinuationtokenlimitinkb": (b"1", b"x"),
    b"x-ms-start-epk": (b"", b"05C1"),
    b"user-agent": (b"azsdk-python-cosmos/4.16", b"azsdk-java-cosmos/4.8", b"documentdb-nodejs-sdk-1.15.3"),
    b"x-ms-cosmos-supported-query-features": (b"Aggregate, OrderBy", b""),
}


@pytest.fixture(params=["Session", "Strong", "Eventual"])
def settings(request: pytest.FixtureRequest) -> AccountSettings:
    return AccountSettings(consistency=request.param)


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[list[RocksEngine]]:
    opened = [await RocksEngine.open(tmp_path / name, "relaxed", reserve_bytes=0) for name in ("quick", "general")]
    yield opened
    for each in opened:
        await each.close()


async def test_both_paths_answer_and_count_alike(
    settings: AccountSettings, engines: list[RocksEngine], seed: int, amount: Callable[[int], int]
) -> None:
    quick, general = [await House.make(settings, _CONTAINERS, engine) for engine in engines]
    await _compare(quick, general, random.Random(seed), amount(12_000))


@pytest.mark.parametrize(
    "topology",
    [FakeTopology(), FakeTopology(may_answer_strongly=False), following(staleness=FRESH), following(is_silent=True)],
    ids=["leader", "without its lease", "follower", "silent"],
)
async def test_on_nodes_of_a_cluster_too(
    topology: FakeTopology, settings: AccountSettings, seed: int, amount: Callable[[int], int]
) -> None:
    quick, general = await House.make(settings, _CONTAINERS), await House.make(settings, _CONTAINERS)
    quick.account.topology = general.account.topology = topology
    await _compare(quick, general, random.Random(seed), amount(2_000), is_taken=topology.may_answer_strongly)


async def _compare(quick: House, general: House, dice: random.Random, count: int, *, is_taken: bool = True) -> None:
    taken = refused = continued = 0
    continuation: bytes | None = None
    headers: dict[bytes, bytes] = {}
    target = body = b""
    for _ in range(count):
        pass_time(dice, quick, general)
        if not dice.randrange(40):
            await _write(dice, quick, general)
        if continuation is None or not dice.randrange(10):
            target, headers, body = _made(dice, quick)
        else:  # signed anew: time may have passed
            link = target[1:].rpartition(b"/docs")[0].decode()
            headers = {**headers, **signed_headers(dice, quick.clock, "post", link), b"x-ms-continuation": continuation}
            continued += 1
        mine, other = twice("POST", target, headers, body, not dice.randrange(9))
        answering = quick.door.answer_at_once(mine)
        assert answering is None or isinstance(answering, Coroutine)
        taken += answering is not None
        answer = await (quick.door.answer(mine) if answering is None else answering)
        expected = await general.door.answer(other)
        refused += expected.status == 429
        assert shown(answer) == shown(expected), (target, headers, body)
        assert mine.operation == other.operation
        assert mine.is_known == other.is_known
        assert quick.counted == general.counted, (target, headers, body)
        continuation = dict(shown(expected)[1]).get(b"x-ms-continuation")
    assert taken > count // 5 if is_taken else not taken
    assert not is_taken or (refused and continued)
    await quick.account.close()
    await general.account.close()


async def _write(dice: random.Random, *houses: House) -> None:
    """What is cached of an item that is written or deleted must not be answered any more."""
    name, key, item_id = dice.choice(tuple(CONTAINERS)), dice.choice(KEYS), dice.choice(("1", "item-2", "new"))
    item = {"id": item_id, "pk": key, "number": dice.randrange(5), "filler": "z" * dice.randrange(900), "tags": [1, 2]}
    header = {} if name == "fixed" else {"x-ms-documentdb-partitionkey": key_text(name, key, item_id)}
    is_deleted = not dice.randrange(3)
    for house in houses:
        for meter in [meter for container in house.account.containers for meter in container.meters]:
            assert meter.budget is not None
            meter.budget.spent = 0
        caller = Caller(house.door, house.clock)
        if is_deleted:
            await caller("DELETE", f"/dbs/db/colls/{name}/docs/{item_id}", None, **header)
        else:
            await caller("POST", f"/dbs/db/colls/{name}/docs", item, **header, x_ms_documentdb_is_upsert="True")


def _made(dice: random.Random, house: House) -> tuple[bytes, dict[bytes, bytes], bytes]:
    """A query, in most cases as a client sends it."""
    name = dice.choice((*_CONTAINERS, *["plain", "old", "deep"] * 3, "gone"))
    link = f"dbs/db/colls/{name}"
    key = dice.choice(KEYS)
    low = dice.randrange(-1, 6)
    values = {"@n": low, "@m": low + dice.randrange(4), "@k": dice.choice((key, key, dice.choice(KEYS)))}
    text = dice.choice(_QUERIES)
    given = [{"name": each, "value": value} for each, value in values.items() if each in text or not dice.randrange(9)]
    body: bytes = orjson.dumps({"query": text, "parameters": given})
    if not dice.randrange(60):
        body = dice.choice((b"", b"{", b'{"query":1}', b'{"query":"SELECT 1","x":1}', encode({"query": text}, 10)))
    headers = signed_headers(dice, house.clock, "post", link)
    headers |= {
        b"content-type": b"application/query+json",
        b"x-ms-documentdb-isquery": b"True",
        b"x-ms-documentdb-query-enablecrosspartition": b"True",
    }
    if dice.randrange(4):
        headers[b"x-ms-max-item-count"] = dice.choice((b"-1", b"-1", b"100", b"1", b"2", b"7", b"0", b"x"))
    where = dice.randrange(5)
    if where < 3:
        ranges = [each.range.id for container in house.account.containers for each in container.partitions.values()]
        chosen = dice.choice((dice.choice((*ranges, 0, 1)), "77", "x", "AAAAAYAAAAE=,0"))
        headers[b"x-ms-documentdb-partitionkeyrangeid"] = str(chosen).encode()
    elif where == 3:
        headers[b"x-ms-documentdb-partitionkey"] = key_text(name, key, "1").encode("latin-1", "replace")
    disturb(dice, headers, _OPTIONAL)
    return f"/{link}/docs".encode(), headers, body


def _plain(house: House) -> Request:
    headers = signed_headers(random.Random(1), house.clock, "post", "dbs/db/colls/plain")
    headers |= {
        b"content-type": b"application/query+json",
        b"x-ms-documentdb-isquery": b"True",
        b"x-ms-documentdb-partitionkeyrangeid": b"0",
    }
    body = orjson.dumps({"query": "SELECT * FROM c WHERE c.number >= 0", "parameters": []})
    return Request("POST", b"/dbs/db/colls/plain/docs", headers, body, False, "peer")


async def _quickly(house: House, request: Request) -> Response:
    answering = house.door.answer_at_once(request)
    assert isinstance(answering, Coroutine), "it was left to the general path"
    response: Response = await answering
    return response


async def test_rules_of_faults_see_queries() -> None:
    house = await House.make(AccountSettings(), _CONTAINERS)
    assert (await house.door.answer(_plain(house))).status == 200  # its sender and its path are known from now on
    assert house.door.answer_at_once(_plain(house)) is None
    assert (await _quickly(house, _plain(house))).status == 200
    house.account.faults.add(FaultRule(operations=frozenset(["query"]), kind=Kind.THROTTLED))
    assert (await _quickly(house, _plain(house))).status == 429
    await house.account.close()


async def test_a_page_of_many_bytes_goes_on_where_it_ended(engines: list[RocksEngine], with_limits: WithLimits) -> None:
    with_limits(PAGE_BYTES_MAX=9_000)
    houses = [await House.make(AccountSettings(), {"plain": CONTAINERS["plain"]}, each) for each in engines]
    found: list[list[Any]] = [[], []]
    for house, pages in zip(houses, found, strict=True):
        request = _plain(house)
        await house.door.answer(_plain(house))
        house.door.answer_at_once(_plain(house))
        while True:
            is_first = b"x-ms-continuation" not in request.headers
            quick = is_first and house is houses[0]
            response = await (_quickly(house, request) if quick else house.door.answer(request))
            pages.append(shown(response))
            continuation = dict(shown(response)[1]).get(b"x-ms-continuation")
            if continuation is None:
                break
            request = _plain(house)
            request.headers[b"x-ms-continuation"] = continuation
        await house.account.close()
    assert len(found[0]) > 3
    assert found[0] == found[1]
