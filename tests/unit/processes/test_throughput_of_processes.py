"""Throughput over several processes: what they share is spent once, and figures are those of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.server_processes import OneProcess, ServerProcesses, server_processes

from armillary import limits
from armillary.account import containers
from armillary.account.catalog.allocation import place_of_store
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.throughput import offers
from armillary.account.throughput.provisioning import Throughput
from armillary.errors import Failure, Kind
from armillary.partition.budget import Ask

KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}


@pytest.fixture
async def server() -> AsyncIterator[ServerProcesses]:
    async with server_processes(throughput_mode="enforce") as server:
        yield server


async def shared_database(server: ServerProcesses, ru: int, *names: str) -> list[Container]:
    account = server.first
    database = await containers.create_database(account, {"id": "shared"}, Throughput.manual(ru))
    made = []
    for name in names:
        body = {"id": name, "partitionKey": KEY}
        made.append(await containers.create_container(account, database, body, None))
    return made


async def told(server: ServerProcesses) -> None:
    """What was spent has arrived everywhere."""
    server.clock.advance(limits.SPENDING_TELL_SECONDS)
    for _ in range(20):
        await asyncio.sleep(0)


async def put(process: OneProcess, name: str, key: str, ask: Ask | None = None, database: str = "shared") -> float:
    container = process.account.container(database, name)
    document = {"id": "a", "pk": key, "text": "x" * 500}
    options = ItemOptions(key=container.key_of(document), ask=ask)
    return (await items.upsert(container, document, options, process.clock)).charge_ru


def key_at(container: Container, place: int) -> str:
    for number in range(1_000):
        epk = container.effective_key(container.key_of({"pk": f"k{number}"}))
        if place_of_store(container.map.find(epk).store) == place:
            return f"k{number}"
    raise AssertionError("this process has no partition of it")


async def test_a_database_spends_its_throughput_once(server: ServerProcesses) -> None:
    """Its containers have one partition each, in different processes, and all lie in the one partition of its budget:
    a second brings 400 request units, whichever containers take them."""
    made = await shared_database(server, 400, "a")
    made += [await move(server, name, place) for place, name in enumerate("bc", 1)]
    places = {each.name: place_of_store(each.map.ranges[0].store) for each in made}
    assert set(places.values()) == {0, 1, 2}
    await told(server)
    spent = 0.0
    for _ in range(100):  # ten seconds
        for name in places:
            for turn in range(20):
                try:
                    spent += await put(server[turn % 3], name, "k")
                except Failure as failure:
                    assert failure.kind is Kind.THROTTLED  # noqa: PT017
                    break
        await told(server)
    assert 3_600 <= spent <= 10 * 400 + 400
    await server.first.refresh_figures()


async def move(server: ServerProcesses, name: str, place: int) -> Container:
    """A container of the shared database whose partition is in a certain process: others were made there before."""
    account = server.first
    database = account.database("shared")
    places = account.places_for
    account.places_for = lambda database, count, planned=(): [place] * count  # type: ignore[method-assign]
    try:
        return await containers.create_container(account, database, {"id": name, "partitionKey": KEY}, None)
    finally:
        account.places_for = places  # type: ignore[method-assign]


async def test_requests_about_databases_have_one_budget(server: ServerProcesses) -> None:
    budgets = [each.account.budgets for each in server.processes]
    await told(server)
    budgets[0].count_metadata(limits.METADATA_RU + 50)
    await told(server)
    for each in budgets[1:]:
        with pytest.raises(Failure) as throttled:
            each.metadata.admit()
        assert throttled.value.kind is Kind.THROTTLED
    server.clock.advance(2)
    for each in budgets:
        each.metadata.admit()


async def test_every_process_says_where_an_autoscale_range_stands(server: ServerProcesses) -> None:
    account = server.first
    database = await containers.create_database(account, {"id": "db"}, None)
    made = await containers.create_container(
        account, database, {"id": "c", "partitionKey": KEY}, Throughput.autoscale(30_000, None)
    )
    assert {place_of_store(each.store) for each in made.map.ranges} == {0, 1, 2}
    for _ in range(150):
        await put(server[0], "c", key_at(made, 2), database="db")
    server.clock.advance(1)
    shown = []
    for process in server.processes:
        await process.account.refresh_figures()
        container = process.account.container("db", "c")
        offer = offers.offer_of(process.account, container.record)
        assert offer is not None
        shown.append(offers.offer_content(process.account, offer)["content"]["offerThroughput"])
    assert shown[0] == shown[1] == shown[2] > 3_000


async def test_the_least_throughput_follows_what_all_processes_store(server: ServerProcesses) -> None:
    """Also where it is changed in a process that has not been told of figures before."""
    account = server.first
    database = await containers.create_database(account, {"id": "db"}, None)
    made = await containers.create_container(
        account, database, {"id": "c", "partitionKey": KEY}, Throughput.manual(30_000)
    )
    for partition in server[2].account.container("db", "c").partitions.values():
        if not partition.is_elsewhere:
            partition.head.size_bytes = 5_000 * limits.GB
    process = server[1]
    offer = offers.offer_of(process.account, process.account.container("db", "c").record)
    assert offer is not None
    with pytest.raises(Failure) as refused:
        await offers.set_throughput(process.account, offer, Throughput.manual(1_000))
    assert "less than required minimum" in refused.value.message
    assert {place_of_store(each.store) for each in made.map.ranges} == {0, 1, 2}


async def test_all_refusals_and_keys_are_counted_once(server: ServerProcesses) -> None:
    """The sum of what answers say is what all meters have counted, and the busiest keys are those of all processes,
    whichever process the requests came to."""
    account = server.first
    database = await containers.create_database(account, {"id": "db"}, None)
    made = await containers.create_container(
        account, database, {"id": "c", "partitionKey": KEY}, Throughput.manual(30_000)
    )
    keys = [key_at(made, place) for place in (0, 1, 2)]
    charged, counts = 0.0, {"done": 0, "refused": 0}
    for partition_count in range(3_000):
        place = partition_count % 3
        try:
            charged += await put(server[(place + 1) % 3], "c", keys[place], database="db")
            counts["done"] += 1
        except Failure as failure:
            assert (failure.kind, bool(failure.retry_after_ms)) == (Kind.THROTTLED, True)  # noqa: PT017
            charged += failure.charge_ru
            counts["refused"] += 1
    assert counts["refused"] > 0
    await account.refresh_figures(10)
    meters = [each.meter for each in account.container("db", "c").partitions.values()]
    totals = [each.totals for each in meters]
    assert sum(each.requests for each in totals) == 3_000
    assert sum(each.refused for each in totals) == counts["refused"]
    assert sum(each.charged_ru for each in totals) == pytest.approx(charged)
    epks = {made.effective_key(made.key_of({"pk": key})) for key in keys}
    assert {epk for each in meters for epk, _ in each.top_keys(1)} == epks


async def test_low_priority_gives_way_in_the_process_of_the_partition(server: ServerProcesses) -> None:
    account = server.first
    database = await containers.create_database(account, {"id": "db"}, None)
    made = await containers.create_container(
        account, database, {"id": "c", "partitionKey": KEY}, Throughput.manual(30_000)
    )
    key = key_at(made, 2)

    async def until_refused(ask: Ask | None) -> float:
        spent = 0.0
        try:
            while True:
                spent += await put(server[0], "c", key, ask, database="db")
        except Failure as failure:
            assert failure.kind is Kind.THROTTLED  # noqa: PT017
        return spent

    server.clock.advance(1)
    high: float = 0
    for _ in range(500):
        high += await put(server[1], "c", key, database="db")
    server.clock.advance(1)
    low = await until_refused(Ask(is_low=True))
    assert low == pytest.approx(30_000 / len(made.partitions) - high, abs=50)
    assert await until_refused(None) == pytest.approx(high, abs=50)
