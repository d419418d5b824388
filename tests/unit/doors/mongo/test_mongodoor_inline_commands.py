"""Commands about one small document run without a greenlet of their own. What may take long still has one: large
documents, views, pipelines, and whatever is not named by its `_id`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.mongo_house import MongoHouse

from armillary import work

LARGE = {f"f{number}": {"a": [number, str(number)], "b": "x" * 20} for number in range(1_500)}


@pytest.fixture
async def house() -> AsyncIterator[MongoHouse]:
    opened = await MongoHouse.open()
    await opened.ask({"insert": "c", "documents": [{"_id": 1, "a": 1, "b": "x"}, {"_id": "large", **LARGE}]})
    await opened.ask({"create": "shown", "viewOn": "c", "pipeline": []})
    yield opened
    await opened.close()


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One number for each command that had a greenlet from its beginning to its end."""
    seen: list[int] = []
    drive = work.drive

    def counted(*given: Any) -> Any:
        seen.append(1)
        return drive(*given)

    monkeypatch.setattr(work, "drive", counted)
    return seen


def _update(query: Any, change: Any, **more: Any) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    return {"update": "c"}, {"updates": [{"q": query, "u": change, **more}]}


SHORT: list[tuple[dict[str, Any], dict[str, list[Any]]]] = [
    ({"find": "c", "filter": {"_id": 1}, "projection": {"a": 1}}, {}),
    ({"find": "c", "filter": {"_id": 1, "b": "x"}, "projection": {"a": 0}}, {}),
    _update({"_id": 1}, {"$inc": {"a": 1}}),
    _update({"_id": 1}, {"a": 2}),
    _update({"_id": 7}, {"$set": {"a": 2}}, upsert=True),
    ({"delete": "c"}, {"deletes": [{"q": {"_id": 7}, "limit": 1}]}),
    ({"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"a": 3}}}, {}),
]
DRIVEN: list[tuple[dict[str, Any], dict[str, list[Any]]]] = [
    ({"find": "c", "filter": {"b": "x"}}, {}),
    ({"find": "c", "filter": {"_id": {"$gt": 0}}}, {}),
    ({"find": "c", "filter": {"_id": 1}, "projection": {"z": {"$range": [0, 5]}}}, {}),
    ({"find": "shown", "filter": {"_id": 1}}, {}),
    _update({"_id": 1}, [{"$set": {"z": {"$range": [0, 5]}}}]),
    _update({"_id": 1}, {"$set": {"z": 1}}, multi=True),
    _update({"_id": 1, "$expr": {"$eq": [1, 1]}}, {"$set": {"z": 1}}),
    ({"delete": "c"}, {"deletes": [{"q": {"b": "x"}, "limit": 0}]}),
    ({"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"a": 3}}, "fields": {"a": 1}}, {}),
]


@pytest.mark.parametrize("given", SHORT, ids=str)
async def test_one_small_document(house: MongoHouse, driven: list[int], given: Any) -> None:
    answer = await house.ask(*given)
    assert answer["ok"] == 1.0 and "writeErrors" not in answer
    assert not driven


@pytest.mark.parametrize("given", DRIVEN, ids=str)
async def test_what_may_take_long(house: MongoHouse, driven: list[int], given: Any) -> None:
    answer = await house.ask(*given)
    assert answer["ok"] == 1.0 and "writeErrors" not in answer
    assert driven


async def test_a_large_document_has_a_run(
    house: MongoHouse, driven: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    begin = work._begin

    def counted(*given: Any) -> Any:
        runs.append(1)
        return begin(*given)

    monkeypatch.setattr(work, "_begin", counted)
    await house.ask({"find": "c", "filter": {"_id": 1}, "projection": {"a": 1}})
    assert not runs
    found = await house.ask({"find": "c", "filter": {"_id": "large"}, "projection": {"f1": 1}})
    assert found["cursor"]["firstBatch"] == [{"_id": "large", "f1": LARGE["f1"]}]
    assert runs and not driven
