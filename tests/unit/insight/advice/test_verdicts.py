"""Gates, intervals, words and order of candidate keys, and what is undecided."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from armillary.insight.advice import wording
from armillary.insight.advice.advice_plan import Plan
from armillary.insight.advice.advisor import Advice, advise
from armillary.insight.advice.candidates import asked_for
from armillary.insight.advice.captured_load import load_of_records
from armillary.insight.advice.gates import CHANGING, FULL, HOT, MISSING, UNFIT, rows_needed
from armillary.insight.advice.ranking import IMPOSSIBLE, UNDECIDED, Judged
from armillary.insight.advice.reading.data_profile import Profiler
from armillary.insight.advice.reading.leaf_columns import digest_number
from armillary.insight.advice.request_load import Load, Operation, RequestRecord
from armillary.limits import GB
from armillary.model.keys import parse_path

Row = dict[str, Any]


def advice_on(
    make: Callable[[random.Random, int], Row],
    rows: int = 2_000,
    *operations: Operation,
    load: Load | None = None,
    **options: Any,
) -> Advice:
    source = random.Random(11)
    asked = [asked_for(each) for each in options.pop("asked", ())]
    profiler = Profiler(named=[parse_path(path) for each in asked for path in each.paths])
    for number in range(rows):
        profiler.add(make(source, number))
    found = load if load is not None else Load(operations, "the test")
    return advise(profiler.profile(), found, Plan(**options), asked=asked)


def of(advice: Advice, key: str) -> Judged:
    return next(each for each in advice.judged if each.key == key)


def gates(advice: Advice, key: str) -> dict[str, bool]:
    return {gate.name: gate.is_broken for gate in of(advice, key).gates}


def query(rate: float, *paths: str) -> Operation:
    return Operation("query", rate, frozenset(paths), rows=10)


def item(source: random.Random, number: int) -> Row:
    return {"id": f"i{number}", "user": f"u{source.randrange(500)}", "kind": source.choice("abc")}


BY_USER = (Operation("create", 50.0), query(100.0, "/user"))


def test_a_missing_value_breaks_a_gate() -> None:
    advice = advice_on(
        lambda source, number: item(source, number) if number % 20 else {"id": f"i{number}", "kind": "a"},
        2_000,
        *BY_USER,
        asked=["/user"],
    )
    assert gates(advice, "/user")[MISSING] and of(advice, "/user").word == IMPOSSIBLE
    assert advice.best is None or "/user" not in advice.best.key


def test_an_object_or_a_long_value_is_no_key() -> None:
    def row(source: random.Random, number: int) -> Row:
        return item(source, number) | {"where": {"x": 1} if number % 2 else "here", "text": "t" * 2_100 + str(number)}

    advice = advice_on(row, 2_000, *BY_USER, asked=["/where", "/text"])
    assert UNFIT in gates(advice, "/where") and gates(advice, "/text")[UNFIT]


def test_one_id_with_two_values_is_a_change() -> None:
    def row(source: random.Random, number: int) -> Row:
        found = item(source, number)
        return found | {"id": f"i{number - 1}"} if number in (100, 900) else found

    advice = advice_on(row, 2_000, *BY_USER)
    assert gates(advice, "/user")[CHANGING]


def test_ids_that_are_unique_inside_a_key_only_are_no_change() -> None:
    advice = advice_on(lambda source, number: item(source, number) | {"id": f"i{number % 40}"}, 2_000, *BY_USER)
    assert CHANGING not in gates(advice, "/user")
    assert advice.best is not None and advice.best.key == "/user"


def skewed(share: float) -> Callable[[random.Random, int], Row]:
    def row(source: random.Random, number: int) -> Row:
        tenant = 0 if source.random() < share else source.randrange(1, 400)
        return {"id": f"i{number}", "tenant": f"t{tenant}", "user": f"t{tenant}-{source.randrange(3000)}"}

    return row


BY_TENANT = (Operation("create", 50.0), query(100.0, "/tenant"), query(50.0, "/tenant", "/user"))


def test_a_full_key_breaks_a_gate_and_a_hierarchical_key_is_advised() -> None:
    advice = advice_on(skewed(0.2), 2_000, *BY_TENANT, size_bytes=400 * GB)
    assert gates(advice, "/tenant")[FULL] and of(advice, "/tenant").word == IMPOSSIBLE
    assert advice.best is not None and advice.best.scores.candidate.paths[0] == "/tenant"
    assert "/tenant alone reaches 20 GB for t0 already (" in wording.headline(advice)


def test_a_limit_inside_the_interval_is_undecided_and_says_how_many_rows_would_tell() -> None:
    # 5 % of 400 GB are the 20 GB of a logical partition.
    advice = advice_on(skewed(0.05), 2_000, *BY_TENANT, size_bytes=400 * GB)
    assert gates(advice, "/tenant") == {FULL: False} and of(advice, "/tenant").word == UNDECIDED
    gate = of(advice, "/tenant").gates[0]
    assert gate.rows_needed > 2_000 and "hangs on the sample" in gate.text


def test_rows_needed() -> None:
    assert rows_needed(0.06, 0.05, 100) == pytest.approx(1.96**2 * 0.06 * 0.94 / 0.01**2, abs=1)
    assert rows_needed(0.5, 0.05, 3_000) == 6_000


def test_a_hot_value_breaks_a_gate() -> None:
    advice = advice_on(skewed(0.5), 2_000, Operation("create", 4_000.0), query(100.0, "/tenant"))
    assert gates(advice, "/tenant")[HOT]
    assert advice.best is not None and advice.best.key != "/tenant"


def test_with_throughput_a_value_may_not_be_hotter_than_a_partition() -> None:
    options: dict[str, Any] = {"size_bytes": 300 * GB}
    operations = (Operation("create", 300.0), query(100.0, "/tenant"))
    assert HOT not in gates(advice_on(skewed(0.06), 2_000, *operations, **options), "/tenant")
    judged = advice_on(skewed(0.06), 2_000, *operations, throughput_ru=1_000, **options)
    assert HOT in gates(judged, "/tenant")


def test_few_rows_are_undecided() -> None:
    advice = advice_on(item, 400, *BY_USER)
    assert not advice.is_decided and advice.best is None
    assert wording.headline(advice) == "Undecided: 400 rows are too few: read 600 more (1,000 at least)."


def test_no_rows_at_all() -> None:
    advice = advice_on(item, 0, *BY_USER)
    assert not advice.is_decided
    assert "read 1,000 more" in wording.headline(advice)


def test_few_captured_requests_are_undecided() -> None:
    records = [RequestRecord("query", t * 100.0, eq={"/user": t % 7 + 1}, ru=3.0, rows=1) for t in range(300)]
    advice = advice_on(item, load=load_of_records(records, origin="a capture"))
    assert not advice.is_decided
    assert "300 requests are too few to tell the keys apart: capture 700 more" in wording.headline(advice)


def test_must_decides_without_requests() -> None:
    advice = advice_on(skewed(0.2), 2_000, must=("/tenant",), size_bytes=400 * GB)
    assert advice.best is not None and advice.best.scores.candidate.paths[0] == "/tenant"
    assert all(advice.is_eligible(each) == ("/tenant" in each.scores.candidate.paths) for each in advice.judged)


def test_never_leaves_a_path_out() -> None:
    advice = advice_on(item, 2_000, *BY_USER, never=("/user",))
    assert all("/user" not in each.scores.candidate.paths for each in advice.judged)


def test_reads_by_id_alone_choose_id_where_throughput_is_the_same() -> None:
    advice = advice_on(item, 2_000, Operation("read", 500.0), query(2.0, "/user"))
    assert advice.best is not None and advice.best.key == "/id"
    known = advice_on(item, 2_000, Operation("read", 500.0), query(20.0, "/user"), known=("/user",))
    assert known.best is not None and known.best.key == "/user"


def test_what_the_application_does_not_know_is_a_query() -> None:
    operations = (Operation("read", 500.0), query(60.0, "/user"))
    options: dict[str, Any] = {"size_bytes": 300 * GB}
    assert (best := advice_on(item, 2_000, *operations, **options).best) is not None and best.key == "/user"
    unknown = advice_on(item, 2_000, *operations, known=("/kind",), **options)
    assert unknown.best is not None and unknown.best.key == "/id"


def test_transactions_that_are_lost_are_told() -> None:
    records = []
    for t in range(1_500):
        user = digest_number(f"u{t // 2 % 300}")
        leaf = {"/id": digest_number(f"i{t}"), "/user": user, "/kind": digest_number(t % 3)}
        records.append(
            RequestRecord("create", t * 200.0, key=str(user), id=leaf["/id"], leaf=leaf, ru=7.0, group=str(t // 2))
        )
        records.append(RequestRecord("query", t * 200.0, eq={"/user": user}, ru=4.0, rows=2))
    advice = advice_on(item, load=load_of_records(records, origin="a capture"))
    assert advice.best is not None and advice.best.key == "/user"
    assert of(advice, "/user").scores.transactions_kept == 1.0
    assert of(advice, "/id").scores.transactions_kept == 0.0 and of(advice, "/id").word != "good"


def test_an_update_in_the_capture_is_a_change() -> None:
    records = [
        RequestRecord("create", 0.0, key="a", id=1, leaf={"/id": 1, "/user": 5, "/kind": 1}),
        RequestRecord("replace", 9.0, key="a", id=1, leaf={"/id": 1, "/user": 5, "/kind": 2}),
        *[RequestRecord("query", 10.0 * t, eq={"/user": t % 9 + 1}, ru=3.0) for t in range(1_200)],
    ]
    advice = advice_on(item, load=load_of_records(records, origin="a capture"), asked=["/kind"])
    assert gates(advice, "/kind")[CHANGING] and CHANGING not in gates(advice, "/user")


def test_if_every_key_is_poor_it_says_so_and_what_would_help() -> None:
    def row(source: random.Random, number: int) -> Row:
        return {"id": f"i{number}", "day": f"2026-{1 + number // 400:02}-{1 + number // 20 % 20:02}"}

    advice = advice_on(row, 2_000, Operation("create", 100.0), never=("/id",), size_bytes=60 * GB)
    assert advice.is_decided and advice.best is None
    assert wording.headline(advice) == (
        "No key is good. The least poor is /day: /day sends 100 % of the writes of a day to one value. Add a property "
        "that spreads the writes of one moment, such as a device, a user or a number from 0 to 15."
    )


def test_the_best_of_the_impossible_is_not_recommended() -> None:
    def row(source: random.Random, number: int) -> Row:
        return {"id": f"i{number}", "kind": source.choice("ab")}

    advice = advice_on(row, 2_000, query(100.0, "/kind"), never=("/id",), size_bytes=90 * GB)
    assert advice.is_decided and advice.best is None
    assert wording.headline(advice).startswith("No candidate is possible. /kind alone reaches 20 GB for ")


def test_another_candidate_does_not_change_the_verdict_on_others() -> None:
    few = advice_on(item, 2_000, *BY_USER, size_bytes=300 * GB)
    more = advice_on(item, 2_000, *BY_USER, size_bytes=300 * GB, asked=["/kind,/user", "/user,/kind,/id"])
    for each in few.judged:
        assert of(more, each.key).word == each.word
        assert of(more, each.key).scores.required_ru == each.scores.required_ru


def test_growth_names_the_month_in_which_a_key_is_full() -> None:
    def row(source: random.Random, number: int) -> Row:
        day = f"2026-{1 + number // 400:02}-{1 + number // 20 % 20:02}"
        return skewed(0.3)(source, number) | {"createdAt": f"{day}T00:00:{number % 60:02}Z"}

    advice = advice_on(row, 2_000, *BY_TENANT, size_bytes=40 * GB, growth_bytes_day=0.5 * GB, horizon_days=365)
    assert gates(advice, "/tenant")[FULL]
    assert "/tenant alone reaches 20 GB for t0 in July 2026 (29 % of the bytes);" in wording.headline(advice)
