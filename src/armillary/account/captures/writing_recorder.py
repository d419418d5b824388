"""Writing of a capture: its lines are compressed and stored in a thread, those of this process and those that other
processes of the server have recorded (`share_recorder.py`).
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from armillary import limits
from armillary.account.captures.capture_lines import Statuses
from armillary.account.captures.capture_store import STOPPED, CaptureRecord, CaptureStore
from armillary.account.captures.recorder import Recorder
from armillary.account.captures.share_recorder import Shares
from armillary.clock import Clock
from armillary.model.keys import PartitionKeyDefinition

log = logging.getLogger(__name__)

_LEVEL: Final = 1  # of compression: the lines are mostly digests, which a higher level does not make smaller
_FULL: Final = "it has as many requests as it may"


class WritingRecorder(Recorder):
    """`on_end` is called when it has ended by itself."""

    def __init__(
        self,
        record: CaptureRecord,
        store: CaptureStore,
        key: PartitionKeyDefinition | None,
        statuses: Statuses,
        clock: Clock,
        shares: Shares | None,
        on_end: Callable[[], None],
    ) -> None:
        """`shares`: of other processes of the server; None: it has one."""
        super().__init__(record, key, statuses, clock)
        self._store = store
        self._others = shares
        self._on_end = on_end
        self._ends_s = self._begun_s + record.seconds
        self._writing = asyncio.Lock()
        self._task = asyncio.get_running_loop().create_task(self._keep_writing())
        self._task.add_done_callback(_report)

    async def _keep_writing(self) -> None:
        while self.is_open:
            due = asyncio.ensure_future(self._is_due.wait())
            pause = asyncio.ensure_future(self._clock.sleep(limits.CAPTURE_FLUSH_SECONDS))
            try:
                await asyncio.wait((due, pause), return_when=asyncio.FIRST_COMPLETED)
            finally:
                due.cancel()
                pause.cancel()
            self._is_due.clear()
            if self._now_s() >= self._ends_s:
                self.end("its time is over")
            await self.write()
        await self.write()
        await self._save()

    async def write(self) -> None:
        """Store what has been recorded until now."""
        async with self._writing:
            own = self._take_lines()
            lines = own if self._others is None else await self._with_others(own, self._others)
            if lines:
                await self._append(lines)
                self._let_go(own)

    async def _with_others(self, own: list[bytes], shares: Shares) -> list[bytes]:
        """The lines of all processes, in the order of time."""
        shared, reason = await shares.take(self.record, is_last=not self.is_open)
        if not shared:
            if reason:
                self.end(reason)
            return own
        shared = shared[: max(0, self.record.limit - self._taken)]
        self._taken += len(shared)
        if self._taken >= self.record.limit or reason:
            self.end(reason if self._taken < self.record.limit else _FULL)
        return sorted(own + shared, key=_time_of)

    async def _append(self, lines: Sequence[bytes]) -> None:
        content = await asyncio.get_running_loop().run_in_executor(None, _compressed, lines)
        record = self.record
        if record.size_bytes + len(content) > limits.CAPTURE_BYTES_MAX:
            self._lose(lines, "its file has the largest size that it may have")
            return
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._store.append, record, content)
        except OSError as error:
            self._lose(lines, f"its file cannot be written: {error.strerror}")
            return
        record.size_bytes += len(content)
        record.requests += len(lines)
        await self._save()

    def _lose(self, lines: Sequence[bytes], reason: str) -> None:
        self.record.missed += len(lines)
        self.end(reason)
        self.record.reason = reason  # also where it had been stopped already

    async def _save(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._store.save, self.record)
        except OSError as error:
            log.warning("the record of the capture %s cannot be written: %s", self.record.id, error.strerror)

    # Its end.

    def end(self, reason: str) -> None:
        if self.is_open:
            self.is_open, self._most = False, 0
            self.record.state, self.record.reason = STOPPED, reason
            self.record.ended_s = self._clock.now_s()
            self._is_due.set()
            self._on_end()

    async def finish(self) -> None:
        """Wait until everything of a capture that has ended is written."""
        await asyncio.wait([self._task])


def _time_of(line: bytes) -> int:
    return int(line[line.index(b":") + 1 : line.index(b",")])  # {"t":12,


def _compressed(lines: Sequence[bytes]) -> bytes:
    made = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
    return made.compress(b"".join(lines)) + made.flush()


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("a capture has ended", exc_info=task.exception())
