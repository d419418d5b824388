"""The checkers themselves: every anomaly that is planted is found, by its name; no right history is accused."""

from __future__ import annotations

from typing import Any

import pytest
from faults.checkers.appends import Append, Read, Transaction, check_appends
from faults.checkers.feeds import Change, check_feed
from faults.checkers.items import NEVER, Call, Said, Verb, check_items
from faults.checkers.pages import check_pages
from faults.checkers.sessions import Observation, check_sessions
from faults.checkers.valid import valid_appends, valid_feed, valid_items, valid_pages, valid_sessions
from faults.ledger import Outcome

OK, ABSENT, EXISTS, STALE, REFUSED, UNKNOWN = Said
READ, CREATE, UPSERT, REPLACE, DELETE, INCREMENT = Verb
DONE, FAILED, OPEN = Outcome
HISTORIES = 200  # of each of the five kinds

# Items: calls as (verb, begun, ended, said, value, expected).
ITEMS: dict[str, list[tuple[Any, ...]]] = {
    "stale read": [(CREATE, 0, 1, OK, "a"), (UPSERT, 2, 3, OK, "b"), (READ, 4, 5, OK, "a")],
    "lost write": [(CREATE, 0, 1, OK, "a"), (READ, 2, 3, ABSENT)],
    "resurrection": [(CREATE, 0, 1, OK, "a"), (DELETE, 2, 3, OK), (READ, 4, 5, OK, "a")],
    "refused and there": [(CREATE, 0, 1, REFUSED, "a"), (READ, 2, 3, OK, "a")],
    "from nowhere": [(CREATE, 0, 1, OK, "a"), (READ, 2, 3, OK, "z")],
    "back and forth": [
        (CREATE, 0, 1, OK, "a"),
        (UPSERT, 2, 9, OK, "b"),
        (READ, 3, 4, OK, "b"),
        (READ, 5, 6, OK, "a"),
    ],
    "created twice": [(CREATE, 0, 1, OK, "a"), (CREATE, 2, 3, OK, "b")],
    "exists and is not there": [(CREATE, 0, 1, OK, "a"), (DELETE, 2, 3, OK), (CREATE, 4, 5, EXISTS, "b")],
    "replaced nothing": [(DELETE, 0, 1, ABSENT), (REPLACE, 2, 3, OK, "b")],
    "absent and there": [(CREATE, 0, 1, OK, "a"), (REPLACE, 2, 3, ABSENT, "b")],
    "deleted twice": [(CREATE, 0, 1, OK, "a"), (DELETE, 2, 3, OK), (DELETE, 2, 4, OK)],
    "condition ignored": [(CREATE, 0, 1, OK, "a"), (UPSERT, 2, 3, OK, "b"), (REPLACE, 4, 5, OK, "c", "a")],
    "condition refused": [(CREATE, 0, 1, OK, "a"), (REPLACE, 2, 3, STALE, "b", "a")],
    "two winners": [(CREATE, 0, 1, OK, "a"), (REPLACE, 2, 5, OK, "b", "a"), (REPLACE, 2, 5, OK, "c", "a")],
    "delete ignores condition": [(CREATE, 0, 1, OK, "a"), (UPSERT, 2, 3, OK, "b"), (DELETE, 4, 5, OK, None, "a")],
    "unknown, twice": [
        (CREATE, 0, 1, OK, "a"),
        (UPSERT, 2, NEVER, UNKNOWN, "b"),
        (READ, 3, 4, OK, "b"),
        (UPSERT, 5, 6, OK, "c"),
        (READ, 7, 8, OK, "b"),
    ],
    "unknown, after the death": [
        (CREATE, 0, 1, OK, "a"),
        (UPSERT, 2, 3, UNKNOWN, "b"),
        (READ, 4, 5, OK, "a"),
        (READ, 6, 7, OK, "b"),
    ],
    "seen before it was sent": [(CREATE, 0, 1, OK, "a"), (READ, 2, 3, OK, "b"), (UPSERT, 4, 5, UNKNOWN, "b")],
    "increment lost": [(CREATE, 0, 1, OK, 1), (INCREMENT, 2, 5, OK, 2), (INCREMENT, 2, 5, OK, 2)],
    "increment twice": [(CREATE, 0, 1, OK, 1), (INCREMENT, 2, 3, UNKNOWN), (READ, 4, 5, OK, 3)],
}


@pytest.mark.parametrize("name", ITEMS)
def test_items(name: str) -> None:
    rows = [(*row, None, None)[:6] for row in ITEMS[name]]
    calls = [Call(f"c{number}", "i", *row) for number, row in enumerate(rows)]
    assert [each.kind for each in check_items(calls)] == ["linearizability"]
    assert not check_items([call for call in calls if call.item != "i"])


def transaction(name: str, *actions: Append | Read, at: float = 0.0, outcome: Outcome = DONE) -> Transaction:
    return Transaction(name, actions, at, at + 1 if at else 100.0, outcome)


def a(value: int, item: str = "x") -> Append:
    return Append(item, value)


def r(*values: int, item: str = "x") -> Read:
    return Read(item, values)


