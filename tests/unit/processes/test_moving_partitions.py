"""A partition moves to another place, with its store, while requests run: as a split with one child."""

from __future__ import annotations

import asyncio

import pytest
from support.moving_load import Load, check
from support.moving_places import MovingPlaces, OneOf, moving_places
from support.passing_time import passing, passing_until

from armillary.account import containers
from armillary.account.catalog.allocation import place_of_store
from armillary.account.container import Container
from armillary.account.reshaping.split_and_merge import BEGUN, HELD, POINTS, SWITCHED
from armillary.account.throughput.provisioning import Throughput
from armillary.errors import Failure, Kind
from armillary.processes.divided_account import DividedAccount
from armillary.processes.divided_reshaper import DividedReshaper


def reshaper(one: OneOf) -> DividedReshaper:
    account: DividedAccount = one.account
    return account.divided_reshaper


def in_place(container: Container, place: int) -> list[int]:
    return [each.id for each in container.map.ranges if place_of_store(each.store) == place]


async def held_by(among: MovingPlaces, one: OneOf, *places: int) -> None:
    for place in places:
        if among.leaders[place] is not one:
            await among.hand_over(place, one)


async def test_a_partition_moves_under_load() -> None:
    async with moving_places(seed=1) as among:
        load = Load(among)
        container = await passing(among.clock, among.create())
        await passing(among.clock, held_by(among, among.processes[1], 1, 2))
        counts = [len(in_place(container, place)) for place in (1, 2)]
        range_id = in_place(container, 1)[0]

        async def move() -> None:
            loading = asyncio.create_task(load.run(moves=0, lasts_s=3.0))
            await among.clock.sleep(0.5)
            told = await reshaper(among.processes[0]).move_partition(container, range_id, 2)
            assert (told.kind, told.growth) == ("move", 0)
            await loading

        await passing(among.clock, move())
        await passing_until(among.clock, lambda: not container.state.reshapes, "the move ends")
        assert [len(in_place(container, place)) for place in (1, 2)] == [counts[0] - 1, counts[1] + 1]
        [moved] = container.map.descendants(range_id)
        assert moved.id != range_id
        assert place_of_store(moved.store) == 2
        await passing(among.clock, check(load))


async def test_what_cannot_be_moved_is_refused() -> None:
    async with moving_places() as among:
        container = await passing(among.clock, among.create())
        first = reshaper(among.processes[0])
        range_id = in_place(container, 1)[0]
        for place in (1, 3, -1):
            with pytest.raises(Failure, match=f"cannot be moved to {place}") as refused:
                await passing(among.clock, first.move_partition(container, range_id, place))
            assert refused.value.kind is Kind.BAD_REQUEST
        with pytest.raises(Failure, match="held by different processes") as refused:
            await passing(among.clock, first.move_partition(container, range_id, 2))
        assert refused.value.kind is Kind.CONFLICT
        await passing(among.clock, held_by(among, among.processes[1], 1, 2))
        reshaper(among.processes[1]).pause([HELD])
        await passing(among.clock, first.split(container, range_id))
        with pytest.raises(Failure, match="being split or merged already") as refused:
            await passing(among.clock, first.move_partition(container, range_id, 2))
        assert refused.value.kind is Kind.CONFLICT


async def test_containers_that_share_throughput_stay_together() -> None:
    async with moving_places() as among:
        account = among.processes[0].account

        async def create() -> Container:
            database = await containers.create_database(account, {"id": "db"}, Throughput.manual(20_000))
            body = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
            return await containers.create_container(account, database, body, None)

        container = await passing(among.clock, create())
        range_id = container.map.ranges[0].id
        with pytest.raises(Failure, match="shares the throughput"):
            await reshaper(among.processes[0]).move_partition(container, range_id, 2)


@pytest.mark.parametrize("is_whole", [True, False], ids=["both-places", "one-place"])
@pytest.mark.parametrize("point", POINTS)
async def test_its_process_is_lost_at_every_point(point: str, is_whole: bool) -> None:
    """Another process goes on, if it comes to hold both places, and takes the move back otherwise."""
    async with moving_places(seed=3) as among:
        load = Load(among)
        container = await passing(among.clock, among.create())
        former, successor = among.processes[1], among.processes[2]
        await passing(among.clock, held_by(among, former, 1, 2))
        await passing(among.clock, load.run(moves=0, lasts_s=0.5))
        range_id = in_place(container, 1)[0]
        reshaper(former).pause([point])
        await passing(among.clock, reshaper(among.processes[0]).move_partition(container, range_id, 2))
        await passing_until(
            among.clock, lambda: any(map(reshaper(former).is_paused, reshaper(former).running())), point
        )

        async def lose() -> None:
            for place in (1, 2):
                among.logs[place].lead()
                among.logs[place].leased = 0
            await among.clock.sleep(0.2)
            for place in (1, 2) if is_whole else (1,):
                await among.enter(place, successor)
            await among.clock.sleep(0.1)
            for place in (1, 2):
                await former.account.leave_place(place)
            reshaper(former).pause([])
            if not is_whole:
                await among.clock.sleep(3.0)
                await among.enter(2, among.processes[0])

        await passing(among.clock, lose())
        await passing_until(among.clock, lambda: not container.state.reshapes, "the move ends")
        is_moved = is_whole or point == SWITCHED
        assert (range_id in container.partitions) is not is_moved
        if not is_moved:
            assert range_id in in_place(container, 1)
        await passing(among.clock, load.run(moves=0, lasts_s=0.5, begins=False))
        await passing(among.clock, check(load))


@pytest.mark.parametrize("seed", range(3))
async def test_partitions_and_places_move_at_once(seed: int) -> None:
    async with moving_places(processes=2, seed=seed) as among:
        load = Load(among)
        container = await passing(among.clock, among.create())
        await passing(among.clock, load.run(moves=8, splits=2, moved=8))
        await passing_until(among.clock, lambda: not container.state.reshapes, "all moves end, or are taken back")
        await passing(among.clock, check(load))


async def test_a_process_that_was_deposed_does_not_finish_its_split() -> None:
    """Its children lack what the next holder of their parent has acknowledged."""
    async with moving_places(seed=7) as among:
        load = Load(among)
        container = await passing(among.clock, among.create())
        await passing(among.clock, load.run(moves=0, lasts_s=0.5))
        former, successor = among.processes[1], among.processes[2]
        range_id = in_place(container, 1)[0]
        reshaper(former).pause([HELD])
        await passing(among.clock, reshaper(among.processes[0]).split(container, range_id))
        await passing_until(among.clock, lambda: reshaper(former).is_paused(reshaper(former).running()[0]), HELD)
        reshaper(successor).pause([BEGUN])  # it would finish before
        await passing(among.clock, among.enter(1, successor))
        load.unasked = former
        await passing(among.clock, load.run(moves=0, lasts_s=0.5, begins=False))
        reshaper(former).pause([])
        await passing(among.clock, load.run(moves=0, lasts_s=2.0, begins=False))
        assert range_id in container.partitions
        await passing(among.clock, former.account.leave_place(1))
        load.unasked = None
        reshaper(successor).pause([])
        await passing_until(among.clock, lambda: not container.state.reshapes, "the split ends")
        assert len(container.map.descendants(range_id)) == 2
        await passing(among.clock, check(load))
