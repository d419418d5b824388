"""JavaScript that changes how its context writes JSON, or answers what JSON has not: the command gets a value or a
refusal of its own, never a failure of the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.mongo_house import MongoHouse

from armillary.clock import SystemClock

NO_JSON = "Object.prototype.toJSON = function () {};"
STRINGS = "Object.prototype.toJSON = function () { return Array.isArray(this) ? this : 'text'; };"


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    opened = await MongoHouse.open(clock=SystemClock())
    await opened.ask({"insert": "c", "documents": [{"_id": each} for each in range(2)]})
    yield opened
    await opened.close()


async def grouped(house: MongoHouse, value: Any) -> dict[str, Any]:
    return await house.ask({"aggregate": "c", "pipeline": [{"$group": {"_id": 1, "v": value}}], "cursor": {}})


@pytest.mark.parametrize("body", ["return Symbol('a')", f"{NO_JSON} return {{a: 1}}"])
async def test_values_that_json_has_not_are_null(house: MongoHouse, body: str) -> None:
    function = {"body": f"function () {{ {body} }}", "args": [], "lang": "js"}
    command = {"aggregate": "c", "pipeline": [{"$project": {"v": {"$function": function}}}], "cursor": {}}
    answer = await house.ask(command)
    assert [each["v"] for each in answer["cursor"]["firstBatch"]] == [None, None]


@pytest.mark.parametrize("spoils", [NO_JSON, STRINGS])
async def test_emitted_values_that_are_none(house: MongoHouse, spoils: str) -> None:
    map_function = f"function () {{ {spoils} emit(1, this._id); }}"
    command = {"mapReduce": "c", "map": map_function, "reduce": "function (k, v) { return 1 }", "out": {"inline": 1}}
    assert (await house.ask(command))["results"] == []


async def test_reduced_data_must_be_objects(house: MongoHouse) -> None:
    reduced = {"$_internalJsReduce": {"eval": "function (k, v) { return 1 }", "data": "$_id"}}
    assert (await grouped(house, reduced)).get("code") == 2
