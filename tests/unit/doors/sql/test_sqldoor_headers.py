from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from azure.cosmos._session import SessionContainer
from support.portions import Amount
from support.refusals import refused

from armillary.clock import VirtualClock
from armillary.doors.sql import headers as h
from armillary.doors.sql.headers import PostMeaning, Throughput
from armillary.doors.sql.session_tokens import render_session_tokens, session_token
from armillary.errors import Failure, Kind

CLOCK = VirtualClock()


def refused_header(read: Callable[..., Any], *arguments: Any) -> str:
    return refused(lambda: read(*arguments))


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (None, False),
        (b"True", True),
        (b"true", True),
        (b"TRUE", True),
        (b"False", False),
        (b"fAlse", False),
        (b"", False),
    ],
)
def test_flags(given: bytes | None, value: bool) -> None:
    assert h.flag({} if given is None else {h.IS_UPSERT: given}, h.IS_UPSERT) is value


@pytest.mark.parametrize("given", [b"1", b"0", b"yes", b" true", b"\xff"])
def test_other_flags_are_refused_by_name(given: bytes) -> None:
    assert "x-ms-documentdb-is-upsert" in refused_header(h.flag, {h.IS_UPSERT: given}, h.IS_UPSERT)


def test_page_size() -> None:
    name = b"x-ms-max-item-count"
    assert h.page_size({}) is None
    assert h.page_size({name: b"-1"}) is None
    assert h.page_size({name: b"1"}) == 1
    assert h.page_size({name: b"2147483647"}) == 2147483647
    for bad in (b"0", b"-2", b"", b"1.5", b"1e3", b"x", b" 1", b"1_0", "١".encode(), b"2147483648", b"9" * 5000):
        refused_header(h.page_size, {name: bad})


def test_small_numbers() -> None:
    assert h.throughput_bucket({}) is None
    assert [h.throughput_bucket({b"x-ms-cosmos-throughput-bucket": b"%d" % n}) for n in (1, 5)] == [1, 5]
    for bad in (b"0", b"6", b"-1", b""):
        refused_header(h.throughput_bucket, {b"x-ms-cosmos-throughput-bucket": bad})
    assert h.token_lifetime_s({}) is None
    assert [h.token_lifetime_s({b"x-ms-documentdb-expiry-seconds": b"%d" % n}) for n in (10, 86400)] == [10, 86400]
    for bad in (b"9", b"86401"):
        refused_header(h.token_lifetime_s, {b"x-ms-documentdb-expiry-seconds": bad})
    for bad in (b"-1", b"x"):
        refused_header(h.check_continuation_limit, {b"x-ms-documentdb-responsecontinuationtokenlimitinkb": bad})


def test_choices() -> None:
    assert h.priority_level({}) is None
    assert h.priority_level({b"x-ms-cosmos-priority-level": b"low"}) == "Low"
    refused_header(h.priority_level, {b"x-ms-cosmos-priority-level": b"Medium"})
    assert h.indexing_directive({}) == "Default"
    assert h.indexing_directive({b"x-ms-indexing-directive": b"Exclude"}) == "Exclude"
    refused_header(h.indexing_directive, {b"x-ms-indexing-directive": b"x"})


def test_consistency_may_only_be_weakened() -> None:
    name = b"x-ms-consistency-level"
    levels = h.CONSISTENCY_LEVELS
    for account in levels:
        assert h.consistency({}, account) == account
        for asked in levels:
            given = {name: asked.encode()}
            if levels.index(asked) >= levels.index(account):
                assert h.consistency(given, account) == asked
            else:
                message = refused_header(h.consistency, given, account)
                assert f"ConsistencyLevel {asked} specified in the request is invalid when service is" in message
    refused_header(h.consistency, {name: b"Total"}, "Session")


def test_post_meaning_in_order() -> None:
    given: dict[bytes, bytes] = {}
    assert h.post_meaning(given) is PostMeaning.CREATE
    for name, value, meaning in (
        (h.IS_UPSERT, b"True", PostMeaning.UPSERT),
        (b"content-type", b"application/query+json", PostMeaning.QUERY),
        (h.IS_QUERY, b"true", PostMeaning.QUERY),
        (h.IS_QUERY_PLAN, b"True", PostMeaning.QUERY_PLAN),
        (h.IS_BATCH, b"True", PostMeaning.BATCH),
    ):
        given[name] = value
        assert h.post_meaning(given) is meaning
    assert h.post_meaning({h.IS_QUERY_GO: b"True"}) is PostMeaning.QUERY
    assert {meaning for meaning in PostMeaning if meaning.is_read} == {PostMeaning.QUERY, PostMeaning.QUERY_PLAN}


