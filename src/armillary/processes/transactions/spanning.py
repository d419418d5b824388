"""Transactions and snapshot reads over the partitions of several processes. The process that a client's commands are
answered by keeps one of these for each; what the others have of it is in `parts.py`. Its commit is one write, if all
that is written is in one process, and else two steps (`promises.py`).

Processes promise one after the other, in the order of their numbers, so two transactions never wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from copy import copy
from typing import Any, NoReturn
from weakref import finalize

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.allocation import place_of_store
from armillary.account.collections.spanning_transactions import SpanningTransaction
from armillary.account.collections.transactions import elsewhere, unavailable
from armillary.account.container import Container
from armillary.account.snapshots.snapshot_reads import PinnedAccount
from armillary.account.visits.elsewhere.partition_elsewhere import PartitionElsewhere
from armillary.account.visits.elsewhere.place import Place, Question
from armillary.account.visits.elsewhere.place import ask as ask_place
from armillary.account.visits.visits import Done, Visit
from armillary.account.visits.write_visits import write_conflict
from armillary.errors import Failure, Kind
from armillary.model.keys import NO_KEY, Key
from armillary.model.ranges import KeyRange, PartitionMap
from armillary.partition.budget import Ask
from armillary.partition.history.retryable_write_records import Record
from armillary.partition.partition import Partition
from armillary.processes.catalog_owner import FIRST
from armillary.processes.places import ProcessHere, ask_once
from armillary.processes.transactions.parts import Begun, Parts, PartUsed
from armillary.processes.transactions.promises import Promises
from armillary.processes.transactions.shared_moments import SharedMoments
from armillary.processes.transactions.spanning_questions import (
    AskDecision,
    BeginHere,
    BeginSpanning,
    CommitParts,
    EndSpanning,
    GiveUpPromise,
    HasKept,
    KeepPromise,
    OpenPast,
    PromiseParts,
    ResolvePromise,
    UsePart,
)

log = logging.getLogger(__name__)


class NoSpanning:
    """A SpanningProcesses. What processes have promised is known by their numbers, and places that change their holders
    would need it known by the places."""

    async def begin_transaction(self, *, spans: bool) -> NoReturn:
        raise Failure(Kind.UNSUPPORTED, "Transactions of several requests are not offered on several logs.")

    async def take_snapshot(self) -> NoReturn:
        raise Failure(Kind.UNSUPPORTED, "Reads of a snapshot are not offered on several logs.")


class SpanningHere:
    """Of one process: a SpanningProcesses, and what other processes ask it."""

    def __init__(self, account: Account, here: ProcessHere) -> None:
        self.moments: SharedMoments | None = None  # of the first process
        self.parts = Parts()
        self.promises = Promises(here.number, self.ask_decision, self._tell_kept)
        self.account = account
        self.here = here
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """When the partitions of the account are open."""
        self.promises.open(self.account, await self.promises.stored(self.account))

    async def close(self) -> None:
        await self.promises.close()
        for task in self._tasks:
            task.cancel()

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Work that goes on when nothing waits for it any more."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.debug("a transaction over several processes: %r", task.exception())

    def left(self, place: int) -> None:
        """Another process has ended."""
        self.parts.leave(place)
        self.promises.left(place)

    # Beginning and ending.

    async def begin_transaction(self, *, spans: bool) -> SpanningProcessesTransaction:
        return SpanningProcessesTransaction(self, self._new(is_transaction=True), is_whole=spans)

    async def take_snapshot(self) -> PastOfProcesses:
        begun = self._new(is_transaction=False)
        await self.begin_everywhere(begun)
        return PastOfProcesses(self, begun.id)

    def _new(self, *, is_transaction: bool) -> Begun:
        return Begun(self.account.clock.random_bytes(16), self.here.number, is_transaction)

    async def begin_everywhere(self, begun: Begun) -> None:
        """At one moment of all processes."""
        try:
            if self.here.number == FIRST:
                await self.begin(begun)
            else:
                await ask_once(self.here.places.first, BeginSpanning(begun), 2 * limits.MOMENT_SECONDS_MAX)
        except BaseException as error:
            self.end(begun.id)
            if isinstance(error, Failure) and error.kind is Kind.UNAVAILABLE:
                raise unavailable() from None  # a process is being started: clients begin again
            raise

    async def begin(self, begun: Begun) -> None:
        assert self.moments is not None, "the first process is asked"
        await self.moments.begin(begun)

    def end(self, begun_id: bytes) -> None:
        self.parts.end(begun_id)
        for place in self.here.places.connected:
            place.tell(EndSpanning(begun_id))

    # The two steps of a commit, in this process.

    async def decide(self, txn_id: bytes, record: Record | None, others: list[int]) -> None:
        spanning = self.parts.transaction(txn_id).spanning
        if others:
            await self.promises.decide(txn_id, spanning, record, others)
        else:
            await spanning.commit(record)
        self.parts.end(txn_id)

    async def promise(self, txn_id: bytes, record: Record | None, coordinator: int) -> bool:
        transaction = self.parts.transaction(txn_id)
        keeper = transaction.begun.keeper
        has_promised = await self.promises.promise(txn_id, transaction.spanning, record, (coordinator, keeper))
        if has_promised and keeper != self.here.number and self.here.places[keeper].connected is None:
            self.promises.resolve([txn_id])  # it has ended meanwhile
        return has_promised

    async def keep(self, txn_id: bytes) -> None:
        await self._or_resolve(txn_id, self.promises.keep)

    async def give_up(self, txn_id: bytes) -> None:
        await self._or_resolve(txn_id, self.promises.give_up)

    async def _or_resolve(self, txn_id: bytes, end: Callable[[bytes], Awaitable[None]]) -> None:
        try:
            await end(txn_id)
        except Failure:
            self.promises.resolve([txn_id])  # storage has failed: it is tried again
            raise
        self.parts.end(txn_id)

    def resolve(self, txn_id: bytes) -> None:
        self.promises.resolve([txn_id])

    async def ask_decision(self, place: int, txn_id: bytes) -> bool | None:
        is_committed: bool | None = await self.asked(place, lambda _: AskDecision(txn_id))
        return is_committed

    async def asked(self, place: int, question: Callable[[bytes], Question]) -> Any:
        """`question` is given the id of a write."""
        if place == self.here.number:
            return await question(b"").answer(self.here)
        other = self.here.places[place]
        return await ask_place(other, question(other.new_write_id()), self.account.clock)

    def _tell_kept(self, coordinator: int, txn_id: bytes) -> None:
        if coordinator == self.here.number:
            self.note_kept(txn_id, self.here.number)
        else:
            self.here.places[coordinator].tell(HasKept(txn_id, self.here.number))

    def note_kept(self, txn_id: bytes, place: int) -> None:
        self.run(self.promises.has_kept(txn_id, place))


class _One(dict[int, Partition]):
    """The partitions of a container of which a transaction sees one."""

    def __missing__(self, _range_id: int) -> NoReturn:
        raise elsewhere()


class PartElsewhere(PartitionElsewhere):
    """A logical partition of another process as a transaction sees it."""

    has_written = False
    is_moved = False  # it is where it was when the transaction began

    async def visited(
        self, container: Container, visit: Visit[Done], ask: Ask | None, *, is_counted: bool = True
    ) -> Done | None:
        self.has_written = self.has_written or not visit.IS_READ
        return await super().visited(container, visit, ask, is_counted=is_counted)


class SpanningProcessesTransaction:
    """An OpenTransaction."""

    def __init__(self, spanning: SpanningHere, begun: Begun, *, is_whole: bool) -> None:
        """`is_whole`: begin with the partitions of all processes. Else it is begun in the process of the first that it
        uses, which holds up no others, and in all of them when it uses one of another process."""
        self._spanning = spanning
        self._begun = begun
        self._id = begun.id
        self._account = spanning.account
        self._used: dict[tuple[Container, bytes], tuple[PartElsewhere, Container, int]] = {}
        self._places: set[int] = set()  # that it has used
        self._begins_whole = is_whole
        self._is_whole = False
        self._is_open = True

    @property
    def spans(self) -> bool:
        return len(self._places) > 1

    @property
    def _own(self) -> SpanningTransaction | None:
        found = self._spanning.parts.find(self._id)
        return found.spanning if found is not None else None

    def uses(self, container: Container) -> bool:
        own = self._own
        return any(used is container for used, _ in self._used) or (own is not None and own.uses(container))

    async def _reach(self, place: int) -> None:
        """Begin in a process, unless it has."""
        if place in self._places:
            return
        is_first = not self._places
        self._places.add(place)
        if self._is_whole:
            return
        if is_first and not self._begins_whole:
            asked = BeginHere(self._begun)
            await self._spanning.asked(place, lambda _: asked)
            return
        await self._spanning.begin_everywhere(self._begun)
        self._is_whole = True

    async def within(self, container: Container, key: Key | None, *, is_own: bool) -> Container:
        if not self._is_open or any(used.is_retired for used, _ in self._used):
            raise write_conflict()  # it was moved to another shard key: the next attempt finds the new one
        if key is None and container.key is not None:
            raise elsewhere()
        epk = container.effective_key(key or NO_KEY)
        used = self._used.get((container, epk))
        if used is None:
            place = place_of_store(container.partition_for(epk).range.store)
            await self._reach(place)
            if place == self._spanning.here.number:
                own = self._spanning.parts.transaction(self._id).spanning
                return await own.within(container, key, is_own=is_own)
            asked = UsePart(self._id, container.record.rid, key, is_own)
            part: PartUsed = await self._spanning.asked(place, lambda _: asked)
            used = self._used[container, epk] = self._stand_in(container, part, place)
        if used[2] != container.schema.rules.number:
            raise unavailable()
        return used[1]

    def _stand_in(self, container: Container, part: PartUsed, place: int) -> tuple[PartElsewhere, Container, int]:
        inside = copy(container)
        inside.map = PartitionMap(part.ranges)
        key_range = inside.map.get(part.range_id)
        assert key_range is not None, "a part is of one of the ranges"
        asked, clock = self._spanning.here.places[place], self._account.clock
        partition = PartElsewhere(asked, part.name, key_range, clock, _nothing, container.state.first_lsn)
        inside.partitions = _One({part.range_id: partition})
        return partition, inside, container.schema.rules.number

    # Its end.

    async def commit(self, record: Record | None = None) -> None:
        """It goes on when the client waits no more: half a commit would hold up other writers."""
        self._is_open = False
        await asyncio.shield(self._spanning.run(self._commit(record)))

    async def _commit(self, record: Record | None) -> None:
        try:
            places = {part.place.number for part, _, _ in self._used.values() if part.has_written}
            own = self._own
            if own is not None and own.has_written:
                places.add(self._spanning.here.number)
            if places:
                *others, coordinator = sorted(places)
                await self._commit_at(coordinator, others, record)
        finally:
            await self.abort()

    async def _commit_at(self, coordinator: int, others: list[int], record: Record | None) -> None:
        promised: list[int] = []
        try:
            for place in others:
                promised.append(place)  # perhaps, if it does not answer
                if not await self._asked(place, lambda w: PromiseParts(w, self._id, record, coordinator)):
                    promised.pop()
        except Failure as failure:
            await self._each(promised, lambda w: GiveUpPromise(w, self._id))
            raise (write_conflict() if failure.kind is Kind.UNAVAILABLE else failure) from None
        try:
            await self._asked(coordinator, lambda w: CommitParts(w, self._id, record, promised))
        except Failure as failure:
            if not await self._is_committed(coordinator, promised, failure):
                raise
        await self._each(promised, lambda w: KeepPromise(w, self._id))

    async def _is_committed(self, coordinator: int, promised: list[int], failure: Failure) -> bool:
        """After the coordinator has refused, or has not answered. Raises if that cannot be known now."""
        is_lost = failure.kind is Kind.UNAVAILABLE
        if not promised:
            if is_lost:
                raise _unknown(failure)
            return False
        try:
            is_committed: bool | None = await self._spanning.ask_decision(coordinator, self._id)
        except Failure:
            is_committed = None
        if is_committed is None:
            await self._each(promised, lambda _: ResolvePromise(self._id))
            raise _unknown(failure)
        if not is_committed:
            await self._each(promised, lambda w: GiveUpPromise(w, self._id))
        return is_committed

    async def _asked(self, place: int, question: Callable[[bytes], Question]) -> Any:
        return await self._spanning.asked(place, question)

    async def _each(self, places: list[int], question: Callable[[bytes], Question]) -> None:
        """Of those that do not answer: they find out by themselves."""
        await asyncio.gather(*[self._asked(each, question) for each in places], return_exceptions=True)

    async def abort(self) -> None:
        self._is_open = False
        self._spanning.end(self._id)


def _unknown(failure: Failure) -> Failure:
    return Failure(failure.kind, failure.message, details={"is_unknown": True})


class _Kept:
    """A snapshot, as long as anything refers to this: nothing that it refers to does."""


class PastElsewhere(PartitionElsewhere):
    """A partition of another process as it was at the moment of a snapshot."""

    is_moved = False
    kept: _Kept


class PastOfProcesses:
    """A PastAccount."""

    def __init__(self, spanning: SpanningHere, snapshot_id: bytes) -> None:
        self._spanning = spanning
        self._id = snapshot_id
        self._kept = _Kept()
        self._opened: dict[Container, Container] = {}
        loop = asyncio.get_running_loop()
        finalize(self._kept, _end_soon, loop, spanning, snapshot_id).atexit = False

    async def of(self, container: Container) -> Container | None:
        own: PinnedAccount | None = self._spanning.parts.snapshot(self._id)
        past = await own.of(container) if own is not None else None
        if past is None:
            return None
        opened = self._opened.get(container) or await self._open(container, past)
        if opened is not None:
            self._opened[container] = opened
        return opened

    async def _open(self, container: Container, past: Container) -> Container | None:
        here = self._spanning.here
        opened = copy(past)
        opened.partitions = dict(past.partitions)
        names: dict[int, bytes] = {}
        for key_range in past.map.ranges:
            place = place_of_store(key_range.store)
            if place == here.number:
                continue
            if place not in names:
                asked = OpenPast(self._id, container.record.rid)
                name: bytes | None = await self._spanning.asked(place, lambda _, asked=asked: asked)  # type: ignore[misc]
                if name is None:
                    return None
                names[place] = name
            opened.partitions[key_range.id] = self._stand_in(container, here.places[place], names[place], key_range)
        return opened

    def _stand_in(self, container: Container, place: Place, name: bytes, key_range: KeyRange) -> PastElsewhere:
        clock, first_lsn = self._spanning.account.clock, container.state.first_lsn
        made = PastElsewhere(place, name, key_range, clock, _nothing, first_lsn)
        made.kept = self._kept
        return made


def _nothing() -> None:
    """What a transaction or a snapshot sees of a partition is never another one's."""


def _end_soon(loop: asyncio.AbstractEventLoop, spanning: SpanningHere, snapshot_id: bytes) -> None:
    """Garbage may be collected in any thread."""
    try:
        loop.call_soon_threadsafe(spanning.end, snapshot_id)
    except RuntimeError:
        pass  # the loop has ended, and so does the process
