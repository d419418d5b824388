"""The control door: what people and tools that operate a server, or test against it, may see and do beside the
protocols: containers and their partitions, throughput, splits and merges, snapshots, faults, the clock, metrics.

It has keys of its own and log-ins (`access/`) and answers under `/_armillary/`. Like every door it translates and does
nothing else; only the server's health needs no key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from armillary.account.account import Account
from armillary.account.captures import notes
from armillary.account.security.credentials import Credentials
from armillary.account.security.sign_in_throttle import SignInThrottle
from armillary.account.visits.consistency import before_write, check_silence
from armillary.audit import ACTOR, Actor, SignInLog
from armillary.clock import MovableClock
from armillary.doors.control.access import session
from armillary.doors.control.access.authentication import Access, ControlGuard
from armillary.doors.control.access.log_ins import LogIns
from armillary.doors.control.call import Action, Call, Routes, ServerFacts, read_target
from armillary.doors.control.errors import error_response
from armillary.doors.control.foresight.jobs import Jobs
from armillary.doors.control.foresight.uploads import Uploads
from armillary.doors.control.live import server
from armillary.doors.control.live.long_polls import LongPolls
from armillary.doors.control.snapshots.snapshot_transfers import Transfers
from armillary.errors import Failure, Kind
from armillary.insight.load_watch import LoadWatch
from armillary.late import Late
from armillary.net.hosts import HostNames
from armillary.net.http import HANG_UP, Request, Response

log = logging.getLogger(__name__)

PREFIX: Final = b"/_armillary"
_UNROUTED: Final = "control other"  # what metrics call requests that are refused before their action is known
OPEN_TARGETS: Final = frozenset((PREFIX + b"/health", PREFIX + b"/ready"))  # see _OPEN


class ControlDoor:
    def __init__(
        self,
        account: Account,
        key: str | None,
        *,
        hosts: HostNames | None = None,
        needs_certificate: bool = False,
        read_only_key: str | None = None,
        log_ins: LogIns | None = None,
        facts: ServerFacts | None = None,
        long_polls: LongPolls | None = None,
        jobs: Jobs | None = None,
        clock: MovableClock | None = None,
        credentials: Credentials | None = None,
        addresses: Mapping[str, str] | None = None,
        connection_count: Callable[[], int] = lambda: 0,
    ) -> None:
        self.account = account
        self.clock = clock  # None: it cannot be moved
        self.connection_count = connection_count
        self.credentials = credentials
        self.addresses: Mapping[str, str] = (
            addresses if addresses is not None else {}
        )  # of the doors, as clients reach them; known once all are open
        self.transfers = Transfers(account)
        self.begun_s = account.clock.elapsed_s()
        self.throttle: SignInThrottle | None = None  # of failed sign-ins
        self._sign_in_log = SignInLog("control")
        self.log_ins = log_ins if log_ins is not None else LogIns(account.clock)
        self.facts = facts or ServerFacts()
        self.long_polls = long_polls or LongPolls(account.clock)
        self.jobs = jobs or Jobs()
        self.uploads = Uploads(account.clock)
        self.load_watch = LoadWatch(account)
        self.guard = ControlGuard(
            key,
            hosts or HostNames(),
            self.log_ins,
            read_only_key=read_only_key,
            needs_certificate=needs_certificate,
        )

    async def answer(self, request: Request) -> Response:
        request.operation = _UNROUTED
        try:
            path, query = read_target(request.target, PREFIX)
            method = "GET" if request.method == "HEAD" else request.method
            if (method, path) in _OPEN:
                request.operation = f"control {_OPEN[method, path].__name__}"
                if path == _SESSION:
                    self.guard.check_place(request)
                return await _OPEN[method, path](Call(self, request, [], query))
            access = self.admit(request)
            table = _TABLE.made or await _TABLE.load()
            action, names = table.routes.find(method, path)
            request.operation = f"control {action.__name__}"
            if access.is_read_only:
                table.check_reads(method, action)
            if method != "GET" and action not in table.changes_no_data:
                self.account.check_writable()
            topology = self.account.topology
            if topology is not None and self.needs_leader(request):
                check_silence(topology)
                if method != "GET":
                    await before_write(self.account, topology)
            if self.account.captures.is_on:
                request.details = notes.begin("control")
            if self.account.stand_ins is None:
                return await action(Call(self, request, names, query, access))
            await self.account.refresh_figures()
            answer = await action(Call(self, request, names, query, access))
            if method != "GET":
                await self.account.spread_controls()
            return answer
        except Failure as failure:
            return await self.refusal(request, failure)

    def admit(self, request: Request) -> Access:
        """Authenticate a request; one that another node has forwarded was authenticated there."""
        if request.is_known:
            access = Access.told(request.headers)
            ACTOR.set(Actor("control", request.peer))
        else:
            access = self._check(request)
            request.is_known = True
        return access

    async def refusal(self, request: Request, failure: Failure) -> Response:
        """The answer to a request that was refused."""
        is_failed = failure.kind is Kind.UNAUTHORIZED
        if is_failed and self.throttle is not None and not await self.throttle.refused(request.peer):
            return HANG_UP
        if failure.kind in (Kind.CORRUPT, Kind.INTERNAL):
            log.error("a control request failed: %s", failure.message)
        return error_response(failure)

    def screen(self, request: Request) -> Response | None:
        """Authenticate a request by its head, before its long body is read or it is forwarded; the refusal, or None."""
        try:
            self.screened(request)
        except Failure as failure:
            return self.screen_refusal(request, failure)
        return None

    def screened(self, request: Request) -> None:
        """Raises a Failure if the credentials of a request do not allow it, as far as its head tells."""
        path, _ = read_target(request.target, PREFIX)
        method = "GET" if request.method == "HEAD" else request.method
        if (method, path) in _OPEN:
            self.guard.check_place(request)
            return
        access = self._check(request)
        if access.is_read_only:
            table = _TABLE.get()
            table.check_reads(method, table.routes.find(method, path)[0])
        access.tell(request.headers)

    def vouch(self, request: Request) -> None:
        """The same for requests of the portal, whose own rules apply: what was found goes with the request."""
        self._check(request).tell(request.headers)

    def screen_refusal(self, request: Request, failure: Failure) -> Response:
        if failure.kind is Kind.UNAUTHORIZED and self.throttle is not None:
            self.throttle.count(request.peer)
        return error_response(failure)

    def needs_leader(self, request: Request) -> bool:
        """Whether the node that leads the cluster answers a request: all that are not about this node alone. Never
        raises."""
        path = request.target.partition(b"?")[0].removeprefix(PREFIX).lstrip(b"/")
        return path.partition(b"/")[0] not in _OF_NODE

    def _check(self, request: Request) -> Access:
        try:
            access = self.guard.check(request)
        except Failure:
            self._sign_in_log.refused(request.peer, "control key" if b"authorization" in request.headers else "none")
            raise
        self.signed_in(request.peer, access.credential)
        return access

    def signed_in(self, address: str, credential: str) -> None:
        self._sign_in_log.granted(address, credential)
        ACTOR.set(Actor("control", address))

    def on_crash(self, request: Request, exception: BaseException) -> Response:
        """The answer to a request on which we broke. The network has logged the reason."""
        message = "The server failed to answer this request. Its log has the reason."
        return error_response(Failure(Kind.INTERNAL, message))


class _Table(NamedTuple):
    """What `routes.py` says of requests."""

    routes: Routes
    changes_nothing: frozenset[Action]
    changes_no_data: frozenset[Action]

    @classmethod
    def read(cls) -> _Table:
        from armillary.doors.control import routes

        return cls(routes.ROUTES, routes.CHANGES_NOTHING, routes.CHANGES_NO_DATA)

    def check_reads(self, method: str, action: Action) -> None:
        """Refuse what may change something."""
        if method != "GET" and action not in self.changes_nothing:
            raise Failure(
                Kind.FORBIDDEN, "These credentials may only read. Use the control key, or log in without 'read only'."
            )


_TABLE: Final = Late(_Table.read, "armillary.doors.control.routes")

# The first word of paths that are about one node of a cluster: its process, its clock, the rules of faults that it
# obeys, the files of its data directory, the log-ins that it knows, what it computes; and about the cluster, of which
# any node may be asked.
_OF_NODE: Final = frozenset(
    (
        *(b"health", b"ready", b"metrics", b"faults", b"clock", b"checkpoints", b"cluster", b"session", b"server"),
        *(b"watch", b"runtime", b"estimate", b"simulations", b"advice", b"uploads", b"jobs"),
    )
)
_SESSION: Final = "session"
# Open without a key: health reveals nothing about the account, and to log in is to bring a key.
_OPEN: Final[dict[tuple[str, str], Action]] = {
    ("GET", "health"): server.health,
    ("GET", "ready"): server.ready,
    ("GET", _SESSION): session.show_session,
    ("POST", _SESSION): session.log_in,
}
