"""Reads one page of a change feed through azure-cosmos, with its continuation. The client returns the continuation in
the response headers, so a hook captures the headers of this very request.

A continuation is a token of the client, opaque but for one thing: after a split it has one part for each new range.
`parts_of` makes a token of each part, so that different workers can continue with them.
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
    session: str  # session token: the last lsn of the range


class Part(NamedTuple):
    """One of the ranges that a continuation covers after a split."""

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
    """The page after a continuation, or the first from the start. No rows: there are no new changes."""
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
    # When it has read a response the client overwrites the server's etag by its own token.
    headers = seen[-1]
    return Page(rows, headers["etag"], headers.get("x-ms-session-token", ""))


def parts_of(continuation: str) -> list[Part]:
    """Split a token into one for each range that it covers. Empty if it covers only one, or has an unknown form: then
    the token is used as it is."""
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
    """The lsn of a change, in either mode."""
    lsn = row.get("metadata", {}).get("lsn") if "current" in row else row.get("_lsn")
    return int(lsn) if lsn is not None else None


def session_lsn(token: str) -> int | None:
    """The lsn in a session token: `range:version#lsn#...`, or `range:lsn` in the old form."""
    try:
        return int(token.partition(",")[0].partition(":")[2].split("#")[:2][-1])
    except ValueError:
        return None
