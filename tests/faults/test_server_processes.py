"""What clients see when a process of a server with several dies or hangs, the first one included: its partitions are
refused for a moment, all else goes on, and nothing that was acknowledged is lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Self

import pytest
import uvloop
from faults.client import Answer, Client, ConnectionLost
from support.process import ServerProcess
from support.process_ids import kill_process, processes_of, wait_for_new

ITEMS = "dbs/shop/colls/orders/docs"
KEYS = [f"k{number}" for number in range(12)]  # some of each partition, and so of each process
LIMIT_S = 60.0


def _container(name: str, throughput_ru: int | None = None) -> dict[str, Any]:
    headers = {"x-ms-offer-throughput": str(throughput_ru)} if throughput_ru is not None else {}
    definition = {"id": name, "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
    return {"link": "dbs/shop/colls", "body": definition, "headers": headers}


class Caller:
    """Asks a server, over one connection after the other."""

    def __init__(self, server: ServerProcess) -> None:
        self._port = server.port
        self._client: Client | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()

    async def ask(self, method: str, link: str, body: object = None, headers: Any = None) -> Answer | None:
        """None: the connection was lost."""
        try:
            if self._client is None:
                self._client = await Client.connect(self._port)
            is_feed = method == "POST"
            async with asyncio.timeout(LIMIT_S):
                return await self._client.request(method, link, body, headers, is_feed=is_feed)
        except ConnectionLost:
            self._client = None
            return None

    async def until(self, is_wanted: Callable[[Answer], bool], method: str, link: str, **more: Any) -> Answer:
        async with asyncio.timeout(LIMIT_S):
            while True:
                answer = await self.ask(method, link, **more)
                if answer is not None and is_wanted(answer):
                    return answer
                assert answer is None or answer.status == 503, answer
                await asyncio.sleep(0.02)


class Writer:
    """Creates items with one partition key, one after the other."""

    def __init__(self, server: ServerProcess, key: str, prefix: str = "") -> None:
        """`prefix`: of the ids of its items."""
        self.key = key
        self._prefix = prefix
        self.headers = {"x-ms-documentdb-partitionkey": f'["{key}"]'}
        self.acknowledged: list[str] = []
        self.refusals: Counter[str] = Counter()
        self.is_ended = False
        self._server = server

    async def run(self) -> None:
        async with Caller(self._server) as caller:
            for number in takewhile(lambda _: not self.is_ended, count()):
                await self._write(caller, f"{self._prefix}{self.key}-{number}")

    async def _write(self, caller: Caller, name: str) -> None:
        answer = await caller.ask("POST", ITEMS, {"id": name, "pk": self.key}, self.headers)
        if answer is not None and answer.status == 201:
            self.acknowledged.append(name)
            return
        if answer is not None:
            assert answer.status == 503, answer
            self.refusals["later" if "x-ms-retry-after-ms" in answer.headers else "unknown"] += 1
        await asyncio.sleep(0.02)

    async def written(self, more: int) -> None:
        """Wait until it has written so many more."""
        wanted = len(self.acknowledged) + more
        await _until(lambda: len(self.acknowledged) >= wanted)


async def _until(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_met():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def _writing(server: ServerProcess) -> AsyncIterator[list[Writer]]:
    async with Caller(server) as caller:
        assert (await caller.until(_is_answered, "POST", "dbs", body={"id": "shop"})).status == 201
        assert (await caller.until(_is_answered, "POST", **_container("orders", 30_000))).status == 201
    writers = [Writer(server, key) for key in KEYS]
    tasks = [asyncio.create_task(each.run()) for each in writers]
    try:
        await asyncio.gather(*[each.written(3) for each in writers])
        yield writers
    finally:
        for each in writers:
            each.is_ended = True
        await asyncio.gather(*tasks)


async def _read_all(server: ServerProcess, writers: list[Writer]) -> None:
    async with Caller(server) as caller:
        for writer in writers:
            for name in writer.acknowledged:
                answer = await caller.until(_is_answered, "GET", f"{ITEMS}/{name}", headers=writer.headers)
                assert answer.status == 200, f"{name} was acknowledged, and is lost"


def _is_answered(answer: Answer) -> bool:
    return answer.status != 503


def test_any_process_is_killed_and_the_others_go_on(tmp_path: Path) -> None:
    """The first one twice: what the others tell it is as complete as what it knew itself."""

    async def run(server: ServerProcess) -> None:
        supervisor = server.process.pid
        async with _writing(server) as writers:
            for turn, number in enumerate((0, 1, 0)):
                former = await asyncio.to_thread(kill_process, supervisor, number, signal.SIGKILL)
                await asyncio.gather(*[each.written(3) for each in writers])
                await asyncio.to_thread(wait_for_new, supervisor, number, former)
                made = _container(f"made-{turn}", 20_000)
                for _ in range(6):  # connections to several processes
                    async with Caller(server) as caller:
                        created = await caller.until(_is_answered, "POST", **made)
                        assert created.status in (201, 409)
                        found = await caller.until(_is_answered, "GET", f"dbs/shop/colls/made-{turn}")
                        assert found.status == 200, "a process does not know the container"
        assert sum(each.refusals["later"] for each in writers)
        await _read_all(server, writers)

    server = ServerProcess.start(tmp_path / "data", "--processes", "3")
    try:
        uvloop.run(run(server))
        assert server.stop() == 0
    finally:
        server.kill()
    assert "Traceback" not in server.log
    ServerProcess.check(tmp_path / "data")


def test_a_stopped_process_holds_up_only_its_own_partitions(tmp_path: Path) -> None:
    async def run(server: ServerProcess) -> None:
        supervisor = server.process.pid
        found: list[Writer] = []
        async with _writing(server) as writers:
            for number in (1, 0):
                pid = await asyncio.to_thread(kill_process, supervisor, number, signal.SIGSTOP)
                # Those before may all be connected to the stopped process; it accepts no new connections.
                new = [Writer(server, key, f"{number}-") for key in KEYS]
                tasks = [asyncio.create_task(each.run()) for each in new]
                try:
                    await _some_write(new)
                finally:
                    os.kill(pid, signal.SIGCONT)
                    for each in new:
                        each.is_ended = True
                    await asyncio.gather(*tasks)
                await asyncio.gather(*[each.written(3) for each in writers])
                assert processes_of(supervisor)[number] == pid, "it was started anew"
                found += new
            found += writers
        await _read_all(server, found)

    server = ServerProcess.start(tmp_path / "data", "--processes", "3")
    try:
        uvloop.run(run(server))
        assert server.stop() == 0
    finally:
        server.kill()
    ServerProcess.check(tmp_path / "data")


async def _some_write(writers: list[Writer]) -> None:
    """Those to the partitions of two processes of three."""
    await _until(lambda: sum(len(each.acknowledged) > 3 for each in writers) > 2)


@pytest.mark.soak
@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_hangs_is_started_anew(tmp_path: Path, number: int) -> None:
    async def run(server: ServerProcess) -> None:
        supervisor = server.process.pid
        async with _writing(server) as writers:
            pid = await asyncio.to_thread(kill_process, supervisor, number, signal.SIGSTOP)
            await asyncio.to_thread(wait_for_new, supervisor, number, pid)
            await asyncio.gather(*[each.written(3) for each in writers])
        await _read_all(server, writers)

    server = ServerProcess.start(tmp_path / "data", "--processes", "3")
    try:
        uvloop.run(run(server))
        assert server.stop() == 0
    finally:
        server.kill()
    assert f"process {number} does not answer, and is killed" in server.log
    ServerProcess.check(tmp_path / "data")


def test_all_processes_end_with_the_one_that_was_started(tmp_path: Path) -> None:
    """Also one that is stopped; and the next server does not find the directory in use."""
    server = ServerProcess.start(tmp_path / "data", "--processes", "3")
    try:
        pids = processes_of(server.process.pid)
        assert sorted(pids) == [0, 1, 2]
        os.kill(pids[1], signal.SIGSTOP)
    finally:
        server.kill()
    server = ServerProcess.start(tmp_path / "data", "--processes", "3")
    assert server.stop() == 0


def test_a_server_in_memory_ends_with_any_process() -> None:
    server = ServerProcess.start(None, "--processes", "2")
    try:
        kill_process(server.process.pid, 0, signal.SIGKILL)
        assert server.process.wait(LIMIT_S) == 2
        # The other reason, if it was killed before the supervisor had heard that it is ready.
        assert "its partitions were in memory" in server.log or "could not be started (signal 9)" in server.log
    finally:
        server.kill()