APPENDS: dict[str, list[Transaction]] = {
    "G0": [
        transaction("t1", a(1), a(2, "y")),
        transaction("t2", a(3), a(4, "y")),
        transaction("t3", r(1, 3), r(4, 2, item="y")),
    ],
    "G1a": [transaction("t1", a(1), outcome=FAILED), transaction("t2", r(1))],
    "G1b": [transaction("t1", a(1), a(2)), transaction("t2", r(1))],
    "G1c": [transaction("t1", a(1), r(2, item="y")), transaction("t2", a(2, "y"), r(1))],
    "G-single": [
        transaction("t1", a(1), a(2, "y")),
        transaction("t2", r(1), r(item="y")),
        transaction("t3", r(2, item="y")),
    ],
    "G2": [
        transaction("t1", r(), a(2, "y")),
        transaction("t2", a(1), r(item="y")),
        transaction("t3", r(1), r(2, item="y")),
    ],
    "lost update": [transaction("t1", r(), a(1)), transaction("t2", r(), a(2)), transaction("t3", r(1, 2))],
    "duplicate append": [transaction("t1", a(1)), transaction("t2", r(1, 1))],
    "order": [transaction("t1", a(1)), transaction("t2", a(2)), transaction("t3", r(1, 2)), transaction("t4", r(2, 1))],
    "lost": [transaction("t1", a(1), at=1), transaction("t2", a(2), at=3), transaction("t3", r(1), at=5)],
    "phantom": [transaction("t1", a(1)), transaction("t2", r(1, 9))],
    "internal": [transaction("t1", a(1)), transaction("t2", r(1), a(2), r(1))],
    "real time": [transaction("t1", a(1), at=1), transaction("t2", r(), at=3), transaction("t3", r(1), at=5)],
}


@pytest.mark.parametrize("kind", APPENDS)
def test_appends(kind: str) -> None:
    kinds = {each.kind for each in check_appends(APPENDS[kind])}
    assert {each.kind for each in check_appends([transaction("t1", a(1), at=1), transaction("t2", r(), at=3)])} == {
        "lost"
    }
    assert kind in kinds, kinds
    assert not check_appends([transaction("t1", a(1)), transaction("t2", r(1), a(2), r(1, 2))])


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("read your writes", [(3, True), (2, False)]),
        ("monotonic reads", [(3, False), (2, False)]),
        ("monotonic writes", [(3, True), (3, True)]),
        ("writes follow reads", [(3, False), (2, True)]),
    ],
)
def test_sessions(kind: str, steps: list[tuple[int, bool]]) -> None:
    observations = [Observation("s", "i", version, is_write) for version, is_write in steps]
    assert [each.kind for each in check_sessions(observations)] == [kind]
    apart = [Observation(f"s{number}", "i", *step) for number, step in enumerate(steps)]
    assert not check_sessions(apart)


def change(version: str, lsn: int, batch: str | None = None) -> Change:
    return Change(version[0], version, lsn, batch)


VERSIONS = {"a": ["a1", "a2", "a3"], "b": ["b1"], "c": ["c1"]}
FINAL = {"a": "a3", "b": "b1"}


@pytest.mark.parametrize(
    ("kind", "pages"),
    [
        ("duplicate", [[change("b1", 1), change("a3", 2)], [change("a3", 2)]]),
        ("backwards", [[change("b1", 1), change("a3", 2), change("a2", 3), change("a3", 4)]]),
        ("missing", [[change("a3", 2)]]),
        ("fold", [[change("b1", 1), change("a2", 2)]]),
        ("ghost", [[change("b1", 1), change("c1", 2), change("a3", 3)]]),
        ("phantom", [[change("b1", 1), change("a3", 2), change("a9", 3)]]),
        ("lsn", [[change("b1", 3), change("a3", 2)]]),
        ("torn", [[change("a1", 1, "t"), change("b1", 1), change("a3", 1, "t")]]),
        ("cut", [[change("a3", 1, "t")], [change("b1", 1, "t")]]),
    ],
)
def test_feeds(kind: str, pages: list[list[Change]]) -> None:
    kinds = {each.kind for each in check_feed(pages, VERSIONS, FINAL)}
    assert kind in kinds, kinds
    assert not check_feed([[change("a1", 1)], [change("b1", 2), change("a3", 3)]], VERSIONS, FINAL)


ROWS = [{"id": f"i{number}", "rank": number} for number in range(6)]


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("skipped", [*ROWS[:2], *ROWS[3:]]),
        ("duplicate", [*ROWS[:3], *ROWS[2:]]),
        ("changed", [*ROWS[:5], {"id": "i5", "rank": 9}]),
        ("phantom", [*ROWS, {"id": "z", "rank": 9}]),
        ("order", [ROWS[1], ROWS[0], *ROWS[2:]]),
    ],
)
@pytest.mark.parametrize("is_ordered", [True, False])
def test_pages(kind: str, rows: list[dict[str, Any]], is_ordered: bool) -> None:
    order = (lambda row: row["rank"]) if is_ordered else None
    found = check_pages([rows[:2], rows[2:]], ROWS, order=order, may_show=lambda row: False)
    assert [each.kind for each in found] == [kind]
    assert not check_pages([ROWS[:4], [], ROWS[4:]], ROWS, order=order)
    twice = [*ROWS, {"id": "z", "rank": 9}, {"id": "z", "rank": 10}]
    assert check_pages([twice], ROWS, order=order)
    assert not check_pages([twice], ROWS, order=order, moves=lambda row: row["id"] == "z")


def test_right_histories(seed: int) -> None:
    for number in range(seed, seed + HISTORIES):
        found = check_items(valid_items(number), {"counter": 0})
        found += check_appends(valid_appends(number))
        found += check_sessions(valid_sessions(number))
        found += check_feed(*valid_feed(number))
        pages, untouched = valid_pages(number)
        found += check_pages(pages, untouched, order=lambda row: row["rank"])
        assert not found, f"--seed {number}: {found[0]}"
