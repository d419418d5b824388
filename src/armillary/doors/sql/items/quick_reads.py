"""Point reads in one step: the commonest request, answered without a coroutine, a route, a call or options.

`QuickReads.answer` does what `SqlDoor.answer` and `documents.read_item` do for a read that is signed with the primary
key, names container and item by plain names, asks for nothing unusual, and finds the item. For every other request it
returns None and has counted nothing: the general path answers it. Both give the same bytes
(tests/unit/doors/sql/test_quick_reads.py).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.visits.consistency import is_readable_at_once
from armillary.account.visits.read_visits import Answer, read_text_at_hand
from armillary.audit import SignInLog
from armillary.clock import Clock
from armillary.doors.sql import headers as h
from armillary.doors.sql.access.authentication import MASTER_PREFIX
from armillary.doors.sql.access.authorization import MASTER
from armillary.doors.sql.access.signatures import SignatureCheck
from armillary.doors.sql.consistency import NodeHeaders
from armillary.doors.sql.headers import Headers
from armillary.doors.sql.items.documents import item_lines
from armillary.doors.sql.items.table_clients import TABLES
from armillary.doors.sql.routes import RouteKind, is_plain_name, parse_route
from armillary.doors.sql.serialization import FORMATS
from armillary.doors.sql.session_tokens import SESSION_TOKEN, session_token
from armillary.errors import Failure
from armillary.limits import (
    CLOCK_SKEW_S,
    EPK_REMEMBERED_BYTES_MAX,
    EPKS_REMEMBERED_MAX,
    ROUTE_REMEMBERED_BYTES_MAX,
    ROUTES_REMEMBERED_MAX,
)
from armillary.net.charged_requests import EXPLAIN, RequestIds
from armillary.net.http import Request, Response

# A read with one of these headers is answered by the general path.
_UNUSUAL: Final = frozenset(
    (
        *(b"x-forwarded-proto", h.IF_NONE_MATCH, h.PRIORITY, h.BUCKET, h.SPARE_MINUTE_POOL),
        *(EXPLAIN, FORMATS),
    )
)
_PREFIX_BYTES: Final = len(MASTER_PREFIX)

Refuse = Callable[[Request, Failure, str], Response]


class _Feed(NamedTuple):
    """The items of one container, as the targets of reads name them."""

    names: tuple[str, str]  # of database and container
    signed: bytes  # what clients sign, up to the name of the item


class QuickReads:
    def __init__(
        self,
        account: Account,
        operation: str,
        signing_clock: Clock,
        ids: RequestIds,
        refuse: Refuse,
        log: SignInLog,
        node_headers: NodeHeaders,
    ) -> None:
        """`operation`: the name under which reads are counted."""
        self._account = account
        self._captures = account.captures
        self._level = account.settings.consistency.encode()
        self._operation = operation
        self._now_s = signing_clock.now_s
        self._ids = ids
        self._refuse = refuse
        self._log = log
        self._node_headers = node_headers
        self._feeds: dict[bytes, _Feed | None] = {}
        self._signatures: SignatureCheck | None = None

    def use(self, signatures: SignatureCheck) -> None:
        """Verify by these keys from now on."""
        self._signatures = signatures

    def answer(self, request: Request) -> Response | None:
        path, _, name = request.target.rpartition(b"/")
        feed = self._feeds.get(path)
        if feed is None:
            if path not in self._feeds:
                self._enter(path)
            return None
        headers = request.headers
        if not _UNUSUAL.isdisjoint(headers) or is_plain_name(name) is None:
            return None
        account = self._account
        if self._captures.is_on:
            return None
        if not self._is_signed(feed.signed + name, headers) or self._log.last_granted.get(request.peer) is not MASTER:
            return None
        container = account.by_names.get(feed.names)
        if container is None or not self._is_asked_for(headers, container):
            return None
        given = headers.get(h.PARTITION_KEY)
        epk = container.epks.get(given) if given is not None else None
        if epk is None:
            epk = _effective_key(container, given)
            if epk is None:
                return None
        session = None
        if SESSION_TOKEN in headers:
            try:
                session = session_token(headers)
            except Failure:
                return None
            if self._level != b"Session":
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
            return self._refuse(request, failure, h.activity_id(headers, self._ids))
        if answer is None:
            return None
        request.is_known, request.operation = True, self._operation
        response = Response(200, (), answer.payload or b"", self._lines(request, container, answer))
        if topology is not None:
            self._node_headers.add_to(response, topology)
        return response

    def _lines(self, request: Request, container: Container, answer: Answer) -> bytes:
        headers = request.headers
        activity_id = self._ids.guid() if b"x-ms-activity-id" not in headers else h.activity_id(headers, self._ids)
        place = answer.range_id, answer.lsn, answer.item_lsn
        assert answer.etag is not None, "an item that was read has one"
        return b"%b\r\netag: %b\r\ncontent-location: %b%b%b" % (
            item_lines(headers, activity_id, container, answer.charge_ru, *place),
            answer.etag.encode("ascii"),
            b"https://" if request.is_tls else b"http://",
            headers[b"host"],
            request.target,
        )

    def _enter(self, path: bytes) -> None:
        """Remember which items the targets under this path name, or that they are for the general path."""
        if len(path) > ROUTE_REMEMBERED_BYTES_MAX:
            return
        feed = None
        try:
            route = parse_route(path)
        except Failure:
            route = None
        if route is not None and route.kind is RouteKind.FEED and route.resource_type == "docs":
            database, container = route.segments
            if not route.is_rid_based and database != TABLES:
                feed = _Feed((database, container), f"get\ndocs\n{route.link}/docs/".encode())
        if len(self._feeds) >= ROUTES_REMEMBERED_MAX:
            self._feeds.clear()
        self._feeds[path] = feed

    def _is_signed(self, signed: bytes, headers: Headers) -> bool:
        """By the primary key, as `SignatureCheck.verify` checks it."""
        signatures, given = self._signatures, headers.get(b"authorization")
        if signatures is None or given is None or not given.startswith(MASTER_PREFIX):
            return False
        date = signatures.known_dates.get(headers.get(b"x-ms-date", b""))
        if date is None or not -CLOCK_SKEW_S <= self._now_s() - date.moment_s <= CLOCK_SKEW_S:
            return False
        signature = given[_PREFIX_BYTES:].replace(b"%3D", b"=").replace(b"%2B", b"+").replace(b"%2F", b"/")
        return hmac.compare_digest(signatures.primary.sign(signed + date.ending), signature)

    def _is_asked_for(self, headers: Headers, container: Container) -> bool:
        """Whether the client asks for this incarnation of the container, and at the account's level."""
        if h.CONSISTENCY in headers and headers[h.CONSISTENCY] != self._level:
            return False
        if h.INTENDED_RID in headers and headers[h.INTENDED_RID] != container.rid_text.encode():
            return False
        return bool(headers.get(b"host"))


def _effective_key(container: Container, given: bytes | None) -> bytes | None:
    """The effective key of the partition key in the header; remembered. None: for the general path."""
    if given is None or container.key is None:
        return None
    try:
        epk = container.effective_key(container.parse_key(given))
    except Failure:
        return None
    if len(given) <= EPK_REMEMBERED_BYTES_MAX:
        if len(container.epks) >= EPKS_REMEMBERED_MAX:
            container.epks.clear()
        container.epks[given] = epk
    return epk
