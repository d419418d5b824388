"""Commands that run inline, without a greenlet: they read or write one document by its `_id` and evaluate nothing that
could take long. A greenlet would add a tenth to their time. If the document turns out to be large, `in_slices` runs
that part in one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

from bson.int64 import Int64
from bson.objectid import ObjectId

from armillary import limits, work
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.wire.messages import decode_document
from armillary.model.bson.bson_values import Document

T = TypeVar("T")

# Commands that evaluate nothing, or run long parts in slices themselves.
_ALWAYS: Final = frozenset("insert hello isMaster ismaster ping saslStart saslContinue endSessions".split())
_FRAME: Final = "lsid $db $clusterTime $readPreference maxTimeMS comment apiVersion txnNumber writeConcern ordered"
_FIND: Final = frozenset(f"find filter projection limit singleBatch batchSize {_FRAME}".split())
_MODIFY: Final = frozenset(f"findAndModify findandmodify query update remove new upsert {_FRAME}".split())
_WRITE: Final = frozenset(f"update delete updates deletes {_FRAME}".split())
_STATEMENT: Final = frozenset("q u upsert multi limit".split())
_SCALARS: Final = frozenset([str, int, float, bool, Int64, ObjectId, datetime])
_FLAGS: Final = frozenset([int, bool, float])
_FIELDS_MAX: Final = 4


def runs_inline(call: Call) -> bool:
    name = call.name
    if name in _ALWAYS:
        return True
    if len(call.raw_body) > limits.WORK_AT_ONCE_BYTES:
        return False
    body = call.body
    if name == "find":
        return body.keys() <= _FIND and _names_one(body.get("filter")) and _is_listed(call) and _is_plain(body)
    if name == "update" or name == "delete":
        return body.keys() <= _WRITE and _is_short_write(call, "updates" if name == "update" else "deletes")
    if name == "findAndModify" or name == "findandmodify":
        return body.keys() <= _MODIFY and _names_one(body.get("query")) and type(body.get("update", {})) is dict
    return False


def _is_short_write(call: Call, name: str) -> bool:
    encoded = call.sequences.get(name)
    if encoded is None or len(encoded) != 1 or len(encoded[0]) > limits.WORK_AT_ONCE_BYTES:
        return False
    statement = decode_document(encoded[0])
    call.statements = [statement]
    is_one = not statement.get("multi") and statement.get("limit", 1) == 1
    # An update that is a pipeline evaluates expressions, which may take any time.
    is_plain = statement.keys() <= _STATEMENT and type(statement.get("u", {})) is dict
    return is_one and is_plain and _names_one(statement.get("q"))


def _names_one(given: Any) -> bool:
    if type(given) is not dict or "_id" not in given or len(given) > _FIELDS_MAX:
        return False
    return "$where" not in given and _SCALARS.issuperset(map(type, given.values()))


def _is_plain(body: Document) -> bool:
    """Whether the projection only includes or excludes fields."""
    shown = body.get("projection", {})
    return type(shown) is dict and _FLAGS.issuperset(map(type, shown.values()))


def _is_listed(call: Call) -> bool:
    """Whether the name is a collection: a view may take any time."""
    name = call.body[call.name]
    return type(name) is str and namespaces.find(call, name) is not None


async def in_slices(fn: Callable[[], T], size_bytes: int, call: Call) -> T:
    """Run a computation over a document of this size: in a greenlet if it may take long and is not in one already."""
    if size_bytes <= limits.WORK_AT_ONCE_BYTES or work.can_wait():
        return fn()
    return await work.run(fn, call.check_work)
