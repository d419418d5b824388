"""One connection between two nodes, after its greeting: calls in both directions, many at once.

Each side numbers its own calls. When a call is cancelled or late, the other side is told and cancels the task that
answers it. Back-pressure: a side has a limited number of calls in flight, and writes nothing more while too much waits
to be sent. Reading never stops: two sides that wait for each other to read would wait forever. What is received is
bounded by the number of calls and by the bytes of their bodies, above which calls are refused. Each side sends a sign
of life every second; a connection on which nothing comes for a few seconds is given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

from armillary import limits
from armillary.clock import Clock
from armillary.cluster.peers.frames import BadFrame, Frame, FrameKind, FrameParser, failure_head, packed, read_failure
from armillary.errors import Failure, Kind

_log = logging.getLogger(__name__)
_JOINED_BYTES = 64 * limits.KB  # smaller bodies are written together with what is before them

Answer = tuple[dict[str, Any], bytes]
OnRelay = Callable[[str, dict[str, Any]], asyncio.Protocol]  # of the calling node: who takes a relayed connection
Handler = Callable[[str, dict[str, Any], bytes], Awaitable[Answer]]  # the first argument: the calling node


class PeerGone(Exception):
    """Another node was not reached, its connection broke, or its answer did not come in time."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent  # the call may have been carried out


class Attempt:
    """A call that is to be sent."""

    def __init__(self, name: str, head: dict[str, Any], body: bytes) -> None:
        self.head = {"name": name, "head": head}
        self.body = body
        self.was_sent = False


