"""Queries without a route, a call or lists of headers: `answer` does what `SqlDoor.answer` and `feeds.query_items` do
for the first page of a query that asks for no metrics. See `quick_requests.py`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from armillary import limits
from armillary.account.container import Container
from armillary.account.queries import merged_queries, short_queries
from armillary.account.queries.partition_slices import PageAnswer
from armillary.account.visits.consistency import failure_or_silence
from armillary.account.visits.page_walk import FeedOptions
from armillary.doors.sql import headers as h
from armillary.doors.sql.call import feed_body
from armillary.doors.sql.items.feeds import TIES, bound_to, page_items
from armillary.doors.sql.items.quick_requests import QuickRequests
from armillary.doors.sql.merging_clients import choose_merging, is_unaware_of_splits
from armillary.doors.sql.resources.lists import parse_query_body
from armillary.doors.sql.serialization import BINARY, FORMATS
from armillary.doors.sql.session_tokens import SESSION_TOKEN, page_headers, session_token
from armillary.errors import Failure
from armillary.net.charged_requests import EXPLAIN, HeaderList, render_charge
from armillary.net.http import Request, Response

# A query with one of these headers is answered by the general path.
_UNUSUAL: Final = frozenset(
    (
        *(h.CONTINUATION, h.IS_BATCH, h.IS_QUERY_PLAN, h.POPULATE_QUERY_METRICS, h.POPULATE_INDEX_METRICS),
        *(h.POPULATE_INDEX_METRICS_V2, h.POPULATE_QUERY_ADVICE, h.PRIORITY, h.BUCKET, h.SPARE_MINUTE_POOL, EXPLAIN),
        *(FORMATS, *h.EPK_RANGE, h.CONTINUATION_LIMIT),
    )
)
_MEDIA_TYPE: Final = b"application/query+json"
_TRUE: Final = (b"True", b"true")
_LINES: Final = b"x-ms-activity-id: %b\r\nx-ms-request-charge: %b\r\nx-ms-item-count: %d"
_PAIR: Final = b"\r\n%b: %b"


class QuickQueries:
    def __init__(self, requests: QuickRequests, operation: str) -> None:
        """`operation`: the name under which queries are counted."""
        self._requests = requests
        self._account = requests.account
        self._operation = operation

    def answer(self, request: Request) -> Coroutine[Any, Any, Response] | None:
        requests, headers, body = self._requests, request.headers, request.body
        if headers.get(h.IS_QUERY) not in _TRUE or headers.get(b"content-type") != _MEDIA_TYPE:
            return None
        feed = requests.feeds.get(request.target)
        if feed is None:
            requests.enter(request.target)  # for the next request
            return None
        if not _UNUSUAL.isdisjoint(headers) or requests.captures.is_on:
            return None
        if len(body) > limits.QUERY_LONG_BODY_BYTES or body[:1] == BINARY or b"udf" in body or b"\\u" in body:
            return None  # it is compiled in steps, or may call user-defined functions
        container = requests.posted_to(feed, request)
        if container is None:
            return None
        request.is_known, request.operation = True, self._operation
        return self._answer(request, container)

    async def _answer(self, request: Request, container: Container) -> Response:
        requests, account, headers = self._requests, self._account, request.headers
        ids = requests.ids
        activity_id = ids.guid() if b"x-ms-activity-id" not in headers else h.activity_id(headers, ids)
        try:
            query = parse_query_body(request.body, container.query_context(), container.policies.computed_properties)
            options = self._options(headers, container)
            asked = account, container, query, bound_to(request.body, query), options
            place = short_queries.place_of(container, query, options)
            if place is not None:
                answer = await short_queries.first_page(*asked, place)
            else:
                options.is_unaware = is_unaware_of_splits(headers)
                choose_merging(requests.queries, headers, query, options)
                answer = await merged_queries.query(*asked)
        except Failure as failure:
            return requests.refuse(request, failure_or_silence(account.topology, failure), activity_id)
        lines = _LINES % (activity_id.encode("ascii"), render_charge(answer.charge_ru), len(answer.rows))
        lines += _rest(headers, container, answer, is_ordered=query.selection.ordering is not None)
        response = Response(200, (), feed_body(container.rid_text, "Documents", answer.rows), lines)
        if account.topology is not None:
            requests.node_headers.add_to(response, account.topology)
        return response

    def _options(self, headers: h.Headers, container: Container) -> FeedOptions:
        key_range, key = h.key_range(headers), headers.get(h.PARTITION_KEY)
        options = FeedOptions(
            key=container.parse_key(key) if key is not None else None,
            range_id=str(key_range[0]) if key_range is not None else None,
            page_items=page_items(headers),
            read_factor=self._account.settings.read_factor,
        )
        if SESSION_TOKEN in headers:
            token = session_token(headers)
            options.session = token if self._requests.level == b"Session" else None
        options.is_cross_partition_allowed = h.flag(headers, h.ENABLE_CROSS_PARTITION)
        return options


def _rest(headers: h.Headers, container: Container, answer: PageAnswer, *, is_ordered: bool) -> bytes:
    """The header lines behind the number of items."""
    pairs: HeaderList = page_headers(headers, container, answer.lsns)
    if is_ordered:
        pairs.append(TIES)
    if answer.continuation is not None:
        pairs.append((b"x-ms-continuation", answer.continuation.encode("ascii")))
    return b"".join([_PAIR % pair for pair in pairs])
