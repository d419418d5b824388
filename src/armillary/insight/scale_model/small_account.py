"""The real engine, small: an account in memory whose limits are shrunk, with one container, and a clock that moves only
when it is told to. So what it does depends on no machine's speed.

The account is the one that servers run; only the network and the protocols are left out.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, Self

from armillary.account import containers, overview
from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.registry import AccountSettings
from armillary.account.throughput import offers
from armillary.account.throughput.provisioning import Throughput
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.insight.planning.partition_counts import PartitionLimits
from armillary.storage.memory import MemoryEngine

_NAME: Final = "model"
_IDLE_TURNS: Final = 50  # of the event loop: more than a chain of tasks that wake one another takes
_SETTLE_TURNS_MAX: Final = 2_000_000
PROPERTY: Final = "/key"  # the path of the first level of the partition key; others follow as /key2, /key3


def key_paths(levels: int) -> list[str]:
    return [PROPERTY if level == 1 else f"{PROPERTY}{level}" for level in range(1, levels + 1)]


@dataclass(frozen=True, slots=True)
class StoredFigures:
    """What is stored, at one moment."""

    partitions: int
    size_bytes: int
    items: int
    fullest_partition_bytes: int
    largest_key_bytes: int
    bounds: tuple[bytes, ...]  # the lower ones of the partitions


class SmallAccount:
    """Made by `begin`."""

    def __init__(self, engine: MemoryEngine, account: Account, clock: VirtualClock, container: Container) -> None:
        self._engine = engine
        self.account = account
        self.clock = clock
        self.container = container

    @classmethod
    async def begin(
        cls,
        shrunk: PartitionLimits,
        throughput: Throughput,
        *,
        levels: int = 1,
        ttl_s: int = 0,
        has_burst: bool = False,
    ) -> Self:
        """`shrunk`: what a partition holds and carries here. Nothing is refused for want of budget until `enforce`."""
        engine, clock = MemoryEngine(), VirtualClock()
        settings = AccountSettings(
            partition_throughput_ru=shrunk.throughput_ru,
            partition_storage_bytes=shrunk.storage_bytes,
            logical_partition_bytes_max=shrunk.logical_bytes,
            has_partition_headroom=shrunk.has_headroom,
            has_burst=has_burst,
            history_memory_bytes=0,
        )
        account = await Account.open(engine, clock, settings)
        database = await containers.create_database(account, {"id": _NAME}, None)
        kind = "Hash" if levels == 1 else "MultiHash"
        body: dict[str, Any] = {
            "id": _NAME,
            "partitionKey": {"paths": key_paths(levels), "kind": kind, "version": 2},
            "indexingPolicy": {"indexingMode": "consistent", "includedPaths": [{"path": "/*"}]}
            | {"excludedPaths": [{"path": "/unindexed/*"}, {"path": '/"_etag"/?'}]},
        }
        if ttl_s:
            body["defaultTtl"] = ttl_s
        container = await containers.create_container(account, database, body, throughput)
        await account.budgets.set_mode(container, "off")
        return cls(engine, account, clock, container)

    async def close(self) -> None:
        await self.account.close()
        await self._engine.close()

    async def enforce(self, *, is_on: bool) -> None:
        """Whether requests over the budget are refused."""
        await self.account.budgets.set_mode(self.container, "enforce" if is_on else "off")

    async def scale(self, throughput: Throughput) -> None:
        """A change of the provisioned throughput, and the splits that it needs."""
        offer = self.account.budgets.offer_of(self.container.record)
        assert offer is not None, "it was made with throughput of its own"
        await offers.set_throughput(self.account, offer, throughput)
        await self.settle()

    async def settle(self) -> None:
        """Let all splits come to their end. The clock moves as far as they sleep."""
        reshaper = self.account.reshaper
        for turn in range(_SETTLE_TURNS_MAX):
            await asyncio.sleep(0)
            if turn % _IDLE_TURNS == 0:
                if reshaper.is_idle and not reshaper.is_growing(self.container):
                    return
                self.clock.advance(self.clock.next_wake_s or 0.0)
        raise Failure(Kind.UNAVAILABLE, "The splits of the scale model do not come to an end.")

    async def pass_s(self, seconds: float) -> None:
        """Time passes, and what is due in it is done: items expire."""
        self.clock.advance(seconds)
        if self.container.schema.rules.default_ttl is not None:
            await self.account.rounds.keep_up()

    async def stored(self) -> StoredFigures:
        figures = overview.partition_figures(self.container)
        largest = await overview.largest_keys(self.container, 1)
        return StoredFigures(
            len(figures),
            sum(each.size_bytes for each in figures),
            sum(each.item_count for each in figures),
            max(each.size_bytes for each in figures),
            largest.keys[0].size_bytes if largest.keys else 0,
            tuple(each.range.low for each in figures),
        )