class PeerConnection(asyncio.Protocol):
    """Subclasses greet: they send and receive the first frames and then call `_open`."""

    def __init__(self, handlers: Mapping[str, Handler], clock: Clock) -> None:
        self.node = ""  # the other one; empty until it is known
        self._handlers = handlers
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._parser = FrameParser()
        self._calls: dict[int, asyncio.Future[Answer]] = {}  # sent and not answered
        self._last_call = 0
        self._slots = asyncio.Semaphore(limits.PEER_CALLS_MAX)
        self._running: dict[int, tuple[asyncio.Task[None], int]] = {}  # calls of the other side, with their bytes
        self._held_bytes = 0  # of those
        self._writable = asyncio.Event()
        self._writable.set()
        self._beating: asyncio.Task[None] | None = None
        self._missed_beats = 0
        self.end_reason: str | None = None
        self.on_relay: OnRelay | None = None
        self._relaying: tuple[asyncio.Protocol, asyncio.Future[None]] | None = None
        self._next: asyncio.Protocol | None = None  # that the connection goes on with

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(limits.PEER_WRITE_BUFFER_BYTES)
        self._begin(transport.get_extra_info("ssl_object"))

    def data_received(self, data: bytes) -> None:
        self._missed_beats = 0
        try:
            for frame in self._parser.feed(data):
                self._receive(frame)
                if self.end_reason is not None or self._next is not None:
                    break
        except BadFrame as error:
            self.end(f"it has sent what is not of the protocol: {error}")
        if self._next is not None and self.end_reason is None:
            self._pass_on(self._next)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end("the connection broke")
        if not self.ended.done():
            self.ended.set_result(None)

    # The greeting.

    def _begin(self, tls: Any) -> None:
        raise NotImplementedError

    def _greet(self, frame: Frame) -> None:
        """A frame came before the connection was open."""
        raise NotImplementedError

    def _open(self, node: str) -> None:
        self.node = node
        self._parser.is_greeting = False
        self._beating = self._loop.create_task(self._beat())
        if not self.opened.done():
            self.opened.set_result(None)

    @property
    def is_open(self) -> bool:
        return self.node != "" and self.end_reason is None

    def end(self, reason: str, farewell: str | None = None) -> None:
        """Give up the connection. `farewell`: a sentence for the other side."""
        if self.end_reason is not None:
            return
        self.end_reason = reason
        if self._transport is not None:
            if farewell is None:
                self._transport.abort()
            else:
                self._send(FrameKind.FAREWELL, head={"message": farewell})
                self._transport.close()
        if not self.opened.done():
            self.opened.set_exception(PeerGone(reason, was_sent=False))
            self.opened.exception()  # a greeting that was given up already is not waited for
        for call in self._calls.values():
            if not call.done():
                call.set_exception(PeerGone(f"The connection to node {self.node} ended: {reason}.", was_sent=True))
        if self._relaying is not None and not self._relaying[1].done():
            self._relaying[1].set_exception(PeerGone(reason, was_sent=False))
        for task, _ in self._running.values():
            task.cancel()
        self._running.clear()
        if self._beating is not None:
            self._beating.cancel()
        self._writable.set()  # those that wait look again

    # Calling.

    async def call(self, attempt: Attempt) -> Answer:
        """Raises the other side's Failure, or PeerGone."""
        async with self._slots:
            await self._writable.wait()
            if self.end_reason is not None:
                raise PeerGone(f"The connection to node {self.node} ended: {self.end_reason}.", was_sent=False)
            self._last_call += 1
            number = self._last_call
            answer: asyncio.Future[Answer] = self._loop.create_future()
            self._send(FrameKind.CALL, number, attempt.head, attempt.body)
            attempt.was_sent = True
            self._calls[number] = answer
            try:
                return await answer
            finally:
                del self._calls[number]
                if answer.cancelled() and self.end_reason is None:
                    self._send(FrameKind.CANCEL, number)

    async def relay(self, head: dict[str, Any], protocol: asyncio.Protocol) -> None:
        """Have the connection carry a client's bytes from here on, between `protocol` and what the other node chooses
        for it. It must be a connection of its own. Raises the other side's Failure, or PeerGone."""
        assert self._beating is not None and not self._calls
        self._beating.cancel()  # nothing may follow the frame before it is answered
        agreed: asyncio.Future[None] = self._loop.create_future()
        self._relaying = protocol, agreed
        self._send(FrameKind.RELAY, head=head)
        await agreed

    def _agree_to_relay(self, frame: Frame) -> None:
        if self._relaying is not None:
            self._next, agreed = self._relaying
            if not agreed.done():
                agreed.set_result(None)
            return
        try:
            if self.on_relay is None:
                raise _unknown_call("relay")
            self._next = self.on_relay(self.node, frame.head)
        except Failure as failure:
            self._refuse(0, failure)
            return
        assert self._beating is not None
        self._beating.cancel()
        self._send(FrameKind.RELAY)

    def _pass_on(self, protocol: asyncio.Protocol) -> None:
        transport, self._transport = self._transport, None
        assert transport is not None
        self.end("it carries a client's connection now")
        if not self.ended.done():
            self.ended.set_result(None)
        rest = self._parser.rest()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if rest:
            protocol.data_received(rest)

    def _send(self, kind: FrameKind, call: int = 0, head: dict[str, Any] | None = None, body: bytes = b"") -> None:
        """Raises a Failure, and sends nothing, if it is too large."""
        assert self._transport is not None
        pieces = packed(kind, call, head, body)
        if len(body) <= _JOINED_BYTES:
            pieces = [b"".join(pieces)]
        for piece in pieces:
            self._transport.write(piece)

    # Receiving.

    def _receive(self, frame: Frame) -> None:
        if self.node == "":
            self._greet(frame)
        elif frame.kind is FrameKind.CALL:
            self._begin_answer(frame)
        elif frame.kind is FrameKind.RELAY:
            self._agree_to_relay(frame)
        elif frame.kind is FrameKind.REFUSAL and self._relaying is not None:
            self._relaying[1].set_exception(read_failure(frame.head))
        elif frame.kind in (FrameKind.ANSWER, FrameKind.REFUSAL):
            call = self._calls.get(frame.call)
            if call is None or call.done():  # it was cancelled
                return
            if frame.kind is FrameKind.ANSWER:
                call.set_result((frame.head, frame.body))
            else:
                call.set_exception(read_failure(frame.head))
        elif frame.kind is FrameKind.CANCEL:
            task = self._forget(frame.call)
            if task is not None:
                task.cancel()
        elif frame.kind is FrameKind.FAREWELL:
            self.end(str(frame.head.get("message", "the other side has closed it")))
        elif frame.kind is not FrameKind.BEAT:
            raise BadFrame(f"{frame.kind.name} came after the greeting")

    def _begin_answer(self, frame: Frame) -> None:
        name, head = frame.head.get("name"), frame.head.get("head")
        if len(self._running) >= limits.PEER_CALLS_MAX or frame.call in self._running:
            raise BadFrame("more calls came than may be in flight, or two with one number")
        if not isinstance(name, str) or not isinstance(head, dict):
            raise BadFrame("a call came without a name or a head")
        handler = self._handlers.get(name)
        if handler is None:
            self._refuse(frame.call, _unknown_call(name))
        elif self._held_bytes + len(frame.body) > limits.PEER_BODIES_BYTES_MAX:
            self._refuse(frame.call, _too_much())
        else:
            task = self._loop.create_task(self._answer(frame.call, name, partial(handler, self.node, head, frame.body)))
            self._running[frame.call] = task, len(frame.body)
            self._held_bytes += len(frame.body)

    async def _answer(self, number: int, name: str, work: Callable[[], Awaitable[Answer]]) -> None:
        failure: Failure | None = None
        head: dict[str, Any] = {}
        body = b""
        try:
            head, body = await work()
        except Failure as error:
            failure = error
        except Exception:
            _log.exception("the call %s of node %s failed", name, self.node)
            failure = Failure(
                Kind.INTERNAL, f"The call {name} failed on another node of the cluster. Its log says why."
            )
        await self._writable.wait()
        if self._forget(number) is None or self.end_reason is not None:
            return  # it was cancelled meanwhile
        try:
            if failure is None:
                self._send(FrameKind.ANSWER, number, head, body)
        except Failure as error:
            failure = error
        if failure is not None:
            self._refuse(number, failure)

    def _refuse(self, number: int, failure: Failure) -> None:
        self._send(FrameKind.REFUSAL, number, failure_head(failure))

    def _forget(self, number: int) -> asyncio.Task[None] | None:
        """A call of the other side is answered, or not waited for any more."""
        task, size_bytes = self._running.pop(number, (None, 0))
        self._held_bytes -= size_bytes
        return task

    async def _beat(self) -> None:
        """Beats are counted, not seconds: a node whose own loop was held up does not blame the others."""
        while True:
            await self._clock.sleep(limits.PEER_BEAT_SECONDS)
            self._missed_beats += 1
            if self._missed_beats > limits.PEER_BEATS_MISSED_MAX:
                self.end("it is silent")
                return
            self._send(FrameKind.BEAT)


def _unknown_call(name: str) -> Failure:
    shown = name[: limits.NAME_CHARACTERS_MAX]
    return Failure(Kind.UNSUPPORTED, f"This node of the cluster does not know the call {shown!r}. Upgrade it.")


def _too_much() -> Failure:
    return Failure(
        Kind.UNAVAILABLE, "This node of the cluster has too many large requests at once. Try again.", retry_after_ms=100
    )
