"""The Table door: a request is routed, authenticated and handed to the one function that answers it.

The table at the end maps each route to its function. The door only translates between the protocol and `account/`;
it turns every failure into an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from armillary.account.account import Account
from armillary.account.captures import notes
from armillary.account.security.sign_in_throttle import SignInThrottle
from armillary.account.throughput.charge_explanations import explain_failure
from armillary.account.topology import Topology
from armillary.account.visits.consistency import EVENTUAL, STRONG, before_write, check_silence, failure_or_silence, read
from armillary.audit import ACTOR, Actor, SignInLog
from armillary.clock import Clock
from armillary.doors.table import addresses
from armillary.doors.table.access import cors, policies
from armillary.doors.table.access.authentication import Authenticator, Keys, credential_kind, is_secondary
from armillary.doors.table.access.grants import Grant
from armillary.doors.table.addresses import Address, Place
from armillary.doors.table.call import VERSION, Call, TableSettings, check_version
from armillary.doors.table.entities import batches, operations, queries
from armillary.doors.table.entities.entities import Rendered
from armillary.doors.table.errors import bad_url, refusal_headers, refusal_of, refused
from armillary.doors.table.service import service_properties, tables
from armillary.errors import Failure, Kind
from armillary.model.edm import full_moment_text, ticks_of_s
from armillary.net.charged_requests import KIND_OF_STATUS, HeaderList, RequestIds, charge_header, explains_refusal
from armillary.net.http import HANG_UP, Refusal, Request, Response

log = logging.getLogger(__name__)

Action = Callable[[Call], Coroutine[Any, Any, Response]]

_CLIENT_ID_BYTES_MAX: Final = 1024
_READING: Final = ("GET", "HEAD")
_NOT_REPEATED: Final = ("POST", "PATCH")  # by Python's client, unless it finds a Retry-After
_OF_ITEMS: Final = (Place.TABLE, Place.ENTITY, Place.BATCH)


class TableDoor:
    def __init__(self, account: Account, keys: Keys, settings: TableSettings, *, signing_clock: Clock) -> None:
        """`signing_clock`: what the dates of signatures are held against, even if the account's time is being moved."""
        self.account = account
        self.settings = settings
        self._authenticator = Authenticator(
            account.settings.name,
            keys,
            signing_clock,
            lambda table: policies.policies_of(account, table, is_storage=settings.is_storage),
        )
        self.throttle: SignInThrottle | None = None  # of failed sign-ins
        self.rendered = Rendered()
        self._sign_in_log = SignInLog("table")
        self._request_ids = RequestIds(account.clock)

    async def answer(self, request: Request) -> Response:
        request_id = self._request_ids.guid()
        try:
            check_version(request.headers)
            if request.method == "OPTIONS":
                granted = cors.preflight(request.headers, service_properties.cors_rules(self.account))
                return Response(200, [*self.shared_headers(request.headers, request_id), *granted])
            address = self._address(request)
            try:
                grant = self._verify(request, address)
            except Failure:
                if self.throttle is not None and not await self.throttle.refused(request.peer):
                    return HANG_UP
                raise
            request.is_known = True
            response = await self.answer_for(request, address, grant, request_id)
        except Failure as failure:
            response = self._refuse(request, failure_or_silence(self.account.topology, failure), request_id)
        if b"origin" in request.headers and response is not HANG_UP:
            added = cors.added_headers(request.headers, request.method, service_properties.cors_rules(self.account))
            response.headers = [*response.headers, *added]
        return response

    def screen(self, request: Request) -> Response | None:
        """Authenticate a request by its head, before its long body is read; the refusal, or None."""
        try:
            address = self._address(request)
            self._verify(request, address)
        except Failure as failure:
            if self.throttle is not None:
                self.throttle.count(request.peer)
            return self._refuse(request, failure, self._request_ids.guid())
        return None

    def _verify(self, request: Request, address: Address) -> Grant:
        peer = request.peer
        try:
            grant = self._authenticator.verify(
                request.method, address, request.headers, is_tls=request.is_tls, peer=peer
            )
        except Failure:
            self._sign_in_log.refused(peer, credential_kind(address, request.headers))
            raise
        if self._sign_in_log.last_granted.get(peer) is not grant:
            self._sign_in_log.granted(peer, grant.credential, grant)
        return grant

    async def answer_for(self, request: Request, address: Address, grant: Grant, request_id: str) -> Response:
        """The answer to an authenticated request."""
        action = _action(request, address)
        addresses.check_parameters(address, request.method)
        if request.method not in _READING:
            self.account.check_writable()
        topology, level = self.account.topology, None
        if topology is not None or (self.settings.is_storage and request.method not in _READING):
            if self._is_secondary(request.headers, address):
                if request.method not in _READING:
                    raise refused("InsufficientAccountPermissions", "Write operations are not allowed.", Kind.FORBIDDEN)
                level = EVENTUAL
            if topology is not None:
                action = partial(self._on_node, topology, action)
        call = Call(self, request, address, grant, request_id, level)
        if self.account.captures.is_on:
            request.details = notes.begin("table", request_id)
        if address.place not in _OF_ITEMS or "comp" in address.query:
            ACTOR.set(Actor("table", request.peer))
            return await self.account.budgets.answer_metadata(action, call)
        try:
            return await action(call)
        except Failure as failure:
            if failure.kind is not Kind.STALE_CONTAINER:
                raise
        # The table was moved to another key while the request waited. Nothing was done, and its name leads to the new
        # one.
        return await action(Call(self, request, address, grant, request_id, level))

    async def _on_node(self, topology: Topology, action: Action, call: Call) -> Response:
        """On a node of a cluster: answer as far as the node may. What is read at the account's copy (`-secondary`) may
        be old, and its age is told by the statistics."""
        check_silence(topology)
        if call.request.method not in _READING:
            await before_write(self.account, topology)
            return await action(call)
        # How old the state of this node is, and nothing else, is what the statistics are about.
        level = EVENTUAL if call.address.query.get("comp") == "stats" else call.consistency
        return await read(self.account, topology, level, lambda: action(call))

    def needs_leader(self, request: Request) -> bool:
        """Whether only the node that leads the cluster can answer a request: those that may write, and reads of a
        strong account. Never raises."""
        if request.method == "OPTIONS" or b"comp=stats" in request.target:
            return False
        if self.account.settings.consistency != STRONG and request.method in _READING:
            return False
        try:
            return not self._is_secondary(request.headers, self._address(request))
        except Failure:
            return False

    def _address(self, request: Request) -> Address:
        return addresses.parse(request.target, self.accounts_of(request.headers))

    def _is_secondary(self, headers: dict[bytes, bytes], address: Address) -> bool:
        return is_secondary(self.account.settings.name, headers, address.account_segment)

    def accounts_of(self, headers: dict[bytes, bytes]) -> frozenset[str]:
        return self._authenticator.names_of(headers)

    def allows_origin(self, method: str, headers: dict[bytes, bytes]) -> bool:
        """Whether the service's properties let a page of this origin send a request. A preflight is answered by
        them in any case."""
        return method == "OPTIONS" or cors.allows(headers, method, service_properties.cors_rules(self.account))

    # What answers share.

    def shared_headers(self, headers: dict[bytes, bytes], request_id: str) -> HeaderList:
        said: HeaderList = [
            (b"x-ms-request-id", request_id.encode("ascii")),
            (b"x-ms-version", headers.get(b"x-ms-version", VERSION)),
        ]
        client_id = headers.get(b"x-ms-client-request-id")
        if client_id is not None and len(client_id) <= _CLIENT_ID_BYTES_MAX:
            said.append((b"x-ms-client-request-id", client_id))
        return said

    def moment(self) -> str:
        return full_moment_text(ticks_of_s(int(self.account.clock.now_s())))

    # Refusing.

    def _refuse(self, request: Request, failure: Failure, request_id: str) -> Response:
        if failure.kind is Kind.DROPPED:
            return HANG_UP
        self.account.budgets.count_failure(failure)
        if failure.kind in (Kind.CORRUPT, Kind.INTERNAL):
            log.error("request %s: %s", request_id, failure.message)
        is_xml = b"comp=" in request.target or request.headers.get(b"accept", b"").startswith(b"application/xml")
        version = request.headers if failure.details.get("table_code") != "InvalidHeaderValue" else {}
        response = self._refusal(failure, request_id, version, is_xml=is_xml)
        if failure.retry_after_ms is not None and request.method in _NOT_REPEATED:
            # Only for these: whole seconds are too long for requests that clients repeat by x-ms-retry-after-ms.
            response.headers = [*response.headers, (b"retry-after", b"%d" % -(-failure.retry_after_ms // 1000))]
        if explains_refusal(request.headers):
            response.headers = [*response.headers, charge_header(explain_failure(failure, failure.charge_ru))]
        return response

    def _refusal(
        self, failure: Failure, request_id: str, headers: dict[bytes, bytes], *, is_xml: bool = False
    ) -> Response:
        refusal = refusal_of(failure, request_id, self.moment(), is_storage=self.settings.is_storage)
        said = [*self.shared_headers(headers, request_id), *refusal_headers(failure, refusal, is_xml=is_xml)]
        return Refusal(failure.kind, refusal.status, said, refusal.xml() if is_xml else refusal.json())

    def refuse(self, status: int, message: str) -> Response:
        """The answer to bytes that are not a valid request, in this protocol's form."""
        kind = KIND_OF_STATUS.get(status, Kind.BAD_REQUEST)
        response = self._refusal(Failure(kind, message), self._request_ids.guid(), {})
        response.status = status
        return response

    def on_crash(self, request: Request, exception: BaseException) -> Response:
        """The answer to a request that raised an unexpected exception: the log has the traceback under the request
        id."""
        request_id = self._request_ids.guid()
        log.error("request %s failed", request_id, exc_info=exception)
        message = f"The server failed to answer this request; its log tells why under the request id {request_id}."
        return self._refusal(Failure(Kind.INTERNAL, message), request_id, {})


def _action(request: Request, address: Address) -> Action:
    """The function that answers, by the place and the verb that is meant."""
    method = operations.meant_method(request.method, request.headers)
    comp = address.query.get("comp")
    kind = address.query.get("restype")
    found = _ACTIONS.get((address.place, method, comp))
    request.operation = _OPERATIONS.get((address.place, method, comp), "")
    if address.place is Place.SERVICE and found is not None and kind != "service":
        raise refused(
            "InvalidQueryParameterValue",
            "Value for one of the query parameters specified in the request URI is invalid: restype is service.",
        )
    if found is not None:
        return found
    allowed = tuple(each for place, each, word in _ACTIONS if place is address.place and word == comp)
    if not allowed:
        if comp is not None:
            raise refused(
                "InvalidQueryParameterValue",
                f"Value for one of the query parameters specified in the request URI is invalid: comp='{comp[:40]}'.",
            )
        raise bad_url("It names nothing.")
    raise Failure(
        Kind.METHOD_NOT_ALLOWED,
        f"The requested method is not allowed on the specified resource: {method}. {', '.join(allowed)} are.",
        details={"allowed": allowed},
    )


_ACTIONS: Final[dict[tuple[Place, str, str | None], Action]] = {
    (Place.SERVICE, "GET", "properties"): service_properties.read_properties,
    (Place.SERVICE, "PUT", "properties"): service_properties.write_properties,
    (Place.SERVICE, "GET", "stats"): service_properties.read_statistics,
    (Place.TABLES, "GET", None): tables.list_tables,
    (Place.TABLES, "POST", None): tables.create_table,
    (Place.TABLE_ENTRY, "GET", None): tables.read_table,
    (Place.TABLE_ENTRY, "DELETE", None): tables.delete_table,
    (Place.TABLE, "GET", None): queries.query_entities,
    (Place.TABLE, "POST", None): operations.write_entity,
    (Place.TABLE, "GET", "acl"): policies.read_policies,
    (Place.TABLE, "HEAD", "acl"): policies.read_policies,
    (Place.TABLE, "PUT", "acl"): policies.write_policies,
    (Place.ENTITY, "GET", None): operations.read_one,
    (Place.ENTITY, "PUT", None): operations.write_entity,
    (Place.ENTITY, "PATCH", None): operations.write_entity,
    (Place.ENTITY, "MERGE", None): operations.write_entity,
    (Place.ENTITY, "DELETE", None): operations.write_entity,
    (Place.BATCH, "POST", None): batches.run_batch,
}
# What metrics call each: operations on entities are told apart by their verb.
_VERBS: Final = {"POST": "insert", "PUT": "update", "PATCH": "merge", "MERGE": "merge", "DELETE": "delete"}
_OPERATIONS: Final = {
    key: f"table {_VERBS[key[1]]}_entity" if action is operations.write_entity else f"table {action.__name__}"
    for key, action in _ACTIONS.items()
}
