"""Time series: documents expire by the date that they have, a bucket's span later than a TTL index would say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from support.mongo_house import MongoHouse

from armillary.clock import VirtualClock

HOUR_S = 3600


async def test_documents_expire_with_the_bucket_that_would_hold_them() -> None:
    clock = VirtualClock()
    house = await MongoHouse.open(clock=clock)
    series = {"timeField": "at", "granularity": "seconds"}
    await house.ask({"create": "readings", "timeseries": series, "expireAfterSeconds": HOUR_S})
    now = datetime.fromtimestamp(clock.now_s(), UTC)
    documents = [{"_id": hours, "at": now + timedelta(hours=hours)} for hours in range(3)]
    await house.ask({"insert": "readings", "documents": documents})

    async def left() -> list[int]:
        return [each["_id"] for each in (await house.ask({"find": "readings"}))["cursor"]["firstBatch"]]

    clock.advance(2 * HOUR_S - 1)
    assert await left() == [0, 1, 2]
    clock.advance(2)
    assert await left() == [1, 2]
    await house.ask({"dropIndexes": "readings", "index": "*"})
    clock.advance(HOUR_S)
    assert await left() == [2]
    await house.close()


async def test_index_name_of_the_expiry_is_reserved() -> None:
    house = await MongoHouse.open()
    definition = {"key": {"a": 1}, "name": "$timeseries_expiry"}
    assert (await house.ask({"createIndexes": "c", "indexes": [definition]}))["code"] == 67
    await house.close()
