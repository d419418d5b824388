"""Fast path of point reads: a find of one whole document by `_id` and shard key, answered from frame to frame without
awaiting. Anything unusual, anything to refuse and anything to wait for is left to `find.py`.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple

import bson
from bson.errors import BSONError
from bson.int64 import Int64
from bson.objectid import ObjectId

from armillary.account.collections import document_operations
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Services
from armillary.doors.mongo.client import Client
from armillary.doors.mongo.replica_set.membership import NOT_PRIMARY_READS
from armillary.doors.mongo.sessions.sessions import session_id_of
from armillary.doors.mongo.settings import Grant
from armillary.doors.mongo.wire.answers import NOT_OPEN, OK, encode_elements
from armillary.doors.mongo.wire.messages import HEADER, HEADER_BYTES, OP_MSG
from armillary.errors import Failure
from armillary.model.bson.bson_values import CODEC, Document, decode

_FIELDS: Final = frozenset("find limit singleBatch lsid $db $clusterTime $readPreference".split())  # and the filter
_VALUES: Final = frozenset((ObjectId, str, int, Int64))
_PLAIN: Final = bytes(5)  # no flags, and a section of one document
_BODY_AT: Final = HEADER_BYTES + len(_PLAIN)
_COMMAND: Final = b"\x02find\x00"
_NAME_AT: Final = 4 + len(_COMMAND) + 4  # in the body: behind its length, the first field's name and its length
_FILTER: Final = b"\x03filter\x00"  # the second field, as drivers send it
_ID: Final = b"_id\x00"  # a cheap test before decoding
_BYTES_MAX: Final = 4096  # longer messages are not considered, to bound the cache
_BEGINNING: Final = b"\x03cursor\x00"
_FIRST: Final = b"\x04firstBatch\x00"
_ELEMENT: Final = b"\x030\x00"  # the first of an array
_INT32: Final = Struct("<i")
_EMPTY_BYTES: Final = 5  # of a document without fields


class _Frame(NamedTuple):
    """The fields of a command beside its filter; they repeat within a session between two writes."""

    database: str
    collection: str
    session_id: bytes | None
    is_primary_read: bool
    ending: bytes  # of a cursor that has no more


def answer(services: Services, client: Client, message: bytes) -> tuple[bytes, float] | None:
    """The answer's document and its charge; None: not for the fast path."""
    if message[HEADER_BYTES:_BODY_AT] != _PLAIN or message[_BODY_AT + 4 : _BODY_AT + 10] != _COMMAND:
        return None
    if len(message) > _BYTES_MAX:
        return None
    raw = message[_BODY_AT:]
    given_at = _NAME_AT + _INT32.unpack_from(raw, _NAME_AT - 4)[0] + len(_FILTER) if len(raw) > _NAME_AT else 0
    if raw[given_at - len(_FILTER) : given_at] != _FILTER or _ID not in raw or client.grant is Grant.NOTHING:
        return None
    if client.login is not None:  # its rights are looked up
        return None
    if len(raw) < given_at + 5 or _INT32.unpack_from(raw)[0] != len(raw) or HEADER.unpack_from(message)[3] != OP_MSG:
        return None
    end = given_at + _INT32.unpack_from(raw, given_at)[0]
    if not given_at < end < len(raw):
        return None
    frame = _frame(raw[4 : given_at - len(_FILTER)] + raw[end:])
    if frame is None:
        return None
    try:
        found = _find(services, client, frame, bson.decode(raw[given_at:end], CODEC))
    except _REFUSED_ELSEWHERE:
        return None
    if found is None:
        return None
    member = services.membership
    if member is not None and not member.may_read_at_once(is_primary_read=frame.is_primary_read):
        return None
    document, charge_ru = found
    return _answer(document, frame.ending, services.cluster_time.elements()), charge_ru


def _answer(document: bytes | None, ending: bytes, time: bytes) -> bytes:
    """Documents around documents, joined once."""
    element = _ELEMENT + document if document is not None else b""
    batch_bytes = len(element) + _EMPTY_BYTES
    cursor_bytes = len(_FIRST) + batch_bytes + len(ending) + _EMPTY_BYTES
    size = len(_BEGINNING) + cursor_bytes + len(OK) + len(time) + _EMPTY_BYTES
    pack = _INT32.pack
    return b"%b%b%b%b%b%b\0%b\0%b%b\0" % (
        *(pack(size), _BEGINNING, pack(cursor_bytes), _FIRST, pack(batch_bytes), element),
        *(ending, OK, time),
    )


_REFUSED_ELSEWHERE: Final = (BSONError, Failure, ValueError, RecursionError, OverflowError)


@lru_cache(1024)
def _frame(content: bytes) -> _Frame | None:
    """Of the fields of a command without its filter, with the byte at their end; None: they are not plain."""
    try:
        body = decode(_INT32.pack(len(content) + _INT32.size) + content)
        lsid = body.get("lsid")
        session_id = session_id_of(lsid) if lsid is not None else None
    except _REFUSED_ELSEWHERE:
        return None
    name, database, limit = body.get("find"), body.get("$db"), body.get("limit", 1)
    if type(name) is not str or type(database) is not str or not body.keys() <= _FIELDS:
        return None
    if type(limit) is not int or limit < 0 or type(body.get("singleBatch", True)) is not bool:
        return None
    preference = body.get("$readPreference")
    mode = preference.get("mode") if isinstance(preference, dict) else None
    is_primary_read = mode not in NOT_PRIMARY_READS
    return _Frame(database, name, session_id, is_primary_read, NOT_OPEN + encode_elements({"ns": f"{database}.{name}"}))


def _find(services: Services, client: Client, frame: _Frame, given: Document) -> tuple[bytes | None, float] | None:
    container = services.account.container(frame.database, frame.collection)
    if container.name != frame.collection or container.database.name != frame.database:
        return None  # `account.container` finds rids too, which are no names here
    if not _is_plain(container, given):
        return None
    found = document_operations.find_at_hand(container, given)
    if found is not None and frame.session_id is not None:
        services.sessions_of(client).find(frame.session_id)
    return found


def _is_plain(container: Container, given: dict[str, Any]) -> bool:
    """Whether a filter consists of `_id` and the shard key only."""
    return given.keys() == namespaces.plain_fields(container) and _VALUES.issuperset(map(type, given.values()))