def test_prefer() -> None:
    assert not h.prefers_minimal({})
    assert h.prefers_minimal({b"prefer": b"return=minimal"})
    assert h.prefers_minimal({b"prefer": b"respond-async, Return = Minimal"})
    assert not h.prefers_minimal({b"prefer": b"return=representation"})
    assert not h.prefers_minimal({b"prefer": b"wait=10"})
    refused_header(h.prefers_minimal, {b"prefer": b"return=some"})


def test_key_range() -> None:
    name = b"x-ms-documentdb-partitionkeyrangeid"
    assert h.key_range({}) is None
    assert h.key_range({name: b"12"}) == (12, None)
    assert h.key_range({name: b"AQAAAJ0fgTc=,3"}) == (3, "AQAAAJ0fgTc=")
    for bad in (b"x", b"-1", b"1,2,3", b",1", b"1,", b"\xff"):
        refused_header(h.key_range, {name: bad})


def test_epk_range() -> None:
    start, end, kind = b"x-ms-start-epk", b"x-ms-end-epk", b"x-ms-read-key-type"
    assert h.epk_range({}) is None
    assert h.epk_range({start: b"", end: b"FF"}) == (b"", b"\xff")
    assert h.epk_range({start: b"05c1", end: b"05C1D9", kind: b"EffectivePartitionKeyRange"}) == (
        b"\x05\xc1",
        b"\x05\xc1\xd9",
    )
    assert h.epk_range({start: b"10"}) == (b"\x10", b"\xff")
    for bad in ({start: b"1"}, {start: b"zz"}, {start: b"10", end: b"10"}, {start: b"20", end: b"10"}, {end: b"0 "},
                {start: b"10", end: b"20", kind: b"ResourceId"}, {start: b"\xff\xff"}):  # fmt: skip
        refused_header(h.epk_range, bad)


def test_throughput() -> None:
    manual, autoscale = b"x-ms-offer-throughput", b"x-ms-cosmos-offer-autopilot-settings"
    assert h.throughput({}) == Throughput(None, None, None)
    assert h.throughput({manual: b"400"}) == Throughput(400, None, None)
    assert h.throughput({manual: b"-200"}) == Throughput(-200, None, None)  # the account says what is wrong with it
    full = b'{"maxThroughput":4000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":10}}}'
    assert h.throughput({autoscale: full}) == Throughput(None, 4000, 10)
    assert h.throughput({autoscale: full.replace(b":10}", b":0}")}) == Throughput(None, 4000, 0)
    assert h.throughput({autoscale: b'{"maxThroughput":4000}'}) == Throughput(None, 4000, None)
    assert h.throughput({autoscale: b'{"maxThroughput":4000,"autoUpgradePolicy":null}'}) == Throughput(None, 4000, None)
    assert h.throughput({b"x-ms-offer-type": b"V2"}) == Throughput(None, None, None)
    assert "S3" in refused_header(h.throughput, {b"x-ms-offer-type": b"S3"})
    assert "exclude each other" in refused_header(h.throughput, {manual: b"400", autoscale: full})
    assert "tier" in refused_header(h.throughput, {autoscale: b'{"maxThroughput":4000,"tier":1}'})
    for bad in (
        b"{", b"[]", b"{}", b'{"maxThroughput":"4000"}', b'{"maxThroughput":true}', b'{"maxThroughput":1.5}', b"\xff",
        b'{"maxThroughput":4000,"autoUpgradePolicy":1}', full.replace(b":10}", b':"x"}'),
    ):  # fmt: skip
        refused_header(h.throughput, {autoscale: bad})
    for bad in (b"x", b"4e2", b"400.0", b""):
        refused_header(h.throughput, {manual: bad})


@pytest.mark.parametrize(
    ("token", "seen"),
    [
        ("0:1#57", {0: 57}),
        ("0:-1#57", {0: 57}),
        ("0:2#57#1=40#2=17", {0: 57}),
        ("0:57", {0: 57}),
        ("0:1#57,3:1#80", {0: 57, 3: 80}),
        ("0:1#57, 3:1#80#1=-1", {0: 57, 3: 80}),
        ("1:1#5,1:1#9,1:1#7", {1: 9}),
        ("0:0#-1", {0: -1}),
    ],
)
def test_session_tokens(token: str, seen: dict[int, int]) -> None:
    assert session_token({b"x-ms-session-token": token.encode()}) == seen


@pytest.mark.parametrize(
    "token",
    [
        "0", ":", "0:", "0:#5", "0:1#", "x:1#5", "-1:1#5", "0:1#5#", "0:1#5#1", "0:1#5#1=", ",", "0:1#5,",
        "0:1#5;1:1#6", "0:1#" + "9" * 19, "٠:1#5", "0:1#5\n", "0:1_0#5", "\ud800",
    ],
)  # fmt: skip
def test_malformed_session_tokens(token: str) -> None:
    refused_header(session_token, {b"x-ms-session-token": token.encode("utf-8", "replace")})


