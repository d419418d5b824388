"""Places that move from one process to another while requests run: what was acknowledged is there, once, and whatever
goes through all partitions is complete."""

from __future__ import annotations

import pytest
from support.moving_load import Load, check
from support.moving_places import moving_places
from support.passing_time import passing, passing_until

from armillary.account import containers
from armillary.errors import Failure, Kind


@pytest.mark.parametrize("seed", range(3))
async def test_splits_go_on_where_their_place_has_moved_to(seed: int) -> None:
    async with moving_places(seed=seed) as among:
        load = Load(among)
        container = await passing(among.clock, among.create())
        before = len(container.map.ranges)
        await passing(among.clock, load.run(moves=8, splits=6))
        await passing_until(among.clock, lambda: not container.state.reshapes, "splits end")
        assert len(container.map.ranges) == before + 6
        await passing(among.clock, check(load))
        for one in among.processes:
            assert one.container().map.ranges == container.map.ranges


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_lost_or_done_twice(seed: int) -> None:
    async with moving_places(seed=seed) as among:
        load = Load(among)
        await passing(among.clock, among.create())
        assert {each.range.store >> 24 for each in among.processes[0].container().partitions.values()} == {0, 1, 2}
        await passing(among.clock, load.run(moves=8))
        await passing(among.clock, check(load))
        assert among.moves == 8
        assert len(load.history.created) > 100 and load.history.queries > 3


async def test_a_change_of_policy_reaches_partitions_wherever_they_move() -> None:
    async with moving_places(seed=5) as among:
        load = Load(among)
        container = await passing(among.clock, among.create())
        await passing(among.clock, load.run(moves=0, lasts_s=0.5))
        account = among.processes[0].account
        body = container.record.body | {"indexingPolicy": {"excludedPaths": [{"path": "/*"}]}}

        async def change() -> None:
            await containers.replace_container(account, container, body, None)
            await load.run(moves=4, begins=False)
            await account.restated(container)

        await passing(among.clock, change())
        numbers = set()
        for one in among.processes:
            own = [each for each in one.container().partitions.values() if not each.is_elsewhere]
            numbers |= {await passing(among.clock, each.rules_number()) for each in own}
        assert numbers == {container.schema.rules.number}
        await passing(among.clock, check(load))


async def test_what_does_not_follow_its_place_is_refused() -> None:
    async with moving_places() as among:
        await passing(among.clock, among.create())
        account = among.processes[0].account
        assert account.spanning is not None
        for refused in (account.snapshots.take("s", ()), account.spanning.begin_transaction(spans=True)):
            with pytest.raises(Failure, match="not offered on several logs") as failed:
                await passing(among.clock, refused)
            assert failed.value.kind is Kind.UNSUPPORTED
