"""The ledger itself: it accuses every kind of wrong outcome, and none that is right."""

from __future__ import annotations

from typing import Any

import pytest
from faults.ledger import Chain, Counter, Group, Ledger, Outcome, State, filler


def item(item_id: str, token: str, **more: Any) -> dict[str, Any]:
    text = filler(token, 20)
    return {"id": item_id, "key": "k", "token": token, "origin": token, "steps": 0, "filler": text, "_etag": "", **more}


def group_after(writes: list[tuple[State, Outcome]]) -> Ledger:
    ledger = Ledger()
    group = ledger.groups["g"] = Group("g", "k")
    for after, outcome in writes:
        ledger.begin(group, "write", after)
        ledger.end(group, outcome)
    return ledger


OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN
ONE, TWO = {"g.0": "t1+0"}, {"g.0": "t2+0", "g.1": "t3+0"}
STORED_ONE = [item("g.0", "t1")]
STORED_TWO = [item("g.0", "t2"), item("g.1", "t3")]


@pytest.mark.parametrize(
    ("writes", "stored", "accusation"),
    [
        ([(ONE, OK)], STORED_ONE, None),
        ([(ONE, OK)], [], "lost"),
        ([(ONE, FAILED)], [], None),
        ([(ONE, FAILED)], STORED_ONE, "phantom"),
        ([(ONE, UNKNOWN)], [], None),
        ([(ONE, UNKNOWN)], STORED_ONE, None),
        ([(ONE, OK), (TWO, OK)], STORED_TWO, None),
        ([(ONE, OK), (TWO, OK)], STORED_ONE, "lost"),
        ([(ONE, OK), (TWO, FAILED)], STORED_ONE, None),
        ([(ONE, OK), (TWO, FAILED)], STORED_TWO, "lost"),
        ([(ONE, OK), (TWO, UNKNOWN)], STORED_ONE, None),
        ([(ONE, OK), (TWO, UNKNOWN)], STORED_TWO, None),
        ([(ONE, OK), (TWO, UNKNOWN)], [item("g.0", "t2")], "torn"),
        ([(ONE, OK), (TWO, UNKNOWN)], [item("g.0", "t1"), item("g.1", "t3")], "torn"),
        ([(ONE, OK), ({}, OK)], [], None),
        ([(ONE, OK), ({}, OK)], STORED_ONE, "phantom"),
        ([(ONE, OK)], [item("g.0", "t1", steps=1)], "lost"),
        ([(ONE, OK)], [item("g.0", "t1", filler=filler("t9", 20))], "torn"),
        ([(ONE, OK)], [*STORED_ONE, *STORED_ONE], "phantom"),
        ([(ONE, OK)], [*STORED_ONE, item("x.0", "t7")], "phantom"),
    ],
)
def test_groups(writes: list[tuple[State, Outcome]], stored: list[dict[str, Any]], accusation: str | None) -> None:
    ledger = group_after(writes)
    ledger.compare(stored)
    assert [each.kind for each in ledger.violations] == ([] if accusation is None else [accusation])


def test_an_unknown_write_resolves_once() -> None:
    ledger = group_after([(ONE, OK), (TWO, UNKNOWN)])
    ledger.compare(STORED_ONE)
    assert not ledger.violations
    ledger.compare(STORED_TWO)
    assert [each.kind for each in ledger.violations] == ["lost"]


@pytest.mark.parametrize(("count", "is_right"), [(1, False), (2, True), (3, True), (4, False)])
def test_counters(count: int, is_right: bool) -> None:
    ledger = Ledger()
    counter = ledger.counters["n"] = Counter("n", "k")
    for outcome in (OK, OK, FAILED, UNKNOWN):
        ledger.end_count(counter, outcome)
    ledger.compare([{"id": "n", "count": count}])
    assert (not ledger.violations) is is_right


@pytest.mark.parametrize(
    ("stored", "is_right"), [("t1", False), ("t2", True), ("t3", False), ("t4", True), ("first", False)]
)
def test_chains(stored: str, is_right: bool) -> None:
    ledger = Ledger()
    chain = ledger.chains["c"] = Chain("c", "k", "first")
    for parent, outcome in (("first", OK), ("t1", OK), ("t2", FAILED), ("t2", UNKNOWN)):
        ledger.end_link(chain, ledger.begin_link(chain, parent), outcome)
    ledger.compare([{"id": "c", "token": stored}])
    assert (not ledger.violations) is is_right


def test_lost_updates_show_in_a_chain() -> None:
    ledger = Ledger()
    chain = ledger.chains["c"] = Chain("c", "k", "first")
    for parent in ("first", "first"):
        ledger.end_link(chain, ledger.begin_link(chain, parent), OK)
    ledger.compare([{"id": "c", "token": "t2"}])
    assert [each.kind for each in ledger.violations] == ["lost"]


def test_lsns() -> None:
    ledger = Ledger()
    ledger.note_lsn(0, 5, "a")
    ledger.note_lsn(1, 5, "b")
    ledger.note_lsn(0, 4, "c")
    assert not ledger.violations
    ledger.note_lsn(0, 5, "d")
    assert len(ledger.violations) == 1
    ledger.compare([])
    ledger.note_lsn(0, 6, "e")
    assert len(ledger.violations) == 1
    ledger.note_lsn(0, 3, "f")
    assert [each.kind for each in ledger.violations] == ["lsn", "lsn"]
