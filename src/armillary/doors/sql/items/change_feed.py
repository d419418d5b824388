"""The change feed over the SQL protocol: a read feed with `A-IM`. The position is the etag of each answer, and comes
back in If-None-Match; an answer without changes is 304."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from armillary.account.changes.change_feed import change_row, read_changes
from armillary.account.container import Container
from armillary.account.throughput.charge_explanations import explain_feed
from armillary.account.visits.page_walk import FeedOptions
from armillary.doors.sql import headers as h
from armillary.doors.sql.call import Call
from armillary.doors.sql.session_tokens import page_headers
from armillary.errors import Failure, Kind, bad_request
from armillary.model.encoding import payload_of
from armillary.model.resources import ResourceType
from armillary.net.http import Response

_LATEST_VERSION, _ALL_VERSIONS = b"incremental feed", b"full-fidelity feed"
_FORM = "2021-09-15"  # what was done stands beside the item; clients know no other by now
_NOW = "*"


async def read_change_feed(call: Call, container: Container, options: FeedOptions) -> Response:
    has_all_versions = _has_all_versions(call)
    is_beside = _is_beside(call)
    if options.continuation is not None:
        raise bad_request(
            "A change feed goes on from the etag of the last answer, in If-None-Match; leave out x-ms-continuation."
        )
    since_s = _since_s(call)
    position = h.text(call.headers, h.IF_NONE_MATCH)
    is_from_now = position == _NOW
    if has_all_versions and (position is None or since_s is not None):
        raise bad_request(
            "You must read the change feed from within the retention period. That of all versions and deletes begins "
            "now (If-None-Match: *) or at the etag of an earlier answer, not at the beginning or at a time."
        )
    if position is not None and not is_from_now:
        options.continuation = position[1:-1] if len(position) > 1 and position[0] == position[-1] == '"' else position
    page = await read_changes(
        call.account,
        container,
        options,
        is_from_now=is_from_now,
        since_s=since_s,
        has_all_versions=has_all_versions,
    )
    extra = [(b"etag", b'"%b"' % page.continuation.encode("ascii")), *page_headers(call.headers, container, page.lsns)]
    sizes_bytes = [len(payload_of(each.stored)) for each in page.items] if call.explains else []
    parts = explain_feed(sizes_bytes, page.charge_ru, options.read_factor) if call.explains else None
    if not page.items and page.is_end:
        return call.answer(304, page.charge_ru, b"", [(b"x-ms-item-count", b"0"), *extra], parts)
    rows = [change_row(each, container, is_beside=is_beside) for each in page.items]
    return call.answer_feed(page.charge_ru, container.rid_text, ResourceType.ITEM.feed, rows, None, extra, parts)


def _has_all_versions(call: Call) -> bool:
    """Which of the two modes is asked for."""
    given = call.headers[h.CHANGE_FEED]
    mode = given.strip().lower()
    if mode == _LATEST_VERSION:
        return False
    if mode != _ALL_VERSIONS:
        shown = given[:100].decode("ascii", "replace")
        raise bad_request(
            f"The header A-IM has the invalid value '{shown}'; it must be Incremental Feed or Full-Fidelity Feed."
        )
    return True


def _is_beside(call: Call) -> bool:
    """Whether each item is to be `current`, with its `metadata` beside it. Feeds of all versions always have this form;
    Java's change feed processor and Rust's client ask for it with the latest versions, too."""
    form = h.text(call.headers, h.CHANGE_FEED_FORM)
    if form not in (None, _FORM):
        raise Failure(
            Kind.UNSUPPORTED,
            f"Change feeds are written in the form {_FORM}, not '{form[:100]}' ({h.CHANGE_FEED_FORM.decode()}).",
        )
    return form is not None


def _since_s(call: Call) -> int | None:
    """If-Modified-Since in seconds of the epoch. It counts seconds, and so does an item's _ts: both in full."""
    given = h.text(call.headers, h.IF_MODIFIED_SINCE)
    if given is None:
        return None
    try:
        when = parsedate_to_datetime(given)
        if when.tzinfo is not None:
            return max(0, int(when.timestamp()))
    except (ValueError, OverflowError):
        pass
    raise bad_request(
        f"The header If-Modified-Since has the invalid value '{given[:100]}'; it must be a date such as "
        "Sun, 06 Nov 1994 08:49:37 GMT."
    )
