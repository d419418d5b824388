"""The history of load of all containers: collects what the partitions' meters have counted every ten seconds, keeps it
within a limit of memory, and saves it every minute. What was counted, and when nothing was counted because the server
did not run, outlives a restart.

Time is the account's: with a movable clock, the server's own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from armillary import limits
from armillary.account.container import Container
from armillary.account.load_history.columns import PackedColumn
from armillary.account.load_history.layers import KEYS_NOTED_MAX, ContainerHistory, Reshaped
from armillary.account.load_history.stored_history import Runs, StoredHistory
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.partition.load_rows import RowCounts
from armillary.partition.meter import Meter

log = logging.getLogger(__name__)

_OLDEST_S = max(kept_s for _, kept_s in limits.HISTORY_LAYERS)


class LoadHistory:
    """`memory_bytes` 0: off. `path` None: nothing is saved."""

    def __init__(self, clock: Clock, memory_bytes: int = limits.HISTORY_MEMORY_BYTES, path: Path | None = None) -> None:
        self._clock = clock
        self._memory_bytes = memory_bytes
        self._path = path if memory_bytes else None
        self._stored: StoredHistory | None = None
        self._histories: dict[bytes, ContainerHistory] = {}  # by the container's rid
        self._runs: Runs = [[clock.now_s(), clock.now_s()]]
        self._containers: Callable[[], list[Container]] = list
        self._task: asyncio.Task[None] | None = None
        self._column = self._now_column()
        self._minute = self._now_minute()
        self._unsaved: list[tuple[ContainerHistory, PackedColumn]] = []
        self._saved_reshapes: dict[bytes, float] = {}  # the time of the last that was saved, by rid
        # Of several processes, the first one collects: it asks the others for their figures, among them the columns of
        # partitions that are gone. These are kept for it here.
        self.refresh: Callable[[int], Awaitable[None]] | None = None
        self._left_rows: dict[bytes, list[RowCounts]] | None = None

    @property
    def is_on(self) -> bool:
        return self._memory_bytes > 0

    async def open(self) -> None:
        """Read what was saved."""
        if self._path is None:
            return
        try:
            self._stored, self._histories, runs = await StoredHistory.open(self._path)
        except OSError as error:
            log.warning("the history of load cannot be read: %s", error.strerror or "unknown reason")
            return
        now_s = self._clock.now_s()
        self._runs = [run for run in runs if run[1] > now_s - _OLDEST_S] + self._runs
        for history in self._histories.values():
            history.age(now_s)
            self._saved_reshapes[history.rid] = history.map_changed_s or 0.0

    def start(self, containers: Callable[[], list[Container]], is_known: Callable[[bytes], bool]) -> None:
        """Begin to collect. Histories of containers that are not known any more are dropped."""
        self._containers = containers
        for rid in [each for each in self._histories if not is_known(each)]:
            del self._histories[rid]
        if self.is_on and self._left_rows is None:
            self._task = asyncio.create_task(self._keep_up())
            self._task.add_done_callback(_report)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            if self.refresh is not None:
                await self.refresh(0)
            for container in self._containers():
                history = self._histories.get(container.record.rid)
                if history is not None:
                    history.collect(container, self._clock.now_s(), is_last=True)
            await self._save(is_last=True)

    # Several processes.

    def leave_to_first(self) -> None:
        """Another process collects what is counted here."""
        self._left_rows = {}

    def take_left_rows(self, rid: bytes) -> list[RowCounts]:
        return self._left_rows.pop(rid, []) if self._left_rows is not None else []

    def add_rows(self, container: Container, rows: list[RowCounts]) -> None:
        """Columns of another process's partitions that are gone."""
        history = self._histories.get(container.record.rid)
        if history is not None and rows:
            history.add(container, rows, self._clock.now_s())

    # Containers.

    def arrange(self, container: Container) -> None:
        """Have a container's partitions count by rows; called whenever its map may have changed."""
        if not self.is_on:
            return
        rid = container.record.rid
        history = self._histories.setdefault(rid, ContainerHistory(rid))
        history.arrange(container, self._clock.now_s())
        container.on_left = lambda meter: self._take_last(container, meter)

    def _take_last(self, container: Container, meter: Meter) -> None:
        if self._left_rows is not None:
            self._left_rows.setdefault(container.record.rid, []).extend(meter.load.take_all())
            return
        history = self._histories.get(container.record.rid)
        if history is not None:
            history.take_last(container, meter, self._clock.now_s())

    def leave(self, rid: bytes) -> None:
        """A container was deleted."""
        self._histories.pop(rid, None)
        self.take_left_rows(rid)

    def of(self, container: Container) -> ContainerHistory:
        history = self._histories.get(container.record.rid)
        if history is None:
            raise Failure(
                Kind.UNSUPPORTED,
                "The history of load is off. Start the server without --history-memory 0 "
                "(ARMILLARY_HISTORY_MEMORY) to keep it.",
            )
        return history

    def gaps(self, from_s: float, to_s: float) -> list[tuple[float, float]]:
        """Times in which nothing was counted because the server did not run."""
        gaps, reached_s = [], from_s
        for begin_s, end_s in [*self._runs[:-1], [self._runs[-1][0], self._clock.now_s()]]:
            if begin_s > reached_s and reached_s < to_s:
                gaps.append((reached_s, min(begin_s, to_s)))
            reached_s = max(reached_s, end_s)
        return gaps

    # Upkeep.

    def _now_column(self) -> int:
        return int(self._clock.now_s() // limits.HISTORY_COLUMN_S)

    def _now_minute(self) -> int:
        return int(self._clock.now_s() // limits.HISTORY_SAVED_EVERY_S)

    async def _keep_up(self) -> None:
        while True:
            await self._clock.sleep(limits.SWEEP_EVERY_S)
            await self.keep_up()

    async def keep_up(self) -> None:
        """Collect if a column has ended, and save if a minute has."""
        column, minute = self._now_column(), self._now_minute()
        if column == self._column:
            return
        self._column = column
        is_minute_over = minute != self._minute
        if self.refresh is not None:
            await self.refresh(KEYS_NOTED_MAX if is_minute_over else 0)
        for container in self._containers():
            history = self._histories.get(container.record.rid)
            if history is None or container.is_retired:
                continue
            now_s = self._clock.now_s()
            history.collect(container, now_s)
            if is_minute_over:
                history.note_keys(container, now_s)
                self._note_minutes(history, self._minute, minute)
                self._unsaved += [(history, each) for each in history.age(now_s)]
                history.forget_layouts()
            await asyncio.sleep(0)
        if is_minute_over:
            self._minute = minute
            self._evict()
            await self._save()

    def _note_minutes(self, history: ContainerHistory, first: int, end: int) -> None:
        """The minutes that are over, to be saved. A clock that was moved far leaves most of them empty."""
        if self._stored is None:
            return
        seconds = limits.HISTORY_SAVED_EVERY_S
        begun = {column.start_s // seconds for column in history.layers[0] if column.start_s >= first * seconds}
        for number in sorted(begun):
            minute = history.minute(number * seconds) if number < end else None
            if minute is not None:
                self._unsaved.append((history, minute))

    def _evict(self) -> None:
        """Keep to the limit: the oldest columns of the container whose history is shown least go first."""
        excess = sum(history.size_bytes for history in self._histories.values()) - self._memory_bytes
        for history in sorted(self._histories.values(), key=lambda each: (each.asked, each.oldest_s or 0)):
            while excess > 0:
                before = history.size_bytes
                if not history.drop_oldest():
                    break
                excess -= before - history.size_bytes

    async def _save(self, *, is_last: bool = False) -> None:
        self._runs[-1][1] = self._clock.now_s()
        if self._stored is None:
            return
        if is_last:
            for history in self._histories.values():
                self._note_minutes(history, self._minute, self._minute + 2)
        columns, self._unsaved = self._unsaved, []
        reshapes: list[tuple[ContainerHistory, Reshaped]] = []
        for rid, history in self._histories.items():
            saved_s = self._saved_reshapes.get(rid, 0.0)
            reshapes += [(history, each) for each in history.reshapes if each.time_s > saved_s]
            self._saved_reshapes[rid] = history.map_changed_s or 0.0
        kept = [(history, column) for history, column in columns if history.rid in self._histories]
        await self._stored.save(kept, reshapes, self._runs[-1])
        if self._stored.is_stale:
            await self._stored.rewrite(list(self._histories.values()), self._runs)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the history of load is not kept any more", exc_info=task.exception())
