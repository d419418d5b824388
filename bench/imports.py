"""`armillary import` of JSON Lines compared with its upper bound: the engine itself in a separate process, writing the
same lines in transactions of a hundred, several at once, without network and client. Both parse, validate, index and
sync what they store. They take turns; the median of the rounds' ratios counts.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import uvloop

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.items import items
from armillary.account.items.items import ItemOptions, Member
from armillary.clock import SystemClock
from armillary.model.items import parse_document
from armillary.partition.operations import Verb
from armillary.storage.rocks import RocksEngine
from bench import protocol, servers
from bench.protocol import BATCH_ITEMS, NUMBER_FIRST, batched_partition, filled
from bench.sections import Aim, Say, row

_AT_ONCE: Final = 8  # batches that share a sync


@dataclass
class ImportFigures:
    """Items a second, one for each round."""

    items: int
    imported: list[float] = field(default_factory=list)
    ceiling: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return statistics.median(found / most for found, most in zip(self.imported, self.ceiling, strict=True))

    def lines(self) -> Iterable[str]:
        yield ""
        yield f"import of {self.items:,} lines of 1 KB, durability full, items/s"
        yield row("armillary import", [f"{each:,.0f}" for each in self.imported])
        yield row("batches of 100 into the engine, no network", [f"{each:,.0f}" for each in self.ceiling])

    def aims(self) -> Iterable[Aim]:
        yield Aim("import of JSON Lines / batch inserts of the engine", self.ratio, 0.7)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, *, is_quick: bool, say: Say) -> ImportFigures:
    figures = ImportFigures(20_000 if is_quick else 100_000)
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "items.jsonl"
    text = protocol.item()
    with file.open("w") as lines:
        for number in range(NUMBER_FIRST, NUMBER_FIRST + figures.items):
            lines.write(filled(text, number, batched_partition(number)) + "\n")
    for turn in range(3):
        figures.ceiling.append(_ceiling(directory, file))
        figures.imported.append(_imported(directory / f"server{turn}", file))
        found, most = figures.imported[-1], figures.ceiling[-1]
        say(f"import, round {turn + 1}: {found:,.0f} items/s, {found / most:.2f} of the ceiling")
    return figures


def _imported(directory: Path, file: Path) -> float:
    server = servers.start_armillary(directory)
    try:
        container = server.new_container(range(0))
        begun_s = time.monotonic()
        target = f"{protocol.DATABASE}/{container}"
        where = ["--data", str(directory), "--state", f"{directory}.state", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "armillary", "import", str(file), target, *where],
            capture_output=True,
            text=True,
            check=True,
        )
        taken_s = time.monotonic() - begun_s
        rows: int = json.loads(done.stdout)["rows"]
        return rows / taken_s
    finally:
        server.stop()


def _ceiling(directory: Path, file: Path) -> float:
    with tempfile.TemporaryDirectory(dir=directory) as data:
        done = subprocess.run(
            [sys.executable, "-m", "bench.imports", str(file), data], capture_output=True, text=True, check=True
        )
    return float(done.stdout)


async def _load(file: Path, directory: Path) -> float:
    """Items a second that the engine takes."""
    clock = SystemClock()
    engine = await RocksEngine.open(directory)
    account = await Account.open(engine, clock)
    database = await containers.create_database(account, {"id": "d"}, None)
    body = {"id": "c", "partitionKey": {"paths": ["/key"], "kind": "Hash", "version": 2}}
    container = await containers.create_container(account, database, body, None)
    count = 0
    with file.open("rb") as lines:
        batches = _batches(lines)
        begun_s = time.perf_counter()

        async def work() -> None:
            nonlocal count
            for batch in batches:
                documents = [parse_document(line) for line in batch]
                members = [Member(Verb.UPSERT, document=each) for each in documents]
                key = container.key_of(documents[0])
                answer = await items.batch(container, key, members, ItemOptions(key=key), clock)
                assert answer.is_done
                count += len(batch)

        await asyncio.gather(*[work() for _ in range(_AT_ONCE)])
        taken_s = time.perf_counter() - begun_s
    await account.close()
    await engine.close()
    return count / taken_s


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    source = iter(lines)
    while batch := list(islice(source, BATCH_ITEMS)):
        yield batch


if __name__ == "__main__":
    print(uvloop.run(_load(Path(sys.argv[1]), Path(sys.argv[2]))))
