"""The corpus of table filters: every case of table/filters.jsonl on table/entities.json, in process through the
account, on one partition and on three, in one page and in pages of two, with and without an index."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.tables import NO_INDEX, filtered, new_table, put, reference

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.clock import VirtualClock
from armillary.doors.table.errors import ROWS
from armillary.errors import Failure
from armillary.storage.memory import MemoryEngine

HERE = Path(__file__).parent / "table"
CASES: list[dict[str, Any]] = [json.loads(line) for line in (HERE / "filters.jsonl").read_text("utf-8").splitlines()]
ENTITIES: list[dict[str, Any]] = json.loads((HERE / "entities.json").read_text("utf-8"))
HOUSES: dict[str, dict[str, Any]] = {
    "one partition": {},
    "three partitions": {"throughput_ru": 18_000},
    "no index": {"indexingPolicy": NO_INDEX},
}


@pytest.fixture(params=HOUSES)
async def house(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Account, Container]]:
    engine = MemoryEngine()
    account = await Account.open(engine, VirtualClock())
    table = await new_table(account, **HOUSES[request.param])
    await put(account, table, *ENTITIES)
    yield account, table
    await account.close()
    await engine.close()


def names(entities: list[dict[str, Any]]) -> list[str]:
    return [f"{entity['PartitionKey']}/{entity['RowKey']}" for entity in entities]


@pytest.mark.parametrize("page_items", [1000, 2])
async def test_filters_find_what_they_should(house: tuple[Account, Container], page_items: int) -> None:
    for case in CASES:
        if "expect" in case:
            found = names(await filtered(*house, case["filter"], page_items))
            assert sorted(found) == sorted(case["expect"]), case


async def test_rows_are_in_the_order_of_row_keys(house: tuple[Account, Container]) -> None:
    rows = await filtered(*house, "Qty ge -2147483648", 3)
    for key in {row["PartitionKey"] for row in rows}:
        ours = [row["RowKey"] for row in rows if row["PartitionKey"] == key]
        assert ours == sorted(ours)


@pytest.mark.parametrize("case", [case for case in CASES if "error" in case], ids=lambda case: case["id"])
async def test_what_is_no_filter_is_refused(case: dict[str, Any]) -> None:
    account = await Account.open(MemoryEngine(), VirtualClock())
    try:
        with pytest.raises(Failure) as refusal:
            await filtered(account, await new_table(account), case["filter"])
        assert ROWS[refusal.value.kind].status in case["error"]
    finally:
        await account.close()


@pytest.mark.parametrize("case", [case for case in CASES if "expect" in case], ids=lambda case: case["id"])
def test_the_reference_agrees_with_the_corpus(case: dict[str, Any]) -> None:
    stamped = [{**entity, "Timestamp": "2024-05-01T00:00:00.0000001Z"} for entity in ENTITIES]
    assert sorted(names([each for each in stamped if reference(case["filter"], each)])) == sorted(case["expect"])
