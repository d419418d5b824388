"""The fast path of point reads against the general path: random requests to two accounts with the same history, one of
which is asked by the general path alone. Answers are compared byte for byte, and so is what was counted."""

from __future__ import annotations

import base64
import hmac
import random
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from support.caller import KEY, Caller
from support.topology import FRESH, FakeTopology, following

from armillary.account.account import Account
from armillary.account.registry import AccountSettings
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.net.http import Request, Response
from armillary.storage.memory import MemoryEngine

_OTHER_KEY = base64.b64encode(b"another key of the account, 32 b").decode()
_CONTAINERS: dict[str, dict[str, Any]] = {
    "plain": {"partitionKey": {"paths": ["/pk"], "version": 2}},
    "old": {"partitionKey": {"paths": ["/pk"], "version": 1}},
    "deep": {"partitionKey": {"paths": ["/pk", "/id"], "kind": "MultiHash", "version": 2}},
    "living": {"partitionKey": {"paths": ["/pk"]}, "defaultTtl": 100},
    "fixed": {},
}
_KEYS: tuple[Any, ...] = ("a", "b", "ü", 1, 1.5, None, True, "")
_IDS = ("1", "item-2", "a b", "ü", "x" * 200)


@dataclass
class House:
    """One account and its door. The clock and what is asked are the same in both houses."""

    account: Account
    door: SqlDoor
    clock: VirtualClock

    @classmethod
    async def make(cls, settings: AccountSettings) -> House:
        clock = VirtualClock()
        account = await Account.open(MemoryEngine(), clock, settings)
        door = SqlDoor(account, AccountKeys(KEY, _OTHER_KEY, _OTHER_KEY), accepts_aad=False)
        caller = Caller(door, clock)
        await caller("POST", "/dbs", {"id": "db"})
        for name, body in _CONTAINERS.items():
            ru = {"x-ms-version": "2016-07-11"} if name == "fixed" else {"x-ms-offer-throughput": "12000"}
            status, made, _ = await caller("POST", "/dbs/db/colls", {"id": name, **body}, **ru)
            assert status == 201, (name, made)
            await account.budgets.set_mode(account.container("db", name), "enforce")
        for name in _CONTAINERS:
            for number, key in enumerate(_KEYS):
                for item_id in _IDS:
                    item = {"id": item_id, "pk": key, "filler": "z" * (700 * number)}
                    header = {} if name == "fixed" else {"x-ms-documentdb-partitionkey": _key_text(name, key, item_id)}
                    if name != "fixed" or not number:
                        status, *_ = await caller("POST", f"/dbs/db/colls/{name}/docs", item, **header)
                        assert status == 201, (name, item)
        return cls(account, door, clock)

    def exhaust(self) -> None:
        """Use up the request units of this second."""
        for container in self.account.containers:
            for meter in container.meters:
                assert meter.budget is not None
                meter.budget.spent += 10**9

    @property
    def counted(self) -> list[Any]:
        return [
            (container.name, partition.range.id, partition.meter.totals, partition.meter.top_keys(100))
            for container in self.account.containers
            for partition in container.partitions.values()
        ]


def _key_text(container: str, key: Any, item_id: str) -> str:
    return orjson.dumps([key, item_id] if container == "deep" else [key]).decode()


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


async def _compare(
    settings: AccountSettings,
    dice: random.Random,
    count: int,
    topology: FakeTopology | None = None,
    *,
    is_taken: bool = True,
) -> None:
    quick, general = await House.make(settings), await House.make(settings)
    quick.account.topology = general.account.topology = topology
    taken = refused = 0
    for _ in range(count):
        if not dice.randrange(50):
            seconds = dice.choice((0.2, 1.0, 40.0, 1000.0))
            quick.clock.advance(seconds)
            general.clock.advance(seconds)
        if not dice.randrange(50):
            quick.exhaust()
            general.exhaust()
        target, headers = _made(dice, quick.clock)
        requests = [
            Request("GET", target, dict(headers), b"", is_tls, "peer") for is_tls in [not dice.randrange(9)] * 2
        ]
        answer = quick.door.answer_at_once(requests[0])
        taken += answer is not None
        if answer is None:
            answer = await quick.door.answer(requests[0])
        expected = await general.door.answer(requests[1])
        refused += expected.status == 429
        assert _shown(answer) == _shown(expected), (target, headers)
        assert requests[0].operation == requests[1].operation
        assert requests[0].is_known == requests[1].is_known
        assert quick.counted == general.counted
    assert taken > count // 5 if is_taken else not taken
    assert refused > 2 or not is_taken
    await quick.account.close()
    await general.account.close()


