"""The SQL door: a request is routed, authenticated, authorised and handed to the one function that answers it.

The tables at the end map each route to its function. The door only translates between the protocol and `account/`;
it turns every failure into an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from armillary import limits, work
from armillary.account.account import Account
from armillary.account.captures import notes
from armillary.account.items.items import Result
from armillary.account.security import permissions
from armillary.account.security.sign_in_throttle import SignInThrottle
from armillary.account.throughput.charge_explanations import explain_failure
from armillary.account.topology import Topology
from armillary.account.visits.consistency import before_write, check_silence, failure_or_silence, stale_here
from armillary.audit import ACTOR, Actor, SignInLog
from armillary.clock import Clock
from armillary.doors.sql import consistency
from armillary.doors.sql import headers as h
from armillary.doors.sql.access.authentication import AccountKeys, Authenticator, credential_kind
from armillary.doors.sql.access.authorization import MASTER, Principal, authorize, check_incarnation
from armillary.doors.sql.access.resource_tokens import Claims, TokenAuthority
from armillary.doors.sql.call import Call
from armillary.doors.sql.errors import ROWS, error_response
from armillary.doors.sql.headers import PostMeaning
from armillary.doors.sql.items import batches, documents, feeds, table_clients
from armillary.doors.sql.items.quick_queries import QuickQueries
from armillary.doors.sql.items.quick_reads import QuickReads
from armillary.doors.sql.items.quick_requests import QuickRequests
from armillary.doors.sql.items.quick_writes import QuickWrites
from armillary.doors.sql.merging_clients import QueryMode
from armillary.doors.sql.resources import account_document, lists, resources
from armillary.doors.sql.routes import RouteKind, resolve
from armillary.doors.sql.serialization import BINARY, FORMATS, asks_for_binary, binary_response, text_body
from armillary.doors.sql.session_tokens import SESSION_TOKEN, range_headers, render_session_tokens
from armillary.errors import Failure, Kind
from armillary.net.charged_requests import KIND_OF_STATUS, RequestIds, charge_header, explains_refusal
from armillary.net.http import HANG_UP, AtOnce, Refusal, Request, Response

log = logging.getLogger(__name__)

Action = Callable[[Call], Coroutine[Any, Any, Response]]

# What captures of requests write for the outcome of an operation, through whatever door it came.
_STATUSES: dict[Result | Kind, tuple[int, int]] = {
    **{kind: (row.status, row.sub_status) for kind, row in ROWS.items()},
    **{result: (status, 0) for result, status in documents.STATUS.items()},
    Result.MISSING: (404, 0),
    Result.REPEATED: (200, 0),
}
CONTROL_TYPES = ("users", "permissions", "clientencryptionkeys", "sprocs", "triggers", "udfs")


class SqlDoor:
    constant_headers = h.STATIC_HEADERS  # of every answer; encoded once by the network

    def __init__(
        self,
        account: Account,
        keys: AccountKeys,
        *,
        accepts_aad: bool,
        signing_clock: Clock | None = None,
        queries: QueryMode = "auto",
    ) -> None:
        """`signing_clock`: the time that dates of signatures are compared with, if the account's clock can be moved."""
        self.account = account
        account.captures.statuses.update(_STATUSES)
        self.throttle: SignInThrottle | None = None  # of failed sign-ins
        self.advertised: str | None = None  # HOST:PORT that clients are told to use, if not the one they came to
        self.queries: QueryMode = queries
        self._signing_clock = signing_clock or account.clock
        self._accepts_aad = accepts_aad
        self._activities = RequestIds(account.clock)
        self.tokens = TokenAuthority(account.settings.name, keys.token_secret(), account.clock)
        self._sign_in_log = SignInLog("sql")
        self._node_headers = consistency.NodeHeaders()
        self._quick = QuickRequests(
            account, self._signing_clock, self._activities, self._refuse, self._sign_in_log, self._node_headers, queries
        )
        names = [_OPERATIONS[each] for each in (documents.read_item, documents.create_item, documents.upsert_item)]
        self._quick_reads = QuickReads(self._quick, names[0])
        self._quick_writes = QuickWrites(self._quick, *names[1:])
        self._quick_queries = QuickQueries(self._quick, _OPERATIONS[feeds.query_items])
        self.use_keys(keys)

    def use_keys(self, keys: AccountKeys) -> None:
        """Replace the account's keys."""
        self.tokens.use(keys.token_secret(), keys.secondary_token_secret())
        self._authenticator = Authenticator(keys, self.tokens, self._signing_clock, accepts_aad=self._accepts_aad)
        self._quick.use(self._authenticator.signatures)

    def answer_at_once(self, request: Request) -> AtOnce:
        """See `net/http.py`."""
        if request.method == "GET":
            return self._quick_reads.answer(request)
        if request.method != "POST":
            return None
        is_query = h.IS_QUERY in request.headers
        return self._quick_queries.answer(request) if is_query else self._quick_writes.answer(request)

    async def answer(self, request: Request, principal: Principal | None = None) -> Response:
        """`principal`: see `answer_as`."""
        activity_id = h.activity_id(request.headers, self._activities)
        try:
            if request.method == "OPTIONS":
                return Response(200, [(b"allow", b"GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS")])
            action, call = self._admit(request, activity_id, principal)
            if self.account.is_read_only and action in _WRITES:
                self.account.check_writable()
            if self.account.captures.is_on:
                activity = h.text(request.headers, h.CORRELATED_ACTIVITY) or activity_id
                request.details = notes.begin("sql", activity)
            run, topology = action, self.account.topology
            # A leader under its lease answers everything, as a single server does.
            if topology is not None and not topology.may_answer_strongly:
                run = partial(self._on_node, topology, action)
            if call.route.segments[:1] == _TABLES and table_clients.is_table_client(call):
                run = partial(table_clients.translated, run)
            is_binary = FORMATS in request.headers and asks_for_binary(request.headers) and action in _OF_ITEMS
            if call.body[:1] == BINARY:
                call.body = await text_body(call.body)
            if action in _METADATA:
                ACTOR.set(Actor("sql", request.peer))
                response = await self.account.budgets.answer_metadata(run, call)
            elif len(call.body) > limits.QUERY_LONG_BODY_BYTES and action in _DRIVEN:
                response = await work.drive(run(call))
            else:
                response = await run(call)
            if topology is not None:
                self._node_headers.add_to(response, topology)
            return await binary_response(response) if is_binary else response
        except Failure as failure:
            is_failed = failure.kind is Kind.UNAUTHORIZED
            if is_failed and self.throttle is not None and not await self.throttle.refused(request.peer):
                return HANG_UP
            failure = failure_or_silence(self.account.topology, failure)
            return self._refuse(request, failure, activity_id, explains=explains_refusal(request.headers))

    def answer_as(self, request: Request, principal: Principal) -> Coroutine[Any, Any, Response]:
        """Answer a request of the portal, which has authenticated its sender."""
        return self.answer(request, principal)

    def screen(self, request: Request) -> Response | None:
        """Authenticate a request by its head, before its long body is read; the refusal, or None."""
        method = request.method
        try:
            route = resolve("GET" if method == "HEAD" else method, request.target)
            principal = self._authenticator.verify(method, route, request.headers)
            if principal.claims is not None:
                _check_permission(self.account, principal.claims)
        except Failure as failure:
            if failure.kind is Kind.STALE_HERE:
                return None  # the node that leads knows the permission
            if failure.kind is Kind.UNAUTHORIZED:
                self._sign_in_log.refused(request.peer, credential_kind(request.headers))
                if self.throttle is not None:
                    self.throttle.count(request.peer)
            return self._refuse(request, failure, h.activity_id(request.headers, self._activities))
        return None

    def needs_leader(self, request: Request) -> bool:
        """Whether only the node that leads the cluster can answer a request. Never raises."""
        return consistency.needs_leader(request, self.account.settings.consistency)

    async def _on_node(self, topology: Topology, action: Action, call: Call) -> Response:
        """On a node of a cluster that follows, or that leads without its lease: answer as far as it may."""
        check_silence(topology)
        if action in _WRITES:
            await before_write(self.account, topology)
            return await action(call)
        return await consistency.answer_read(topology, call, action, is_anywhere=action in _ANYWHERE)

    def _admit(self, request: Request, activity_id: str, given: Principal | None) -> tuple[Action, Call]:
        """Route, authenticate and authorise a request; the function that answers it, and its call. `given`: the
        principal, if that is known."""
        method = request.method
        route = resolve("GET" if method == "HEAD" else method, request.target)
        if given is None:
            try:
                principal = self._authenticator.verify(method, route, request.headers)
                if principal.claims is not None:
                    _check_permission(self.account, principal.claims)
            except Failure as failure:
                if failure.kind is not Kind.STALE_HERE:
                    self._sign_in_log.refused(request.peer, credential_kind(request.headers))
                raise
            request.is_known = True
            if self._sign_in_log.last_granted.get(request.peer) is not principal:
                self._sign_in_log.granted(request.peer, principal.role.value, principal)
        else:
            principal = given
        if method == "HEAD":
            method = "GET"
        if method == "POST" and route.kind is RouteKind.FEED:
            meaning = h.post_meaning(request.headers)
            action = _POSTS.get((route.resource_type, meaning))
            if action is None:
                raise Failure(Kind.BAD_REQUEST, f"A {meaning.name.lower()} is not possible on {route.resource_type}.")
            if principal is not MASTER:
                authorize(principal, route, method, meaning.is_read)
        else:
            action = _ACTIONS[(route.kind, route.resource_type, method)]
            if principal is not MASTER:
                authorize(principal, route, method)
        request.operation = _OPERATIONS[action]
        if principal.claims is not None:
            check_incarnation(principal.claims, route, partial(permissions.rid_of, self.account))
        return action, Call(self, request, route, principal, activity_id)

    def _refuse(self, request: Request, failure: Failure, activity_id: str, *, explains: bool = False) -> Response:
        if failure.kind is Kind.DROPPED:
            return HANG_UP
        self.account.budgets.count_failure(failure)
        if failure.kind in (Kind.CORRUPT, Kind.INTERNAL):
            log.error("activity %s: %s", activity_id, failure.message)
        status, headers, body = error_response(failure, activity_id)
        range_id = failure.details.get("range_id")
        if range_id is not None:
            lsn = failure.details["lsn"]
            token = render_session_tokens(request.headers, [(range_id, lsn)])
            headers += [(SESSION_TOKEN, token), *range_headers(range_id, lsn)]
        if "container" in failure.details:
            headers += lists.container_paths(failure.details["container"])
        if explains:
            headers.append(charge_header(explain_failure(failure, failure.charge_ru)))
        return Refusal(failure.kind, status, headers, body)

    def refuse(self, status: int, message: str) -> Response:
        """The answer to bytes that are not a valid request, in this protocol's form."""
        failure = Failure(KIND_OF_STATUS.get(status, Kind.BAD_REQUEST), message)
        _, headers, body = error_response(failure, self._activities.guid())
        return Response(status, headers, body)

    def on_crash(self, request: Request, exception: BaseException) -> Response:
        """The answer to a request that raised an unexpected exception: the log has the traceback under the activity
        id."""
        activity_id = h.activity_id(request.headers, self._activities)
        log.error("activity %s failed", activity_id, exc_info=exception)
        message = f"The server failed to answer this request; its log tells why under the activity id {activity_id}."
        return self._refuse(request, Failure(Kind.INTERNAL, message), activity_id)


