"""The control door: what people and tools that operate a server, or test against it, may see and do beside the
protocols: containers and their partitions, throughput, splits and merges, snapshots, faults, the clock, metrics.

It has keys of its own and log-ins (`access/`) and answers under `/_armillary/`. Like every door it translates and does
nothing else; only the server's health needs no key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from armillary.account.account import Account
from armillary.account.captures import notes
from armillary.account.security.credentials import Credentials
from armillary.account.security.sign_in_throttle import SignInThrottle
from armillary.account.server_figures import readiness
from armillary.account.visits.consistency import before_write, check_silence
from armillary.audit import ACTOR, Actor, SignInLog
from armillary.clock import MovableClock
from armillary.doors.control import (
    captures,
    changes,
    cluster,
    migrations,
    partitions,
    reshapes,
    resources,
    scripts,
)
from armillary.doors.control.access import session
from armillary.doors.control.access.authentication import Access, ControlGuard
from armillary.doors.control.access.log_ins import LogIns
from armillary.doors.control.call import Action, Call, Routes, ServerFacts, read_target
from armillary.doors.control.errors import error_response
from armillary.doors.control.figures import load_maps, samples, verdicts
from armillary.doors.control.foresight import advice_requests as advice
from armillary.doors.control.foresight import item_samples
from armillary.doors.control.foresight import requests as foresight
from armillary.doors.control.foresight.jobs import Jobs
from armillary.doors.control.foresight.uploads import Uploads
from armillary.doors.control.live import server, watch
from armillary.doors.control.live.long_polls import LongPolls
from armillary.doors.control.metrics import metrics
from armillary.doors.control.snapshots import snapshots
from armillary.doors.control.snapshots.snapshot_transfers import Transfers
from armillary.doors.control.testing import clock_control, faults
from armillary.errors import Failure, Kind
from armillary.insight.load_watch import LoadWatch
from armillary.net.hosts import HostNames
from armillary.net.http import HANG_UP, Request, Response

log = logging.getLogger(__name__)

PREFIX: Final = b"/_armillary"
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
        try:
            path, query = read_target(request.target, PREFIX)
            method = "GET" if request.method == "HEAD" else request.method
            if (method, path) in _OPEN:
                request.operation = f"control {_OPEN[method, path].__name__.lstrip('_')}"
                if path == _SESSION:
                    self.guard.check_place(request)
                return await _OPEN[method, path](Call(self, request, [], query))
            access = self.admit(request)
            action, names = _ROUTES.find(method, path)
            request.operation = f"control {action.__name__}"
            if access.is_read_only:
                _check_reads(method, action)
            if method != "GET" and action not in _CHANGES_NO_DATA:
                self.account.check_writable()
            topology = self.account.topology
            if topology is not None and self.needs_leader(request):
                check_silence(topology)
                if method != "GET":
                    await before_write(self.account, topology)
            if self.account.captures.is_on:
                request.details = notes.begin("control")
            return await action(Call(self, request, names, query, access))
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
            _check_reads(method, _ROUTES.find(method, path)[0])
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


def _check_reads(method: str, action: Action) -> None:
    """Refuse what may change something."""
    if method != "GET" and action not in _CHANGES_NOTHING:
        raise Failure(
            Kind.FORBIDDEN, "These credentials may only read. Use the control key, or log in without 'read only'."
        )


async def _health(call: Call) -> Response:
    """The process answers."""
    return call.answer({"status": "ok"})


async def _ready(call: Call) -> Response:
    """The account can be read."""
    if call.account.topology is not None:
        check_silence(call.account.topology)
    await call.account.catalog.check_readable()
    return call.answer({"status": "ready", **readiness(call.account)})


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
    ("GET", "health"): _health,
    ("GET", "ready"): _ready,
    ("GET", _SESSION): session.show_session,
    ("POST", _SESSION): session.log_in,
}

_ACTIONS: tuple[tuple[str, str, Action], ...] = (
    ("GET", "health", _health),
    ("GET", "ready", _ready),
    ("GET", _SESSION, session.show_session),
    ("POST", _SESSION, session.log_in),
    ("DELETE", _SESSION, session.log_out),
    ("GET", "session/log-ins", session.list_log_ins),
    ("POST", "session/tickets", session.make_ticket),
    ("GET", "server", server.show_server),
    ("GET", "watch", watch.watch),
    ("GET", "events", watch.list_events),
    ("GET", "metrics", metrics.read_metrics),
    ("GET", "databases", resources.list_databases),
    ("POST", "databases", resources.create_database),
    ("GET", "databases/{}", resources.show_database),
    ("DELETE", "databases/{}", resources.delete_database),
    ("PUT", "databases/{}/throughput", resources.scale_database),
    ("GET", "containers", resources.list_all_containers),
    ("GET", "databases/{}/containers", resources.list_containers),
    ("POST", "databases/{}/containers", resources.create_container),
    ("GET", "databases/{}/containers/{}", resources.show_container),
    ("DELETE", "databases/{}/containers/{}", resources.delete_container),
    ("PUT", "databases/{}/containers/{}/throughput", resources.scale_container),
    ("GET", "databases/{}/containers/{}/throughput/preview", load_maps.preview_throughput),
    ("PUT", "databases/{}/containers/{}/mode", resources.set_mode),
    ("PUT", "databases/{}/containers/{}/buckets", resources.set_buckets),
    ("GET", "databases/{}/containers/{}/partitions", partitions.show_partitions),
    ("GET", "databases/{}/containers/{}/keys", partitions.show_keys),
    ("GET", "databases/{}/containers/{}/verdict", verdicts.show_verdict),
    ("GET", "databases/{}/containers/{}/history", load_maps.show_history),
    ("GET", "databases/{}/containers/{}/heat", load_maps.show_heat),
    ("GET", "databases/{}/containers/{}/sample", samples.show_sample),
    ("GET", "databases/{}/containers/{}/sample/keys", samples.preview_partition_key),
    ("GET", "databases/{}/containers/{}/sample/figures", item_samples.show_figures),
    ("GET", "databases/{}/containers/{}/sample/items", item_samples.send_items),
    ("POST", "databases/{}/containers/{}/parse", samples.parse),
    ("GET", "databases/{}/containers/{}/changes", changes.show_changes),
    ("POST", "databases/{}/containers/{}/split", reshapes.split),
    ("POST", "databases/{}/containers/{}/merge", reshapes.merge),
    ("GET", "databases/{}/containers/{}/reshapes", reshapes.list_reshapes),
    ("POST", "databases/{}/containers/{}/reshapes/{}/advance", reshapes.advance),
    ("DELETE", "databases/{}/containers/{}/reshapes/{}", reshapes.cancel_reshape),
    ("POST", "databases/{}/containers/{}/migration", migrations.begin),
    ("GET", "databases/{}/containers/{}/migration", migrations.show),
    ("DELETE", "databases/{}/containers/{}/migration", migrations.stop),
    ("GET", "databases/{}/containers/{}/captures", captures.list_captures),
    ("POST", "databases/{}/containers/{}/captures", captures.start_capture),
    ("GET", "databases/{}/containers/{}/captures/{}", captures.show_capture),
    ("DELETE", "databases/{}/containers/{}/captures/{}", captures.delete_capture),
    ("POST", "databases/{}/containers/{}/captures/{}/stop", captures.stop_capture),
    ("POST", "databases/{}/containers/{}/captures/{}/secret", captures.tell_secret),
    ("GET", "databases/{}/containers/{}/captures/{}/parts/{}", captures.send_part),
    ("GET", "databases/{}/containers/{}/scripts", scripts.list_scripts),
    ("GET", "databases/{}/containers/{}/scripts/{}/{}", scripts.show_script),
    ("PUT", "databases/{}/containers/{}/scripts/{}/{}", scripts.put_script),
    ("DELETE", "databases/{}/containers/{}/scripts/{}/{}", scripts.delete_script),
    ("POST", "databases/{}/containers/{}/scripts/procedures/{}/run", scripts.run_procedure),
    ("POST", "estimate", foresight.make_estimate),
    ("POST", "simulations", foresight.begin_simulation),
    ("POST", "advice", advice.begin_advice),
    ("POST", "uploads", advice.begin_upload),
    ("PUT", "uploads/{}/parts/{}", advice.receive_part),
    ("DELETE", "uploads/{}", advice.cancel_upload),
    ("GET", "jobs/{}", foresight.show_job),
    ("DELETE", "jobs/{}", foresight.cancel_job),
    ("GET", "reshapes", reshapes.list_all_reshapes),
    ("PUT", "reshapes/pauses", reshapes.pause),
    ("POST", "reshapes/advance", reshapes.advance),
    ("GET", "faults", faults.list_rules),
    ("POST", "faults", faults.create_rule),
    ("DELETE", "faults", faults.delete_rules),
    ("GET", "faults/{}", faults.show_rule),
    ("DELETE", "faults/{}", faults.delete_rule),
    ("GET", "account/keys", server.list_keys),
    ("POST", "account/keys/{}/regenerate", server.regenerate_key),
    ("GET", "account/connection-strings", server.list_connection_strings),
    ("GET", "snapshots", snapshots.list_snapshots),
    ("GET", "snapshots/{}", snapshots.show_snapshot),
    ("POST", "snapshots/{}", snapshots.take_snapshot),
    ("DELETE", "snapshots/{}", snapshots.delete_snapshot),
    ("POST", "snapshots/{}/restore", snapshots.restore_snapshot),
    ("GET", "snapshots/{}/parts/{}", snapshots.send_part),
    ("POST", "restores", snapshots.begin_restore),
    ("PUT", "restores/{}/parts/{}", snapshots.receive_part),
    ("POST", "restores/{}/finish", snapshots.finish_restore),
    ("DELETE", "restores/{}", snapshots.cancel_restore),
    ("POST", "checkpoints", snapshots.make_checkpoint),
    ("DELETE", "checkpoints/{}", snapshots.delete_checkpoint),
    ("GET", "cluster", cluster.show_status),
    ("POST", "cluster/failover", cluster.fail_over),
    ("POST", "cluster/failover-region", cluster.fail_over_region),
    ("POST", "cluster/drain", cluster.drain),
    ("POST", "cluster/undrain", cluster.undrain),
    ("DELETE", "cluster/nodes/{}", cluster.remove_node),
    ("POST", "cluster/verify", cluster.begin_verification),
    ("GET", "cluster/verify/{}", cluster.show_verification),
    ("GET", "runtime", server.show_runtime),
    ("PUT", "runtime", server.change_runtime),
    ("GET", "clock", clock_control.show_clock),
    ("POST", "clock", clock_control.move_clock),
)
# Actions other than GET that read-only credentials may use: what they change is their own log-in. Computations that
# look ahead read containers at most, and are bounded in number, time and memory.
_CHANGES_NOTHING: Final = frozenset(
    (
        *(session.log_in, session.log_out, session.make_ticket, samples.parse),
        *(foresight.make_estimate, foresight.begin_simulation, foresight.cancel_job),
        *(advice.begin_advice, advice.begin_upload, advice.receive_part, advice.cancel_upload),
    )
)
# Actions other than GET that a server in read-only mode answers too: they change no data and no definitions.
_CHANGES_NO_DATA: Final = _CHANGES_NOTHING | frozenset(
    (
        *(server.change_runtime, clock_control.move_clock),
        *(faults.create_rule, faults.delete_rule, faults.delete_rules),
        *(captures.start_capture, captures.stop_capture, captures.delete_capture, captures.tell_secret),
        *(snapshots.take_snapshot, snapshots.delete_snapshot, snapshots.make_checkpoint, snapshots.delete_checkpoint),
        *(snapshots.cancel_restore, reshapes.pause, migrations.stop),
        *(cluster.fail_over, cluster.fail_over_region, cluster.drain, cluster.undrain, cluster.remove_node),
        *(cluster.begin_verification, cluster.show_verification),
    )
)
REQUESTS = tuple((method, path) for method, path, _ in _ACTIONS)
# Those that read-only credentials are refused.
CHANGING = tuple(
    (method, path) for method, path, action in _ACTIONS if method != "GET" and action not in _CHANGES_NOTHING
)
_ROUTES = Routes(_ACTIONS)
