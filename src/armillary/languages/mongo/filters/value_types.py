"""Tests of a value's type, size, remainder and bits: `$exists`, `$type`, `$size`, `$mod`, `$bitsAllSet` and so on; and
the truth and the numeric value of a BSON value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from bson.decimal128 import Decimal128
from bson.int64 import Int64

from armillary.languages.mongo.errors import FAILED_TO_PARSE, bad_value, refusal
from armillary.model.bson.bson_values import (
    INT64_MAX,
    INT64_MIN,
    MISSING,
    TYPE_ALIASES,
    TYPE_NAMES,
    is_number,
    shell_text,
    type_name,
    type_number,
)

Test = Callable[[Any], bool]

_BITS_MAX: Final = 8 * 16 * 1024 * 1024  # bits of the largest document; beyond them all bits equal the sign

_NUMBER_TYPES: Final = frozenset(TYPE_ALIASES[name] for name in ("double", "int", "long", "decimal"))


def truth(value: Any) -> bool:
    """The truth of a value: everything but false, zero, null and missing."""
    if value is True or value is False:
        return value
    if value is None or value is MISSING:
        return False
    return not is_number(value) or number_of(value) != 0


def number_of(value: Any) -> int | float | Decimal:
    """A number that Python compares exactly with others. NaN is given as a double, because a decimal NaN raises when
    compared.
    """
    if type(value) is not Decimal128:
        return value  # type: ignore[no-any-return]
    number = value.to_decimal()
    return math.nan if number.is_nan() else number


def whole_number(value: Any) -> int | None:
    """A whole number of any numeric type as an int; None for other values."""
    if not is_number(value):
        return None
    number = number_of(value)
    if not math.isfinite(number) or number != int(number) or not INT64_MIN <= number <= INT64_MAX:
        return None
    return int(number)


def exists(value: Any) -> bool:
    return value is not MISSING


# $type.


def type_test(operand: Any) -> Test:
    wanted = type_numbers(operand, "$type")
    return lambda value: value is not MISSING and type_number(value) in wanted


def type_numbers(operand: Any, name: str) -> frozenset[int]:
    operands = operand if type(operand) is list else [operand]
    if not operands:
        raise refusal(FAILED_TO_PARSE, f"{name} must match at least one type")
    found: set[int] = set()
    for each in operands:
        if type(each) is str:
            if each == "number":
                found |= _NUMBER_TYPES
            elif each in TYPE_ALIASES:
                found.add(TYPE_ALIASES[each])
            else:
                raise bad_value(f"Unknown type name alias: {each}")
        elif is_number(each):
            number = whole_number(each)
            if number is None or number not in TYPE_NAMES:
                raise bad_value(f"Invalid numerical type code: {shell_text(each)}")
            found.add(number)
        else:
            raise refusal(14, f"{name} must be represented as a number or a string or an array of these")
    return frozenset(found)


# $size, $mod.


def size_test(operand: Any) -> Test:
    if not is_number(operand):
        raise bad_value(f"Failed to parse $size. Expected a number in: $size: {shell_text(operand)}")
    size = whole_number(operand)
    if size is None:
        raise bad_value(f"Failed to parse $size. Expected an integer: $size: {shell_text(operand)}")
    if size < 0:
        raise bad_value(f"Failed to parse $size. Expected a non-negative number in: $size: {shell_text(operand)}")
    return lambda value: type(value) is list and len(value) == size


def mod_test(operand: Any) -> Test:
    if type(operand) is not list:
        raise bad_value("malformed mod, needs to be an array")
    if len(operand) != 2:
        raise bad_value(f"malformed mod, {'not enough' if len(operand) < 2 else 'too many'} elements")
    divisor, remainder = _truncated(operand[0], "divisor"), _truncated(operand[1], "remainder")
    if divisor == 0:
        raise bad_value("divisor cannot be 0")
    size = abs(divisor)

    def test(value: Any) -> bool:
        if not is_number(value):
            return False
        number = number_of(value)
        if not math.isfinite(number):
            return False
        cut = int(number)
        if not INT64_MIN <= cut <= INT64_MAX:
            return False
        # The remainder has the sign of the dividend.
        rest = abs(cut) % size
        return (-rest if cut < 0 else rest) == remainder

    return test


def _truncated(value: Any, what: str) -> int:
    if not is_number(value):
        raise bad_value(f"malformed mod, {what} not a number")
    number = number_of(value)
    if not math.isfinite(number) or not INT64_MIN <= number <= INT64_MAX:
        raise bad_value(f"malformed mod, {what} value is invalid :: caused by :: {shell_text(value)}")
    return int(number)


# Bits.


def bits_test(name: str, operand: Any) -> Test:
    """$bitsAllSet, $bitsAllClear, $bitsAnySet or $bitsAnyClear."""
    mask = _mask(name, operand)
    wants_all, wants_set = name.startswith("$bitsAll"), name.endswith("Set")

    def test(value: Any) -> bool:
        bits = _bits(value)
        if bits is None:
            return False
        hit = (bits if wants_set else ~bits) & mask
        return hit == mask if wants_all else hit != 0

    return test


def _mask(name: str, operand: Any) -> int:
    if type(operand) is list:
        return _mask_of_places(operand)
    if is_number(operand):
        mask_number = whole_number(operand)
        if mask_number is None or mask_number < 0:
            raise refusal(FAILED_TO_PARSE, f"Expected a non-negative number in: {name}: {shell_text(operand)}")
        return mask_number
    if isinstance(operand, bytes):
        return int.from_bytes(operand, "little")
    raise bad_value(f"{name} takes an Array, a number, or a BinData but received: {type_name(operand)}")


def _mask_of_places(given: list[Any]) -> int:
    places: list[int] = []
    for each in given:
        place = whole_number(each)
        if place is None or place < 0:
            raise bad_value(f"Failed to parse bit position. Expected a non-negative number in: {shell_text(each)}")
        places.append(min(place, _BITS_MAX))
    # Collected in a bytearray: setting bits in an int would copy it each time.
    octets = bytearray(max(places, default=0) // 8 + 1)
    for place in places:
        octets[place // 8] |= 1 << place % 8
    return int.from_bytes(octets, "little")


def _bits(value: Any) -> int | None:
    if isinstance(value, bytes):
        return int.from_bytes(value, "little")
    kind = type(value)
    if kind is int or kind is Int64:
        return int(value)  # Python's negative numbers have infinitely many leading ones, as in two's complement
    return whole_number(value)