def _check_permission(account: Account, claims: Claims) -> None:
    """Refuse a token whose permission was deleted, or allows less than when the token was issued."""
    if not permissions.is_in_force(account, claims.permission_rid, claims.mode, claims.partition_key, claims.grant):
        if account.topology is not None and not account.topology.leads:
            raise stale_here()  # the permission may be newer than what this node knows
        raise Failure(
            Kind.UNAUTHORIZED,
            "The input authorization token can't serve the request. The permission of the resource token was deleted, "
            "or allows less by now; read it again.",
        )


async def _addresses(call: Call) -> Response:
    raise Failure(Kind.UNSUPPORTED, "Direct mode is not offered: set the client's connection mode to Gateway.")


_ACTIONS: dict[tuple[RouteKind, str, str], Action] = {
    (RouteKind.ACCOUNT, "", "GET"): account_document.read_account,
    (RouteKind.RESOURCE, "docs", "GET"): documents.read_item,
    (RouteKind.RESOURCE, "docs", "PUT"): documents.replace_item,
    (RouteKind.RESOURCE, "docs", "PATCH"): documents.patch_item,
    (RouteKind.RESOURCE, "docs", "DELETE"): documents.delete_item,
    (RouteKind.FEED, "docs", "GET"): feeds.read_feed,
    (RouteKind.FEED, "pkranges", "GET"): lists.list_ranges,
    (RouteKind.RESOURCE, "dbs", "GET"): resources.read_resource,
    (RouteKind.RESOURCE, "dbs", "DELETE"): resources.delete_resource,
    (RouteKind.RESOURCE, "colls", "GET"): resources.read_resource,
    (RouteKind.RESOURCE, "colls", "PUT"): resources.replace_container,
    (RouteKind.RESOURCE, "colls", "DELETE"): resources.delete_resource,
    (RouteKind.RESOURCE, "offers", "GET"): resources.read_resource,
    (RouteKind.RESOURCE, "offers", "PUT"): resources.replace_offer,
    (RouteKind.RESOURCE, "conflicts", "GET"): resources.no_such_conflict,
    (RouteKind.RESOURCE, "conflicts", "DELETE"): resources.no_such_conflict,
    (RouteKind.EXECUTE, "sprocs", "POST"): batches.execute_procedure,
}
for _type in CONTROL_TYPES:
    _ACTIONS[(RouteKind.RESOURCE, _type, "GET")] = resources.read_resource
    _ACTIONS[(RouteKind.RESOURCE, _type, "PUT")] = resources.replace_resource
    _ACTIONS[(RouteKind.RESOURCE, _type, "DELETE")] = resources.delete_resource
