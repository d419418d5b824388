"""Two accounts with the same history, one of which is asked by the general path of the SQL door alone: for tests of its
fast paths."""

from __future__ import annotations

import base64
import hmac
import random
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

import orjson
from support.caller import KEY, Caller

from armillary.account.account import Account
from armillary.account.registry import AccountSettings
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.net.http import Request, Response
from armillary.storage.engine import Engine
from armillary.storage.memory import MemoryEngine

OTHER_KEY = base64.b64encode(b"another key of the account, 32 b").decode()
CONTAINERS: dict[str, dict[str, Any]] = {
    "plain": {"partitionKey": {"paths": ["/pk"], "version": 2}},
    "old": {"partitionKey": {"paths": ["/pk"], "version": 1}},
    "deep": {"partitionKey": {"paths": ["/pk", "/id"], "kind": "MultiHash", "version": 2}},
    "living": {"partitionKey": {"paths": ["/pk"]}, "defaultTtl": 100},
    "fixed": {},
}
KEYS: tuple[Any, ...] = ("a", "b", "ü", 1, 1.5, None, True, "")
IDS = ("1", "item-2", "a b", "ü", "x" * 200)


@dataclass
class House:
    """One account and its door. The clock and what is asked are the same in both houses."""

    account: Account
    door: SqlDoor
    clock: VirtualClock

    @classmethod
    async def make(
        cls,
        settings: AccountSettings,
        containers: dict[str, dict[str, Any]] = CONTAINERS,
        engine: Engine | None = None,
    ) -> House:
        clock = VirtualClock()
        account = await Account.open(engine or MemoryEngine(), clock, settings)
        for task in account._upkeep:  # it would sweep expired items in the two houses at different moments
            task.cancel()
        door = SqlDoor(account, AccountKeys(KEY, OTHER_KEY, OTHER_KEY), accepts_aad=False)
        caller = Caller(door, clock)
        await caller("POST", "/dbs", {"id": "db"})
        for name, body in containers.items():
            ru = {"x-ms-version": "2016-07-11"} if name == "fixed" else {"x-ms-offer-throughput": "12000"}
            status, made, _ = await caller("POST", "/dbs/db/colls", {"id": name, **body}, **ru)
            assert status == 201, (name, made)
            await account.budgets.set_mode(account.container("db", name), "enforce")
        for name in containers:
            for number, key in enumerate(KEYS):
                for place, item_id in enumerate(IDS):
                    item = {"id": item_id, "pk": key, "number": place, "filler": "z" * (700 * number)}
                    header = {} if name == "fixed" else {"x-ms-documentdb-partitionkey": key_text(name, key, item_id)}
                    if name != "fixed" or not number:
                        status, *_ = await caller("POST", f"/dbs/db/colls/{name}/docs", item, **header)
                        assert status == 201, (name, item)
        return cls(account, door, clock)

    def exhaust(self) -> None:
        """Use up the request units of this second. A debt would be carried over into the next ones."""
        for container in self.account.containers:
            for meter in container.meters:
                assert meter.budget is not None
                meter.budget.spent = max(meter.budget.spent, meter.budget.ceiling)

    @property
    def counted(self) -> list[Any]:
        return [
            (container.name, partition.range.id, partition.meter.totals, partition.meter.top_keys(100))
            for container in self.account.containers
            for partition in container.partitions.values()
        ]


def key_text(container: str, key: Any, item_id: str) -> str:
    return orjson.dumps([key, item_id] if container == "deep" else [key]).decode()


def pass_time(dice: random.Random, *houses: House) -> None:
    """Now and then some time passes in all houses, or their request units are used up."""
    if not dice.randrange(20):
        seconds = dice.choice((0.2, 1.0, 1.0, 40.0, 1000.0))
        for house in houses:
            house.clock.advance(seconds)
    if not dice.randrange(200):
        for house in houses:
            house.exhaust()


def signed_headers(dice: random.Random, clock: VirtualClock, method: str, link: str) -> dict[bytes, bytes]:
    """The headers that every request has: in most cases rightly signed, now."""
    date = formatdate(clock.now_s() + dice.choice((*[0] * 30, 100, -1000, 5000)), usegmt=True)
    secret = dice.choice((*[KEY] * 30, OTHER_KEY, base64.b64encode(b"wrong" * 8).decode()))
    text = f"{method}\ndocs\n{link}\n{date.lower()}\n\n"
    mac = base64.b64encode(hmac.digest(base64.b64decode(secret), text.encode(), "sha256")).decode()
    return {
        b"host": b"localhost:8081",
        b"x-ms-date": date.encode(),
        b"authorization": quote(f"type=master&ver=1.0&sig={mac}", safe="").encode(),
    }


def disturb(dice: random.Random, headers: dict[bytes, bytes], optional: dict[bytes, tuple[bytes, ...]]) -> None:
    """Add headers that few requests have, and damage or leave out some that most have."""
    for name, values in optional.items():
        if not dice.randrange(40):
            headers[name] = dice.choice(values)
    for name in (b"host", b"x-ms-date", b"authorization", b"x-ms-documentdb-partitionkey"):
        if name not in headers:
            continue
        if not dice.randrange(60):
            del headers[name]
        elif not dice.randrange(60):
            headers[name] = dice.choice((b"", b"x", headers[name] + b"1"))


OPTIONAL: dict[bytes, tuple[bytes, ...]] = {
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


def twice(method: str, target: bytes, headers: dict[bytes, bytes], body: bytes, is_tls: bool) -> list[Request]:
    """The same request for both houses."""
    return [Request(method, target, dict(headers), body, is_tls, "peer") for _ in range(2)]


def shown(response: Response) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """An answer without the ids of requests, which are counted."""
    lines = [tuple(line.split(b": ", 1)) for line in response.lines.split(b"\r\n")] if response.lines else []
    pairs = [(name, value) for name, value in [*response.headers, *lines] if name != b"x-ms-activity-id"]
    body = response.body
    at = body.find(b"ActivityId: ")
    return response.status, sorted(pairs), body if at < 0 else body[:at]
