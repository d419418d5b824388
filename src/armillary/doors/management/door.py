"""The management door: Azure's management API of Cosmos DB, as far as the management SDKs and the functions of
`az cosmosdb` create, show, list and delete databases and containers and change their throughput.

The bearer token is the control key: a token of Microsoft Entra ID, which Azure's API takes, cannot be checked without
an identity provider. The door has one account, in whatever subscription and resource group the client names. Operations
that Azure runs in the background are done when the answer comes, so nothing has to be polled. Like every door it
translates and does nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from armillary.account.account import Account
from armillary.account.security.credentials import Credentials
from armillary.account.security.sign_in_throttle import SignInThrottle
from armillary.account.visits.consistency import before_write, check_silence, failure_or_silence
from armillary.audit import ACTOR, Actor, SignInLog
from armillary.doors.management import collections, database_account, tables
from armillary.doors.management.addresses import check_query, missing, parse_address, parse_path
from armillary.doors.management.call import Action, Call, ManagementSettings
from armillary.doors.management.containers import container_actions
from armillary.doors.management.databases import database_actions
from armillary.doors.management.errors import error_response, refused
from armillary.errors import Failure, Kind
from armillary.model.json_members import shown
from armillary.net.charged_requests import KIND_OF_STATUS, HeaderList, RequestIds
from armillary.net.control_keys import ControlGrant, ControlKeys
from armillary.net.http import HANG_UP, Request, Response, allows_no_origin

log = logging.getLogger(__name__)

_NAMES: Final = ["providers", "microsoft.documentdb", "databaseaccountnames"]
_CLIENT_ID_BYTES_MAX: Final = 128
# A node that forwards a request to the leader tells it what it has found. No client can send a header of this name: a
# colon does not begin a name on the wire.
_FOUND: Final = b":access"
_OWNER: Final = b"owner"


class ManagementDoor:
    allows_origin = staticmethod(allows_no_origin)

    def __init__(
        self,
        account: Account,
        keys: ControlKeys,
        credentials: Credentials,
        settings: ManagementSettings,
    ) -> None:
        self.account = account
        self.credentials = credentials
        self.settings = settings
        self.addresses: Mapping[str, str] = {}  # of the doors, as clients reach them; known once all are open
        self.throttle: SignInThrottle | None = None  # of failed sign-ins
        self._keys = keys
        self._sign_in_log = SignInLog("management")
        self._request_ids = RequestIds(account.clock)

    async def answer(self, request: Request) -> Response:
        headers = self._headers(request)
        try:
            try:
                grant = self._admit(request)
            except Failure as failure:
                is_failed = failure.kind is Kind.UNAUTHORIZED
                if is_failed and self.throttle is not None and not await self.throttle.refused(request.peer):
                    return HANG_UP
                raise
            ACTOR.set(Actor("management", request.peer))
            return await self._answer(request, grant, headers)
        except Failure as failure:
            return self._refuse(failure_or_silence(self.account.topology, failure), headers)

    async def _answer(self, request: Request, grant: ControlGrant, headers: HeaderList) -> Response:
        topology = self.account.topology
        if topology is not None:
            check_silence(topology)
            if request.method not in ("GET", "HEAD"):
                await before_write(self.account, topology)
        self.account.budgets.count_metadata(0.0)
        path, _, query = request.target.partition(b"?")
        segments = parse_path(path)
        check_query(query)
        for name in (b"if-match", b"if-none-match"):
            if name in request.headers:
                raise Failure(Kind.UNSUPPORTED, f"The header {name.decode()} is not offered by the management API.")
        if [each.lower() for each in segments[:3]] == _NAMES and len(segments) == 4:
            return self._name_exists(request.method, segments[3], headers)
        if segments[0].lower() != "subscriptions":
            raise missing("/".join(segments))
        address = parse_address(segments)
        if address.account is None:
            action, names = _list_accounts(request.method), list[str]()
        else:
            if address.account.lower() != self.account.settings.name:
                raise _no_account(address.account, self.account.settings.name)
            action, names = find_action(request.method, address.words)
        request.operation = f"management {getattr(action, '__name__', 'other')}"
        if grant.is_read_only and request.method != "GET" and action not in database_account.READING:
            raise Failure(Kind.FORBIDDEN, "The read-only control key may only read. Use the control key.")
        if request.method not in ("GET", "HEAD") and action not in database_account.READING:
            self.account.check_writable()
        return await action(Call(self, request, address, names, grant, headers))

    def _name_exists(self, method: str, name: str, headers: HeaderList) -> Response:
        if method != "HEAD":
            raise Failure(
                Kind.METHOD_NOT_ALLOWED,
                f"{shown(method)} is not possible here; use HEAD.",
                details={"allowed": ["HEAD"]},
            )
        return Response(200 if name.lower() == self.account.settings.name else 404, headers)

    # Authentication.

    def _admit(self, request: Request) -> ControlGrant:
        """Authenticate a request; one that another node has forwarded was authenticated there."""
        if request.is_known:
            is_read_only = request.headers.get(_FOUND) != _OWNER
            return ControlGrant(is_read_only, "forwarded")
        grant = self._check(request)
        request.is_known = True
        return grant

    def _check(self, request: Request) -> ControlGrant:
        try:
            self._keys.check_place(request)
            grant = self._keys.check_key(request.headers.get(b"authorization"))
        except Failure:
            kind = "control key" if b"authorization" in request.headers else "none"
            self._sign_in_log.refused(request.peer, kind)
            raise
        self._sign_in_log.granted(request.peer, grant.credential)
        return grant

    def screen(self, request: Request) -> Response | None:
        """Authenticate a request by its head, before its long body is read or it is forwarded; the refusal, or None."""
        try:
            grant = self._check(request)
        except Failure as failure:
            if failure.kind is Kind.UNAUTHORIZED and self.throttle is not None:
                self.throttle.count(request.peer)
            return self._refuse(failure, self._headers(request))
        request.headers[_FOUND] = b"read-only" if grant.is_read_only else _OWNER
        return None

    def needs_leader(self, request: Request) -> bool:
        """In a cluster, the node that leads answers all requests. Never raises."""
        return True

    # What answers share.

    def _headers(self, request: Request) -> HeaderList:
        headers: HeaderList = [(b"x-ms-request-id", self._request_ids.guid().encode("ascii"))]
        client_id = request.headers.get(b"x-ms-client-request-id")
        if client_id is not None and len(client_id) <= _CLIENT_ID_BYTES_MAX:
            headers.append((b"x-ms-client-request-id", client_id))
        return headers

    def _refuse(self, failure: Failure, headers: HeaderList) -> Response:
        if failure.kind is Kind.DROPPED:
            return HANG_UP
        if failure.kind in (Kind.CORRUPT, Kind.INTERNAL):
            log.error("a management request failed: %s", failure.message)
        return error_response(failure, headers)

    def refuse(self, status: int, message: str) -> Response:
        """The answer to bytes that are not a valid request, in this protocol's form."""
        response = error_response(Failure(KIND_OF_STATUS.get(status, Kind.BAD_REQUEST), message), [])
        response.status = status
        return response

    def on_crash(self, request: Request, exception: BaseException) -> Response:
        """The answer to a request that raised an unexpected exception. The network has logged the reason."""
        message = "The server failed to answer this request. Its log has the reason."
        return error_response(Failure(Kind.INTERNAL, message), self._headers(request))


