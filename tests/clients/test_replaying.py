"""What the replay of recorded requests learns, substitutes and notices."""

from __future__ import annotations

from typing import Any

import pytest
from clients.recording.selection import kept_exchanges
from clients.replaying.comparison import differences
from clients.replaying.volatile_values import VolatileValues
from clients.steps import Step, parse_step


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("ok read-item", Step("read-item", "ok")),
        ("missing bulk: no such thing", Step("bulk", "missing", "no such thing")),
        ("failed query-top: a: b", Step("query-top", "failed", "a: b")),
        ("okay read-item", None),
        ("ok Read Item", None),
        ("WARNING: ok", None),
    ],
)
def test_lines_of_programs(line: str, step: Step | None) -> None:
    assert parse_step(line) == step


@pytest.mark.parametrize(
    ("recorded", "live", "count"),
    [
        ({"id": "1", "_etag": "old"}, {"id": "1", "_etag": "new"}, 0),
        ({"id": "1"}, {"id": "2"}, 1),
        ({"id": "1"}, {"id": "1", "more": 1}, 1),
        ([1, 2], [2, 1], 2),
        ([1], [1, 2], 1),
        (1, True, 1),
        (1, 1.0, 0),
        ("ActivityId: 01234567-89ab-cdef-0123-456789abcdef", "ActivityId: 11234567-89ab-cdef-0123-456789abcdef", 0),
    ],
)
def test_differences(recorded: Any, live: Any, count: int) -> None:
    assert len(list(differences(recorded, live, VolatileValues()))) == count


def test_what_was_learned_is_put_into_requests() -> None:
    values = VolatileValues()
    assert not list(
        differences({"_self": "dbs/AAAAAQ==/", "_etag": '"7"'}, {"_self": "dbs/BBBBBQ==/", "_etag": '"8"'}, values)
    )
    assert values.put("/dbs/AAAAAQ==/colls") == "/dbs/BBBBBQ==/colls"
    assert values.put('"7"') == '"8"', "short texts are replaced where they are all of a value"
    assert values.put('say "7"') == 'say "7"'


def test_session_tokens_are_learned_by_range() -> None:
    values = VolatileValues()
    values.learn_session("0:1#5,1:1#7", "1:1#70,0:1#50")
    assert values.session("1:1#7,0:1#5") == "1:1#70,0:1#50"
    assert values.session("3:1#9") == "3:1#9"


def test_requests_that_depend_on_timing_are_not_kept() -> None:
    made = {"id": "processor-leases", "_rid": "AAAAAYAAAAE="}
    exchanges: list[dict[str, Any]] = [
        {"api": "control", "method": "GET", "target": "/_armillary/reshapes"},
        {"api": "control", "method": "POST", "target": "/_armillary/faults"},
        {
            "api": "sql",
            "method": "POST",
            "target": "/dbs/d/colls",
            "body": '{"id": "processor-leases"}',
            "answer": {"json": made},
        },
        {"api": "sql", "method": "GET", "target": "/dbs/d/colls/processor-leases/docs"},
        {"api": "sql", "method": "GET", "target": "/dbs/AAAAAQ==/colls/AAAAAYAAAAE=/docs"},
        {"api": "sql", "method": "GET", "target": "/dbs/d/colls/items/docs"},
    ]
    assert [each["target"] for each in kept_exchanges(exchanges)] == ["/_armillary/faults", "/dbs/d/colls/items/docs"]
