"""Every function with whatever comes: only a value comes back, never an exception, and always one that can be written
as JSON. An undefined argument makes the result undefined but for the few functions that say otherwise.
"""

from __future__ import annotations

import math
import random
from typing import Any

import orjson
import pytest
from support.portions import Amount

from armillary.clock import VirtualClock
from armillary.errors import Failure
from armillary.languages.sql.compiling.function_table import FUNCTIONS
from armillary.languages.sql.library.context import Context
from armillary.model.values import UNDEFINED

ROUNDS = 400
# These answer although something is undefined: a choice, or a question that the other arguments decide.
LENIENT = {"IIF", "CHOOSE"} | {
    name
    for name in FUNCTIONS
    if name.endswith(("_ALL", "_ANY", "CONTAINSALL", "CONTAINSANY"))
    or "_ALL_" in name
    or "_ANY_" in name
    or name.startswith("IS_")
}

WORDS = ["", " ", "a", "abc", "Red bicycle", "\U0001f600x", "\ud800", "ÀÉ", "yyyy", "dd", "ns", "2020-02-29", "null"]
WORDS += ["2016-05-29T08:30:00.1301617Z", "[1,2]", '{"a":1}', "1e400", "-7", "(", "a*", "[a-", "i", "Cosine", "9" * 400]
NUMBERS = [0, 1, -1, 2, 7, 0.5, -0.0, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan, 2**53, 2**63 - 1, -(2**63)]
NUMBERS += [2**64 - 1, 10**30, 180, 90, -90, 1.5]


def any_value(dice: random.Random, depth: int = 0) -> Any:
    choice = dice.randrange(12 if depth < 3 else 8)
    match choice:
        case 0:
            return None
        case 1:
            return dice.random() < 0.5
        case 2 | 3:
            return dice.choice(NUMBERS)
        case 4:
            return dice.uniform(-200, 200)
        case 5 | 6 | 7:
            return dice.choice(WORDS)
        case 8:
            return [any_value(dice, depth + 1) for _ in range(dice.randrange(4))]
        case 9:
            return [dice.choice(NUMBERS[:9]) for _ in range(dice.randrange(5))]
        case 10:
            return geometry(dice)
    names = ("a", "type", "coordinates", "term", "distance", "distanceFunction")
    return {name: any_value(dice, depth + 1) for name in dice.sample(names, 2)}


def geometry(dice: random.Random) -> Any:
    def position() -> Any:
        return [
            dice.choice([0, 1, 90, 180, -180, dice.uniform(-190, 190)]),
            dice.choice([0, 90, dice.uniform(-95, 95)]),
        ]

    ring = [position() for _ in range(dice.randrange(5))]
    ring += ring[:1]
    kind = dice.choice(["Point", "LineString", "Polygon", "MultiPolygon", "Other"])
    shape: Any = {"Point": position(), "LineString": ring, "Polygon": [ring], "MultiPolygon": [[ring], [ring]]}.get(
        kind
    )
    return {"type": kind, "coordinates": shape}


def is_value(value: Any) -> bool:
    if value.__class__ is int:
        return -(2**63) <= value < 2**64
    if value.__class__ is list:
        return all(element is not UNDEFINED and is_value(element) for element in value)
    if value.__class__ is dict:
        return all(
            each.__class__ is str and inner is not UNDEFINED and is_value(inner) for each, inner in value.items()
        )
    return value.__class__ in (bool, float, str, type(None))


@pytest.mark.parametrize("name", [name for name, function in FUNCTIONS.items() if function.call is not None])
def test_only_values_come_back(name: str, amount: Amount) -> None:
    function = FUNCTIONS[name]
    assert function.call is not None
    seed = sum(name.encode())
    dice = random.Random(seed)
    context = Context(VirtualClock(seed=seed))
    first = ([context] if function.needs_context else []) + (["/a"] if function.needs_path else [])
    for _ in range(amount(ROUNDS)):
        size = dice.randint(function.arguments_min, min(function.arguments_max, function.arguments_min + 3))
        given = [any_value(dice) if dice.random() > 0.05 else UNDEFINED for _ in range(size)]
        try:
            result = function.call(*first, *given)
        except Failure:
            assert name == "REGEXMATCH", "the only function with a limit to exceed"
            continue
        except Exception as problem:
            raise AssertionError(f"{name}{tuple(given)!r} raised {problem!r}, seed {seed}") from problem
        if any(value is UNDEFINED for value in given) and name not in LENIENT:
            assert result is UNDEFINED, f"{name}{tuple(given)!r} is {result!r}, seed {seed}"
        if result is UNDEFINED:
            continue
        holds_given_number = any(each.__class__ is int and each > 2**64 for each in _leaves(given))
        assert is_value(result) or holds_given_number, f"{name}{tuple(given)!r} is {result!r}, seed {seed}"
        if is_value(result) and "\\ud800" not in repr(result):
            orjson.dumps(result)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for element in value for leaf in _leaves(element)] if isinstance(value, list) else [value]
