"""The Gremlin door: a message is read, its sender authenticated, and the one function called that answers it.

The door translates and nothing else: traversals run on `account/graphs/graph.py`. Here is the only place that catches
everything, so that no client waits for an answer that never comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from websockets.frames import CloseCode

from armillary import limits
from armillary.account import containers
from armillary.account.account import Account
from armillary.account.captures import notes
from armillary.account.container import Container
from armillary.account.graphs.graph import StoredGraph, check_key_path
from armillary.account.security import permissions
from armillary.account.security.sign_in_throttle import SignInThrottle
from armillary.account.visits.consistency import before_write, check_silence
from armillary.audit import ACTOR, Actor, SignInLog
from armillary.doors.gremlin import quick_vertices, traversals
from armillary.doors.gremlin.authentication import Client, Keys, Principal, Tokens, authenticate, is_sealed
from armillary.doors.gremlin.errors import MALFORMED
from armillary.doors.gremlin.forms import AUTHENTICATION
from armillary.doors.gremlin.messages import AUTHENTICATE, Request, Responder, read_request
from armillary.doors.gremlin.traversals import OrderedIds, Services
from armillary.errors import Failure, Kind
from armillary.model.items import validate_name
from armillary.net.requests.request_watch import Answered, RequestWatch

log = logging.getLogger(__name__)

Action = Callable[[Services, Client, Request, StoredGraph, Responder], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class GremlinSettings:
    # Graphs come into being when they are first used, partitioned by this path; "none": without a partition key; None:
    # they do not.
    creates: str | None = None


class GremlinDoor:
    def __init__(self, account: Account, keys: Keys, settings: GremlinSettings, tokens: Tokens | None = None) -> None:
        self.account = account
        self.settings = settings
        self.programs = traversals.Programs()
        self.ids = OrderedIds(account.clock)
        self.throttle: SignInThrottle | None = None  # of failed sign-ins
        self.watch = RequestWatch()  # counts requests
        self._keys = keys
        self._tokens = tokens
        self._sign_in_log = SignInLog("gremlin")
        self._requests = 0
        self._long_messages = asyncio.Semaphore(1)
        self._start = account.clock.guid()[:24]
        if settings.creates not in (None, "none"):
            check_key_path(settings.creates or "", "--gremlin-create")

    async def answer(self, client: Client, message: bytes, is_text: bool) -> None:
        await self._answer(client, self._principal(client), message, is_text)

    async def answer_as(self, client: Client, message: bytes) -> None:
        """Answer a request of the portal, which has authenticated its sender and says what the principal of `client`
        is."""
        await self._answer(client, client.principal, message, is_text=False)

    async def _answer(self, client: Client, principal: Principal | None, message: bytes, is_text: bool) -> None:
        ACTOR.set(Actor("gremlin", client.address))
        # A random beginning and a count are as good as dice, and cost less on every request.
        self._requests += 1
        activity_id = f"{self._start}{self._requests & 0xFFFFFFFFFFFF:012x}"
        out = Responder(client.line, is_text, self.account.clock, activity_id)
        try:
            if principal is None:
                principal = self._meet(client, message, is_text, out)
                if principal is not None:
                    await self._answer_pending(client, principal)
            else:
                await self._serve(client, principal, message, is_text, out)
        except Failure as failure:
            is_failed = failure.kind is Kind.UNAUTHORIZED
            if is_failed and self.throttle is not None and not await self.throttle.refused(client.address):
                client.line.hang_up()
                return
            self._refuse(client, failure, out)
        except RecursionError:
            self._refuse(client, Failure(Kind.BAD_REQUEST, "The request is nested too deeply."), out)
        except Exception:
            log.exception("request %s failed", out.activity_id)
            message_text = f"The server failed to answer; its log tells why under the activity id {out.activity_id}."
            self._refuse(client, Failure(Kind.INTERNAL, message_text), out)
        self._count(client, out)

    def _count(self, client: Client, out: Responder) -> None:
        """Count a request that is answered. One that waits for credentials is counted when they have come."""
        if out.status in (0, AUTHENTICATE):
            return
        elapsed_s = self.account.clock.elapsed_s() - out.begun_s
        status, kind = str(out.status), None if out.failed is None else out.failed.kind
        self.watch.times[f"gremlin {out.operation}"].note(elapsed_s, status, kind)
        if self.watch.report is not None:
            answered = Answered("gremlin", out.operation, status, kind, out.begun_s, elapsed_s, round(out.total_ru, 2))
            answered.activity, answered.peer, answered.details = out.activity_id, client.address, out.details
            if client.principal is not None:
                answered.database, answered.container = client.principal.database, client.principal.graph
            self.watch.report(answered)

    def _refuse(self, client: Client, failure: Failure, out: Responder) -> None:
        if failure.kind is Kind.DROPPED:
            client.line.hang_up()
            return
        if failure.kind in (Kind.CORRUPT, Kind.INTERNAL):
            log.error("request %s: %s", out.activity_id, failure.message)
        if failure.charge_ru:
            out.charge_ru += failure.charge_ru
        out.refuse(failure)
        if failure.kind is Kind.UNAUTHORIZED:
            client.line.close(CloseCode.POLICY_VIOLATION)

    # Authentication.

    def _principal(self, client: Client) -> Principal | None:
        """None: of a stranger, or of one whose key was changed."""
        principal = client.principal
        return principal if principal is not None and self._is_known(client, principal) else None

    def _meet(self, client: Client, message: bytes, is_text: bool, out: Responder) -> Principal | None:
        """A message of a stranger is looked at for credentials and for the id of what it asks, and for nothing else.
        Returns the principal, once the client has authenticated."""
        request = read_request(message, is_text, out, is_known=False, reads_properties=client.reads_properties)
        if request.operation == AUTHENTICATION:
            return self._authenticate(client, request)
        client.pending_bytes += len(message)
        too_many = len(client.pending) >= limits.GREMLIN_PENDING_MAX
        if too_many or client.pending_bytes > limits.GREMLIN_PENDING_BYTES_MAX:
            raise Failure(Kind.UNAUTHORIZED, "Unauthorized: too much is asked for without any credentials.")
        client.pending[request.id] = (message, is_text, out)
        out.challenge()
        return None

    async def _answer_pending(self, client: Client, principal: Principal) -> None:
        """What was asked before the credentials came."""
        pending, client.pending = client.pending, {}
        client.pending_bytes = 0
        for message, is_text, responder in pending.values():
            try:
                await self._serve(client, principal, message, is_text, responder)
            except Failure as failure:
                self._refuse(client, failure, responder)
            self._count(client, responder)

    async def _serve(self, client: Client, principal: Principal, message: bytes, is_text: bool, out: Responder) -> None:
        reading = partial(read_request, message, is_text, out, is_known=True, reads_properties=client.reads_properties)
        if len(message) <= limits.GREMLIN_READ_AT_ONCE_BYTES:
            request = reading()
        else:
            # In a thread, from which the loop takes the interpreter back when it has something to do; one at a time.
            async with self._long_messages:
                request = await asyncio.get_running_loop().run_in_executor(None, reading)
        if request.operation == AUTHENTICATION:
            out.operation = AUTHENTICATION
            self._authenticate(client, request)
        else:
            await self._act(client, principal, request, out)

    def _is_known(self, client: Client, principal: Principal) -> bool:
        """Keys are changed while connections last: a token ends with the key that it was sealed for."""
        if principal.expires_s is None:
            return self._keys.still_has(principal)
        if principal.keys_number == self._keys.number:
            return True
        if not is_sealed(self._tokens, principal):
            return False
        client.principal = principal._replace(keys_number=self._keys.number)
        return True

    def _authenticate(self, client: Client, request: Request) -> Principal:
        try:
            principal = authenticate(request.arguments, self._keys, self._tokens)
            if client.principal is not None and client.principal[:3] != principal[:3]:
                raise Failure(Kind.UNAUTHORIZED, "Unauthorized: the connection is another user's already.")
        except Failure:
            self._sign_in_log.refused(client.address, "password")
            raise
        client.principal = principal
        self._sign_in_log.granted(client.address, principal.credential)
        return principal

    # What it wants.

    async def _act(self, client: Client, principal: Principal, request: Request, out: Responder) -> None:
        if request.operation == "close":
            out.finish([])
            return
        if request.processor == "session" or request.arguments.get("session") is not None:
            raise Failure(
                Kind.UNSUPPORTED,
                "Sessions and transactions of several requests are not offered: every request is one by itself. Use a "
                "client without a session, and g without tx().",
            )
        action = _ACTIONS.get(request.operation)
        if action is None:
            raise Failure(
                Kind.BAD_REQUEST,
                f"The operation '{request.operation[:40]}' is not known; eval and bytecode are.",
                details={"status": MALFORMED, "exception": "GraphMalformedException"},
            )
        out.operation = request.operation
        topology = self.account.topology
        if topology is not None:
            # Traversals are answered by the node that leads alone, and each may write.
            check_silence(topology)
            await before_write(self.account, topology)
        container = await self._container(principal)
        if principal.expires_s is not None:
            self._check_token(principal, principal.expires_s, container)
        if not self.account.captures.is_on:
            if request.operation == "eval" and await quick_vertices.answer(self, client, request, container, out):
                return
        else:
            out.details = notes.begin("gremlin", out.activity_id)
        graph = StoredGraph(self.account, container, is_read_only=principal.is_read_only)
        out.graph = graph
        await action(self, client, request, graph, out)

    def _check_token(self, principal: Principal, expires_s: int, container: Container) -> None:
        if self.account.clock.now_s() >= expires_s:
            raise Failure(Kind.UNAUTHORIZED, "Unauthorized: the resource token has expired; connect with a new one.")
        rids = (container.database.rid_text, container.rid_text)
        if any(rid not in ("", now) for rid, now in zip(principal.rids, rids, strict=True)):
            raise Failure(Kind.UNAUTHORIZED, "Unauthorized: the resource token is for an earlier graph of this name.")
        mode = "Read" if principal.is_read_only else "All"
        if not permissions.is_in_force(self.account, principal.permission_rid, mode, None, principal.grant):
            raise Failure(
                Kind.UNAUTHORIZED,
                "Unauthorized: the permission of the resource token was deleted, or allows less by now; read it again.",
            )

    async def _container(self, principal: Principal) -> Container:
        try:
            return self.account.owner_container(principal.database, principal.graph)
        except Failure as failure:
            if self.settings.creates is None or failure.kind is not Kind.OWNER_NOT_FOUND:
                raise
        if principal.is_read_only:
            raise Failure(Kind.FORBIDDEN, "The graph does not exist, and the key that was given may not create it.")
        return await self._create(principal)

    async def _create(self, principal: Principal) -> Container:
        """On first use, where the server was told to."""
        self.account.check_writable()
        account = self.account
        name = validate_name(principal.graph)
        try:
            database = await containers.create_database(account, {"id": validate_name(principal.database)}, None)
        except Failure as failure:
            if failure.kind is not Kind.CONFLICT:
                raise
            database = account.database(principal.database)
        body: dict[str, Any] = {"id": name}
        if self.settings.creates != "none":
            body["partitionKey"] = {"paths": [self.settings.creates], "kind": "Hash", "version": 2}
        try:
            await containers.create_container(account, database, body, None, is_old_client=True)
        except Failure as failure:
            if failure.kind is not Kind.CONFLICT:
                raise
        return account.owner_container(principal.database, principal.graph)


_ACTIONS: Final[dict[str, Action]] = {"eval": traversals.evaluate, "bytecode": traversals.run_bytecode}
