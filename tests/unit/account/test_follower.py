"""The account on a node that follows: what it answers, what it refuses, how it comes to the leader's state, and how an
account changes its role without a restart."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.account_state import differences, state_of
from support.merged_query import MergedQuery
from support.mongo_house import mongo_at
from support.replicas import Pair

from armillary import limits
from armillary.account import containers
from armillary.account.account import Account
from armillary.account.changes.change_feed import read_changes
from armillary.account.collections.transactions import Transaction
from armillary.account.container import Container
from armillary.account.following import FollowingAccount
from armillary.account.items import items, procedures
from armillary.account.items.items import ItemOptions, Member
from armillary.account.migration import migration
from armillary.account.migration.target import Plan
from armillary.account.registry import AccountSettings
from armillary.account.security.credentials import Credentials
from armillary.account.security.database_users import DatabaseUser, Role, Verifier
from armillary.account.snapshots import restore
from armillary.account.throughput import offers
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.key_values import Key
from armillary.model.patch import parse_patch
from armillary.model.resources import ResourceType
from armillary.partition.operations import Verb

KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}


async def _made(pair: Pair, name: str = "c", throughput_ru: int = 400, **policies: Any) -> Container:
    database = pair.leader.catalog.find(ResourceType.DATABASE, b"", "db")
    if database is None:
        database = await containers.create_database(pair.leader, {"id": "db"}, None)
    body = {"id": name, "partitionKey": KEY, **policies}
    return await containers.create_container(pair.leader, database, body, Throughput.manual(throughput_ru))


async def _put(pair: Pair, *numbers: int, **properties: Any) -> None:
    container = pair.leader.container("db", "c")
    for number in numbers:
        document = {"id": f"i{number}", "pk": f"k{number % 5}", "n": number, **properties}
        await items.upsert(container, document, ItemOptions(key=container.key_of(document)), pair.clock)


def _followed(pair: Pair, name: str = "c") -> Container:
    return pair.follower.container("db", name)


async def _rows(account: Account, container: Container, text: str) -> list[bytes]:
    bound = compile_query(text, ()).bind({}, container.query_context())
    return await MergedQuery(account, container, bound, FeedOptions(page_items=10)).whole()


async def test_opening_writes_nothing(pair: Pair) -> None:
    await _made(pair, changeFeedPolicy={"retentionDuration": 5})
    await pair.leader.catalog.reserve(lambda reservation: reservation.store())  # that an opening would abandon
    await pair.step()
    await pair.follower.close()
    place = pair.following_engine.replica.position
    tasks = asyncio.all_tasks()
    pair.follower = await FollowingAccount.open(pair.following_engine, pair.clock)
    assert pair.following_engine.replica.position == place
    assert asyncio.all_tasks() == tasks, "nothing runs by itself"
    assert pair.follower.secret == pair.leader.secret != b""


async def test_reads_are_answered(pair: Pair) -> None:
    await _made(pair)
    await _put(pair, *range(40))
    await pair.step()
    container = _followed(pair)
    answer = await items.read(container, "i7", ItemOptions(key=Key(("k2",))))
    assert answer.payload is not None and b'"n":7' in answer.payload
    assert answer.lsn == pair.leader.container("db", "c").partitions[0].lsn
    rows = await _rows(pair.follower, container, "SELECT VALUE c.n FROM c ORDER BY c.n DESC")
    assert rows == [str(number).encode() for number in reversed(range(40))]
    page = await read_changes(pair.follower, container, FeedOptions(page_items=100))
    assert len(page.items) == 40
    meter = container.partitions[0].meter
    assert meter.totals.requests > 0, "this node meters what it serves"


async def test_expired_items_are_not_shown(pair: Pair) -> None:
    await _made(pair, defaultTtl=60)
    await _put(pair, 1)
    await pair.step()
    pair.clock.advance(61)
    with pytest.raises(Failure) as caught:
        await items.read(_followed(pair), "i1", ItemOptions(key=Key(("k1",))))
    assert caught.value.kind is Kind.NOT_FOUND
    assert await _rows(pair.follower, _followed(pair), "SELECT VALUE c.n FROM c") == []


async def test_writes_are_refused(pair: Pair) -> None:
    await _made(pair, throughput_ru=12_000)
    await _put(pair, *range(5))
    await pair.step()
    snapshot = await pair.follower.snapshots.take("s", ("db", "c"))  # named snapshots are each node's own
    await _put(pair, 1, changed=True)
    await pair.step()
    account, container, clock = pair.follower, _followed(pair), pair.clock
    database, options = account.database("db"), ItemOptions(key=Key(("k1",)))
    offer = account.catalog.offer_of(container.record)
    assert offer is not None
    document = {"id": "i1", "pk": "k1"}
    body = {"id": "c", "partitionKey": container.record.body["partitionKey"], "defaultTtl": 5}
    writing = "function f() { getContext().getCollection().createDocument(getContext().getCollection().getSelfLink(), "
    script = replace(offer, name="p", body={"id": "p", "body": writing + '{id: "new", pk: "k1"}); }'})
    transaction = await Transaction.begin(container, Key(("k1",)), clock)
    within = transaction.within(container, Key(("k1",)))
    await items.upsert(within, dict(document), options, clock)
    before = state_of(account)
    refused: list[Awaitable[object]] = [
        items.create(container, {"id": "i1", "pk": "k1"}, options, clock),  # that exists
        items.upsert(container, dict(document), options, clock),
        items.replace(container, "none", {"id": "none", "pk": "k1"}, options, clock),
        items.patch(container, "i1", parse_patch([{"op": "add", "path": "/x", "value": 1}]), options),
        items.delete(container, "none", options),
        items.delete_by_key(container, Key(("none",))),
        items.batch(container, Key(("k1",)), [Member(Verb.UPSERT, document=document)], options, clock),
        procedures.execute(account, container, script, (), Key(("k1",))),
        transaction.commit(),
        containers.create_database(account, {"id": "db"}, None),  # that exists
        containers.delete_database(account, database, None),
        containers.create_container(account, database, {"id": "d", "partitionKey": KEY}, None),
        containers.replace_container(account, container, body, None),
        containers.rename_container(account, container, "d"),
        containers.delete_container(account, container, None),
        offers.set_throughput(account, offer, Throughput.manual(400)),
        account.budgets.set_mode(container, "off"),
        account.budgets.set_buckets(container, {1: 50}),
        account.reshaper.split(container, 0),
        account.reshaper.grow(container, 5),
        account.catalog.create(ResourceType.USER, database, "u", {"id": "u"}),
        restore.restore(account, snapshot),
        migration.begin(account, container, Plan("d", ("/n",))),
    ]
    for each in refused:
        with pytest.raises(Failure) as caught:
            await each
        assert caught.value.kind is Kind.NOT_LEADER, caught.value
    assert differences(before, state_of(account)) == []
    assert account.reshaper.is_idle and not account.reshaper._reserved
    assert not account.migrations


async def test_writes_through_the_mongodb_protocol_are_refused(pair: Pair) -> None:
    leading, following = mongo_at(pair.leader), mongo_at(pair.follower)
    assert (await leading.ask({"insert": "m", "documents": [{"_id": n, "n": n} for n in range(5)]}))["n"] == 5
    await leading.ask({"createIndexes": "m", "indexes": [{"key": {"n": 1}, "name": "n_1"}]})
    await leading.ask({"aggregate": "m", "pipeline": [{"$changeStream": {}}], "cursor": {}})
    await pair.step()
    found = await following.ask({"find": "m", "filter": {"n": {"$gte": 3}}, "sort": {"n": -1}})
    assert [each["_id"] for each in found["cursor"]["firstBatch"]] == [4, 3]
    stream = await following.ask({"aggregate": "m", "pipeline": [{"$changeStream": {}}], "cursor": {}})
    assert stream["ok"] == 1, "the partitions keep events already"
    for command in (
        {"insert": "m", "documents": [{"_id": 1}]},
        {"insert": "other", "documents": [{"_id": 1}]},
        {"update": "m", "updates": [{"q": {"_id": 1}, "u": {"$set": {"n": 2}}}]},
        {"delete": "m", "deletes": [{"q": {"_id": 1}, "limit": 1}]},
        {"findAndModify": "m", "query": {"_id": 1}, "update": {"$set": {"n": 2}}},
        {"create": "m2"},
        {"drop": "m"},
        {"createIndexes": "m", "indexes": [{"key": {"x": 1}, "name": "x_1"}]},
        {"collMod": "m", "changeStreamPreAndPostImages": {"enabled": True}},
    ):
        answer = await following.ask(command)
        errors = answer.get("writeErrors") or [answer]
        assert errors[0].get("code") == 10107, answer
    for house in (leading, following):
        await house.door.close()


async def test_a_split_is_taken_over(pair: Pair) -> None:
    await _made(pair)
    await _put(pair, *range(30))
    await pair.step()
    container = _followed(pair)
    parent = container.partitions[0]
    reshape = await pair.leader.reshaper.split(pair.leader.container("db", "c"), 0)
    await pair.leader.reshaper.finished(reshape)
    await pair.step()
    assert _followed(pair) is container, "requests that have found the container go on with it"
    assert [each.id for each in container.map.ranges] == [1, 2]
    assert parent.is_moved and not parent.is_dropped
    assert len(await _rows(pair.follower, container, "SELECT * FROM c")) == 30
    await parent.read(parent.lsn_in)  # reads that have begun may finish
    pair.clock.advance(limits.RETIRED_SECONDS + 1)
    gc.collect()
    await pair.leader.reshaper.keep_up()
    await pair.step()
    with pytest.raises(Failure) as caught:
        await parent.read(parent.lsn_in)
    assert caught.value.kind is Kind.RANGE_GONE


async def test_a_rewind_is_seen_from_the_log(pair: Pair) -> None:
    """Entries that a rewind inserts are older than times that readers have noted."""
    await _made(pair)
    await _put(pair, 1)
    pair.clock.advance(100)
    since_s = int(pair.clock.now_s())
    await _put(pair, 2, 3)
    snapshot = await pair.leader.snapshots.take("s", ("db", "c"))
    pair.clock.advance(100)
    await _put(pair, 2, 3, changed=True)
    await pair.step()

    async def changed() -> int:
        page = await read_changes(pair.follower, _followed(pair), FeedOptions(page_items=100), since_s=since_s + 50)
        return len(page.items)

    assert await changed() == 2  # the log's times are noted here
    outcome = await restore.restore(pair.leader, snapshot)
    assert (outcome.rewound, outcome.copied) == (1, 0)
    await pair.step()
    partition = _followed(pair).partitions[0]
    assert partition.times.older_until(since_s) == 0, "noted times are forgotten"
    page = await read_changes(pair.follower, _followed(pair), FeedOptions(page_items=100), since_s=since_s)
    assert len(page.items) == 2
    assert await changed() == 0


async def test_a_migration_is_taken_over(pair: Pair) -> None:
    source = await _made(pair)
    await _put(pair, *range(12))
    await pair.step()
    plan = Plan("d", ("/n",))
    running = await migration.begin(pair.leader, source, plan)
    while not running.is_ended:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)
    await pair.step()
    fresh = await FollowingAccount.open(pair.following_engine, pair.clock)
    assert differences(state_of(pair.follower), state_of(fresh)) == []
    container = _followed(pair)
    assert container.key is not None and container.key.paths == ("/n",)
    assert len(await _rows(pair.follower, container, "SELECT * FROM c")) == 12
    assert _followed(pair, "c-before").record.rid == source.record.rid


async def test_keys_are_taken_over(pair: Pair) -> None:
    leading = await Credentials.open(pair.leader, ("p", None, None, None))
    following = await Credentials.open(pair.follower, ("p", None, None, None))
    told: list[str | None] = []
    following.on_change.append(lambda: told.append(following.keys["primary"]))
    key = await leading.regenerate("primary")
    await pair.step()
    assert following.keys["primary"] == key
    assert told == [key]
    with pytest.raises(Failure) as caught:
        await following.regenerate("primary")
    assert caught.value.kind is Kind.NOT_LEADER


async def test_users_of_databases_are_taken_over(pair: Pair) -> None:
    verifier = Verifier(b"salt", 15_000, b"stored", b"server")
    user = DatabaseUser("shop", "ann", (Role("read", "shop"),), verifier, "1")
    told: list[int] = []
    pair.follower.database_users.on_change.append(lambda: told.append(len(pair.follower.database_users.of(None))))
    await pair.leader.database_users.create(user)
    await pair.step()
    assert pair.follower.database_users.find("shop", "ann") == user
    await pair.leader.database_users.change("shop", "ann", roles=[])
    await pair.step()
    found = pair.follower.database_users.find("shop", "ann")
    assert found is not None and found.roles == ()
    with pytest.raises(Failure) as caught:
        await pair.follower.database_users.delete("shop", "ann")
    assert caught.value.kind is Kind.NOT_LEADER
    assert pair.follower.database_users.find("shop", "ann") == found
    await pair.leader.database_users.delete("shop", "ann")
    await pair.step()
    assert pair.follower.database_users.find("shop", "ann") is None
    assert told == [1, 1, 0]


async def test_throughput_is_taken_over(tmp_path: Path) -> None:
    pair = await Pair.open(tmp_path, AccountSettings(throughput_mode="enforce"))
    try:
        await _made(pair)
        await _put(pair, 1)
        await pair.step()
        budget = _followed(pair).partitions[0].meter.budget
        assert budget is not None and budget.limit == 400 * 100
        offer = pair.leader.catalog.offer_of(pair.leader.container("db", "c").record)
        assert offer is not None
        await offers.set_throughput(pair.leader, offer, Throughput.manual(1000))
        await pair.step()
        assert budget.limit == 1000 * 100
        reading = [items.read(_followed(pair), "i1", ItemOptions(key=Key(("k1",)))) for _ in range(1100)]
        refused = [each for each in await asyncio.gather(*reading, return_exceptions=True) if isinstance(each, Failure)]
        assert refused and all(each.kind is Kind.THROTTLED for each in refused), "it throttles what it serves itself"
    finally:
        await pair.close()


async def test_lsns_of_deleted_containers_are_not_given_out_again(pair: Pair) -> None:
    container = await _made(pair)
    await _put(pair, *range(9))
    lsn = container.partitions[0].lsn
    await containers.delete_container(pair.leader, container, None)
    await pair.step()
    await pair.leader.close()
    pair.leader = await Account.open(pair.leading_engine, pair.clock)
    assert pair.leader.highest_lsn == pair.follower.highest_lsn == lsn
    assert (await _made(pair)).partitions[0].lsn == lsn


async def test_roles_change_without_a_restart(pair: Pair) -> None:
    await _made(pair)
    await _put(pair, *range(40))
    await pair.step()
    before = asyncio.all_tasks()
    ended = Failure(Kind.UNAVAILABLE, "This node has changed its role. Try again.", retry_after_ms=100)
    cursors = []
    for account in (pair.leader, pair.follower):
        container = account.container("db", "c")
        bound = compile_query("SELECT * FROM c", ()).bind({}, container.query_context())
        cursor = MergedQuery(account, container, bound, FeedOptions(page_items=10))
        await cursor.page()
        cursors.append((cursor, container))
    await pair.exchange(ended)
    for cursor, container in cursors:
        with pytest.raises(Failure) as caught:
            await cursor.page()
        assert (caught.value.kind, caught.value.retry_after_ms) == (Kind.UNAVAILABLE, 100)
        for reading in (
            items.read(container, "i1", ItemOptions(key=Key(("k1",)))),
            items.upsert(container, {"id": "i1", "pk": "k1"}, ItemOptions(key=Key(("k1",))), pair.clock),
        ):
            with pytest.raises(Failure) as caught:
                await reading
            assert caught.value.kind is Kind.UNAVAILABLE
    await _put(pair, *range(40, 50))
    await pair.step()
    assert len(await _rows(pair.follower, _followed(pair), "SELECT * FROM c")) == 50
    await pair.exchange(ended)
    await _put(pair, *range(50, 60))
    await pair.step()
    assert len(await _rows(pair.follower, _followed(pair), "SELECT * FROM c")) == 60
    assert len(asyncio.all_tasks()) == len(before), "nothing of the former roles is left running"
