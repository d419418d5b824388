"""A container of one partition that the clients of the fault tests fill and empty together, again and again, with items
of several shapes, some of which expire: what its index answers is held against its items after each crash.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from faults.client import Answer, Client, ConnectionLost
from faults.ledger import Ledger

EMPTIED = "emptied"
LINK = f"dbs/faults/colls/{EMPTIED}"
DOCS = f"{LINK}/docs"
DEFINITION = {
    "id": EMPTIED,
    "partitionKey": {"paths": ["/key"], "kind": "Hash", "version": 2},
    "defaultTtl": -1,
}
KEY = {"x-ms-documentdb-partitionkey": '["t"]'}
SHAPES = (("kind", "due"), ("kind", "total"), ("due", "total", "kind"), ("total",))
PATHS = ("kind", "due", "total")
TIDE_S = 0.06  # all clients create for so long, and then delete for as long
ITEMS_MAX = 3  # of one client
QUERY = {
    "x-ms-documentdb-isquery": "true",
    "content-type": "application/query+json",
    "x-ms-max-item-count": "1000",
    **KEY,
}


class Emptying:
    """The items of one client, by id: whether each is there, as far as it was told."""

    def __init__(self, number: int, ledger: Ledger, dice: random.Random) -> None:
        self._number = number
        self._ledger = ledger
        self._dice = dice
        self.there: dict[str, bool | None] = {}  # None: not known

    async def step(self, client: Client) -> None:
        present = [item for item, is_there in self.there.items() if is_there]
        is_flood = int(asyncio.get_running_loop().time() / TIDE_S) % 2 == 0
        if is_flood and len(present) < ITEMS_MAX:
            await self._create(client)
        elif present and not is_flood:
            await self._delete(client, self._dice.choice(present))

    async def _create(self, client: Client) -> None:
        item = f"e{self._number}.{self._ledger.token()}"
        document: dict[str, Any] = {"id": item, "key": "t"}
        document |= {path: self._dice.randint(1, 9) for path in self._dice.choice(SHAPES)}
        self.there[item] = None
        if self._dice.random() < 0.1:
            document["ttl"] = 1  # goes by itself: nothing is expected of it
        answer = await client.request("POST", DOCS, document, KEY, is_feed=True)
        if answer.status == 201 and "ttl" not in document:
            self.there[item] = True
        elif answer.status != 201:
            self._doubt(answer, f"create {item}")

    async def _delete(self, client: Client, item: str) -> None:
        self.there[item] = None
        answer = await client.request("DELETE", f"{DOCS}/{item}", None, KEY)
        if answer.status == 204:
            self.there[item] = False
        else:
            self._doubt(answer, f"delete {item}")

    def _doubt(self, answer: Answer, what: str) -> None:
        if answer.status not in (403, 503):  # the disk is full, or the server is stopping
            self._ledger.accuse("answer", f"{what} is answered {answer.status}: {answer.body[:300]!r}")


async def compare(client: Client, ledger: Ledger, clients: list[Emptying], *, is_final: bool) -> None:
    """What the index answers with the items, and these with what the clients were told."""
    while True:
        items = await _rows(client, "SELECT * FROM c")
        listed = {item["id"]: item for item in items}
        wrong = [await _wrong(client, list(listed.values()), path) for path in PATHS]
        if [item["id"] for item in await _rows(client, "SELECT * FROM c")] == [item["id"] for item in items]:
            break  # else one has expired meanwhile
    for text in filter(None, wrong):
        ledger.accuse("index", text)
    for each in clients:
        for item, is_there in each.there.items():
            if is_there is not None and is_there is not (item in listed):
                ledger.accuse("lost", f"{item} is {listed.get(item)}, though it was acknowledged: {is_there}")
        if is_final:
            # Nothing is expected of what goes by itself: it may be there at the next look, or not.
            each.there = {item: None if "ttl" in listed[item] else True for item in each.there if item in listed}


async def _wrong(client: Client, items: list[dict[str, Any]], path: str) -> str:
    ordered = [item["id"] for item in await _rows(client, f"SELECT c.id FROM c ORDER BY c.{path}")]
    if sorted(ordered) != sorted(item["id"] for item in items):
        return f"ORDER BY c.{path} gives {ordered} of {items}"
    found = await _rows(client, f"SELECT VALUE c.{path} FROM c WHERE c.{path} > 0")
    if sorted(found) != sorted(item[path] for item in items if path in item):
        return f"the index of {path} gives {found} of {items}"
    return ""


async def _rows(client: Client, text: str) -> list[Any]:
    rows: list[Any] = []
    headers = dict(QUERY)
    while True:
        answer = await client.request("POST", DOCS, {"query": text, "parameters": []}, headers, is_feed=True)
        if answer.status != 200:
            raise ConnectionLost(f"{text} is answered {answer.status}: {answer.body[:300]!r}")
        rows += answer.json["Documents"]
        if "x-ms-continuation" not in answer.headers:
            return rows
        headers["x-ms-continuation"] = answer.headers["x-ms-continuation"]
