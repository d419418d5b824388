"""Rules of faults through the account: which requests they hit, how often, and what is done to those."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from support.merged_query import MergedQuery
from support.passing_time import passing

from armillary import limits
from armillary.account import containers, faults
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.faults import FaultRule
from armillary.account.items import items
from armillary.account.items.bulk import run_bulk
from armillary.account.items.items import ItemOptions, Member
from armillary.account.queries import item_pages
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import MovableClock, VirtualClock
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.key_values import Key
from armillary.model.resources import ResourceType
from armillary.partition.operations import Verb
from armillary.storage.memory import MemoryEngine

PARTITION_KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}
CLOCK = VirtualClock()


@pytest.fixture
async def account() -> AsyncIterator[Account]:
    engine = MemoryEngine()
    opened = await Account.open(engine, CLOCK)
    yield opened
    await opened.close()
    await engine.close()


async def make(account: Account, name: str = "c", throughput_ru: int = 400) -> Container:
    found = [each for each in account.catalog.of_type(ResourceType.DATABASE) if each.name == "d"]
    database = found[0] if found else await containers.create_database(account, {"id": "d"}, None)
    body = {"id": name, "partitionKey": PARTITION_KEY}
    return await containers.create_container(account, database, body, Throughput.manual(throughput_ru))


async def put(container: Container, key: str, item_id: str = "i", verb: Any = items.upsert) -> None:
    await verb(container, {"id": item_id, "pk": key}, ItemOptions(), CLOCK)


async def outcomes(container: Container, key: str, count: int) -> list[Kind | None]:
    """What becomes of so many writes."""
    kinds: list[Kind | None] = []
    for _ in range(count):
        try:
            await put(container, key)
            kinds.append(None)
        except Failure as failure:
            kinds.append(failure.kind)
    return kinds


async def query(account: Account, container: Container, **options: Any) -> int:
    bound = compile_query("SELECT * FROM c").bind({}, container.query_context())
    page = await item_pages.query(account, container, bound, b"q", FeedOptions(**options))
    return len(page.rows)


async def test_without_rules_containers_have_nothing_to_ask(account: Account) -> None:
    first = await make(account)
    assert first.faults is None
    rule = account.faults.add(FaultRule(kind=Kind.THROTTLED))
    assert first.faults is account.faults
    assert (await make(account, "later")).faults is account.faults
    account.faults.remove(rule.id)
    assert first.faults is None


async def test_every_seventh_write_to_a_key(account: Account) -> None:
    container = await make(account)
    rule = FaultRule(frozenset({"upsert"}), key=Key(("K",)), every=7, kind=Kind.THROTTLED, retry_after_ms=20)
    account.faults.add(rule)
    expected = [None] * 6 + [Kind.THROTTLED]
    assert await outcomes(container, "K", 21) == expected * 3
    assert await outcomes(container, "other", 14) == [None] * 14
    assert (rule.seen, rule.hits) == (21, 3)
    assert await outcomes(container, "K", 6) == expected[:6]
    with pytest.raises(Failure) as caught:
        await put(container, "K")
    assert caught.value.retry_after_ms == 20


async def test_the_next_three_after_two(account: Account) -> None:
    container = await make(account)
    rule = account.faults.add(FaultRule(skip=2, count=3, kind=Kind.UNAVAILABLE))
    assert await outcomes(container, "K", 7) == [None, None, *[Kind.UNAVAILABLE] * 3, None, None]
    assert rule.is_spent and rule.hits == 3


async def test_a_chance_is_the_same_with_the_same_seed(account: Account) -> None:
    container = await make(account)
    rows = []
    for rule_seed in (1, 1, 2):
        rule = account.faults.add(FaultRule(probability=0.3, seed=rule_seed, kind=Kind.RETRY_WITH))
        rows.append(await outcomes(container, "K", 200))
        account.faults.remove(rule.id)
    assert rows[0] == rows[1] != rows[2]
    assert 30 < rows[0].count(Kind.RETRY_WITH) < 90


async def test_only_the_named_container_and_range(account: Account) -> None:
    container, other = await make(account, throughput_ru=18_000), await make(account, "other", 18_000)
    assert len(container.partitions) == 3
    rule = FaultRule(container="c", database="d", range_id=1, kind=Kind.RANGE_GONE)
    account.faults.add(rule)
    keys = [f"k{number}" for number in range(60)]
    hit = [key for key in keys if await outcomes(container, key, 1) == [Kind.RANGE_GONE]]
    assert hit == [key for key in keys if container.partition_for(container.effective_key(Key((key,)))).range.id == 1]
    assert 0 < len(hit) < 60
    assert [key for key in keys if await outcomes(other, key, 1) != [None]] == []


async def test_a_key_of_another_form_is_no_match(account: Account) -> None:
    container = await make(account)
    account.faults.add(FaultRule(key=Key(("a", "b")), kind=Kind.THROTTLED))
    assert await outcomes(container, "a", 1) == [None]


async def test_operations_are_told_apart(account: Account) -> None:
    container = await make(account)
    await put(container, "K")
    keyed = ItemOptions(key=Key(("K",)))
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "read": lambda: items.read(container, "i", keyed),
        "upsert": lambda: put(container, "K"),
        "create": lambda: put(container, "K", "new", items.create),
        "replace": lambda: items.replace(container, "i", {"id": "i", "pk": "K"}, keyed, CLOCK),
        "delete": lambda: items.delete(container, "i", keyed),
        "batch": lambda: items.batch(container, Key(("K",)), [Member(Verb.READ, "i")], keyed, CLOCK),
        "query": lambda: query(account, container),
        "feed": lambda: item_pages.read_feed(account, container, FeedOptions()),
    }
    for name, call in calls.items():
        rule = account.faults.add(FaultRule(frozenset({name}), kind=Kind.TIMED_OUT))
        with pytest.raises(Failure) as caught:
            await call()
        assert caught.value.kind is Kind.TIMED_OUT
        account.faults.remove(rule.id)
        rule = account.faults.add(FaultRule(frozenset(faults.OPERATIONS) - {name}, kind=Kind.TIMED_OUT))
        await call()
        assert rule.seen == 0
        account.faults.remove(rule.id)
        await put(container, "K")


async def test_a_lost_answer_leaves_the_write_behind(account: Account) -> None:
    container = await make(account)
    account.faults.add(FaultRule(frozenset(faults.WRITES), kind=Kind.DROPPED, is_after=True))
    keyed = ItemOptions(key=Key(("K",)))
    with pytest.raises(Failure) as caught:
        await put(container, "K")
    assert caught.value.kind is Kind.DROPPED
    assert (await items.read(container, "i", keyed)).payload is not None
    with pytest.raises(Failure):
        await items.batch(container, Key(("K",)), [Member(Verb.DELETE, "i")], keyed, CLOCK)
    with pytest.raises(Failure) as caught:
        await items.read(container, "i", keyed)
    assert caught.value.kind is Kind.NOT_FOUND


async def test_members_of_a_bulk_request_fail_for_themselves(account: Account) -> None:
    container = await make(account)
    rule = account.faults.add(FaultRule(frozenset({"create"}), every=2, kind=Kind.THROTTLED))

    def members(prefix: str) -> list[Member]:
        keyed = ItemOptions(key=Key(("K",)))
        return [Member(Verb.CREATE, None, {"id": f"{prefix}{n}", "pk": "K"}, options=keyed) for n in range(4)]

    answer = await run_bulk(container, "0", members("a"), CLOCK)
    assert [getattr(each, "kind", None) for each in answer.members] == [None, Kind.THROTTLED, None, Kind.THROTTLED]
    account.faults.remove(rule.id)
    account.faults.add(FaultRule(frozenset({"create"}), kind=Kind.DROPPED))
    with pytest.raises(Failure):
        await run_bulk(container, "0", members("b"), CLOCK)


async def test_queries_are_hit_by_the_range_that_their_page_reads(account: Account) -> None:
    container = await make(account, throughput_ru=18_000)
    rule = account.faults.add(FaultRule(frozenset({"query"}), range_id=2, kind=Kind.RANGE_GONE))
    assert await query(account, container) == 0  # its first page is that of range 0
    assert rule.seen == 0
    with pytest.raises(Failure):
        await query(account, container, range_id="2")
    account.faults.remove(rule.id)
    account.faults.add(FaultRule(key=Key(("K",)), kind=Kind.THROTTLED))
    await query(account, container)
    with pytest.raises(Failure):
        await query(account, container, key=Key(("K",)))


async def test_gathered_queries_are_queries(account: Account) -> None:
    container = await make(account, throughput_ru=18_000)
    rule = account.faults.add(FaultRule(frozenset({"query"}), count=1, kind=Kind.UNAVAILABLE))
    bound = compile_query("SELECT * FROM c").bind({}, container.query_context())
    gathering = MergedQuery(account, container, bound, FeedOptions())
    with pytest.raises(Failure):
        await gathering.page()
    assert (await gathering.page()).rows == []
    assert rule.hits == 1


async def test_the_first_rule_that_hits_decides_and_delays_are_no_failures(account: Account) -> None:
    container = await make(account)
    slow = account.faults.add(FaultRule(delay_ms=250, count=1))
    failing = account.faults.add(FaultRule(kind=Kind.THROTTLED))
    began_s = CLOCK.now_s()
    assert await passing(CLOCK, outcomes(container, "K", 2)) == [None, Kind.THROTTLED]
    assert (slow.hits, failing.seen) == (1, 1)
    assert CLOCK.now_s() - began_s == 0.25


async def test_there_is_a_most_of_rules(account: Account) -> None:
    for _ in range(limits.FAULT_RULES_MAX):
        account.faults.add(FaultRule(kind=Kind.THROTTLED))
    with pytest.raises(Failure):
        account.faults.add(FaultRule(kind=Kind.THROTTLED))
    assert account.faults.clear() == limits.FAULT_RULES_MAX
    with pytest.raises(Failure):
        account.faults.remove(1)


def test_a_movable_clock_never_goes_back() -> None:
    clock = MovableClock()
    began_s, began_monotonic_s = clock.now_s(), clock.monotonic_s()
    clock.freeze()
    stood_s = clock.now_s()
    assert stood_s >= began_s and clock.now_s() == stood_s and clock.is_frozen
    clock.advance(3600)
    assert clock.now_s() == stood_s + 3600
    assert clock.monotonic_s() - began_monotonic_s >= 3600
    clock.thaw()
    clock.thaw()
    assert stood_s + 3600 <= clock.now_s() < stood_s + 3700
    assert 3500 < clock.ahead_s <= 3600
    assert not clock.is_frozen
