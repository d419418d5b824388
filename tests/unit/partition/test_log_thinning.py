"""Logs that are thinned out in stretches, which may end in the middle of a transaction: nothing is left behind, and
a position inside of what was dropped is not taken for one from which all is there."""

from __future__ import annotations

from support.house import House
from support.limits import WithLimits
from support.mongo_house import MongoHouse
from unit.doors.mongo.test_mongodoor_streams import Stream

from armillary import limits
from armillary.account.items import items
from armillary.account.items.items import ItemOptions, Member
from armillary.model import layout
from armillary.model.key_values import Key
from armillary.partition.history import log
from armillary.partition.operations import Verb
from armillary.partition.partition import Partition
from armillary.partition.upkeep import upkeep
from armillary.storage.engine import View


def count_tombstones(view: View) -> int:
    pairs = view.scan(layout.CHANGES, layout.space_end(layout.CHANGES))
    return sum(value != log.WRITTEN for _, value in pairs)


async def thin_out(partition: Partition, now_s: float) -> None:
    """Until nothing is left of the log to be looked at."""
    at = b""
    while at < layout.change_key(partition.lsn + 1):
        before, at = at, await upkeep.forget_tombstones(partition, at, now_s)
        assert at > before, "it gets on"


async def test_tombstones_of_a_transaction_that_is_longer_than_a_stretch(with_limits: WithLimits) -> None:
    with_limits(SWEEP_ITEMS_MAX=20)
    house = await House.open()
    container = await house.container()
    for verb in (Verb.CREATE, Verb.DELETE):
        members = [
            Member(verb, item_id=str(number), document={"id": str(number), "pk": "x"} if verb is Verb.CREATE else None)
            for number in range(73)
        ]
        assert (await items.batch(container, Key(("x",)), members, ItemOptions(), house.clock)).is_done
    await house.put(container, {"id": "last", "pk": "x"})
    (partition,) = container.partitions.values()
    assert await partition.read(count_tombstones) == 73
    house.clock.advance(limits.TOMBSTONE_SECONDS + 1)
    await thin_out(partition, house.clock.now_s())
    assert await partition.read(count_tombstones) == 0
    await house.close()


async def test_a_log_without_deletes_is_not_scanned_again() -> None:
    house = await House.open()
    container = await house.container()
    (partition,) = container.partitions.values()
    await house.put(container, {"id": "a", "pk": "x"})
    assert partition.marks.may_have_tombstones, "of an earlier run of the server"
    at = await upkeep.forget_tombstones(partition, b"", house.clock.now_s())
    assert not partition.marks.may_have_tombstones
    await house.put(container, {"id": "b", "pk": "x"})
    assert not partition.marks.may_have_tombstones
    at = await upkeep.forget_tombstones(partition, at, house.clock.now_s())
    assert at == layout.change_key(partition.lsn + 1)
    await items.delete(container, "b", ItemOptions(Key(("x",))))
    assert partition.marks.may_have_tombstones
    assert await upkeep.forget_tombstones(partition, at, house.clock.now_s()) == at, "it is not old enough yet"
    await house.put(container, {"id": "c", "pk": "x"})
    house.clock.advance(limits.TOMBSTONE_SECONDS + 1)
    at = await upkeep.forget_tombstones(partition, at, house.clock.now_s())
    assert await partition.read(count_tombstones) == 0
    assert at == layout.change_key(partition.lsn + 1) and not partition.marks.may_have_tombstones
    await house.close()


async def test_records_of_more_sessions_than_a_stretch(with_limits: WithLimits) -> None:
    with_limits(SWEEP_ITEMS_MAX=20)
    house = await House.open()
    container = await house.container()
    (partition,) = container.partitions.values()
    written = int(house.clock.now_s()).to_bytes(4, "big") + b"\x05\x00\x00\x00\x00"
    keys = [layout.RECORDS + number.to_bytes(16, "big") + bytes(12) for number in range(73)]
    await partition.adopt_records([(key, written) for key in keys])
    house.clock.advance(limits.MONGO_SESSION_SECONDS + 1)
    await upkeep.forget_records(partition, house.clock.now_s())
    assert await partition.read(lambda view: list(view.scan(layout.RECORDS, layout.space_end(layout.RECORDS)))) == []
    await house.close()


async def test_a_stream_inside_of_a_transaction_of_which_a_part_was_dropped(with_limits: WithLimits) -> None:
    """Its token names one event of a transaction of eight, of which only the last four are kept."""
    with_limits(MONGO_EVENTS_MAX=4, MONGO_EVENTS_LOOK=1)
    house = await MongoHouse.open()
    await house.ask({"create": "c"})
    stream = await Stream(house).open()
    await house.ask({"insert": "c", "documents": [{"_id": number} for number in range(8)]})
    with_limits(MONGO_EVENTS_MAX=100)
    tokens = [event["_id"] for event in await stream.read()]
    assert len(tokens) == 8
    with_limits(MONGO_EVENTS_MAX=4)
    (partition,) = house.account.container("test", "c").partitions.values()
    await upkeep.forget_events(partition, house.account.clock.now_s())
    with_limits(MONGO_EVENTS_MAX=100)
    for place, token in enumerate(tokens):
        asked = {"aggregate": "c", "pipeline": [{"$changeStream": {"resumeAfter": token}}], "cursor": {}}
        answer = await house.ask(asked)
        if answer["ok"]:
            rest = [event["documentKey"]["_id"] for event in answer["cursor"]["firstBatch"]]
            assert rest == list(range(place + 1, 8)), f"behind {place} came {rest}"
        else:
            assert answer["code"] == 286 and place < 4, (place, answer)
    await house.close()


async def test_a_pass_ends_while_writers_go_on() -> None:
    house = await House.open()
    container = await house.container()
    (partition,) = container.partitions.values()
    await house.put(container, {"id": "0", "pk": "x"})
    steps = 0
    async for _ in house.account.rounds._thin_out(container, partition):
        steps += 1
        await house.put(container, {"id": f"{steps}", "pk": "x"})
        assert steps < 3, "the pass follows the writers"
    await house.close()
