"""The state of containers and offers: the stored form is kept as it is, unknown fields included."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

import armillary
from armillary.account.catalog.container_state import (
    CollectionState,
    ContainerState,
    FormerKey,
    IndexState,
    MigrationTarget,
    OfferState,
    PastRange,
    RetiredStore,
)
from armillary.model.ranges import KeyRange

SMALLEST: dict[str, Any] = {
    "ranges": [{"id": 0, "low": "", "high": "ff", "parents": [], "store": 1}],
    "next_range": 1,
    "rules": 1,
    "first_lsn": 0,
}
LARGEST: dict[str, Any] = {
    "table_policies": {"a": {"sp": "r"}},
    "ranges": [{"id": 3, "low": "", "high": "ff", "parents": [0, 1], "store": 4, "later": True}],
    "next_range": 4,
    "rules": 7,
    "first_lsn": 12,
    "throughput_mode": "observe",
    "throughput_buckets": {"1": 50},
    "mongo": {"uuid": "u", "options": "05", "images": True, "cap": [4096, None], "later": 1},
    "watched": True,
    "older_rules": {"6": {"defaultTtl": 3, "indexes": [{"definition": {"name": "a_1"}, "slot": 16}]}},
    "indexes": [{"definition": {"name": "b_1"}, "slot": 0}],
    "next_reshape": 2,
    "reshapes": [
        {
            "number": 1,
            "parents": [3],
            "children": [{"low": "", "high": "7f", "store": 5}, {"low": "7f", "high": "ff", "store": 6}],
            "reason": "storage",
        }
    ],
    "retired": [{"id": 0, "store": 2, "until_s": 17.5}],
    "past": [{"id": 0, "low": "", "high": "7f"}],
    "wanted_ranges": 9,
    "versions": 3,
    "former_key": None,
    "former_rid": "0a",
    "migration": {"source": "r", "adds_policy": True, "like": None},
}


@pytest.mark.parametrize("stored", [SMALLEST, LARGEST])
def test_what_does_not_change_is_written_as_it_was_stored(stored: dict[str, Any]) -> None:
    parsed = ContainerState.parse(stored)
    assert orjson.dumps(parsed.to_json()) == orjson.dumps(stored)
    changed = replace(parsed, next_range=99).to_json()
    assert orjson.dumps(changed) == orjson.dumps({**stored, "next_range": 99})


def test_every_field_is_written_in_the_stored_form() -> None:
    parsed = ContainerState.parse(LARGEST)
    known = {name: value for name, value in LARGEST.items() if name != "table_policies"}
    known["ranges"] = [{name: value for name, value in LARGEST["ranges"][0].items() if name != "later"}]
    assert orjson.dumps(replace(parsed, stored={}).to_json()) == orjson.dumps(known)


def test_the_fields_have_types() -> None:
    parsed = ContainerState.parse(LARGEST)
    assert parsed.ranges == (KeyRange(3, b"", b"\xff", (0, 1), 4),)
    assert parsed.past == (PastRange(0, b"", b"\x7f"),)
    assert parsed.retired == (RetiredStore(0, 2, 17.5),)
    assert parsed.collection == CollectionState("u", "05", True, (4096, None), {"later": 1})
    assert parsed.older_rules[6].indexes == (IndexState({"name": "a_1"}, 16),)
    assert parsed.throughput_buckets == {1: 50}
    assert parsed.former_key == FormerKey(None)
    assert parsed.migration == MigrationTarget("r", True, None)
    assert parsed.stores == [4, 5, 6, 2]
    found = parsed.reshape(1)
    assert found is not None
    assert found.stores == [5, 6]
    assert parsed.without_reshape(1) == ()


def test_what_is_over_leaves_no_field_behind() -> None:
    parsed = ContainerState.parse(LARGEST)
    over = replace(parsed, wanted_ranges=0, older_rules={}, throughput_mode=None, throughput_buckets={}, migration=None)
    gone = {"wanted_ranges", "older_rules", "throughput_mode", "throughput_buckets", "migration"}
    assert over.to_json().keys() == LARGEST.keys() - gone
    assert replace(parsed, reshapes=(), retired=()).to_json() == {**LARGEST, "reshapes": [], "retired": []}


def test_a_state_without_ranges_is_refused() -> None:
    with pytest.raises(KeyError, match="ranges"):
        ContainerState.parse({"next_range": 1})


def test_an_offer_keeps_unknown_fields() -> None:
    stored = {"owner": "r", "highest_ru": 400, "later": 1}
    parsed = OfferState.parse(stored)
    assert parsed.to_json(stored) == stored
    assert replace(parsed, before={"content": 1}).to_json(stored) == {**stored, "before": {"content": 1}}


def test_other_modules_use_the_typed_state() -> None:
    """The stored names of fields are known to `container_state.py` alone, but for the validation of snapshot files."""
    account = Path(armillary.__file__).parent / "account"
    found = [
        f"{path.relative_to(account)}: {match[0]}"
        for path in sorted(account.rglob("*.py"))
        for match in re.finditer(r"""\.state(\[|\.get\()["'].*""", path.read_text("utf-8"))
        if path.name != "import_checks.py"
    ]
    assert found == []
