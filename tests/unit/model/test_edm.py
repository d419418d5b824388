"""EDM values as items keep them: times to the tick, what is canonical and what is not, names that are taken."""

from __future__ import annotations

import random

import pytest

from armillary.model import edm, items


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("0001-01-01T00:00:00Z", 0),
        ("1601-01-01T00:00:00Z", 504_911_232_000_000_000),
        ("1970-01-01", 621_355_968_000_000_000),
        ("2024-01-05T00:00:00", 638_400_096_000_000_000),
        ("2024-01-05T10:11:12.1234567Z", 638_400_462_721_234_567),
        ("2024-01-05T10:11:12.12345678Z", 638_400_462_721_234_567),
        ("2024-01-05T10:11:12.5+01:30", 638_400_408_725_000_000),
        ("2024-02-29T10:11", 638_447_982_600_000_000),
        ("9999-12-31T23:59:59.9999999Z", 3_155_378_975_999_999_999),
    ],
)
def test_times(text: str, ticks: int) -> None:
    assert edm.parse_ticks(text) == ticks
    assert edm.parse_ticks(edm.moment_text(ticks)) == ticks
    assert edm.ticks_in(edm.stored_ticks(ticks)) == ticks


def test_times_are_shown_as_they_were_sent() -> None:
    # @azure/data-tables' own tests compare the text.
    for text in (
        "2020-09-17T00:00:00.99999Z",
        "2020-09-17T00:00:00.1Z",
        "2020-09-17T00:00:10Z",
        "2020-09-17T00:00:00.0000001Z",
    ):
        assert edm.moment_text(edm.parse_ticks(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2024-13-01",
        "2023-02-29",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:00+25:00",
        "2024-1-1",
        "٢٠٢٤-01-01",
        "9999-12-31T23:59:59-01:00",
        "0001-01-01T00:00:00+01:00",
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        edm.parse_ticks(text)


def test_order_of_texts_is_order_of_times(seed: int) -> None:
    print("seed", seed)
    dice = random.Random(seed)
    ticks = sorted(dice.randrange(3_155_378_975_999_999_999) for _ in range(1000))
    assert sorted(map(edm.stored_ticks, ticks)) == [edm.stored_ticks(each) for each in ticks]
    for each in ticks:
        assert edm.parse_ticks(edm.full_moment_text(each)) == each


@pytest.mark.parametrize("value", ["007", "+5", "-0", "", "5 ", "٣", 5, "1" * 20, "1.0", None])
def test_only_canonical_texts_are_int64(value: object) -> None:
    """An index looks for the one spelling of a number; another one would be found by a scan alone."""
    assert edm.number_of({"$t": edm.INT64, "$v": value}) is None


def test_other_spellings_of_bytes_are_none() -> None:
    assert edm.bytes_of({"$t": edm.BINARY, "$v": "AQ=="}) == b"\x01"
    assert edm.bytes_of({"$t": edm.BINARY, "$v": "AR=="}) is None
    assert edm.bytes_of({"$t": edm.BINARY, "$v": "A"}) is None


@pytest.mark.parametrize("name", ["id", "ttl", "_ts", "_etag", "Name", "ID", "étage"])
def test_names_come_back(name: str) -> None:
    member = edm.member_name(name)
    assert edm.property_name(member) == name
    assert member not in items.SYSTEM_PROPERTIES and member not in ("id", "ttl")


@pytest.mark.parametrize("member", ["id", "ttl", "_rid", "$pk", "$id", "$other"])
def test_members_that_are_no_properties(member: str) -> None:
    assert edm.property_name(member) is None


def test_every_write_has_a_time_of_its_own() -> None:
    """Of one item in one second: what tells them apart is the lsn."""
    times = {edm.ticks_of_etag(items.etag(5, lsn, 0, 1_700_000_000)) for lsn in range(2**33, 2**33 + 1000)}
    assert len(times) == 1000
    assert {time // edm.TICKS_PER_S for time in times} == {edm.ticks_of_s(1_700_000_000) // edm.TICKS_PER_S}
