"""Unique keys: what may be declared, and which items collide."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.errors import Failure, Kind
from armillary.model.indexes.unique_keys import NO_UNIQUE_KEYS, UniqueKeyPolicy


def policy(*keys: list[str]) -> UniqueKeyPolicy:
    return UniqueKeyPolicy.parse({"uniqueKeys": [{"paths": paths} for paths in keys]})


def test_absent_means_none() -> None:
    absent: list[Any] = [None, {}, {"uniqueKeys": []}, {"uniqueKeys": None}]
    for given in absent:
        parsed = UniqueKeyPolicy.parse(given)
        assert parsed.count == 0
        assert parsed.values({"id": "x"}) == []
    assert NO_UNIQUE_KEYS.to_json() == {"uniqueKeys": []}


def test_echo() -> None:
    given = {"uniqueKeys": [{"paths": ["/firstName", "/lastName"]}, {"paths": ['/address/"zip code"']}]}
    parsed = UniqueKeyPolicy.parse(given)
    assert parsed.to_json() == given
    assert UniqueKeyPolicy.parse(parsed.to_json()) == parsed
    assert parsed.count == 2


def test_equal_values_collide_and_others_do_not() -> None:
    key = policy(["/a", "/b/c"])
    alike: list[list[dict[str, Any]]] = [
        [{"a": 1, "b": {"c": "x"}}, {"a": 1.0, "b": {"c": "x", "d": 2}}],
        [{"a": 1}, {"a": 1, "b": None}, {"a": 1, "b": {}}, {"a": 1, "b": {"c": None}}, {"a": 1, "b": [1]}],
        [{}, {"a": None}],
        [{"a": "x" * 5000}, {"a": "x" * 5000, "b": 7}],
        [{"a": {"y": 1, "x": 2}}, {"a": {"x": 2, "y": 1}}],
    ]
    for group in alike:
        assert len({key.values(document)[0] for document in group}) == 1, group
    different: list[Any] = ["x", "X", "", None, 0, 1, True, False, [], {}, [1], "1", "x" * 5000, "x" * 5001, "y" * 5000]
    assert len({key.values({"a": value})[0] for value in different}) == len(different)
    assert key.values({"a": "ab", "b": {"c": "c"}}) != key.values({"a": "a", "b": {"c": "bc"}})


def test_keys_stay_short() -> None:
    assert len(policy(["/a"]).values({"a": "x" * 1_000_000})[0]) < 600


def test_limits() -> None:
    sixteen = [f"/p{i}" for i in range(16)]
    assert policy(sixteen).count == 1
    assert policy(*[[f"/p{i}"] for i in range(10)]).count == 10
    bads: list[list[list[str]]] = [
        [[*sixteen, "/q"]],
        [[f"/p{i}"] for i in range(11)],
        [[]],
        [["/a", "/a"]],
        [["/a", '/"a"']],
        [["/a", "/b"], ["/b", "/a"]],
    ]
    for bad in bads:
        with pytest.raises(Failure) as caught:
            policy(*bad)
        assert caught.value.kind is Kind.BAD_REQUEST


@pytest.mark.parametrize(
    "given",
    [
        [],
        1,
        "x",
        {"keys": []},
        {"uniqueKeys": {}},
        {"uniqueKeys": ["/a"]},
        {"uniqueKeys": [{"paths": "/a"}]},
        {"uniqueKeys": [{"paths": [1]}]},
        {"uniqueKeys": [{"paths": ["a"]}]},
        {"uniqueKeys": [{"paths": ["/a/*"]}]},
        {"uniqueKeys": [{"paths": ["/a/?"]}]},
        {"uniqueKeys": [{"paths": ["/a/[]/b"]}]},
        {"uniqueKeys": [{"paths": ["/"]}]},
        {"uniqueKeys": [{"paths": ["/*"]}]},
        {"uniqueKeys": [{"paths": ["/a-b"]}]},
        {"uniqueKeys": [{"paths": ["/a"], "filter": {}}]},
        {"uniqueKeys": [{}]},
    ],
)
def test_wrong_shapes(given: Any) -> None:
    with pytest.raises(Failure) as caught:
        UniqueKeyPolicy.parse(given)
    assert caught.value.kind is Kind.BAD_REQUEST
