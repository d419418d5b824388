"""Killed in the middle of its work, again and again, the engine loses nothing that it acknowledged."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from armillary.storage.engine import View
from armillary.storage.rocks import Durability, RocksEngine

# Eight writers, each counting up in its own range; every transaction writes its number in three places and a large
# value, so that a batch spans many blocks of the log. A number is printed once it is acknowledged.
WORKER = """
import asyncio, random, sys
from armillary.storage.rocks import RocksEngine

async def main(path, durability):
    engine = await RocksEngine.open(path, durability)
    store = engine.store(1)

    async def writer(name):
        def fn(txn):
            number = int(txn.get(b"head%d" % name) or b"0") + 1
            text = b"%08d" % number
            txn.put(b"head%d" % name, text)
            txn.put(b"a%d/%s" % (name, text), random.Random(number).randbytes(20_000))
            txn.put(b"b%d/%s" % (name, text), text)
            txn.delete_range(b"b%d/" % name, b"b%d/%08d" % (name, number - 50))
            return number

        while True:
            number = await store.write(fn)
            print(name, number, flush=True)

    await asyncio.gather(*(writer(name) for name in range(8)))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("durability", ["full", "relaxed"])
async def test_kill(tmp_path: Path, durability: Durability) -> None:
    seed = 20
    print("seed", seed)
    dice = random.Random(seed)
    acknowledged = dict.fromkeys(range(8), 0)
    for _ in range(5):
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WORKER, str(tmp_path / "store"), durability, stdout=subprocess.PIPE
        )
        assert worker.stdout is not None
        lines = [await worker.stdout.readline() for _ in range(dice.randrange(20, 300))]
        await asyncio.sleep(dice.uniform(0, 0.01))
        worker.kill()
        for line in (b"".join(lines) + await worker.stdout.read()).split(b"\n")[:-1]:
            name, number = map(int, line.split())
            acknowledged[name] = max(acknowledged[name], number)
        await worker.wait()
        engine = await RocksEngine.open(tmp_path / "store", durability)
        await engine.store(1).read(lambda view: check(view, acknowledged))
        await engine.close()
    assert sum(acknowledged.values()) > 100


def check(view: View, acknowledged: dict[int, int]) -> None:
    for name, at_least in acknowledged.items():
        head = int(view.get(b"head%d" % name) or b"0")
        assert head >= at_least, "an acknowledged write is gone"
        for space, first in ((b"a", 1), (b"b", max(1, head - 50))):
            low = b"%s%d/" % (space, name)
            numbers = [int(key[len(low) :]) for key, _ in view.scan(low, low + b"~")]
            assert numbers == list(range(first, head + 1)), "half a transaction"
