"""One worker of a change feed consumer: acquires its share of the leases, reads their ranges, passes changes to the
application and stores the position reached. Workers with the same consumer name, in any number of processes, share the
ranges; each change is delivered at least once.

A worker keeps a lease by renewing it periodically. A lease that was not renewed for `lease_seconds`, measured by the
observing worker's own clock, has expired; clocks of different machines are never compared. How leases are stored and
balanced is `leases.py`'s part, reading pages of the feed `reading.py`'s.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import signal
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from armillary.changefeed.leases import BEGINNING, NOW, Beginning, Lease, Leases, leases_to_take
from armillary.changefeed.reading import FeedRange, Page, Row, parts_of, read_page

log = logging.getLogger(__name__)

LATEST_VERSION, ALL_VERSIONS = "LatestVersion", "AllVersionsAndDeletes"
RETRY_SECONDS_MAX = 60.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NAME = re.compile(r"[^/\\?#]{1,100}")


@dataclass(frozen=True, slots=True)
class Changes:
    """A page of changes of one range. Changes of one partition key are delivered in the order of their commits."""

    rows: list[Row]
    feed_range: FeedRange
    worker: str


OnChanges = Callable[[Changes], Awaitable[None] | None]


@dataclass(slots=True)
class _Held:
    """A lease that this worker holds, with its tasks."""

    lease: Lease
    position: str | None  # how far was read; stored by the next renewal
    written_s: float  # when the lease was last written
    is_lost: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    reading: asyncio.Task[None] | None = None
    beating: asyncio.Task[None] | None = None


class Consumer:
    """`feed` and `leases` are containers of azure.cosmos.aio; the latter is partitioned by /id. `on_changes` is called
    for each page of changes, and may be a coroutine function or a plain one, which then runs in a thread. When it
    raises, the same changes are delivered again."""

    def __init__(
        self,
        feed: ContainerProxy,
        leases: ContainerProxy,
        on_changes: OnChanges,
        *,
        name: str,
        worker: str | None = None,
        start: datetime | str = NOW,
        mode: str = LATEST_VERSION,
        page_items: int = 100,
        poll_seconds: float = 1.0,
        lease_seconds: float = 30.0,
        renew_seconds: float = 10.0,
        balance_seconds: float = 5.0,
        retry_seconds: float = 1.0,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError("name must have 1 to 100 characters, and none of / \\ ? #")
        if mode not in (LATEST_VERSION, ALL_VERSIONS):
            raise ValueError(f"mode must be {LATEST_VERSION} or {ALL_VERSIONS}, not {mode!r}")
        if isinstance(start, str) and start not in (BEGINNING, NOW):
            raise ValueError(f"start must be {BEGINNING!r}, {NOW!r} or a datetime, not {start!r}")
        if mode == ALL_VERSIONS and start != NOW:
            raise ValueError("all versions and deletes can be read from now on only: start must be 'Now'")
        if isinstance(start, datetime) and start.tzinfo is None:
            raise ValueError("start must say its time zone")
        if not 0 < renew_seconds < lease_seconds / 2:
            raise ValueError("renew_seconds must be less than half of lease_seconds")
        self.worker = worker if worker is not None else uuid.uuid4().hex
        self._feed = feed
        self._leases = Leases(leases, name)
        self._on_changes = on_changes
        self._start = start
        self._mode = mode
        self._page_items = page_items
        self._poll_seconds = poll_seconds
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._balance_seconds = balance_seconds
        self._retry_seconds = retry_seconds
        self._beginning: Beginning | None = None
        self._held: dict[str, _Held] = {}
        self._beats: dict[str, tuple[str, float]] = {}  # by lease: the last etag seen, and since when
        self._stopping = asyncio.Event()
        self._balancing: asyncio.Task[None] | None = None

    # Starting and stopping.

    async def start(self) -> None:
        """Create the leases unless they exist, and read in the background until `stop`."""
        assert self._balancing is None, "the consumer was started already"
        self._beginning = await self._begin()
        self._balancing = asyncio.create_task(self._keep_balance())

    async def stop(self, timeout_seconds: float | None = None) -> None:
        """Wait until the application has processed the changes it was given, store the positions and release the
        leases. After the timeout calls that are still running are cancelled; their changes are delivered again, to
        another worker."""
        self._stopping.set()
        if self._balancing is not None:
            await self._balancing
        reading = [held.reading for held in self._held.values() if held.reading is not None]
        if reading:
            _, late = await asyncio.wait(reading, timeout=timeout_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        for held in list(self._held.values()):
            await self._let_go(held)

    async def run(self) -> None:
        """Start, and run until the task is cancelled or `stop` is called."""
        async with self:
            await self._stopping.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def held_count(self) -> int:
        """How many leases this worker holds."""
        return len(self._held)

    async def _begin(self) -> Beginning:
        beginning = await self._leases.beginning()
        if beginning is None:
            ranges = [each async for each in self._feed.read_feed_ranges(force_refresh=True)]
            made = [self._leases.new(each, await self._first_position(each)) for each in ranges]
            start = self._start if isinstance(self._start, str) else self._start.astimezone(UTC).isoformat()
            await self._leases.begin(Beginning(self._mode, start, tuple(made), is_complete=False))
            beginning = await self._leases.beginning()
            assert beginning is not None, "the item that was just created was deleted"
        if beginning.mode != self._mode:
            raise ValueError(f"the consumer of this name reads in mode {beginning.mode}, not {self._mode}")
        if not beginning.is_complete:
            await self._leases.make(beginning.leases)
            await self._leases.complete(beginning)
        return beginning

    async def _first_position(self, feed_range: FeedRange) -> str | None:
        """With start "Now": the position at the creation of the consumer, not at the first read of the range."""
        if self._start != NOW:
            return None
        page = await read_page(self._feed, feed_range, None, start=NOW, mode=self._mode, page_items=1)
        assert not page.rows, "a feed that starts now has no changes yet"
        return page.continuation

    # Acquiring and renewing leases.

    async def _keep_balance(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._balance()
            except AzureError as error:
                log.warning("cannot read the leases: %s", error)
            await self._wait(self._balance_seconds)

    async def _balance(self) -> None:
        leases = await self._leases.all()
        now_s = _now_s()
        seen = {}
        free = set()
        for lease in leases:
            etag, since_s = self._beats.get(lease.id, ("", now_s))
            seen[lease.id] = (lease.etag, since_s if etag == lease.etag else now_s)
            is_left = lease.owner == self.worker and lease.id not in self._held  # by an earlier worker of the same name
            if lease.owner is None or is_left or now_s - seen[lease.id][1] > self._lease_seconds:
                free.add(lease.id)
        free -= self._held.keys()
        self._beats = seen
        for lease in leases_to_take(leases, self.worker, free):
            if not self._stopping.is_set():
                await self._take(lease)

    async def _take(self, lease: Lease) -> None:
        taken = await self._leases.write(lease, owner=self.worker)
        if taken is None:
            return  # another worker was faster
        if taken.parts:
            await self._leases.replace_by_parts(taken)
            return
        held = self._held[lease.id] = _Held(taken, taken.continuation, _now_s())
        held.beating = asyncio.create_task(self._keep_beating(held))
        held.reading = asyncio.create_task(self._read(held))

    async def _keep_beating(self, held: _Held) -> None:
        while not held.is_lost:
            await asyncio.sleep(self._renew_seconds)
            try:
                await self._write(held)
            except AzureError as error:
                log.warning("cannot renew the lease %s: %s", held.lease.id, error)
                # Another worker may hold it by now: nothing more is delivered from here.
                held.is_lost = _now_s() - held.written_s > self._lease_seconds

    async def _write(self, held: _Held, **changes: Any) -> bool:
        """Renew a lease. Returns whether this worker still holds it."""
        async with held.lock:
            if not held.is_lost:
                written = await self._leases.write(held.lease, continuation=held.position, **changes)
                held.is_lost = written is None
                held.lease = written or held.lease
                held.written_s = _now_s()
            return not held.is_lost

    async def _let_go(self, held: _Held) -> None:
        """Release a lease, unless it was lost."""
        if held.beating is not None:
            async with held.lock:  # a renewal cancelled half-way could be stored under an unknown etag
                held.beating.cancel()
            await asyncio.gather(held.beating, return_exceptions=True)
        self._held.pop(held.lease.id, None)
        if not held.is_lost:
            try:
                await self._write(held, owner=None)
            except AzureError as error:
                log.warning("cannot release the lease %s, it will expire: %s", held.lease.id, error)

    # Reading.

    async def _read(self, held: _Held) -> None:
        failures = 0
        while not self._stopping.is_set() and not held.is_lost:
            try:
                is_done = await self._read_on(held)
                failures = 0
            except Exception as error:
                # Broad on purpose: whatever the application raises, the same changes are delivered again. So it is when
                # the server cannot be reached.
                level = logging.WARNING if isinstance(error, AzureError) else logging.ERROR
                log.log(level, "delivering the changes of %s again", held.lease.id, exc_info=error)
                await self._wait(min(self._retry_seconds * 2**failures, RETRY_SECONDS_MAX))
                failures = min(failures + 1, 10)
                continue
            if is_done:
                break
        if held.is_lost:
            await self._let_go(held)  # leases that were not lost are released by `stop`

    async def _read_on(self, held: _Held) -> bool:
        """Read and deliver one page. Returns whether this lease is finished: lost, or replaced after a split."""
        page = await self._page(held)
        if page.rows:
            await self._hand_over(Changes(page.rows, held.lease.feed_range, self.worker))
        held.position = page.continuation
        if page.rows and not await self._write(held):
            return True
        parts = parts_of(page.continuation)
        if parts:
            if await self._write(held, parts=tuple(parts)):
                await self._leases.replace_by_parts(held.lease)
                held.is_lost = True
            return True
        if not page.rows:
            await self._wait(self._poll_seconds)
        return False

    async def _page(self, held: _Held) -> Page:
        assert self._beginning is not None
        return await read_page(
            self._feed,
            held.lease.feed_range,
            held.position,
            start=self._beginning.start_time,
            mode=self._mode,
            page_items=self._page_items,
        )

    async def _hand_over(self, changes: Changes) -> None:
        if inspect.iscoroutinefunction(self._on_changes):
            await self._on_changes(changes)
            return
        answer = await asyncio.to_thread(self._on_changes, changes)
        if inspect.isawaitable(answer):
            await answer

    async def _wait(self, seconds: float) -> None:
        """Sleep, or return earlier when the consumer is stopped."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return


