"""Commands of cursors: opening one with its first batch, getMore and killCursors. Cursors themselves are in
`cursors.py`.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from bson.int64 import Int64

from armillary import limits
from armillary.account.captures import notes
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.errors import out_of_time
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.reading.change_streams import ChangeStream
from armillary.doors.mongo.reading.cursors import Cursor, Cursors, ListedSource, Source
from armillary.doors.mongo.sessions import authorization
from armillary.doors.mongo.wire.answers import Elements, cursor_reply
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document, encode

_ENOUGH: Final = 1 << 60

OpenCursor: TypeAlias = Cursor[Call]


def new_cursor(call: Call, source: Source[Call], namespace: str, *, has_waits: bool = False) -> OpenCursor:
    """A cursor of the command's session; it is not open before `first_batch` finds that documents are left."""
    cursor = Cursor(
        source,
        namespace,
        call.name,
        call.client.grant,
        call.session.id if call.session is not None else None,
        call.txn_number if call.transaction is not None else None,
        limit_s=call.time_left_s if call.name != "getMore" else None,
        has_waits=has_waits,
        owner=call.client.owner,
    )
    if call.account.captures.is_on:
        cursor.request = notes.REQUEST.get()
    return cursor


def listed(call: Call, documents: list[Document], namespace: str) -> OpenCursor:
    """A cursor over documents in memory, such as lists of collections and of indexes."""
    return new_cursor(call, ListedSource([encode(each) for each in documents]), namespace)


def batch_size_of(call: Call) -> int | None:
    """The batch size in the `cursor` field of commands other than find."""
    wanted = Fields(call.fields.document("cursor", {}), f"{call.name}.cursor")
    wanted.only(("batchSize",))
    return wanted.whole("batchSize", low=0)


async def first_batch(call: Call, cursor: OpenCursor, *, batch_size: int | None, is_single: bool = False) -> Elements:
    """The first batch; the cursor stays open if documents are left."""
    count = limits.MONGO_FIRST_BATCH if batch_size is None else batch_size
    try:
        batch = await cursor.next_batch(call, count) if count else []
    except BaseException:  # also on cancellation: the cursor's resources are released
        await cursor.close()
        raise
    if is_single or cursor.is_over:
        await cursor.close()
    else:
        call.services.cursors.add(cursor)
    call.documents_returned = len(batch)
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
    cursors = call.services.cursors
    cursor = cursors.find(cursor_id)
    if cursor is None or not cursor.is_of(call.client.owner, call.client.grant):
        raise _not_found(cursor_id)
    call.is_stream = isinstance(cursor.source, ChangeStream)
    if isinstance(cursor.source, ChangeStream):
        cursor.source.check_rights(call)
    authorization.require_for_cursor(call, cursor.command)
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
    begun_s = call.services.machine.elapsed_s()
    if cursor.limit_s is not None and not cursor.has_waits:
        call.deadline_s = begun_s + cursor.limit_s
        if call.services.fail_points.is_out_of_time:
            raise out_of_time()
    cursor.is_busy = True
    if call.account.captures.is_on:
        notes.resume(cursor.request)
    try:
        batch = await cursor.next_batch(call, wanted or _ENOUGH)
    except BaseException:  # also on cancellation
        cursor.is_busy = False
        await cursors.kill(cursor_id)
        raise
    cursor.is_busy = False
    cursors.touch(cursor)
    if cursor.limit_s is not None:
        cursor.limit_s = max(0.0, cursor.limit_s - (call.services.machine.elapsed_s() - begun_s))
    await _check_going(cursors, cursor)
    if cursor.is_killed:
        await cursor.close()
        raise refusal(237, f"cursor id {cursor_id} was killed")
    left_id = cursor_id
    if cursor.is_over:
        await cursors.kill(cursor_id)
        left_id = 0
    call.documents_returned = len(batch)
    return cursor_reply(batch, cursor_id=left_id, namespace=namespace, is_first=False, token=cursor.source.resume_token)


async def _check_going(cursors: Cursors[Call], cursor: OpenCursor) -> None:
    if cursor.ended_by:
        await cursors.kill(cursor.id)
        raise refusal(175, cursor.ended_by)


async def end_of_collection(cursors: Cursors[Call], namespace: str, reason: str) -> None:
    """End the cursors of a collection that is gone; change streams send an invalidate event instead."""
    for cursor_id in cursors.of_namespace(namespace):
        cursor = cursors.find(cursor_id)
        if cursor is not None and not isinstance(cursor.source, ChangeStream) and cursor.command != "listIndexes":
            await cursors.end(cursor_id, reason)


async def kill_cursors(call: Call) -> Reply:
    namespace = f"{call.database}.{call.collection()}"
    others = call.services.others
    elsewhere = await others.killed_cursors(call) if others is not None else {}  # whether it was, by id
    killed: list[Int64] = []
    not_found: list[Int64] = []
    for index, each in enumerate(call.fields.array("cursors")):
        if not isinstance(each, int) or isinstance(each, bool):
            raise refusal(14, f"BSON field 'killCursors.cursors.{index}' is the wrong type, expected type 'long'")
        if int(each) in elsewhere:
            (killed if elsewhere[int(each)] else not_found).append(Int64(each))
            continue
        cursor = call.services.cursors.find(int(each))
        # A read-only key kills only cursors that were opened with a read-only key.
        is_own = cursor is not None and cursor.grant <= call.client.grant and cursor.namespace == namespace
        is_own = is_own and cursor is not None and cursor.owner == call.client.owner
        if is_own and await call.services.cursors.kill(int(each)):
            killed.append(Int64(each))
        else:
            not_found.append(Int64(each))
    return {"cursorsKilled": killed, "cursorsNotFound": not_found, "cursorsAlive": [], "cursorsUnknown": []}


def _check_session(call: Call, cursor: OpenCursor) -> None:
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
