"""An account with a bit of everything in it, for inputs to be about: in this process, in memory and from a seed, or
wherever else a subclass of `Furniture` sends its requests.
"""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from email.utils import formatdate
from typing import Any, Self
from urllib.parse import quote

import orjson
from support.process import KEY

from armillary.account.account import Account
from armillary.account.check import check_account
from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.doors.sql.routes import parse_route
from armillary.errors import Failure
from armillary.net.http import Request, Response
from armillary.storage.engine import T, Txn
from armillary.storage.memory import MemoryEngine, MemoryStore
from armillary.storage.overlay import OverlayTxn

Headers = dict[bytes, bytes]

KEYED = {"paths": ["/key"], "kind": "Hash", "version": 2}
CONTAINERS: dict[str, dict[str, Any]] = {
    "plain": {"partitionKey": KEYED},
    "old": {"partitionKey": {"paths": ["/a/b"], "kind": "Hash", "version": 1}},
    "levels": {"partitionKey": {"paths": ["/x", "/y", "/z"], "kind": "MultiHash", "version": 2}},
    "fixed": {},
    "rules": {
        "partitionKey": KEYED,
        "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/name", "/a/b"]}]},
        "defaultTtl": 1000,
        "indexingPolicy": {
            "includedPaths": [{"path": "/*"}],
            "excludedPaths": [{"path": "/quiet/*"}, {"path": '/"_etag"/?'}],
            "compositeIndexes": [[{"path": "/name", "order": "ascending"}, {"path": "/n", "order": "descending"}]],
        },
    },
}
ITEM = {
    "id": "item",
    "key": "k",
    "name": "n",
    "n": 1,
    "a": {"b": "v"},
    "x": "1",
    "y": 2,
    "z": None,
    "list": [1, "b", {}],
}
KEY_HEADERS = {
    "plain": b'["k"]',
    "old": b'["v"]',
    "levels": b'["1",2,null]',
    "fixed": b"[]",
    "rules": b'["k"]',
}

_request_number: ContextVar[int] = ContextVar("_request_number", default=0)  # that a task works for


