"""Keys that are the time of writing: all writes of a moment share one value, also where a thin sample has no value
twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from unit.insight.advice.test_verdicts import advice_on, gates, of, query

from armillary.errors import Failure
from armillary.insight.advice import wording
from armillary.insight.advice.candidates import asked_for
from armillary.insight.advice.gates import HOT
from armillary.insight.advice.ranking import UNDECIDED
from armillary.insight.advice.reading.clock_values import MONTH_S, grain_of
from armillary.insight.advice.reading.leaf_columns import digest_number
from armillary.insight.advice.reading.row_times import DAY_S, seconds_of
from armillary.insight.advice.request_load import Operation
from armillary.insight.verdict import CARE, GOOD, POOR
from armillary.limits import GB

Row = dict[str, Any]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
FORMS: dict[str, Callable[[datetime], Any]] = {
    "digits of minutes": lambda moment: int(moment.strftime("%Y%m%d%H%M")),
    "text of minutes": lambda moment: moment.strftime("%Y-%m-%d-%H%M"),
    "hours": lambda moment: moment.strftime("%Y/%m/%d %H"),
    "weeks": lambda moment: moment.strftime("%G-W%V"),
    "months": lambda moment: int(moment.strftime("%Y%m")),
    "a local hour": lambda moment: (moment + timedelta(hours=2)).strftime("%Y-%m-%dT%H:00:00"),
    "seconds since 1970": lambda moment: int(moment.timestamp()),
}


def rows_with(form: str, **more: str) -> Any:
    def row(source: random.Random, number: int) -> Row:
        moment = BEGIN + timedelta(seconds=source.uniform(0, 200 * DAY_S))
        return {
            "id": f"i{number}",
            "bucket": FORMS[form](moment),
            "device": f"d{source.randrange(5000)}",
            "state": source.choice(("on", "off")),
            "writtenAt": moment.isoformat(timespec="milliseconds"),
            **more,
        }

    return row


@pytest.mark.parametrize("form", FORMS)
def test_one_value_gets_all_writes_of_a_moment(form: str) -> None:
    load = (Operation("create", 2_000.0), query(60.0, "/bucket"), query(3.0, "/device"))
    advice = advice_on(rows_with(form), 2_000, *load, size_bytes=400 * GB)
    assert gates(advice, "/bucket") == {HOT: True} or of(advice, "/bucket").word == "impossible"
    assert advice.best is not None and advice.best.key in ("/device", "/id")
    assert of(advice, "/device").word in (GOOD, CARE)
    without = advice_on(rows_with(form), 2_000, size_bytes=400 * GB)
    assert of(without, "/bucket").word != GOOD


def test_a_part_that_is_the_time_does_not_spread_a_few_values() -> None:
    """At any moment {bucket}-{state} has two values, however many there are over the year."""
    load = (Operation("create", 2_000.0), query(60.0, "/bucket", "/state"), query(3.0, "/device"))
    asked = ("/bucket,/state",)
    advice = advice_on(rows_with("digits of minutes"), 2_000, *load, size_bytes=400 * GB, asked=asked)
    assert of(advice, "/bucket,/state").word == "impossible"
    assert all(each.word != GOOD for each in advice.judged if each.key == "{bucket}-{state}")


def test_a_time_that_is_written_seldom_is_no_clock() -> None:
    """Ten items a day with a time in seconds: no two share it."""
    advice = advice_on(rows_with("seconds since 1970"), 2_000)
    assert of(advice, "/bucket").scores.clock is None
    assert of(advice, "/bucket").word == GOOD


def test_a_time_that_does_not_follow_the_writing_is_no_clock() -> None:
    def row(source: random.Random, number: int) -> Row:
        return {**rows_with("hours")(source, number), "arrival": f"2026-{source.randrange(1, 13):02}-17"}

    advice = advice_on(row, 2_000, Operation("create", 2_000.0), query(60.0, "/arrival"), size_bytes=40 * GB)
    assert all(each.scores.clock is None for each in advice.judged if "arrival" in each.key)


def test_it_is_undecided_where_no_time_of_writing_is_known() -> None:
    def row(source: random.Random, number: int) -> Row:
        moment = BEGIN + timedelta(hours=source.randrange(4_000))
        return {"id": f"i{number}", "validUntil": moment.isoformat(), "cell": f"c{source.randrange(9000)}"}

    load = (Operation("create", 500.0), query(400.0, "/validUntil"), query(1.0, "/cell"))
    advice = advice_on(row, 5_000, *load, size_bytes=200 * GB)
    assert of(advice, "/validUntil").word == UNDECIDED
    assert not advice.is_decided and "time of writing" in wording.headline(advice)


def test_the_reason_names_the_grain_the_rate_and_the_present_value() -> None:
    load = (Operation("create", 20.0), query(6.0, "/bucket"), query(30.0, "/device"))
    advice = advice_on(rows_with("digits of minutes"), 2_000, *load, size_bytes=40 * GB)
    assert of(advice, "/bucket").word == POOR
    against = [each for each in wording.reasons_of(of(advice, "/bucket"), advice) if not each.is_for]
    assert against[0].text == (
        "it is the time of writing: all writes of a minute go to one value, 20.0 a second by the rates given"
    )
    assert against[0].example.startswith("2026-07-1")


@pytest.mark.parametrize(
    ("values", "grain_s"),
    [
        (["2026-01-01", "2026-02-01", "2026-04-01"], MONTH_S),
        (["2026-01-05", "2026-01-12", "2026-02-02"], 7 * DAY_S),
        (["2026-W02", "2026-W03", "2026-W07"], 7 * DAY_S),
        (["2026-01-05", "2026-01-13"], DAY_S),
        ([2026010112, 2026010113], 3_600.0),
        (["202601011207", "202601011213"], 60.0),
        ([1_767_225_601, 1_767_225_699], 1.0),
        ([1_767_225_601_123, 1_767_225_699_456], 0.001),
        ([1_767_225_601_123_457.0, 1_767_225_699_456_789.0], 0.0),
    ],
)
def test_grains(values: list[Any], grain_s: float) -> None:
    seconds = seconds_of(values)
    assert seconds is not None and grain_of(seconds) == grain_s


def test_numbers_that_are_no_times() -> None:
    assert seconds_of([20_261_399, 20_260_245]) is None  # a month 13 and a 45th day
    assert seconds_of(["1234567890", "999999"]) is None
    assert not np.isnan(seconds_of(["20260131", "20260201"])).any()  # type: ignore[arg-type]


def test_a_part_of_a_time_is_judged_on_request() -> None:
    load = (Operation("create", 2_000.0), query(60.0, "/device"))
    asked = ("{writtenAt:hour}", "{writtenAt:month}", "{device}-{writtenAt:month}", "{device}-{0..15}")
    advice = advice_on(rows_with("hours"), 2_000, *load, size_bytes=400 * GB, asked=asked)
    for key in asked[:2]:
        assert of(advice, key).word == "impossible" and HOT in gates(advice, key)
    assert of(advice, asked[2]).word in (GOOD, CARE) and of(advice, asked[3]).scores.candidate.suffixes == 16


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("{a}-{b", "no composed key"),
        ("{a}{b}", "no composed key"),
        ("{a}-{b:minute}", "no part of a time"),
        ("{a}-{a}", "names a path twice"),
        ("{a}-{0..0}", "from 2 to 1,000"),
        ("{a}-{0..1000}", "from 2 to 1,000"),
        ("{a:day}-{0..3}", "goes with a path"),
    ],
)
def test_composed_keys_that_are_refused(text: str, refusal: str) -> None:
    with pytest.raises(Failure, match=refusal):
        asked_for(text)


def test_composed_keys_are_read_as_reports_write_them() -> None:
    for text in ("{a}-{b:day}", "{a/b}-{c}", "{a}-{0..15}", "{at:month}"):
        assert asked_for(text).text == text
    assert asked_for("{a}").text == "/a"


def _visit(source: random.Random, number: int) -> Row:
    """Of a schedule: its days lie ahead of the time of writing, so that no write makes one of them hot."""
    written = BEGIN + timedelta(hours=number)
    day = written + timedelta(days=source.randrange(60))
    room = f"r{source.randrange(90)}"
    return {"id": f"v{number}", "bookedAt": written.isoformat(), "day": day.strftime("%Y-%m-%d"), "room": room}


def test_planned_queries_by_a_time_may_all_ask_for_the_present_one() -> None:
    by_day = (Operation("create", 5.0), query(100.0, "/day", "/room"), query(5.0, "/room"))
    advice = advice_on(_visit, 2_000, *by_day, asked=["/day", "/day,/room"])
    for key in ("/day", "/day,/room"):
        assert of(advice, key).word == UNDECIDED and gates(advice, key) == {HOT: False}
    assert advice.best is not None and advice.best.key == "/room"
    assert "/day may be asked for one value by most queries" in wording.headline(advice)
    # Where the days that were asked for are known, or few queries name them, nothing hangs on them.
    days = np.array([digest_number(_visit(random.Random(number), number)["day"]) for number in range(1_500)], np.uint64)
    seen = Operation("query", 100.0, frozenset({"/day"}), rows=10, values={"/day": days})
    assert of(advice_on(_visit, 2_000, seen, asked=["/day"]), "/day").word == GOOD
    rarely = (Operation("create", 50.0), query(1.0, "/day"), query(100.0, "/room"))
    assert gates(advice_on(_visit, 2_000, *rarely, asked=["/day"]), "/day") == {}
