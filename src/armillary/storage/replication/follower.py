"""A follower: it reads the rows of the log and applies those that are confirmed, in order.

A row that can be read need not be acknowledged: a server can show a row that is lost when its standby takes over, and
another row can have the same seq afterwards. So rows wait until a confirmation of the leader comes that names them by
their chain; it is in the rows that follow, in the leader's record and in what the leader sends (`confirm`). Rows that
do not follow from those that wait replace them. Rows that do not follow from what was applied mean that the log was set
back, and the follower stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from armillary import limits, work
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.storage.disk_errors import translated
from armillary.storage.log.replicated_log import LogUnavailable, ReplicatedLog
from armillary.storage.log.rows import Place, Row, read_group
from armillary.storage.overlay import Layer
from armillary.storage.replication.local_replica import LocalReplica, Position
from armillary.storage.rocks_database import is_stall

_log = logging.getLogger(__name__)
Adopt = Callable[[Layer, bytes], None]  # what a group has written, and its notes; called when readers see the group


class RowsWaiting:
    """Rows above a replica's position, and how far they are confirmed."""

    def __init__(self, applied: Place) -> None:
        self._applied = applied
        self._rows: list[Row] = []
        self._confirmed = applied.seq

    @property
    def last_seq(self) -> int:
        return self._rows[-1].seq if self._rows else self._applied.seq

    def receive(self, rows: Sequence[Row]) -> bool:
        """Add rows that were read above the last. False: they do not follow from the rows that wait, which are
        forgotten; the caller reads again from what was applied. Raises if they do not follow from that either."""
        for row in rows:
            before = self._rows[-1].place if self._rows else self._applied
            if row.seq <= before.seq:
                continue
            if not row.follows(before):
                if not self._rows:
                    raise cut_off() if row.seq > before.seq + 1 else set_back()
                self.forget()
                return False
            self._rows.append(row)
            self.confirm(row.confirmed)
        return True

    def forget(self) -> None:
        """The source has changed: what it showed and did not confirm may be gone."""
        self._rows.clear()
        self._confirmed = self._applied.seq

    def confirm(self, place: Place) -> None:
        """A leader knows that a row is acknowledged. Only the row with that chain counts."""
        at = place.seq - self._applied.seq - 1
        if 0 <= at < len(self._rows) and self._rows[at].place == place:
            self._confirmed = max(self._confirmed, place.seq)

    def confirm_all(self, fence: Place) -> None:
        """A fence of this node's own was acknowledged: so is everything that it chains from."""
        if not self._rows or self._rows[-1].place != fence:
            raise set_back()
        self._confirmed = fence.seq

    def next_group(self) -> list[Row]:
        """The confirmed rows that are applied together next; empty if there are none."""
        for number, row in enumerate(self._rows, 1):
            if row.seq > self._confirmed:
                return []
            if row.is_last:
                return self._rows[:number]
        return []

    def applied(self, rows: Sequence[Row]) -> None:
        self._applied = rows[-1].place
        del self._rows[: len(rows)]


class Follower:
    def __init__(self, replica: LocalReplica, log: ReplicatedLog, clock: Clock, adopt: Adopt) -> None:
        self._replica = replica
        self._log = log
        self._clock = clock
        self._adopt = adopt
        self._waiting = RowsWaiting(replica.position.place)
        self._busy = asyncio.Lock()  # held while rows are read and applied, which must not be cancelled half-way

    async def run(self) -> None:
        """Follow until cancelled. Raises a Failure if this replica cannot go on: it is cut off, or the log was set
        back."""
        is_told = False
        while True:
            try:
                if not await self.step():
                    await self._log.tail(self._waiting.last_seq)
                is_told = False
            except LogUnavailable as error:
                if not is_told:  # once for each outage
                    is_told = True
                    _log.warning("the replicated log cannot be read: %s", error)
                self._waiting.forget()
                await self._clock.sleep(limits.LOG_RETRY_SECONDS)

    async def step(self) -> bool:
        """Read what is new and apply what is confirmed. Returns whether there was anything."""
        waiting = self._waiting
        async with self._busy:
            rows = await self._log.read(waiting.last_seq, limits.LOG_READ_BYTES)
            if not rows:
                await self._check_newest()
                waiting.confirm((await self._log.leader()).confirmed)
            elif not waiting.receive(rows):
                return True
            return await self._apply() or bool(rows)

    async def _check_newest(self) -> None:
        newest, applied = await self._log.newest(), self._replica.position.place
        if newest.seq < applied.seq or (newest.seq == applied.seq and newest.chain != applied.chain):
            raise set_back()
        if newest.seq < self._waiting.last_seq:
            self._waiting.forget()

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

    async def catch_up(self, fence: Row) -> None:
        """Apply everything up to the acknowledged fence of this node's own: afterwards it may lead."""
        waiting = self._waiting
        async with self._busy:
            waiting.forget()
            while waiting.last_seq < fence.seq:
                rows = await self._log.read(waiting.last_seq, limits.LOG_READ_BYTES)
                if not rows:
                    raise set_back()
                waiting.receive([row for row in rows if row.seq <= fence.seq])
            waiting.confirm_all(fence.place)
            await self._apply()
        assert self._replica.position.place == fence.place

    async def _apply(self) -> bool:
        did_any = False
        while rows := self._waiting.next_group():
            layer, notes = await work.run(partial(read_group, rows))
            last = rows[-1]
            position = Position(self._replica.position.generation, last.place, last.time_us, last.transactions)
            if layer.is_empty():
                self._replica.pass_over(position)
            else:
                await self._store(layer, position)
                # One step of the event loop: readers see the group and what is kept in memory of it together.
                self._replica.publish()
                self._adopt(layer, notes)
            self._waiting.applied(rows)
            did_any = True
        return did_any

    async def _store(self, layer: Layer, position: Position) -> None:
        """Write a group; where the disk is full or compaction is behind, wait for it. The cluster does not wait."""
        is_told = False
        while True:
            try:
                if self._replica.has_room:
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


def set_back() -> Failure:
    return Failure(
        Kind.CORRUPT,
        "The replicated log was set back: this node has applied rows that the log does not have. Its PostgreSQL was "
        "restored to an earlier point, or a standby was promoted that had not received them. This node has stopped. "
        "See `armillary cluster reset-log`.",
    )


def cut_off() -> Failure:
    return Failure(
        Kind.UNAVAILABLE,
        "This replica is too far behind: the rows that follow its position were removed from the log. Build it anew "
        "from another node.",
    )