def test_session_token_absent() -> None:
    assert session_token({}) == {}
    assert session_token({b"x-ms-session-token": b""}) == {}


@pytest.mark.parametrize(
    ("version", "token"),
    [("2015-08-06", b"3:57"), ("2017-11-15", b"3:57"), ("2018-06-18", b"3:1#57"), ("2020-07-15", b"3:1#57")],
)
def test_session_tokens_are_vectors_since_2018_06_18(version: str, token: bytes) -> None:
    headers = {b"x-ms-version": version.encode()}
    assert render_session_tokens(headers, [(3, 57)]) == token
    assert session_token({b"x-ms-session-token": token}) == {3: 57}


def test_rendered_session_tokens_are_read_by_the_sdk() -> None:
    assert render_session_tokens({}, [(3, 57)]) == b"3:1#57"
    joined = render_session_tokens({}, [(0, 57), (12, 2**53)])
    parsed = SessionContainer.parse_session_token({"x-ms-session-token": joined.decode()})  # type: ignore[no-untyped-call]
    assert {name: token.global_lsn for name, token in parsed.items()} == {"0": 57, "12": 2**53}
    assert session_token({b"x-ms-session-token": joined}) == {0: 57, 12: 2**53}


def test_activity_id() -> None:
    given = "5f1c3a54-0000-4000-8000-000000000001"
    assert h.activity_id({b"x-ms-activity-id": given.encode()}, CLOCK) == given
    for bad in (b"", b"a b", b"\xff", b"x" * 65, b"a\r\nb"):
        assert len(h.activity_id({b"x-ms-activity-id": bad}, CLOCK)) == 36
    assert h.activity_id({}, CLOCK) != h.activity_id({}, CLOCK)


def test_rendering() -> None:
    assert h.render_path("dbs/a b/colls/x%y") == b"dbs/a b/colls/x%y"
    assert h.render_path("dbs/é/colls/\x7f") == b"dbs/%C3%A9/colls/%7F"
    assert h.text({h.IF_MATCH: b'"a"'}, h.IF_MATCH) == '"a"'
    assert h.text({h.IF_MATCH: b""}, h.IF_MATCH) is None
    assert h.text({h.IF_MATCH: b"\xff"}, h.IF_MATCH) == "\xff"


def test_fuzz_only_bad_requests(amount: Amount) -> None:
    seed = 20_240_605
    print("seed", seed)
    dice = random.Random(seed)
    readers: list[tuple[bytes, Callable[[h.Headers], Any], bytes]] = [
        (h.IS_QUERY, h.post_meaning, b"True"),
        (b"x-ms-max-item-count", h.page_size, b"-1"),
        (b"x-ms-consistency-level", lambda given: h.consistency(given, "Session"), b"Session"),
        (b"x-ms-indexing-directive", h.indexing_directive, b"Include"),
        (b"x-ms-cosmos-priority-level", h.priority_level, b"High"),
        (b"x-ms-cosmos-throughput-bucket", h.throughput_bucket, b"3"),
        (b"x-ms-documentdb-expiry-seconds", h.token_lifetime_s, b"3600"),
        (b"prefer", h.prefers_minimal, b"return=minimal, wait=3"),
        (b"x-ms-documentdb-partitionkeyrangeid", h.key_range, b"AQAAAJ0fgTc=,3"),
        (b"x-ms-start-epk", h.epk_range, b"05C1D9"),
        (b"x-ms-end-epk", h.epk_range, b"05C1D9"),
        (b"x-ms-offer-throughput", h.throughput, b"400"),
        (b"x-ms-cosmos-offer-autopilot-settings", h.throughput, b'{"maxThroughput":4000,"autoUpgradePolicy":{}}'),
        (b"x-ms-activity-id", lambda given: h.activity_id(given, CLOCK), b"5f1c3a54-0000-4000-8000-000000000001"),
        (b"if-match", lambda given: h.text(given, h.IF_MATCH), b'"a"'),
    ]
    session = (b"x-ms-session-token", session_token, b"0:1#57,3:2#80#1=40#2=17")
    for number in range(amount(40_000)):
        name, read, valid = session if number % 2 else dice.choice(readers)
        text = bytearray(valid)
        for _ in range(dice.randrange(4)):
            position = dice.randrange(len(text) + 1)
            if dice.random() < 0.5:
                text[position:position] = dice.choice(
                    (b"#", b",", b":", b"-", b"9" * 30, b"\xff", b"\x00", b" ", b"[" * 2000)
                )
            else:
                text[position : position + 1] = dice.randbytes(dice.randrange(3))
        kind = Kind.BAD_REQUEST
        try:
            read({name: bytes(text)})
        except Failure as failure:
            kind = failure.kind
        assert kind is Kind.BAD_REQUEST, (name, text)
