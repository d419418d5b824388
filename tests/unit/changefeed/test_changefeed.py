"""The parts of the consumer of change feeds that need no server: who takes which lease, and tokens after a split."""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from armillary.changefeed import ALL_VERSIONS, Consumer
from armillary.changefeed.leases import Lease, leases_to_take
from armillary.changefeed.reading import lsn_of, parts_of, session_lsn


@pytest.mark.parametrize("number", range(20))
def test_shares_become_even_and_stay_so(seed: int, number: int) -> None:
    dice = random.Random(seed + number)
    leases = {str(each): Lease(str(each), {}) for each in range(dice.randint(1, 20))}
    workers = [f"w{each}" for each in range(dice.randint(1, 6))]
    for lease in list(leases.values())[::2]:
        leases[lease.id] = replace(lease, owner=dice.choice(workers))
    for _ in range(len(leases) * len(workers)):
        worker = dice.choice(workers)
        free = {lease.id for lease in leases.values() if lease.owner is None}
        for lease in leases_to_take(list(leases.values()), worker, free):
            leases[lease.id] = replace(lease, owner=worker)
    for worker in workers * len(leases):  # each worker decides several times
        free = {lease.id for lease in leases.values() if lease.owner is None}
        for lease in leases_to_take(list(leases.values()), worker, free):
            leases[lease.id] = replace(lease, owner=worker)
    counts = Counter(lease.owner for lease in leases.values())
    assert None not in counts
    shares = [counts[worker] for worker in workers]
    assert max(shares) - min(shares) <= 1, shares
    for worker in workers:
        assert leases_to_take(list(leases.values()), worker, set()) == []


def test_leases_that_expired_are_taken() -> None:
    leases = [Lease("1", {}, owner="dead"), Lease("2", {}, owner="dead"), Lease("3", {}, owner="me")]
    assert [each.id for each in leases_to_take(leases, "me", {"1", "2"})] == ["1", "2"]


def token(*ranges: tuple[str, str], version: str = "v2") -> str:
    parts = [{"token": f'"{at}"', "range": {"min": low, "max": high}} for at, (low, high) in enumerate(ranges)]
    inner = {"v": version, "rid": "r", "continuation": parts, "Range": {"min": "", "max": "FF"}}
    state = {"v": version, "containerRid": "r", "mode": "LatestVersion", "startFrom": {}, "continuation": inner}
    return base64.b64encode(json.dumps(state).encode()).decode()


def test_tokens_after_a_split() -> None:
    first, second = parts_of(token(("", "7F"), ("7F", "FF")))
    assert first.feed_range == {"Range": {"min": "", "max": "7F"}}
    inner = json.loads(base64.b64decode(second.continuation))["continuation"]
    assert inner["continuation"] == [{"token": '"1"', "range": {"min": "7F", "max": "FF"}}]
    assert inner["Range"] == {"min": "7F", "max": "FF"}
    assert parts_of(second.continuation) == []


@pytest.mark.parametrize("given", ["", "57", "{}", "!", token(("", "7F")), token(("", "1"), ("1", "2"), version="v3")])
def test_tokens_that_stay_whole(given: str) -> None:
    assert parts_of(given) == []


def test_lsns() -> None:
    assert lsn_of({"_lsn": 7}) == 7
    assert lsn_of({"current": {}, "metadata": {"lsn": 8}}) == 8
    assert lsn_of({"id": "1"}) is None
    assert [session_lsn(each) for each in ("0:1#57", "0:-1#57#1=3", "0:57", "", "0:x")] == [57, 57, 57, None, None]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "a/b"}, "name"),
        ({"start": "Yesterday"}, "start"),
        ({"mode": "Everything"}, "mode"),
        ({"mode": ALL_VERSIONS, "start": "Beginning"}, "from now on"),
        ({"renew_seconds": 20.0}, "renew_seconds"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], text: str) -> None:
    nothing: Any = None
    with pytest.raises(ValueError, match=text):
        Consumer(nothing, nothing, nothing, **{"name": "c"} | options)
