"""Continuations of the query corpus: each case on four partitions, for a client that announces nothing, one row a page.
After each page of all cases every container has a partition split and the server is restarted.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from conformance.test_sql import CASES, EXCEPTIONS, MERGED_QUERY, dataset, policies, same, same_set, without_system
from support.caller import KEY, Caller
from support.house import AccountHouse

from armillary.clock import VirtualClock
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.door import SqlDoor
from armillary.storage.memory import MemoryEngine

DISTURBED_PAGES = 6  # after them every container has ten partitions, and the rest comes in long pages
CROSSED_MIN = 150  # cases with a page after a split and a restart


@dataclass
class Asked:
    """A case that is being read."""

    case: dict[str, Any]
    container: str
    rows: list[Any] = field(default_factory=list)
    continuation: str | None = None
    pages: int = 0
    is_done: bool = False

    async def read_page(self, call: Caller, page_items: int) -> None:
        headers = {**MERGED_QUERY, "x-ms-max-item-count": str(page_items)}
        if self.continuation is not None:
            headers["x-ms-continuation"] = self.continuation
        parameters = [{"name": name, "value": value} for name, value in self.case.get("params", {}).items()]
        query = {"query": self.case["query"], "parameters": parameters}
        status, body, response = await call("POST", f"/dbs/db/colls/{self.container}/docs", query, **headers)
        assert status == 200, f"{self.case['query']}, page {self.pages}: {body}"
        self.rows += without_system(body["Documents"])
        self.pages += 1
        found = dict(response.headers).get(b"x-ms-continuation")
        self.continuation = None if found is None else found.decode()
        self.is_done = found is None

    def check(self) -> None:
        expected = self.case["expect"]
        is_met = same(self.rows, expected) if self.case["ordered"] else same_set(self.rows, expected)
        assert is_met, f"{self.case['query']}\ngave     {self.rows}\nexpected {expected}"


async def test_pages_go_on_after_splits_and_restarts(seed: int) -> None:
    dice = random.Random(seed)
    house = await AccountHouse.begin(MemoryEngine(), VirtualClock())
    names: dict[str, str] = {}
    asked = []
    for case in [each | EXCEPTIONS.get(each["id"], {}) for each in CASES]:
        if "error" in case:
            continue
        told = json.dumps([case["data"], policies(case)], sort_keys=True)
        if told not in names:
            names[told] = f"c{len(names)}"
            body = {"partitionKey": {"paths": ["/id"], "kind": "Hash", "version": 2}, **policies(case)}
            container = await house.create(names[told], 24_000, **body)
            await house.put(container, *(case["data"] if isinstance(case["data"], list) else dataset(case["data"])))
        asked.append(Asked(case, names[told]))
    for _ in range(DISTURBED_PAGES):
        call = Caller(SqlDoor(house.account, AccountKeys(KEY), accepts_aad=False), house.clock)
        for each in [each for each in asked if not each.is_done]:
            house.clock.advance(60)
            await each.read_page(call, 1)
        for name in {each.container for each in asked if not each.is_done}:
            container = house.account.container("db", name)
            reshape = await house.account.reshaper.split(container, dice.choice(container.map.ranges).id)
            await house.account.reshaper.finished(reshape)
        await house.reopen()
    call = Caller(SqlDoor(house.account, AccountKeys(KEY), accepts_aad=False), house.clock)
    for each in asked:
        while not each.is_done:
            house.clock.advance(60)
            await each.read_page(call, 1000)
        each.check()
    assert len([each for each in asked if each.pages > 1]) > CROSSED_MIN
    assert not await house.problems()
    await house.close()
