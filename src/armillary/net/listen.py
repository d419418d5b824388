"""Opening a port for a protocol with and without TLS at once.

A TLS client speaks first, and how it begins is like nothing else; so the listener looks at the first bytes of each
connection without taking them and hands the socket to the loop with or without TLS. What is said then is, for HTTP,
`connection.py`'s; other protocols bring connections of their own.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any, Final

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.net.connection import Connection
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
    Screen,
    allows_no_origin,
    crash_as_json,
    refuse_as_json,
)
from armillary.net.requests.request_watch import RequestWatch
from armillary.net.service import Roster, Service, log

Prepare = Callable[[], Coroutine[Any, Any, None]]

_HANDSHAKE: Final = 0x16  # the record type that opens TLS
_BACKLOG: Final = 1024
_ACCEPTS_PER_TURN: Final = 64  # so that a flood of connections leaves the loop time for those it has
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_EXHAUSTED_PAUSE_S: Final = 0.5
_TLS_CLOSE_S: Final = 2.0
_PEEK_BYTES: Final = 3
_PEEK_AGAIN_S: Final = 0.01


def opens_tls(first: bytes) -> bool | None:
    """Where text is spoken otherwise, one byte tells."""
    return first[0] == _HANDSHAKE


def opens_tls_or_frame(first: bytes) -> bool | None:
    """Where frames begin with their length, little-endian: a handshake would be one of more than 64 KB, which no
    connection begins with. None: too little has come to tell."""
    if first[0] != _HANDSHAKE:
        return False
    return first[1] == 3 and first[2] > 0 if len(first) >= _PEEK_BYTES else None


class Listener:
    """An open port. Made by `listen`."""

    def __init__(
        self,
        sockets: list[socket.socket],
        service: Roster,
        tls: Callable[[], ssl.SSLContext] | None,
        connect: Callable[[Guest], asyncio.Protocol],
        is_handshake: Callable[[bytes], bool | None] = opens_tls,
        plain_refusal: bytes | None = None,
        prepare: Prepare | None = None,
    ) -> None:
        """`plain_refusal`: what connections without TLS are told, and then closed; None: they are served. `prepare`:
        what connections wait for before they are served, until it was done once."""
        self.port: int = sockets[0].getsockname()[1]
        self.service = service
        self._connect = connect
        self._is_handshake = is_handshake
        self._plain_refusal = plain_refusal
        self._prepare = prepare
        self._accepts_per_turn = _ACCEPTS_PER_TURN
        self._sockets = sockets
        self._loop = service.loop
        self._tls = tls
        self._context: asyncio.Future[ssl.SSLContext] | None = None
        self._silent: dict[socket.socket, tuple[asyncio.TimerHandle, Guest]] = {}  # accepted, and nothing heard yet
        self._starting: dict[asyncio.Task[None], bool] = {}  # and whether it may wait for a handshake
        self._resume_timer: asyncio.TimerHandle | None = None
        self._watch()
        service.start()

    async def close(self, grace_s: float = 5.0) -> None:
        """Take no more connections, let running requests finish for `grace_s`, close everything."""
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        while self._sockets:
            listening = self._sockets.pop()
            self._loop.remove_reader(listening)
            listening.close()
        for silent in list(self._silent):
            self._drop(silent)
        self.service.is_closing = True
        if self._starting:
            # Without a handshake it takes one turn of the loop, or until the port is prepared. To cancel that would
            # leave a connection in the roster which the loop tells of its beginning, and never of its end.
            for task, may_wait in self._starting.items():
                if may_wait:
                    task.cancel()
            await asyncio.wait(set(self._starting))
        await self.service.close(grace_s)

    @property
    def descriptors(self) -> list[int]:
        """Of the listening sockets, to be handed to another process that accepts connections too."""
        return [each.fileno() for each in self._sockets]

    def share(self) -> None:
        """Other processes accept connections of this port from now on: each takes one at a time."""
        self._accepts_per_turn = 1

    def use_tls(self, context: ssl.SSLContext) -> None:
        """From now on new connections get this certificate; those that are open keep theirs."""
        self._context = self._loop.create_future()
        self._context.set_result(context)

    # Accepting.

    def _watch(self) -> None:
        self._resume_timer = None
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(self._accepts_per_turn):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error)
                    return
                continue  # the client has left the queue already (ECONNABORTED and its kin)
            guest = self.service.crowd.enter(str(address[0]), partial(self._evict, accepted))
            if guest is None:
                accepted.close()
                continue
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sniff(accepted, guest)

    def _pause(self, error: OSError) -> None:
        """Out of file descriptors or memory: the port would stay readable and spin, so look away for a moment."""
        if self._resume_timer is None:
            log.error("no connection can be accepted for now: %s. Raise the limit of open files", error.strerror)
            for listening in self._sockets:
                self._loop.remove_reader(listening)
            self._resume_timer = self._loop.call_later(_EXHAUSTED_PAUSE_S, self._watch)

    def _sniff(self, accepted: socket.socket, guest: Guest) -> None:
        try:
            first = accepted.recv(_PEEK_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            self._wait_for(accepted, guest)
            self._loop.add_reader(accepted, self._sniff, accepted, guest)
            return
        except OSError:
            first = b""
        is_tls = self._is_handshake(first) if first else False
        if is_tls is None:  # the socket stays readable with what has come: to be told of that again would be a spin
            self._wait_for(accepted, guest)
            self._loop.remove_reader(accepted)
            self._loop.call_later(_PEEK_AGAIN_S, self._sniff_again, accepted, guest)
            return
        if accepted in self._silent:
            self._silent.pop(accepted)[0].cancel()
            self._loop.remove_reader(accepted)
        if not first or (is_tls and self._tls is None):
            guest.leave()
            accepted.close()
            return
        if not is_tls and self._plain_refusal is not None:
            guest.leave()
            _turn_away(accepted, self._plain_refusal)
            return
        task = self._loop.create_task(self._start(accepted, guest, is_tls=is_tls))
        self._starting[task] = bool(is_tls)
        if is_tls:
            guest.evict = task.cancel
        task.add_done_callback(lambda done: self._started(done, accepted, guest))

    def _wait_for(self, accepted: socket.socket, guest: Guest) -> None:
        if accepted not in self._silent:
            timer = self._loop.call_later(self.service.patience.head_s, self._drop, accepted)
            self._silent[accepted] = timer, guest

    def _sniff_again(self, accepted: socket.socket, guest: Guest) -> None:
        if accepted in self._silent:
            self._sniff(accepted, guest)

    def _started(self, task: asyncio.Task[None], accepted: socket.socket, guest: Guest) -> None:
        del self._starting[task]
        if task.cancelled():  # perhaps before its first step, so it could not do this itself
            guest.leave()
            accepted.close()

    def _drop(self, silent: socket.socket) -> None:
        timer, guest = self._silent.pop(silent)
        timer.cancel()
        guest.leave()
        self._loop.remove_reader(silent)
        silent.close()

    def _evict(self, accepted: socket.socket) -> None:
        """A connection that has said nothing goes, for another one."""
        if accepted in self._silent:
            self._drop(accepted)

    async def _start(self, accepted: socket.socket, guest: Guest, *, is_tls: bool) -> None:
        """Hand a socket over to the loop."""
        try:
            if self._prepare is not None:
                await self._prepare()
                self._prepare = None
            if is_tls:
                await self._loop.connect_accepted_socket(
                    partial(self._connect, guest),
                    accepted,
                    ssl=await self._tls_context(),
                    ssl_handshake_timeout=self.service.patience.head_s,
                    ssl_shutdown_timeout=_TLS_CLOSE_S,
                )
            else:
                await self._loop.connect_accepted_socket(partial(self._connect, guest), accepted)
        except OSError as error:
            # A client that breaks off its handshake, or does not trust our certificate, is no event of ours.
            log.debug("a connection did not come about: %r", error)
            guest.leave()
            accepted.close()
        except Exception:
            log.exception("a connection could not be served")
            guest.leave()
            accepted.close()

    async def _tls_context(self) -> ssl.SSLContext:
        """Made with the first TLS connection, in a thread: making a certificate takes tenths of a second."""
        assert self._tls is not None, "TLS connections are dropped when there is no TLS"
        if self._context is None:
            self._context = self._loop.run_in_executor(None, self._tls)
        try:
            return await asyncio.shield(self._context)
        except Exception:
            self._context = None  # the next connection tries again
            raise


async def listen(
    host: str,
    port: int,
    handler: Handler,
    *,
    tls: Callable[[], ssl.SSLContext] | None = None,
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
    watch: RequestWatch | None = None,
    door: str = "http",
    prepare: Prepare | None = None,
    sockets: list[socket.socket] | None = None,
) -> Listener:
    """Open `port` (0: a free one) on every address of `host` and answer with `handler`. `prepare`: see `Listener`.
    `sockets`: listening ones that another process has opened and shares, instead of host and port."""
    is_shared = sockets is not None
    sockets = sockets or await bind(host, port)
    service = Service(
        handler,
        refuse=refuse,
        on_crash=on_crash,
        constant_headers=constant_headers,
        hosts=hosts,
        allows_origin=allows_origin,
        open_targets=open_targets,
        patience=patience,
        screen=screen,
        at_once=at_once,
        crowd=crowd,
        requires_tls=requires_tls,
        clock=clock,
        watch=watch,
        door=door,
    )
    listener = Listener(sockets, service, tls, lambda guest: Connection(service, guest), prepare=prepare)
    if is_shared:
        listener.share()
    return listener


async def listen_for_frames(
    host: str,
    port: int,
    roster: Roster,
    connect: Callable[[Guest], asyncio.Protocol],
    *,
    tls: Callable[[], ssl.SSLContext] | None = None,
    plain_refusal: bytes = b"",
    prepare: Prepare | None = None,
    sockets: list[socket.socket] | None = None,
) -> Listener:
    """The same for a protocol of its own, in frames that begin with their length. `plain_refusal`: what connections
    without TLS are told where the roster requires it."""
    refusal = plain_refusal if roster.requires_tls else None
    bound = sockets or await bind(host, port)
    listener = Listener(bound, roster, tls, connect, opens_tls_or_frame, refusal, prepare)
    if sockets is not None:
        listener.share()
    return listener


def _turn_away(accepted: socket.socket, refusal: bytes) -> None:
    """Close a connection after a last word. What it has sent is read first: bytes that are left unread would make the
    kernel reset the connection, and the client would lose the answer."""
    try:
        accepted.recv(limits.READ_PIECE_BYTES)
        if refusal:
            accepted.send(refusal)
            accepted.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    accepted.close()


async def bind(host: str, port: int) -> list[socket.socket]:
    """The port (0: a free one) on every address of the host, listening."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise Failure(Kind.UNAVAILABLE, f"The host {host!r} has no address here: {error.strerror}.") from None
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    for family, kind, protocol, _name, address in found:
        # A free port that was found for the first address is asked for on the others.
        wanted = sockets[0].getsockname()[1] if sockets else port
        try:
            sockets.append(_bind_one(family, kind, protocol, (address[0], wanted, *address[2:])))
        except OSError as error:
            failure = error
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue  # a machine without IPv6 still has names that resolve to it
            break
    else:
        if sockets:
            return sockets
    for opened in sockets:
        opened.close()
    reason = failure.strerror if failure is not None else "no address"
    advice = "Stop the program that uses it or choose another port." if _is_taken(failure) else "Choose another one."
    raise Failure(Kind.UNAVAILABLE, f"Port {port} of {host} cannot be opened: {reason}. {advice}")


def _is_taken(failure: OSError | None) -> bool:
    return failure is not None and failure.errno == errno.EADDRINUSE


def _bind_one(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        opened.listen(_BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened
