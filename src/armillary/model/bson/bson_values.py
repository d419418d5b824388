"""BSON values: decoding options, types, total order and equality, and printing.

Items of the MongoDB door keep their exact BSON; this module gives its values their meaning for the language, index
terms and error texts. Encoding and decoding is done by the `bson` package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import bson
from bson.binary import Binary
from bson.code import Code
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from armillary import limits
from armillary.model.bson.bson_portions import decode_in_portions, encode_in_portions, encoding_units
from armillary.work import spend

Document = dict[str, Any]
_LARGE_BYTES: Final = 4_096  # decoding smaller documents is not counted
_DECODED_UNIT_BYTES: Final = 64  # bytes that take about 100 ns to decode or encode

# Dates as milliseconds: datetime ends at the year 9999 and BSON does not. int64 arrives as Int64, int32 as int.
CODEC: Final[CodecOptions[Document]] = CodecOptions(
    document_class=dict, datetime_conversion=DatetimeConversion.DATETIME_MS
)

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


class Missing:
    """The absence of a value; null is a value."""

    _the_one: Missing | None = None

    def __new__(cls) -> Missing:
        if cls._the_one is None:
            cls._the_one = super().__new__(cls)
        return cls._the_one

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()


def decode(encoded: bytes) -> Document:
    if len(encoded) > _LARGE_BYTES:
        if len(encoded) > limits.WORK_AT_ONCE_BSON_BYTES:
            return decode_in_portions(encoded, CODEC)
        spend(len(encoded) // _DECODED_UNIT_BYTES)
    return bson.decode(encoded, CODEC)


def encode(document: Document) -> bytes:
    if encoding_units(document, limits.WORK_AT_ONCE_BSON_ELEMENTS) > limits.WORK_AT_ONCE_BSON_ELEMENTS:
        return encode_in_portions(document, CODEC)
    encoded = bson.encode(document, codec_options=CODEC)
    if len(encoded) > _LARGE_BYTES:
        spend(len(encoded) // _DECODED_UNIT_BYTES)
    return encoded


# Types.

TYPE_ALIASES: Final = {
    "double": 1,
    "string": 2,
    "object": 3,
    "array": 4,
    "binData": 5,
    "undefined": 6,
    "objectId": 7,
    "bool": 8,
    "date": 9,
    "null": 10,
    "regex": 11,
    "dbPointer": 12,
    "javascript": 13,
    "symbol": 14,
    "javascriptWithScope": 15,
    "int": 16,
    "timestamp": 17,
    "long": 18,
    "decimal": 19,
    "minKey": -1,
    "maxKey": 127,
}
TYPE_NAMES: Final = {number: name for name, number in TYPE_ALIASES.items()}

_NUMBERS: Final[dict[type, int]] = {
    float: 1,
    str: 2,
    dict: 3,
    list: 4,
    bytes: 5,
    Binary: 5,
    ObjectId: 7,
    bool: 8,
    DatetimeMS: 9,
    type(None): 10,
    Regex: 11,
    int: 16,
    Timestamp: 17,
    Int64: 18,
    Decimal128: 19,
    MinKey: -1,
    MaxKey: 127,
    DBRef: 3,
}


def type_number(value: Any) -> int:
    """The number of a type in `$type`."""
    number = _NUMBERS.get(type(value))
    if number is not None:
        return number
    if isinstance(value, Code):
        return 13 if value.scope is None else 15
    raise AssertionError(f"{type(value).__name__} is no BSON value")


def type_name(value: Any) -> str:
    return "missing" if value is MISSING else TYPE_NAMES[type_number(value)]


def is_number(value: Any) -> bool:
    kind = type(value)
    return kind is int or kind is float or kind is Int64 or kind is Decimal128


# Order. A key is a tuple whose first element is the class of the type; keys of equal values are equal and hash alike,
# whatever their numeric types are, so the same key serves sorting, grouping, distinct and unique.

CLASS_MIN_KEY, CLASS_MISSING, CLASS_EMPTY_ARRAY, CLASS_NULL, CLASS_NUMBER, CLASS_STRING, CLASS_OBJECT = range(7)
CLASS_ARRAY, CLASS_BINARY, CLASS_OBJECT_ID, CLASS_BOOL, CLASS_DATE, CLASS_TIMESTAMP, CLASS_REGEX = range(7, 14)
CLASS_CODE, CLASS_CODE_WITH_SCOPE, CLASS_MAX_KEY = range(14, 17)

Key = tuple[Any, ...]

_STRIDE: Final = 512  # elements between two calls of `work.spend`
_NULL_KEY: Final[Key] = (CLASS_NULL,)
_NAN_KEY: Final[Key] = (CLASS_NUMBER, 0)


def order_key(value: Any) -> Key:
    """A key that sorts in MongoDB's order of all types. Missing sorts before null, as in aggregation."""
    kind = type(value)
    if kind is str:
        return (CLASS_STRING, value)
    if kind is int or kind is Int64:
        return (CLASS_NUMBER, 1, int(value))
    if kind is float:
        return _NAN_KEY if value != value else (CLASS_NUMBER, 1, value)
    if value is None:
        return _NULL_KEY
    if kind is bool:
        return (CLASS_BOOL, value)
    if kind is dict:
        spend(3 + 6 * len(value))
        # Computed once: computing it again for the class would double the work with every level.
        return (CLASS_OBJECT, tuple([((key := order_key(each))[0], name, key) for name, each in value.items()]))
    if kind is list:
        return (CLASS_ARRAY, tuple(list_keys(value, order_key)))
    return _rare_key(value)