class WatchedEngine(MemoryEngine):
    """Counts the transactions that changed something."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0  # made by the requests themselves
        self.requests = 0

    def begin_request(self) -> None:
        """What this task and its tasks change from now on belongs to a new request."""
        self.requests += 1
        _request_number.set(self.requests)

    def store(self, number: int) -> MemoryStore:
        if number not in self._stores:
            self._stores[number] = _WatchedStore(self)
        return super().store(number)


class _WatchedStore(MemoryStore):
    def __init__(self, engine: WatchedEngine) -> None:
        super().__init__(engine)
        self._watched = engine

    async def write(self, fn: Callable[[Txn], T], *, is_freeing: bool = False) -> T:
        # Upkeep that an earlier request has set going writes whenever it comes to it.
        is_asked_for = _request_number.get() == self._watched.requests

        def run(txn: Txn) -> T:
            result = fn(txn)
            assert isinstance(txn, OverlayTxn)
            self._watched.changes += is_asked_for and not txn._layer.is_empty()
            return result

        return await super().write(run, is_freeing=is_freeing)


class Signer:
    """Makes requests that pass for the account's own. Signed as the server reads them, so that the wildest path is not
    just refused for its signature. Headers that are given win over those that are made."""

    def __init__(self, now_s: float) -> None:
        self._mac = hmac.new(b64decode(KEY), digestmod="sha256")
        self._date = formatdate(now_s, usegmt=True).encode()

    def request(self, method: str, target: bytes, body: bytes, headers: Mapping[bytes, bytes]) -> Request:
        try:
            route = parse_route(target)
            link = route.link.rpartition("/")[2].lower() if route.is_rid_based else route.link
            signed = f"{method.lower()}\n{route.resource_type}\n{link}\n{self._date.decode().lower()}\n\n"
        except Failure:
            signed = ""
        mac = self._mac.copy()
        mac.update(signed.encode("utf-8", "replace"))
        made = {
            b"host": b"localhost",
            b"x-ms-date": self._date,
            b"x-ms-version": b"2020-07-15",
            b"authorization": quote(f"type=master&ver=1.0&sig={b64encode(mac.digest()).decode()}", safe="").encode(),
        }
        return Request(method, target, made | dict(headers), body, False, "127.0.0.1")


class Furniture(ABC):
    """What inputs are made from, wherever the account is."""

    def __init__(self, now_s: float) -> None:
        self.signer = Signer(now_s)
        self.offer_rids: list[str] = []
        self.token = b""  # of a permission for the container plain, as a header has it

    @abstractmethod
    async def send(self, request: Request) -> Response: ...

    async def answer(
        self, method: str, target: bytes, body: bytes = b"", headers: Mapping[bytes, bytes] | None = None
    ) -> Response:
        return await self.send(self.signer.request(method, target, body, headers or {}))

    @staticmethod
    def item_headers(container: str) -> Headers:
        return {b"x-ms-documentdb-partitionkey": KEY_HEADERS[container]}

    async def furnish(self) -> None:
        await self._must("POST", b"/dbs", {"id": "db"})
        await self._must("POST", b"/dbs", {"id": "shared"}, {b"x-ms-offer-throughput": b"1000"})
        for name, definition in CONTAINERS.items():
            headers = {b"x-ms-offer-throughput": b"11000"} if "partitionKey" in definition else {}
            if not definition:
                headers[b"x-ms-version"] = b"2018-06-18"  # newer clients cannot ask for it
            await self._must("POST", b"/dbs/db/colls", {"id": name, **definition}, headers)
            await self._must("POST", b"/dbs/db/colls/%b/docs" % name.encode(), ITEM, self.item_headers(name))
        await self._must("POST", b"/dbs/db/users", {"id": "user"})
        permission = {"id": "permission", "permissionMode": "All", "resource": "dbs/db/colls/plain"}
        made = await self._must("POST", b"/dbs/db/users/user/permissions", permission)
        self.token = quote(made["_token"], safe="").encode()
        scripts = b"/dbs/db/colls/plain/"
        await self._must("POST", scripts + b"sprocs", {"id": "procedure", "body": "function () {}"})
        await self._must("POST", scripts + b"udfs", {"id": "function", "body": "function () {}"})
        trigger = {"id": "trigger", "body": "function () {}", "triggerType": "Pre", "triggerOperation": "All"}
        await self._must("POST", scripts + b"triggers", trigger)
        offers = await self.answer("GET", b"/offers")
        self.offer_rids = [offer["_rid"] for offer in orjson.loads(offers.body)["Offers"]]

    async def _must(self, method: str, target: bytes, body: object, headers: Headers | None = None) -> Any:
        answer = await self.answer(method, target, orjson.dumps(body), headers)
        assert answer.status == 201, (target, answer.status, answer.body)
        return orjson.loads(answer.body)


class World(Furniture):
    """The whole account in this process."""

    def __init__(self, engine: WatchedEngine, account: Account, clock: VirtualClock) -> None:
        super().__init__(clock.now_s())
        self._engine = engine
        self._account = account
        self._clock = clock
        self._door = SqlDoor(account, AccountKeys(KEY), accepts_aad=True)

    @classmethod
    async def make(cls, seed: int) -> Self:
        engine, clock = WatchedEngine(), VirtualClock(seed=seed)
        world = cls(engine, await Account.open(engine, clock), clock)
        await world.furnish()
        return world

    async def send(self, request: Request) -> Response:
        self._engine.begin_request()
        return await self._door.answer(request)

    @property
    def changes(self) -> int:
        """How many transactions of requests have changed something."""
        return self._engine.changes

    async def close(self) -> None:
        await self._account.close()
        await self._engine.close()

    async def problems(self) -> list[str]:
        """What `armillary check` would print."""
        return [problem async for problem in check_account(self._engine, self._clock)]
