"""BSON values as bytes that sort in MongoDB's order of values, for the indexes of collections.

Each value is the class of its type and a body; none is a prefix of another, so values may be concatenated, and inverted
for descending order. Equal values have equal bytes whatever their numeric type: a number is the nearest double and, if
that is not exact, the side on which the number lies and the number itself.

    numbers    8 bytes: the double, its bits turned; 02; or 01 or 03 and 19 bytes: exponent and 34 digits
    strings    UTF-8 with 00 written as 01 01 and 01 as 01 02, then 00
    objects    for each field: the class of its value, its name as a string, its value; then 00
    arrays     the elements, then 00
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any, Final

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

from armillary.model.bson.bson_values import MISSING, regex_options
from armillary.model.values import EXACT_INT_MAX
from armillary.work import paced

# Two apart, so that each class has an end that no other begins with. 00 ends what is in parts, FF is above all.
MIN_KEY, EMPTY_ARRAY, NULL, NUMBER, STRING, OBJECT, ARRAY = range(0x10, 0x1E, 2)
BINARY, OBJECT_ID, BOOL, DATE, TIMESTAMP, REGEX, CODE, CODE_WITH_SCOPE, MAX_KEY = range(0x1E, 0x30, 2)

NULL_BYTES: Final = bytes([NULL])
EMPTY_BYTES: Final = bytes([EMPTY_ARRAY])
_INVERTED: Final = bytes(255 - byte for byte in range(256))
_pack_number = struct.Struct(">Bd").pack
_pack_long = struct.Struct(">BQ").pack
_LESS, _SAME, _MORE = b"\x01", b"\x02", b"\x03"
_NAN: Final = bytes([NUMBER]) + bytes(8) + _SAME
_DIGITS: Final = 34
_EXPONENT_ZERO: Final = 1 << 15
_CLASSES: Final[dict[type, int]] = {
    str: STRING,
    int: NUMBER,
    Int64: NUMBER,
    float: NUMBER,
    Decimal128: NUMBER,
    type(None): NULL,
    bool: BOOL,
    dict: OBJECT,
    DBRef: OBJECT,
    list: ARRAY,
    ObjectId: OBJECT_ID,
    DatetimeMS: DATE,
    Binary: BINARY,
    bytes: BINARY,
    Timestamp: TIMESTAMP,
    Regex: REGEX,
    MinKey: MIN_KEY,
    MaxKey: MAX_KEY,
}


def order_class(value: Any) -> int:
    """The first byte of a value."""
    found = _CLASSES.get(type(value))
    if found is not None:
        return found
    if isinstance(value, Code):
        return CODE if value.scope is None else CODE_WITH_SCOPE
    assert value is MISSING, f"{type(value).__name__} is no BSON value"
    return NULL


def class_bounds(first_byte: int) -> tuple[bytes, bytes]:
    """All values of a class: [first, second)."""
    return bytes([first_byte]), bytes([first_byte + 1])


def order_bytes(value: Any) -> bytes:
    """A missing value counts as null."""
    kind = type(value)
    if kind is str:
        return b"%c%b\x00" % (STRING, _body(value))
    if kind is int or kind is Int64 or kind is float:
        return _number(value)
    if kind is ObjectId:
        return b"%c%b" % (OBJECT_ID, value.binary)
    if kind is DatetimeMS:
        return _pack_long(DATE, int(value) + (1 << 63))
    if value is None or value is MISSING:
        return NULL_BYTES
    if kind is bool:
        return b"%c%c" % (BOOL, value)
    if kind is dict or kind is list or kind is DBRef:
        parts: list[bytes] = []
        _append(value, parts)
        return b"".join(parts)
    return _rare(value)


def inverted(encoded: bytes) -> bytes:
    """The bytes for descending order."""
    return encoded.translate(_INVERTED)


def _body(text: str) -> bytes:
    body = text.encode("utf-8", "surrogatepass")
    return body.replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01")


def _append(value: Any, parts: list[bytes]) -> None:
    kind = type(value)
    if kind is DBRef:
        value, kind = dict(value.as_doc()), dict
    if kind is dict:
        parts.append(bytes([OBJECT]))
        for name, each in paced(value.items(), 5):
            parts.append(b"%c%b\x00" % (order_class(each), _body(name)))
            _append(each, parts)
        parts.append(b"\x00")
    elif kind is list:
        parts.append(bytes([ARRAY]))
        for each in paced(value, 4):
            _append(each, parts)
        parts.append(b"\x00")
    else:
        parts.append(order_bytes(value))


# Numbers.


def _number(value: Any) -> bytes:
    if type(value) is float:
        return _double(value) + _SAME if value == value else _NAN
    number = int(value)
    if -EXACT_INT_MAX <= number <= EXACT_INT_MAX:
        return _double(float(number)) + _SAME
    return _exact(Decimal(number))


def _double(double: float) -> bytes:
    if double >= 0:
        # The bits of its negation have the sign bit set, and so sort above the negative ones.
        return _pack_number(NUMBER, -double if double else -0.0)
    return bytes([NUMBER]) + struct.pack(">d", double).translate(_INVERTED)


def _exact(number: Decimal) -> bytes:
    nearest = float(number)
    if nearest == 0:
        nearest = 0.0
    encoded = _double(nearest)
    order = 1 if nearest == -math.inf else -1 if nearest == math.inf else number.compare(Decimal(nearest))
    if order == 0:
        return encoded + _SAME
    _, digits, _ = number.as_tuple()
    text = "".join(map(str, digits)).lstrip("0").ljust(_DIGITS, "0")
    body = (_EXPONENT_ZERO + number.adjusted()).to_bytes(2, "big") + bytes.fromhex(text)
    if number < 0:
        body = inverted(body)
    return encoded + (_LESS if order < 0 else _MORE) + body


def _rare(value: Any) -> bytes:
    match value:
        case Decimal128():
            number = value.to_decimal()
            if number.is_nan():
                return _NAN
            return _exact(number) if number.is_finite() else _double(float(number)) + _SAME
        case bytes():
            subtype = value.subtype if isinstance(value, Binary) else 0
            return b"%c%b%c%b" % (BINARY, len(value).to_bytes(4, "big"), subtype, value)
        case Timestamp():
            return _pack_long(TIMESTAMP, value.time << 32 | value.inc)
        case Regex():
            pattern = value.pattern if isinstance(value.pattern, str) else value.pattern.decode()
            return b"%c%b\x00%b\x00" % (REGEX, _body(pattern), regex_options(value).encode())
        case MinKey():
            return bytes([MIN_KEY])
        case MaxKey():
            return bytes([MAX_KEY])
        case Code():
            encoded = b"%c%b\x00" % (order_class(value), _body(str(value)))
            return encoded if value.scope is None else encoded + order_bytes(dict(value.scope))
    raise AssertionError(f"{type(value).__name__} is no BSON value")
