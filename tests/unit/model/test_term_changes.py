"""The terms by which two items differ, found by one walk over both, against their two sets of terms."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from armillary.model.indexes.indexing import IndexingPolicy, count_charged
from armillary.model.indexes.terms import TS_PATH

_POLICIES: dict[str, Any] = {
    "default": None,
    "paths": {"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/a/c/?"}, {"path": "/b/*"}]},
}
_SCALARS = (1, 1.0, True, False, None, 0, -0.0, 0.0, -3, "", "x", "x" * 126, "x" * 127 + "a", "x" * 127 + "b", "é\x00")


@pytest.mark.parametrize("name", list(_POLICIES))
def test_changes_are_the_differences_of_the_terms(name: str, seed: int, amount: Callable[[int], int]) -> None:
    dice = random.Random(seed)
    policy = IndexingPolicy.parse(_POLICIES[name], key_definition=None, has_ttl=True)
    said = 0
    for _ in range(amount(20_000)):
        before = _item(dice)
        after = _changed(dice, before) if dice.randrange(4) else _item(dice)
        stored = {**before, "_rid": "r", "_etag": "e", "_self": "s", "_attachments": "a", "_ts": 5}
        if not dice.randrange(5):
            after |= {"_etag": "sent", "_ts": 4}
        times = 5, dice.choice((5, 6))
        found = policy.changes(stored, after, *times)
        if found is None:
            continue
        said += 1
        removed, added, charged = found
        old, new = policy.terms(before, times[0]).terms, policy.terms(after, times[1]).terms
        assert sorted(removed) == sorted(set(old) - set(new)), (before, after)
        assert sorted(added) == sorted(set(new) - set(old)), (before, after)
        assert charged == count_charged(removed) + count_charged(added)
        assert (TS_PATH in dict(added)) == (times == (5, 6))
    assert said


def test_what_a_term_of_an_item_is_charged(seed: int, amount: Callable[[int], int]) -> None:
    dice = random.Random(seed)
    policy = IndexingPolicy.parse(None, key_definition=None, has_ttl=True)
    for _ in range(amount(5_000)):
        made = policy.terms(_item(dice), 5)
        assert made.charged == count_charged(made.terms)
        assert len(set(made.terms)) == len(made.terms)


def test_policies_with_more_than_paths_say_nothing() -> None:
    composite = [[{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "ascending"}]]
    for given in ({"compositeIndexes": composite}, {"indexingMode": "none", "automatic": False}):
        policy = IndexingPolicy.parse(given, key_definition=None, has_ttl=False)
        assert policy.changes({"id": "1"}, {"id": "1"}, 1, 2) is None


def _value(dice: random.Random, depth: int = 3) -> Any:
    kind = dice.randrange(5)
    if kind == 0 and depth:
        return [_value(dice, depth - 1) for _ in range(dice.randrange(4))]
    if kind == 1 and depth:
        return {name: _value(dice, depth - 1) for name in dice.sample("abcd", dice.randrange(4))}
    return dice.choice(_SCALARS)


def _item(dice: random.Random) -> dict[str, Any]:
    return {"id": dice.choice("12"), **{name: _value(dice) for name in dice.sample("abcd", dice.randrange(5))}}


def _changed(dice: random.Random, value: Any) -> Any:
    """The same properties, some with other values."""
    if type(value) is dict:
        return {name: _changed(dice, inner) for name, inner in value.items()}
    if type(value) is list:
        return [_changed(dice, inner) for inner in value] if not dice.randrange(4) else value
    same = [each for each in _SCALARS if type(each) is type(value)]
    return dice.choice(same) if not dice.randrange(3) else value
