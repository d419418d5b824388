"""Mutated queries straight into the SQL door: answered or refused with 400, nothing else, and refused quickly."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
import pytest
import pytest_asyncio
import uvloop
from fuzz.queries import CORPUS, LONG_TEXTS, dense_text, long_text, mutated_query
from fuzz.test_door import check_answer
from fuzz.world import World
from support.portions import Amount

from armillary import limits
from armillary.net.http import Response

COUNT = 50_000
COUNT_SOAK = 2_000_000
REFUSAL_S = 0.05  # for each 64 KB of text that were begun
ANSWER_S = 1.0
BUSY = 6  # how much slower than its best a machine may be that others use too; what is quadratic is slower by far more
WORK_S = 0.009  # what `slowness` does takes this long on the machine that these times are for
TARGET = b"/dbs/db/colls/queried/docs"
QUERY = {
    b"x-ms-documentdb-isquery": b"True",
    b"x-ms-documentdb-query-enablecrosspartition": b"True",
    b"x-ms-documentdb-partitionkeyrangeid": b"0",  # a query of the whole container is refused with a plan
    b"x-ms-max-item-count": b"-1",
}
PLAN = {
    b"x-ms-cosmos-is-query-plan-request": b"True",
    b"x-ms-cosmos-supported-query-features": b"Aggregate, CompositeAggregate, CountIf, DCount, Distinct, GroupBy, "
    b"HybridSearch, ListAndSetAggregate, MultipleAggregates, MultipleOrderBy, NonStreamingOrderBy, OffsetAndLimit, "
    b"OrderBy, Top, WeightedRankFusion",
}
CONTAINER = {
    "id": "queried",
    "partitionKey": {"paths": ["/id"], "kind": "Hash", "version": 2},
    "fullTextPolicy": {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/body", "language": "en-US"}]},
    "computedProperties": [{"name": "lowered", "query": "SELECT VALUE LOWER(c.kind) FROM c"}],
}


@pytest.fixture(autouse=True, scope="module")
def as_served() -> Iterator[None]:
    """Garbage is collected as rarely as in the server: by default it takes half of the time of a long text."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


async def furnished(seed: int) -> World:
    world = await World.make(seed)
    await world._must("POST", b"/dbs/db/colls", CONTAINER)
    names = ("instruments", "mixed", "weird", "texts", "geo", "vectors")
    for name in names:
        for number, item in enumerate(orjson.loads((CORPUS / "datasets" / f"{name}.json").read_bytes())[:6]):
            item_id = f"{name}{number}"
            headers = {b"x-ms-documentdb-partitionkey": orjson.dumps([item_id])}
            await world._must("POST", TARGET, {**item, "id": item_id}, headers)
    return world


async def ask(world: World, text: str, parameters: dict[str, Any], *, is_plan: bool) -> tuple[Response, float]:
    """The answer and the processor time that it took."""
    given = [{"name": name, "value": value} for name, value in parameters.items()]
    body = orjson.dumps({"query": text, "parameters": given})
    began_s = time.process_time()
    answer = await world.answer("POST", TARGET, body, PLAN if is_plan else QUERY)
    return answer, time.process_time() - began_s


async def check(world: World, text: str, parameters: dict[str, Any], *, is_plan: bool) -> int:
    answer, taken_s = await ask(world, text, parameters, is_plan=is_plan)
    check_answer(answer)
    assert answer.status in (200, 400), (answer.status, answer.body[:1000])
    allowed_s = BUSY * REFUSAL_S * (1 + len(text) // 65537) if answer.status == 400 else ANSWER_S
    for turn in range(1, 6):  # a machine that is busy with other things may be slow once
        if taken_s <= allowed_s:
            return answer.status
        # With another blank it is another text, of which nothing is remembered.
        _, again_s = await ask(world, text + " " * turn, parameters, is_plan=is_plan)
        taken_s = min(taken_s, again_s)
    allowed_s *= slowness()
    assert taken_s <= allowed_s, f"{answer.status} in {taken_s * 1000:.0f} ms, may take {allowed_s * 1000:.0f}"
    return answer.status


def slowness() -> float:
    """How many times slower this machine is than the one that the times are for."""
    taken_s = []
    for _ in range(5):
        began_s, kept = time.process_time(), {}
        for number in range(100_000):
            kept[number % 977] = str(number)
        taken_s.append(time.process_time() - began_s)
    return max(1.0, min(taken_s) / WORK_S)


async def fuzz(seed: int, count: int) -> None:
    world = await furnished(seed)
    dice = random.Random(f"{seed}/queries")
    answered: Counter[int] = Counter()
    for number in range(count):
        text, parameters = mutated_query(dice)
        try:
            answered[await check(world, text, parameters, is_plan=dice.random() < 0.1)] += 1
        except Exception as error:
            raise AssertionError(f"--seed {seed}, {number}: {text[:4000]!r}, {parameters}") from error
        if number % 100 == 0:
            await asyncio.sleep(0)
    print(dict(answered))
    # Both ways are taken often: otherwise the mutations are too wild, or too tame.
    assert min(answered[200], answered[400]) > count // 10, answered
    await world.close()


def test_mutated_queries(seed: int, amount: Amount) -> None:
    print(f"--seed {seed}")
    uvloop.run(fuzz(seed, amount(COUNT)))


@pytest.mark.soak
def test_many_mutated_queries(seed: int) -> None:
    print(f"--seed {seed}")
    uvloop.run(fuzz(seed, COUNT_SOAK))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    made = await furnished(0)
    yield made
    await made.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "size",
    [
        pytest.param(64 * 1024, id="64 KB", marks=pytest.mark.soak),
        pytest.param(limits.QUERY_TEXT_BYTES_MAX, id="512 KB"),
        pytest.param(None, id="dense"),
    ],
)
@pytest.mark.parametrize("name", LONG_TEXTS)
async def test_long_texts(world: World, name: str, size: int | None) -> None:
    text = dense_text(name) if size is None else long_text(name, size)
    assert len(text) <= limits.QUERY_TEXT_BYTES_MAX
    await check(world, text, {}, is_plan=False)


@pytest.mark.asyncio(loop_scope="module")
async def test_text_that_is_too_long(world: World) -> None:
    answer, _ = await ask(world, "SELECT 1" + " " * limits.QUERY_TEXT_BYTES_MAX, {}, is_plan=False)
    assert answer.status == 400
