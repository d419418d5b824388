"""Conversions between types (`$convert`, `$toInt` and so on), `$type`, and operators on the stored form of a value:
sizes and hashes. A failed conversion raises ConversionFailure unless `onError` gives a value.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import bson
from bson.binary import UUID_SUBTYPE, Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId

from armillary.languages.mongo.errors import FAILED_TO_PARSE, bad_value, refusal
from armillary.languages.mongo.expression_context import Context, Expression, Scope
from armillary.languages.mongo.expressions.binary_formats import (
    binary_of_uuid,
    check_format,
    check_subtype,
    read_binary,
    uuid_text,
    written_binary,
)
from armillary.languages.mongo.expressions.compiling import (
    Constant,
    Function,
    Operator,
    arguments,
    check_count,
    compile_expression,
    folded,
    named_arguments,
)
from armillary.languages.mongo.expressions.date_texts import NoDate, iso_text, parse_date
from armillary.languages.mongo.expressions.dates import CONVERSION_FAILURE, instant_of
from armillary.languages.mongo.expressions.numbers import RANKS, decimal128, double_text, is_nullish
from armillary.languages.mongo.filters.value_types import truth, whole_number
from armillary.model.bson.bson_values import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    MISSING,
    TYPE_ALIASES,
    TYPE_NAMES,
    encode,
    to_decimal,
    type_name,
    type_number,
)

_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_FRACTION: Final = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE)


class Unconvertible(Exception):
    """A failed conversion, with the reason for the error message."""


def _unsupported(value: Any, target: str) -> Unconvertible:
    return Unconvertible(
        f"Unsupported conversion from {type_name(value)} to {target} in $convert with no onError value"
    )


def _unparsed(text: str, target: str, reason: str) -> Unconvertible:
    return Unconvertible(f"Failed to parse {target} '{text}' in $convert with no onError value: {reason}")


def _integer(target: str, least: int, most: int) -> Callable[[Any], int]:
    make: Callable[[int], int] = int if target == "int" else Int64

    def convert(value: Any) -> int:
        kind = type(value)
        if kind is bool:
            return make(int(value))
        if kind is str:
            if not _WHOLE.fullmatch(value):
                raise _unparsed(
                    value, "number", "Did not consume whole string." if value[:1].isdigit() else "Bad digit"
                )
            number = int(value) if len(value) < 64 else most + 1
            if not least <= number <= most:
                raise _unparsed(value, "number", "Overflow")
            return make(number)
        if kind is DatetimeMS and target == "long":
            return make(int(value))
        if kind not in RANKS:
            raise _unsupported(value, target)
        if kind is float and not math.isfinite(value):
            raise Unconvertible(
                "Attempt to convert NaN/infinity value to integer type in $convert with no onError value"
            )
        exact = to_decimal(value) if kind is Decimal128 else value
        if kind is Decimal128 and not exact.is_finite():
            raise Unconvertible(
                "Attempt to convert NaN/infinity value to integer type in $convert with no onError value"
            )
        number = int(exact)
        if not least <= number <= most:
            raise Unconvertible(f"Conversion would overflow target type in $convert with no onError value: {exact}")
        return make(number)

    return convert


def _to_double(value: Any) -> float:
    kind = type(value)
    if kind is bool:
        return float(value)
    if kind is str:
        if not _FRACTION.fullmatch(value):
            raise _unparsed(value, "number", "Did not consume whole string." if value[:1].isdigit() else "Bad digit")
        found = float(value)
        if math.isinf(found) and "i" not in value.lower():
            raise _unparsed(value, "number", "Out of range")
        return found
    if kind is DatetimeMS:
        return float(int(value))
    if kind is Decimal128:
        number = to_decimal(value)
        found = float(number)
        if number.is_finite() and math.isinf(found):
            raise Unconvertible(
                "Conversion would overflow target type in $convert with no onError value: " + str(number)
            )
        return found
    if kind in RANKS:
        return float(value)
    raise _unsupported(value, "double")


def _to_decimal(value: Any) -> Decimal128:
    kind = type(value)
    if kind is bool:
        return Decimal128(Decimal(int(value)))
    if kind is str:
        if not _FRACTION.fullmatch(value):
            raise _unparsed(value, "number", "Failed to parse string to decimal")
        number = decimal128(Decimal(value))
        if number.to_decimal().is_infinite() and "i" not in value.lower():
            raise _unparsed(value, "number", "Conversion from string to decimal would overflow")
        return number
    if kind is DatetimeMS:
        return Decimal128(Decimal(int(value)))
    if kind in RANKS:
        return decimal128(to_decimal(value))
    raise _unsupported(value, "decimal")


def _to_date(value: Any) -> DatetimeMS:
    instant_ms = instant_of(value)
    if instant_ms is not None:
        return DatetimeMS(instant_ms)
    kind = type(value)
    if kind is str:
        try:
            return DatetimeMS(parse_date(value))
        except NoDate as reason:
            raise Unconvertible(f"{reason} in $convert with no onError value") from None
    if kind in (Int64, float, Decimal128):
        exact = to_decimal(value) if kind is not Int64 else Decimal(int(value))
        if not exact.is_finite() or not INT64_MIN <= exact <= INT64_MAX:
            raise Unconvertible("Conversion would overflow target type in $convert with no onError value")
        return DatetimeMS(int(exact))
    raise _unsupported(value, "date")


def to_text(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return double_text(value)
    if kind in RANKS or kind is ObjectId:
        return str(value)
    if kind is DatetimeMS:
        return iso_text(int(value))
    if kind is Binary and value.subtype == UUID_SUBTYPE:
        return uuid_text(value)
    raise _unsupported(value, "string")


def _to_object_id(value: Any) -> ObjectId:
    if type(value) is ObjectId:
        return value
    if type(value) is not str:
        raise _unsupported(value, "objectId")
    if len(value) != 24:
        raise _unparsed(
            value, "objectId", f"Invalid string length for parsing to OID, expected 24 but found {len(value)}"
        )
    try:
        return ObjectId(value)
    except bson.errors.InvalidId:
        raise _unparsed(value, "objectId", "Invalid character found in hex string") from None


def _to_binary(value: Any) -> Any:
    if isinstance(value, bytes):
        return value
    if type(value) is not str:
        raise _unsupported(value, "binData")
    try:
        return binary_of_uuid(value)
    except ValueError as reason:
        raise _unparsed(value, "BinData", str(reason)) from None


_CONVERSIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "double": _to_double,
    "string": to_text,
    "objectId": _to_object_id,
    "bool": truth,
    "date": _to_date,
    "int": _integer("int", INT32_MIN, INT32_MAX),
    "long": _integer("long", INT64_MIN, INT64_MAX),
    "decimal": _to_decimal,
    "binData": _to_binary,
}


def _shortcut(target: str) -> Operator:
    convert = _CONVERSIONS[target]

    def evaluate(value: Any) -> Any:
        if is_nullish(value):
            return None
        try:
            return convert(value)
        except Unconvertible as reason:
            raise refusal(CONVERSION_FAILURE, str(reason)) from None

    return Function(evaluate, count_code=50723)


def _target(value: Any) -> str:
    if type(value) is str:
        if value not in TYPE_ALIASES and value != "missing":
            raise bad_value(f"Unknown type name: {value}")
        return value
    if type(value) not in RANKS:
        raise refusal(
            FAILED_TO_PARSE, "$convert's 'to' argument must be a string or number, but is " + type_name(value)
        )
    number = whole_number(value)
    if number is None:
        raise refusal(FAILED_TO_PARSE, "In $convert, numeric 'to' argument is not an integer")
    if number not in TYPE_NAMES:
        raise refusal(
            FAILED_TO_PARSE, f"In $convert, numeric value for 'to' does not correspond to a BSON type: {number}"
        )
    return TYPE_NAMES[number]


def _converted(value: Any, target: str, form: Any, subtype: Any) -> Any:
    is_binary = isinstance(value, bytes)
    try:
        if target == "binData" and type(value) is str:
            if is_nullish(form):
                raise refusal(4341115, "Format must be speficied when converting from 'string' to 'binData'")
            return read_binary(value, check_format(form), check_subtype(subtype))
        if target == "string" and is_binary and not is_nullish(form):
            return written_binary(value, check_format(form))
    except ValueError as reason:
        raise _unparsed(value, "BinData", str(reason)) from None
    if target == "binData" and is_binary and getattr(value, "subtype", 0) != check_subtype(subtype):
        raise Unconvertible("Conversions between different BinData subtypes are not supported")
    convert = _CONVERSIONS.get(target)
    if convert is None:
        raise _unsupported(value, target)
    return convert(value)


def _convert(name: str, spec: Any, context: Context) -> Expression:
    given = named_arguments(
        name,
        spec,
        {"input": FAILED_TO_PARSE, "to": FAILED_TO_PARSE},
        ("onError", "onNull", "format"),
    )
    value_of = compile_expression(given["input"], context)
    target_of = compile_expression(given["to"], context)
    format_of = compile_expression(given.get("format"), context)
    on_error = compile_expression(given["onError"], context) if "onError" in given else None
    on_null = compile_expression(given.get("onNull"), context)

    def evaluate(scope: Scope) -> Any:
        value, target, subtype = value_of(scope), target_of(scope), 0
        if type(target) is dict:
            target, subtype = target.get("type", MISSING), target.get("subtype", 0)
            name_of_target = _target(target)
        else:
            name_of_target = "" if is_nullish(target) else _target(target)
        if is_nullish(value):
            return on_null(scope)
        if not name_of_target:
            return None
        try:
            return _converted(value, name_of_target, format_of(scope), subtype)
        except Unconvertible as reason:
            if on_error is None:
                raise refusal(CONVERSION_FAILURE, str(reason)) from None
            return on_error(scope)

    parts = [value_of, target_of, format_of, on_null, *([] if on_error is None else [on_error])]
    return folded(evaluate, parts)


# Types and sizes.


def _type(name: str, spec: Any, context: Context) -> Expression:
    given = arguments(spec)
    check_count(name, len(given), 1, 1)
    value_of = compile_expression(given[0], context)
    if isinstance(value_of, Constant):
        return Constant(type_name(value_of.value))
    return lambda scope: type_name(value_of(scope))


def _binary_size(value: Any) -> Any:
    if is_nullish(value):
        return None
    if type(value) is str:
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return len(value)
    raise refusal(51276, f"$binarySize requires a string or BinData argument, found: {type_name(value)}")


def _bson_size(value: Any) -> Any:
    if is_nullish(value):
        return None
    if type(value) is not dict:
        raise refusal(31393, f"$bsonSize requires a document input, found: {type_name(value)}")
    return len(encode(value))


# The number of each type in hashes is its rank in comparisons.
_HASHED: Final = {
    -1: -1, 127: 127, 6: 0, 10: 5, 1: 10, 16: 10, 18: 10, 19: 10, 2: 15, 14: 15, 3: 20, 4: 25, 5: 30, 7: 35, 8: 40,
    9: 45, 17: 47, 11: 50, 12: 55, 13: 60, 15: 65,
}  # fmt: skip


def hashed_key(value: Any) -> Int64:
    """The hash of a value in hashed indexes."""
    digest = hashlib.md5(struct.pack("<i", 0), usedforsecurity=False)
    _add_hash(digest.update, None if value is MISSING else value, None)
    return Int64(struct.unpack_from("<q", digest.digest())[0])


def _add_hash(add: Callable[[bytes], None], value: Any, name: str | None) -> None:
    number = type_number(value)
    add(struct.pack("<i", _HASHED[number]))
    if name is not None:
        add(name.encode() + b"\0")
    if type(value) is dict or type(value) is list:
        members = value.items() if type(value) is dict else ((str(place), each) for place, each in enumerate(value))
        for each_name, each in members:
            _add_hash(add, each, each_name)
        add(struct.pack("<i", 0))
    elif type(value) in RANKS:
        add(struct.pack("<q", _hashed_number(value)))
    else:
        encoded = encode({"": value})
        add(encoded[6:-1])  # without the document's length, the type, the empty name and the final zero


def _hashed_number(value: Any) -> int:
    exact = to_decimal(value) if type(value) is Decimal128 else value
    if exact != exact:
        return 0
    if exact >= INT64_MAX:
        return INT64_MAX
    return INT64_MIN if exact <= INT64_MIN else int(exact)


OPERATORS: Final[Mapping[str, Operator]] = {
    "$convert": _convert,
    "$toBool": _shortcut("bool"),
    "$toDate": _shortcut("date"),
    "$toDecimal": _shortcut("decimal"),
    "$toDouble": _shortcut("double"),
    "$toInt": _shortcut("int"),
    "$toLong": _shortcut("long"),
    "$toObjectId": _shortcut("objectId"),
    "$toString": _shortcut("string"),
    "$toUUID": _shortcut("binData"),
    "$toHashedIndexKey": Function(hashed_key),
    "$type": _type,
    "$isNumber": Function(lambda value: type(value) in RANKS),
    "$binarySize": Function(_binary_size),
    "$bsonSize": Function(_bson_size),
}
