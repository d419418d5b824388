"""Throughput of containers and databases: who gets how much of it, what is refused, what may be asked for."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.house import AccountHouse
from support.merged_query import MergedQuery
from support.passing_time import passing

from armillary import limits
from armillary.account import containers
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.bulk import run_bulk
from armillary.account.items.items import ItemOptions, Member
from armillary.account.queries import item_pages
from armillary.account.registry import AccountSettings
from armillary.account.throughput import offers, provisioning
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.key_values import Key
from armillary.model.patch import parse_patch
from armillary.partition.budget import Ask
from armillary.partition.meter import Totals
from armillary.partition.operations import Verb
from armillary.storage.memory import MemoryEngine

KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}


class House(AccountHouse[VirtualClock]):
    async def database(self, name: str = "db", wanted: Throughput | None = None) -> Any:
        return await containers.create_database(self.account, {"id": name}, wanted)

    async def container(
        self, name: str, database: Any, wanted: Throughput | None = None, *, has_key: bool = True
    ) -> Container:
        body = {"id": name, "partitionKey": KEY} if has_key else {"id": name}
        return await containers.create_container(self.account, database, body, wanted, is_old_client=not has_key)

    async def write(self, container: Container, item_id: str, key: str, **options: Any) -> float:
        answer = await items.create(
            container, {"id": item_id, "pk": key}, ItemOptions(key=Key((key,)), **options), self.clock
        )
        return answer.charge_ru

    async def read(self, container: Container, key: str, ask: Ask | None = None) -> float:
        return (await items.read(container, "1", ItemOptions(key=Key((key,)), ask=ask))).charge_ru


@asynccontextmanager
async def a_house(**settings: Any) -> AsyncIterator[House]:
    wanted = AccountSettings(**{"throughput_mode": "enforce", **settings})
    house = await House.begin(MemoryEngine(), VirtualClock(start_s=6_000_000.25), wanted)
    yield house
    await house.close()


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with a_house() as opened:
        yield opened


async def until_refused(work: Callable[[], Awaitable[float]], most: int = 100_000) -> tuple[float, Failure]:
    """What was charged until the first refusal, and that."""
    charged_ru = 0.0
    for _ in range(most):
        try:
            charged_ru += await work()
        except Failure as failure:
            if failure.kind is not Kind.THROTTLED:
                raise
            return charged_ru, failure
    raise AssertionError("nothing was refused")


async def refusal(work: Awaitable[Any]) -> Failure:
    with pytest.raises(Failure) as caught:
        await work
    return caught.value


def keys_by_partition(container: Container, count: int = 1) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {range_id: [] for range_id in container.partitions}
    number = 0
    while any(len(keys) < count for keys in found.values()):
        key = f"k{number}"
        found[container.partition_for(container.effective_key(Key((key,)))).range.id].append(key)
        number += 1
    return found


# Spending.


async def test_each_partition_has_its_share(house: House) -> None:
    container = await house.container("c", await house.database(), Throughput.manual(30_000))
    assert len(container.partitions) == 5
    keys = [own[0] for own in keys_by_partition(container).values()]
    for key in keys:
        await house.write(container, "1", key)
    house.clock.advance(1)
    hot, *others = keys
    charged_ru, failure = await until_refused(lambda: house.read(container, hot))
    assert charged_ru == 6000
    assert (failure.retry_after_ms, failure.charge_ru) == (750, 0.38)
    assert "Request rate is large" in failure.message
    for other in others:
        assert await house.read(container, other) == 1
    house.clock.advance(0.75)
    assert await house.read(container, hot) == 1


async def test_a_hot_key_gets_its_share_over_ten_seconds(house: House) -> None:
    """Three times what its partition has, evenly spread; the others see nothing of it."""
    container = await house.container("c", await house.database(), Throughput.manual(11_000))
    hot, cold = (own[0] for own in keys_by_partition(container).values())
    for key in (hot, cold):
        await house.write(container, "1", key)
    house.clock.advance(0.75)
    share_ru = 5500
    served_ru = refused = cold_served = 0.0
    for number in range(10 * 3 * share_ru):
        house.clock.advance(1 / (3 * share_ru))
        try:
            served_ru += await house.read(container, hot)
        except Failure as failure:
            refused += failure.kind is Kind.THROTTLED
        if number % 10 == 0:
            cold_served += await house.read(container, cold)
    assert served_ru == pytest.approx(10 * share_ru, rel=0.01)
    assert refused == 10 * 3 * share_ru - served_ru
    assert cold_served == 3 * share_ru


async def test_bulk_operations_are_refused_one_by_one_and_batches_as_a_whole(house: House) -> None:
    container = await house.container("c", await house.database(), Throughput.manual(400))

    def members(prefix: str, count: int) -> list[Member]:
        return [
            Member(Verb.CREATE, document={"id": f"{prefix}{number}", "pk": "a"}, options=ItemOptions(key=Key(("a",))))
            for number in range(count)
        ]

    answer = await run_bulk(container, "0", members("a", 100), house.clock)
    refused = [each for each in answer.members if isinstance(each, Failure)]
    done = [each for each in answer.members if not isinstance(each, Failure)]
    assert len(done) == 75  # the last one overdraws: 75 at 5.4 RU are 405
    assert {each.kind for each in refused} == {Kind.THROTTLED}
    assert all(each.retry_after_ms == 750 for each in refused)
    assert answer.charge_ru == pytest.approx(75 * 5.4 + 25 * 0.38)
    assert (await refusal(items.batch(container, Key(("a",)), members("b", 2), ItemOptions(), house.clock))).kind is (
        Kind.THROTTLED
    )
    house.clock.advance(0.75)
    batch = await items.batch(container, Key(("a",)), members("b", 2), ItemOptions(), house.clock)
    assert batch.is_done


async def test_pages_are_refused_too_and_end_before_partitions_that_have_nothing_left(house: House) -> None:
    container = await house.container("c", await house.database(), Throughput.manual(11_000))
    first, second = (own[0] for own in keys_by_partition(container).values())
    for key in (first, second):
        await house.write(container, "1", key)
    house.clock.advance(1)
    await until_refused(lambda: house.read(container, second))
    page = await item_pages.read_feed(house.account, container, FeedOptions())
    assert (len(page.rows), page.charge_ru) == (1, 1)
    rest = FeedOptions(continuation=page.continuation)
    assert (await refusal(item_pages.read_feed(house.account, container, rest))).kind is Kind.THROTTLED
    refused_before = container.partitions[1].meter.totals.refused
    bound = compile_query("SELECT * FROM c ORDER BY c.id", ()).bind({}, container.query_context())
    gathering = MergedQuery(house.account, container, bound, FeedOptions())
    assert (await refusal(gathering.page())).kind is Kind.THROTTLED
    assert container.partitions[1].meter.totals.refused == refused_before + 1
    house.clock.advance(1)
    page = await item_pages.read_feed(house.account, container, rest)
    assert (len(page.rows), page.continuation) == (1, None)


async def test_databases_share_among_their_containers(house: House) -> None:
    database = await house.database(wanted=Throughput.manual(1000))
    one, two = [await house.container(name, database) for name in ("one", "two")]
    own = await house.container("own", database, Throughput.manual(500))
    for container in (one, two, own):
        await house.write(container, "1", "a")
    house.clock.advance(1)
    charged_ru, _ = await until_refused(lambda: house.read(one, "a"))
    assert charged_ru == 1000
    assert (await refusal(house.read(two, "a"))).kind is Kind.THROTTLED
    charged_ru, _ = await until_refused(lambda: house.read(own, "a"))
    assert charged_ru == 500
    await house.account.budgets.set_mode(two, "observe")
    assert await house.read(two, "a") == 1


async def test_changing_an_offer_takes_effect_at_once(house: House) -> None:
    container = await house.container("c", await house.database(), Throughput.manual(400))
    await house.write(container, "1", "a")
    house.clock.advance(1)
    await until_refused(lambda: house.read(container, "a"))
    offer = offers.offer_of(house.account, container.record)
    assert offer is not None
    await replaced(house, offer, 1000)
    charged_ru, _ = await until_refused(lambda: house.read(container, "a"))
    assert charged_ru == 600


async def replaced(house: House, offer: Any, ru: int, **more: Any) -> Any:
    wanted = {"content": {"offerThroughput": ru, **more}}
    return await offers.replace_offer(house.account, offer, wanted, to_autoscale=False, to_manual=False, if_match=None)


async def test_autoscale_admits_up_to_the_maximum_and_says_where_it_stands(house: House) -> None:
    container = await house.container("c", await house.database(), Throughput.autoscale(20_000, None))
    assert len(container.partitions) == 2
    first = keys_by_partition(container)[0][0]
    await house.write(container, "1", first)
    offer = offers.offer_of(house.account, container.record)
    assert offer is not None
    house.clock.advance(5)
    shown = offers.offer_content(house.account, offer)["content"]
    assert (shown["offerThroughput"], shown["offerAutopilotSettings"]["maxThroughput"]) == (2000, 20_000)
    charged_ru, _ = await until_refused(lambda: house.read(container, first))
    assert charged_ru == 10_000
    house.clock.advance(1)
    assert offers.offer_content(house.account, offer)["content"]["offerThroughput"] == 20_000
    for _ in range(3000):
        await house.read(container, first)
    house.clock.advance(1)
    assert offers.offer_content(house.account, offer)["content"]["offerThroughput"] == 6000
    house.clock.advance(10)
    assert offers.offer_content(house.account, offer)["content"]["offerThroughput"] == 2000
    assert house.account.budgets.billed_ru(offer) == 20_000
    house.clock.advance(3600)
    assert (house.account.budgets.billed_ru(offer), house.account.budgets.billed_ru(offer, 1)) == (2000, 20_000)


async def test_what_needs_more_partitions_is_pending_until_there_are_enough(house: House) -> None:
    container = await house.container("c", await house.database(), Throughput.manual(400))
    await house.write(container, "1", "a")
    offer = offers.offer_of(house.account, container.record)
    house.account.reshaper.pause(["held"])
    offer = await replaced(house, offer, 25_000)
    assert offers.is_pending(house.account, offer)
    content = offers.offer_content(house.account, offer)["content"]
    assert (content["offerThroughput"], content["isOfferReplacePending"]) == (25_000, True)
    # Until then what was provisioned before is served.
    house.clock.advance(1)
    charged_ru, _ = await until_refused(lambda: house.read(container, "a"))
    assert charged_ru == 400
    house.account.reshaper.pause([])
    await passing(house.clock, house.account.reshaper.grown(container))
    assert len(container.partitions) == 3
    assert not offers.is_pending(house.account, offer)
    assert "isOfferReplacePending" not in offers.offer_content(house.account, offer)["content"]
    house.clock.advance(10)
    charged_ru, _ = await until_refused(lambda: house.read(container, "a"))
    assert charged_ru == 8334  # a third, and the last one overdraws


async def test_a_pending_offer_goes_on_after_a_restart(house: House) -> None:
    database = await house.database(wanted=Throughput.manual(400))
    container = await house.container("c", database)
    house.account.reshaper.pause(["held"])
    await replaced(house, offers.offer_of(house.account, database), 11_000)
    await house.reopen()
    account = house.account
    container = account.container("db", "c")
    await passing(house.clock, account.reshaper.grown(container))
    offer = offers.offer_of(account, account.database("db"))
    assert offer is not None
    assert not offers.is_pending(account, offer)
    assert [each.meter.budget.limit for each in container.partitions.values() if each.meter.budget] == [550_000] * 2
    # Less again: nothing more is split.
    account.reshaper.pause(["held"])
    await replaced(house, offer, 50_000)
    await replaced(house, offer, 800)
    assert not account.reshaper.is_growing(container)
    assert not offers.is_pending(account, offer)


async def test_serverless() -> None:
    async with a_house(is_serverless=True) as house:
        database = await house.database()
        for work in (house.container("c", database, Throughput.manual(400)), house.database("other", Throughput(400))):
            assert "is not supported for serverless accounts" in (await refusal(work)).message
        container = await house.container("c", database)
        await house.write(container, "1", "a")
        house.clock.advance(1)
        charged_ru, _ = await until_refused(lambda: house.read(container, "a"))
        assert charged_ru == 5000


async def test_units_per_minute(house: House) -> None:
    container = await house.container("c", await house.database(), Throughput.manual(400, has_minute_pool=True))
    await house.write(container, "1", "a")
    house.clock.advance(60)
    charged_ru, _ = await until_refused(lambda: house.read(container, "a"))
    assert charged_ru == 400 + 4000
    offer = offers.offer_of(house.account, container.record)
    assert offer is not None
    assert offer.body["content"]["offerIsRUPerMinuteThroughputEnabled"] is True
    failure = await refusal(replaced(house, offer, 5100, offerIsRUPerMinuteThroughputEnabled=True))
    assert "at most 5000 RU/s per partition" in failure.message
    await replaced(house, offer, 5100)
    house.clock.advance(60)
    charged_ru, _ = await until_refused(lambda: house.read(container, "a"))
    assert charged_ru == 5100


async def test_burst_is_a_policy() -> None:
    async with a_house(has_burst=True) as house:
        container = await house.container("c", await house.database(), Throughput.manual(400))
        await house.write(container, "1", "a")
        house.clock.advance(300)
        charged_ru, _ = await until_refused(lambda: house.read(container, "a"))
        assert charged_ru == 3000


async def test_modes_of_containers_and_buckets_are_kept() -> None:
    async with a_house(throughput_mode="observe") as house:
        container = await house.container("c", await house.database(), Throughput.manual(400))
        await house.write(container, "1", "a")
        await house.account.budgets.set_mode(container, "enforce")
        await house.account.budgets.set_buckets(container, {1: 25})
        for _ in range(2):
            container = house.account.container("db", "c")
            house.clock.advance(1)
            charged_ru, _ = await until_refused(lambda: house.read(container, "a", Ask(bucket=1)))  # noqa: B023
            assert charged_ru == 100
            assert house.account.budgets.mode_of(container) == "enforce"
            await house.reopen()
        budgets, container = house.account.budgets, house.account.container("db", "c")
        await budgets.set_mode(container, None)
        assert budgets.mode_of(container) == "observe"
        for wrong in ({0: 10}, {6: 10}, {1: 0}, {1: 101}):
            assert "Throughput buckets are 1 to 5" in (await refusal(budgets.set_buckets(container, wrong))).message
        assert "one of enforce, observe, off" in (await refusal(budgets.set_mode(container, "loud"))).message


# What may be asked for.


@pytest.mark.parametrize(
    ("wanted", "highest_ru", "storage_gb", "sharing", "least_ru"),
    [
        (Throughput(400), 400, 0, 0, 400),
        (Throughput(400), 50_000, 20, 0, 500),
        (Throughput(400), 400, 2000, 0, 2000),
        (Throughput(400), 45_100, 0, 0, 500),
        (Throughput(400), 400, 0, 30, 900),
        (Throughput(400), 400, 0, 25, 400),
        (Throughput(1000, is_autoscale=True), 50_000, 20, 0, 5000),
        (Throughput(1000, is_autoscale=True), 1000, 0, 30, 6000),
        (Throughput(1000, is_autoscale=True), 1000, 101, 0, 2000),
    ],
)
def test_minimums(wanted: Throughput, highest_ru: int, storage_gb: int, sharing: int, least_ru: int) -> None:
    assert provisioning.minimum(wanted, highest_ru, storage_gb * limits.GB, sharing).ru == least_ru


async def test_scaling_up_leaves_a_floor_behind(house: House) -> None:
    container = await house.container("c", await house.database(), Throughput.manual(100_000))
    offer = offers.offer_of(house.account, container.record)
    assert offer is not None
    failure = await refusal(replaced(house, offer, 900))
    assert "less than required minimum throughput 1000" in failure.message
    assert "up to 100000 RU/s were provisioned" in failure.message
    offer = await replaced(house, offer, 1000)
    assert offers.minimum_ru(house.account, offer) == 1000


async def test_migrations_choose_what_is_possible_and_changes_are_whole_or_refused(house: House) -> None:
    container = await house.container("c", await house.database(), Throughput.manual(90_000))
    offer = offers.offer_of(house.account, container.record)
    assert offer is not None
    offer = await offers.set_throughput(house.account, offer, Throughput.manual(900))
    failure = await refusal(offers.set_throughput(house.account, offer, Throughput.autoscale(8000, None)))
    assert "less than required minimum throughput 9000" in failure.message
    offer = offers.offer_of(house.account, container.record)
    assert offer is not None and provisioning.throughput_of(offer.body) == Throughput(900)  # nothing half done
    offer = await offers.replace_offer(
        house.account, offer, None, to_autoscale=True, to_manual=False, if_match=None
    )  # which does not say how much
    assert provisioning.throughput_of(offer.body) == Throughput(9000, is_autoscale=True)
    settings = {"maxThroughput": 10_000, "autoUpgradePolicy": {"throughputPolicy": {"incrementPercent": 10}}}
    wanted = {"content": {"offerAutopilotSettings": settings}}
    offer = await offers.replace_offer(house.account, offer, wanted, to_autoscale=False, to_manual=False, if_match=None)
    offer = await offers.set_throughput(house.account, offer, Throughput.autoscale(11_000, None))
    assert provisioning.throughput_of(offer.body) == Throughput(11_000, is_autoscale=True, increment_percent=10)
    offer = await offers.set_throughput(house.account, offer, Throughput.manual(1000))
    assert provisioning.throughput_of(offer.body) == Throughput(1000)
    minutes = {"content": {"offerThroughput": 1000, "offerIsRUPerMinuteThroughputEnabled": True}}
    offer = await offers.replace_offer(
        house.account, offer, minutes, to_autoscale=False, to_manual=False, if_match=None
    )
    offer = await offers.set_throughput(house.account, offer, Throughput.manual(1200))
    assert provisioning.throughput_of(offer.body) == Throughput(1200, has_minute_pool=True)


@pytest.mark.parametrize(
    "settings",
    [
        [],
        {},
        {"maxThroughput": "4000"},
        {"maxThroughput": 4000, "autoUpgradePolicy": "yes"},
        {"maxThroughput": 4000, "autoUpgradePolicy": {"throughputPolicy": 10}},
        {"maxThroughput": 4000, "autoUpgradePolicy": {"throughputPolicy": {"incrementPercent": 101}}},
        {"maxThroughput": 4000, "autoUpgradePolicy": {"throughputPolicy": {"incrementPercent": "1"}}},
    ],
)
def test_autoscale_settings_that_are_refused(settings: Any) -> None:
    with pytest.raises(Failure) as caught:
        provisioning.parse_autopilot(settings)
    assert caught.value.kind is Kind.BAD_REQUEST


async def test_fixed_containers_are_limited(house: House) -> None:
    database = await house.database()
    failure = await refusal(house.container("c", database, Throughput.manual(10_100), has_key=False))
    assert "manual throughput of 400 to 10000 RU/s" in failure.message
    container = await house.container("c", database, Throughput.manual(10_000), has_key=False)
    offer = offers.offer_of(house.account, container.record)
    failure = await refusal(replaced(house, offer, 10_100))
    assert "manual throughput of 400 to 10000 RU/s" in failure.message


async def test_at_most_25_containers_share(house: House) -> None:
    database = await house.database(wanted=Throughput.manual(400))
    for number in range(25):
        await house.container(f"c{number}", database)
    assert "the most are 25" in (await refusal(house.container("more", database))).message
    await house.container("more", database, Throughput.manual(400))


# Counting.


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["enforce", "observe", "off"])
async def test_what_meters_count_is_what_was_answered(seed: int, mode: str) -> None:
    """A random mix of everything that is charged, refusals and failures included: the sums are the same to the
    hundredth."""
    print("seed", seed)
    dice = random.Random(seed)
    async with a_house(throughput_mode=mode, partition_throughput_ru=1000) as house:
        container = await house.container("c", await house.database(), Throughput.manual(1200))
        answered = 0
        would_count = refused = 0

        async def one() -> float:
            key = f"k{dice.randrange(20)}"
            item_id = f"i{dice.randrange(5)}"
            options = ItemOptions(key=Key((key,)))
            text = "x" * dice.randrange(5000)
            document = {"id": item_id, "pk": key, "text": text, "n": dice.randrange(9)}
            match dice.randrange(10):
                case 0:
                    return (await items.create(container, document, options, house.clock)).charge_ru
                case 1:
                    return (await items.upsert(container, document, options, house.clock)).charge_ru
                case 2:
                    options.if_match = '"no"' if dice.random() < 0.5 else None
                    return (await items.replace(container, item_id, document, options, house.clock)).charge_ru
                case 3:
                    changes = parse_patch([{"op": "set", "path": "/n", "value": 1}])
                    return (await items.patch(container, item_id, changes, options)).charge_ru
                case 4:
                    return (await items.delete(container, item_id, options)).charge_ru
                case 5:
                    options.session = {0: 10**9} if dice.random() < 0.3 else None
                    return (await items.read(container, item_id, options)).charge_ru
                case 6:
                    return (await item_pages.read_feed(house.account, container, FeedOptions(page_items=30))).charge_ru
                case 7:
                    bound = compile_query(
                        dice.choice(
                            ["SELECT * FROM c WHERE c.n = 3", "SELECT 1", f"SELECT c.id FROM c WHERE c.pk='{key}'"]
                        ),
                        (),
                    ).bind({}, container.query_context())
                    return (await item_pages.query(house.account, container, bound, b"q", FeedOptions())).charge_ru
                case 8:
                    bound = compile_query("SELECT c.n, COUNT(1) AS k FROM c GROUP BY c.n", ()).bind(
                        {}, container.query_context()
                    )
                    return (await MergedQuery(house.account, container, bound, FeedOptions()).page()).charge_ru
                case _:
                    members = [
                        Member(dice.choice([Verb.CREATE, Verb.UPSERT]), document={**document, "id": f"m{number}"})
                        for number in range(dice.randrange(1, 4))
                    ]
                    if dice.random() < 0.5:
                        return (await items.batch(container, Key((key,)), members, options, house.clock)).charge_ru
                    for member in members:
                        member.options = ItemOptions(key=Key((key,)))
                    range_id = str(container.partition_for(container.effective_key(Key((key,)))).range.id)
                    return (await run_bulk(container, range_id, members, house.clock)).charge_ru

        for _ in range(800):
            house.clock.advance(dice.random() / 100)
            try:
                charge_ru = await one()
            except Failure as failure:
                charge_ru = failure.charge_ru
                refused += failure.kind is Kind.THROTTLED
            hundredths = int(f"{charge_ru:.2f}".replace(".", ""))
            assert charge_ru == pytest.approx(hundredths / 100)
            answered += hundredths
        totals = Totals()
        for partition in container.partitions.values():
            totals = totals.plus(partition.meter.totals)
        assert totals.charged == answered
        assert (totals.refused >= refused > 0) is (mode == "enforce")
        would_count = totals.would_be_refused
        assert (would_count > 0) is (mode == "observe")


async def test_metadata_has_a_budget_of_its_own(house: House) -> None:
    metadata = house.account.budgets.metadata

    async def one() -> float:
        ticket = metadata.admit()
        return metadata.spend(2, None, ticket)

    charged_ru, failure = await until_refused(one)
    assert charged_ru == limits.METADATA_RU
    assert "metadata" in failure.message
