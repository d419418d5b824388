"""One page of a change feed through azure-cosmos, with where it goes on: the client tells that in headers, which the
requests of others must not come in between.

Where a feed stands is a token of the client's. It is opaque but for one thing: after a split the client puts a part for
each new range into it, and those can be had as tokens of their own, so that several workers can go on with them.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from azure.cosmos.aio import ContainerProxy

Row = dict[str, Any]
FeedRange = dict[str, Any]
Start = datetime | str  # "Beginning", "Now" or a time


class Page(NamedTuple):
    rows: list[Row]
    continuation: str
    session: str  # token: how far the range is


class Part(NamedTuple):
    feed_range: FeedRange
    continuation: str


async def read_page(
    feed: ContainerProxy,
    feed_range: FeedRange,
    continuation: str | None,
    *,
    start: Start,
    mode: str,
    page_items: int,
) -> Page:
    """What comes after a continuation, or from the start; no rows: nothing new."""
    seen: list[Mapping[str, Any]] = []
    options: dict[str, Any] = {
        "max_item_count": page_items,
        "response_hook": lambda headers, _body: seen.append(headers),
    }
    if continuation is not None:
        options["continuation"] = continuation
    else:
        options |= {"feed_range": feed_range, "start_time": start, "mode": mode}
    rows: list[Row] = []
    async for page in feed.query_items_change_feed(**options).by_page():
        rows = [row async for row in page]
        break
    # The client writes its own token over the server's when it is done with an answer.
    headers = seen[-1]
    return Page(rows, headers["etag"], headers.get("x-ms-session-token", ""))


def parts_of(continuation: str) -> list[Part]:
    """A token as one for each range that it goes on with; none: it goes on with one, or is in a form that is not known
    here, and stays as it is."""
    try:
        state = json.loads(base64.b64decode(continuation, validate=True))
        inner = state["continuation"]
        listed = inner["continuation"]
        if (state["v"], inner["v"]) != ("v2", "v2") or "Range" not in inner or len(listed) < 2:
            return []
        ranges = [each["range"] for each in listed]
    except (binascii.Error, ValueError, KeyError, TypeError):
        return []
    parts = []
    for each, key_range in zip(listed, ranges, strict=True):
        own = {**state, "continuation": {**inner, "continuation": [each], "Range": key_range}}
        parts.append(Part({"Range": key_range}, base64.b64encode(json.dumps(own).encode()).decode()))
    return parts


def lsn_of(row: Row) -> int | None:
    """Of a change in either mode."""
    lsn = row.get("metadata", {}).get("lsn") if "current" in row else row.get("_lsn")
    return int(lsn) if lsn is not None else None


def session_lsn(token: str) -> int | None:
    """How far a range is, by a session token: `range:version#lsn#...`, or `range:lsn` of old."""
    try:
        return int(token.partition(",")[0].partition(":")[2].split("#")[:2][-1])
    except ValueError:
        return None
