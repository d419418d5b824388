"""Cursors: what is left of an answer after its first batch. A cursor belongs to a session and a namespace, is used by
one command at a time, and expires ten minutes after its last use. The commands that open, read and close cursors are
in `cursor_commands.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, Protocol, TypeVar

from armillary import limits
from armillary.account.captures.notes import Request
from armillary.clock import Clock
from armillary.doors.mongo.settings import Grant
from armillary.languages.mongo.errors import refusal


class Reader(Protocol):
    """What a cursor asks of the command that reads it."""

    def check_time(self) -> None: ...


R = TypeVar("R", bound=Reader)
R_contra = TypeVar("R_contra", bound=Reader, contravariant=True)


class Source(Protocol[R_contra]):
    """Where a cursor's documents come from, in portions of any size."""

    @property
    def is_exhausted(self) -> bool:
        """Whether it is known that no documents are left."""

    @property
    def resume_token(self) -> Any:
        """The resume token of a change stream; None for other sources."""

    async def read(self, call: R_contra, count: int) -> list[bytes] | None:
        """Some documents, perhaps more than asked for; an empty list: none for now; None: there are no more."""

    async def close(self) -> None: ...


class PagedSource:
    """Documents from a generator of pages. As with MongoDB, a batch that is just full does not say whether more
    follow."""

    is_exhausted = False
    resume_token = None

    def __init__(self, pages: AsyncIterator[list[bytes]]) -> None:
        self._pages = pages

    async def read(self, call: Reader, count: int) -> list[bytes] | None:
        async for page in self._pages:
            if page:
                return page
        return None

    async def close(self) -> None:
        closing = getattr(self._pages, "aclose", None)
        if closing is not None:
            await closing()


class ListedSource:
    """Documents in memory."""

    resume_token = None

    def __init__(self, documents: list[bytes]) -> None:
        self._documents: list[bytes] | None = documents

    @property
    def is_exhausted(self) -> bool:
        return not self._documents

    async def read(self, call: Reader, count: int) -> list[bytes] | None:
        documents, self._documents = self._documents, None
        return documents

    async def close(self) -> None:
        self._documents = None


class Cursor(Generic[R]):
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
        "owner",
        "pending",
        "request",
        "session_id",
        "source",
        "transaction",
    )

    def __init__(
        self,
        source: Source[R],
        namespace: str,
        command: str,
        grant: Grant,
        session_id: bytes | None,
        transaction: int | None,
        *,
        limit_s: float | None = None,
        has_waits: bool = False,
        owner: str = "",
    ) -> None:
        self.id = 0  # until a getMore is needed
        self.source = source
        self.namespace = namespace
        self.command = command
        self.request: Request | None = None  # for captures: the one that its pages belong to
        self.grant = grant
        self.owner = owner  # the user of a database that opened it
        self.session_id = session_id
        self.transaction = transaction
        self.has_waits = has_waits  # change streams and tailable cursors: an empty batch is not the end
        self.ended_by = ""  # the error of the next getMore, if its collection is gone
        self.left: int | None = None  # documents up to the limit
        # What is left of maxTimeMS, over all getMores.
        self.limit_s = limit_s
        self.never_expires = False
        self.pending: list[bytes] = []
        self.is_done = False
        self.is_busy = False
        self.is_killed = False
        self.last_used_s = 0.0

    def is_of(self, owner: str, grant: Grant) -> bool:
        """Whether a client may read on: the user that opened it, or, of clients with keys, one with the same grant."""
        return self.owner == owner and (bool(owner) or self.grant is grant)

    async def next_batch(self, call: R, count: int) -> list[bytes]:
        """At most so many documents, within what one answer may hold."""
        batch: list[bytes] = []
        size_bytes = 0
        if self.left is not None:
            count = min(count, self.left)
        while len(batch) < count:
            if not self.pending:
                if self.has_waits and batch:
                    break  # documents are sent as soon as there are some
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


class Cursors(Generic[R]):
    def __init__(self, clock: Clock, place: int = 0, process_count: int = 1) -> None:
        """`place`: the number of this process, of so many: the ids of its cursors say it."""
        self._clock = clock
        self._place, self._process_count = place, process_count
        self._cursors: dict[int, Cursor[R]] = {}
        self._ending: set[asyncio.Task[bool]] = set()

    def __len__(self) -> int:
        return len(self._cursors)

    def add(self, cursor: Cursor[R]) -> int:
        if len(self._cursors) >= limits.MONGO_CURSORS_MAX:
            raise refusal(365, f"There are {limits.MONGO_CURSORS_MAX} open cursors: close some")
        while not cursor.id or cursor.id in self._cursors:
            number = int.from_bytes(self._clock.random_bytes(8), "little") & ((1 << 62) - 1)
            cursor.id = number - number % self._process_count + self._place
        cursor.last_used_s = self._clock.monotonic_s()
        self._cursors[cursor.id] = cursor
        return cursor.id

    def find(self, cursor_id: int) -> Cursor[R] | None:
        return self._cursors.get(cursor_id)

    def of_session(self, grant: Grant, session_id: bytes) -> list[int]:
        return [each.id for each in self._cursors.values() if each.session_id == session_id and each.grant is grant]

    def of_namespace(self, namespace: str) -> list[int]:
        return [each.id for each in self._cursors.values() if each.namespace == namespace]

    def touch(self, cursor: Cursor[R]) -> None:
        cursor.last_used_s = self._clock.monotonic_s()

    async def kill(self, cursor_id: int) -> bool:
        cursor = self._cursors.pop(cursor_id, None)
        if cursor is None:
            return False
        cursor.is_killed = True
        if not cursor.is_busy:  # else the command that uses it closes it
            await cursor.close()
        return True

    def end_orphans(self, has_owner: Callable[[str], bool]) -> None:
        """Kill the cursors of users that were dropped, or have another password now."""
        for cursor in list(self._cursors.values()):
            if cursor.owner and not has_owner(cursor.owner):
                task = asyncio.get_running_loop().create_task(self.kill(cursor.id))
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)

    async def end(self, cursor_id: int, reason: str) -> None:
        """The collection is gone: the next getMore is told the reason, once."""
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
