"""Moves rows from a source through the transforms to a sink. Several pages are under way at once; they are counted, and
remembered as done, in the order of the source, so that a place is behind everything that was done before it. Bad rows
go to a file, with number and reason, and the run goes on.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from armillary.errors import bad_request
from armillary.tools.transfer.checkpoint import Checkpoint
from armillary.tools.transfer.files.json_files import FileWriting
from armillary.tools.transfer.rows import BadRow, Page, Row, Sink, Source, Written
from armillary.tools.transfer.transforms import Transforms

_TELL_EVERY_S: Final = 1.0


class Totals(NamedTuple):
    rows: int
    bad_rows: int
    charge_ru: float
    refused: int = 0
    refused_ru: float = 0.0
    without_key: int = 0


class Progress(Protocol):
    def __call__(self, totals: Totals, share: float | None) -> None: ...


class BadRows:
    """The file of bad rows: made when there is the first one."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        """`size_bytes`: of what an earlier part of the run has written for good."""
        self.path = path
        self.first_reason: str | None = None  # of this part of the run
        self._file: FileWriting | None = None
        if size_bytes and path.exists():
            self._open(size_bytes)
        else:
            path.unlink(missing_ok=True)  # of an earlier run

    def _open(self, size_bytes: int | None) -> FileWriting:
        self._file = FileWriting(self.path)
        self._file.open(size_bytes)
        return self._file

    def write(self, bad: list[BadRow]) -> None:
        if bad:
            file, bad = self._file or self._open(None), sorted(bad)
            self.first_reason = self.first_reason or f"row {bad[0].number}: {bad[0].reason}"
            file.write(b"".join([each.to_json() for each in bad]))

    def synced_bytes(self) -> int:
        return self._file.synced_bytes() if self._file is not None else 0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _Running(NamedTuple):
    page: Page
    bad: list[BadRow]  # before the sink had a look
    task: asyncio.Task[Written]


class Pipeline:
    def __init__(
        self,
        source: Source,
        sink: Sink,
        transforms: Transforms,
        checkpoint: Checkpoint,
        bad_rows: BadRows,
        *,
        pages_at_once: int,
        progress: Progress = lambda totals, share: None,
    ) -> None:
        self._source = source
        self._sink = sink
        self._transforms = transforms
        self._checkpoint = checkpoint
        self._bad_rows = bad_rows
        self._pages_at_once = 1 if sink.is_ordered else pages_at_once
        self._progress = progress
        self._running: deque[_Running] = deque()
        self._share: float | None = None
        self._rows_shown = 0

    @property
    def totals(self) -> Totals:
        done = self._checkpoint
        return Totals(done.rows, done.bad_rows, done.charge_ru, done.refused, done.refused_ru, done.without_key)

    async def run(self) -> Totals:
        is_complete = False
        await self._sink.open(self._checkpoint.sink)
        telling = asyncio.create_task(self._tell())
        try:
            async for page in _closing(self._source.pages(self._checkpoint.source)):
                self._begin(page)
                while len(self._running) >= self._pages_at_once or (self._running and self._running[0].task.done()):
                    await self._finish_first()
            while self._running:
                await self._finish_first()
            is_complete = True
        finally:
            telling.cancel()
            for each in self._running:
                each.task.cancel()
            await asyncio.gather(telling, *[each.task for each in self._running], return_exceptions=True)
            if not is_complete and not self._sink.is_ordered and self._checkpoint.source is not None:
                self._save()  # of a file it is not known how much of the last page is in it
            await self._sink.close(is_complete=is_complete)
            self._bad_rows.close()
            await self._source.close()
        return self.totals

    def _begin(self, page: Page) -> None:
        rows: list[Row] = []
        bad: list[BadRow] = []
        for each in page.rows:
            row = self._transforms.apply(each) if isinstance(each, Row) else each
            if isinstance(row, Row):
                rows.append(row)
            else:
                bad.append(row)
        self._running.append(_Running(page, bad, asyncio.create_task(self._sink.write(rows))))

    async def _finish_first(self) -> None:
        page, bad, task = self._running[0]
        written = await task
        self._running.popleft()
        bad += written.bad
        self._bad_rows.write(bad)
        done = self._checkpoint
        done.rows += written.rows
        done.bad_rows += len(bad)
        done.charge_ru += page.charge_ru + written.charge_ru
        done.refused += written.refused
        done.refused_ru += written.refused_ru
        done.without_key += written.without_key
        done.source = page.position
        if self._sink.is_resumable and done.is_due:
            self._save()
        self._share = page.share
        self._show()

    def _show(self) -> None:
        """The rows of complete pages, of pages that wait for an earlier one, and of pages under way: they never become
        fewer."""
        waiting = sum(
            each.task.result().rows
            for each in self._running
            if each.task.done() and not each.task.cancelled() and each.task.exception() is None
        )
        done = self.totals
        ahead = waiting + self._sink.rows_ahead
        self._rows_shown = max(self._rows_shown, done.rows + ahead)
        self._progress(done._replace(rows=self._rows_shown), self._share_with(ahead))

    def _share_with(self, ahead: int) -> float | None:
        """The share of the source that is done, with the rows that are done of pages under way."""
        read = self._running[-1].page.share if self._running else None
        if read is None:
            return self._share
        done, rows = self._share or 0.0, sum(len(each.page.rows) for each in self._running)
        return done + (read - done) * min(1.0, ahead / max(1, rows))

    async def _tell(self) -> None:
        """Where throughput is short a page takes a while: what is done of it is shown, too."""
        while True:
            await asyncio.sleep(_TELL_EVERY_S)
            self._show()

    def _save(self) -> None:
        done = self._checkpoint
        done.sink, done.bad_bytes = self._sink.position(), self._bad_rows.synced_bytes()
        done.save()


async def _closing(pages: AsyncIterator[Page]) -> AsyncIterator[Page]:
    """Close the reader at the end, also if the run stops early."""
    try:
        async for page in pages:
            yield page
    except (OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split()).removesuffix(".")  # libraries say it in several lines
        raise bad_request(f"The source is damaged, or cannot be read on: {reason}.") from None
    finally:
        close: Callable[[], object] | None = getattr(pages, "aclose", None)
        if close is not None:
            await close()  # type: ignore[misc]
