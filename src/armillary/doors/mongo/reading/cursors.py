"""Cursors: what is left of an answer after its first batch. A cursor belongs to a session and a namespace, is used by
one command at a time, and is forgotten ten minutes after the last.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, Protocol

from bson.int64 import Int64

from armillary import limits
from armillary.clock import Clock
from armillary.doors.mongo.call import Call, Reply, out_of_time
from armillary.doors.mongo.client import Grant
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.wire.answers import Elements, cursor_reply
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal

_ENOUGH: Final = 1 << 60


class Source(Protocol):
    """Where a cursor's documents come from, in portions of any size."""

    @property
    def is_exhausted(self) -> bool:
        """Whether it is known already that there are no more."""

    @property
    def resume_token(self) -> Any:
        """What a change stream would be gone on with from here; None for everything else."""

    async def read(self, call: Call, count: int) -> list[bytes] | None:
        """Some documents, perhaps more than asked for; an empty list: none for now; None: there are no more."""

    async def close(self) -> None: ...


class PagedSource:
    """Documents from a generator of pages. As with MongoDB, a batch that is just full does not say whether more
    follow."""

    is_exhausted = False
    resume_token = None

    def __init__(self, pages: AsyncIterator[list[bytes]]) -> None:
        self._pages = pages

    async def read(self, call: Call, count: int) -> list[bytes] | None:
        async for page in self._pages:
            if page:
                return page
        return None

    async def close(self) -> None:
        closing = getattr(self._pages, "aclose", None)
        if closing is not None:
            await closing()


class ListedSource:
    """Documents that are all there."""

    resume_token = None

    def __init__(self, documents: list[bytes]) -> None:
        self._documents: list[bytes] | None = documents

    @property
    def is_exhausted(self) -> bool:
        return not self._documents

    async def read(self, call: Call, count: int) -> list[bytes] | None:
        documents, self._documents = self._documents, None
        return documents

    async def close(self) -> None:
        self._documents = None


class Cursor:
    __slots__ = (
        "command",
        "ended_by",
        "grant",
        "has_waits",
        "id",
        "is_busy",
        "is_done",
        "is_killed",
        "last_used_s",
        "left",
        "limit_s",
        "namespace",
        "never_expires",
        "pending",
        "session_id",
        "source",
        "transaction",
    )

    def __init__(self, source: Source, namespace: str, call: Call, *, has_waits: bool = False) -> None:
        self.id = 0  # until somebody has to come again
        self.source = source
        self.namespace = namespace
        self.command = call.name
        self.grant = call.client.grant
        self.session_id = call.session.id if call.session is not None else None
        self.transaction = call.txn_number if call.transaction is not None else None
        self.has_waits = has_waits  # as those of change streams and tailable ones: no documents is not the end
        self.ended_by = ""  # what happened to its collection meanwhile
        self.left: int | None = None  # documents that may still be given
        # What is left of the time that the client allows, over all that it asks for.
        self.limit_s = call.time_left_s if call.name != "getMore" else None
        self.never_expires = False
        self.pending: list[bytes] = []
        self.is_done = False
        self.is_busy = False
        self.is_killed = False
        self.last_used_s = 0.0

    async def next_batch(self, call: Call, count: int) -> list[bytes]:
        """At most so many documents, within what one answer may hold."""
        batch: list[bytes] = []
        size_bytes = 0
        if self.left is not None:
            count = min(count, self.left)
        while len(batch) < count:
            if not self.pending:
                if self.has_waits and batch:
                    break  # what there is is told at once
                if not self.has_waits:
                    call.check_time()
                page = None if self.is_done else await self.source.read(call, count - len(batch))
                if page is None:
                    self.is_done = True
                    return batch
                if not page:
                    return batch  # none for now
                self.pending = page
            taken = 0
            room = count - len(batch)
            for document in self.pending[:room]:
                size_bytes += len(document) + 8
                if size_bytes > limits.MONGO_REPLY_BYTES_MAX and batch:
                    break
                batch.append(document)
                taken += 1
            is_full = taken < min(room, len(self.pending))
            self.pending = self.pending[taken:]
            if is_full:
                break
        if self.left is not None:
            self.left -= len(batch)
            self.is_done = self.is_done or self.left == 0
        return batch

    @property
    def is_over(self) -> bool:
        return self.left == 0 or (not self.pending and (self.is_done or self.source.is_exhausted))

    async def close(self) -> None:
        self.is_done = True
        self.pending = []
        await self.source.close()


class Cursors:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cursors: dict[int, Cursor] = {}

    def __len__(self) -> int:
        return len(self._cursors)

    def add(self, cursor: Cursor) -> int:
        if len(self._cursors) >= limits.MONGO_CURSORS_MAX:
            raise refusal(365, f"There are {limits.MONGO_CURSORS_MAX} open cursors: close some")
        while not cursor.id or cursor.id in self._cursors:
            cursor.id = int.from_bytes(self._clock.random_bytes(8), "little") & ((1 << 62) - 1)
        cursor.last_used_s = self._clock.monotonic_s()
        self._cursors[cursor.id] = cursor
        return cursor.id

    def find(self, cursor_id: int) -> Cursor | None:
        return self._cursors.get(cursor_id)

    def of_session(self, grant: Grant, session_id: bytes) -> list[int]:
        return [each.id for each in self._cursors.values() if each.session_id == session_id and each.grant is grant]

    def of_namespace(self, namespace: str) -> list[int]:
        return [each.id for each in self._cursors.values() if each.namespace == namespace]

    def touch(self, cursor: Cursor) -> None:
        cursor.last_used_s = self._clock.monotonic_s()

    async def kill(self, cursor_id: int) -> bool:
        cursor = self._cursors.pop(cursor_id, None)
        if cursor is None:
            return False
        cursor.is_killed = True
        if not cursor.is_busy:  # else whoever uses it closes it
            await cursor.close()
        return True

    async def end(self, cursor_id: int, reason: str) -> None:
        """There is nothing to read any more: whoever comes for it is told so, once."""
        cursor = self._cursors.get(cursor_id)
        if cursor is None:
            return
        cursor.ended_by = reason
        if not cursor.is_busy:
            await cursor.close()

    async def expire(self) -> None:
        limit_s = self._clock.monotonic_s() - limits.MONGO_CURSOR_SECONDS
        for cursor in list(self._cursors.values()):
            if cursor.last_used_s < limit_s and not cursor.is_busy and not cursor.never_expires:
                await self.kill(cursor.id)

    async def close(self) -> None:
        for cursor_id in list(self._cursors):
            await self.kill(cursor_id)


