"""Figures of keys, read of partitions that other processes hold."""

from __future__ import annotations

import asyncio

from support.server_processes import server_processes

from armillary.account import overview


async def test_they_are_read_again_while_another_process_replaces_a_partition() -> None:
    """It knows of a split before the process that asks does."""
    async with server_processes() as server:
        container = await server.create()
        await server.put(*[{"id": str(number), "pk": f"k{number}"} for number in range(40)])
        other = server[1].account.container("db", "c")
        range_id = next(number for number, each in other.partitions.items() if not each.is_elsewhere)
        replaced = other.partitions.pop(range_id)
        busiest = asyncio.create_task(overview.busiest_keys(container, 40))
        largest = asyncio.create_task(overview.largest_keys(container, 40))
        while server.clock.next_wake_s is None:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)
        assert not busiest.done() and not largest.done()
        other.partitions[range_id] = replaced
        while not (busiest.done() and largest.done()):
            server.clock.advance(0.05)
            await asyncio.sleep(0)
        expected = {f'["k{number}"]' for number in range(40)}
        assert {each.key_text for each in largest.result().keys} == expected
        assert {each.key_text for each in busiest.result()} <= expected
