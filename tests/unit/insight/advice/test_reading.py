"""Reading of rows: columns, counts, sketches, the reservoir and times, with hostile rows among them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import orjson
import pytest

from armillary.insight.advice.candidates import usable_paths
from armillary.insight.advice.reading.data_profile import BATCH_ROWS, Profile, Profiler
from armillary.insight.advice.reading.leaf_columns import NODES_MAX, digest_number, path_of
from armillary.insight.advice.reading.path_choice import PATHS_MAX
from armillary.insight.advice.reading.reservoir import Reservoir
from armillary.insight.advice.reading.row_times import Windows, seconds_of, writing_time
from armillary.insight.advice.reading.value_counts import ValueCounts
from armillary.model.keys import PartitionKeyDefinition, parse_path


def profile_of(rows: list[Any], **options: Any) -> Profile:
    profiler = Profiler(**options)
    for row in rows:
        profiler.add(row)
    return profiler.profile()


def test_a_digest_is_the_beginning_of_the_real_hash() -> None:
    definition = PartitionKeyDefinition(("/a",))
    for value in ("de", "", "ä", 7, 7.0, -0.5, True, False):
        effective = definition.effective_key(definition.extract({"a": value}))
        assert digest_number(value) == int.from_bytes(effective[:8], "big")
    assert digest_number(1) == digest_number(1.0) != digest_number(True)


def test_values_are_counted_exactly_and_then_by_sketches() -> None:
    values = ["big" if number % 4 == 0 else f"k{number}" for number in range(6_000)]
    digests = np.array([digest_number(value) for value in values], np.uint64)
    exact, sketched = ValueCounts(), ValueCounts(exact_max=1_000)
    for counts in (exact, sketched):
        for first in range(0, len(values), 500):
            batch = slice(first, first + 500)
            counts.add(digests[batch], np.full(500, 300.0), values[batch])
    assert exact.is_exact and exact.distinct() == (4501, 4501, 4501)
    assert not sketched.is_exact and sketched.all_values() is None
    distinct = sketched.distinct()
    assert distinct.low <= 4501 <= distinct.high and distinct.value == pytest.approx(4501, rel=0.03)
    assert exact.largest(1) == [(digest_number("big"), 450_000.0)]
    digest, size = sketched.largest(1)[0]
    assert sketched.names[digest] == "big" and size == pytest.approx(450_000.0, rel=0.02)


def test_types_presence_and_sizes() -> None:
    rows = [
        {"id": "1", "a": 1, "b": None, "c": {"d": True}},
        {"id": "2", "a": "x", "b": 2, "c": {"d": False}},
        {"id": "3", "a": [1], "b": 2.5, "c": {"d": True, "e": {}}},
    ]
    found = profile_of(rows, named=[("a",), ("b",)])
    assert (found.paths["/a"].present, found.paths["/a"].objects, found.paths["/a"].numbers) == (2, 1, 1)
    assert (found.paths["/b"].present, found.paths["/b"].nulls) == (2, 1)
    assert found.paths["/c/d"].truths == 3
    assert found.size_bytes == sum(205 + len(orjson.dumps(row)) for row in rows)


def test_system_properties_are_left_out() -> None:
    found = profile_of([{"id": "1", "_rid": "x", "_ts": 1, "a": 1}, {"id": "2", "a": 2}])
    assert set(found.paths) == {"/id", "/a"}


NAMES = ["a b", "a/b", 'a"b', "a'b", "*", "?", "[]", "", "ä", "\n", "\0", "a\\b", "{x}", "<b>", "a,b", "--", " x "]


@pytest.mark.parametrize("name", NAMES)
def test_names_with_any_character(name: str) -> None:
    found = profile_of([{"id": str(number), name: number} for number in range(50)])
    paths = [each for each in found.paths if each != "/id"]
    for path in paths:
        assert parse_path(path) == (name,)
    if path_of((name,)) is None:
        assert paths == []


def test_hostile_rows() -> None:
    deep: dict[str, Any] = {}
    inner = deep
    for _ in range(500):
        inner["x"] = {}
        inner = inner["x"]
    source = random.Random(3)
    rows: list[dict[str, Any]] = [
        {"id": "deep", "d": deep},
        {"id": "long", "text": "ä" * 3_000},
        {"id": "wide", **{f"p{number}": number for number in range(NODES_MAX + 500)}},
        {"id": "big", "n": 2**70, "f": 1e308, "neg": -0.0},
        {"id": "surrogate", "s": "\ud800"},
        {"id": 7, "other": []},
        {},
    ]
    rows += [{"id": str(number), "text": source.choice(["a", 1, True, None, [], {}])} for number in range(200)]
    found = profile_of(rows)
    assert found.rows == len(rows) and found.columns.too_deep == 1 and found.columns.too_many >= 500
    assert len(found.paths) <= PATHS_MAX
    assert "/text" not in {each.path for each in usable_paths(found)}


def test_of_many_paths_those_that_are_named_are_counted() -> None:
    rows = [{"id": str(number), **{f"p{path:03}": number for path in range(100)}} for number in range(20)]
    found = profile_of(rows, named=[("p099",)])
    assert len(found.paths) == PATHS_MAX and len(found.uncounted) == 101 - PATHS_MAX
    assert "/p099" in found.paths and "/p098" in found.uncounted


def test_of_many_paths_those_that_look_like_keys_are_counted() -> None:
    def row(number: int) -> dict[str, Any]:
        times = {"when": f"2026-01-01T10:00:{number % 60:02}Z"}
        texts = {f"t{path:02}": f"{number % 5}" for path in range(70)}
        numbers = {f"n{path:02}": number / 7 for path in range(70)}
        return {
            "id": str(number),
            **numbers,
            **texts,
            **times,
            "tenantId": f"t{number % 9}",
            "site_id": f"s{number % 3}",
        }

    found = profile_of([row(number) for number in range(60)])
    assert {"/id", "/tenantId", "/site_id", "/t00"} <= set(found.paths) and "/n00" in found.uncounted
    assert len(found.paths) == PATHS_MAX and len(found.uncounted) == 144 - PATHS_MAX


def test_a_named_path_is_counted_behind_thousands_of_others() -> None:
    names = [f"c{path:04}" for path in range(NODES_MAX + 500)]
    rows = [{"id": str(number), **dict.fromkeys(names, number), "deep": {"key": number % 3}} for number in range(20)]
    found = profile_of(rows, named=[("deep", "key")])
    assert found.paths["/deep/key"].counts.distinct().value == 3
    assert found.columns.too_many == 20 * 501 and found.columns.first_too_many == (names[NODES_MAX - 1],)


def test_long_values_are_counted() -> None:
    found = profile_of([{"id": str(number), "text": "x" * 3_000 + str(number)} for number in range(20)])
    assert found.paths["/text"].oversized == 20
    assert "/text" not in {each.path for each in usable_paths(found)}


def test_batches_do_not_show() -> None:
    rows = [{"id": str(number), "k": number % 7} for number in range(BATCH_ROWS + 500)]
    found = profile_of(rows)
    assert found.paths["/k"].present == len(rows)
    assert found.paths["/k"].counts.distinct().value == 7
    assert found.sampled == len(rows) and found.reservoir.is_complete


def test_the_reservoir_is_a_uniform_sample() -> None:
    reservoir = Reservoir(1_000, seed=5)
    for first in range(0, 20_000, 500):
        taken, places = reservoir.places(500)
        assert len(set(places.tolist())) == len(places)
        reservoir.put_sizes(places, np.ones(len(places)))
        reservoir.put(("n",), places, (first + taken).astype(np.uint64) + np.uint64(1))
    kept = reservoir.column(("n",)).astype(np.int64)
    assert len(kept) == len(set(kept.tolist())) == 1_000
    by_quarter = np.bincount((kept - 1) // 5_000, minlength=4)
    assert all(190 <= count <= 310 for count in by_quarter.tolist())  # 250 with a deviation of 14


def test_times() -> None:
    texts = ["2026-01-02", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.678+02:00", "2026-01"]
    seconds = seconds_of([*texts, 1767323045, 1767323045678])
    assert seconds is not None and not np.isnan(seconds).any()
    assert seconds[1] == 1767323045.0 and seconds[2] == pytest.approx(1767323045.678 - 7200)
    assert seconds_of(["2026-13-01"] * 3) is None and seconds_of(["x"]) is None and seconds_of([]) is None
    assert seconds_of([True, 12, 3.5]) is None


def test_the_time_of_writing_is_told_from_other_times() -> None:
    found = [(("birthDate",), True, 10), (("createdAt",), True, 9), (("dueDate",), True, 50)]
    assert writing_time(found) == ("createdAt",)
    assert writing_time([(("birthDate",), True, 10)]) is None
    assert writing_time([(("number",), False, 10)]) is None
    assert writing_time([(("ts",), False, 10)]) == ("ts",)
    for name in ("sendTime", "calendar_date", "EVENT-TIME", "vendorDay", "zeitpunkt", "_ts"):
        assert writing_time([((name,), True, 10)]) == (name,)
    for name in ("lastSeen", "updated_at", "endDate", "DUE", "dateOfBirth"):
        assert writing_time([((name,), True, 10)]) is None


def test_windows_tell_a_date_from_a_device() -> None:
    minutes = np.arange(20_000, dtype=np.float64) * 30.0 + 1_767_225_600
    windows = Windows(minutes)
    dates = (minutes // 86_400).astype(np.uint64)
    devices = (np.arange(20_000) % 50 + 1).astype(np.uint64)
    draws = np.random.Generator(np.random.PCG64(1))
    assert windows.is_moving(dates, draws) and not windows.is_moving(devices, draws)
    assert windows.concentration(dates).mean() > 0.9 > 0.1 > windows.concentration(devices).mean()


def test_a_sparse_sample_still_shows_that_a_value_stays() -> None:
    hours = np.arange(2_000, dtype=np.float64) * 7_200.0 + 1_767_225_600  # twelve rows a day
    windows = Windows(hours)
    draws = np.random.Generator(np.random.PCG64(1))
    dates = (hours // 86_400).astype(np.uint64)
    assert windows.is_staying(dates, draws)
    assert len(set(windows.last_values(dates, is_staying=True).tolist())) <= 2
    assert not windows.is_staying((np.arange(2_000) * 7 % 50 + 1).astype(np.uint64), draws)
