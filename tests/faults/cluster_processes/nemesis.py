"""What goes wrong in a cluster of processes while clients are at work, one event after the other, drawn by a seed.

An event is over when the fault has had its effect and is gone, and writes are acknowledged again. Nothing waits for
time to pass: waits are for something that can be seen, with a limit.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import ClassVar

import orjson
from faults.client import Answer, Client, ConnectionLost, Wire
from faults.cluster_processes.cluster_clients import DOCS, ClusterClient, Items, prepare
from faults.cluster_processes.driver_clients import CosmosDriver, DriverClient, MongoDriver
from faults.cluster_processes.fixtures import NAMES
from faults.cluster_processes.history import EVENTUAL, History
from faults.cluster_processes.processes import CONTROL_KEY, ClusterProcesses, NodeProcess, waits_for
from faults.ledger import Violation
from faults.server import check_directory
from faults.workload import key_header

ROAMING = 3  # clients that ask any node
AT_HOME = 2  # clients of each node
PROBE_S = 0.2
ANSWER_S = 20.0  # a node looks for the leader for less
ACKNOWLEDGED_MIN = 20  # writes after an event, before the next


Event = Callable[["Nemesis"], Awaitable[None]]


class Nemesis:
    kinds: ClassVar[tuple[type[DriverClient], ...]] = (CosmosDriver, MongoDriver)

    def __init__(self, cluster: ClusterProcesses, seed: int) -> None:
        self.cluster = cluster
        self.history = History()
        self.items = Items()
        self.dice = random.Random(f"{seed}/nemesis")
        self.violations: list[Violation] = []
        self.tally: Counter[str] = Counter()
        self.pauses: dict[str, list[float]] = defaultdict(list)  # by event: the longest times without a write
        self.seed = seed
        self._clients: list[ClusterClient] = []
        self.drivers: list[DriverClient] = []
        self._told: Counter[str] = Counter()  # what drivers have done
        self._stopping = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._markers = 0

    # Load.

    async def begin(self) -> None:
        await prepare(await self.cluster.leader())
        homes = [*([None] * ROAMING), *list(self.cluster.nodes) * AT_HOME]
        self._clients = [
            ClusterClient(f"w{number}", self.seed, self.cluster, self.history, self.items, home)
            for number, home in enumerate(homes)
        ]
        self.drivers = [await asyncio.to_thread(each, self.cluster) for each in self.kinds]
        self.load()
        await self.progress(ACKNOWLEDGED_MIN, "the first writes")

    def load(self) -> None:
        self._stopping = asyncio.Event()
        self._running = [asyncio.create_task(client.run(self._stopping)) for client in self._clients]
        self._running.append(asyncio.create_task(self._probe()))
        for driver in self.drivers:
            driver.start()

    async def _probe(self) -> None:
        """Writes that do not wait for each other: when no client is left that is not waiting for a node that is gone,
        they show how soon the others serve again."""
        probes: set[asyncio.Task[None]] = set()
        while not self._stopping.is_set():
            for node in self.serving():
                probe = asyncio.create_task(self._probe_once(node))
                probes.add(probe)
                probe.add_done_callback(probes.discard)
            await asyncio.sleep(PROBE_S)
        await asyncio.gather(*probes)

    async def _probe_once(self, node: NodeProcess) -> None:
        headers = {"x-ms-documentdb-is-upsert": "True"} | key_header("probe")
        answer = await ask(node, "POST", DOCS, {"id": "probe", "key": "probe"}, headers, is_feed=True)
        if answer is not None and answer.status in (200, 201):
            self.history.acknowledged_at.append(time.monotonic())
            self.history.tally["probes"] += 1

    async def end_load(self) -> None:
        self._stopping.set()
        await asyncio.gather(*self._running, *(asyncio.to_thread(driver.stop) for driver in self.drivers))
        self._running = []

    async def close(self) -> None:
        """End what still works."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.close_drivers()
        await self.cluster.close()

    async def close_drivers(self) -> None:
        """While there are nodes that they can take leave of."""
        for driver in self.drivers:
            await asyncio.to_thread(driver.stop)
            await asyncio.to_thread(driver.close)
            self._told |= Counter({f"{type(driver).__name__} writes": len(driver.written)}) | driver.tally
        self.drivers = []

    async def progress(self, count: int, what: str) -> None:
        """Until so many more writes are acknowledged."""
        before = len(self.history.acknowledged_at)
        await self.until(
            lambda: len(self.history.acknowledged_at) >= before + count,
            f"{count} writes are acknowledged after {what}",
        )

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        async def look() -> bool:
            for task in self._running:
                if task.done():
                    task.result()
            for node in self.serving():
                assert node.is_running, f"{node.name} has ended by itself: {node.log_text}"
            return holds()

        await waits_for(look, what)

    @property
    def unanswered(self) -> int:
        """Writes of unknown outcome."""
        return sum(count for name, count in self.history.tally.items() if name.endswith(" unknown"))

    # Events.

    async def run(self, events: Sequence[tuple[str, Event]], check_every: int = 10) -> None:
        for number, (name, event) in enumerate(events, 1):
            begun = time.monotonic()
            await event(self)
            await self.progress(ACKNOWLEDGED_MIN, name)
            self.tally[name] += 1
            self.pauses[name].append(self.history.longest_pause(begun, time.monotonic()))
            print(f"{name}: {time.monotonic() - begun:.1f} s, no write for {self.pauses[name][-1]:.1f} s", flush=True)
            if number % check_every == 0 or number == len(events):
                await self.check()
                if self.violations:
                    return
                if number < len(events):
                    self.items.renew()
                    self.load()

    async def taken_over(self, epoch: int) -> None:
        """Until a later epoch than this one has begun."""

        async def look() -> bool:
            return await self.cluster.epoch() > epoch

        await waits_for(look, "another node takes over")

    def serving(self) -> list[NodeProcess]:
        return [node for node in self.cluster.nodes.values() if node.is_serving]

    async def control(self, method: str, path: str, body: object = None) -> Answer | None:
        """A request to the control API of any node; None: there is no answer."""
        node = self.dice.choice(self.serving())
        answer = await control(node, method, path, body)
        self.tally[f"control {method}: {answer.status if answer is not None else 'no answer'}"] += 1
        if answer is not None and answer.status in (400, 401, 500):
            self.history.accuse("answer", f"{method} {path} at {node.name}: {answer.status} {answer.body[:300]!r}")
        return answer

    # Checks.

    async def check(self) -> None:
        """All nodes come to the same state, and everything that clients were told is consistent."""
        await self.end_load()
        await self._clients[0].read_finally()
        await self.compare()
        await self._verify()
        await self._check_follower()
        await self.check_drivers()
        self.violations += self.history.judge()
        self._check_epochs()

    async def check_drivers(self) -> None:
        for driver in self.drivers:
            if lost := await asyncio.to_thread(driver.lost):
                self.history.accuse("lost", f"{type(driver).__name__}: {lost[:20]} were acknowledged and are not there")
            if driver.unseen:
                self.history.accuse("read your writes", f"{type(driver).__name__} did not find {driver.unseen[:20]}")

    async def compare(self) -> None:
        """Every node comes to what was written before. If no client works, all of them show the same items then."""
        self._markers += 1
        marker = {"id": "marker", "key": "marker", "number": self._markers}

        async def mark() -> bool:
            headers = {"x-ms-documentdb-is-upsert": "True"} | key_header("marker")
            answer = await ask(self.dice.choice(self.serving()), "POST", DOCS, marker, headers, is_feed=True)
            return answer is not None and answer.status in (200, 201)

        await waits_for(mark, "a marker is written")
        states: dict[str, dict[str, str]] = {}
        for node in self.serving():

            async def reached(node: NodeProcess = node) -> bool:
                headers = {"x-ms-consistency-level": EVENTUAL} | key_header("marker")
                answer = await ask(node, "GET", f"{DOCS}/marker", None, headers)
                return answer is not None and answer.status == 200 and answer.json["number"] == self._markers

            await waits_for(reached, f"{node.name} reaches the marker")
            if not self._running:
                states[node.name] = await listed(node)
        for (one, items), (other, others) in pairwise(states.items()):
            differing = [each for each in items.keys() | others.keys() if items.get(each) != others.get(each)]
            for each in differing[:5]:
                shown = f"{items.get(each)} at {one} and {others.get(each)} at {other}"
                self.history.accuse("divergence", f"{each} is {shown}; {len(differing)} items differ")

    async def _verify(self) -> None:
        """Have all nodes digest their whole state at one row of the log."""
        answers: list[Answer] = []

        async def ask_for(method: str, path: str, body: object = None) -> bool:
            answer = await self.control(method, path, body)
            answers[:] = [answer] if answer is not None and answer.status == 200 else answers
            return bool(answers)

        async def is_complete() -> bool:
            mark = answers[0].json["mark"]
            return await ask_for("GET", f"cluster/verify/{mark}") and bool(answers[0].json["complete"])

        await waits_for(lambda: ask_for("POST", "cluster/verify", {}), "a verification begins")
        await waits_for(is_complete, "all nodes have digested their state")
        running = {node.name for node in self.serving()}
        digests = {each["name"]: each["digest"] for each in answers[0].json["nodes"] if each["name"] in running}
        if len(set(digests.values())) != 1 or None in digests.values() or digests.keys() != running:
            self.history.accuse("divergence", f"digests of the nodes' states differ: {digests}")
        self.tally["verifications"] += 1

    async def _check_follower(self) -> None:
        """Have `armillary check` look at the directory of one node, which is stopped for that."""
        node = self.dice.choice(await self.cluster.followers())
        await node.stop()
        if problem := await _problem_in(node):
            self.history.accuse("check", f"{node.name}: {problem}")
        await node.start()
        self.tally["directories checked"] += 1

    async def check_directories(self) -> None:
        """Stop the followers as an operator does, let the leader crash, and have `armillary check` look at all their
        directories."""
        await self.close_drivers()
        leader = await self.cluster.leader()
        nodes = self.serving()
        for node in nodes:
            if node is leader:
                continue
            code = await node.stop()
            if code != 0:
                self.violations.append(Violation("stop", f"{node.name} ended with {code}: {node.log_text}"))
        await leader.kill()
        for node, problem in zip(nodes, await asyncio.gather(*map(_problem_in, nodes)), strict=True):
            if problem:
                self.violations.append(Violation("check", f"{node.name}: {problem}"))

    def _check_epochs(self) -> None:
        """An epoch is led by one node, once."""
        led: dict[int, str] = {}
        for node in self.cluster.nodes.values():
            for line in node.whole_log.splitlines():
                if "takes over: epoch " in line:
                    epoch = int(line.split("epoch ")[1].split(",")[0])
                    if epoch in led:
                        self.violations.append(
                            Violation("two leaders", f"epoch {epoch} is of {led[epoch]} and of {node.name}")
                        )
                    led[epoch] = node.name

    def report(self) -> str:
        pauses = {name: f"{max(found):.1f} s" for name, found in sorted(self.pauses.items())}
        told = [
            f"events {dict(self.tally)}",
            f"longest pauses {pauses}",
            f"requests {dict(self.history.tally)}",
            f"clients {dict(self._told)}",
        ]
        return "\n".join([*told, *(str(each)[:3000] for each in self.violations[:10])])


