"""Hostile filters in process: every one gives way often enough, and is answered or refused with a reason."""

from __future__ import annotations

from urllib.parse import quote

import uvloop
from hostile import table_requests
from hostile.harness import STALL_UNITS_MAX, watched
from support.tables import TableHouse

from armillary.storage.memory import MemoryEngine

LENGTH = 12_000  # characters of a filter; quoted they are more
ENTITIES = 1_000


async def judged(house: TableHouse, asked: table_requests.Filter) -> int:
    query = f"$filter={quote(asked.text)}" if asked.text else ""
    if asked.select:
        query += f"&$select={asked.select}"
    async with watched() as seen:
        response = await house.ask("GET", f"/people()?{query}")
    assert response.status < 500, (asked.name, response.body[:300])
    assert seen.units <= STALL_UNITS_MAX, f"{asked.name}: {seen.units} units between two turns"
    return response.status


def test_filters(seed: int) -> None:
    async def run() -> dict[str, int]:
        house = await TableHouse.open(MemoryEngine())
        await house.ask("POST", "/Tables", {"TableName": "people"})
        for entity in table_requests.entities(ENTITIES):
            assert (await house.ask("POST", "/people", entity)).status < 300
        requests = [*table_requests.named(LENGTH), *table_requests.generated(seed, 10, LENGTH)]
        found = {asked.name: await judged(house, asked) for asked in requests}
        await house.close()
        return found

    statuses = uvloop.run(run())
    assert sum(status == 200 for status in statuses.values()) > len(statuses) // 2, statuses
