"""One connection of the MongoDB wire: bytes to frames, frames to the door one after the other, answers back.

A request is started without a Task, as `net/connection.py` does it: most are answered from memory. Reading stops while
a whole frame waits for the one before it, so that a connection holds at most one frame and a piece of the next. What
frames mean is `messages.py`'s and `doors/mongo/door.py`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any, Final, Protocol, cast

from armillary import limits
from armillary.doors.mongo.client import Client, Line
from armillary.doors.mongo.errors import MalformedMessage
from armillary.doors.mongo.wire.messages import HEADER_BYTES, Envelope, open_frame
from armillary.net.connection_limits import Guest
from armillary.net.eager import resume
from armillary.net.service import Roster, log

_LENGTH_BYTES: Final = 4


class Answering(Protocol):
    """What a connection asks of the door."""

    def welcome(self, line: Line, *, is_tls: bool, remote: tuple[str, int], local: tuple[str, int]) -> Client: ...
    def bid_farewell(self, client: Client) -> None: ...
    def answer_at_once(self, client: Client, frame: bytes) -> bytes | None: ...
    async def answer(self, client: Client, envelope: Envelope) -> bytes | None: ...


class Connection(asyncio.Protocol):
    _transport: asyncio.Transport
    client: Client

    def __init__(self, door: Answering, roster: Roster, guest: Guest | None = None) -> None:
        self._door = door
        self.guest = guest or roster.crowd.seat()
        self._roster = roster
        self._loop = roster.loop
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._is_reading_held = False
        self._is_write_paused = False
        self._is_ended = False
        self._is_lost = False
        self._drained: asyncio.Future[None] | None = None
        self._heard_s = roster.now_s  # when the client last sent or was sent something
        self._begun_s = roster.now_s  # when the frame began that is not complete yet
        self._unsent_s = roster.now_s
        self._unsent_bytes = 0
        self.reached: tuple[str, int] | None = None  # where the client has connected to, if it was relayed from there

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.guest.evict = self._transport.abort
        is_admitted = self._roster.admit(self)
        self.client = self._door.welcome(
            self,
            is_tls=transport.get_extra_info("ssl_object") is not None,
            remote=_address(transport.get_extra_info("peername")),
            local=self.reached or _address(transport.get_extra_info("sockname")),
        )
        if self._roster.is_closing or not is_admitted or self.guest.is_gone:
            self._transport.close()
        elif not self.client.is_stranger:
            self.guest.recognise()

    def connection_lost(self, exception: Exception | None) -> None:
        self._is_lost = True
        self._buffer.clear()
        self.client.leave()
        self._wake()
        if self._task is None:  # else what runs goes on to its end, and keeps its place until then
            self._forget()

    def eof_received(self) -> bool:
        self._is_ended = True
        return self._task is not None and not self.client.is_tls

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._wake()
        # Not from inside the transport's own flush: an answer written here could pause and resume us recursively.
        self._loop.call_soon(self._serve)

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._roster.now_s
        if not self._buffer:
            self._begun_s = self._roster.now_s
            if self._task is None and not self._is_write_paused and self._is_one_frame(data):
                self._open(data)
                self._serve()
                return
        self._buffer += data
        self._serve()
        if not self.guest.is_known:
            self.guest.hold(len(self._buffer))

    # Frames.

    def _is_one_frame(self, data: bytes) -> bool:
        size_bytes = int.from_bytes(data[:_LENGTH_BYTES], "little", signed=True)
        return size_bytes == len(data) and HEADER_BYTES <= size_bytes <= self.client.message_bytes_max

    def _next_frame(self) -> bytes | None:
        buffer = self._buffer
        if len(buffer) < _LENGTH_BYTES:
            return None
        size_bytes = int.from_bytes(buffer[:_LENGTH_BYTES], "little", signed=True)
        if not HEADER_BYTES <= size_bytes <= self.client.message_bytes_max:
            raise MalformedMessage(f"a message of {size_bytes} bytes is not accepted")
        if len(buffer) < size_bytes:
            return None
        frame = bytes(memoryview(buffer)[:size_bytes])
        del buffer[:size_bytes]
        self._begun_s = self._roster.now_s
        return frame

    def _serve(self) -> None:
        """Answer the frames received so far, in order, until one has to wait."""
        while not self._is_lost:
            if self._task is not None or self._is_write_paused:
                if len(self._buffer) >= HEADER_BYTES:
                    self._hold_reading()
                return
            try:
                frame = self._next_frame()
            except MalformedMessage as reason:
                self._give_up(reason)
                return
            if frame is None:
                break
            self._open(frame)
            if self.client.is_stranger and self._buffer and self._task is None:
                # One message per turn before authentication, so that other connections run in between.
                self._hold_reading()
                self._loop.call_soon(self._serve)
                return
        if self._is_ended or self._roster.is_closing:
            self._transport.close()
        elif self._is_reading_held:
            self._is_reading_held = False
            self._begun_s = self._roster.now_s
            self._transport.resume_reading()

    def _open(self, frame: bytes) -> None:
        try:
            answer = self._door.answer_at_once(self.client, frame)
        except Exception:
            self._crash()
            return
        if answer is not None:
            self._write(answer)
            return
        try:
            envelope = open_frame(frame, self.client.message_bytes_max)
        except MalformedMessage as reason:
            self._give_up(reason)
            return
        self._start(envelope)

    def _hold_reading(self) -> None:
        if not self._is_reading_held and not self._transport.is_closing():
            self._is_reading_held = True
            self._transport.pause_reading()

    def _give_up(self, reason: MalformedMessage) -> None:
        log.debug("a connection from %s ends: %s", self.client.remote, reason)
        self._buffer.clear()
        self._transport.abort()

    # Answering.

    def _start(self, envelope: Envelope) -> None:
        """Run the door as far as it goes without waiting; see net/eager.py."""
        context = copy_context()
        coroutine = self._door.answer(self.client, envelope)
        try:
            awaited = context.run(coroutine.send, None)
        except StopIteration as stop:
            self._write(stop.value)
            self._hear()
        except (Exception, asyncio.CancelledError):
            self._crash()
        else:
            self._task = self._loop.create_task(self._finish(coroutine, awaited), context=context)

    async def _finish(self, coroutine: Coroutine[Any, Any, bytes | None], awaited: Any) -> None:
        task = self._task
        assert task is not None, "runs as the connection's task"
        try:
            self._write(await resume(coroutine, awaited))
            self._hear()
        except asyncio.CancelledError:
            if task.cancelling():
                raise  # the server closes
            self._crash()
        except Exception:
            self._crash()
        finally:
            self._task = None
            if self._is_lost:
                self._forget()
        self._serve()

    def _hear(self) -> None:
        """Called after each answer: the client may be authenticated by then."""
        guest = self.guest
        if self.client.is_stranger:
            guest.estrange()
            guest.hear()
        elif not guest.is_known:
            guest.recognise()

    def _crash(self) -> None:
        """For failures outside of the door's own error handling."""
        log.exception("a message was not answered")
        self._transport.abort()

    def _write(self, answer: bytes | None) -> None:
        if answer is None:
            self._transport.close()  # what was asked for by a rule of faults
        elif answer and not self._transport.is_closing():
            self._heard_s = self._roster.now_s
            self._transport.write(answer)

    async def send(self, answer: bytes) -> bool:
        """One of several answers to a message. False: the client has disconnected."""
        self._write(answer)
        while self._is_write_paused and not self._is_lost:
            self._drained = self._loop.create_future()
            await self._drained
        return not self._is_lost and not self._roster.is_closing

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def _forget(self) -> None:
        self._roster.forget(self)
        self._door.bid_farewell(self.client)

    # The roster's side.

    def sweep(self, now_s: float) -> None:
        if self._is_lost:
            return
        patience = self._roster.patience
        if self._is_stalled(now_s):
            self._transport.abort()
        elif self._task is not None or self._is_write_paused or self._is_reading_held:
            pass  # it is our turn, not the client's
        elif self._buffer:
            late_s = now_s - self._begun_s - patience.body_grace_s
            is_slow = self.client.is_stranger or len(self._buffer) <= late_s * patience.body_bytes_per_s
            if late_s >= 0 and is_slow:
                self._transport.abort()
        else:
            idle_s = patience.idle_s or (limits.IDLE_SECONDS_MAX if self.client.is_stranger else 0)
            if idle_s and now_s - self._heard_s >= idle_s:
                self._transport.close()

    def _is_stalled(self, now_s: float) -> bool:
        """Whether the client does not read what is buffered for it."""
        unsent_bytes = self._transport.get_write_buffer_size()
        if not unsent_bytes or unsent_bytes < self._unsent_bytes or self._heard_s >= self._unsent_s:
            self._unsent_s = now_s
        self._unsent_bytes = unsent_bytes
        return bool(unsent_bytes) and now_s - self._unsent_s >= self._roster.patience.write_stall_s

    def retire(self) -> None:
        self.client.leave()  # commands that wait on its behalf end now
        if self._task is None and not self._buffer:
            self._transport.close()

    def abort(self) -> asyncio.Task[None] | None:
        if self._task is not None:
            self._task.cancel()
        self._transport.abort()
        return self._task


def _address(given: Any) -> tuple[str, int]:
    return (str(given[0]), int(given[1])) if isinstance(given, tuple) and len(given) >= 2 else ("127.0.0.1", 0)
