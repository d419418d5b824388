"""A follower: it gets the rows of the log and applies those that are confirmed, in order (`rows_waiting.py`).

Rows come from the leader where it can be asked (`RowSource`), and from the log otherwise. The log is the truth: it is
looked at from time to time all the same, and the leader's rows count by their chains alone. Rows of the log that do not
follow from what was applied mean that the log was set back, and the follower stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from armillary import limits, work
from armillary.clock import Clock
from armillary.errors import Failure
from armillary.storage.disk_errors import translated
from armillary.storage.log.replicated_log import LogUnavailable, ReplicatedLog
from armillary.storage.log.rows import Place, Row, RowKind, read_group
from armillary.storage.overlay import Layer
from armillary.storage.replication.freshness import Freshness, RowSource, SourceUnavailable
from armillary.storage.replication.lease import boot_time_s
from armillary.storage.replication.local_replica import LocalReplica, Position
from armillary.storage.replication.rows_waiting import RowsWaiting, set_back
from armillary.storage.rocks_database import is_stall

_log = logging.getLogger(__name__)
Adopt = Callable[[Layer, bytes], None]  # what a group has written, and its notes; called when readers see the group


class Follower:
    def __init__(
        self,
        replica: LocalReplica,
        log: ReplicatedLog,
        clock: Clock,
        adopt: Adopt,
        source: RowSource | None = None,
        freshness: Freshness | None = None,
    ) -> None:
        """`source`: the leader; without one, rows come from the log alone."""
        self._replica = replica
        self._log = log
        self._clock = clock
        self._adopt = adopt
        self._source = source
        self._freshness = freshness or Freshness(replica, clock, boot_time_s, source)
        self._waiting = RowsWaiting(replica.position.place)
        self._busy = asyncio.Lock()  # held while rows are read and applied, which must not be cancelled half-way
        self._ask_from_s = float("-inf")  # when the leader is asked next
        self.apply_delay: Callable[[], float] = lambda: 0.0  # seconds that rows are held back, for tests of staleness
        self._arrivals: deque[tuple[int, float]] = deque()  # up to which seq rows have come, and when; if held back

    async def run(self) -> None:
        """Follow until cancelled. Raises a Failure if this replica cannot go on: it is cut off, or the log was set
        back."""
        looking = asyncio.ensure_future(self._look_at_log())
        is_told = False
        try:
            while not looking.done():
                try:
                    if await self.ask_leader():
                        continue
                    if not await self.step():
                        await self._log.tail(self._waiting.last_seq)
                    is_told = False
                except LogUnavailable as error:
                    if not is_told:  # once for each outage
                        is_told = True
                        _log.warning("the replicated log cannot be read: %s", error)
                    self._waiting.forget()
                    await self._clock.sleep(limits.LOG_RETRY_SECONDS)
            looking.result()
        finally:
            looking.cancel()

    async def ask_leader(self) -> bool:
        """Wait for rows of the leader and apply them. False: the log has to be read."""
        now_s, waiting = self._freshness.now_s(), self._waiting
        if self._source is None or now_s < self._ask_from_s:
            return False
        after_seq = waiting.confirmed_seq
        try:
            pushed = await self._source.rows(after_seq, limits.FOLLOWER_WAIT_SECONDS)
        except SourceUnavailable as error:
            _log.debug("the leader cannot be asked for rows: %s", error)
            self._ask_from_s = self._freshness.now_s() + limits.FOLLOWER_LOG_SECONDS
            return False
        async with self._busy:
            self._freshness.hear(now_s, pushed.word)
            if not pushed.is_kept:
                waiting.confirm(pushed.confirmed)  # what was read from the log may be what the leader has applied
                await self._apply()
                return False
            try:
                follows = waiting.receive(pushed.rows)
            except Failure:
                follows = False
            waiting.confirm(pushed.confirmed)
            self._note_arrival()
            if not follows or (pushed.rows and waiting.confirmed_seq == after_seq):
                # Other rows of the log wait here, or the leader has been deposed: the log tells which.
                waiting.forget()
                self._ask_from_s = self._freshness.now_s() + limits.FOLLOWER_LOG_SECONDS
                return False
            await self._apply()
        return True

    async def _look_at_log(self) -> None:
        """While rows come from the leader, they may not be those of the log any more. Raises a Failure then."""
        while True:
            await self._clock.sleep(limits.FOLLOWER_CHECK_SECONDS)
            try:
                await self._compare_newest()
                self._freshness.heard()
            except LogUnavailable:
                continue  # told where rows are read

    async def step(self) -> bool:
        """Read what is new and apply what is confirmed. Returns whether there was anything."""
        waiting = self._waiting
        async with self._busy:
            rows = await self._log.read(waiting.last_seq, limits.LOG_READ_BYTES)
            if not rows:
                await self._check_newest()
                waiting.confirm((await self._log.leader()).confirmed)
            elif not await self._receive(rows):
                return True
            self._note_arrival()
            self._freshness.heard()
            return await self._apply() or bool(rows)

    async def _receive(self, rows: Sequence[Row]) -> bool:
        """Rows that do not follow from what is applied may be those of a former primary of PostgreSQL, which shows what
        it has not acknowledged. Raises a Failure only if the log has them for certain."""
        waiting = self._waiting
        try:
            return waiting.receive(rows)
        except Failure:
            return waiting.receive(await self._log.read(waiting.last_seq, limits.LOG_READ_BYTES, is_certain=True))

    async def _check_newest(self) -> None:
        newest, last = await self._compare_newest(), self._waiting.last
        if newest.seq < last.seq or (newest.seq == last.seq and newest != last):
            # Rows that wait were lost. The next ones of the log may not come for long, so they would not tell.
            self._waiting.forget()

    async def _compare_newest(self) -> Place:
        """Everything that is applied before the log is asked must be in it."""
        applied = self._replica.position.place
        newest = await self._log.newest()
        if newest.seq < applied.seq or (newest.seq == applied.seq and newest.chain != applied.chain):
            raise set_back()
        return newest

    async def confirm(self, place: Place) -> None:
        """The leader has sent how far its rows are acknowledged."""
        async with self._busy:
            self._waiting.confirm(place)
            await self._apply()

    async def stop(self, running: asyncio.Task[None]) -> None:
        """End the task of `run`, between two steps."""
        async with self._busy:
            running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def catch_up(self, fence: Row) -> bool:
        """Apply everything up to the acknowledged fence of this node's own: afterwards it may lead. False: rows behind
        the fence are applied already, so another node has taken over since."""
        waiting = self._waiting
        async with self._busy:
            waiting.forget()
            at = self._replica.position.place
            if at.seq > fence.seq:
                return False
            if at == fence.place:  # it was read, and confirmed by the next leader, before this node knew of it
                return True
            while waiting.last_seq < fence.seq:
                rows = await self._log.read(waiting.last_seq, limits.LOG_READ_BYTES)
                if not rows:
                    raise set_back()
                waiting.receive([row for row in rows if row.seq <= fence.seq])
            waiting.confirm_all(fence.place)
            self.apply_delay = lambda: 0.0
            await self._apply()
        assert self._replica.position.place == fence.place
        return True

    async def _apply(self) -> bool:
        did_any = False
        while (rows := self._waiting.next_group()) and not self._is_held_back(rows[-1].seq):
            layer, notes = await work.run(partial(read_group, rows))
            last = rows[-1]
            position = Position(self._replica.position.generation, last.place, last.time_us, last.transactions)
            if last.kind is RowKind.MARK:
                self._replica.pass_mark(position)
            elif layer.is_empty():
                self._replica.pass_over(position)
            else:
                await self._store(layer, position)
                # One step of the event loop: readers see the group and what is kept in memory of it together.
                self._replica.publish()
                self._adopt(layer, notes)
            self._waiting.applied(rows)
            self._freshness.applied()
            did_any = True
        return did_any

    def _note_arrival(self) -> None:
        if self.apply_delay() > 0:
            self._arrivals.append((self._waiting.last_seq, self._freshness.now_s()))

    def _is_held_back(self, seq: int) -> bool:
        """Whether a row has come less than the delay ago. It is looked at again with the next answer of the leader or
        of the log."""
        delay_s = self.apply_delay()
        if delay_s <= 0:
            self._arrivals.clear()
            return False
        while self._arrivals and self._arrivals[0][0] < seq:
            self._arrivals.popleft()
        return bool(self._arrivals) and self._freshness.now_s() - self._arrivals[0][1] < delay_s

    async def _store(self, layer: Layer, position: Position) -> None:
        """Write a group; where the disk is full or compaction is behind, wait for it. The cluster does not wait."""
        is_told = False
        while True:
            try:
                if self._replica.has_room_to_follow:
                    await work.run(partial(self._replica.apply, layer, position))
                    return
                failure: BaseException | None = None
            except Exception as error:
                if not is_stall(error):
                    raise (translated(error) or error) from error
                failure = error
            if failure is None and not is_told:
                is_told = True
                _log.error("the disk of this replica is nearly full: it falls behind until there is room again")
            pause_s = limits.FREE_DISK_CHECK_SECONDS if failure is None else limits.STALL_RETRY_SECONDS
            await self._clock.sleep(pause_s)
