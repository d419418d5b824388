"""Tailable cursors: the documents of a capped collection in insertion order, and those inserted later. With awaitData a
getMore waits for new documents. The cursor ends when the document it read last is evicted.
"""

from __future__ import annotations

from armillary import limits
from armillary.account.collections import tailing
from armillary.account.container import Container
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.commands.capped import is_capped
from armillary.doors.mongo.reading.cursor_commands import first_batch, new_cursor
from armillary.doors.mongo.reading.find_query import Query
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import decode, encode


class TailSource:
    resume_token = None

    def __init__(self, container: Container, query: Query, *, waits: bool) -> None:
        self._container = container
        self._query = query
        self._waits = waits
        self._number = tailing.BEGINNING
        self._skip = query.skip
        self._is_closed = False

    @property
    def is_exhausted(self) -> bool:
        """MongoDB does not wait for the first document of an empty collection either."""
        return self._is_over() or self._number == tailing.BEGINNING

    async def read(self, call: Call, count: int) -> list[bytes] | None:
        machine = call.services.machine
        limit_ms = call.fields.whole("maxTimeMS", low=0) if call.name == "getMore" else None
        wait_s = limits.MONGO_AWAIT_SECONDS if limit_ms is None else limit_ms / 1000
        ends_s = machine.monotonic_s() + (wait_s if self._waits and call.name == "getMore" else 0.0)
        while not self._is_over():
            lsn = tailing.partition_of(self._container).lsn
            found = await self._next(call)
            if found:
                return found
            while await tailing.lsn_now(self._container) == lsn and not self._is_over():
                left_s = ends_s - machine.monotonic_s()
                if left_s <= 0 or not await call.client.pause(min(left_s, limits.MONGO_STREAM_POLL_SECONDS)):
                    return []
                call.check_killed()
        return None

    def _is_over(self) -> bool:
        return self._is_closed or self._container.is_retired

    async def _next(self, call: Call) -> list[bytes]:
        """Some documents that match, or none if there are none now."""
        query = self._query
        while True:
            page = await tailing.read_after(self._container, self._number)
            self._number = page.number
            call.spend(page.charge_ru)
            found = []
            for encoded in page.documents:
                document = decode(encoded)
                if query.matcher.matches(document):
                    found.append(encoded if query.project is None else encode(query.project(document)))
            if self._skip:
                found, self._skip = found[self._skip :], max(0, self._skip - len(found))
            if found or page.is_end:
                return found

    async def close(self) -> None:
        self._is_closed = True


async def find(call: Call, container: Container, namespace: str, query: Query) -> Reply:
    """A find with `tailable`."""
    fields = call.fields
    if not is_capped(container):
        raise refusal(2, f"error processing query: ns={namespace} tailable cursor requested on non capped collection")
    if query.returns_keys or query.shows_numbers:
        raise refusal(115, "A tailable cursor shows documents: returnKey and showRecordId are not supported.")
    if call.transaction is not None:
        raise refusal(263, "Tailable cursors are not allowed in transactions")
    if fields.flag("singleBatch", False):
        raise refusal(9, "Cannot use tailable option with the 'singleBatch' option")
    order = fields.document("sort", {})
    if order and order != {"$natural": 1}:
        raise refusal(9, "cannot use tailable option with a sort other than {$natural: 1}")
    source = TailSource(container, query, waits=fields.flag("awaitData", False))
    cursor = new_cursor(call, source, namespace, has_waits=True)
    cursor.left = query.limit or None
    cursor.never_expires = fields.flag("noCursorTimeout", False)
    return await first_batch(call, cursor, batch_size=fields.whole("batchSize", low=0))
