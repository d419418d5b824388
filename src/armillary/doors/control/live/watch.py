"""`GET watch` and `GET events`: what a page that is open asks again and again. A request to watch is answered when
something has changed, or after the time that it is willing to wait; its number is the `since` of the next.
"""

from __future__ import annotations

import asyncio
import gzip
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote

from armillary import limits
from armillary.account.container import Container
from armillary.account.events import Event
from armillary.doors.control.call import Call
from armillary.doors.control.reshapes import of_container
from armillary.errors import Failure, Kind, bad_request
from armillary.insight.load_watch import Watched
from armillary.model.json_members import shown
from armillary.net.http import BareResponse, Response

# Of a partition's row, so that 1,000 rows do not name them. The rest are its bounds.
_COLUMNS: Final = (
    *("id", "bytes", "items", "budgetRu", "requests", "refused", "wouldBeRefused", "spentRu", "full"),
    *("low", "high"),
)


async def watch(call: Call) -> Response:
    asked = call.query("since", "wait", "containers")
    since = call.whole("since", 0, 0, 2**53)
    wait_ms = call.whole("wait", 0, 0, limits.WATCH_WAIT_MS_MAX)
    view = _View(call, asked.get("containers"))
    events = call.account.events
    if since > events.number:  # of a process whose clock was ahead
        since = 0

    async def pause(left_s: float) -> None:
        await events.wait(min(left_s, view.next_look_s()))
        await call.account.refresh_figures()

    await call.services.long_polls.until(lambda: view.has_changed(since), wait_ms, pause)
    return await _packed(call, call.answer(view.content(since)))


async def _packed(call: Call, response: Response) -> Response:
    """Compress a long answer, such as the first about 1,000 partitions, for clients that read that. In a thread: the
    compression does not hold the interpreter."""
    size_bytes = len(response.body)
    accepted = call.request.headers.get(b"accept-encoding", b"")
    if size_bytes < limits.WATCH_COMPRESSED_BYTES_MIN or b"gzip" not in accepted:
        return response
    body = await asyncio.to_thread(gzip.compress, response.body, 1, mtime=0)
    headers = [*response.headers, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding")]
    return BareResponse(response.status, headers, body)


async def list_events(call: Call) -> Response:
    call.query("after", "limit")
    after = call.whole("after", 0, 0, 2**53)
    limit = call.whole("limit", limits.EVENTS_DEFAULT, 1, limits.EVENTS_MAX)
    found = call.account.events.after(after, limit)
    return call.answer({"events": [_event(each) for each in found], "number": call.account.events.number})


class _View:
    """The containers that a request is about."""

    def __init__(self, call: Call, text: str | None) -> None:
        self._call = call
        self._names = _pairs(text) if text is not None else None
        self._looked: dict[str, tuple[Container, Watched] | None] = {}
        self._look()
        count = sum(len(each[0].map.ranges) for each in self._looked.values() if each is not None)
        if count > limits.WATCH_PARTITIONS_MAX:
            raise bad_request(
                f"There are {count} partitions, and one answer has up to {limits.WATCH_PARTITIONS_MAX}. Name the "
                "'containers' to watch."
            )

    def _look(self) -> None:
        account = self._call.account
        if self._names is None:
            found: dict[str, Container | None] = {f"{c.database.name}/{c.name}": c for c in account.containers}
        else:
            found = {name: _container(self._call, *pair) for name, pair in self._names.items()}
        load_watch = self._call.services.load_watch
        self._looked = {
            name: (each, load_watch.look(each)) if each is not None else None for name, each in found.items()
        }

    def next_look_s(self) -> float:
        containers = [each[0] for each in self._looked.values() if each is not None]
        return self._call.services.load_watch.next_look_s(containers)

    def has_changed(self, since: int) -> bool:
        if self._call.account.events.has_after(since):
            return True
        gone = {name for name, each in self._looked.items() if each is None}
        self._look()
        if any(each is None and name not in gone for name, each in self._looked.items()):
            return True
        return any(each is not None and each[1].number > since for each in self._looked.values())

    def content(self, since: int) -> dict[str, Any]:
        self._look()
        account = self._call.account
        return {
            "number": account.events.number,
            "time": _time(account.clock.now_s()),
            "containers": {
                name: self._container(*each, since) if each is not None else None for name, each in self._looked.items()
            },
            "events": [_event(each) for each in account.events.after(since)],
        }

    def _container(self, container: Container, watched: Watched, since: int) -> dict[str, Any]:
        return {
            "map": container.state.next_range,
            "columns": _COLUMNS,
            "partitions": partition_rows(watched, since),
            "gone": [range_id for number, range_id in watched.gone if number > since],
            "reshapes": of_container(self._call, container),
        }


def partition_rows(watched: Watched, since: int) -> list[list[Any]]:
    """A row a partition that has changed, in the order of their ranges. Bounds do not change: they are in the first
    row about a partition alone, and its high one only if the next row does not begin there."""
    changed = [(range_id, each) for range_id, each in watched.partitions.items() if each.number > since]
    changed.sort(key=lambda pair: pair[1].low)
    rows = []
    next_low = None
    for range_id, figures in reversed(changed):
        is_new = figures.first_number > since
        row = [range_id, *figures.row]
        if is_new:
            row.append(figures.low)
            if figures.high != next_low:
                row.append(figures.high)
        next_low = figures.low if is_new else None
        rows.append(row)
    rows.reverse()
    return rows


def _container(call: Call, database: str, name: str) -> Container | None:
    try:
        return call.account.container(database, name)
    except Failure as failure:
        if failure.kind in (Kind.NOT_FOUND, Kind.OWNER_NOT_FOUND):
            return None
        raise


def _pairs(text: str) -> dict[str, tuple[str, str]]:
    """Names of databases and containers by the text that named them: commas and slashes in names are escaped once
    more."""
    found = {}
    for each in text.split(",") if text else ():
        database, slash, name = each.partition("/")
        if not slash or not database or not name or "/" in name:
            raise bad_request(f"'containers' are names such as shop/orders, joined by commas, not '{shown(each)}'.")
        found[each] = unquote(database), unquote(name)
    return found


def _event(event: Event) -> dict[str, Any]:
    return {
        "number": event.number,
        "time": _time(event.time_s),
        "kind": event.kind,
        "database": event.database,
        "container": event.container,
        "text": event.text,
        **{name: value for name, value in event.details.items() if value is not None},
    }


def _time(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds")
