"""The fast path of point reads against the general path: random requests to two accounts with the same history, one of
which is asked by the general path alone. Answers are compared byte for byte, and so is what was counted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from urllib.parse import quote

import pytest
from support.divided import ALLOWED, Spread, divide
from support.topology import FRESH, FakeTopology, following
from support.two_paths import (
    CONTAINERS,
    IDS,
    KEYS,
    OPTIONAL,
    House,
    disturb,
    key_text,
    pass_time,
    shown,
    signed_headers,
    twice,
)

from armillary.account.registry import AccountSettings
from armillary.clock import VirtualClock
from armillary.net.http import Later, Response


@pytest.fixture(params=["Session", "Strong", "Eventual"])
def settings(request: pytest.FixtureRequest) -> AccountSettings:
    return AccountSettings(consistency=request.param)


async def test_both_paths_answer_and_count_alike(
    settings: AccountSettings, seed: int, amount: Callable[[int], int]
) -> None:
    await _compare(settings, random.Random(seed), amount(17_000))


@pytest.mark.parametrize(
    "topology",
    [
        FakeTopology(),
        FakeTopology(may_answer_strongly=False),
        following(staleness=FRESH),
        following(),
        following(is_silent=True),
    ],
    ids=["leader", "without its lease", "follower", "follower that never asked", "silent"],
)
async def test_on_nodes_of_a_cluster_too(
    topology: FakeTopology, settings: AccountSettings, seed: int, amount: Callable[[int], int]
) -> None:
    is_strong = settings.consistency == "Strong" and not topology.may_answer_strongly
    await _compare(
        settings, random.Random(seed), amount(4_000), topology, is_taken=not (is_strong or topology.is_silent)
    )


async def test_of_other_processes_too(
    settings: AccountSettings, seed: int, amount: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    divide(monkeypatch, Spread(places=2, has_own=True, allowed=ALLOWED))
    await _compare(settings, random.Random(seed), amount(4_000), is_divided=True)


async def _compare(
    settings: AccountSettings,
    dice: random.Random,
    count: int,
    topology: FakeTopology | None = None,
    *,
    is_taken: bool = True,
    is_divided: bool = False,
) -> None:
    quick, general = await House.make(settings), await House.make(settings)
    quick.account.topology = general.account.topology = topology
    taken = elsewhere = refused = 0
    for _ in range(count):
        pass_time(dice, quick, general)
        target, headers = _made(dice, quick.clock)
        requests = twice("GET", target, headers, b"", not dice.randrange(9))
        at_once = quick.door.answer_at_once(requests[0])
        taken += at_once is not None
        elsewhere += asyncio.iscoroutine(at_once)
        if at_once is None:
            at_once = quick.door.answer(requests[0])
        assert not isinstance(at_once, Later)
        answer = at_once if isinstance(at_once, Response) else await at_once
        expected = await general.door.answer(requests[1])
        refused += expected.status == 429
        assert shown(answer) == shown(expected), (target, headers)
        assert requests[0].operation == requests[1].operation
        assert requests[0].is_known == requests[1].is_known
        assert quick.counted == general.counted
    assert taken > count // 5 if is_taken else not taken
    assert refused > 2 or is_divided or not is_taken
    assert elsewhere > count // 20 if is_divided else not elsewhere
    await quick.account.close()
    await general.account.close()


def _made(dice: random.Random, clock: VirtualClock) -> tuple[bytes, dict[bytes, bytes]]:
    """A read, in most cases as a client sends it."""
    container = dice.choice((*CONTAINERS, *["plain", "old", "deep"] * 3, "gone"))
    key, item_id = dice.choice(KEYS), dice.choice((*IDS, *["1"] * 8, "missing"))
    target = f"/dbs/db/colls/{container}/docs/{quote(item_id, safe='')}".encode()
    headers = signed_headers(dice, clock, "get", f"dbs/db/colls/{container}/docs/{item_id}")
    headers[b"x-ms-documentdb-partitionkey"] = key_text(container, key, item_id).encode("latin-1", "replace")
    disturb(dice, headers, OPTIONAL)
    if not dice.randrange(40):
        target = dice.choice((target + b"/", b"/" + target, target + b"?x=1", b"/dbs/db/colls/plain/docs/", b"/"))
    return target, headers
