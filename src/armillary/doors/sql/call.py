"""One request of the SQL protocol: its container, session and consistency, and the answers that several actions
make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import orjson

from armillary.account.account import Account
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.throughput.budgets import Ask
from armillary.doors.sql import headers as h
from armillary.doors.sql.access.authorization import Principal
from armillary.doors.sql.access.resource_tokens import TokenAuthority
from armillary.doors.sql.merging_clients import QueryMode
from armillary.doors.sql.routes import Route
from armillary.doors.sql.session_tokens import SESSION_TOKEN, session_token
from armillary.errors import Failure, Kind
from armillary.model.charges import Part, consistency_factor
from armillary.model.items import parse_document
from armillary.net.charged_requests import EXPLAIN, ChargedCall, HeaderList
from armillary.net.http import Request, Response


class Services(Protocol):
    """What actions use of the server beside their own call: `SqlDoor` offers it."""

    account: Account
    tokens: TokenAuthority  # issues resource tokens
    advertised: str | None  # HOST:PORT that clients are told to use, if not the one they came to
    queries: QueryMode  # which clients the server merges rows of several partitions for


class Call(ChargedCall):
    """A request with its route and its principal, and the answers that its actions make."""

    __slots__ = ("activity_id", "ask", "principal", "route", "services")

    def __init__(
        self, services: Services, request: Request, route: Route, principal: Principal, activity_id: str
    ) -> None:
        # As `ChargedCall` does it, without another call for each request.
        self.account = services.account
        self.request = request
        self.headers = headers = request.headers
        self.body = request.body
        self.explains = EXPLAIN in headers and h.flag(headers, EXPLAIN)
        self.charge_ru = 0.0
        self.services = services
        self.route = route
        self.principal = principal
        self.activity_id = activity_id
        self.ask: Ask | None = None  # set with the container

    def document(self) -> dict[str, Any]:
        return parse_document(self.body)

    def owner_container(self) -> Container:
        """The container of the request's items. Refused if the client names the rid of an earlier container of that
        name."""
        segments = self.route.segments
        container = self.account.owner_container(segments[0], segments[1])
        self.ask = h.throughput_ask(self.headers)
        intended = self.headers.get(h.INTENDED_RID)
        if intended and intended != container.rid_text.encode():
            raise Failure(
                Kind.STALE_CONTAINER,
                f"The request is meant for the container with the rid {h.text(self.headers, h.INTENDED_RID)}, but "
                f"'{container.name}' has {container.rid_text}: it was deleted and created again. Read it again.",
            )
        return container

    def read_factor(self) -> int:
        """The factor of a read's charge at the request's consistency level. A stronger level than the account's is
        refused."""
        settings = self.account.settings
        if h.LEVELS.isdisjoint(self.headers):
            return settings.read_factor
        return consistency_factor(h.consistency(self.headers, settings.consistency))

    def session(self) -> dict[int, int] | None:
        if SESSION_TOKEN not in self.headers:
            return None
        level = h.consistency(self.headers, self.account.settings.consistency)
        token = session_token(self.headers)
        return token if level == "Session" else None

    # Answers.

    def answer(
        self,
        status: int,
        charge_ru: float,
        body: bytes = b"",
        extra: Iterable[tuple[bytes, bytes]] = (),
        parts: Iterable[Part] | None = None,
    ) -> Response:
        """`parts` of the charge are given if the client asked for them (`explains`)."""
        headers = [(b"x-ms-activity-id", self.activity_id.encode("ascii")), *self.charged(charge_ru, extra, parts)]
        return Response(status, headers, body)

    def answer_record(
        self,
        status: int,
        charge_ru: float,
        record: Record,
        content: dict[str, Any] | None = None,
        extra: HeaderList | None = None,
    ) -> Response:
        """One resource of the catalog."""
        return self.answer(
            status,
            charge_ru,
            orjson.dumps(content if content is not None else record.to_json()),
            [(b"etag", record.etag.encode()), *self.paths(record), *(extra or ())],
        )

    def paths(self, record: Record) -> HeaderList:
        """The owner's link by name and its rid: clients keep session tokens under them."""
        owner = self.account.owner_of(record)
        if owner is None:
            return []
        return [
            (b"x-ms-alt-content-path", h.render_path(self.account.name_link(owner))),
            (b"x-ms-content-path", owner.rid_text.encode()),
        ]

    def answer_feed(
        self,
        charge_ru: float,
        owner_rid: str,
        feed: str,
        rows: list[bytes],
        continuation: str | None,
        extra: Iterable[tuple[bytes, bytes]] = (),
        parts: Iterable[Part] | None = None,
    ) -> Response:
        body = feed_body(owner_rid, feed, rows)
        headers: HeaderList = [(b"x-ms-item-count", b"%d" % len(rows)), *extra]
        if continuation is not None:
            headers.append((b"x-ms-continuation", continuation.encode("ascii")))
        return self.answer(200, charge_ru, body, headers, parts)


def feed_body(owner_rid: str, feed: str, rows: list[bytes]) -> bytes:
    return b'{"_rid":"%b","%b":[%b],"_count":%d}' % (owner_rid.encode(), feed.encode(), b",".join(rows), len(rows))
