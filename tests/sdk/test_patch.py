"""Patches: every operation, conditions, and that all of them happen or none."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core import MatchConditions
from sdk.clients import refused, user_part

DOCUMENT = {"id": "1", "pk": "a", "n": 3, "list": [1, 2, 3], "object": {"x": 1}, "text": "t"}


@pytest.fixture
async def patched(container: Any) -> Any:
    await container.create_item(DOCUMENT)
    return container


@pytest.mark.parametrize(
    ("operations", "changes"),
    [
        ([{"op": "add", "path": "/new", "value": {"deep": [1]}}], {"new": {"deep": [1]}}),
        ([{"op": "add", "path": "/n", "value": 5}], {"n": 5}),
        ([{"op": "add", "path": "/list/1", "value": 9}], {"list": [1, 9, 2, 3]}),
        ([{"op": "add", "path": "/list/3", "value": 9}], {"list": [1, 2, 3, 9]}),
        ([{"op": "add", "path": "/list/-", "value": 9}], {"list": [1, 2, 3, 9]}),
        ([{"op": "set", "path": "/n", "value": None}], {"n": None}),
        ([{"op": "set", "path": "/object/y", "value": 2}], {"object": {"x": 1, "y": 2}}),
        ([{"op": "set", "path": "/list/0", "value": 9}], {"list": [9, 2, 3]}),
        ([{"op": "replace", "path": "/text", "value": "u"}], {"text": "u"}),
        ([{"op": "replace", "path": "/list/2", "value": []}], {"list": [1, 2, []]}),
        ([{"op": "remove", "path": "/list/0"}], {"list": [2, 3]}),
        ([{"op": "remove", "path": "/object/x"}], {"object": {}}),
        ([{"op": "incr", "path": "/n", "value": 4}], {"n": 7}),
        ([{"op": "incr", "path": "/n", "value": -0.5}], {"n": 2.5}),
        ([{"op": "incr", "path": "/fresh", "value": 4}], {"fresh": 4}),
        ([{"op": "move", "from": "/text", "path": "/object/text"}], {"text": ..., "object": {"x": 1, "text": "t"}}),
        (
            [
                {"op": "add", "path": "/one", "value": 1},
                {"op": "incr", "path": "/one", "value": 1},
                {"op": "move", "from": "/one", "path": "/two"},
            ],
            {"two": 2},
        ),
        ([{"op": "set", "path": f"/p{n}", "value": n} for n in range(10)], {f"p{n}": n for n in range(10)}),
    ],
)
async def test_operations(patched: Any, operations: list[dict[str, Any]], changes: dict[str, Any]) -> None:
    expected = {name: value for name, value in {**DOCUMENT, **changes}.items() if value is not ...}
    before = await patched.read_item("1", "a")
    answer = await patched.patch_item("1", "a", operations)
    assert user_part(answer) == expected
    assert answer == await patched.read_item("1", "a")
    assert answer["_etag"] != before["_etag"]
    assert answer["_rid"] == before["_rid"]


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "add", "path": "/missing/deep", "value": 1}],
        [{"op": "add", "path": "/list/9", "value": 1}],
        [{"op": "replace", "path": "/missing", "value": 1}],
        [{"op": "remove", "path": "/missing"}],
        [{"op": "incr", "path": "/text", "value": 1}],
        [{"op": "incr", "path": "/n", "value": "1"}],
        [{"op": "move", "from": "/missing", "path": "/x"}],
        [{"op": "set", "path": "/id", "value": "2"}],
        [{"op": "set", "path": "/pk", "value": "b"}],
        [{"op": "remove", "path": "/pk"}],
        [{"op": "set", "path": "/_etag", "value": "x"}],
        [{"op": "set", "path": "/_ts", "value": 5}],
        [{"op": "rename", "path": "/n", "value": 1}],
        [{"op": "set", "path": "n", "value": 1}],
        [{"op": "set", "path": "/fine", "value": 1}, {"op": "remove", "path": "/missing"}],
        [{"op": "set", "path": f"/p{n}", "value": n} for n in range(11)],
        [],
    ],
)
async def test_refused_whole(patched: Any, operations: list[dict[str, Any]]) -> None:
    before = await patched.read_item("1", "a")
    with refused(400):
        await patched.patch_item("1", "a", operations)
    assert await patched.read_item("1", "a") == before


async def test_conditions(patched: Any) -> None:
    add = [{"op": "incr", "path": "/n", "value": 1}]
    assert (await patched.patch_item("1", "a", add, filter_predicate="from c where c.n = 3"))["n"] == 4
    with refused(412):
        await patched.patch_item("1", "a", add, filter_predicate="from c where c.n = 3")
    assert await patched.patch_item("1", "a", add, filter_predicate="FROM root r WHERE r.n > 3 AND r.text = 't'")
    with refused(412):
        await patched.patch_item("1", "a", add, filter_predicate="from c where c.missing = 1")
    with refused(400):
        await patched.patch_item("1", "a", add, filter_predicate="from c where where")
    assert (await patched.read_item("1", "a"))["n"] == 5


async def test_with_an_etag(patched: Any) -> None:
    add = [{"op": "incr", "path": "/n", "value": 1}]
    first = (await patched.read_item("1", "a"))["_etag"]
    options = {"etag": first, "match_condition": MatchConditions.IfNotModified}
    assert (await patched.patch_item("1", "a", add, **options))["n"] == 4
    with refused(412):
        await patched.patch_item("1", "a", add, **options)


async def test_of_nothing(container: Any) -> None:
    with refused(404):
        await container.patch_item("missing", "a", [{"op": "set", "path": "/n", "value": 1}])
