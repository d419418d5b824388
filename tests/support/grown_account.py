"""An account with everything that a replica has to carry: splits with retired stores, TTL, deleted items and
containers, stores that a copy has left."""

from __future__ import annotations

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import VirtualClock
from armillary.model.key_values import Key
from armillary.partition.upkeep.ttl_sweep import sweep_expired

KEY = {"paths": ["/pk"], "kind": "Hash", "version": 2}
ITEMS = 60


async def grow(account: Account, clock: VirtualClock) -> None:
    database = await containers.create_database(account, {"id": "db"}, None)
    for name in ("c", "doomed"):
        body = {"id": name, "partitionKey": KEY, "defaultTtl": -1}
        container = await containers.create_container(account, database, body, Throughput.manual(400))
        for number in range(ITEMS):
            ttl = {"ttl": 30} if number % 3 == 0 else {}
            document = {"id": f"i{number}", "pk": f"k{number % 7}", "n": number, "text": "x" * 200, **ttl}
            await items.upsert(container, document, ItemOptions(key=container.key_of(document)), clock)
    await containers.delete_container(account, account.container("db", "doomed"), None)
    container = account.container("db", "c")
    await account.reshaper.finished(await account.reshaper.split(container, 0))
    for number in (1, 2, 4):
        await items.delete(container, f"i{number}", ItemOptions(key=Key((f"k{number % 7}",))))
    clock.advance(31)
    first, *_ = container.partitions.values()
    assert await sweep_expired(first, clock.now_s()) > 0
    await account.catalog.reserve(lambda reservation: reservation.store())  # of a copy that did not end
