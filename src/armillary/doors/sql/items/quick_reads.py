"""Point reads in one step, the commonest request: `answer` does what `SqlDoor.answer` and `documents.read_item` do for
a read that finds its item, or that another process is asked for. See `quick_requests.py`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from armillary.account.container import Container
from armillary.account.items.items import found
from armillary.account.visits import visits
from armillary.account.visits.consistency import failure_or_silence, is_readable_at_once
from armillary.account.visits.read_visits import Answer, ReadItem, read_text_at_hand
from armillary.doors.sql import headers as h
from armillary.doors.sql.items.documents import item_lines
from armillary.doors.sql.items.quick_requests import QuickRequests, effective_key
from armillary.doors.sql.routes import is_plain_name
from armillary.doors.sql.serialization import FORMATS
from armillary.doors.sql.session_tokens import SESSION_TOKEN, session_token
from armillary.errors import Failure
from armillary.net.charged_requests import EXPLAIN
from armillary.net.http import Request, Response

# A read with one of these headers is answered by the general path.
_UNUSUAL: Final = frozenset(
    (
        *(b"x-forwarded-proto", h.IF_NONE_MATCH, h.PRIORITY, h.BUCKET, h.SPARE_MINUTE_POOL),
        *(EXPLAIN, FORMATS, h.READ_STRATEGY, h.HUB_REGION),
    )
)


class QuickReads:
    def __init__(self, requests: QuickRequests, operation: str) -> None:
        """`operation`: the name under which reads are counted."""
        self._requests = requests
        self._account = requests.account
        self._operation = operation

    def answer(self, request: Request) -> Response | Coroutine[Any, Any, Response] | None:
        requests = self._requests
        path, _, name = request.target.rpartition(b"/")
        feed = requests.feeds.get(path)
        if feed is None:
            requests.enter(path)  # for the next request
            return None
        headers = request.headers
        if not _UNUSUAL.isdisjoint(headers) or is_plain_name(name) is None or requests.captures.is_on:
            return None
        if not requests.is_signed_by_owner(feed.signed_read + name, request):
            return None
        account = self._account
        container = account.by_names.get(feed.names)
        if container is None or not requests.is_meant(headers, container) or not headers.get(b"host"):
            return None
        given = headers.get(h.PARTITION_KEY)
        if given is None:
            return None
        epk = container.epks.get(given) or effective_key(container, given)
        if epk is None:
            return None
        session = None
        if SESSION_TOKEN in headers:
            try:
                session = session_token(headers)
            except Failure:
                return None
            if requests.level != b"Session":
                session = None
        topology = account.topology
        if topology is not None and not is_readable_at_once(topology, account.settings.consistency, container, session):
            return None
        try:
            answer = read_text_at_hand(container, epk, name, account.settings.read_factor, session)
        except Failure as failure:
            if not failure.is_metered:
                return None  # storage failed before the partition admitted it
            request.is_known, request.operation = True, self._operation
            return requests.refuse(request, failure, h.activity_id(headers, requests.ids))
        if answer is not None:
            request.is_known, request.operation = True, self._operation
            return self._response(request, container, answer)
        if container.is_observed or not container.partition_for(epk).is_elsewhere:
            return None
        request.is_known, request.operation = True, self._operation
        visit = ReadItem(epk, name.decode("ascii"), account.settings.read_factor, session=session)
        return self._read_elsewhere(request, container, visit)

    async def _read_elsewhere(self, request: Request, container: Container, visit: ReadItem) -> Response:
        """Of another process."""
        try:
            answer = found(await visits.run(container, visit), visit.item_id)
        except Failure as failure:
            requests = self._requests
            shown = failure_or_silence(self._account.topology, failure)
            return requests.refuse(request, shown, h.activity_id(request.headers, requests.ids))
        return self._response(request, container, answer)

    def _response(self, request: Request, container: Container, answer: Answer) -> Response:
        response = Response(200, (), answer.payload or b"", self._lines(request, container, answer))
        topology = self._account.topology
        if topology is not None:
            self._requests.node_headers.add_to(response, topology)
        return response

    def _lines(self, request: Request, container: Container, answer: Answer) -> bytes:
        headers, ids = request.headers, self._requests.ids
        activity_id = ids.guid() if b"x-ms-activity-id" not in headers else h.activity_id(headers, ids)
        place = answer.range_id, answer.lsn, answer.item_lsn
        assert answer.etag is not None, "an item that was read has one"
        return b"%b\r\netag: %b\r\ncontent-location: %b%b%b" % (
            item_lines(headers, activity_id, container, answer.charge_ru, *place),
            answer.etag.encode("ascii"),
            b"https://" if request.is_tls else b"http://",
            headers[b"host"],
            request.target,
        )
