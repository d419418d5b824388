"""At most once: a write that is asked again, because the connection was lost or a message came twice, is not done
again. Its first answer is remembered as it was sent, longer than the process that asked goes on asking.

Where memory ends before, the oldest answers are forgotten, and it is noted up to which number of the asking process: a
write that is asked again after that is refused, for it may have been done.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind

_ASKER_BYTES = 8  # of a write's id; then its number and the run of the process that it was first asked of
_NUMBER_END = 16


class WriteIds:
    """The ids of the writes that one process asks of others, to which the link adds the run of the other one."""

    def __init__(self, clock: Clock) -> None:
        self._asker = clock.random_bytes(_ASKER_BYTES)
        self._number = 0

    def next(self) -> bytes:
        self._number += 1
        return self._asker + self._number.to_bytes(_NUMBER_END - _ASKER_BYTES, "big")


class _Answer(NamedTuple):
    given_s: float
    size_bytes: int


class RememberedAnswers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.run = clock.random_bytes(_ASKER_BYTES)  # of this process, which knows nothing of the writes of former ones
        self._answers: dict[bytes, asyncio.Future[bytes]] = {}
        self._given: OrderedDict[bytes, _Answer] = OrderedDict()  # oldest first
        self._size_bytes = 0
        self._forgotten: OrderedDict[bytes, int] = OrderedDict()  # by process that asks: all numbers up to this one

    async def once(self, write_id: bytes, work: Callable[[], Awaitable[bytes]]) -> bytes:
        """The answer of the work, which is begun unless it was before. It does not raise."""
        known = self._answers.get(write_id)
        if known is not None:
            return await asyncio.shield(known)
        asker, number = _parts(write_id)
        if write_id[_NUMBER_END:] != self.run or number <= self._forgotten.get(asker, -1):
            raise _may_be_done()
        answer = self._answers[write_id] = asyncio.get_running_loop().create_future()
        try:
            encoded = await work()
        except BaseException:
            del self._answers[write_id]
            answer.cancel()
            raise
        answer.set_result(encoded)
        now_s = self._clock.elapsed_s()
        self._given[write_id] = _Answer(now_s, len(encoded))
        self._size_bytes += len(encoded)
        self._forget(now_s)
        return encoded

    def _forget(self, now_s: float) -> None:
        given = self._given
        while given:
            write_id, oldest = next(iter(given.items()))
            is_room = len(given) <= limits.REMEMBERED_MAX and self._size_bytes <= limits.REMEMBERED_BYTES_MAX
            if is_room and now_s - oldest.given_s < 2 * limits.VISIT_SECONDS_MAX:
                return
            del given[write_id], self._answers[write_id]
            self._size_bytes -= oldest.size_bytes
            asker, number = _parts(write_id)
            self._forgotten[asker] = max(number, self._forgotten.pop(asker, -1))
            if len(self._forgotten) > limits.REMEMBERED_ASKERS_MAX:
                self._forgotten.popitem(last=False)


def _parts(write_id: bytes) -> tuple[bytes, int]:
    return write_id[:_ASKER_BYTES], int.from_bytes(write_id[_ASKER_BYTES:_NUMBER_END], "big")


def _may_be_done() -> Failure:
    return Failure(
        Kind.UNAVAILABLE,
        "Whether this write was stored is not known: it was asked for too long ago. Read before writing it again.",
    )