def batch_size_of(call: Call) -> int | None:
    """What commands other than find say about their first batch."""
    wanted = Fields(call.fields.document("cursor", {}), f"{call.name}.cursor")
    wanted.only(("batchSize",))
    return wanted.whole("batchSize", low=0)


async def first_batch(call: Call, cursor: Cursor, *, batch_size: int | None, is_single: bool = False) -> Elements:
    """The answer that opens a cursor, or that is all there is."""
    count = limits.MONGO_FIRST_BATCH if batch_size is None else batch_size
    try:
        batch = await cursor.next_batch(call, count) if count else []
    except BaseException:  # also if the client has gone: what the cursor holds is let go of
        await cursor.close()
        raise
    if is_single or cursor.is_over:
        await cursor.close()
    else:
        call.door.cursors.add(cursor)
    return cursor_reply(
        batch,
        cursor_id=cursor.id,
        namespace=cursor.namespace,
        is_first=True,
        token=cursor.source.resume_token,
        time=call.past_time,
    )


async def get_more(call: Call) -> Reply:
    cursor_id = call.fields.long(call.name)
    call.fields.require(("collection",))
    namespace = f"{call.database}.{call.collection('collection')}"
    wanted = call.fields.whole("batchSize", low=0)
    cursors = call.door.cursors
    cursor = cursors.find(cursor_id)
    if cursor is None or cursor.grant is not call.client.grant:
        raise _not_found(cursor_id)
    if cursor.namespace != namespace:
        raise refusal(
            13,
            f"Requested getMore on namespace '{namespace}', but cursor belongs to a different namespace "
            f"{cursor.namespace}",
        )
    _check_session(call, cursor)
    await _check_going(cursors, cursor)
    if call.body.get("maxTimeMS") is not None and not cursor.has_waits:
        raise refusal(2, "cannot set maxTimeMS on getMore command for a non-awaitData cursor")
    if cursor.is_busy:
        raise refusal(143, f"cursor id {cursor_id} is already in use")
    begun_s = call.door.machine.elapsed_s()
    if cursor.limit_s is not None and not cursor.has_waits:
        call.deadline_s = begun_s + cursor.limit_s
        if call.door.fail_points.is_out_of_time:
            raise out_of_time()
    cursor.is_busy = True
    try:
        batch = await cursor.next_batch(call, wanted or _ENOUGH)
    except BaseException:  # likewise
        cursor.is_busy = False
        await cursors.kill(cursor_id)
        raise
    cursor.is_busy = False
    cursors.touch(cursor)
    if cursor.limit_s is not None:
        cursor.limit_s = max(0.0, cursor.limit_s - (call.door.machine.elapsed_s() - begun_s))
    await _check_going(cursors, cursor)
    if cursor.is_killed:
        await cursor.close()
        raise refusal(237, f"cursor id {cursor_id} was killed")
    left_id = cursor_id
    if cursor.is_over:
        await cursors.kill(cursor_id)
        left_id = 0
    return cursor_reply(batch, cursor_id=left_id, namespace=namespace, is_first=False, token=cursor.source.resume_token)


async def _check_going(cursors: Cursors, cursor: Cursor) -> None:
    if cursor.ended_by:
        await cursors.kill(cursor.id)
        raise refusal(175, cursor.ended_by)


async def kill_cursors(call: Call) -> Reply:
    namespace = f"{call.database}.{call.collection()}"
    killed, not_found = [], []
    for index, each in enumerate(call.fields.array("cursors")):
        if not isinstance(each, int) or isinstance(each, bool):
            raise refusal(14, f"BSON field 'killCursors.cursors.{index}' is the wrong type, expected type 'long'")
        cursor = call.door.cursors.find(int(each))
        # A key that may write ends any cursor, one that may only read those that were opened with such a key.
        is_own = cursor is not None and cursor.grant <= call.client.grant and cursor.namespace == namespace
        if is_own and await call.door.cursors.kill(int(each)):
            killed.append(Int64(each))
        else:
            not_found.append(Int64(each))
    return {"cursorsKilled": killed, "cursorsNotFound": not_found, "cursorsAlive": [], "cursorsUnknown": []}


def _check_session(call: Call, cursor: Cursor) -> None:
    own = call.session.id if call.session is not None else None
    if cursor.session_id is not None and own != cursor.session_id:
        # Implicit sessions are drawn from a pool: a getMore comes with the one that opened its cursor.
        if own is None:
            raise refusal(
                50737, f"Cannot run getMore on cursor {cursor.id}, which was created in a session, without an lsid"
            )
        raise refusal(50738, f"Cannot run getMore on cursor {cursor.id}, which was created in another session")
    if cursor.session_id is None and own is not None:
        raise refusal(
            50736, f"Cannot run getMore on cursor {cursor.id}, which was not created in a session, in a session"
        )


def _not_found(cursor_id: int) -> Failure:
    return refusal(43, f"cursor id {cursor_id} not found")
