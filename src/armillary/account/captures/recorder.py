"""Recording of the requests of one container. A `Recorder` takes notes of requests for one capture and makes lines of
them, until it is stopped or has reached one of its bounds. `writing_recorder.py` stores the lines.

Where captures run, a container has a `Recording`, which hands each note to all of them; otherwise it has none, and that
is all that a request tests.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Final

from armillary import limits
from armillary.account.captures.capture_lines import Lines, PointRead, Read, Statuses
from armillary.account.captures.capture_store import CaptureRecord
from armillary.account.captures.notes import REQUEST, Note, Request
from armillary.account.captures.value_digests import Digests
from armillary.clock import Clock
from armillary.errors import Failure
from armillary.model.keys import Key, PartitionKeyDefinition

log = logging.getLogger(__name__)

_UNKNOWN: Final = Request("server", "")  # of work that no door has asked for
_HASHED: Final = 1 << 32
_READS_TOGETHER: Final = 64


class Recorder(ABC):
    """One capture that runs."""

    def __init__(
        self,
        record: CaptureRecord,
        key: PartitionKeyDefinition | None,
        statuses: Statuses,
        clock: Clock,
        ran_s: float = 0.0,
    ) -> None:
        """`ran_s`: how long it has been running."""
        self.record = record
        self.is_open = True
        self._clock = clock
        self._lines = Lines(Digests(bytes.fromhex(record.secret)), key, statuses, keeps_values=record.keeps_values)
        self._now_s = clock.monotonic_s
        self._begun_s = clock.monotonic_s() - ran_s
        self._below = round(record.share * _HASHED)
        self._taken = 0  # lines, those that wait included
        self._most = record.limit  # lines that it takes; 0: none for now, or none any more
        self._reads: list[PointRead] = []  # whose lines are not made yet
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._is_due = asyncio.Event()

    @abstractmethod
    def end(self, reason: str) -> None:
        """Record no more."""

    def add(self, request: Request, notes: Sequence[Note], parts: Sequence[int]) -> None:
        """Called with each request, so it never fails and never waits."""
        if self._below < _HASHED and not self._shares(request):
            return
        t_ms = int((self._now_s() - self._begun_s) * 1000)
        if self._reads:
            self._write_reads()
        for note in notes:
            if self._taken < self._most:
                self._keep(self._lines.line(note, request, parts, t_ms))
                self._count()
            elif self.is_open:
                self.record.missed += 1

    def add_read(self, request: Request, key: Key | None, item_id: str, answer: Read, part: int) -> None:
        """The same for a point read, the commonest request. Its line is made with those of others: one by one they
        would take twice as long, for the processor's caches have other things to do between two requests."""
        if self._below < _HASHED and not self._shares(request):
            return
        if self._taken < self._most:
            payload = answer.payload
            size_bytes = -1 if payload is None else len(payload)
            charge_ru = answer.charge_ru
            self._reads.append((request, key, item_id, answer.result, charge_ru, size_bytes, part, self._now_s()))
            self._count()
            if len(self._reads) >= _READS_TOGETHER:
                self._write_reads()
        elif self.is_open:
            self.record.missed += 1

    def _write_reads(self) -> None:
        reads, self._reads = self._reads, []
        line, begun_s = self._lines.read, self._begun_s
        for each in reads:
            self._keep(line(each, int((each[-1] - begun_s) * 1000)))

    def _count(self) -> None:
        self._taken += 1
        if self._taken == self.record.limit:
            self.end("it has as many requests as it may")

    def _shares(self, request: Request) -> bool:
        return zlib.crc32(request.activity.encode("utf-8", "replace")) < self._below

    def _keep(self, line: bytes) -> None:
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes >= limits.CAPTURE_FLUSH_BYTES:
            self._is_due.set()
            if self._waiting_bytes >= limits.CAPTURE_WAITING_BYTES_MAX:
                self._most = 0  # until some of it is written

    def _take_lines(self) -> list[bytes]:
        """What has been recorded, and is not to wait any more."""
        try:
            self._write_reads()
        except Exception:
            self.break_off()
        lines, self._waiting = self._waiting, []
        return lines

    def _let_go(self, lines: Sequence[bytes]) -> None:
        """They are kept elsewhere now: there is room for others."""
        self._waiting_bytes -= sum(map(len, lines))
        if self.is_open:
            self._most = self.record.limit

    def break_off(self) -> None:
        """A line could not be made. The request is answered all the same: it may have written already."""
        log.exception("the capture %s ends", self.record.id)
        self.end("a request could not be recorded; the server's log has the reason")


class Recording:
    """The captures of one container that run. Each request is also told what was done for it, for logs and traces."""

    def __init__(self, recorders: Iterable[Recorder]) -> None:
        self._recorders = tuple(recorders)

    def add_read(self, key: Key | None, item_id: str, answer: Read, part: int) -> None:
        request = REQUEST.get() or _UNKNOWN
        request.partitions.add(part)
        request.rows += answer.payload is not None
        for recorder in self._recorders:
            try:
                recorder.add_read(request, key, item_id, answer, part)
            except Exception:
                recorder.break_off()

    def add(self, notes: Sequence[Note], parts: Sequence[int]) -> None:
        request = REQUEST.get() or _UNKNOWN
        request.count(notes, parts)
        for recorder in self._recorders:
            try:
                recorder.add(request, notes, parts)
            except Exception:
                recorder.break_off()

    def fail(self, notes: Sequence[Note], parts: Sequence[int], failure: Failure) -> None:
        """The same for operations that failed together; the first has what the failure costs."""
        for note in notes:
            note.outcome, note.charge_ru, note.rows = failure.kind, 0.0, 0
        if notes:
            notes[0].charge_ru = failure.charge_ru
        self.add(notes, parts)
