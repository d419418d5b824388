"""What goes wrong on a server with several processes while released clients are at work, one event after the other, in
rounds: each has a container of its own, and ends when everything that clients were told in it has been judged.

An event is over when the fault has had its effect and is gone, and all processes serve. Errors reach applications only
while one does not.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from faults.client import Client, ConnectionLost
from faults.elastic.actors import Actor, Keys
from faults.elastic.history import History
from faults.elastic.port import Port
from faults.elastic.soak import CONTROL_KEY, Soak
from faults.ledger import Violation
from faults.server import check_directory
from faults.server_processes.divided_server import DividedServer
from faults.server_processes.lean import LeanActor, LeanPort
from faults.server_processes.mongo_numbers import MongoNumbers
from support.waiting import PATIENCE_S

from armillary.tools.cluster.scratch_postgres import free_port

DATABASE = "shop"
THROUGHPUT_RU = 30_000  # as many partitions as processes, at first
BALLAST_BYTES = 2000
PAUSE_S_MAX = 0.02  # of a client, between two requests: the machine has other work too
PROBES = 6  # connections in succession, each of which finds that all partitions are served
WRITES = 10  # acknowledged after an event, before the next

Event = Callable[["Nemesis"], Awaitable[None]]


class Nemesis(Soak):
    server: DividedServer

    def __init__(
        self, directory: Path, seed: int, processes: int, clients: dict[str, int], *, round_events: int
    ) -> None:
        """`round_events`: how many events there are before what clients were told is judged."""
        super().__init__(directory, seed, clients=clients, ballast_bytes=BALLAST_BYTES, keys=Keys(60, 0.5))
        self.mongo_port = free_port()
        arguments = ("--control-key", CONTROL_KEY, "--mongo-port", str(self.mongo_port))
        self.server = DividedServer(directory, processes, *arguments, port=free_port())
        self.violations: list[Violation] = []
        self.events: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.pauses: dict[str, list[float]] = defaultdict(list)  # by event: how long it took
        self._round_events = round_events
        self._round = 0

    @property
    def scratch(self) -> Path:
        return self.server.directory.parent

    async def run_all(self, events: Sequence[tuple[str, Event]]) -> None:
        """Until all have happened, or a round has shown that something is wrong."""
        try:
            await self.server.start()
            self._is_back.set()
            await self.granted("POST", "databases", {"name": DATABASE})
            mongo = await asyncio.to_thread(MongoNumbers, self.mongo_port)
            for begin in range(0, len(events), self._round_events):
                mongo.start()
                await self._run_round(events[begin : begin + self._round_events])
                await asyncio.to_thread(mongo.stop)
                lost = await asyncio.to_thread(mongo.lost)
                self.violations += [Violation("lost", f"MongoDB: {lost[:20]}")] if lost else []
                self.violations += [Violation("MongoDB", each) for each in mongo.wrong]
                self.violations += [Violation("read your writes", f"MongoDB: {each}") for each in mongo.unseen]
                self.told["MongoDB writes"] = len(mongo.written)
                if self.violations:
                    return
            await asyncio.to_thread(mongo.close)
            code = await self.server.stop()
            if code != 0:
                self.violations.append(Violation("stop", f"the server ended with {code}: {self.server.log_text}"))
        finally:
            await self._close_ports()
            await self.server.kill()
        if problem := await check_directory(self.server.directory):
            self.violations.append(Violation("check", problem))
        if "Traceback" in self.server.whole_log:
            self.violations.append(Violation("log", self.server.whole_log.partition("Traceback")[2][:3000]))

    async def _run_round(self, events: Sequence[tuple[str, Event]]) -> None:
        self._round += 1
        self.names = (DATABASE, f"items{self._round}")
        self.history = History(time.monotonic, outlives=True)
        definition = {"name": self.names[1], "partitionKey": ["/key"], "throughput": THROUGHPUT_RU}
        await self.granted("POST", f"databases/{DATABASE}/containers", definition)

        async def happen(_: Soak) -> None:
            for name, event in events:
                begun = time.monotonic()
                await self.progress()
                await event(self)
                self.events[name] += 1
                self.pauses[name].append(time.monotonic() - begun)
                print(f"{sum(self.events.values())} {name}: {self.pauses[name][-1]:.1f} s", flush=True)
            await self.progress()

        await self._run(happen)
        self.violations += self.history.violations
        self.told.update(self.history.tally)
        await self._close_ports()
        if not self.violations:
            await self.granted("DELETE", self.container)

    async def _close_ports(self) -> None:
        for port in self._ports:
            await port.close()
        if self._node is not None:
            await self._node.close()
        self._ports, self._node = [], None

    def _actor(self, kind: str) -> type[Actor]:
        return LeanActor if kind == "lean" else Actor

    def _follows(self, kind: str) -> bool:
        return kind != "lean"

    async def _port(self, kind: str, number: int) -> Port:
        if kind != "lean":
            return await super()._port(kind, number)
        port = LeanPort(self.server.port, self.names)
        self._ports.append(port)
        return port

    async def _pause(self) -> None:
        await super()._pause()
        await asyncio.sleep(self.dice.uniform(0, PAUSE_S_MAX))

    # For events.

    @asynccontextmanager
    async def trouble(self) -> AsyncIterator[None]:
        """Errors may reach applications meanwhile, and until all processes serve."""
        self.history.die()
        try:
            yield
            await self.all_serve()
        finally:
            self.history.live()

    async def all_serve(self) -> None:
        """Until every process that accepts connections has all partitions served."""
        ends_s = time.monotonic() + PATIENCE_S
        found = 0
        while found < PROBES:
            assert time.monotonic() < ends_s, f"not all partitions are served\n{self.server.log_text}"
            found = found + 1 if await self._is_served() else 0
            await asyncio.sleep(0.02)

    async def _is_served(self) -> bool:
        """One that new connection finds."""
        docs = f"dbs/{self.names[0]}/colls/{self.names[1]}"
        try:
            client = await Client.connect(self.server.port)
            try:
                async with asyncio.timeout(2):
                    ranges = await client.request("GET", f"{docs}/pkranges", is_feed=True)
                    if ranges.status != 200:
                        return False
                    for each in ranges.json["PartitionKeyRanges"]:
                        headers = {"x-ms-documentdb-partitionkeyrangeid": each["id"], "x-ms-max-item-count": "1"}
                        answer = await client.request("GET", f"{docs}/docs", None, headers, is_feed=True)
                        if answer.status not in (200, 410):
                            return False
                    return True
            finally:
                client.close()
        except (ConnectionLost, TimeoutError):
            return False

    async def progress(self, count: int = WRITES) -> None:
        """Until so many more writes have been acknowledged."""
        before = self.acknowledged
        ends_s = time.monotonic() + PATIENCE_S
        while self.acknowledged < before + count:
            assert time.monotonic() < ends_s, f"no writes are acknowledged\n{self.report()}"
            await asyncio.sleep(0.01)

    @property
    def acknowledged(self) -> int:
        tally = self.history.tally
        return sum(count for name, count in tally.items() if name.endswith(" ok") and not name.startswith("read"))

    async def granted(self, method: str, path: str, content: object = None) -> object:
        """Asked again while a process is missing. A change whose answer was lost may have been made: 404 and 409."""
        ends_s = time.monotonic() + PATIENCE_S
        self.refusal = ""
        while (answer := await self.control(method, path, content)) is None:
            if ": 404 " in self.refusal or ": 409 " in self.refusal:
                return None
            assert time.monotonic() < ends_s, self.refusal
            await asyncio.sleep(0.05)
        return answer

    def report(self, problem: str = "") -> str:
        slowest = {name: f"{max(found):.1f} s" for name, found in sorted(self.pauses.items())}
        told = self.told if self.told else self.history.tally
        acknowledged = sum(
            count for name, count in told.items() if name.endswith((" ok", "MongoDB writes")) and "read" not in name
        )
        lines = [
            f"--seed {self.seed}: {sum(self.events.values())} events, {acknowledged} acknowledged writes,"
            f" {len(self.violations)} violations",
            f"events {dict(self.events)}",
            f"slowest {slowest}",
            f"requests {dict(told)}",
            *(str(each)[:3000] for each in self.violations[:10]),
        ]
        return "\n".join([*lines, problem, "The server's log ends:", self.server.log_text[-2000:]])
