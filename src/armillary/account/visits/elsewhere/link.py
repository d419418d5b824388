"""One connection between two processes: any number of questions in both directions at the same time, each with a number
of its own. A frame is a kind, the number, and a message.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from armillary import limits
from armillary.account.visits.elsewhere.message_table import MESSAGES
from armillary.account.visits.elsewhere.place import LocalPlace, Lost, Question, Told
from armillary.account.visits.elsewhere.remembered_answers import WriteIds
from armillary.errors import Failure, Kind
from armillary.model.messages.codec import Codec
from armillary.partition.history.retryable_write_records import Repeated
from armillary.partition.operations import MemberFailed

log = logging.getLogger(__name__)

_head = struct.Struct(">BQ")
ASK, CANCEL, TELL, DONE, RAISED = range(5)


class Link:
    """`send` hands a frame to the connection; `received` is called with each that arrives."""

    def __init__(
        self,
        number: int,
        send: Callable[[bytes], None],
        write_ids: WriteIds,
        here: LocalPlace | None = None,
        codec: Codec = MESSAGES,
    ) -> None:
        self.number = number  # of the place at the other end
        self.peer = b""  # the run of the process at the other end, by which it knows whether it remembers a write
        self._write_ids = write_ids
        self._send = send
        self._codec = codec
        self._here = here  # None: the other end only answers
        self._asked: dict[int, asyncio.Future[bytes]] = {}  # questions that wait for their answer
        self._answering: dict[int, tuple[asyncio.Task[None], bool]] = {}  # with whether it may be cancelled
        self._next = 0
        self._bytes = 0  # of questions under way
        self._waiting: deque[asyncio.Future[None]] = deque()  # questions that are not sent yet, oldest first

    # Asking.

    def new_write_id(self) -> bytes:
        return self._write_ids.next() + self.peer

    async def ask(self, question: Question, *, limit_s: float) -> Any:
        loop = asyncio.get_running_loop()
        number = self._next
        self._next += 1
        frame = _head.pack(ASK, number) + self._codec.encode(question)
        if self._is_full or self._waiting:
            await self._room(min(limit_s, limits.LINK_WAIT_SECONDS_MAX))
        answer: asyncio.Future[bytes] = loop.create_future()
        self._asked[number] = answer
        self._bytes += len(frame)
        late = loop.call_later(limit_s, _expire, answer)
        try:
            self._send(frame)
            received = await answer
        except (asyncio.CancelledError, TimeoutError):
            self._send(_head.pack(CANCEL, number))
            raise
        finally:
            late.cancel()
            del self._asked[number]
            self._bytes -= len(frame)
            if self._waiting:
                self._let_in()
        value = self._codec.decode(received[_head.size :])
        if received[0] == RAISED:
            if not isinstance(value, (Failure, MemberFailed, Repeated)):
                raise _unexpected()
            raise value
        return value

    @property
    def _is_full(self) -> bool:
        return len(self._asked) >= limits.LINK_QUESTIONS_MAX or self._bytes >= limits.LINK_BYTES_MAX

    async def _room(self, limit_s: float) -> None:
        """Wait until fewer questions are under way."""
        turn = asyncio.get_running_loop().create_future()
        late = asyncio.get_running_loop().call_later(limit_s, _expire, turn)
        self._waiting.append(turn)
        try:
            await turn
        except TimeoutError:
            raise _too_much() from None
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._let_in()  # its turn had come
            raise
        finally:
            late.cancel()
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _let_in(self) -> None:
        """The oldest that waits goes on. Each that is answered lets one in, so their number stays."""
        while self._waiting and not self._is_full:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def tell(self, message: Told) -> None:
        self._send(_head.pack(TELL, 0) + self._codec.encode(message))

    # Answering.

    def received(self, frame: bytes) -> None:
        if len(frame) < _head.size:
            raise _unexpected()
        kind, number = _head.unpack_from(frame)
        if kind in (DONE, RAISED):
            answer = self._asked.get(number)
            if answer is not None and not answer.done():  # else it came twice, or too late
                answer.set_result(frame)
        elif kind == CANCEL:
            running = self._answering.get(number)
            if running is not None and running[1]:
                running[0].cancel()
        elif self._here is None:
            raise _unexpected()
        elif kind == ASK:
            self._begin(number, frame, self._here)
        elif kind == TELL:
            message = self._codec.decode(frame[_head.size :])
            if not isinstance(message, Told):
                raise _unexpected()
            message.take(self._here)
        else:
            raise _unexpected()

    def _begin(self, number: int, frame: bytes, here: LocalPlace) -> None:
        try:
            question = self._codec.decode(frame[_head.size :])
            if not isinstance(question, Question):
                raise _unexpected()
        except Failure as failure:
            self._send(_head.pack(RAISED, number) + self._codec.encode(failure))
            return
        if number in self._answering:
            return  # it came twice
        task = asyncio.get_running_loop().create_task(self._answer(number, question, here))
        self._answering[number] = task, question.write_id is None

    async def _answer(self, number: int, question: Question, here: LocalPlace) -> None:
        try:
            write_id = question.write_id
            if write_id is None:
                encoded = await self._encoded(question, here)
            else:
                try:
                    encoded = await here.remembered.once(write_id, lambda: self._encoded(question, here))
                except Failure as failure:
                    encoded = bytes([RAISED]) + self._codec.encode(failure)
            self._send(_head.pack(encoded[0], number) + encoded[1:])
        finally:
            self._answering.pop(number, None)

    async def _encoded(self, question: Question, here: LocalPlace) -> bytes:
        """The kind of the frame, and the message."""
        encode = self._codec.encode
        try:
            return bytes([DONE]) + encode(await question.answer(here))
        except (Failure, MemberFailed, Repeated) as error:
            return bytes([RAISED]) + encode(error)
        except Exception:
            log.exception("a question of another process could not be answered")
            return bytes([RAISED]) + encode(Failure(Kind.INTERNAL, "An unknown error has occurred."))

    def lost(self) -> None:
        """The connection has ended."""
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(Lost())
        for task, may_cancel in list(self._answering.values()):
            if may_cancel:
                task.cancel()


def _expire(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


def _too_much() -> Failure:
    return Failure(
        Kind.UNAVAILABLE,
        "Too many requests wait for the process that holds the partition. Try again.",
        retry_after_ms=limits.CLUSTER_RETRY_MS,
    )


def _unexpected() -> Failure:
    return Failure(Kind.INTERNAL, "A message of another process of the cluster is not what it should be.")