for _type in ("dbs", "colls", "offers", "conflicts", *CONTROL_TYPES):
    _ACTIONS[(RouteKind.FEED, _type, "GET")] = lists.list_resources
_ACTIONS.update(
    {
        (RouteKind.KEY_DELETE, "colls", "POST"): documents.delete_by_key,
    }
)
for _type in ("dbs", "colls", "docs", "pkranges", "offers", "conflicts", *CONTROL_TYPES):
    _ACTIONS[(RouteKind.ADDRESSES, _type, "GET")] = _addresses

_POSTS: dict[tuple[str, PostMeaning], Action] = {
    ("docs", PostMeaning.BATCH): batches.run_batch,
    ("docs", PostMeaning.QUERY_PLAN): feeds.plan_query,
    ("docs", PostMeaning.QUERY): feeds.query_items,
    ("docs", PostMeaning.UPSERT): documents.upsert_item,
    ("docs", PostMeaning.CREATE): documents.create_item,
    ("dbs", PostMeaning.CREATE): resources.create_database,
    ("colls", PostMeaning.CREATE): resources.create_container,
}
for _type in CONTROL_TYPES:
    _POSTS[(_type, PostMeaning.CREATE)] = resources.create_resource
    _POSTS[(_type, PostMeaning.UPSERT)] = resources.create_resource
