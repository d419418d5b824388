"""Captures of a server with several processes: what any of them answers is in the file once, in the order of time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any

import pytest
from support.limits import WithLimits
from support.server_processes import ServerProcesses, server_processes

from armillary.account import containers
from armillary.account.captures.capture_store import CaptureRecord
from armillary.account.captures.share_recorder import ShareTaken
from armillary.account.container import Container
from armillary.insight.captures import Captured, read_capture
from armillary.processes.capture_shares import TakeShare

NAMES = ("db", "c")


@pytest.fixture
async def server() -> AsyncIterator[ServerProcesses]:
    async with server_processes() as server:
        yield server


async def begin(server: ServerProcesses, container: Container, **options: Any) -> CaptureRecord:
    captures = server.first.captures
    record = await captures.start(NAMES, container.record.rid, container.key, len(container.partitions), **options)
    await server.first.spread_controls()
    return record


async def lines(server: ServerProcesses, record: CaptureRecord) -> list[Captured]:
    captures = server.first.captures
    parts: list[bytes] = []
    while (part := await captures.part(NAMES, record, len(parts))) is not None:
        parts.append(part)
    head, records = read_capture(BytesIO(b"".join(parts)))
    found = list(records)
    assert head.requests == len(found) == record.requests
    return found


async def end(server: ServerProcesses, record: CaptureRecord) -> list[Captured]:
    await server.first.captures.stop(record)
    assert not any(each.account.captures.is_on for each in server.processes)
    return await lines(server, record)


async def put(server: ServerProcesses, *numbers: int, process: int) -> None:
    await server.put(*[{"id": str(number), "pk": f"k{number}"} for number in numbers], process=process)


async def test_requests_to_all_processes_are_recorded_in_the_order_of_time(server: ServerProcesses) -> None:
    record = await begin(server, await server.create())
    for round_number in range(3):
        for process in (2, 0, 1):
            await put(server, *range(9), process=process)
            server.clock.advance(0.01)
        if round_number == 1:
            await server.first.captures.gather()
            assert record.requests == 54
    found = await end(server, record)
    assert len(found) == 81
    assert [each.t_ms for each in found] == sorted(each.t_ms for each in found)
    assert len({each.key for each in found}) == 9, "equal values have equal digests in all processes"
    assert record.reason == "it was stopped" and not record.missed


async def test_a_capture_has_as_many_requests_as_it_may(server: ServerProcesses) -> None:
    record = await begin(server, await server.create(), limit=10)
    await put(server, *range(4), process=0)
    for process in (1, 2):
        await put(server, *range(9), process=process)
    await server.first.captures.gather()
    assert record.state == "stopped" and record.reason == "it has as many requests as it may"
    await put(server, *range(9), process=2)
    assert len(await end(server, record)) == 10


async def test_an_answer_that_was_lost_is_given_again(server: ServerProcesses) -> None:
    record = await begin(server, await server.create())
    await put(server, *range(9), process=1)
    lost: ShareTaken = await TakeShare(record.id, 0, is_last=False).answer(server[1].here)
    assert len(lost.lines) == 9
    await put(server, *range(2), process=1)
    assert len(await end(server, record)) == 9, "what came after the lost answer is asked for with the next one"
    assert await TakeShare(record.id, 1, is_last=True).answer(server[1].here) == ShareTaken()


async def test_lines_that_wait_have_a_bound(server: ServerProcesses, with_limits: WithLimits) -> None:
    with_limits(CAPTURE_FLUSH_BYTES=100, CAPTURE_WAITING_BYTES_MAX=1000)
    record = await begin(server, await server.create())
    await put(server, *range(30), process=1)
    await server.first.captures.gather()
    assert 0 < record.requests < 30 and record.requests + record.missed == 30
    before = record.requests
    await put(server, 1, process=1)
    assert len(await end(server, record)) == before + 1


async def test_captures_end_with_their_container_and_with_a_process(server: ServerProcesses) -> None:
    record = await begin(server, await server.create())
    await put(server, 1, process=1)
    await server.end(2)
    found = await end(server, record)
    assert len(found) == 1
    await begin(server, server.first.container("db", "c"))
    assert server[1].account.captures.is_on
    await containers.delete_container(server[1].account, server[1].account.container("db", "c"), None)
    assert not server[1].account.captures.is_on and not server.first.captures.is_on
