"""Group commit of a leader: transaction functions are run, their group is appended to the log, and only what the log
has acknowledged is written to RocksDB, published and answered.

One append is in flight; meanwhile the functions that come are run over it and gathered as the next group. So the local
state never runs ahead of the log, and a leader that was deposed has nothing to undo. Answers that write nothing (a
conflict, a missing item, a failed precondition) are strong reads: they are given after the groups that they saw, and
only while the lease holds or after an empty append.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from armillary import limits, work
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.storage.disk_errors import Answer, again, no_room, refuse, set_error, unknown_outcome
from armillary.storage.engine import Quick, Receiver, T, Txn
from armillary.storage.log.replicated_log import Deposed, LogUnavailable, ReplicatedLog
from armillary.storage.log.rows import Place, Row, RowKind, group_rows, new_row
from armillary.storage.overlay import Get, Layer, OverlayTxn, Pair, Scan
from armillary.storage.replication.lease import Lease
from armillary.storage.replication.local_replica import LocalReplica, Position
from armillary.storage.replication.recent_rows import LeaderWord, Pushed, RecentRows, pushed
from armillary.storage.rocks_database import is_stall
from armillary.storage.transactions import Gathering, Waiting, refuse_waiting, waiting_for

_log = logging.getLogger(__name__)
_NOTHING: Final = Layer()


class Flight(NamedTuple):
    """A group whose append is under way."""

    layer: Layer
    answers: list[Answer]
    begun_s: float
    is_mark: bool = False  # it writes nothing; the answer is its place


class GroupCommit:
    """One epoch of leading. It ends with `end` (handing over) or by itself (deposed, storage failed), and then refuses
    everything; `on_end` is called once, with the reason."""

    def __init__(
        self,
        replica: LocalReplica,
        log: ReplicatedLog,
        epoch: int,
        lease: Lease,
        clock: Clock,
        on_end: Callable[[Failure], None],
    ) -> None:
        self._replica = replica
        self._log = log
        self._epoch = epoch
        self._lease = lease
        self._clock = clock
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Waiting] = deque()
        self._gathering = Gathering()
        self._marks: list[Answer] = []  # asked for, and not in flight
        self._flight: Flight | None = None
        self._flying: asyncio.Task[None] | None = None
        self._end: Failure | None = None  # why nothing is accepted any more
        self._is_stopped = False  # what was accepted is refused too
        self._is_late = False  # the append in flight takes longer than clients wait
        self._is_scheduled = False
        self._is_running = False
        self._is_storing = False  # a confirmed group is being written to RocksDB
        self.recent = RecentRows(replica.position.place.seq)
        self._time_us = 0  # the latest that a row has or followers were told
        self._row_us: int | None = None  # of the rows in flight
        self._room_checked_s = float("-inf")
        self._has_room = True
        self.has_failed = False  # a confirmed group could not be stored here
        self._watch = self._loop.create_task(self._watch_flights())

    @property
    def confirmed(self) -> Position:
        """The newest row that is acknowledged, and applied here."""
        return self._replica.position

    @property
    def word(self) -> LeaderWord:
        """What this leader says to followers. A leader that hands over gives its last row the latest time that was
        told, so nothing is promised after that."""
        at = self._replica.position
        return LeaderWord(at.place, at.transactions, self._told_us(), self._lease.holds and self._end is None)

    async def rows(self, after_seq: int, wait_s: float) -> Pushed:
        """The rows above a seq for a follower; where there are none, wait for one for a while. Raises a Failure when
        leading has ended: the answer would come at once each time."""
        await self.recent.wait_above(after_seq, self._clock, wait_s)
        if self._is_stopped:
            raise not_leader()
        return pushed(self.recent, self.word, after_seq)

    @property
    def waiting_count(self) -> int:
        """Transactions that wait to be run."""
        return len(self._waiting)

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
        self._check_open()
        self._waiting.append(entry)
        if not self._is_scheduled:
            self._schedule()

    async def mark(self) -> Place:
        """Append a row at which every node digests its state. Returns where it is, once it is acknowledged."""
        self._check_open()
        future: asyncio.Future[Place] = self._loop.create_future()
        self._marks.append(Answer(future, None, None))
        self._proceed()
        return await future

    @property
    def is_open(self) -> bool:
        """Whether transactions are accepted, as far as leading goes."""
        return self._end is None

    def _check_open(self) -> None:
        if self._end is not None:
            raise again(self._end)
        if self._is_late:
            raise log_is_late()

    async def end(self, reason: Failure) -> None:
        """Accept nothing more, and wait until what was accepted is answered."""
        if self._end is None:
            self._end = reason
        while self._is_busy and not self._is_late:
            await self._clock.sleep(limits.HAND_OVER_POLL_SECONDS)
        if self._time_us > self._replica.position.time_us and not self._is_stopped and not self._is_late:
            # The successor's clock may be behind the time that followers were told: its rows follow this one's time.
            self._begin(Flight(Layer(), [], self._clock.elapsed_s()))
            while self._flight is not None and not self._is_late:
                await self._clock.sleep(limits.HAND_OVER_POLL_SECONDS)
        self._stop(reason)

    @property
    def _is_busy(self) -> bool:
        return bool(self._waiting or self._gathering.answers or self._marks) or self._flight is not None

    async def abandon(self, reason: Failure) -> None:
        """Stop: what is in flight has an unknown outcome. Its append is not cancelled, which PostgreSQL would answer as
        a success; if the rows get into the log, this node reads them there. A group that is being written to RocksDB
        is waited for, since the follower writes there next."""
        self._stop(reason)
        while self._is_storing:
            await self._clock.sleep(limits.HAND_OVER_POLL_SECONDS)

    # Running functions.

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._run_waiting)

    def _run_waiting(self) -> None:
        self._is_scheduled = False
        if self._is_running or not self._waiting or self._gathering.is_full:
            return  # continued by `_proceed`
        now_s = self._clock.elapsed_s()
        if now_s - self._room_checked_s >= limits.FREE_DISK_CHECK_SECONDS:
            self._room_checked_s = now_s
            self._has_room = self._replica.has_room
        if not self._has_room:
            refuse_waiting(self._waiting, no_room(), but_freeing=True)
        self._is_running = True
        work.begin(partial(self._run_group, now_s + limits.GROUP_SECONDS_MAX))

    def _run_group(self, deadline_s: float) -> None:
        try:
            self._gathering.run(self._waiting, *self._below(), self._clock.elapsed_s, deadline_s)
        finally:
            self._is_running = False
        self._proceed()

    def _below(self) -> tuple[Get, Scan]:
        """What functions see below the gathering group: the group in flight over RocksDB. When the flight ends while a
        function has given way, RocksDB has the group too, and applying it once more changes nothing."""
        database = self._replica.database
        assert database is not None
        if self._flight is None:
            return database.get, database.scan
        over = OverlayTxn(self._flight.layer, _NOTHING, database.get, database.scan)

        def scan(low: bytes, high: bytes, reverse: bool, skip: int) -> Iterator[Pair]:
            return ((key[skip:], value) for key, value in over.scan(low, high, reverse))

        return over.get, scan

    # Appending, applying and answering.

    def _proceed(self) -> None:
        """Continue with whatever can be done now: append the gathered group, run what waits."""
        if self._is_stopped:
            return
        gathering = self._gathering
        if self._flight is None and self._marks:
            answers, self._marks = self._marks, []
            self._begin(Flight(Layer(), answers, self._clock.elapsed_s(), is_mark=True))
        elif self._flight is None and not self._is_running and gathering.answers:
            self._gathering = Gathering()
            if gathering.layer.is_empty() and self._lease.holds:
                _give(gathering.answers)
            else:
                self._begin(Flight(gathering.layer, gathering.answers, self._clock.elapsed_s()))
        if self._waiting and not self._is_scheduled and not self._is_running and not self._gathering.is_full:
            self._schedule()

    def _told_us(self) -> int:
        """The time that followers are told: no later than every row that is not acknowledged yet, or that follows, has.
        It does not go back, whatever this node's clock does."""
        if self._row_us is not None:
            return self._row_us - 1
        self._time_us = max(self._time_us, self._replica.position.time_us, int(self._clock.now_s() * 1_000_000))
        return self._time_us

    def _begin(self, flight: Flight) -> None:
        self._flight = flight
        self._flying = self._loop.create_task(self._fly(flight))

    async def _rows_of(self, flight: Flight) -> list[Row]:
        """A large group is encoded in portions, between which other requests have their turn."""
        at, layer = self._replica.position, flight.layer
        # Later than everything that was told: a follower that has reached a time has all rows up to it.
        self._time_us = self._row_us = time_us = self._told_us() + 1
        if layer.is_empty():
            row = new_row(
                at.place,
                self._epoch,
                RowKind.MARK if flight.is_mark else RowKind.EMPTY,
                confirmed=at.place,
                time_us=time_us,
                transactions=at.transactions,
                is_last=True,
                data=b"",
            )
            return [row]
        make = partial(
            group_rows,
            layer,
            after=at.place,
            epoch=self._epoch,
            confirmed=at.place,
            time_us=time_us,
            transactions=at.transactions + sum(answer.error is None for answer in flight.answers),
        )
        return make() if len(layer.writes) <= limits.WORK_PORTION else await work.run(make)

    async def _fly(self, flight: Flight) -> None:
        try:
            rows = await self._rows_of(flight)
            await self._log.append(rows)
            if self._is_stopped:
                return
            self._is_storing = True
            await self._store(flight, rows[-1])
            self.recent.add(rows)
            self._row_us = None
        except Deposed:
            refuse(flight.answers, not_leader())
            self._stop(not_leader())
            return
        except LogUnavailable:  # the log was closed
            self._stop(storage_failed())
            return
        except Exception as error:
            # The log has the group and RocksDB refused it: every other node will have it, so nothing may be published
            # or answered here that does not.
            _log.error("a confirmed group cannot be stored here, handing over: %s", error)
            self.has_failed = True
            refuse(flight.answers, unknown_outcome(storage_failed()))
            self._stop(storage_failed())
            return
        finally:
            self._is_storing = False
        self._flight, self._is_late = None, False
        place = rows[-1].place
        _give([each._replace(result=place) for each in flight.answers] if flight.is_mark else flight.answers)
        self._proceed()

    async def _store(self, flight: Flight, last: Row) -> None:
        position = Position(self._replica.position.generation, last.place, last.time_us, last.transactions)
        if flight.is_mark:
            self._replica.pass_mark(position)
            return
        if flight.layer.is_empty():
            self._replica.pass_over(position)
            return
        give_up_s = self._clock.elapsed_s() + limits.LEASE_SECONDS
        while True:
            try:
                if len(flight.layer.writes) <= limits.WRITE_AT_ONCE_KEYS:
                    self._replica.apply(flight.layer, position)
                else:
                    await work.run(partial(self._replica.apply, flight.layer, position))
                break
            except Exception as error:
                if not is_stall(error) or self._is_stopped or self._clock.elapsed_s() >= give_up_s:
                    raise
            await self._clock.sleep(limits.STALL_RETRY_SECONDS)
        self._replica.publish()

    # Refusing.

    async def _watch_flights(self) -> None:
        """Clients wait for the log for a limited time."""
        while True:
            await self._clock.sleep(limits.LOG_WATCH_SECONDS)
            flight = self._flight
            if flight is None or self._clock.elapsed_s() - flight.begun_s < limits.LOG_WAIT_SECONDS_MAX:
                continue
            self._is_late = True
            refuse(flight.answers, unknown_outcome(log_is_late()))
            if not self._is_running:  # a function that has given way still uses them
                self._refuse_gathered(log_is_late())

    def _refuse_gathered(self, failure: Failure) -> None:
        """Nothing of the gathering group is in the log: it is dropped."""
        gathering, self._gathering = self._gathering, Gathering()
        marks, self._marks = self._marks, []
        refuse(gathering.answers + marks, failure)
        refuse_waiting(self._waiting, failure)

    def _stop(self, reason: Failure) -> None:
        is_first, self._is_stopped, self._end = not self._is_stopped, True, reason
        self._watch.cancel()
        self.recent.end()
        if self._flight is not None:
            refuse(self._flight.answers, unknown_outcome(leader_gone()))
            self._flight = None
        self._refuse_gathered(reason)
        if is_first:
            self._on_end(reason)


def _give(answers: list[Answer]) -> None:
    for future, result, error in answers:
        if future.done():  # the caller was cancelled, or was refused because the log was late; the write stays done
            continue
        if error is None:
            future.set_result(result)
        else:
            set_error(future, error)


def not_leader() -> Failure:
    return Failure(Kind.NOT_LEADER, "Another node of the cluster leads now. Send the write there; nothing was stored.")


def leader_gone() -> Failure:
    return Failure(Kind.UNAVAILABLE, "Another node of the cluster leads now.", retry_after_ms=1_000)


def storage_failed() -> Failure:
    return Failure(
        Kind.UNAVAILABLE,
        "The storage of this node failed, and another node of the cluster takes over. Try again.",
        retry_after_ms=1_000,
    )


def log_is_late() -> Failure:
    return Failure(
        Kind.UNAVAILABLE,
        "The replicated log does not answer at the moment. Try again.",
        retry_after_ms=int(limits.LOG_WAIT_SECONDS_MAX * 500),
    )