for _type in ("dbs", "colls", "offers", "conflicts", *CONTROL_TYPES):
    _POSTS[(_type, PostMeaning.QUERY)] = lists.query_resources

_TABLES = (table_clients.TABLES,)
# What metrics call each action.
_OPERATIONS = {action: f"sql {action.__name__.lstrip('_')}" for action in (*_ACTIONS.values(), *_POSTS.values())}
# Actions that compile queries: with a long body they run in steps, so that other requests are served meanwhile.
_DRIVEN = frozenset([documents.patch_item, batches.run_batch, feeds.plan_query, feeds.query_items])
# Actions that answer with items: in the serialization format that the client asks for.
_OF_ITEMS = frozenset(
    [
        *(documents.read_item, documents.create_item, documents.upsert_item, documents.replace_item),
        *(documents.patch_item, feeds.read_feed, feeds.query_items),
    ]
)
# Actions that may write: in a cluster the node that leads runs them. Stored procedures and batches may only read, and
# the names of a request do not tell.
_WRITES = frozenset(action for (*_, method), action in _ACTIONS.items() if method != "GET") | frozenset(
    action for (_, meaning), action in _POSTS.items() if not meaning.is_read
)
# Actions that every node of a cluster answers, whatever the level.
_ANYWHERE = frozenset([account_document.read_account, feeds.plan_query, _addresses])
# Actions on resources other than items: their charge is counted for the account, not for a partition.
_METADATA = frozenset(
    action
    for action in (*_ACTIONS.values(), *_POSTS.values())
    if getattr(action, "__module__", "") in (resources.__name__, lists.__name__)
)