def _made(dice: random.Random, clock: VirtualClock) -> tuple[bytes, dict[bytes, bytes]]:
    """A read, in most cases as a client sends it."""
    container = dice.choice((*_CONTAINERS, *["plain", "old", "deep"] * 3, "gone"))
    key, item_id = dice.choice(_KEYS), dice.choice((*_IDS, *["1"] * 8, "missing"))
    link = f"dbs/db/colls/{container}/docs/{item_id}"
    target = f"/dbs/db/colls/{container}/docs/{quote(item_id, safe='')}".encode()
    date = formatdate(clock.now_s() + dice.choice((*[0] * 30, 100, -1000, 5000)), usegmt=True)
    secret = dice.choice((*[KEY] * 30, _OTHER_KEY, base64.b64encode(b"wrong" * 8).decode()))
    text = f"get\ndocs\n{link}\n{date.lower()}\n\n"
    mac = base64.b64encode(hmac.digest(base64.b64decode(secret), text.encode(), "sha256")).decode()
    headers = {
        b"host": b"localhost:8081",
        b"x-ms-date": date.encode(),
        b"authorization": quote(f"type=master&ver=1.0&sig={mac}", safe="").encode(),
        b"x-ms-documentdb-partitionkey": _key_text(container, key, item_id).encode("latin-1", "replace"),
    }
    for name, values in _OPTIONAL.items():
        if not dice.randrange(40):
            headers[name] = dice.choice(values)
    for name in (b"host", b"x-ms-date", b"authorization", b"x-ms-documentdb-partitionkey"):
        if not dice.randrange(60):
            del headers[name]
        elif not dice.randrange(60):
            headers[name] = dice.choice((b"", b"x", headers[name] + b"1"))
    if not dice.randrange(40):
        target = dice.choice((target + b"/", b"/" + target, target + b"?x=1", b"/dbs/db/colls/plain/docs/", b"/"))
    return target, headers


_OPTIONAL: dict[bytes, tuple[bytes, ...]] = {
    b"x-ms-session-token": (b"0:1#5", b"0:1#99999", b"1:1#3,0:-1#4", b"x", b"", b"0:7"),
    b"x-ms-consistency-level": (b"Session", b"Strong", b"Eventual", b"eventual", b"Nonsense", b""),
    b"x-ms-activity-id": (b"my-own-id", b"not an id", b""),
    b"x-ms-version": (b"2017-11-15", b"2018-12-31", b"2020-07-15"),
    b"if-none-match": (b"*", b'"other"'),
    b"x-ms-cosmos-intended-collection-rid": (b"AAAAAQ==", b""),
    b"x-armillary-explain": (b"true", b"no"),
    b"x-ms-cosmos-priority-level": (b"Low", b"High"),
    b"x-ms-cosmos-throughput-bucket": (b"1", b"77"),
    b"x-ms-cosmos-supported-serialization-formats": (b"CosmosBinary", b"JsonText"),
    b"x-forwarded-proto": (b"https",),
    b"prefer": (b"return=minimal",),
    b"if-match": (b'"x"',),
}


def _shown(response: Response) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """An answer without the ids of requests, which are counted."""
    lines = [tuple(line.split(b": ", 1)) for line in response.lines.split(b"\r\n")] if response.lines else []
    pairs = [(name, value) for name, value in [*response.headers, *lines] if name != b"x-ms-activity-id"]
    body = response.body
    at = body.find(b"ActivityId: ")
    return response.status, sorted(pairs), body if at < 0 else body[:at]
