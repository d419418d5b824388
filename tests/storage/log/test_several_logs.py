"""Several logs on PostgreSQL, on the connections of one node."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from armillary.storage.log.postgres_log import PostgresLog
from armillary.storage.log.postgres_logs import PostgresLogs
from armillary.storage.log.replicated_log import Deposed, LogRefused
from armillary.storage.log.rows import Place, Row, RowKind, new_row

COUNT = 4


async def opened(url: str, count: int | None = COUNT) -> PostgresLogs:
    return await PostgresLogs.open(url, count=count, allows_single=True, table_rows=4)


def row_behind(place: Place, data: bytes) -> Row:
    return new_row(
        place,
        place.epoch,
        RowKind.GROUP,
        confirmed=place,
        time_us=1,
        transactions=place.seq,
        is_last=True,
        data=data,
    )


async def lead(logs: PostgresLogs, number: int, node: str = "a") -> Place:
    log = await logs.log(number)
    taken = await log.take(await log.leader(), node, 1)
    assert taken is not None
    return taken[1].place


async def asked(url: str, statement: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(each) for each in await connection.fetch(statement)]
    finally:
        await connection.close()


async def sessions(url: str) -> int:
    statement = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'armillary'"""
    return int((await asked(url, statement))[0][0])


async def test_the_number_of_logs_only_grows(database: str) -> None:
    first = await opened(database, None)
    assert first.count == 1
    more = await opened(database)
    assert more.count == COUNT
    assert len(await first.leaders()) == first.count == COUNT, "a node that runs learns of logs that were added"
    assert (await opened(database, None)).count == COUNT
    with pytest.raises(LogRefused, match="has 4 logs, and cannot have fewer"):
        await opened(database, 3)
    assert more.cluster_key == first.cluster_key == (await PostgresLog.open(database, allows_single=True)).cluster_key
    for each in (first, more):
        await each.close()


async def test_each_log_has_rows_leaders_and_replicas_of_its_own(database: str) -> None:
    logs, rival = await opened(database), await opened(database)
    places = [await lead(logs, number) for number in range(COUNT)]
    for number in range(COUNT):
        log = await logs.log(number)
        assert await log.register("a") == 0
        for step in range(6):  # of two tables
            row = row_behind(places[number], b"%d/%d" % (number, step))
            await log.append([row])
            places[number] = row.place
    await lead(rival, 2, "b")
    assert [(each.node, each.epoch) for each in await logs.leaders()] == [("a", 1), ("a", 1), ("b", 2), ("a", 1)]
    with pytest.raises(Deposed):
        await (await logs.log(2)).append([row_behind(places[2], b"late")])
    for number in (0, 1, 3):
        log = await logs.log(number)
        await log.append([row_behind(places[number], b"%d/6" % number)])
        assert [row.data for row in await log.read(1, 1 << 20)] == [b"%d/%d" % (number, step) for step in range(7)]
    third = await logs.log(3)
    await third.report("a", 8, 8)
    assert await third.trim() > 1
    assert await (await logs.log(1)).trim() == 1, "its replica has flushed nothing"
    for each in (logs, rival):
        await each.close()


async def test_connections_are_shared_and_those_for_appends_are_of_leaders(database: str) -> None:
    logs = await opened(database)
    places = [await lead(logs, number) for number in range(COUNT)]
    for number in range(COUNT):
        log = await logs.log(number)
        await log.read(0, 1)
        await log.report("a", 0, 0)
    assert await sessions(database) == 3
    for number in range(COUNT):
        await (await logs.log(number)).append([row_behind(places[number], b"x")])
    assert await sessions(database) == 3 + COUNT
    for number in range(1, COUNT):
        (await logs.log(number)).rest()
    while await sessions(database) > 3 + 1:
        pass
    await logs.close()


async def test_a_log_that_was_made_anew_is_refused_and_the_others_go_on(database: str) -> None:
    logs = await opened(database)
    for number in range(COUNT):
        await (await logs.log(number)).leader()
    await asked(database, "UPDATE armillary.leaders SET generation = sha256('other') WHERE log = 2 RETURNING log")
    with pytest.raises(LogRefused):
        await (await logs.log(2)).leader()
    assert (await (await logs.log(1)).leader()).epoch == 0
    states = await logs.leaders()
    assert states[2].generation != (await logs.log(2)).generation
    await asked(database, "DELETE FROM armillary.leaders WHERE log = 1 RETURNING log")
    with pytest.raises(LogRefused):
        await logs.leaders()
    with pytest.raises(LogRefused, match="Some of the cluster's logs are missing"):
        await opened(database, None)
    await logs.close()
