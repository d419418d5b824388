"""The consumer of change feeds with its leases, on real servers: nothing is missed in crashes and splits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from support.process import KEY, ServerProcess, clean_environment
from support.server_operator import Operator

from armillary.changefeed import ALL_VERSIONS, Changes, Consumer, RangeLag, estimate_lag

QUICK: dict[str, Any] = {
    "poll_seconds": 0.05,
    "lease_seconds": 2.0,
    "renew_seconds": 0.5,
    "balance_seconds": 0.2,
    "retry_seconds": 0.05,
}


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[CosmosClient]:
    async with CosmosClient(server.url, KEY) as opened:
        yield opened


class Bench:
    """A feed, a container for leases, and what was handed over."""

    def __init__(self, feed: Any, leases: Any) -> None:
        self.feed, self.leases = feed, leases
        self.seen: list[Any] = []
        self.by_worker: dict[str, int] = {}

    async def note(self, changes: Changes) -> None:
        self.seen += [(row["pk"], row["n"]) for row in changes.rows]
        self.by_worker[changes.worker] = self.by_worker.get(changes.worker, 0) + len(changes.rows)

    def consumer(self, **options: Any) -> Consumer:
        return Consumer(self.feed, self.leases, options.pop("on_changes", self.note), **{"name": "c"} | QUICK | options)

    async def put(self, *numbers: int) -> None:
        for number in numbers:
            await self.feed.upsert_item({"id": str(number), "pk": number % 10, "n": number})

    async def lag(self) -> int:
        return sum(each.transactions for each in await estimate_lag(self.feed, self.leases, "c"))

    async def listed(self) -> list[dict[str, Any]]:
        return [each async for each in self.leases.query_items("SELECT * FROM c WHERE c.kind = 'lease'")]


@pytest.fixture
async def bench(client: CosmosClient, name: str) -> Bench:
    database = await client.create_database(f"feeds-{name}")
    feed = await database.create_container(
        "feed", PartitionKey("/pk"), offer_throughput=20_000, change_feed_policy={"retentionDuration": 10}
    )
    return Bench(feed, await database.create_container("leases", PartitionKey("/id")))


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - it is told by other tasks
        await asyncio.sleep(0.02)


async def test_it_goes_on_where_it_stopped(bench: Bench) -> None:
    await bench.put(*range(40))
    async with bench.consumer(start="Beginning"):
        await until(lambda: len(bench.seen) >= 40)
    assert sorted(number for _, number in bench.seen) == list(range(40))
    assert {each["owner"] for each in await bench.listed()} == {None}
    assert len(await bench.listed()) == 4
    assert await bench.lag() == 0
    await bench.put(*range(40, 60))
    assert await bench.lag() == 20
    bench.seen.clear()
    async with bench.consumer(start="Beginning"):
        await until(lambda: len(bench.seen) >= 20)
    assert sorted(number for _, number in bench.seen) == list(range(40, 60))


async def test_now_is_when_the_consumer_began(bench: Bench) -> None:
    await bench.put(1, 2, 3)
    with pytest.raises(ConnectionError):
        async with bench.consumer(start="Now"):
            raise ConnectionError  # before anything was read
    await bench.put(4, 5)
    async with bench.consumer(start="Beginning"):  # it has begun: where does not matter any more
        await until(lambda: len(bench.seen) >= 2)
    assert sorted(number for _, number in bench.seen) == [4, 5]


async def test_from_a_time(bench: Bench) -> None:
    await bench.put(1, 2, 3)
    async with bench.consumer(start=datetime.now(UTC) - timedelta(minutes=1)):
        await until(lambda: len(bench.seen) >= 3)
    assert sorted(number for _, number in bench.seen) == [1, 2, 3]


async def test_all_versions(bench: Bench) -> None:
    told: list[tuple[str, Any]] = []

    def note(changes: Changes) -> None:  # a plain function, in a thread
        told.extend((row["metadata"]["operationType"], row["current"].get("n")) for row in changes.rows)

    async with bench.consumer(mode=ALL_VERSIONS, on_changes=note):
        await bench.put(1)
        await bench.feed.upsert_item({"id": "1", "pk": 1, "n": 100})
        await bench.feed.delete_item("1", 1)
        await until(lambda: len(told) >= 3)
    assert told == [("create", 1), ("replace", 100), ("delete", None)]
    with pytest.raises(ValueError, match="in mode AllVersionsAndDeletes"):
        await bench.consumer().start()


async def test_what_fails_comes_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    failures = 0

    async def fail_first(changes: Changes) -> None:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise RuntimeError("not today")
        await bench.note(changes)

    await bench.put(*range(10))
    with caplog.at_level(logging.CRITICAL):
        async with bench.consumer(start="Beginning", on_changes=fail_first):
            await until(lambda: len(bench.seen) >= 10)
    assert sorted(number for _, number in bench.seen) == list(range(10))


async def test_workers_share_the_ranges(bench: Bench) -> None:
    async with bench.consumer(start="Beginning") as first:
        await until(lambda: first.held_count == 4)
        async with bench.consumer(worker="second") as second:
            await until(lambda: (first.held_count, second.held_count) == (2, 2))
            await bench.put(*range(100))
            await until(lambda: len(set(bench.seen)) == 100)
            assert len(bench.by_worker) == 2
        await until(lambda: first.held_count == 4)  # the other has left


async def test_order_of_one_key_over_splits_and_a_merge(client: CosmosClient, operator: Operator, name: str) -> None:
    database = await client.create_database(f"feeds-{name}")
    feed = await database.create_container("feed", PartitionKey("/pk"), offer_throughput=400)
    bench = Bench(feed, await database.create_container("leases", PartitionKey("/id")))
    async with bench.consumer(start="Beginning"):
        for turn in range(3):
            await bench.put(*range(100 * turn, 100 * turn + 50))
            if turn < 2:
                await asyncio.to_thread(operator.command, "split", f"feeds-{name}/feed")
        await until(lambda: len(set(bench.seen)) == 150)
        while len(await bench.listed()) != 3:  # one for each range
            pass
        await asyncio.to_thread(operator.command, "merge", f"feeds-{name}/feed")
        await bench.put(*range(300, 350))
        await until(lambda: len(set(bench.seen)) == 200)
        assert len(await bench.listed()) == 3  # each reads a part of a range
    for key in range(10):
        numbers = [number for pk, number in bench.seen if pk == key]
        assert list(dict.fromkeys(numbers)) == sorted(set(numbers))
    assert await bench.lag() == 0


WORKER = """
import json, sys
from armillary.changefeed import run_consumer
url, key, out, name = sys.argv[1:]
with open(out, "a", buffering=1) as file:
    print("ready", flush=True)
    run_consumer(
        url, key, "db/feed", "db/leases",
        lambda changes: file.writelines(json.dumps(row["n"]) + "\\n" for row in changes.rows),
        name="c", worker=name, start="Beginning", poll_seconds=0.05, page_items=10,
        lease_seconds=3.0, renew_seconds=0.5, balance_seconds=0.3,
    )
