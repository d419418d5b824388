"""Values to text and text to values. Text is read as strict JSON; what is not of the wanted type is undefined."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from armillary import limits
from armillary.languages.sql.library.numbers import INT64_MAX, INT64_MIN, number_text
from armillary.model.values import UNDEFINED, Value, weight
from armillary.work import make, spend

_JSON_BLANKS = " \t\n\r"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_CHUNK = 256  # elements that are written before the event loop may have its turn
_LONG = 1_024  # characters of texts that take time to read
_READ_BYTES = 12  # that a character of JSON becomes at most, in numbers of one digit
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
        return UNDEFINED  # there is no such JSON number
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
    """Not deeper than an item may be, so that whatever walks a value by recursion can do so."""
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
