"""Creates and upserts of one item without a coroutine: `answer` does what `SqlDoor.answer` and `documents.create_item`
do. What another process holds is written by a coroutine. See `quick_requests.py`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from armillary import limits
from armillary.account.container import Container
from armillary.account.items.items import ItemOptions, Operation, Outcome, Verb, stored, write
from armillary.account.visits.consistency import failure_or_silence
from armillary.account.visits.delivered_writes import DeliveredWrite
from armillary.doors.sql import headers as h
from armillary.doors.sql.items.documents import STATUS, item_lines
from armillary.doors.sql.items.quick_requests import QuickRequests, effective_key
from armillary.doors.sql.serialization import BINARY, FORMATS
from armillary.errors import Failure
from armillary.model.items import parse_document
from armillary.net.charged_requests import EXPLAIN
from armillary.net.http import Later, Request, Response

# A write with one of these headers is answered by the general path.
_UNUSUAL: Final = frozenset(
    (
        *(h.IS_BATCH, h.IS_QUERY_PLAN, h.IS_QUERY, h.IS_QUERY_GO, h.IF_MATCH, h.IF_NONE_MATCH, h.INDEXING_DIRECTIVE),
        *(h.PRE_TRIGGERS, h.POST_TRIGGERS, h.PREFER, h.PRIORITY, h.BUCKET, h.SPARE_MINUTE_POOL, EXPLAIN, FORMATS),
    )
)
_JSON: Final = b"application/json"
_VERBS: Final = {None: Verb.CREATE, b"True": Verb.UPSERT, b"true": Verb.UPSERT}  # by x-ms-documentdb-is-upsert
_NO_OPTIONS: Final = ItemOptions()


class QuickWrites:
    def __init__(self, requests: QuickRequests, create: str, upsert: str) -> None:
        """`create`, `upsert`: the names under which they are counted."""
        self.requests = requests
        self._account = requests.account
        self._operations = {Verb.CREATE: create, Verb.UPSERT: upsert}

    def answer(self, request: Request) -> Response | Later | Coroutine[Any, Any, Response] | None:
        requests, account, headers = self.requests, self._account, request.headers
        feed = requests.feeds.get(request.target)
        if feed is None:
            requests.enter(request.target)  # for the next request
            return None
        if not _UNUSUAL.isdisjoint(headers) or headers.get(b"content-type", _JSON) != _JSON:
            return None
        verb, body = _VERBS.get(headers.get(h.IS_UPSERT)), request.body
        if verb is None or body[:1] == BINARY or requests.captures.is_on or account.is_read_only:
            return None
        if len(body) > limits.WORK_AT_ONCE_BYTES:
            return None  # its terms are made in steps, between which other requests have their turn
        container = requests.posted_to(feed, request)
        if container is None:
            return None
        try:
            operation = stored(verb, container, parse_document(body), _NO_OPTIONS, account.clock)
        except Failure:
            return None
        given = headers.get(h.PARTITION_KEY)
        if given is not None and (container.epks.get(given) or effective_key(container, given)) != operation.epk:
            return None
        writing = _Writing(self, request, container, operation)
        try:
            if not writing.begin():
                if container.is_observed or not container.partition_for(operation.epk).is_elsewhere:
                    return None
                request.is_known, request.operation = True, self._operations[verb]
                return self._write_elsewhere(request, container, operation)
        except Failure as failure:  # of the meter
            request.is_known, request.operation = True, self._operations[verb]
            return requests.refuse(request, failure, h.activity_id(headers, requests.ids))
        request.is_known, request.operation = True, self._operations[verb]
        return writing.later

    async def _write_elsewhere(self, request: Request, container: Container, operation: Operation) -> Response:
        """In another process."""
        try:
            answer = await write(container, operation, None)
        except Failure as failure:
            return self.refusal(request, failure)
        assert answer.outcome is not None, "of a write"
        return self.response(request, container, answer.outcome, answer.range_id, answer.lsn)

    def refusal(self, request: Request, failure: Failure) -> Response:
        requests = self.requests
        shown = failure_or_silence(self._account.topology, failure)
        return requests.refuse(request, shown, h.activity_id(request.headers, requests.ids))

    def response(self, request: Request, container: Container, outcome: Outcome, range_id: int, lsn: int) -> Response:
        requests, headers = self.requests, request.headers
        ids = requests.ids
        activity_id = ids.guid() if b"x-ms-activity-id" not in headers else h.activity_id(headers, ids)
        lines = item_lines(headers, activity_id, container, outcome.charge_ru, range_id, lsn, outcome.lsn)
        if outcome.etag is not None:
            lines += b"\r\netag: " + outcome.etag.encode("ascii")
        response = Response(STATUS[outcome.result], (), outcome.payload or b"", lines)
        topology = requests.account.topology
        if topology is not None:
            requests.node_headers.add_to(response, topology)
        return response


class _Writing(DeliveredWrite):
    __slots__ = ("_request", "_writes", "later")

    def __init__(self, writes: QuickWrites, request: Request, container: Container, operation: Operation) -> None:
        super().__init__(container, operation)
        self._writes = writes
        self._request = request
        self.later = Later()

    def tell(self, outcome: Outcome, range_id: int, lsn: int) -> None:
        self.later.give(self._writes.response(self._request, self.container, outcome, range_id, lsn))

    def refuse(self, failure: Failure) -> None:
        self.later.give(self._writes.refusal(self._request, failure))

    def give_back(self) -> None:
        self.later.give(None)

    def crash(self, error: BaseException) -> None:
        self.later.give(error)
