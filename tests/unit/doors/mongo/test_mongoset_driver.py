"""PyMongo as it is, with two members of a replica set on sockets in the tests' own process: discovery, read
preferences, causal sessions, and a change of the leader under writes, transactions and change streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import NotPrimaryError
from pymongo.read_preferences import Secondary
from support.mongo_house import KEY, READ_KEY
from support.mongo_set import MongoPair, member

from armillary import limits
from armillary.clock import SystemClock
from armillary.doors.mongo.door import MongoDoor
from armillary.doors.mongo.settings import MongoSettings
from armillary.doors.mongo.wire.connection import Connection
from armillary.net.connection_limits import Guest
from armillary.net.listen import Listener, listen_for_frames
from armillary.net.service import Roster

Client = pymongo.AsyncMongoClient[dict[str, Any]]


class Set:
    """The doors of a pair, on ports of this machine."""

    def __init__(self, pair: MongoPair) -> None:
        self.pair = pair
        self.listeners: dict[str, Listener] = {}
        self.addresses: dict[str, str] = {}
        self._clock = SystemClock()
        self._served: dict[str, tuple[MongoDoor, Roster]] = {}  # by node

    @classmethod
    async def open(cls, path: Path) -> Set:
        opened = cls(await MongoPair.open(path))
        await opened.pair.step()
        opened._use_doors()
        for name in ("a", "b"):
            port = Roster(clock=opened._clock)
            listener = await listen_for_frames("127.0.0.1", 0, port, partial(opened._connect, name))
            opened.listeners[name], opened.addresses[name] = listener, f"127.0.0.1:{listener.port}"
        members = [member(name, url=f"mongodb://{address}") for name, address in opened.addresses.items()]
        for topology in opened.pair.topologies:
            topology.change(leader="a", members=members)
            topology.on_refresh = opened.refresh
        return opened

    def _connect(self, name: str, guest: Guest) -> asyncio.Protocol:
        door, roster = self._served[name]
        return Connection(door, roster, guest)

    def _use_doors(self) -> None:
        for house, topology in zip((self.pair.leader, self.pair.follower), self.pair.topologies, strict=True):
            settings = MongoSettings(needs_authentication=False)
            house.door = MongoDoor(house.account, (KEY,), (READ_KEY,), settings, machine=self._clock)
            self._served[topology.name] = house.door, Roster(clock=self._clock)

    async def exchange(self) -> None:
        """As nodes do it: connections end with the role."""
        self.pair.on_closing = self._close_connections
        await self.pair.exchange()
        self._use_doors()

    async def _close_connections(self) -> None:
        for _, roster in self._served.values():
            await roster.close(limits.ROLE_GRACE_SECONDS)

    async def refresh(self, limit_s: float) -> bool:
        await self.pair.step()
        return True

    def client(self, **options: Any) -> Client:
        """It knows only the follower at first."""
        return pymongo.AsyncMongoClient(
            f"mongodb://{self.addresses['b']}/?replicaSet=globaldb&w=majority", heartbeatFrequencyMS=500, **options
        )

    async def close(self) -> None:
        for _, roster in self._served.values():
            await roster.close(0.0)
        for listener in self.listeners.values():
            await listener.close(0.0)
        await self.pair.close()


@pytest.fixture
async def replica_set(tmp_path: Path) -> AsyncIterator[Set]:
    opened = await Set.open(tmp_path)
    yield opened
    await opened.close()


async def test_discovery_and_read_preferences(replica_set: Set) -> None:
    async with replica_set.client() as client:
        things = client.shop.things
        await things.insert_many([{"_id": number} for number in range(5)])
        host, port = replica_set.addresses["a"].split(":")
        assert await client.primary == (host, int(port))
        assert await client.secondaries == {(host, int(replica_set.addresses["b"].split(":")[1]))}
        await replica_set.pair.step()
        for mode in (Secondary(), Secondary(tag_sets=[{"region": "us"}]), Secondary(max_staleness=120)):
            assert await things.with_options(read_preference=mode).count_documents({}) == 5
            assert await things.with_options(read_preference=mode).find_one({"_id": 3}) == {"_id": 3}
        assert replica_set.pair.follower.door.counted("find") == 3


async def test_causal_session_reads_its_writes_on_a_secondary(replica_set: Set) -> None:
    async with replica_set.client() as client:
        things = client.shop.things
        elsewhere = things.with_options(read_preference=Secondary())
        for number in range(10):
            async with client.start_session(causal_consistency=True) as session:
                await things.insert_one({"_id": number}, session=session)
                assert await elsewhere.find_one({"_id": number}, session=session) == {"_id": number}


async def test_direct_connection_to_a_secondary_reads_and_does_not_write(replica_set: Set) -> None:
    async with replica_set.client() as client:
        await client.shop.things.insert_one({"_id": 1})
    await replica_set.pair.step()
    address = replica_set.addresses["b"]
    direct: Client = pymongo.AsyncMongoClient(f"mongodb://{address}/?directConnection=true", retryWrites=False)
    async with direct:
        assert await direct.shop.things.find_one() == {"_id": 1}
        with pytest.raises(NotPrimaryError):
            await direct.shop.things.insert_one({"_id": 2})


async def test_writes_go_on_over_a_change_of_the_leader(replica_set: Set) -> None:
    async with replica_set.client() as client:
        things = client.shop.things
        await things.insert_one({"_id": 0})
        begun = asyncio.Event()

        async def write() -> None:
            for number in range(1, 60):
                await things.update_one({"_id": number}, {"$inc": {"n": 1}}, upsert=True)
                if number == 20:
                    begun.set()

        writing = asyncio.ensure_future(write())
        await begun.wait()
        await replica_set.exchange()
        await writing
        assert await client.primary == ("127.0.0.1", int(replica_set.addresses["b"].split(":")[1]))
        assert await things.count_documents({"n": 1}) == 59


async def test_change_stream_goes_on_over_a_change_of_the_leader(replica_set: Set) -> None:
    async with replica_set.client() as client:
        things = client.shop.things
        await things.insert_one({"_id": 0})
        seen: list[int] = []
        async with await things.watch() as stream:

            async def follow() -> None:
                async for change in stream:
                    seen.append(change["documentKey"]["_id"])
                    if len(seen) == 6:
                        return

            following = asyncio.ensure_future(follow())
            for number in range(1, 4):
                await things.insert_one({"_id": number})
            await replica_set.exchange()
            for number in range(4, 7):
                await things.insert_one({"_id": number})
            await following
        assert seen == [1, 2, 3, 4, 5, 6]


async def test_transaction_is_repeated_over_a_change_of_the_leader(replica_set: Set) -> None:
    async with replica_set.client() as client:
        things = client.shop.things
        await things.insert_one({"_id": 0, "n": 0})
        runs = 0

        async def work(session: AsyncClientSession) -> None:
            nonlocal runs
            runs += 1
            await things.update_one({"_id": 0}, {"$inc": {"n": 1}}, session=session)
            if runs == 1:
                await replica_set.exchange()
            await things.insert_one({"_id": runs}, session=session)

        async with client.start_session() as session:
            await session.with_transaction(work)
        assert runs == 2
        assert await things.find().to_list() == [{"_id": 0, "n": 1}, {"_id": 2}]


async def test_lost_lease_is_no_error(replica_set: Set) -> None:
    async with replica_set.client() as client:
        things = client.shop.things
        await things.insert_one({"_id": 0})
        replica_set.pair.end_lease()
        assert await things.find_one() == {"_id": 0}
        replica_set.pair.topologies[0].has_lease = True
        assert await things.find_one() == {"_id": 0}


async def test_load_balanced_client_goes_on_with_the_new_leader(replica_set: Set) -> None:
    """Behind an address that brings new connections to the node that leads."""
    copies: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while received := await reader.read(65536):
            writer.write(received)
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = replica_set.addresses[replica_set.pair.topologies[0].name].split(":")
        there, back = await asyncio.open_connection(host, int(port))
        copies.update((asyncio.ensure_future(copy(reader, back)), asyncio.ensure_future(copy(there, writer))))

    balancer = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = balancer.sockets[0].getsockname()[1]
    client: Client = pymongo.AsyncMongoClient(f"mongodb://127.0.0.1:{port}/?loadBalanced=true")
    async with client:
        things = client.shop.things
        await asyncio.gather(*[things.insert_one({"_id": number}) for number in range(5)])
        await replica_set.exchange()
        for number in range(5, 10):
            await things.insert_one({"_id": number})
        assert await things.count_documents({}) == 10
    balancer.close()
    for each in copies:
        each.cancel()
    await asyncio.gather(*copies, return_exceptions=True)
