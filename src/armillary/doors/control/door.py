"""The control door: what people and tools that operate a server, or test against it, may see and do beside the
protocols: containers and their partitions, throughput, splits and merges, snapshots, faults, the clock, metrics.

It has its own key (`authentication.py`) and answers under `/_armillary/`. Like every door it translates and does
nothing else; only the server's health needs no key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from armillary.account.account import Account
from armillary.account.security.credentials import Credentials
from armillary.account.security.sign_in_throttle import SignInThrottle
from armillary.audit import ACTOR, Actor, SignInLog
from armillary.clock import MovableClock
from armillary.doors.control import (
    account_keys,
    changes,
    metrics,
    migrations,
    partitions,
    reshapes,
    resources,
    scripts,
    snapshots,
)
from armillary.doors.control.authentication import ControlGuard
from armillary.doors.control.call import Action, Call, Routes, read_target
from armillary.doors.control.errors import error_response
from armillary.doors.control.snapshot_transfers import Transfers
from armillary.doors.control.testing import clock_control, faults
from armillary.errors import Failure, Kind
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
        self._guard = ControlGuard(key, hosts or HostNames(), needs_certificate=needs_certificate)

    async def answer(self, request: Request) -> Response:
        try:
            path, query = read_target(request.target, PREFIX)
            method = "GET" if request.method == "HEAD" else request.method
            if path in _OPEN and method == "GET":
                return await _OPEN[path](Call(self, request, [], query))
            self._check(request)
            request.is_known = True
            action, names = _ROUTES.find(method, path)
            return await action(Call(self, request, names, query))
        except Failure as failure:
            is_failed = failure.kind is Kind.UNAUTHORIZED
            if is_failed and self.throttle is not None and not await self.throttle.refused(request.peer):
                return HANG_UP
            if failure.kind in (Kind.CORRUPT, Kind.INTERNAL):
                log.error("a control request failed: %s", failure.message)
            return error_response(failure)

    def screen(self, request: Request) -> Response | None:
        """Authenticate a request by its head, before its long body is read; the refusal, or None."""
        try:
            self._check(request)
        except Failure as failure:
            if failure.kind is Kind.UNAUTHORIZED and self.throttle is not None:
                self.throttle.count(request.peer)
            return error_response(failure)
        return None

    def _check(self, request: Request) -> None:
        peer = request.peer
        try:
            self._guard.check(request.headers, has_certificate=request.has_certificate)
        except Failure:
            self._sign_in_log.refused(peer, "control key" if b"authorization" in request.headers else "none")
            raise
        self._sign_in_log.granted(peer, "control key")
        ACTOR.set(Actor("control", peer))

    def on_crash(self, request: Request, exception: BaseException) -> Response:
        """The answer to a request on which we broke. The network has logged the reason."""
        message = "The server failed to answer this request. Its log has the reason."
        return error_response(Failure(Kind.INTERNAL, message))


async def _health(call: Call) -> Response:
    """The process answers."""
    return call.answer({"status": "ok"})


async def _ready(call: Call) -> Response:
    """The account can be read."""
    await call.account.catalog.check_readable()
    return call.answer({"status": "ready"})


# Open without a key: neither reveals anything about the account.
_OPEN = {"health": _health, "ready": _ready}

_ACTIONS: tuple[tuple[str, str, Action], ...] = (
    ("GET", "health", _health),
    ("GET", "ready", _ready),
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
    ("PUT", "databases/{}/containers/{}/mode", resources.set_mode),
    ("PUT", "databases/{}/containers/{}/buckets", resources.set_buckets),
    ("GET", "databases/{}/containers/{}/partitions", partitions.show_partitions),
    ("GET", "databases/{}/containers/{}/keys", partitions.show_keys),
    ("GET", "databases/{}/containers/{}/changes", changes.show_changes),
    ("POST", "databases/{}/containers/{}/split", reshapes.split),
    ("POST", "databases/{}/containers/{}/merge", reshapes.merge),
    ("GET", "databases/{}/containers/{}/reshapes", reshapes.list_reshapes),
    ("POST", "databases/{}/containers/{}/reshapes/{}/advance", reshapes.advance),
    ("DELETE", "databases/{}/containers/{}/reshapes/{}", reshapes.cancel_reshape),
    ("POST", "databases/{}/containers/{}/migration", migrations.begin),
    ("GET", "databases/{}/containers/{}/migration", migrations.show),
    ("DELETE", "databases/{}/containers/{}/migration", migrations.stop),
    ("GET", "databases/{}/containers/{}/scripts", scripts.list_scripts),
    ("GET", "databases/{}/containers/{}/scripts/{}/{}", scripts.show_script),
    ("PUT", "databases/{}/containers/{}/scripts/{}/{}", scripts.put_script),
    ("DELETE", "databases/{}/containers/{}/scripts/{}/{}", scripts.delete_script),
    ("POST", "databases/{}/containers/{}/scripts/procedures/{}/run", scripts.run_procedure),
    ("GET", "reshapes", reshapes.list_all_reshapes),
    ("PUT", "reshapes/pauses", reshapes.pause),
    ("POST", "reshapes/advance", reshapes.advance),
    ("GET", "faults", faults.list_rules),
    ("POST", "faults", faults.create_rule),
    ("DELETE", "faults", faults.delete_rules),
    ("GET", "faults/{}", faults.show_rule),
    ("DELETE", "faults/{}", faults.delete_rule),
    ("GET", "account/keys", account_keys.list_keys),
    ("POST", "account/keys/{}/regenerate", account_keys.regenerate_key),
    ("GET", "account/connection-strings", account_keys.list_connection_strings),
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
    ("GET", "clock", clock_control.show_clock),
    ("POST", "clock", clock_control.move_clock),
)
REQUESTS = tuple((method, path) for method, path, _ in _ACTIONS)
_ROUTES = Routes(_ACTIONS)
