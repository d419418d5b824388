"""The embedded engine: all stores in one RocksDB, serial transactions, group commit, readers on what is durable.

The life of a write: its function waits in a queue; `_run_waiting` runs the waiting functions one after the other, each
on its own overlay over the group's overlay over the newest state; the group is written as one batch, and a version of
the state is taken. A thread syncs the write-ahead log; meanwhile the next groups are run and written. When the sync is
done, the newest version that it covers is published to readers and the writers of those groups get their answers,
errors included: readers never see anything that could still be lost. RocksDB itself is wrapped in `rocks_database.py`;
the lock on the directory is in `directory.py`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from armillary import limits, work
from armillary.clock import Clock, SystemClock
from armillary.errors import Failure, Kind
from armillary.storage.directory import DataDirectory, Owner, ReplicaRefused
from armillary.storage.disk_errors import Answer, again, closed, no_room, refuse, set_error, translated, unknown_outcome
from armillary.storage.engine import Quick, Receiver, T, Txn
from armillary.storage.operating.storage_figures import StorageFigures, figures_of
from armillary.storage.overlay import Layer
from armillary.storage.private import Permissions
from armillary.storage.rocks_database import POSITION_KEY, Database, KeptState, Version, is_stall
from armillary.storage.rocks_store import ReadCache, RocksStore, prefix_of
from armillary.storage.transactions import Gathering, Waiting, refuse_waiting, waiting_for

Durability = Literal["full", "relaxed"]
_log = logging.getLogger(__name__)


class Group(NamedTuple):
    """Transactions that were written together, and the state after them."""

    version: Version
    answers: list[Answer]
    layer: Layer


class RocksEngine:
    """Owns a data directory. Everything but syncing, opening and compacting runs on the event loop's thread."""

    def __init__(
        self,
        directory: DataDirectory,
        database: Database,
        is_relaxed: bool,
        reserve_bytes: int,
        clock: Clock,
        *,
        has_statistics: bool = False,
    ) -> None:
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "armillary-storage")
        self._compactor = ThreadPoolExecutor(1, "armillary-compaction")
        self._compaction: asyncio.Future[Any] | None = None  # the last compaction, flush or checkpoint
        self._clock = clock
        self._monotonic_s = clock.monotonic_s
        self._is_relaxed = is_relaxed
        self._reserve_bytes = reserve_bytes
        self._is_closing = False

        self._database: Database | None = database
        self._newest: Version | None = database.version()  # the state that the next function sees
        self.published: Version | None = self._newest  # the durable state that readers see; None while reopening
        self.read_cache = ReadCache()
        self._waiting: deque[Waiting] = deque()
        self._is_scheduled = False
        self._is_running = False  # functions are running; they may have given way
        self._is_held = False  # no function is to run until `release`
        self._running: asyncio.Future[None] | None = None  # of the running functions; None: none has given way
        self._is_whole = asyncio.Event()  # set while the newest state is between two transactions
        self._is_whole.set()
        self._stalled: tuple[Layer, list[Answer]] | None = None  # a group refused until compaction catches up
        self._written: list[Group] = []  # written, and not covered by a sync that has begun
        self._is_dirty = False  # something was written after the last sync began
        self._sync: asyncio.Future[None] | None = None
        self._sync_timer: asyncio.TimerHandle | None = None
        self._failure: Failure | None = None  # why writes fail now
        self._reopening: asyncio.Task[None] | None = None
        self._is_attempt_over = asyncio.Event()  # no opening is under way
        self._is_attempt_over.set()
        self._has_room = True
        self._has_statistics = has_statistics
        self._stalls = 0
        self._room_checked_s = float("-inf")

    @classmethod
    async def open(
        cls,
        path: str | Path,
        durability: Durability = "full",
        *,
        reserve_bytes: int | None = None,
        clock: Clock | None = None,
        permissions: Permissions = "private",
        has_statistics: bool = False,
        owner: Owner = "single",
        server: int | None = None,
    ) -> Self:
        """`full`: acknowledged writes are synced. `relaxed`: they survive a crash of the process, not a power loss."""
        assert durability in ("full", "relaxed")
        directory = DataDirectory.claim(Path(path), permissions, owner=owner, server=server)
        try:
            database = _open(directory, has_statistics)
            if database.get(POSITION_KEY) is not None:
                database.close()
                raise ReplicaRefused()
        except BaseException:
            directory.release()
            raise
        # The syncing thread needs the interpreter briefly before and after; a busy loop must give way soon.
        sys.setswitchinterval(min(sys.getswitchinterval(), limits.THREAD_SWITCH_SECONDS))
        reserve = directory.default_reserve_bytes() if reserve_bytes is None else reserve_bytes
        is_relaxed = durability == "relaxed"
        return cls(directory, database, is_relaxed, reserve, clock or SystemClock(), has_statistics=has_statistics)

    def store(self, number: int) -> RocksStore:
        # The last number stays unused so that every store has a first key after it.
        assert 0 <= number < 2**32 - 1, "a store is numbered with four bytes"
        return RocksStore(self, prefix_of(number))

    async def drop(self, number: int) -> None:
        low, high = prefix_of(number), prefix_of(number + 1)
        await self.submit(b"", lambda txn: txn.delete_range(low, high), is_freeing=True)
        # Compaction frees the space; it would not start by itself while little is written.
        if self._database is not None and not self._is_closing:
            self._compaction = self._loop.run_in_executor(self._compactor, self._database.compact, low, high)

    async def close(self) -> None:
        if self._is_closing:
            return
        self.release()
        last = self.submit(b"", lambda txn: None)  # answered after everything queued before it
        self._is_closing = True
        try:
            await last
        except Failure as failure:
            _log.warning("closing while storage is not writable: %s", failure.message)
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.wait([self._reopening])
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        if self._sync is not None:
            await asyncio.wait([self._sync])
        if self._running is not None:
            await asyncio.wait([self._running])
        try:
            if self._database is not None and self._failure is None:
                await self._loop.run_in_executor(self._thread, self._database.finish)
        except Exception as error:
            raise (translated(error) or error) from error
        finally:
            await self._let_go()
            self._thread.shutdown()
            self._compactor.shutdown()
            self._directory.release()

    async def checkpoint(self) -> Path:
        return await self._beside(partial(self._make_checkpoint, self.writable()))

    async def _beside(self, work_on_files: Callable[[], T]) -> T:
        self._compaction = made = self._loop.run_in_executor(self._compactor, work_on_files)
        try:
            return await made
        except Exception as error:
            raise (translated(error) or error) from error

    def _make_checkpoint(self, database: Database) -> Path:
        database.flush()
        return self._directory.make_checkpoint(database.checkpoint)

    async def drop_checkpoint(self, name: str) -> None:
        await self._loop.run_in_executor(self._compactor, self._directory.remove_checkpoint, name)

    async def hold(self) -> None:
        """See `HoldableEngine`."""
        assert not self._is_held
        self._is_held = True
        try:
            while self._is_running or self._stalled is not None:
                if self._running is not None and not self._running.done():
                    await asyncio.wait([self._running])
                else:
                    await self._clock.sleep(limits.STALL_RETRY_SECONDS)
            self.writable()
            assert self._newest is not None
            shown: asyncio.Future[None] = self._loop.create_future()
            self._written.append(Group(self._newest, [Answer(shown, None, None)], Layer()))
            self._settle()
            await shown
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """See `HoldableEngine`."""
        self._is_held = False
        if self._waiting and not self._is_scheduled:
            self._schedule()

    async def flush(self) -> None:
        """See `HoldableEngine`."""
        await self._beside(self.writable().flush)

    def submit(self, prefix: bytes, fn: Callable[[Txn], T], is_freeing: bool = False) -> asyncio.Future[T]:
        """Queue a transaction function."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue(waiting_for(fn, prefix, future, is_freeing, None))
        return future

    def deliver(
        self, prefix: bytes, fn: Callable[[Txn], T], receiver: Receiver[T], quick: Quick[T] | None = None
    ) -> None:
        self._queue(waiting_for(fn, prefix, receiver, False, quick))

    def _queue(self, entry: Waiting) -> None:
        if self._is_closing:
            raise closed()
        self._waiting.append(entry)
        if not self._is_scheduled:
            self._schedule()

    async def readable(self) -> Version:
        """The published version, waiting for a reopening that is under way."""
        await self._is_attempt_over.wait()
        if self.published is None:
            raise closed() if self._failure is None else again(self._failure)
        return self.published

    # Room on the disk, and other figures.

    def keep_free(self, reserve_bytes: int | None) -> None:
        """Change the space that is kept free on the disk. None: the default."""
        self._reserve_bytes = self._directory.default_reserve_bytes() if reserve_bytes is None else reserve_bytes
        self._room_checked_s = float("-inf")

    def figures(self) -> StorageFigures:
        found = figures_of(self._directory, self._database, self._reserve_bytes)
        failure = self._failure
        if failure is not None and failure.kind is Kind.STORAGE_FULL:
            found.is_full = True
        elif failure is not None:
            found.failure = failure.message
        found.waiting_writes, found.stalls = len(self._waiting), self._stalls
        found.reads = self.read_cache.figures()
        return found

    # Long work.

    def writable(self) -> Database:
        """The database, if it is open and its disk has room."""
        if self._failure is not None or self._database is None or self._is_closing:
            raise closed() if self._failure is None else again(self._failure)
        if self._directory.free_bytes() < self._reserve_bytes:
            raise no_room()
        return self._database

    async def keep(self) -> KeptState:
        """A snapshot of the newest state. Waits for a transaction that is being written in portions."""
        database = self.writable()
        while not self._is_whole.is_set():
            await self._is_whole.wait()
            database = self.writable()
        return database.keep()

    @property
    def load_path(self) -> Path:
        return self._directory.load_path

    # Running and writing groups.

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._run_waiting)

    def _run_waiting(self) -> None:
        self._is_scheduled = False
        if self._stalled is not None or self._is_running or self._is_held:
            return  # continues when the stalled or running group is written, or the hold ends
        database, failure = self._database, self._failure
        now_s = self._monotonic_s()
        if failure is None and now_s - self._room_checked_s >= limits.FREE_DISK_CHECK_SECONDS:
            self._room_checked_s = now_s
            self._has_room = self._directory.free_bytes() >= self._reserve_bytes
        if failure is not None or database is None:
            refuse_waiting(self._waiting, failure or closed())
            return
        if not self._has_room:
            refuse_waiting(self._waiting, no_room(), but_freeing=True)
        self._is_running = True
        self._running = work.begin(partial(self._run_group, database, now_s + limits.GROUP_SECONDS_MAX))

    def _run_group(self, database: Database, deadline_s: float) -> None:
        """Run waiting functions until the time is up, and write them. A function that spends more work than a slice
        gives way to the event loop: readers continue on the published state, and no other function runs before it is
        done."""
        gathering = Gathering()
        gathering.run(self._waiting, database.get, database.scan, self._monotonic_s, deadline_s)
        self._write_group(gathering.layer, gathering.answers)
        self._is_running = False

    def _write_group(self, layer: Layer, answers: list[Answer]) -> None:
        assert self._database is not None
        is_large = len(layer.writes) > limits.WRITE_AT_ONCE_KEYS
        batch = None if is_large else self._database.batch(layer)
        self._stalled = None
        if self._failure is not None:  # a sync failed while a function or the batch had given way: nothing is written
            refuse(answers, self._failure)
            if self._waiting and not self._is_scheduled:
                self._schedule()
            return
        assert self._newest is not None
        if not layer.is_empty():
            self._newest.hold()
            try:
                if batch is None:
                    self._write_in_portions(self._database, layer)
                else:
                    self._database.write(batch)
            except Exception as error:
                if (failure := self._failed()) is not None:  # a sync failed while the portions had given way
                    refuse(answers, unknown_outcome(failure))
                elif is_stall(error):
                    self._stalls += 1
                    self._stalled = layer, answers
                    self._loop.call_later(limits.STALL_RETRY_SECONDS, self._retry_stalled)
                else:
                    self._fail(error, answers)
                return
            self._newest = self._database.version()
            self._is_dirty = True
        self._written.append(Group(self._newest, answers, layer))
        self._settle()
        if self._waiting and not self._is_scheduled:
            self._schedule()

    def _write_in_portions(self, database: Database, layer: Layer) -> None:
        """Gives way between portions. No function runs meanwhile, and readers have the published state."""
        self._is_whole.clear()
        for batch in database.batches(layer):
            if (failure := self._failed()) is not None:
                raise failure
            database.write(batch)
        self._is_whole.set()

    def _failed(self) -> Failure | None:
        return self._failure

    def _retry_stalled(self) -> None:
        if self._stalled is not None:  # else storage failed meanwhile, and the group was refused
            self._is_running = True
            self._running = work.begin(partial(self._write_again, *self._stalled))

    def _write_again(self, layer: Layer, answers: list[Answer]) -> None:
        self._write_group(layer, answers)
        self._is_running = False

    # Making groups durable and answering.

    def _settle(self) -> None:
        """Begin a sync if one is due and none runs; answer what needs no sync."""
        if self._is_relaxed:
            self._publish(self._written)
            self._written = []
            if self._is_dirty and self._sync_timer is None and self._sync is None:
                self._sync_timer = self._loop.call_later(limits.RELAXED_SYNC_SECONDS, self._begin_sync)
        elif self._sync is None:
            if self._is_dirty:
                self._begin_sync()
            else:
                self._publish(self._written)
                self._written = []

    def _begin_sync(self) -> None:
        self._sync_timer = None
        if self._database is None or self._failure is not None:
            return
        covered, self._written = self._written, []
        self._is_dirty = False
        self._sync = self._loop.run_in_executor(self._thread, self._database.sync)
        self._sync.add_done_callback(partial(self._end_sync, covered))

    def _end_sync(self, covered: list[Group], sync: asyncio.Future[None]) -> None:
        self._sync = None
        error = sync.exception()
        if error is not None:
            self._fail(error, [answer for group in covered for answer in group.answers])
            return
        self._publish(covered)
        if self._failure is None and (self._written or self._is_dirty):
            self._settle()

    def _publish(self, groups: list[Group]) -> None:
        if not groups:
            return
        if self.published is not None:
            self.published = groups[-1].version
        for group in groups:
            self.read_cache.drop(group.layer)
            for future, result, error in group.answers:
                if future.done():  # the caller was cancelled; the write stays done
                    continue
                if error is None:
                    future.set_result(result)
                else:
                    set_error(future, error)

    # Failures of the disk.

    def _fail(self, error: BaseException, answers: list[Answer]) -> None:
        """A write or a sync failed: its outcome is unknown, and nothing may follow it before the log is read again."""
        failure = translated(error) or Failure(
            Kind.UNAVAILABLE, "The storage of the data directory failed. Check the disk, then try again."
        )
        _log.error("storage failed (%s), reopening: %s", failure.kind.name, error)
        unknown = unknown_outcome(failure)
        for group in self._written:
            answers = answers + group.answers
        self._written = []
        refuse(answers, unknown)
        if self._stalled is not None:
            # It was run on a state that may be lost, so it must never be written; the functions waiting behind it can
            # run.
            # A large one may be recorded already, and is completed by the opening if everything before it is there.
            (layer, answers), self._stalled = self._stalled, None
            refuse(answers, unknown if len(layer.writes) > limits.WRITE_AT_ONCE_KEYS else failure)
        if self._failure is None:
            self._failure = failure
            refuse_waiting(self._waiting, failure)
            self._reopening = self._loop.create_task(self._reopen())

    async def _reopen(self) -> None:
        """Reopen the database. Readers keep the last durable version until opening is likely to succeed."""
        pause_s = limits.REOPEN_SECONDS_MIN
        while self._failure is not None:
            if self._sync is not None:
                await asyncio.wait([self._sync])
            if self._running is not None:
                await asyncio.wait([self._running])
            await self._wait_for_room()
            self._is_attempt_over.clear()
            try:
                await self._attempt_open()
            except Failure as failure:
                _log.error("storage cannot be opened yet: %s", failure.message)
                self._failure = failure
                refuse_waiting(self._waiting, failure)
            finally:
                self._is_attempt_over.set()
            if self._failure is not None:
                await self._clock.sleep(pause_s)
                pause_s = min(pause_s * 2, limits.REOPEN_SECONDS_MAX)
        _log.warning("storage is open again")

    async def _attempt_open(self) -> None:
        await self._let_go()
        self._database = await self._loop.run_in_executor(self._thread, _open, self._directory, self._has_statistics)
        self.published = self._newest = self._database.version()
        self._room_checked_s = float("-inf")
        self._is_dirty = False
        self._failure = self._reopening = None
        self._is_whole.set()

    async def _let_go(self) -> None:
        """Close the database without writing anything more."""
        self.published = self._newest = None
        self.read_cache.clear()
        database, self._database = self._database, None
        if database is not None:
            database.stop_background()
            if self._compaction is not None:
                await asyncio.wait([self._compaction])
            database.close()

    async def _wait_for_room(self) -> None:
        # Opening rewrites the log as tables, so it needs as much room again.
        needed = max(self._reserve_bytes, self._directory.log_bytes() + 8 * limits.MB)
        while self._directory.free_bytes() < needed:  # polled: no event announces free space
            await self._clock.sleep(limits.FREE_DISK_CHECK_SECONDS)


def _open(directory: DataDirectory, has_statistics: bool = False) -> Database:
    try:
        return Database(directory.engine_path, has_statistics=has_statistics)
    except Exception as error:
        _log.error("storage does not open: %s", error)
        raise translated(error) or Failure(
            Kind.UNAVAILABLE, "The data directory cannot be opened at the moment. The log has the reason."
        ) from error
