"""Hostile scripts in process: every one gives way often enough, and is answered or refused with a reason."""

from __future__ import annotations

from typing import Any

import uvloop
from hostile import gremlin_requests
from hostile.harness import STALL_UNITS_MAX, watched
from support.gremlin_house import GremlinHouse

from armillary.languages.gremlin.values.elements import Path, Property, Vertex

VERTICES = 40
SIZE = 300
GENERATED = 40
TIMEOUT_MS = 150  # here; whatever takes longer is refused then, which is an answer too
_TIMED_OUT = 598

# Of the named ones, those that may be refused, for what they ask.
_REFUSED = {
    "product of products",  # a list of 27 million
    "texts that grow too much",
    "long texts kept",
    "long texts dropped",  # 256 of them are on their way together
}


async def opened() -> GremlinHouse:
    house = await GremlinHouse.open()
    await house.graph(throughput_ru=1_000_000)
    for text in gremlin_requests.graph(VERTICES):
        await house.run(text)
    return house


async def judged(house: GremlinHouse, script: gremlin_requests.Script) -> int:
    async with watched() as seen:
        answers = await house.answers(script.text, evaluationTimeout=min(script.timeout_ms or TIMEOUT_MS, TIMEOUT_MS))
    status: dict[str, Any] = answers[-1]["status"]
    assert "its log tells" not in status["message"], (script.text[:500], status)  # an unexpected exception
    assert seen.units <= STALL_UNITS_MAX, f"{script.name}: {seen.units} units between two turns"
    return int(status["code"])


def test_named() -> None:
    async def run() -> dict[str, int]:
        house = await opened()
        codes = {script.name: await judged(house, script) for script in gremlin_requests.named(SIZE)}
        await house.close()
        return codes

    codes = uvloop.run(run())
    assert {name for name, code in codes.items() if code >= 300 and code != _TIMED_OUT} <= _REFUSED


def test_paths_and_properties_are_hashed_by_what_they_hold() -> None:
    """Where all have one hash, grouping compares each with every other one."""
    vertices = [Vertex(str(number), "v") for number in range(200)]
    paths = [Path([vertices[0], each, [1, 2]], [(), (), ()]) for each in vertices]
    properties = [Property("key", number) for number in range(200)]
    for values in (paths, properties):
        assert len({hash(each) for each in values}) > len(values) * 9 // 10
    same = Path([Vertex("0", "v"), Vertex("5", "v"), [1, 2]], [(), (), ()])
    assert same == paths[5] and hash(same) == hash(paths[5])
    assert hash(Path([1], [()])) == hash(Path([1.0], [()])), "equal values have one hash, whatever their types"
    long = Path([vertices[number % 200] for number in range(5_000)], [()] * 5_000)
    assert hash(long) == hash(Path(list(long.objects), long.labels))


def test_generated(seed: int) -> None:
    async def run() -> list[int]:
        house = await opened()
        codes = [await judged(house, script) for script in gremlin_requests.generated(seed, GENERATED)]
        await house.close()
        return codes

    codes = uvloop.run(run())
    assert sum(code < 300 for code in codes) > GENERATED // 3, "many are answered"
