"""Estimates the lag of a consumer: for each lease, about how many transactions of its range were not read yet. The
estimate is a difference of lsns of the partition, which also count changes outside the lease's range.
"""

from __future__ import annotations

from typing import NamedTuple

from azure.cosmos.aio import ContainerProxy

from armillary.changefeed.leases import Leases
from armillary.changefeed.reading import FeedRange, Part, lsn_of, parts_of, read_page, session_lsn


class RangeLag(NamedTuple):
    """The lag of one range."""

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
