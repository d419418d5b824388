"""The commonest message of all: one document by its `_id` and shard key, and nothing else is wanted of it. Where
everything about it is plain it is answered in one go; whatever is not, and whatever there is to refuse or to wait for,
is left to `reads.py`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from bson.int64 import Int64
from bson.objectid import ObjectId

from armillary.account import bson_items
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.answers import NOT_OPEN, document_of, encode_elements
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.client import Grant
from armillary.doors.mongo.sessions import session_id_of

_FIELDS: Final = frozenset("find filter limit singleBatch lsid $db $clusterTime $readPreference".split())
_VALUES: Final = frozenset((ObjectId, str, int, Int64))
_BEGINNING: Final = b"\x03cursor\x00"
_FIRST: Final = b"\x04firstBatch\x00"
_ELEMENT: Final = b"\x030\x00"  # the first of an array


def find(call: Call) -> bytes | None:
    """The fields of the answer; None: it is not as plain as that."""
    body = call.body
    given, name = body.get("filter"), body["find"]
    if type(given) is not dict or type(name) is not str or not body.keys() <= _FIELDS:
        return None
    limit = body.get("limit", 1)
    if type(limit) is not int or limit < 0 or type(body.get("singleBatch", True)) is not bool:
        return None
    client = call.client
    if client.grant is Grant.NOTHING:
        return None
    container = namespaces.find(call, name)
    if container is None or given.keys() != _fields(container):
        return None
    for value in given.values():
        if type(value) not in _VALUES:
            return None
    if "collation" in namespaces.options_of(container):
        return None
    lsid = body.get("lsid")
    if lsid is not None:
        call.session = call.door.sessions.find(session_id_of(lsid))
    found = bson_items.find_at_hand(container, container.key_of_bson(given), given["_id"])
    if found is None:
        return None
    call.charge_ru = found.charge_ru
    document = found.document
    batch = document_of(_ELEMENT + document if document is not None else b"")
    return _BEGINNING + document_of(_FIRST + batch + _ending(f"{call.database}.{name}"))


def _fields(container: Container) -> frozenset[str] | None:
    """What a filter must name, and no more."""
    return _names(namespaces.shard_fields(container))


@lru_cache(1024)
def _names(fields: tuple[str, ...]) -> frozenset[str] | None:
    return None if any("." in each for each in fields) else frozenset(("_id", *fields))


@lru_cache(1024)
def _ending(namespace: str) -> bytes:
    """Of a cursor that has no more."""
    return NOT_OPEN + encode_elements({"ns": namespace})