"""


async def test_a_worker_is_killed_and_a_range_split(start_server: Callable[..., ServerProcess], tmp_path: Path) -> None:
    server = start_server("--durability", "relaxed")
    operator = Operator(server)
    async with CosmosClient(server.url, KEY) as client:
        database = await client.create_database("db")
        feed = await database.create_container("feed", PartitionKey("/pk"), offer_throughput=20_000)
        outputs = [tmp_path / f"{number}.out" for number in range(3)]
        with contextlib.ExitStack() as stack:
            workers = [stack.enter_context(_worker(server, out)) for out in outputs]
            for number in range(300):
                await feed.upsert_item({"id": str(number), "pk": number % 40, "n": number})
                while number == 100 and len({each.owner for each in await _lags(database)} - {None}) < 3:
                    pass  # until all have their shares
                if number == 150:
                    workers[0].kill()
                if number == 250:
                    await asyncio.to_thread(operator.command, "split", "db/feed")
            await until(lambda: _handed_over(outputs) == set(range(300)))
            for worker in workers[1:]:
                worker.send_signal(signal.SIGTERM)
            assert [await asyncio.to_thread(worker.wait, 30) for worker in workers[1:]] == [0, 0]
        lags = await _lags(database)
        assert sum(each.transactions for each in lags) == 0
        assert {each.owner for each in lags} <= {None, "0"}


async def _lags(database: Any) -> list[RangeLag]:
    return await estimate_lag(database.get_container_client("feed"), database.get_container_client("leases"), "c")


def _handed_over(outputs: list[Path]) -> set[int]:
    lines = [line for out in outputs if out.exists() for line in out.read_text().split("\n")[:-1]]
    return {json.loads(line) for line in lines}


@contextlib.contextmanager
def _worker(server: ServerProcess, out: Path) -> Any:
    arguments = [sys.executable, "-c", WORKER, server.url, KEY, str(out), out.stem]
    process = subprocess.Popen(arguments, env=clean_environment(), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
