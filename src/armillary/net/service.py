"""What all connections of one port share: the limits, the time of day, a check of all deadlines once a second and, for
HTTP, the door's handler.

Deadlines are not timers: a timer per request would cost more than the request. Connections note when something began,
to the second, and `sweep` closes those whose time is over. Accepting sockets is left to `listen.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextvars import copy_context
from typing import Final, Protocol

from armillary.clock import Clock, SystemClock
from armillary.errors import Kind
from armillary.net.answers import Answers
from armillary.net.connection_limits import Crowd, Guest
from armillary.net.hosts import ANY_HOST, HostNames
from armillary.net.http import (
    AllowsOrigin,
    AnswerAtOnce,
    Handler,
    Headers,
    OnCrash,
    Patience,
    Refuse,
    Request,
    Response,
    Screen,
    allows_no_origin,
    crash_as_json,
    refuse_as_json,
)
from armillary.net.requests.request_reports import answered
from armillary.net.requests.request_watch import RequestWatch

log = logging.getLogger("armillary.net")

_CANCEL_S: Final = 5.0  # for a request that was cancelled to come to its end


class Served(Protocol):
    """A connection, as its service sees it."""

    guest: Guest

    def sweep(self, now_s: float) -> None: ...
    def retire(self) -> None: ...
    def abort(self) -> asyncio.Task[None] | None: ...


class Roster:
    """The connections of one port, whatever they speak."""

    def __init__(
        self,
        *,
        patience: Patience | None = None,
        crowd: Crowd | None = None,
        requires_tls: bool = False,
        clock: Clock | None = None,
        watch: RequestWatch | None = None,
    ) -> None:
        """`crowd`: the connections of all ports of a server together; None: of this one alone. `watch`: likewise what
        counts their requests."""
        self.watch = watch or RequestWatch()
        self.requires_tls = requires_tls
        self.patience = patience or Patience()
        self.crowd = crowd or Crowd(clock=clock)
        self.is_closing = False
        self.loop = asyncio.get_running_loop()
        self.context = copy_context()  # of no request: for steps that are begun from another request's
        self._clock = clock or SystemClock()
        self.elapsed_s = self._clock.elapsed_s
        self.now_s = self._clock.monotonic_s()  # exact to a second, free to read
        self._connections: set[Served] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._sweep_timer: asyncio.TimerHandle | None = None

    def another(self) -> Roster:
        """For connections of the same port that end before the others."""
        return Roster(
            patience=self.patience,
            crowd=self.crowd,
            requires_tls=self.requires_tls,
            clock=self._clock,
            watch=self.watch,
        )

    def start(self) -> None:
        """Begin to look after the connections."""
        self._sweep_timer = self.loop.call_later(self.patience.sweep_s, self._sweep_again)

    def admit(self, connection: Served) -> bool:
        """Count a connection in. False when there are too many: it is to refuse its first request and to close."""
        self._connections.add(connection)
        self._is_empty.clear()
        return not connection.guest.is_shed

    def forget(self, connection: Served) -> None:
        connection.guest.leave()
        self.pass_on(connection)

    def pass_on(self, connection: Served) -> None:
        """The socket goes on with another protocol, which is counted in by itself."""
        self._connections.discard(connection)
        if not self._connections:
            self._is_empty.set()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def sweep(self) -> None:
        """Update the time and close the connections whose time is over."""
        self.now_s = now_s = self._clock.monotonic_s()
        for connection in list(self._connections):
            try:
                connection.sweep(now_s)
            except Exception:
                # A fault in one connection must not end the checks of all others.
                log.exception("a connection could not be looked after")
                connection.abort()

    async def close(self, grace_s: float) -> None:
        """Close what is idle, wait `grace_s` for running requests, cut off the rest."""
        self.is_closing = True
        for connection in list(self._connections):
            connection.retire()
        if self._connections and grace_s > 0 and not await _wait(self._is_empty, grace_s):
            log.warning("%d connections did not finish in %g s and are cut off", len(self._connections), grace_s)
        cancelled = [connection.abort() for connection in list(self._connections)]
        running = [task for task in cancelled if task is not None]
        if running:
            # So that nothing of theirs runs after the close.
            await asyncio.wait(running, timeout=_CANCEL_S)
        if self._connections:
            await _wait(self._is_empty, _CANCEL_S)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _sweep_again(self) -> None:
        self._sweep_timer = self.loop.call_later(self.patience.sweep_s, self._sweep_again)
        self.sweep()


class Service(Roster):
    """Of a door that speaks HTTP."""

    def __init__(
        self,
        handler: Handler,
        *,
        door: str = "http",
        watch: RequestWatch | None = None,
        refuse: Refuse = refuse_as_json,
        on_crash: OnCrash = crash_as_json,
        constant_headers: Headers = (),
        hosts: HostNames = ANY_HOST,
        allows_origin: AllowsOrigin = allows_no_origin,
        open_targets: Collection[bytes] = (),
        patience: Patience | None = None,
        screen: Screen | None = None,
        at_once: AnswerAtOnce | None = None,
        crowd: Crowd | None = None,
        requires_tls: bool = False,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(patience=patience, crowd=crowd, requires_tls=requires_tls, clock=clock, watch=watch)
        self.unrouted = f"{door} other"  # what requests count as that no door has named the operation of
        self.handler = handler
        self.hosts = hosts
        self.allows_origin = allows_origin
        self.screen = screen
        self.at_once = at_once
        self.open_targets = open_targets  # answered whatever host they are for, and without TLS
        self.refuse = refuse
        self._on_crash = on_crash
        self.answers = Answers(constant_headers, self._clock.now_s())

    def sweep(self) -> None:
        self.answers.renew(self._clock.now_s())
        super().sweep()

    def report(self, request: Request, response: Response, elapsed_s: float) -> None:
        """Tell the log and the traces of an answer."""
        if self.watch.report is not None:
            self.watch.report(answered(request, response, elapsed_s, self.unrouted))

    def count_crash(self, request: Request, response: Response) -> None:
        elapsed_s = self.elapsed_s() - request.begun_s
        observed = self.watch.times[request.operation or self.unrouted]
        observed.note(elapsed_s, response.status, response.kind or Kind.INTERNAL)
        self.report(request, response, elapsed_s)

    def crash(self, request: Request, exception: BaseException) -> Response:
        """Log what broke on a request and make the door's answer to it."""
        path = request.target.partition(b"?")[0]  # the query may hold a shared access signature
        log.error("%s %s was not answered", request.method, ascii(path)[2:-1], exc_info=exception)
        return self._on_crash(request, exception)


async def _wait(event: asyncio.Event, limit_s: float) -> bool:
    try:
        return await asyncio.wait_for(event.wait(), limit_s)
    except TimeoutError:
        return False
