"""One run of the released clients on a real server that is reshaped and killed meanwhile, and the verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from faults.elastic.actors import Actor, Follower, Keys, prepare
from faults.elastic.history import History
from faults.elastic.javascript import JavaScriptPort, Node
from faults.elastic.port import Port
from faults.elastic.python import PythonPort
from faults.server import Server, check_directory
from support.process import KEY

from armillary.tools.cluster.scratch_postgres import free_port

NAMES = ("soak", "items")
POLL_S, WAIT_S = 0.05, 900.0
CONTROL_KEY = "c29hayBzb2FrIHNvYWsgc29hayBzb2FrIHNvYWsgc29hayBzb2FrIHNvYWsgc29hayE="


class Soak:
    def __init__(
        self, directory: Path, seed: int, *arguments: str, clients: dict[str, int], ballast_bytes: int, keys: Keys
    ) -> None:
        """`clients`: how many of "sync", "aio" and "js"."""
        self.seed = seed
        self.names = NAMES  # of the database and the container that clients work on
        self.dice = random.Random(f"soak/{seed}")
        self.history = History(time.monotonic)
        self.server = Server(directory, "full", "--control-key", CONTROL_KEY, *arguments, port=free_port())
        self._clients = clients
        self._ballast_bytes = ballast_bytes
        self._keys = keys
        self._is_back = asyncio.Event()
        self._node: Node | None = None
        self._ports: list[Port] = []
        self.refusal = ""  # of the last request to the control API that was not granted
        self.ranges: dict[int, list[int]] = {}  # that were seen, with their parents

    @property
    def container(self) -> str:
        """As the control API names it."""
        return f"databases/{self.names[0]}/containers/{self.names[1]}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    async def run(self, throughput_ru: int, events: Events) -> None:
        """The clients work for as long as `events` take."""
        try:
            await self.server.start()
            self._is_back.set()
            async with CosmosClient(self.url, KEY) as client:
                database = await client.create_database(self.names[0])
                await database.create_container(self.names[1], PartitionKey("/key"), offer_throughput=throughput_ru)
            await self._run(events)
        finally:
            for port in self._ports:
                await port.close()
            if self._node is not None:
                await self._node.close()
            await self.server.kill()
        problem = await check_directory(self.server.directory)
        assert not self.history.violations and not problem, self.report(problem)

    async def _run(self, events: Events) -> None:
        history = self.history
        ports = {kind: [await self._port(kind, number) for number in range(n)] for kind, n in self._clients.items()}
        self._ports = [port for each in ports.values() for port in each]
        await prepare(self._ports[0], history, self.seed, self._ballast_bytes, self._keys)
        followers = {
            kind: Follower(await self._port(kind, len(ports[kind])), history, self._pause)
            for kind in self._clients
            if self._follows(kind)
        }
        stopping, seen_all = asyncio.Event(), asyncio.Event()
        actors = [
            self._actor(kind)(
                f"{kind}{number}",
                port,
                history,
                self.seed,
                pause=self._pause,
                ballast_bytes=self._ballast_bytes,
                keys=self._keys,
            )
            for kind, each in ports.items()
            for number, port in enumerate(each)
        ]
        working = [asyncio.create_task(actor.run(stopping)) for actor in actors]
        following = [asyncio.create_task(follower.run(seen_all)) for follower in followers.values()]
        happening = asyncio.create_task(self._events(events))
        # An actor that ends before the events do has failed, and says why.
        await asyncio.wait({happening, *working, *following}, return_when=asyncio.FIRST_COMPLETED)
        stopping.set()
        if happening.done():
            await asyncio.gather(*working)
            seen_all.set()
            await asyncio.gather(*following)
        for task in (happening, *working, *following):
            if not task.done():
                task.cancel()
        for outcome in await asyncio.gather(happening, *working, *following, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        begun = history.moment()
        listed = await _rows(self._ports[0].feed(500))
        others = {f"query of {kind}": await _rows(ports[kind][0].query("SELECT * FROM c", 200)) for kind in followers}
        history.verify(listed, begun, others, {kind: follower.pages for kind, follower in followers.items()})

    async def _events(self, events: Events) -> None:
        await events(self)

    def _actor(self, kind: str) -> type[Actor]:
        return Actor

    def _follows(self, kind: str) -> bool:
        """Whether clients of this kind follow the change feed and query all partitions."""
        return True

    async def _port(self, kind: str, number: int) -> Port:
        port: Port
        if kind == "js":
            self._node = self._node or await Node.start(self.url, KEY, self.names)
            port = JavaScriptPort(self._node, f"{kind}{number}")
        else:
            port = await PythonPort.open(self.url, KEY, self.names, is_blocking=kind == "sync")
        self._ports.append(port)
        return port

    async def _pause(self) -> None:
        await self._is_back.wait()
        await asyncio.sleep(0)

    async def kill(self) -> None:
        self.history.die()
        self.history.tally["kills"] += 1
        self._is_back.clear()
        await self.server.kill()
        await self.server.start()
        self.history.live()
        self._is_back.set()

    # What operators do.

    async def control(self, method: str, path: str, content: Any = None) -> Any:
        """None: refused, or no server answers."""
        address = f"{self.url}/_armillary/{path}"
        headers = {"Authorization": f"Bearer {CONTROL_KEY}"}
        try:
            async with (
                ClientSession() as session,
                session.request(method, address, json=content, headers=headers) as response,
            ):
                body = await response.json()
                if response.status < 300:
                    return body
                self.refusal = f"{method} {path} {content}: {response.status} {body}"
        except (ClientError, TimeoutError) as error:
            self.refusal = f"{method} {path} {content}: {error!r}"
        return None

    async def partitions(self) -> list[dict[str, Any]]:
        """In the order of their keys."""
        found = await self._asked("GET", f"{self.container}/partitions")
        self.ranges.update({each["id"]: each["parents"] for each in found["partitions"]})
        partitions: list[dict[str, Any]] = found["partitions"]
        return partitions

    async def until(self, is_so: Callable[[list[dict[str, Any]]], bool], what: str) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not is_so(await self.partitions()):
            assert time.monotonic() < deadline_s, f"{what}: not in {WAIT_S} s\n{self.report()}"
            await asyncio.sleep(POLL_S)

    async def reshaped(self) -> None:
        """Until nothing is being reshaped."""
        deadline_s = time.monotonic() + WAIT_S
        while (found := await self._asked("GET", "reshapes"))["reshapes"]:
            assert time.monotonic() < deadline_s, f"still reshaping after {WAIT_S} s: {found}\n{self.report()}"
            await asyncio.sleep(POLL_S)

    async def split(self) -> bool:
        return await self.control("POST", f"{self.container}/split", {}) is not None

    async def merge(self) -> bool:
        return await self.control("POST", f"{self.container}/merge", {}) is not None

    async def scale(self, throughput_ru: int) -> None:
        await self._asked("PUT", f"{self.container}/throughput", {"throughput": throughput_ru})

    async def _asked(self, method: str, path: str, content: Any = None) -> Any:
        """What must be granted; asked again where no server answered."""
        while True:
            await self._is_back.wait()
            begun = self.history.moment()
            answer = await self.control(method, path, content)
            if answer is not None:
                return answer
            assert self.history.was_dead(begun), self.refusal
            await asyncio.sleep(POLL_S)

    @property
    def depth(self) -> int:
        """How many generations there are that were seen."""
        return max(len(parents) for parents in self.ranges.values()) + 1 if self.ranges else 0

    def report(self, problem: str = "") -> str:
        told = [f"--seed {self.seed}: {dict(self.history.tally)}", *map(str, self.history.violations[:8])]
        return "\n".join(
            [
                *told,
                problem,
                f"{len(self.ranges)} ranges, {self.refusal}",
                "The server's log ends:",
                self.server.log_text,
            ]
        )


Events = Callable[[Soak], Awaitable[None]]


async def _rows(pages: Any) -> list[Any]:
    return [row async for page in pages for row in page]
