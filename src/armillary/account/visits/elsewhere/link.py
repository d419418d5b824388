"""One connection between two processes: any number of questions in both directions at the same time, each with a number
of its own. A frame is a kind, the number, and a message.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any

from armillary.account.visits.elsewhere.message_table import MESSAGES
from armillary.account.visits.elsewhere.place import LocalPlace, Lost, Question, Told
from armillary.account.visits.elsewhere.remembered_answers import WriteIds
from armillary.errors import Failure, Kind
from armillary.partition.history.retryable_write_records import Repeated
from armillary.partition.operations import MemberFailed

log = logging.getLogger(__name__)

_head = struct.Struct(">BQ")
ASK, CANCEL, TELL, DONE, RAISED = range(5)


class Link:
    """`send` hands a frame to the connection; `received` is called with each that arrives."""

    def __init__(
        self, number: int, send: Callable[[bytes], None], write_ids: WriteIds, here: LocalPlace | None = None
    ) -> None:
        self.number = number  # of the place at the other end
        self.new_write_id = write_ids.next
        self._send = send
        self._here = here  # None: the other end only answers
        self._asked: dict[int, asyncio.Future[bytes]] = {}  # questions that wait for their answer
        self._answering: dict[int, tuple[asyncio.Task[None], bool]] = {}  # with whether it may be cancelled
        self._next = 0

    # Asking.

    async def ask(self, question: Question, *, limit_s: float) -> Any:
        loop = asyncio.get_running_loop()
        number = self._next
        self._next += 1
        frame = _head.pack(ASK, number) + MESSAGES.encode(question)
        answer: asyncio.Future[bytes] = loop.create_future()
        self._asked[number] = answer
        late = loop.call_later(limit_s, _expire, answer)
        try:
            self._send(frame)
            received = await answer
        except (asyncio.CancelledError, TimeoutError):
            self._send(_head.pack(CANCEL, number))
            raise
        finally:
            late.cancel()
            self._asked.pop(number, None)
        value = MESSAGES.decode(received[_head.size :])
        if received[0] == RAISED:
            if not isinstance(value, (Failure, MemberFailed, Repeated)):
                raise _unexpected()
            raise value
        return value

    def tell(self, message: Told) -> None:
        self._send(_head.pack(TELL, 0) + MESSAGES.encode(message))

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
            message = MESSAGES.decode(frame[_head.size :])
            if not isinstance(message, Told):
                raise _unexpected()
            message.take(self._here)
        else:
            raise _unexpected()

    def _begin(self, number: int, frame: bytes, here: LocalPlace) -> None:
        try:
            question = MESSAGES.decode(frame[_head.size :])
            if not isinstance(question, Question):
                raise _unexpected()
        except Failure as failure:
            self._send(_head.pack(RAISED, number) + MESSAGES.encode(failure))
            return
        if number in self._answering:
            return  # it came twice
        task = asyncio.get_running_loop().create_task(self._answer(number, question, here))
        self._answering[number] = task, question.write_id is None

    async def _answer(self, number: int, question: Question, here: LocalPlace) -> None:
        try:
            write_id = question.write_id
            if write_id is None:
                encoded = await _encoded_answer(question, here)
            else:
                try:
                    encoded = await here.remembered.once(write_id, lambda: _encoded_answer(question, here))
                except Failure as failure:
                    encoded = bytes([RAISED]) + MESSAGES.encode(failure)
            self._send(_head.pack(encoded[0], number) + encoded[1:])
        finally:
            self._answering.pop(number, None)

    def lost(self) -> None:
        """The connection has ended."""
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(Lost())
        for task, may_cancel in list(self._answering.values()):
            if may_cancel:
                task.cancel()


async def _encoded_answer(question: Question, here: LocalPlace) -> bytes:
    """The kind of the frame, and the message."""
    try:
        return bytes([DONE]) + MESSAGES.encode(await question.answer(here))
    except (Failure, MemberFailed, Repeated) as error:
        return bytes([RAISED]) + MESSAGES.encode(error)
    except Exception:
        log.exception("a question of another process could not be answered")
        return bytes([RAISED]) + MESSAGES.encode(Failure(Kind.INTERNAL, "An unknown error has occurred."))


def _expire(answer: asyncio.Future[bytes]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


def _unexpected() -> Failure:
    return Failure(Kind.INTERNAL, "A message of another process of the cluster is not what it should be.")
