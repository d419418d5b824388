"""The commonest message of all: one document by its `_id` and shard key, and nothing else is wanted of it. Where
everything about it is plain it is answered from frame to frame in one go; whatever is not, and whatever there is to
refuse or to wait for, is left to `reads.py` and the way that leads there.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from bson.errors import BSONError
from bson.int64 import Int64
from bson.objectid import ObjectId

from armillary.account import bson_items
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.answers import NOT_OPEN, OK, document_of, encode_elements
from armillary.doors.mongo.client import Client, Grant
from armillary.doors.mongo.sessions import session_id_of
from armillary.doors.mongo.wire import HEADER, HEADER_BYTES, OP_MSG
from armillary.errors import Failure
from armillary.model.bson_values import Document, decode

if TYPE_CHECKING:
    from armillary.doors.mongo.door import MongoDoor

_FIELDS: Final = frozenset("find filter limit singleBatch lsid $db $clusterTime $readPreference".split())
_VALUES: Final = frozenset((ObjectId, str, int, Int64))
_PLAIN: Final = bytes(5)  # no flags, and a section of one document
_BODY_AT: Final = HEADER_BYTES + len(_PLAIN)
_COMMAND: Final = b"\x02find\x00"
_ID: Final = b"_id\x00"  # few others say it: they are not decoded in vain
_BEGINNING: Final = b"\x03cursor\x00"
_FIRST: Final = b"\x04firstBatch\x00"
_ELEMENT: Final = b"\x030\x00"  # the first of an array
_INT32: Final = Struct("<i")


def answer(door: MongoDoor, client: Client, frame: bytes) -> tuple[bytes, float] | None:
    """The document that answers a frame, and its charge; None: it is not as plain as that."""
    if frame[HEADER_BYTES:_BODY_AT] != _PLAIN or frame[_BODY_AT + 4 : _BODY_AT + 10] != _COMMAND or _ID not in frame:
        return None
    _, _, _, op_code = HEADER.unpack_from(frame)
    raw = frame[_BODY_AT:]
    if op_code != OP_MSG or _INT32.unpack_from(raw)[0] != len(raw) or client.grant is Grant.NOTHING:
        return None
    try:
        body = decode(raw)
        found = _find(door, body)
    except (BSONError, Failure, ValueError, RecursionError, OverflowError):
        return None  # refused by those who know how
    if found is None:
        return None
    document = found.document
    batch = document_of(_ELEMENT + document if document is not None else b"")
    cursor = document_of(_FIRST + batch + _ending(body["$db"], body["find"]))
    return document_of(_BEGINNING + cursor + OK + door.cluster_time.elements()), found.charge_ru


def _find(door: MongoDoor, body: Document) -> bson_items.Found | None:
    given, name, database = body.get("filter"), body["find"], body.get("$db")
    if type(given) is not dict or type(name) is not str or type(database) is not str or not body.keys() <= _FIELDS:
        return None
    limit = body.get("limit", 1)
    if type(limit) is not int or limit < 0 or type(body.get("singleBatch", True)) is not bool:
        return None
    container = door.account.container(database, name)
    if container.name != name or container.database.name != database or not _is_plain(container, given):
        return None
    lsid = body.get("lsid")
    session_id = session_id_of(lsid) if lsid is not None else None
    found = bson_items.find_at_hand(container, container.key_of_bson(given), given["_id"])
    if found is not None and session_id is not None:
        door.sessions.find(session_id)
    return found


def _is_plain(container: Container, given: dict[str, Any]) -> bool:
    """Whether a filter names the one document, and no more."""
    if given.keys() != _names(namespaces.shard_fields(container)):
        return False
    for value in given.values():
        if type(value) not in _VALUES:
            return False
    return "collation" not in namespaces.options_of(container)


@lru_cache(1024)
def _names(fields: tuple[str, ...]) -> frozenset[str] | None:
    return None if any("." in each for each in fields) else frozenset(("_id", *fields))


@lru_cache(1024)
def _ending(database: str, collection: str) -> bytes:
    """Of a cursor that has no more."""
    return NOT_OPEN + encode_elements({"ns": f"{database}.{collection}"})
