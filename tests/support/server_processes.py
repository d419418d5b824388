"""The processes of a server with several, all in this one: each with an account, a storage engine and connections to
the others of its own, as `armillary serve --processes` has them, without ports and without starting programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from support.house import KEY

from armillary.account import containers
from armillary.account.catalog.allocation import place_of_store, transactions_store
from armillary.account.catalog.catalog import CATALOG_STORE
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.registry import AccountSettings
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import Clock, VirtualClock
from armillary.errors import Failure, Kind
from armillary.model import documents, layout
from armillary.model.resources import ResourceType
from armillary.processes.catalog_owner import FIRST, CatalogOwner
from armillary.processes.catalog_replica import CatalogReplica
from armillary.processes.connection import ProcessConnection
from armillary.processes.divided_account import DividedAccount
from armillary.processes.divided_engine import DividedEngine
from armillary.processes.moments.moments import Moments
from armillary.processes.moments.others import Others
from armillary.processes.places import Places, ProcessHere
from armillary.processes.shared_locks import LockTable
from armillary.processes.transactions.shared_moments import SharedMoments
from armillary.storage.engine import HoldableEngine
from armillary.storage.memory import MemoryEngine
from armillary.tools.serving.processes.child_processes import connected_pair


class OneProcess:
    def __init__(
        self, number: int, count: int, engine: HoldableEngine, clock: Clock, settings: AccountSettings
    ) -> None:
        self.settings = settings
        self.number = number
        self.engine = engine
        self.clock = clock
        self.replica = CatalogReplica()
        self.here = ProcessHere(Places(number, count, clock), self.replica, clock)
        self.divided = DividedEngine(self.replica, {number: engine})
        self.divided.drop_elsewhere = self.here.drop_store
        self.account = DividedAccount(self.divided, clock, settings, self.here)
        self.connections: dict[int, ProcessConnection] = {}

    @property
    def is_first(self) -> bool:
        return self.number == FIRST

    @property
    def stores(self) -> list[int]:
        """Of the partitions that are here."""
        records = self.account.catalog.of_type(ResourceType.CONTAINER)
        return [store for each in records for store in each.stores if place_of_store(store) == self.number]

    async def contents(self, name: str = "c", database: str = "db") -> list[bytes]:
        """The items of a container in the partitions that are here."""
        container = self.account.container(database, name)
        found: list[bytes] = []
        for partition in container.partitions.values():
            if not partition.is_elsewhere:
                stored = await partition.read(
                    lambda view: [each for _, each in view.scan(layout.ITEMS, layout.space_end(layout.ITEMS))]
                )
                found += [documents.json_text(each, container.schema) for each in stored]
        return found


class ServerProcesses:
    """Made by `server_processes`."""

    def __init__(self, processes: list[OneProcess], clock: VirtualClock) -> None:
        self.processes = processes
        self.clock = clock

    def __getitem__(self, number: int) -> OneProcess:
        return self.processes[number]

    @property
    def first(self) -> DividedAccount:
        return self.processes[FIRST].account

    async def create(self, name: str = "c", throughput_ru: int = 20_000, **policies: Any) -> Container:
        """Partitioned by /pk, as the first process has it."""
        account = self.first
        found = account.catalog.find(ResourceType.DATABASE, b"", "db")
        if found is None:
            found = await containers.create_database(account, {"id": "db"}, None)
        body = {"id": name, "partitionKey": KEY, **policies}
        return await containers.create_container(account, found, body, Throughput.manual(throughput_ru))

    async def put(self, *given: dict[str, Any], name: str = "c", process: int = FIRST) -> None:
        container = self.processes[process].account.container("db", name)
        for document in given:
            await items.upsert(container, dict(document), ItemOptions(key=container.key_of(document)), self.clock)

    async def delete(self, document: dict[str, Any], name: str = "c") -> None:
        container = self.first.container("db", name)
        await items.delete(container, document["id"], ItemOptions(key=container.key_of(document)))

    async def contents(self, name: str = "c", database: str = "db") -> list[bytes]:
        found = [await each.contents(name, database) for each in self.processes]
        return sorted([text for of in found for text in of])

    def disconnect(self, number: int, other: int) -> None:
        for process, peer in ((number, other), (other, number)):
            self.processes[process].connections[peer].end()
            self.processes[process].here.places[peer].use(None, is_ready=False)

    async def end(self, number: int) -> None:
        """As kill -9 does: its connections are gone. It is not started again."""
        ended = self.processes.pop(number)
        for connection in ended.connections.values():
            connection.end()
        first = self.processes[FIRST]
        first.here.followers.discard(number)
        assert first.here.locks is not None
        first.here.locks.leave(number)
        for each in self.processes:
            each.here.places[number].use(None, is_ready=False)
            each.here.transactions.left(number)
        await ended.account.close()
        await ended.engine.close()

    async def kill(self, number: int) -> None:
        """As kill -9 does, with its storage as it is at this moment; `start` starts it again. Not the first process."""
        killed = self.processes[number]
        kept = MemoryEngine()
        for store in (*killed.stores, transactions_store(number)):
            pairs = await killed.engine.store(store).read(lambda view: list(view.scan(b"", b"\xff" * 16)))
            kept.store(store).loader().put(pairs)
        for connection in killed.connections.values():
            connection.end()
        for each in self.processes:
            if each is not killed:
                each.here.followers.discard(number)
                if each.here.locks is not None:
                    each.here.locks.leave(number)
                each.here.places[number].use(None, is_ready=False)
                each.here.transactions.left(number)
        for place in killed.here.places.others.values():
            place.use(None, is_ready=False)
        await killed.account.close(Failure(Kind.UNAVAILABLE, "killed"))
        await killed.engine.close()
        self.processes[number] = OneProcess(number, len(self.processes), kept, self.clock, killed.settings)

    async def start(self, number: int) -> None:
        process = self.processes[number]
        for other in self.processes:
            if other is not process:
                await _connect(process, other)
        await process.here.load_catalog()
        await process.account.begin()
        process.here.open(process.account)


async def _connect(one: OneProcess, other: OneProcess) -> None:
    for (process, peer), end in zip(((one, other), (other, one)), connected_pair(), strict=True):
        process.connections[peer.number] = await _begun(process, end)
    for process, peer in ((one, other), (other, one)):
        link = await process.connections[peer.number].greeted
        process.here.places[peer.number].use(link, is_ready=True)


async def _begun(process: OneProcess, end: Any) -> ProcessConnection:
    end.setblocking(False)
    made = ProcessConnection(process.here, process.number, process.here.places.write_ids)
    await asyncio.get_running_loop().create_connection(lambda: made, sock=end)
    return made


@asynccontextmanager
async def server_processes(
    count: int = 3, engine_of: Callable[[int], Any] | None = None, **settings: Any
) -> AsyncIterator[ServerProcesses]:
    """`engine_of` opens the engine of a process; in memory by default."""
    clock = VirtualClock()  # one for all: ids are drawn from it
    engines = [await engine_of(number) if engine_of is not None else MemoryEngine() for number in range(count)]
    own = AccountSettings(**settings)
    processes = [OneProcess(number, count, engine, clock, own) for number, engine in enumerate(engines)]
    first = processes[FIRST]
    first.here.owner = owner = await CatalogOwner.open(first.engine.store(CATALOG_STORE), first.replica)
    owner.spread = first.here.spread_change
    first.here.locks = LockTable()
    moments = Moments(first.here)
    first.divided.make_checkpoint = moments.checkpoint
    first.account.transactions.moments = SharedMoments(first.here, moments)
    first.account.others = Others(first.here, moments, owner)
    await first.account.begin()
    first.here.open(first.account)
    server = ServerProcesses(processes, clock)
    for process in processes[1:]:
        for other in processes[: process.number]:
            await _connect(process, other)
        await process.here.load_catalog()
        await process.account.begin()
        process.here.open(process.account)
    try:
        yield server
    finally:
        for process in reversed(server.processes):
            try:
                await process.account.close()
            except Failure:
                pass  # another one has ended before
            await process.engine.close()
        for process in server.processes:
            for connection in process.connections.values():
                connection.end()
