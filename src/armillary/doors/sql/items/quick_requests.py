"""The commonest requests, answered without a route, a call or lists of headers, and, but for queries, without a
coroutine: point reads (`quick_reads.py`), creates and upserts (`quick_writes.py`), queries (`quick_queries.py`). What
they need is here: requests that are signed with the primary key, name the container by plain names and ask for nothing
unusual.

For every other request they return None and have counted nothing: the general path answers it. Both paths give the same
bytes (tests/unit/doors/sql/test_quick_reads.py, test_quick_writes.py, test_quick_queries.py).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.audit import SignInLog
from armillary.clock import Clock
from armillary.doors.sql import headers as h
from armillary.doors.sql.access.authentication import MASTER_PREFIX
from armillary.doors.sql.access.authorization import MASTER
from armillary.doors.sql.access.signatures import SignatureCheck
from armillary.doors.sql.consistency import NodeHeaders
from armillary.doors.sql.headers import Headers
from armillary.doors.sql.items.table_clients import TABLES
from armillary.doors.sql.merging_clients import QueryMode
from armillary.doors.sql.routes import RouteKind, parse_route
from armillary.errors import Failure
from armillary.limits import (
    CLOCK_SKEW_S,
    EPK_REMEMBERED_BYTES_MAX,
    EPKS_REMEMBERED_MAX,
    ROUTE_REMEMBERED_BYTES_MAX,
    ROUTES_REMEMBERED_MAX,
)
from armillary.net.charged_requests import RequestIds
from armillary.net.http import Request, Response

_PREFIX_BYTES: Final = len(MASTER_PREFIX)

Refuse = Callable[[Request, Failure, str], Response]


class Feed(NamedTuple):
    """The items of one container, as targets name them."""

    names: tuple[str, str]  # of database and container
    signed_read: bytes  # what clients sign of a read, up to the name of the item
    signed_write: bytes  # what they sign of a POST, up to the date


class QuickRequests:
    def __init__(
        self,
        account: Account,
        signing_clock: Clock,
        ids: RequestIds,
        refuse: Refuse,
        log: SignInLog,
        node_headers: NodeHeaders,
        queries: QueryMode,
    ) -> None:
        self.account = account
        self.captures = account.captures
        self.level = account.settings.consistency.encode()
        self.ids = ids
        self.refuse = refuse
        self.node_headers = node_headers
        self.queries = queries
        self._now_s = signing_clock.now_s
        self._log = log
        self.feeds: dict[bytes, Feed | None] = {}  # by the path that targets begin with
        self._signatures: SignatureCheck | None = None
        self._verified: dict[bytes, tuple[bytes, bytes]] = {}  # the last authorization and date by what was signed

    def use(self, signatures: SignatureCheck) -> None:
        """Verify by these keys from now on."""
        self._signatures = signatures
        self._verified.clear()

    def enter(self, path: bytes) -> None:
        """Remember which items the targets under a path name, or that they are for the general path."""
        if path in self.feeds or len(path) > ROUTE_REMEMBERED_BYTES_MAX:
            return
        feed = None
        try:
            route = parse_route(path)
        except Failure:
            route = None
        if route is not None and route.kind is RouteKind.FEED and route.resource_type == "docs":
            database, container = route.segments
            if not route.is_rid_based and database != TABLES:
                link = route.link.encode()
                feed = Feed((database, container), b"get\ndocs\n%b/docs/" % link, b"post\ndocs\n%b" % link)
        if len(self.feeds) >= ROUTES_REMEMBERED_MAX:
            self.feeds.clear()
            self._verified.clear()
        self.feeds[path] = feed

    # Who asks.

    def is_signed_by_owner(self, signed: bytes, request: Request) -> bool:
        """Whether a request is signed by the primary key, as `SignatureCheck.verify` checks it."""
        headers, signatures = request.headers, self._signatures
        given = headers.get(b"authorization")
        if signatures is None or given is None or not given.startswith(MASTER_PREFIX):
            return False
        date = signatures.known_dates.get(headers.get(b"x-ms-date", b""))
        if date is None or not -CLOCK_SKEW_S <= self._now_s() - date.moment_s <= CLOCK_SKEW_S:
            return False
        signature = given[_PREFIX_BYTES:].replace(b"%3D", b"=").replace(b"%2B", b"+").replace(b"%2F", b"/")
        if not hmac.compare_digest(signatures.primary.sign(signed + date.ending), signature):
            return False
        return self._log.last_granted.get(request.peer) is MASTER

    def is_post_by_owner(self, signed: bytes, request: Request) -> bool:
        """The same for a POST. Its signature does not cover the item, so one that was good is good for the others of
        its second, as long as its date is near enough."""
        headers, signatures = request.headers, self._signatures
        given, date_text = headers.get(b"authorization"), headers.get(b"x-ms-date", b"")
        known_given, known_date = self._verified.get(signed, (b"", b""))
        if signatures is None or not given or date_text != known_date or not hmac.compare_digest(known_given, given):
            if not given or not self.is_signed_by_owner(signed, request):
                return False
            self._verified[signed] = given, date_text
            return True
        date = signatures.known_dates.get(date_text)
        if date is None or not -CLOCK_SKEW_S <= self._now_s() - date.moment_s <= CLOCK_SKEW_S:
            return False
        return self._log.last_granted.get(request.peer) is MASTER

    # What is asked for.

    def posted_to(self, feed: Feed, request: Request) -> Container | None:
        """The container of a POST of the owner, if this node may answer it without asking another one."""
        topology = self.account.topology
        if topology is not None and not topology.may_answer_strongly:
            return None
        if not self.is_post_by_owner(feed.signed_write, request):
            return None
        container = self.account.by_names.get(feed.names)
        return container if container is not None and self.is_meant(request.headers, container) else None

    def is_meant(self, headers: Headers, container: Container) -> bool:
        """Whether the client asks for this incarnation of the container, and at the account's level."""
        if h.CONSISTENCY in headers and headers[h.CONSISTENCY] != self.level:
            return False
        return h.INTENDED_RID not in headers or headers[h.INTENDED_RID] == container.rid_text.encode()


def effective_key(container: Container, given: bytes) -> bytes | None:
    """The effective key of a partition key in the header that `Container.epks` does not know yet; remembered. None: for
    the general path."""
    if container.key is None:
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
