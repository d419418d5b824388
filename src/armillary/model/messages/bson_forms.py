"""How values of BSON's own types are sent. Their classes are those of the `bson` package, with the subtypes, flags and
scopes that they carry."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, MutableMapping
from typing import Any

from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from armillary.model.messages import forms
from armillary.model.messages.forms import Append, Decode, Encode, Malformed

_signed = struct.Struct(">q")
_two = struct.Struct(">II")
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)


def register(encoders: MutableMapping[type, Encode], decoders: list[Decode]) -> None:
    def fixed(kind: type, tag: int, size: int, pack: Callable[[Any], bytes], make: Callable[[bytes], Any]) -> None:
        head = bytes([tag])

        def decode(message: bytes, at: int, depth: int) -> tuple[Any, int]:
            return make(message[at : at + size]), at + size

        encoders[kind] = lambda value, append: append(head + pack(value))
        decoders[tag] = decode

    fixed(Int64, forms.INT64, 8, _signed.pack, lambda packed: Int64(_signed.unpack(packed)[0]))
    fixed(ObjectId, forms.OBJECT_ID, 12, lambda value: value.binary, ObjectId)
    fixed(Timestamp, forms.TIMESTAMP, 8, lambda value: _two.pack(value.time, value.inc), _timestamp)
    fixed(Decimal128, forms.DECIMAL, 16, lambda value: value.bid, Decimal128.from_bid)
    fixed(DatetimeMS, forms.DATETIME_MS, 8, lambda value: _signed.pack(int(value)), _milliseconds)
    fixed(MinKey, forms.MIN_KEY, 0, lambda value: b"", lambda packed: MinKey())
    fixed(MaxKey, forms.MAX_KEY, 0, lambda value: b"", lambda packed: MaxKey())

    def of_parts(kind: type, tag: int, parts: Callable[[Any], tuple[Any, ...]], make: Callable[..., Any]) -> None:
        head = bytes([tag])

        def encode(value: Any, append: Append) -> None:
            append(head)
            sent = parts(value)
            encoders[tuple](sent, append)

        def decode(message: bytes, at: int, depth: int) -> tuple[Any, int]:
            if message[at] != forms.TUPLE or depth <= 0:
                raise Malformed("a value of BSON has no parts")
            found, at = decoders[forms.TUPLE](message, at + 1, depth - 1)
            return make(*found), at

        encoders[kind] = encode
        decoders[tag] = decode

    of_parts(Binary, forms.BINARY, lambda value: (bytes(value), value.subtype), Binary)
    of_parts(Regex, forms.REGEX, lambda value: (value.pattern, int(value.flags)), _regex)
    of_parts(Code, forms.CODE, lambda value: (str(value), value.scope), Code)
    of_parts(
        DBRef,
        forms.DB_REF,
        lambda value: (value.collection, value.id, value.database, _extra(value)),
        lambda collection, id_, database, extra: DBRef(collection, id_, database, extra),
    )
    of_parts(datetime.datetime, forms.DATETIME, _datetime_parts, _datetime)


def _timestamp(packed: bytes) -> Timestamp:
    return Timestamp(*_two.unpack(packed))


def _milliseconds(packed: bytes) -> DatetimeMS:
    return DatetimeMS(int(_signed.unpack(packed)[0]))


def _regex(pattern: str | bytes, flags: int) -> Regex[Any]:
    return Regex(pattern, flags)


def _extra(value: DBRef) -> dict[str, Any]:
    return {name: each for name, each in value.as_doc().items() if name not in ("$ref", "$id", "$db")}


def _datetime_parts(value: datetime.datetime) -> tuple[int, int | None]:
    """Microseconds since 1970, and of those that have one the offset in seconds."""
    offset = value.utcoffset()
    local = value.replace(tzinfo=None)
    return (local - _EPOCH) // _MICROSECOND, None if offset is None else int(offset.total_seconds())


def _datetime(microseconds: int, offset_s: int | None) -> datetime.datetime:
    local = _EPOCH + datetime.timedelta(microseconds=microseconds)
    if offset_s is None:
        return local
    return local.replace(tzinfo=datetime.timezone(datetime.timedelta(seconds=offset_s)))
