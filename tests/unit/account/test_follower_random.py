"""A random workload on an account that leads. After every group of the log the account that follows must have in memory
what an account has that is opened on the same replica, and after every operation both give the same answers. Planted
defects show that this would be noticed."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable
from typing import Any

import bson
import orjson
import pytest
from support.account_state import differences, state_of
from support.limits import WithLimits
from support.merged_query import MergedQuery
from support.mongo_house import mongo_at
from support.portions import Amount
from support.replicas import Pair

from armillary import limits
from armillary.account import containers
from armillary.account.account import Account
from armillary.account.changes.change_feed import read_changes
from armillary.account.container import Container
from armillary.account.following import FollowingAccount
from armillary.account.items import items
from armillary.account.items.bulk import run_bulk
from armillary.account.items.items import ItemOptions, Member
from armillary.account.reshaping.split_and_merge import BEGUN, CAUGHT_UP, COPIED
from armillary.account.security.credentials import NAMES, Credentials
from armillary.account.security.permissions import new_grant
from armillary.account.snapshots import restore
from armillary.account.throughput import offers
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.resources import ResourceType
from armillary.partition import adoption
from armillary.partition.operations import Verb
from armillary.storage.overlay import Layer

KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}
QUERIES = (
    "SELECT c.id, c.n FROM c ORDER BY c.n",
    "SELECT VALUE COUNT(1) FROM c",
    "SELECT c.id FROM c WHERE c.n > 20 AND STARTSWITH(c.text, 'a')",
)
POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"defaultTtl": 300},
    {"defaultTtl": -1, "changeFeedPolicy": {"retentionDuration": 60}},
    {"indexingPolicy": {"includedPaths": [{"path": "/n/?"}], "excludedPaths": [{"path": "/*"}]}},
    {"changeFeedPolicy": {"retentionDuration": 5}},
)
# What a client may be told: the workload does not look whether its operation is possible.
REFUSED = frozenset(
    (Kind.BAD_REQUEST, Kind.CONFLICT, Kind.NOT_FOUND, Kind.RANGE_GONE, Kind.OWNER_NOT_FOUND, Kind.UNSUPPORTED)
)


@pytest.fixture(autouse=True)
def _small_steps(with_limits: WithLimits) -> None:
    """Splits copy in many groups and wait for nothing."""
    with_limits(COPY_SLICE_SECONDS=-1.0, COPY_PORTION_ENTRIES=20, REWIND_ENTRIES_MAX=12)
    with_limits(RESHAPE_POLL_SECONDS=0.0, RESHAPE_RETRY_SECONDS=0.0)


class Workload:
    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair = pair
        self.random = random.Random(seed)
        self.keys: Credentials
        self.followed_keys: Credentials
        self.mongo, self.follower_mongo = (mongo_at(account) for account in (pair.leader, pair.follower))
        self.done: dict[str, int] = {}  # operations that succeeded, by name
        self._number = 0
        pair.on_group = self.compare_memory

    async def open(self) -> None:
        self.keys = await Credentials.open(self.pair.leader, ("p", None, None, None))
        self.followed_keys = await Credentials.open(self.pair.follower, ("p", None, None, None))

    async def close(self) -> None:
        self.pair.leader.reshaper.pause(())
        await self.mongo.door.close()
        await self.follower_mongo.door.close()

    # Comparing.

    def compare_memory(self) -> None:
        fresh = at_once(FollowingAccount.open(self.pair.following_engine, self.pair.clock))
        assert differences(state_of(self.pair.follower), state_of(fresh)) == []

    async def compare_answers(self) -> None:
        pair = self.pair
        for _ in range(20):
            await pair.step()
            place = pair.leading_engine.replica.position.place
            leading, following = await self._answers(pair.leader), await self._answers(pair.follower)
            if pair.leading_engine.replica.position.place == place == pair.following_engine.replica.position.place:
                assert following == leading
                assert self.keys.keys == self.followed_keys.keys
                return
        raise AssertionError("the leader writes all the time")

    async def _answers(self, account: Account) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for container in account.containers:
            answers[container.link] = [
                container.range_etag,
                [(each.id, each.low, each.parents) for each in container.map.ranges],
                container.record.to_json(),
                await self._point_reads(container),
                [await self._query(account, container, text) for text in QUERIES],
                await self._changes(account, container),
                offers.offer_content(account, offer)
                if (offer := account.catalog.offer_of(container.record)) is not None
                else None,
            ]
        mongo = self.mongo if account is self.pair.leader else self.follower_mongo
        for name in ("m0", "m1"):
            answers[f"mongo {name}"] = [
                await mongo.ask({"find": name, "sort": {"n": 1, "_id": 1}}),
                await mongo.ask({"count": name, "query": {"n": {"$gt": 3}}}),
                await mongo.ask(
                    {"aggregate": name, "pipeline": [{"$group": {"_id": "$n"}}, {"$sort": {"_id": 1}}], "cursor": {}}
                ),
                await mongo.ask({"listIndexes": name}),
            ]
        for answer in [each for name, found in answers.items() if name.startswith("mongo") for each in found]:
            for name in ("$clusterTime", "operationTime"):
                answer.pop(name, None)
        return answers

    async def _point_reads(self, container: Container) -> list[Any]:
        found: list[Any] = []
        if container.key is None or container.is_collection:
            return found
        for number in range(0, 60, 7):
            document = _document(number)
            try:
                answer = await items.read(container, document["id"], ItemOptions(key=container.key_of(document)))
                found.append((answer.payload, answer.lsn, answer.range_id))
            except Failure as failure:
                found.append((failure.kind, failure.details.get("lsn")))
        return found

    @staticmethod
    async def _query(account: Account, container: Container, text: str) -> list[Any]:
        bound = compile_query(text, ()).bind({}, container.query_context())
        try:
            answer = await MergedQuery(account, container, bound, FeedOptions()).whole()
        except Failure as failure:  # a policy without the order's path
            return [failure.kind]
        return list(map(orjson.loads, answer))

    async def _changes(self, account: Account, container: Container) -> list[Any]:
        page = await read_changes(account, container, FeedOptions(page_items=1000))
        late = await read_changes(account, container, FeedOptions(page_items=1000), since_s=int(account.clock.now_s()))
        return [page.items, late.items]

    # Operations.

    async def run(self, count: int) -> None:
        names = [name for name in dir(self) if name.startswith("do_")]
        for _ in range(count):
            name = self.random.choice(names) if self.random.random() < 0.6 else "do_write"
            operation: Callable[[], Awaitable[None]] = getattr(self, name)
            try:
                await operation()
                self.done[name] = self.done.get(name, 0) + 1
            except Failure as failure:
                if failure.kind not in REFUSED:
                    raise
            if self.random.random() < 0.5:
                await self.compare_answers()
        await self.compare_answers()

    @property
    def account(self) -> Account:
        return self.pair.leader

    def _some(self) -> Container:
        found = [each for each in self.account.containers if each.database.name == "db"]
        if not found:
            raise Failure(Kind.NOT_FOUND, "There is no container.")
        return self.random.choice(sorted(found, key=lambda each: each.record.rid))

    async def do_write(self) -> None:
        container = self._some()
        for _ in range(self.random.randrange(1, 6)):
            document = _document(self.random.randrange(60), self.random)
            options = ItemOptions(key=container.key_of(document))
            if self.random.random() < 0.25:
                await items.delete(container, document["id"], options)
            else:
                await items.upsert(container, document, options, self.pair.clock)

    async def do_batch(self) -> None:
        container = self._some()
        documents = [_document(number, self.random) for number in (3, 13, 23)]
        members = [Member(Verb.UPSERT, document=each) for each in documents]
        await items.batch(container, container.key_of(documents[0]), members, ItemOptions(), self.pair.clock)

    async def do_bulk(self) -> None:
        container = self._some()
        documents = [_document(self.random.randrange(60), self.random) for _ in range(8)]
        options = [ItemOptions(key=container.key_of(each)) for each in documents]
        members = [
            Member(Verb.UPSERT, document=each, options=own) for each, own in zip(documents, options, strict=True)
        ]
        await run_bulk(container, str(self.random.choice(list(container.partitions))), members, self.pair.clock)

    async def do_create_container(self) -> None:
        database = self.account.catalog.find(ResourceType.DATABASE, b"", "db")
        if database is None:
            shared = Throughput.manual(800) if self.random.random() < 0.5 else None
            database = await containers.create_database(self.account, {"id": "db"}, shared)
        self._number += 1
        body = {"id": f"c{self._number % 4}", "partitionKey": KEY, **self.random.choice(POLICIES)}
        wanted = Throughput.manual(self.random.choice((400, 12_000))) if self.random.random() < 0.6 else None
        await containers.create_container(self.account, database, body, wanted)

    async def do_replace_container(self) -> None:
        container = self._some()
        body = {"id": container.name, "partitionKey": container.record.body["partitionKey"]}
        await containers.replace_container(self.account, container, {**body, **self.random.choice(POLICIES)}, None)
        if self.random.random() < 0.7:
            await self.account.restated(container)

    async def do_rename(self) -> None:
        await containers.rename_container(self.account, self._some(), f"c{self.random.randrange(4)}")

    async def do_delete(self) -> None:
        if self.random.random() < 0.2:
            await containers.delete_database(self.account, self.account.database("db"), None)
        elif self.random.random() < 0.5:
            await containers.delete_container(self.account, self._some(), None)

    async def do_split(self) -> None:
        container = self._some()
        if len(container.partitions) > 4:
            return
        pauses = self.random.sample((BEGUN, COPIED, CAUGHT_UP), self.random.randrange(2))
        self.account.reshaper.pause(pauses)
        reshape = await self.account.reshaper.split(container, self.random.choice(list(container.partitions)))
        if not pauses:
            await self.account.reshaper.finished(reshape)

    async def do_merge(self) -> None:
        container = self._some()
        if len(container.partitions) < 2:
            return
        self.account.reshaper.pause(())
        low, high, *_ = [each.id for each in container.map.ranges]
        await self.account.reshaper.finished(await self.account.reshaper.merge(container, low, high))

    async def do_advance(self) -> None:
        self.account.reshaper.pause(())
        while not self.account.reshaper.is_idle:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)

    async def do_upkeep(self) -> None:
        self.pair.clock.advance(self.random.choice((1, 30, limits.RETIRED_SECONDS + 1)))
        gc.collect()
        await self.account.reshaper.keep_up()
        for container in self.account.containers:
            for partition in list(container.partitions.values()):
                await self.account.rounds.keep_up_one(container, partition)

    async def do_scale(self) -> None:
        found = self.account.catalog.of_type(ResourceType.OFFER)
        if found:
            ru = self.random.choice((400, 1_000, 12_000))
            await offers.set_throughput(self.account, self.random.choice(found), Throughput.manual(ru))

    async def do_mode(self) -> None:
        container = self._some()
        await self.account.budgets.set_mode(container, self.random.choice((None, "observe", "off")))
        await self.account.budgets.set_buckets(container, {1: self.random.randrange(1, 100)})

    async def do_user(self) -> None:
        catalog, database = self.account.catalog, self.account.database("db")
        users = catalog.children(ResourceType.USER, database.rid)
        if not users:
            await catalog.create(ResourceType.USER, database, "u", {"id": "u"})
            return
        permissions = catalog.children(ResourceType.PERMISSION, users[0].rid)
        if len(permissions) > 1:
            await catalog.delete(self.random.choice([users[0], permissions[0]]))
        else:
            name = f"p{len(permissions)}"
            body = {"id": name, "permissionMode": "Read", "resource": self._some().record.self_link}
            grant = new_grant(self.account)
            await catalog.create(ResourceType.PERMISSION, users[0], name, body, lambda *_: grant)

    async def do_script(self) -> None:
        container, catalog = self._some(), self.account.catalog
        present = catalog.children(ResourceType.FUNCTION, container.record.rid)
        body = {"id": "f", "body": f"function f() {{ return {self.random.randrange(9)}; }}"}
        if not present:
            await catalog.create(ResourceType.FUNCTION, container.record, "f", body)
        elif self.random.random() < 0.3:
            await catalog.delete(present[0])
        else:
            await catalog.replace(present[0], body)

    async def do_snapshot(self) -> None:
        scope = ("db",) if self.random.random() < 0.3 else ("db", self._some().name)
        await self.account.snapshots.take("s", scope)

    async def do_restore(self) -> None:
        await restore.restore(self.account, self.account.snapshots.find("s"))

    async def do_key(self) -> None:
        await self.keys.regenerate(self.random.choice(NAMES))

    async def do_mongo_write(self) -> None:
        self._number += 1
        name, number = self.random.choice(("m0", "m1")), self.random.randrange(20)
        session = {
            "lsid": {"id": bson.Binary(bytes([self.random.randrange(3)]) * 16, 4)},
            "txnNumber": bson.Int64(self._number),
        }
        update = {"q": {"_id": number}, "u": {"$set": {"n": self._number % 9}}, "upsert": True}
        command = self.random.choice(
            (
                {"insert": name, "documents": [{"_id": number + 100 * self._number, "n": number}]},
                {"update": name, "updates": [update]},
                {"delete": name, "deletes": [{"q": {"_id": number}, "limit": 1}]},
            )
        )
        await self.mongo.ask({**command, **session})

    async def do_mongo_collection(self) -> None:
        name = self.random.choice(("m0", "m1"))
        kind = self.random.randrange(6)
        if kind == 0:
            await self.mongo.ask({"create": name, "capped": True, "size": 5_000, "max": 5})
        elif kind == 1:
            await self.mongo.ask({"drop": name})
        elif kind == 2:
            await self.mongo.ask({"dropIndexes": name, "index": "n_1"})
        elif kind == 3:
            images = {"enabled": self.random.random() < 0.5}
            await self.mongo.ask({"collMod": name, "changeStreamPreAndPostImages": images})
        elif kind == 4:
            await self.mongo.ask({"aggregate": name, "pipeline": [{"$changeStream": {}}], "cursor": {}})
        else:
            await self.mongo.ask({"createIndexes": name, "indexes": [{"key": {"n": 1}, "name": "n_1"}]})


def _document(number: int, dice: random.Random | None = None) -> dict[str, Any]:
    document: dict[str, Any] = {"id": f"i{number}", "pk": f"k{number % 10}", "n": number}
    if dice is not None:
        document |= {"n": dice.randrange(50), "text": dice.choice(("abc", "xyz")) * dice.randrange(3)}
        if dice.random() < 0.3:
            del document["n"]
        if dice.random() < 0.2:
            document[f"p{dice.randrange(5)}"] = [1, {"q": 2}]
    return document


def at_once(opening: Any) -> Account:
    """Run a coroutine that waits for nothing."""
    try:
        opening.send(None)
    except StopIteration as done:
        account: Account = done.value
        return account
    raise AssertionError("the opening of a follower waits for something")


async def test_a_follower_has_what_an_opened_account_has(pair: Pair, seed: int, amount: Amount) -> None:
    workload = Workload(pair, seed)
    await workload.open()
    await workload.run(max(100, amount(1_000)))
    await workload.close()
    assert pair.groups > 100


def _late(pair: Pair) -> None:
    """Memory is adopted one step of the event loop after readers see the group."""

    def adopt(layer: Layer, notes: bytes) -> None:
        asyncio.get_running_loop().call_soon(pair.follower.adopt, layer, notes)

    pair.adopt = adopt


def _without_head(monkeypatch: pytest.MonkeyPatch) -> None:
    real = adoption.adopt

    def adopt(partition: Any, changes: adoption.StoreChanges, view: Any) -> None:
        changes.head = None
        real(partition, changes, view)

    monkeypatch.setattr(adoption, "adopt", adopt)


@pytest.mark.parametrize("defect", ["adopted late", "head not refreshed"])
async def test_planted_defects_are_found(pair: Pair, seed: int, monkeypatch: pytest.MonkeyPatch, defect: str) -> None:
    workload = Workload(pair, seed)
    await workload.open()
    if defect == "adopted late":
        _late(pair)
    else:
        _without_head(monkeypatch)
    with pytest.raises(AssertionError):
        await workload.run(100)
    await workload.close()
