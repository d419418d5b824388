"""Random BSON documents with every type that drivers can write."""

from __future__ import annotations

import random
import struct
from typing import Any

from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

NAMES = ("a", "b", "c", "name", "id", "_ts", "$_x", "é", "with space", "d.e", "$oid", "ttl", "")
NUMBERS: tuple[Any, ...] = (
    0,
    1,
    -1,
    5,
    2**31 - 1,
    Int64(5),
    Int64(2**53 + 1),
    Int64(-(2**63)),
    Int64(2**62),
    0.0,
    -0.0,
    5.0,
    0.1,
    1e300,
    -5e-324,
    float(2**62),
    float("nan"),
    float("inf"),
    float("-inf"),
    Decimal128("5"),
    Decimal128("5.00"),
    Decimal128("0.1"),
    Decimal128("1E+6000"),
    Decimal128("-1E-6000"),
    Decimal128("NaN"),
    Decimal128("Infinity"),
    Decimal128(str(2**62 + 1)),
)
TEXTS = ("", "a", "i:5", "oid:" + "5f" * 12, "b64:AA", "a/b", "\x00\x01", "é\U0001f600", "x" * 300, "null", "\uffff")


def random_value(dice: random.Random, depth: int = 3) -> Any:
    match dice.randrange(16 if depth else 13):
        case 0 | 1:
            return dice.choice(NUMBERS)
        case 2:
            return dice.choice(TEXTS) + dice.choice(("", str(dice.randrange(100))))
        case 3:
            return dice.choice((True, False, None))
        case 4:
            return ObjectId(dice.randbytes(12))
        case 5:
            return DatetimeMS(dice.choice((0, -1, 1_700_000_000_123, -(2**62), 2**62, dice.randrange(10**12))))
        case 6:
            subtype = dice.choice((0, 0, 2, 3, 4, 5, 128))
            return Binary(dice.randbytes(16 if subtype in (3, 4) else dice.randrange(20)), subtype)
        case 7:
            return Regex(dice.choice(("^a", "x.*", "")), dice.choice(("", "i", "imsx")))
        case 8:
            return Timestamp(dice.randrange(2**32), dice.randrange(2**32))
        case 9:
            return dice.choice((MinKey(), MaxKey()))
        case 10:
            return dice.randrange(-(2**31), 2**31)
        case 11:
            return struct.unpack("<d", dice.randbytes(8))[0]
        case 12:
            return Code("f()", dice.choice((None, {"x": 1})))
        case 13:
            return [random_value(dice, depth - 1) for _ in range(dice.randrange(4))]
    return random_document(dice, depth - 1, dice.randrange(4))


def random_document(dice: random.Random, depth: int = 3, fields: int = 6) -> dict[str, Any]:
    return {name: random_value(dice, depth) for name in dice.sample(NAMES, min(fields, len(NAMES)))}


def random_id(dice: random.Random) -> Any:
    """Anything that may be an `_id`: no array, no regular expression."""
    value = random_value(dice)
    return random_id(dice) if isinstance(value, (list, Regex)) else value
