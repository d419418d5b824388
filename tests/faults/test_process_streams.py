"""Retryable writes and change streams of MongoDB while processes of a server are killed, by pymongo: a write that is
sent again is done once, and a stream resumes without missing or repeating an event."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pymongo
import pytest
from pymongo.errors import PyMongoError
from support.process import ServerProcess
from support.process_ids import kill_process, wait_for_new

SHOPS = 12  # values of the shard key: some in each process
LIMIT_S = 60.0


class Counting(threading.Thread):
    """Adds one to a document at a time."""

    def __init__(self, counters: Any, number: int) -> None:
        super().__init__(daemon=True)
        self.done: Counter[int] = Counter()
        self.unknown: Counter[int] = Counter()
        self.is_ended = False
        self._counters = counters
        self._number = number

    def run(self) -> None:
        for turn in count():
            if self.is_ended:
                return
            shop = (self._number + turn) % SHOPS
            try:
                self._counters.update_one({"_id": shop, "shop": shop}, {"$inc": {"n": 1}})
            except PyMongoError:  # it was sent twice, and answered neither time
                self.unknown[shop] += 1
            else:
                self.done[shop] += 1


class Watching(threading.Thread):
    """Notes what a stream shows of each document."""

    def __init__(self, counters: Any) -> None:
        super().__init__(daemon=True)
        self.seen: dict[int, list[int]] = {shop: [] for shop in range(SHOPS)}
        self.ends_at: dict[int, int] = {}
        self.failure: BaseException | None = None
        self.begun = threading.Event()
        self._counters = counters

    def run(self) -> None:
        try:
            with self._counters.watch(max_await_time_ms=100) as stream:
                self.begun.set()
                while not self._is_over():
                    event = stream.try_next()
                    if event is not None:
                        self.seen[event["documentKey"]["_id"]].append(event["updateDescription"]["updatedFields"]["n"])
        except BaseException as error:
            self.failure = error

    def _is_over(self) -> bool:
        ends = self.ends_at
        return bool(ends) and all(self.seen[shop] and self.seen[shop][-1] >= end for shop, end in ends.items())


@pytest.mark.parametrize("killed", [(1, 0), pytest.param((2, 0, 1, 2, 1, 0), marks=pytest.mark.soak)])
def test_writes_are_done_once_and_streams_resume(tmp_path: Path, killed: tuple[int, ...]) -> None:
    server = ServerProcess.start(tmp_path / "data", "--processes", "3")
    address = server.doors["mongo"].replace("://", f"://localhost:{quote_plus(server.key)}@") + "/?replicaSet=globaldb"
    client: Any = pymongo.MongoClient(address)
    try:
        client.admin.command("shardCollection", "shop.counters", key={"shop": "hashed"})
        counters = client.shop.counters
        counters.insert_many([{"_id": shop, "shop": shop, "n": 0} for shop in range(SHOPS)])
        watching = Watching(counters)
        watching.start()
        assert watching.begun.wait(LIMIT_S)
        threads = [Counting(counters, number) for number in (0, 5)]
        for each in threads:
            each.start()
        for number in killed:
            wait_for_more(threads)
            former = kill_process(server.process.pid, number, signal.SIGKILL)
            wait_for_new(server.process.pid, number, former)
        wait_for_more(threads)
        for each in threads:
            each.is_ended = True
            each.join(LIMIT_S)
        found = {each["_id"]: each["n"] for each in counters.find()}
        for shop, n in found.items():
            done = sum(each.done[shop] for each in threads)
            assert done <= n <= done + sum(each.unknown[shop] for each in threads), "a write was lost, or done twice"
        assert not any(each.unknown for each in threads), "a write was refused, though its driver sent it again"
        watching.ends_at = found
        watching.join(LIMIT_S)
        assert watching.failure is None
        assert watching.seen == {shop: list(range(1, n + 1)) for shop, n in found.items()}
        client.close()
        assert server.stop() == 0
    finally:
        client.close()
        server.kill()
    assert "Traceback" not in server.log, server.log


def wait_for_more(threads: list[Counting]) -> None:
    """Until each has done a round more."""
    wanted = [each.done.total() + 2 * SHOPS for each in threads]
    waiting = threading.Event()
    for each, least in zip(threads, wanted, strict=True):
        for _ in range(int(LIMIT_S / 0.02)):
            if each.done.total() >= least:
                break
            waiting.wait(0.02)
        else:
            raise AssertionError("writes do not go on")
