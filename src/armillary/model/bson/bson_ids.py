"""Ids of MongoDB documents as ids of items: any BSON value as a text that is legal as an item's id, and back.

Values that are equal have one text whatever their numeric type, so that `1`, `1.0` and `NumberLong(1)` are one id. The
text of a string is the string, unless it cannot be an id or would be read as something else:

    oid:5f0c…   ObjectId                     i:-12     a whole number
    b64:…       anything else: its BSON      d:1.5     another double; NaN and infinities too
    sha:…       what is too long for an id; the document itself knows it
"""

from __future__ import annotations

import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from decimal import Context, Decimal, Inexact
from hashlib import sha256
from typing import Any, Final

from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from bson.int64 import Int64
from bson.objectid import ObjectId

from armillary import limits
from armillary.model.bson.bson_values import INT64_MAX, INT64_MIN, decode, encode, whole
from armillary.model.items import find_illegal_in_item_id

_TAGGED = re.compile(r"(oid|i|d|b64|sha):").match
_HEX = re.compile(r"[0-9a-f]{24}").fullmatch
_INTEGER = re.compile(r"0|-?[1-9][0-9]*").fullmatch
_ELEMENT: Final = "v"
_EXACT = Context(prec=800, traps=[Inexact])  # a double has up to 767 digits


def id_text(value: Any) -> str:
    """The item id of a document with this `_id`."""
    kind = type(value)
    if kind is ObjectId:
        return f"oid:{value}"
    if kind is str:
        return value if _is_plain(value) else _element_text(value)
    if kind is int or kind is Int64:
        return f"i:{int(value)}"
    if kind is float:
        return _double_text(value)
    if kind is Decimal128:
        return _decimal_text(value)
    return _element_text(_canonical(value))


def id_value(text: str) -> Any:
    """The `_id` that an item id stands for: the decoded value, or the text itself."""
    if not _TAGGED(text):
        return text
    tag, _, rest = text.partition(":")
    value: Any = text
    if tag == "oid" and _HEX(rest):
        value = ObjectId(rest)
    elif tag == "i" and _INTEGER(rest):
        number = int(rest)
        value = whole(number) if INT64_MIN <= number <= INT64_MAX else _far(number)
    elif tag == "d":
        value = _double(rest)
    elif tag == "b64":
        value = _element(rest)
    # Of several texts that parse alike only one is canonical; the others are plain strings.
    return value if value is not text and id_text(value) == text else text


def _is_plain(text: str) -> bool:
    if not text or find_illegal_in_item_id(text):
        return False
    if len(text) > 255 and len(text.encode()) > limits.ITEM_ID_BYTES_MAX:
        return False
    return not _TAGGED(text) or type(id_value(text)) is str


def _far(number: int) -> Any:
    try:
        return float(number)
    except OverflowError:
        return None


def _double_text(value: float) -> str:
    if value.is_integer():
        return f"i:{int(value)}"
    return "d:NaN" if math.isnan(value) else f"d:{value!r}"


def _double(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _decimal_text(value: Decimal128) -> str:
    number = value.to_decimal()
    if not number.is_finite():
        return _double_text(float(number) if not number.is_nan() else math.nan)
    if number == number.to_integral_value() and number.adjusted() < limits.ITEM_ID_BYTES_MAX - 3:
        return f"i:{int(number)}"
    nearest = float(number)
    if math.isfinite(nearest) and Decimal(nearest) == number:
        return _double_text(nearest)
    return _element_text(Decimal128(number.normalize(_EXACT)))


def _canonical(value: Any) -> Any:
    """A value whose BSON is the same for all equal values: numbers get one type at every level."""
    kind = type(value)
    if kind is dict:
        return {name: _canonical(each) for name, each in value.items()}
    if kind is list:
        return [_canonical(each) for each in value]
    if kind is DBRef:
        return {name: _canonical(each) for name, each in value.as_doc().items()}
    if kind is int or kind is Int64 or kind is float or kind is Decimal128:
        text = id_text(value)
        number = id_value(text)
        return value if number is text else number
    return value


def _element_text(value: Any) -> str:
    encoded = encode({_ELEMENT: value})
    text = f"b64:{urlsafe_b64encode(encoded).decode().rstrip('=')}"
    return text if len(text) <= limits.ITEM_ID_BYTES_MAX else f"sha:{sha256(encoded).hexdigest()}"


def _element(text: str) -> Any:
    try:
        return decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))[_ELEMENT]
    except (NotBase64, ValueError, BSONError, KeyError):
        return text
