"""One connection of the Gremlin door: bytes to WebSocket messages, messages to the door, answers back.

The frames themselves are the websockets library's, used without its own I/O. Requests of one connection may overlap, as
drivers match answers by their ids; each is started without a Task, as `net/connection.py` does it. Reading stops while
too many run, so that a connection holds a bounded number of messages. What messages mean is `door.py`'s part.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Coroutine
from contextvars import copy_context
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.utils import apply_mask

from armillary import limits
from armillary.doors.gremlin.authentication import Client
from armillary.net.connection_limits import Guest
from armillary.net.eager import resume
from armillary.net.hosts import ANY_HOST, FOREIGN_HOST, FOREIGN_ORIGIN, HostNames
from armillary.net.service import Roster, log

if TYPE_CHECKING:
    from armillary.doors.gremlin.door import GremlinDoor

_QUIET: Final = logging.getLogger("armillary.websockets")  # connections are not worth a log line
_QUIET.setLevel(logging.WARNING)
# Drivers name themselves since TinkerPop 3.5.5: "NotAvailable Gremlin-Python.3.6.8 …".
_OLD_DRIVER: Final = re.compile(r"\bGremlin-\w+\.3\.[0-6]\.")
_HEAD_END: Final = b"\r\n\r\n"
_WSS_ONLY: Final = b"This server takes TLS only: use wss."
_WHOLE_BINARY: Final = 0x82  # the first byte of a frame
_MASKED: Final = 0x80  # in its second byte, beside the length
_SHORT_MAX: Final = 0xFFFF
_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)

PLAIN_REFUSAL: Final = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
    % (len(_WSS_ONLY), _WSS_ONLY)
)


class Connection(asyncio.Protocol):
    _transport: asyncio.Transport

    def __init__(
        self, door: GremlinDoor, roster: Roster, hosts: HostNames = ANY_HOST, guest: Guest | None = None
    ) -> None:
        self._door = door
        self.guest = guest or roster.crowd.seat()
        self._hosts = hosts
        self._roster = roster
        self._loop = roster.loop
        self._socket = ServerProtocol(max_size=limits.GREMLIN_STRANGER_BYTES_MAX, logger=_QUIET)
        self.client = Client(self)
        self._head = bytearray()
        self._fragments: list[bytes] = []
        self._fragment_bytes = 0
        self._frames = 0
        self._to_come = 0  # bytes of a frame that has begun; -1: it is not known where a frame begins
        self._begun_s = roster.now_s  # when the head, or the message, began that is not complete yet
        self._unfinished_bytes = 1  # of it; a new connection owes us a head
        self._is_text = False
        self._waiting: deque[tuple[bytes, bool]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_held = False
        self._is_write_paused = False
        self._is_lost = False
        self._drained: asyncio.Future[None] | None = None
        self._heard_s = roster.now_s
        self._unsent_s = roster.now_s
        self._unsent_bytes = 0

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client.address = str(peer[0]) if peer else ""
        self.guest.evict = self._transport.abort
        is_admitted = self._roster.admit(self)
        if self._roster.is_closing or not is_admitted or self.guest.is_gone:
            self._transport.close()

    def connection_lost(self, exception: Exception | None) -> None:
        self._is_lost = self.client.is_gone = True
        self._waiting.clear()
        self._wake()
        if not self._tasks:
            self._roster.forget(self)

    def eof_received(self) -> bool:
        self._socket.receive_eof()
        self._flush()
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._wake()

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._roster.now_s
        if self._socket.state is State.CONNECTING:
            self._open(data)
        else:
            self._receive(data)
        self._measure()

    def _measure(self) -> None:
        """How much is held of what is not complete yet, and since when."""
        unfinished_bytes = len(self._head) + self._fragment_bytes + len(self._socket.reader.buffer)
        if unfinished_bytes and not self._unfinished_bytes:
            self._begun_s = self._roster.now_s
        self._unfinished_bytes = unfinished_bytes
        if not self.guest.is_known:
            self.guest.hold(unfinished_bytes + self.client.pending_bytes)

    def _recognise(self) -> None:
        """Its credentials have come: messages may be longer from now on."""
        self.guest.recognise()
        self._socket.max_message_size = limits.GREMLIN_MESSAGE_BYTES_MAX

    def _open(self, data: bytes) -> None:
        """The request to begin is handed over by itself: frames that come with it are for after its answer."""
        looked_at = max(0, len(self._head) - len(_HEAD_END) + 1)
        self._head += data
        end = self._head.find(_HEAD_END, looked_at)
        if end < 0:
            if len(self._head) > limits.HEAD_BYTES_MAX:
                self._transport.abort()
            return
        end += len(_HEAD_END)
        head, rest = bytes(self._head[:end]), bytes(self._head[end:])
        self._head.clear()
        self._read_by_library(head)
        if rest and not self._transport.is_closing():
            self._receive(rest)

    def _receive(self, data: bytes) -> None:
        if self._to_come or len(data) > _SHORT_MAX or not self._take_message(data):
            self._to_come = _to_come(data, self._to_come)
            self._read_by_library(data)

    def _take_message(self, data: bytes) -> bool:
        """Take a whole message that is short and came alone, as most do, without the library's parser."""
        size = len(data)
        if size < 6 or data[0] != _WHOLE_BINARY or self._fragments or not self.guest.is_known:
            return False
        begin, length = 6, data[1] - _MASKED
        if length == 126:
            begin, length = 8, int.from_bytes(data[2:4], "big")
        if not 0 <= length == size - begin or data[1] == _MASKED + 127 or self._socket.state is not State.OPEN:
            return False
        self._waiting.append((apply_mask(data[begin:], data[begin - 4 : begin]), False))
        self._serve()
        return True

    def _read_by_library(self, data: bytes) -> None:
        at = 0
        while not self.guest.is_known and at < len(data):
            # In pieces, so that frames are counted before there are many of them.
            end = at + limits.GREMLIN_STRANGER_PIECE_BYTES
            self._read(data[at:end])
            at = end
            if self._frames > limits.GREMLIN_STRANGER_FRAMES_MAX:
                self.close(CloseCode.POLICY_VIOLATION)
            if self._transport.is_closing():
                return
        if at < len(data):
            self._read(data[at:])

    def _read(self, data: bytes) -> None:
        self._socket.receive_data(data)
        for event in self._socket.events_received():
            if isinstance(event, Frame):
                self._take(event)
            elif isinstance(event, Request):
                self.client.reads_properties = _OLD_DRIVER.search(event.headers.get("User-Agent", "")) is None
                self._socket.send_response(self._answer_to(event))
        self._flush()
        self._serve()

    def _answer_to(self, request: Request) -> Response:
        """A browser opens WebSockets to any site for any page, and leaves it to the server to look at the origin."""
        headers = request.headers
        hosts, origins = headers.get_all("Host"), headers.get_all("Origin")
        if not self._hosts.takes_all:
            if len(hosts) != 1 or not self._hosts.is_ours(hosts[0]):
                return self._socket.reject(HTTPStatus.FORBIDDEN, FOREIGN_HOST)
            if any(not self._hosts.is_own_origin(origin, hosts[0]) for origin in origins):
                return self._socket.reject(HTTPStatus.FORBIDDEN, FOREIGN_ORIGIN)
        return self._socket.accept(request)

    def _take(self, frame: Frame) -> None:
        """A piece of a message. Pings and closings are answered by the library."""
        self._frames += 1
        if frame.opcode not in _DATA:
            return
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        if frame.fin and not self._fragments:
            self._waiting.append((bytes(frame.data), self._is_text))
            return
        self._fragments.append(bytes(frame.data))
        self._fragment_bytes += len(frame.data)
        if frame.fin:
            self._waiting.append((b"".join(self._fragments), self._is_text))
            self._fragments.clear()
            self._fragment_bytes = 0

    def _flush(self) -> None:
        for data in self._socket.data_to_send():
            if self._transport.is_closing():
                return
            if data:
                self._transport.write(data)
            else:
                self._transport.close()
        if self._socket.state is State.CLOSED or self._socket.close_expected():
            self._transport.close()

    # Answering.

    def _serve(self) -> None:
        """Begin what has come, as long as not too much runs."""
        while self._waiting and not self._is_lost:
            if len(self._tasks) >= limits.GREMLIN_REQUESTS_AT_ONCE or self._is_write_paused:
                break
            self._start(*self._waiting.popleft())
            if not self.guest.is_known and self._waiting:
                # Of a stranger one message in a turn: whatever it sends, others have their turn between two.
                self._loop.call_soon(self._serve)
                break
        is_held = bool(self._waiting) and not self._is_lost
        if is_held != self._is_held and not self._transport.is_closing():
            self._is_held = is_held
            if is_held:
                self._transport.pause_reading()
            else:
                self._begun_s = self._roster.now_s  # the time that we made the client wait is not its own
                self._transport.resume_reading()

    def _start(self, message: bytes, is_text: bool) -> None:
        """Run the door as far as it goes without waiting; see net/eager.py."""
        context = copy_context()
        coroutine = self._door.answer(self.client, message, is_text)
        try:
            awaited = context.run(coroutine.send, None)
        except StopIteration:
            self._hear()
            return
        except (Exception, asyncio.CancelledError):
            self._crash()
            return
        self._hear()
        task = self._loop.create_task(self._finish(coroutine, awaited), context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _hear(self) -> None:
        """Credentials are looked at before a message waits for anything."""
        if self.guest.is_known:
            return
        if self.client.principal is not None:
            self._recognise()
        else:
            self.guest.hear()

    async def _finish(self, coroutine: Coroutine[Any, Any, None], awaited: Any) -> None:
        try:
            await resume(coroutine, awaited)
        except Exception:
            self._crash()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._is_lost:
            if not self._tasks:
                self._roster.forget(self)
            return
        if self._roster.is_closing and not self._tasks and not self._waiting:
            self.close(CloseCode.GOING_AWAY)
        self._serve()

    def _crash(self) -> None:
        """The door answers for everything that goes wrong in it; this is for what goes wrong in that."""
        log.exception("a message was not answered")
        self._transport.abort()

    # The client's side.

    def send(self, message: bytes, is_text: bool) -> None:
        if self._is_lost or self._transport.is_closing() or self._socket.state is not State.OPEN:
            return
        self._heard_s = self._roster.now_s
        size = len(message)
        if not is_text and size <= _SHORT_MAX:  # the frame that the library would make
            head = b"\x82" + bytes((size,)) if size < 126 else b"\x82\x7e" + size.to_bytes(2, "big")
            self._transport.write(head + message)
            return
        if is_text:
            self._socket.send_text(message)
        else:
            self._socket.send_binary(message)
        self._flush()

    async def drained(self) -> None:
        """Wait until the client takes what it was sent."""
        while self._is_write_paused and not self._is_lost:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await self._drained

    def close(self, code: int) -> None:
        if self._socket.state is State.OPEN:
            self._socket.send_close(code)
            self._flush()
        self._transport.close()

    def hang_up(self) -> None:
        self._transport.abort()

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None
        if not self._is_lost:
            # Not from inside the transport's own flush: an answer written here could pause and resume us recursively.
            self._loop.call_soon(self._serve)

    # The roster's side.

    def sweep(self, now_s: float) -> None:
        if self._is_lost:
            return
        unsent_bytes = self._transport.get_write_buffer_size()
        if not unsent_bytes or unsent_bytes < self._unsent_bytes or self._heard_s >= self._unsent_s:
            self._unsent_s = now_s
        self._unsent_bytes = unsent_bytes
        if (unsent_bytes and now_s - self._unsent_s >= self._roster.patience.write_stall_s) or (
            self._unfinished_bytes and self._is_late(now_s)
        ):
            self._transport.abort()
        elif not self._tasks:
            idle_s = limits.GREMLIN_IDLE_SECONDS if self.client.principal is not None else limits.IDLE_SECONDS_MAX
            if now_s - self._heard_s >= idle_s:
                self.close(CloseCode.NORMAL_CLOSURE)

    def _is_late(self, now_s: float) -> bool:
        """Whether a head or a message takes too long to come: all of it for strangers, a rate for others."""
        patience = self._roster.patience
        if not self.guest.is_known:
            return now_s - self._begun_s >= patience.head_s
        late_s = now_s - self._begun_s - patience.body_grace_s
        return not self._is_held and late_s >= 0 and self._unfinished_bytes <= late_s * patience.body_bytes_per_s

    def retire(self) -> None:
        if not self._tasks and not self._waiting:
            self.close(CloseCode.GOING_AWAY)

    def abort(self) -> asyncio.Task[None] | None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        self._transport.abort()
        return tasks[0] if tasks else None


def _to_come(data: bytes, at: int) -> int:
    """How many bytes of a frame are still to come behind `data`, the first `at` bytes of which end one; -1: the data
    end within the head of a frame, so nothing is known of what follows."""
    size = len(data)
    while 0 <= at < size:
        begin, length = 6, data[at + 1] & 0x7F if at + 1 < size else 128
        if length == 126:
            begin, length = 8, int.from_bytes(data[at + 2 : at + 4], "big")
        elif length == 127:
            begin, length = 14, int.from_bytes(data[at + 2 : at + 10], "big")
        if at + begin > size:
            return -1
        at += begin + length
    return at - size if at >= 0 else -1