def _now_s() -> float:
    """Monotonic time of this process."""
    return asyncio.get_running_loop().time()


# Running a worker as a program.


def run_consumer(url: str, credential: Any, feed: str, leases: str, on_changes: OnChanges, **options: Any) -> None:
    """Read the change feed of `feed`, a `database/container`, until SIGINT or SIGTERM. `leases` is another container,
    which is created if it does not exist; the options are those of `Consumer`. For synchronous programs: call it in the
    main thread."""
    asyncio.run(_run(url, credential, feed, leases, on_changes, options))


async def _run(
    url: str, credential: Any, feed: str, leases: str, on_changes: OnChanges, options: dict[str, Any]
) -> None:
    stopping = asyncio.Event()
    for each in _SIGNALS:
        try:
            asyncio.get_running_loop().add_signal_handler(each, stopping.set)
        except NotImplementedError:  # Windows, where Ctrl-C raises KeyboardInterrupt
            pass
    async with CosmosClient(url, credential) as client:
        feed_database, feed_name = _names(feed)
        lease_database, lease_name = _names(leases)
        lease_container = await client.get_database_client(lease_database).create_container_if_not_exists(
            lease_name, PartitionKey("/id")
        )
        feed_container = client.get_database_client(feed_database).get_container_client(feed_name)
        async with Consumer(feed_container, lease_container, on_changes, **options):
            await stopping.wait()


def _names(path: str) -> tuple[str, str]:
    database, _, container = path.partition("/")
    if not database or not container:
        raise ValueError(f"{path!r} must be a database and a container: database/container")
    return database, container