@asynccontextmanager
async def tormented(nemesis: Nemesis, *arguments: str) -> AsyncIterator[None]:
    """While its cluster of three nodes, started with these arguments, and its clients run. There are no violations at
    the end."""
    cluster = nemesis.cluster
    try:
        await cluster.start(*NAMES, arguments=arguments)
        await nemesis.begin()
        yield
    except AssertionError:
        print(await cluster.diagnosis())
        raise
    finally:
        await nemesis.close()
        print(nemesis.report())
    assert not nemesis.violations, f"--seed {nemesis.seed}\n{nemesis.report()}"


async def _problem_in(node: NodeProcess) -> str:
    return await check_directory(node.directory)


async def control(node: NodeProcess, method: str, path: str, body: object = None) -> Answer | None:
    """One request to the control API."""
    payload = orjson.dumps(body) if body is not None else b""
    lines = [
        f"{method} /_armillary/{path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {CONTROL_KEY}",
        "Content-Type: application/json",
        f"Content-Length: {len(payload)}\r\n\r\n",
    ]
    wire: Wire | None = None
    try:
        _, wire = await asyncio.get_running_loop().create_connection(Wire, "127.0.0.1", node.port)
        return await asyncio.wait_for(wire.exchange("\r\n".join(lines).encode() + payload), ANSWER_S)
    except (OSError, ConnectionLost, TimeoutError):
        return None
    finally:
        if wire is not None:
            wire.close()


