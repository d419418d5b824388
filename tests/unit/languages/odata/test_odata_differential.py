"""Random filters over random entities give the rows that a plain evaluator gives: with and without an index, on one
partition and on several, in pages, and in the order of row keys."""

from __future__ import annotations

import base64
import random
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.tables import NO_INDEX, filtered, new_table, put, reference

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.clock import VirtualClock
from armillary.storage.memory import MemoryEngine

FILTERS = 2_500  # for each of two seeds, with an index and without
TEXTS = ["", "a", "A", "ab", "b", "it's", "é", "\uffee", "\U0001f600", "10", "9", "-1"]
WHOLE = [-(2**31), -5, 0, 1, 7, 10, 2**31 - 1]
LONG = [-(2**63), -(2**53) - 1, -5, 0, 7, 10, 2**53, 2**53 + 1, 2**63 - 1]
DOUBLES = [-1.5, 0.0, 0.1, 7.0, 10.0, 1e300, float(2**53), "NaN", "Infinity", "-Infinity"]
TIMES = ["1601-01-01T00:00:00Z", "2024-01-05T10:11:12.1234567Z", "2024-01-05T10:11:12Z", "9999-12-31T23:59:59.9999999Z"]
BYTES = [b"", b"\x00", b"\x01", b"\x01\x02", b"\xff", b"berry"]
GUIDS = [str(uuid.UUID(int=each << 96 | 5)) for each in (0, 1, 0xABCDEF01)]
PROPERTIES = ["P", "Q", "R", "ttl", "id", "_ts"]
OPERATORS = ["eq", "ne", "lt", "le", "gt", "ge"]


def put_value(entity: dict[str, Any], name: str, dice: random.Random) -> None:
    kind = dice.choice(["text", "whole", "long", "double", "truth", "time", "bytes", "guid", "none", "none"])
    annotation = {"long": "Int64", "double": "Double", "time": "DateTime", "bytes": "Binary", "guid": "Guid"}.get(kind)
    writers: dict[str, Callable[[], Any]] = {
        "text": lambda: dice.choice(TEXTS),
        "whole": lambda: dice.choice(WHOLE),
        "long": lambda: str(dice.choice(LONG)),
        "double": lambda: dice.choice(DOUBLES),
        "truth": lambda: dice.random() < 0.5,
        "time": lambda: dice.choice(TIMES),
        "bytes": lambda: base64.b64encode(dice.choice(BYTES)).decode(),
        "guid": lambda: dice.choice(GUIDS),
        "none": lambda: None,
    }
    value = writers[kind]()
    if value is not None:
        entity[name] = value
        if annotation is not None:
            entity[f"{name}@odata.type"] = f"Edm.{annotation}"


def constant(dice: random.Random) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    made = [
        lambda: quoted(dice.choice(TEXTS)),
        lambda: str(dice.choice(WHOLE)),
        lambda: f"{dice.choice(LONG)}L",
        lambda: repr(dice.choice([each for each in DOUBLES if isinstance(each, float)])).replace("+", ""),
        lambda: dice.choice(["true", "false"]),
        lambda: f"datetime'{dice.choice(TIMES)}'",
        lambda: f"X'{dice.choice(BYTES).hex()}'",
        lambda: f"guid'{dice.choice(GUIDS)}'",
        lambda: dice.choice(["NaN", "INF", "-INF"]),
    ]
    return dice.choice(made)()


def comparison(dice: random.Random) -> str:
    kind = dice.random()
    operator = dice.choice(OPERATORS)
    if kind < 0.15:
        return f"PartitionKey {operator} '{dice.choice('abc')}'"
    if kind < 0.3:
        return f"RowKey {operator} '{dice.randrange(12)}'"
    if kind < 0.35:
        return f"Timestamp {operator} datetime'{dice.choice(['2023-11-14T22:13:20.0000009Z', '2000-01-01T00:00:00Z'])}'"
    if kind < 0.4:
        return dice.choice(PROPERTIES)
    pair = [dice.choice(PROPERTIES), constant(dice)]
    if dice.random() < 0.2:
        pair.reverse()
    return f"{pair[0]} {operator} {pair[1]}"


def expression(dice: random.Random, depth: int = 0) -> str:
    kind = dice.random()
    if depth >= 4 or kind < 0.45:
        return comparison(dice)
    if kind < 0.55:
        return f"not ({expression(dice, depth + 1)})"
    word = dice.choice([" and ", " or "])
    parts = [expression(dice, depth + 1) for _ in range(dice.choice([2, 2, 3]))]
    return word.join(f"({part})" if dice.random() < 0.6 else part for part in parts)


@pytest.fixture(params=["one partition", "three partitions", "no index"])
async def house(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Account, Container]]:
    engine = MemoryEngine()
    account = await Account.open(engine, VirtualClock())
    choices: dict[str, dict[str, Any]] = {
        "one partition": {},
        "three partitions": {"throughput_ru": 18_000},
        "no index": {"indexingPolicy": NO_INDEX},
    }
    yield account, await new_table(account, **choices[request.param])
    await account.close()
    await engine.close()


@pytest.mark.parametrize("seed", [20_261, 20_262])
async def test_filters_give_the_rows_of_the_reference(house: tuple[Account, Container], seed: int) -> None:
    print("seed", seed)
    dice = random.Random(seed)
    account, table = house
    for key in "abc":
        for number in range(12):
            entity: dict[str, Any] = {"PartitionKey": key, "RowKey": str(number)}
            for name in PROPERTIES:
                put_value(entity, name, dice)
            await put(account, table, entity)
    stored = await filtered(account, table, "PartitionKey ge 'a'")
    assert len(stored) == 36
    is_in_full = len(table.partitions) > 1 or table.record.body["indexingPolicy"]["indexingMode"] == "none"
    for _ in range(FILTERS if is_in_full else FILTERS // 10):
        text = expression(dice)
        expected = [entity for entity in stored if reference(text, entity)]
        found = await filtered(account, table, text, dice.choice([1000, 1000, 3]))
        assert found == expected, text
