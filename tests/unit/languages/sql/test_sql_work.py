"""The meter of work in queries: functions spend by the size of what they are given, membership is by hashing and agrees
with deep equality, memory is counted while values are made, and time limits hold inside one item."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import orjson
import pytest
from support.caller import KEY, Caller

from armillary import limits, work
from armillary.account.account import Account
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.languages.sql.compiling.function_table import FUNCTIONS
from armillary.languages.sql.compiling.runtime import Members
from armillary.languages.sql.library import membership
from armillary.languages.sql.library.context import detached_context
from armillary.model.values import equal, hash_key, weight
from armillary.query.row_json import dump_large
from armillary.storage.memory import MemoryEngine

TEXT = "some words and more words, é " * 8_000
NUMBERS = list(range(30_000))
VALUES: list[Any] = [
    TEXT,
    NUMBERS,
    [str(number) for number in NUMBERS],
    {f"p{number}": number for number in range(20_000)},
    {"type": "LineString", "coordinates": [[number / 1e4, 1] for number in range(10_000)]},
    "[" + "1," * 50_000 + "1]",
]


@cache
def spending() -> list[Any]:
    """The modules that know the function by its name."""
    found = [module for name, module in sys.modules.items() if name.startswith("armillary")]
    return [module for module in found if getattr(module, "spend", None) is work.spend]


def spent(fn: Callable[[], Any]) -> tuple[int, float]:
    """The units that a function spends, and the seconds that it takes."""
    total = 0
    original = work.spend

    def count(units: int) -> None:
        nonlocal total
        total += units

    with pytest.MonkeyPatch.context() as patch:
        for module in spending():
            if module.spend is original:
                patch.setattr(module, "spend", count)
        gc.disable()
        try:
            begun_s = time.thread_time()
            fn()
            return total, time.thread_time() - begun_s
        finally:
            gc.enable()


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_spend_by_the_size_of_their_arguments(name: str) -> None:
    """What takes long spends for it: a new function that does not is found here. A unit is some 100 ns; slower machines
    and coarse counting are given ten times as much. Of several tries the best counts, without the garbage collector,
    which looks at everything that other tests have left."""
    function = FUNCTIONS[name]
    if function.call is None:
        return
    context = detached_context()
    extra = ([context] if function.needs_context else []) + ([""] if function.needs_path else [])
    for value in VALUES:
        for second in (value, "words", 5, {"term": "wordz", "distance": 1}):
            count = max(function.arguments_min, min(2, function.arguments_max))
            arguments = [*extra, *[value, second, "x", 1][:count]]
            best_s = units = 0.0
            for attempt in range(5):
                try:
                    units, seconds = spent(lambda: function.call(*arguments))  # type: ignore[misc] # noqa: B023
                except Failure:
                    break
                best_s = min(best_s, seconds) if attempt else seconds
                if units * 1e-6 >= best_s - 0.005:
                    break
            else:
                pytest.fail(f"{name} took {best_s * 1000:.1f} ms and spent {units} units")


SCALARS: list[Any] = [
    None, True, False, 0, 1, -1, 2, 0.0, -0.0, 1.0, 0.5, 2**53, 2**53 + 1, float(2**53), 2**60, float(2**60), "", "1",
    "true", float("nan"), float("inf"),
]  # fmt: skip


def values(dice: random.Random, depth: int = 2) -> Any:
    kind = dice.randrange(5) if depth else 0
    if kind == 3:
        return [values(dice, depth - 1) for _ in range(dice.randrange(3))]
    if kind == 4:
        names = dice.sample("abc", dice.randrange(4))
        return {name: values(dice, depth - 1) for name in names}
    return dice.choice(SCALARS)


async def test_hashed_membership_is_deep_equality(seed: int) -> None:
    dice = random.Random(seed)

    def check() -> None:
        for size in (3, 40, 200):
            array = [values(dice) for _ in range(size)]
            constant = membership.ConstantArray(array)
            members = Members(array)
            for _ in range(60):
                value = values(dice)
                wanted = any(equal(element, value) for element in array)
                assert membership.contains(array, value) is wanted, (value, array)
                assert constant.contains(value) is wanted, (value, array)
                if value == value:
                    assert members.holds(value) is wanted, (value, array)
                if isinstance(value, dict):
                    held = any(
                        isinstance(each, dict)
                        and all(name in each and equal(each[name], inner) for name, inner in value.items())
                        for each in array
                    )
                    assert membership.contains_part(array, value) is held
                    assert constant.contains(value, True) is held
            first, second = membership.distinct(array[: size // 2]), membership.distinct(array[size // 2 :])
            for element in array[: size // 2]:
                is_common = any(equal(element, other) for other in array[size // 2 :])
                [key] = [key for key, each in first.items() if equal(each, element)]
                assert (key in second) is is_common

    await work.run(check)


def test_keys_of_scalars_are_equal_as_their_values_are() -> None:
    for first in SCALARS:
        for second in SCALARS:
            assert (hash_key(first) == hash_key(second)) is equal(first, second), (first, second)


def rows(text: str, *documents: Any) -> list[Any]:
    return compile_query(text).bind({}).evaluate_over(documents)


async def test_what_is_dropped_is_not_counted_and_what_is_kept_is() -> None:
    item = {"a": list(range(125))}
    long = "CONCAT(REPLICATE('x', 9000), ToString(x), ToString(y))"
    loops = "FROM x IN c.a JOIN y IN c.a"
    for text in (
        f"SELECT VALUE (SELECT VALUE COUNT(1) {loops} WHERE LENGTH({long}) > 5) FROM c",
        f"SELECT VALUE (SELECT VALUE MAX({long}) {loops}) FROM c",
        f"SELECT VALUE ARRAY_LENGTH(ARRAY(SELECT VALUE LENGTH({long}) {loops})) FROM c",
        f"SELECT VALUE EXISTS(SELECT VALUE 1 {loops} WHERE {long} = 'x') FROM c",
    ):
        assert len(await work.run(lambda text=text: rows(text, item))) == 1  # type: ignore[misc]
    with pytest.raises(Failure) as refused:
        await work.run(lambda: rows(f"SELECT VALUE ARRAY_LENGTH(ARRAY(SELECT VALUE {long} {loops})) FROM c", item))
    assert refused.value.kind is Kind.TOO_LARGE


async def test_many_items_are_not_refused_for_what_each_of_them_takes() -> None:
    items = [{"id": str(number), "a": list(range(200))} for number in range(100)]
    made = "SELECT VALUE CONCAT(REPLICATE('x', 9000), ToString(x)) FROM x IN c.a"
    assert await work.run(lambda: rows(f"SELECT VALUE ARRAY_LENGTH(ARRAY({made})) FROM c", *items)) == [200] * 100


async def test_rows_are_written_in_pieces() -> None:
    dice = random.Random(3)
    large: Any = {"a": [NUMBERS] * 9, "b": {str(n): values(dice) for n in range(9_000)}, "c": "x" * 300_000, "": []}
    large = [large, {"one": [large, 1, [], {}]}, [], {}]
    text = await work.run(lambda: dump_large(large))
    assert orjson.loads(text) == orjson.loads(orjson.dumps(large))
    assert weight(large) > 1_000_000
    with pytest.raises(Failure) as refused:
        await work.run(lambda: dump_large([["x" * 1_000_000] * 10] * 10))
    assert refused.value.kind is Kind.TOO_LARGE


class SteppingClock(VirtualClock):
    """Time that goes on whenever it is looked at."""

    step_s = 0.0

    def elapsed_s(self) -> float:
        if self.step_s:
            self.advance(self.step_s)
        return super().elapsed_s()


_KEY = {"x-ms-documentdb-partitionkey": '["p"]'}
_QUERY = {**_KEY, "x-ms-documentdb-isquery": "True"}


async def house() -> tuple[Account, Caller, SteppingClock]:
    clock = SteppingClock()
    account = await Account.open(MemoryEngine(), clock)
    call = Caller(SqlDoor(account, AccountKeys(KEY), accepts_aad=False), clock)
    await call("POST", "/dbs", {"id": "db"})
    await call("POST", "/dbs/db/colls", {"id": "c", "partitionKey": {"paths": ["/pk"]}})
    for number in range(3):
        item = {"id": str(number), "pk": "p", "n": number, "a": list(range(300))}
        assert (await call("POST", "/dbs/db/colls/c/docs", item, **_KEY))[0] == 201
    return account, call, clock


async def test_time_limits_hold_inside_one_item() -> None:
    account, call, clock = await house()
    loops = "FROM x IN c.a JOIN y IN c.a JOIN z IN c.a"
    heavy = f"SELECT VALUE c.n FROM c WHERE c.n < 1 OR EXISTS(SELECT VALUE 1 {loops} WHERE x + y < 0)"
    clock.step_s = 0.5  # each look takes as long, so an item takes minutes
    status, body, response = await call("POST", "/dbs/db/colls/c/docs", {"query": heavy}, **_QUERY)
    assert (status, body["Documents"]) == (200, [0]), "the page ends with the items that were done with"
    continuation = next(value for name, value in response.headers if name == b"x-ms-continuation").decode()
    clock.step_s = 10.0
    status, body, _ = await call(
        "POST", "/dbs/db/colls/c/docs", {"query": heavy}, **_QUERY, **{"x-ms-continuation": continuation}
    )
    assert status == 408, "one item that takes longer than a query may is refused by name"
    clock.step_s = 0.0
    await account.close()


async def test_conditions_of_patches_that_take_long_are_judged_outside_of_the_transaction() -> None:
    account, call, _ = await house()
    work.longest_units = 0
    for condition, wanted in (
        ("FROM c WHERE NOT EXISTS(SELECT VALUE 1 FROM x IN c.a JOIN y IN c.a WHERE x + y < 0)", 200),
        ("FROM c WHERE EXISTS(SELECT VALUE 1 FROM x IN c.a JOIN y IN c.a WHERE x + y < 0)", 412),
    ):
        patch = {"condition": condition, "operations": [{"op": "incr", "path": "/n", "value": 1}]}
        status, body, _ = await call("PATCH", "/dbs/db/colls/c/docs/0", patch, **_KEY)
        assert status == wanted, body
    assert work.longest_units < 10 * limits.WORK_SLICE_UNITS
    await account.close()
