"""Random programs on every engine, compared with a plain dict that does the same. The seed is printed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from armillary.storage.engine import Engine, Txn, View

SPACE = [bytes([first, second]) for first in b"abc\xff" for second in b"\x00mz\xff"] + [
    b"",
    b"a",
    b"b",
    b"\xff\xff\xff",
]
Step = tuple[str, Any]


class Abandoned(Exception):
    pass


class ModelTxn:
    """A dict with the interface of a Txn: slow and obviously right."""

    def __init__(self, pairs: dict[bytes, bytes]) -> None:
        self.pairs = pairs

    def get(self, key: bytes) -> bytes | None:
        return self.pairs.get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.pairs.get(key) for key in keys]

    def scan(self, low: bytes, high: bytes, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        return sorted(((k, v) for k, v in self.pairs.items() if low <= k < high), reverse=reverse)

    def put(self, key: bytes, value: bytes) -> None:
        self.pairs[key] = value

    def delete(self, key: bytes) -> None:
        self.pairs.pop(key, None)

    def delete_range(self, low: bytes, high: bytes) -> None:
        for key in [key for key in self.pairs if low <= key < high]:
            del self.pairs[key]


def program(dice: random.Random) -> list[Step]:
    steps: list[Step] = []
    for _ in range(dice.randrange(1, 15)):
        kind = dice.choices(
            ["put", "delete", "delete_range", "get", "get_many", "scan", "raise"], [40, 12, 6, 15, 5, 20, 1.5]
        )[0]
        if kind == "put":
            steps.append((kind, (dice.choice(SPACE), dice.randbytes(dice.randrange(4)))))
        elif kind in ("delete", "get"):
            steps.append((kind, (dice.choice(SPACE),)))
        elif kind == "get_many":
            steps.append((kind, (dice.sample(SPACE, 4),)))
        elif kind == "scan":
            steps.append((kind, (dice.choice(SPACE), dice.choice(SPACE), dice.random() < 0.5)))
        elif kind == "delete_range":
            steps.append((kind, (dice.choice(SPACE), dice.choice(SPACE))))
        else:
            steps.append((kind, ()))
    return steps


def runner(steps: list[Step]) -> Callable[[Any], list[Any]]:
    def run(txn: Txn | ModelTxn) -> list[Any]:
        results: list[Any] = []
        for kind, arguments in steps:
            if kind == "raise":
                raise Abandoned
            result = getattr(txn, kind)(*arguments)
            results.append(list(result) if kind == "scan" else result)
        return results

    return run


@pytest.mark.parametrize("seed", range(4))
async def test_random_programs(engine: Engine, seed: int) -> None:
    print("seed", seed)
    dice = random.Random(seed)
    model: dict[int, dict[bytes, bytes]] = {number: {} for number in (0, 1, 2**32 - 2)}
    for _ in range(25):
        # Functions run in the order in which they were handed in, so the model can do them one after the other.
        expected: list[Any] = []
        running = []
        for _ in range(dice.randrange(1, 25)):
            number = dice.choice(list(model))
            run = runner(program(dice))
            copy = dict(model[number])
            try:
                expected.append(run(ModelTxn(copy)))
                model[number] = copy
            except Abandoned:
                expected.append(Abandoned)
            running.append(engine.store(number).write(run))
        results = await asyncio.gather(*running, return_exceptions=True)
        assert [type(result) if isinstance(result, Exception) else result for result in results] == expected
        if dice.random() < 0.1:
            number = dice.choice(list(model))
            await engine.drop(number)
            model[number] = {}
        for number, pairs in model.items():
            low, high = dice.choice(SPACE), dice.choice(SPACE)

            def read(view: View, low: bytes = low, high: bytes = high) -> Any:
                return (
                    list(view.scan(b"", b"\xff" * 4)),
                    list(view.scan(low, high)),
                    list(view.scan(low, high, reverse=True)),
                    view.get_many(SPACE),
                )

            wanted = ModelTxn(pairs)
            assert await engine.store(number).read(read) == (
                wanted.scan(b"", b"\xff" * 4),
                wanted.scan(low, high),
                wanted.scan(low, high, True),
                wanted.get_many(SPACE),
            )


@pytest.mark.parametrize("seed", range(2))
async def test_many_keys(engine: Engine, seed: int) -> None:
    """Enough keys for several chunks, with wide deletions."""
    print("seed", seed)
    dice = random.Random(seed)
    model: dict[bytes, bytes] = {}
    store = engine.store(5)
    for turn in range(6):

        def fn(txn: Txn | ModelTxn, turn: int = turn) -> None:
            inner = random.Random(turn * 7919 + seed)
            for _ in range(2500):
                txn.put(inner.randbytes(2), b"%d" % turn)
            low = inner.randbytes(2)
            txn.delete_range(low, low + b"\xff" if turn % 2 else b"\xf0")
            for _ in range(500):
                txn.delete(inner.randbytes(2))

        fn(ModelTxn(model))
        await store.write(fn)
        low, high = sorted((dice.randbytes(2), dice.randbytes(2)))
        expected = ModelTxn(model)
        for first, last in ((b"", b"\xff" * 3), (low, high)):
            for reverse in (False, True):

                def scan(view: View, bounds: tuple[bytes, bytes, bool] = (first, last, reverse)) -> object:
                    return list(view.scan(*bounds))

                assert await store.read(scan) == expected.scan(first, last, reverse)
