"""The leases of a consumer, stored as items of a container that is partitioned by /id: one for each range of the feed,
with its owner and the position reached. Every write is conditional on the etag, so of two competing workers one fails.
Also decides which leases a worker should acquire (`leases_to_take`), and estimates their lag (`estimate_lag`).

One more item records how the consumer began: mode, start and first ranges. If several workers start a new consumer at
the same time, the item that was created first counts.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import ceil
from typing import Any, NamedTuple

from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from armillary.changefeed.reading import FeedRange, Part, lsn_of, parts_of, read_page, session_lsn

BEGINNING, NOW = "Beginning", "Now"
_OURS = "SELECT * FROM c WHERE c.consumer = @consumer AND c.kind = 'lease'"


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one worker to read one range."""

    id: str
    feed_range: FeedRange
    continuation: str | None = None  # None: nothing was read yet
    owner: str | None = None
    beat: int = 0  # incremented by every renewal: a lease whose beat stands still has expired
    parts: tuple[Part, ...] = ()  # after a split: the ranges whose leases replace this one
    etag: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a consumer began."""

    mode: str
    start: str  # Beginning, Now, or a time in ISO form
    leases: tuple[Lease, ...]
    is_complete: bool  # all leases were created
    etag: str = ""

    @property
    def start_time(self) -> datetime | str:
        return self.start if self.start in (BEGINNING, NOW) else datetime.fromisoformat(self.start)


class Leases:
    """The leases of one consumer in the lease container."""

    def __init__(self, container: ContainerProxy, consumer: str) -> None:
        self._container = container
        self._consumer = consumer

    async def all(self) -> list[Lease]:
        parameters: list[dict[str, object]] = [{"name": "@consumer", "value": self._consumer}]
        found = self._container.query_items(_OURS, parameters=parameters)
        return [_lease(item) async for item in found]

    def new(self, feed_range: FeedRange, continuation: str | None) -> Lease:
        digest = hashlib.sha256(json.dumps(feed_range, sort_keys=True).encode()).hexdigest()[:32]
        return Lease(f"{self._consumer}.{digest}", feed_range, continuation)

    async def make(self, leases: Sequence[Lease]) -> None:
        """Create the leases that do not exist yet."""
        for lease in leases:
            try:
                await self._container.create_item(self._item(lease))
            except CosmosResourceExistsError:
                continue

    async def write(self, lease: Lease, **changes: Any) -> Lease | None:
        """Renew or change a lease. None: another worker has changed it, or it was deleted."""
        changed = replace(lease, beat=lease.beat + 1, **changes)
        try:
            stored = await self._container.replace_item(
                lease.id, self._item(changed), etag=lease.etag, match_condition=MatchConditions.IfNotModified
            )
        except (CosmosAccessConditionFailedError, CosmosResourceNotFoundError):
            return None
        return replace(changed, etag=stored["_etag"])

    async def replace_by_parts(self, lease: Lease) -> None:
        """Replace a lease by those of its parts. If the worker dies in between, the next owner of the lease repeats
        this."""
        await self.make([replace(self.new(*part), owner=lease.owner) for part in lease.parts])
        try:
            await self._container.delete_item(
                lease.id, lease.id, etag=lease.etag, match_condition=MatchConditions.IfNotModified
            )
        except (CosmosAccessConditionFailedError, CosmosResourceNotFoundError):
            return

    # The item that records how a consumer began.

    async def beginning(self) -> Beginning | None:
        try:
            item = await self._container.read_item(self._beginning_id, self._beginning_id)
        except CosmosResourceNotFoundError:
            return None
        leases = tuple(Lease(each["id"], each["feedRange"], each["continuation"]) for each in item["leases"])
        return Beginning(item["mode"], item["start"], leases, item["isComplete"], item["_etag"])

    async def begin(self, beginning: Beginning) -> None:
        """Create the item, unless another worker has."""
        try:
            await self._container.create_item(self._beginning_item(beginning))
        except CosmosResourceExistsError:
            return

    async def complete(self, beginning: Beginning) -> None:
        item = self._beginning_item(replace(beginning, is_complete=True))
        try:
            await self._container.replace_item(
                item["id"], item, etag=beginning.etag, match_condition=MatchConditions.IfNotModified
            )
        except CosmosAccessConditionFailedError:
            return  # another worker has

    @property
    def _beginning_id(self) -> str:
        return f"{self._consumer}.beginning"

    def _beginning_item(self, beginning: Beginning) -> dict[str, Any]:
        return {
            "id": self._beginning_id,
            "kind": "beginning",
            "consumer": self._consumer,
            "mode": beginning.mode,
            "start": beginning.start,
            "leases": [
                {"id": each.id, "feedRange": each.feed_range, "continuation": each.continuation}
                for each in beginning.leases
            ],
            "isComplete": beginning.is_complete,
        }

    def _item(self, lease: Lease) -> dict[str, Any]:
        return {
            "id": lease.id,
            "kind": "lease",
            "consumer": self._consumer,
            "feedRange": lease.feed_range,
            "continuation": lease.continuation,
            "owner": lease.owner,
            "beat": lease.beat,
            "parts": [{"feedRange": part.feed_range, "continuation": part.continuation} for part in lease.parts],
        }


def _lease(item: dict[str, Any]) -> Lease:
    parts = tuple(Part(each["feedRange"], each["continuation"]) for each in item["parts"])
    return Lease(item["id"], item["feedRange"], item["continuation"], item["owner"], item["beat"], parts, item["_etag"])


def leases_to_take(leases: Sequence[Lease], worker: str, free_ids: Collection[str]) -> list[Lease]:
    """The leases that a worker should acquire so that all workers end up with about the same number. Workers do not
    communicate: each decides alone, and the first conditional write wins. Takes free leases up to the worker's share;
    if none is free, one lease of the worker that holds most, if that has at least two more."""
    owners = Counter(lease.owner for lease in leases if lease.id not in free_ids and lease.owner is not None)
    own_count = owners[worker]
    share = ceil(len(leases) / len(owners.keys() | {worker}))
    free = [lease for lease in leases if lease.id in free_ids]
    if free:
        return free[: max(0, share - own_count)]
    richest = max(sorted(owners.keys() - {worker}), key=lambda owner: owners[owner], default=None)
    if richest is None or owners[richest] - own_count < 2:
        return []
    return [next(lease for lease in leases if lease.owner == richest)]


class RangeLag(NamedTuple):
    """About how many transactions of one range a consumer has not read yet. The estimate is a difference of lsns of the
    partition, which also count changes outside the range."""

    feed_range: FeedRange
    owner: str | None  # the worker that holds the lease; None if none does
    transactions: int  # not read yet, estimated; 0: the consumer is up to date


async def estimate_lag(feed: ContainerProxy, leases: ContainerProxy, name: str) -> list[RangeLag]:
    """The lag of the consumer with this name, which need not be running. Reads one change of each range."""
    store = Leases(leases, name)
    beginning = await store.beginning()
    if beginning is None:
        return []
    lags = []
    for lease in await store.all():
        parts: list[tuple[FeedRange, str | None]] = [(lease.feed_range, lease.continuation)]
        if lease.continuation is not None:
            parts = list(parts_of(lease.continuation) or [Part(lease.feed_range, lease.continuation)])
        behind = 0
        for feed_range, continuation in parts:
            page = await read_page(
                feed, feed_range, continuation, start=beginning.start_time, mode=beginning.mode, page_items=1
            )
            first, last = lsn_of(page.rows[0]) if page.rows else None, session_lsn(page.session)
            if first is not None and last is not None:
                behind += max(1, last - first + 1)
        lags.append(RangeLag(lease.feed_range, lease.owner, behind))
    return lags