def key_set(values: Sequence[Any], key: Callable[[Any], Key]) -> set[Key]:
    """The distinct keys of the elements of an array."""
    found: set[Key] = set()
    for first in range(0, len(values), _STRIDE):
        found.update(list_keys(values[first : first + _STRIDE], key))
    return found


def list_keys(values: Sequence[Any], key: Callable[[Any], Key]) -> list[Key]:
    """The keys of the elements of an array."""
    if len(values) <= _STRIDE:
        spend(3 + 4 * len(values))
        return [key(each) for each in values]
    keys: list[Key] = []
    for first in range(0, len(values), _STRIDE):
        spend(4 * _STRIDE)
        keys += [key(each) for each in values[first : first + _STRIDE]]
    return keys


def _rare_key(value: Any) -> Key:
    match value:
        case ObjectId():
            return (CLASS_OBJECT_ID, value.binary)
        case DatetimeMS():
            return (CLASS_DATE, int(value))
        case Decimal128():
            number = value.to_decimal()
            return _NAN_KEY if number.is_nan() else (CLASS_NUMBER, 1, number)
        case Binary():
            return (CLASS_BINARY, len(value), value.subtype, bytes(value))
        case bytes():
            return (CLASS_BINARY, len(value), 0, value)
        case Timestamp():
            return (CLASS_TIMESTAMP, value.time, value.inc)
        case Regex():
            return (CLASS_REGEX, _text(value.pattern), regex_options(value))
        case MinKey():
            return (CLASS_MIN_KEY,)
        case MaxKey():
            return (CLASS_MAX_KEY,)
        case DBRef():
            return order_key(dict(value.as_doc()))
        case Code():
            if value.scope is None:
                return (CLASS_CODE, str(value))
            return (CLASS_CODE_WITH_SCOPE, str(value), order_key(dict(value.scope)))
        case Missing():
            return (CLASS_MISSING,)
    raise AssertionError(f"{type(value).__name__} is no BSON value")


def type_class(value: Any) -> int:
    """The class of types that $lt and the like compare: all numbers are one class."""
    kind = type(value)
    if kind is dict or kind is list:
        return CLASS_OBJECT if kind is dict else CLASS_ARRAY
    return order_key(value)[0]  # type: ignore[no-any-return]


def compare(left: Any, right: Any) -> int:
    a, b = order_key(left), order_key(right)
    return (a > b) - (a < b)


def equal(left: Any, right: Any) -> bool:
    """Numbers by value whatever their type, objects including their field order; true is not 1."""
    return order_key(left) == order_key(right)


def is_identical(left: Any, right: Any) -> bool:
    """The same bytes: 1 and 1.0 are equal and not identical."""
    return encode({"v": left}) == encode({"v": right})


# Arithmetic results.


def whole(number: int, *, is_long: bool = False) -> int:
    """An integer as int32 if it fits, or as int64 if one of the operands was."""
    if not is_long and INT32_MIN <= number <= INT32_MAX:
        return int(number)
    return Int64(number)


def to_decimal(value: Any) -> Decimal:
    """Any number as a decimal; doubles with their first 15 digits, zeros included, as MongoDB does."""
    match value:
        case Decimal128():
            number = value.to_decimal()
            return Decimal("NaN") if number.is_snan() else number  # a signalling NaN would raise in comparisons
        case float():
            if math.isnan(value) or math.isinf(value):
                return Decimal(repr(value))
            return Decimal(f"{value:.14e}")
    return Decimal(int(value))


# Printing, as error texts show values.


def shell_text(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case dict():
            return (
                "{ " + ", ".join(f"{name}: {shell_text(each)}" for name, each in value.items()) + " }"
                if value
                else "{}"
            )
        case list():
            return "[ " + ", ".join(shell_text(each) for each in value) + " ]" if value else "[]"
        case float():
            return _double_text(value)
        case ObjectId():
            return f"ObjectId('{value}')"
        case DatetimeMS():
            return f"new Date({int(value)})"
        case Decimal128():
            return str(value)
        case Regex():
            return f"/{_text(value.pattern)}/{regex_options(value)}"
        case Timestamp():
            return f"Timestamp({value.time}, {value.inc})"
        case MinKey():
            return "MinKey"
        case MaxKey():
            return "MaxKey"
        case bytes():
            return f"BinData({getattr(value, 'subtype', 0)}, {value.hex().upper()})"
    return str(value)


def _double_text(value: float) -> str:
    if value.is_integer() and abs(value) < 1e15:
        return f"{value:.1f}"
    return repr(value)


_REGEX_FLAGS: Final = (("i", 2), ("l", 4), ("m", 8), ("s", 16), ("u", 32), ("x", 64))


def regex_options(value: Regex[Any]) -> str:
    """In alphabetical order, as in BSON."""
    return "".join(letter for letter, flag in _REGEX_FLAGS if value.flags & flag)


def _text(pattern: str | bytes) -> str:
    return pattern if isinstance(pattern, str) else pattern.decode()