async def ask(
    node: NodeProcess, method: str, link: str, body: object, headers: dict[str, str], *, is_feed: bool = False
) -> Answer | None:
    """One request on a connection of its own; None: there is no answer."""
    try:
        client = await Client.connect(node.port)
    except ConnectionLost:
        return None
    try:
        return await asyncio.wait_for(client.request(method, link, body, headers, is_feed=is_feed), ANSWER_S)
    except (ConnectionLost, TimeoutError):
        return None
    finally:
        client.close()


async def listed(node: NodeProcess) -> dict[str, str]:
    """All items as a node itself shows them."""
    found: dict[str, str] = {}
    headers = {"x-ms-consistency-level": EVENTUAL, "x-ms-max-item-count": "1000"}
    ranges = await ask(node, "GET", DOCS.replace("docs", "pkranges"), None, dict(headers), is_feed=True)
    assert ranges is not None and ranges.status == 200, ranges
    for each in ranges.json["PartitionKeyRanges"]:
        given = headers | {"x-ms-documentdb-partitionkeyrangeid": each["id"]}
        while True:
            answer = await ask(node, "GET", DOCS, None, given, is_feed=True)
            assert answer is not None and answer.status == 200, answer
            found |= {item["id"]: f"{item['_etag']} {item.get('value')}" for item in answer.json["Documents"]}
            if "x-ms-continuation" not in answer.headers:
                break
            given["x-ms-continuation"] = answer.headers["x-ms-continuation"]
    return found
