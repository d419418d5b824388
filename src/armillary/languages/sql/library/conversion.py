"""Conversions between text and values, and type checks. Text is parsed as strict JSON; a text of another type than the
function's is undefined. Type checks return true or false for every value, undefined included; the simplest are inlined
into compiled queries (`compiling/function_table.py`). IIF and DOCUMENTID, which belong to no other category, are here
too.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

from armillary import limits
from armillary.languages.sql.library.dates import parse_ticks
from armillary.languages.sql.library.numbers import INT64_MAX, INT64_MIN, NUMBERS, number_text, whole
from armillary.model.resources import item_rid, rid_bytes
from armillary.model.values import UNDEFINED, Value, as_double, weight
from armillary.work import make, spend

_JSON_BLANKS = " \t\n\r"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_CHUNK = 256  # elements written between two charges to the work budget
_LONG = 1_024  # characters; parsing shorter texts is not charged for
_READ_BYTES = 12  # memory for a character of JSON at most: one-digit numbers
_INT_DIGITS_MAX = 20  # longer texts do not fit 64 bits


def to_string(value: Any) -> Value:
    if value.__class__ is str or value is UNDEFINED:
        return value
    kind = value.__class__
    if kind is list or kind is dict:
        make(weight(value))
    parts: list[str] = []
    _append(value, parts)
    return "".join(parts)


def _append(value: Any, parts: list[str]) -> None:
    kind = value.__class__
    if kind is str:
        parts.append(json.dumps(value, ensure_ascii=False))
    elif kind is bool:
        parts.append("true" if value else "false")
    elif kind is int or kind is float:
        parts.append(number_text(value))
    elif kind is list:
        mark = "["
        for place, element in enumerate(value):
            if place % _CHUNK == 0:
                spend(6 * min(_CHUNK, len(value) - place))
            parts.append(mark)
            _append(element, parts)
            mark = ","
        parts.append("]" if value else "[]")
    elif kind is dict:
        mark = "{"
        for name, inner in value.items():
            spend(10)
            parts.append(f"{mark}{json.dumps(name, ensure_ascii=False)}:")
            _append(inner, parts)
            mark = ","
        parts.append("}" if value else "{}")
    else:
        parts.append("null")


def string_to_number(text: Any) -> Value:
    if text.__class__ is not str:
        return UNDEFINED
    if len(text) > _LONG:
        spend(len(text) >> 4)
    text = text.strip(_JSON_BLANKS)
    match = _NUMBER.fullmatch(text)
    if match is None:
        return UNDEFINED
    if match[1] is None and match[2] is None and len(text) <= _INT_DIGITS_MAX:
        integer = int(text)
        if INT64_MIN <= integer <= INT64_MAX:
            return integer
    value = float(text)
    if value in (float("inf"), float("-inf")):
        return UNDEFINED  # not a JSON number
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def string_to_boolean(text: Any) -> Value:
    if text.__class__ is not str:
        return UNDEFINED
    return {"true": True, "false": False}.get(text.strip(_JSON_BLANKS), UNDEFINED)


def string_to_null(text: Any) -> Value:
    return None if text.__class__ is str and text.strip(_JSON_BLANKS) == "null" else UNDEFINED


def string_to_array(text: Any) -> Value:
    return _read(text, list, "[")


def string_to_object(text: Any) -> Value:
    return _read(text, dict, "{")


def _read(text: Any, kind: type[list[Any]] | type[dict[str, Any]], opening: str) -> Value:
    if text.__class__ is not str or not text.lstrip(_JSON_BLANKS).startswith(opening):
        return UNDEFINED
    if len(text) > _LONG:
        make(_READ_BYTES * len(text))
        spend(len(text) >> 4)
    try:
        value: Any = orjson.loads(text)
    except ValueError:
        return UNDEFINED
    return value if value.__class__ is kind and _is_shallow(text, value) else UNDEFINED


def _is_shallow(text: str, value: Any) -> bool:
    """Whether JSON text nests no deeper than an item may, so that recursion over the value is safe."""
    if text.count("[") + text.count("{") <= limits.ITEM_DEPTH_MAX:
        return True
    level = [value]
    for _ in range(limits.ITEM_DEPTH_MAX):
        inner: list[Any] = []
        for parent in level:
            spend(1 + (len(parent) >> 1))
            inner += [
                child
                for child in (parent.values() if isinstance(parent, dict) else parent)
                if child.__class__ in (list, dict)
            ]
        level = inner
        if not level:
            return True
    return False


# Type checks.


def is_finite_number(given: Any) -> Value:
    return given.__class__ in NUMBERS and math.isfinite(as_double(given))


def is_integer(given: Any) -> Value:
    return whole(given) is not None


def is_datetime(given: Any) -> Value:
    return parse_ticks(given) is not None


# Conditional and item functions.


def if_else(condition: Any, then: Any, otherwise: Any) -> Value:
    """IIF: any condition but true itself selects `otherwise`."""
    return then if condition is True else otherwise  # type: ignore[no-any-return]


def document_id(item: Any) -> Value:
    """The number inside an item's `_rid`; undefined for anything but a stored item."""
    text = item.get("_rid") if item.__class__ is dict else None
    if text.__class__ is not str:
        return UNDEFINED
    rid = rid_bytes(text)
    number = item_rid(rid) if rid is not None else None
    return UNDEFINED if number is None else number
