"""The change feed of a container over the control API, in pages, in either mode and from any start. Unlike the SQL
protocol it also reads all versions from the beginning, as far as they are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

import orjson

from armillary import limits
from armillary.account.changes.change_feed import ChangePage, change_row, read_changes
from armillary.account.container import Container
from armillary.account.visits.page_walk import FeedOptions
from armillary.doors.control.call import Call
from armillary.errors import bad_request
from armillary.model.json_members import shown
from armillary.net.http import Response

_MODES = ("latest", "all-versions")
_BEGINNING, _NOW = "beginning", "now"


async def show_changes(call: Call) -> Response:
    """The next page after `position`, or from where `from` says."""
    asked = call.query("mode", "from", "position", "key", "limit", "wait")
    wait_ms = call.whole("wait", 0, 0, limits.WATCH_WAIT_MS_MAX)
    mode = asked.get("mode", _MODES[0])
    if mode not in _MODES:
        raise bad_request(f"'mode' must be one of {', '.join(_MODES)}, not '{shown(mode)}'.")
    container = call.container()
    has_all_versions = mode == _MODES[1]
    position, start, since_s = asked.get("position"), asked.get("from", _NOW), None
    if position is None and start == _BEGINNING:
        position = "0"
    elif start not in (_BEGINNING, _NOW):
        since_s = _seconds(start)
        position = position or "0"
        if has_all_versions:
            raise bad_request("All versions can be read from beginning or now on, not from a time.")
    key = _key(container, asked.get("key"))
    page_items = _limit(asked.get("limit", str(limits.PAGE_ITEMS_DEFAULT)))

    async def read(position: str | None) -> ChangePage:
        return await read_changes(
            call.account,
            container,
            FeedOptions(key=key, page_items=page_items, continuation=position),
            is_from_now=position is None,
            since_s=since_s,
            has_all_versions=has_all_versions,
        )

    before = _lsns(container)
    page = await read(position)
    if wait_ms and not page.items:
        # From now on means from the first look: what is written while the request waits belongs to it.
        await call.services.long_polls.until(lambda: _lsns(container) != before, wait_ms, _pause(call))
        if _lsns(container) != before:
            page = await read(page.continuation)
    rows = [orjson.Fragment(change_row(each, container)) for each in page.items]
    return call.answer({"changes": rows, "position": page.continuation, "isEnd": page.is_end})


def _lsns(container: Container) -> tuple[bool, int, int]:
    """Differs after any write to a container, and after a split or merge."""
    heads = [each.head.lsn for each in container.partitions.values()]
    return container.is_retired, container.state.next_range, sum(heads)


def _pause(call: Call) -> Callable[[float], Coroutine[Any, Any, None]]:
    async def pause(left_s: float) -> None:
        await call.account.clock.sleep(min(left_s, limits.CHANGES_POLL_SECONDS))

    return pause


def _seconds(text: str) -> int:
    try:
        when = datetime.fromisoformat(text)
        if when.tzinfo is not None:
            return max(0, int(when.timestamp()))
    except (ValueError, OverflowError):
        pass
    raise bad_request(
        f"'from' must be {_BEGINNING}, {_NOW} or a time with its zone such as 2026-01-31T12:00:00Z, "
        f"not '{shown(text)}'."
    )


def _key(container: Container, text: str | None) -> Any:
    return container.parse_key(text) if text is not None else None


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= limits.PAGE_ITEMS_MAX:
        raise bad_request(f"'limit' must be a whole number from 1 to {limits.PAGE_ITEMS_MAX}, not '{shown(text)}'.")
    return int(text)