def _list_accounts(method: str) -> Action:
    if method != "GET":
        raise Failure(
            Kind.METHOD_NOT_ALLOWED, f"{shown(method)} is not possible here; use GET.", details={"allowed": ["GET"]}
        )
    return database_account.list_accounts


def _no_account(name: str, own: str) -> Failure:
    return refused(
        "ResourceNotFound",
        f"The account '{shown(name)}' was not found: this server has the account '{own}' (--account).",
        Kind.NOT_FOUND,
    )


ROUTES: Final[tuple[tuple[str, str, Action], ...]] = (
    *database_account.ACTIONS,
    *database_actions("sqlDatabases", shows_links=True),
    *container_actions("sqlDatabases", "containers", "container", is_graph=False),
    *database_actions(collections.DATABASES, shows_links=False),
    *collections.ACTIONS,
    *database_actions("gremlinDatabases", shows_links=True),
    *container_actions("gremlinDatabases", "graphs", "graph", is_graph=True),
    *tables.ACTIONS,
)

_NAME: Final = "{}"


def _by_words() -> dict[tuple[str, ...], dict[str, Action]]:
    found: dict[tuple[str, ...], dict[str, Action]] = {}
    for method, path, action in ROUTES:
        words = tuple(path.lower().split("/")) if path else ()
        found.setdefault(words, {})[method] = action
    return found


_ACTIONS: Final = _by_words()


def find_action(method: str, segments: Sequence[str]) -> tuple[Action, list[str]]:
    """The action for the words after the account, and the names among them."""
    for words, actions in _ACTIONS.items():
        if len(words) != len(segments) or any(
            word not in (_NAME, segment.lower()) for word, segment in zip(words, segments, strict=True)
        ):
            continue
        names = [segment for word, segment in zip(words, segments, strict=True) if word == _NAME]
        if method in actions:
            return actions[method], names
        allowed = sorted(actions)
        raise Failure(
            Kind.METHOD_NOT_ALLOWED,
            f"{shown(method)} is not possible here; use {' or '.join(allowed)}.",
            details={"allowed": allowed},
        )
    raise missing("/".join(segments))
