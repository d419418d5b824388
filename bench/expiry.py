"""TTL: how fast expired items are deleted, and later their tombstones. In this process, with full durability, small
items and the default indexing policy. The target is the CPU time of expiring an item relative to that of creating it in
the same run, which other load on the machine affects little; the rate is printed too.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from armillary import limits
from armillary.account import containers
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions, Member
from armillary.clock import MovableClock
from armillary.partition.operations import Verb
from armillary.storage.rocks import RocksEngine
from bench.sections import Aim, Say, row

AIM_PER_S: Final = 20_000
AIM_RATIO: Final = 0.8  # of the processor time of a create in a batch of a hundred
_KEY: Final = {"paths": ["/pk"], "kind": "Hash", "version": 2}
CREATED, EXPIRED, FORGOTTEN = "created in batches of 100", "expired", "tombstones forgotten"
KINDS: Final = (CREATED, EXPIRED, FORGOTTEN)


@dataclass
class ExpiryFigures:
    """One figure for each round and kind of work."""

    per_s: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    cpu_us: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def lines(self) -> Iterable[str]:
        yield ""
        yield "time to live: items of 300 bytes, full durability, a second and microseconds of the event loop's thread"
        for kind in KINDS:
            yield row(kind, [f"{each:,.0f}" for each in self.per_s[kind]])
            yield row(f"{kind}, µs each", [f"{each:.1f}" for each in self.cpu_us[kind]])

    def aims(self) -> Iterable[Aim]:
        ratios = [
            expired / created for expired, created in zip(self.cpu_us[EXPIRED], self.cpu_us[CREATED], strict=True)
        ]
        yield Aim("expired items: processor time over that of a create", statistics.median(ratios), AIM_RATIO, True)
        yield Aim("expired items a second", max(self.per_s[EXPIRED]), AIM_PER_S)
        yield Aim("tombstones forgotten a second", max(self.per_s[FORGOTTEN]), AIM_PER_S)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(directory: Path, *, is_quick: bool, say: Say) -> ExpiryFigures:
    figures = ExpiryFigures()
    asyncio.run(_measure(directory, 10_000 if is_quick else 40_000, 3 if is_quick else 5, figures, say))
    return figures


async def _measure(directory: Path, count: int, rounds: int, figures: ExpiryFigures, say: Say) -> None:
    clock = MovableClock()
    engine = await RocksEngine.open(directory, "full", clock=clock)
    account = await Account.open(engine, clock)
    database = await containers.create_database(account, {"id": "expiry"}, None)
    for turn in range(rounds):
        body = {"id": f"c{turn}", "partitionKey": _KEY, "defaultTtl": -1}
        container = await containers.create_container(account, database, body, None)

        async def until_empty(container: Container = container) -> None:
            while any(each.head.item_count for each in container.partitions.values()):
                await account.rounds.keep_up()
                await asyncio.sleep(0.001)  # the account's own round may have taken the work

        steps = {
            CREATED: (0, _fill(container, count, clock)),
            EXPIRED: (7200, until_empty()),
            FORGOTTEN: (limits.TOMBSTONE_SECONDS + 1, account.rounds.keep_up()),
        }
        for kind, (advance_s, work) in steps.items():
            clock.advance(advance_s)
            begun_s, begun_cpu_s = time.perf_counter(), time.thread_time()
            await work
            figures.cpu_us[kind].append((time.thread_time() - begun_cpu_s) / count * 1e6)
            figures.per_s[kind].append(count / (time.perf_counter() - begun_s))
            say(f"{kind}, round {turn + 1}: {figures.per_s[kind][-1]:,.0f}/s, {figures.cpu_us[kind][-1]:.1f} µs each")
    await account.close()
    await engine.close()


async def _fill(container: Container, count: int, clock: MovableClock) -> None:
    for first in range(0, count, limits.BATCH_OPERATIONS_MAX):
        documents = [_document(number) for number in range(first, first + limits.BATCH_OPERATIONS_MAX)]
        members = [Member(Verb.CREATE, item_id=each["id"], document=each) for each in documents]
        if not (await items.batch(container, container.key_of(documents[0]), members, ItemOptions(), clock)).is_done:
            raise RuntimeError("a batch of creates was refused")


def _document(number: int) -> dict[str, Any]:
    return {
        "id": str(number),
        "pk": "p",
        "ttl": 3600,
        "name": f"item {number}",
        "price": number * 1.37,
        "count": number % 1000,
        "due": f"2026-11-{number % 28:02}",
        "address": {"city": f"city {number % 50}", "zip": number % 1000},
        "text": "x" * 110,
    }
