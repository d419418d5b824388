"""The fast path of scripts that read one vertex against the general path: random requests to two graphs with the same
history, one of which is asked by the general path alone. Answers are compared byte for byte, and so is what was
counted."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, Final

import orjson
import pytest
from support.gremlin_house import GremlinHouse, Wire, asked, framed

from armillary import limits
from armillary.clock import VirtualClock
from armillary.doors.gremlin import quick_vertices

FORMS: Final = [
    *["application/vnd.gremlin-v3.0+json"] * 3,
    *("application/json", "application/vnd.gremlin-v2.0+json", "application/vnd.gremlin-v3.0+json;types=false"),
]
KEYS: Final = ["a", "b", "ü", "", 'q"', "$x"]
IDS: Final = ["1", "2", "id with blanks", "ü", "it's", "x" * 255, "large"]
ODD: Final[list[Any]] = [1, 1.5, True, None, [], {}, ["a"], ["a", "b", "c"], [["a", "1"]], "", "missing", 2**40]
SCRIPTS: Final = [
    *("g.V(x)", "g.V([p,x])", "g.V(['a',x])", "g.V(x,p)", "g.V(x).id()", "g.V(x).next()", "g.V(x).explain()"),
    *("g.E(x)", "g.V(x).as('a')", "g.with('evaluationTimeout', 500).V(x)", "g.V(x); g.V(x)", "x", "g.V(y)", "g.V()"),
    *("g.withPath().V(x)", "g.V(x).hasLabel('person')", " g.V( x ) ", "g.V(x).toSet()"),
]
ARGUMENTS: Final[list[dict[str, Any]]] = [
    *({"batchSize": 1}, {"batchSize": 0}, {"batchSize": 64}, {"batchSize": True}, {"batchSize": "1"}),
    *({"language": "gremlin-lang"}, {"language": "gremlin-java"}, {"language": ""}, {"language": 1}),
    *({"evaluationTimeout": 0}, {"evaluationTimeout": -1}, {"aliases": {"g": "g"}}, {"bindings": [1]}, {"bindings": 0}),
]


@pytest.mark.parametrize("is_partitioned", [True, False])
async def test_both_paths_answer_and_count_alike(
    is_partitioned: bool, seed: int, amount: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, taken, paths = random.Random(seed), 0, [quick_vertices.answer, _never]
    houses = [await _house(is_partitioned) for _ in paths]
    clients = [house.friend(graph="g" if is_partitioned else "fixed") for house in houses]
    statuses = set()
    for _ in range(amount(17_000)):
        message = framed(_made(dice, is_partitioned), dice.choice(FORMS))
        passed_s = dice.choice((0.1, 1.0, 2.0)) if not dice.randrange(20) else 0.0
        is_exhausted = not dice.randrange(60)
        sent: list[list[bytes]] = []
        for house, client, path in zip(houses, clients, paths, strict=True):

            async def answer(*given: Any, path: Any = path) -> bool:
                nonlocal taken
                is_taken: bool = await path(*given)
                taken += is_taken
                return is_taken

            monkeypatch.setattr(quick_vertices, "answer", answer)
            assert isinstance(house.account.clock, VirtualClock) and isinstance(client.line, Wire)
            house.account.clock.advance(passed_s)
            if is_exhausted:
                _exhaust(house)
            client.line.sent.clear()
            await house.door.answer(client, message, False)
            sent.append([_shown(each) for each in client.line.sent])
        assert sent[0] == sent[1], message
        statuses.add(orjson.loads(sent[0][-1])["status"]["code"])
        assert _counted(houses[0]) == _counted(houses[1]), message
    assert taken > amount(17_000) // 6
    assert statuses >= {200, 204, 429, 597}, statuses
    for house in houses:
        await house.close()


async def _never(*_given: Any) -> bool:
    return False


async def _house(is_partitioned: bool) -> GremlinHouse:
    clock = VirtualClock()
    house = await GremlinHouse.open("/pk" if is_partitioned else "none", clock=clock)
    client = house.friend(graph="g" if is_partitioned else "fixed")
    for key in KEYS[:3] if is_partitioned else [None]:
        for item_id in IDS:
            size = limits.GREMLIN_VERTEX_AT_ONCE_BYTES if item_id == "large" else 1
            bindings: dict[str, Any] = {"i": item_id, "t": "x" * size}
            given = ".property('id', i).property('name', t).property('name', 'other').property('age', 7)"
            if key is not None:
                given, bindings["k"] = given + ".property('pk', k)", key
            await house.answers(f"g.addV('person'){given}", client, bindings=bindings)
            clock.advance(1)
    await house.answers("g.V('1').addE('knows').to(g.V('2')).property('id', 'edge')", client)
    clock.advance(10)
    for container in house.account.containers:
        await house.account.budgets.set_mode(container, "enforce")
    return house


def _made(dice: random.Random, is_partitioned: bool) -> dict[str, Any]:
    """A request, in most cases one that the fast path takes."""

    def value() -> Any:
        return dice.choice(ODD) if not dice.randrange(12) else dice.choice([*IDS, "edge"])

    key = dice.choice(KEYS) if dice.randrange(12) else dice.choice(ODD)
    arguments = dict(dice.choice(ARGUMENTS)) if not dice.randrange(6) else {"language": "gremlin-groovy"}
    is_pair = is_partitioned if dice.randrange(10) else not is_partitioned
    if dice.randrange(2):
        given: Any = [key, value()] if is_pair else value()
        script = dice.choice(
            [f"g.V({given!r})"] * 5 + [f"g.V({given!r}).id()", f"g.V ( {given!r} )", f"g.E({given!r})"]
        )
        script = script.replace(", ", ",") if dice.randrange(2) else script
        return asked(script, **arguments)
    script = dice.choice(SCRIPTS[:3]) if dice.randrange(5) else dice.choice(SCRIPTS)
    bindings = {"x": [key, value()] if is_pair and "p" not in script else value()}
    if "p" in script or not dice.randrange(10):
        bindings["p"] = key
    return asked(script, **{"bindings": bindings} | arguments)


def _exhaust(house: GremlinHouse) -> None:
    """Use up the request units of this second."""
    for container in house.account.containers:
        for meter in container.meters:
            assert meter.budget is not None
            meter.budget.spent = max(meter.budget.spent, meter.budget.ceiling)


def _shown(message: bytes) -> bytes:
    """Without the id of the request, which is drawn and counted."""
    return re.sub(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", b"", message)


def _counted(house: GremlinHouse) -> list[Any]:
    return [
        (container.name, partition.range.id, partition.meter.totals, partition.meter.top_keys(100))
        for container in house.account.containers
        for partition in container.partitions.values()
    ]
