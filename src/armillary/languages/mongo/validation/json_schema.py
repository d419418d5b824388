"""`$jsonSchema`: draft 4 of JSON Schema as in MongoDB, with `bsonType` in addition to `type`. A keyword for one type
accepts all values of other types. Unknown keywords, and those that MongoDB does not support, are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from armillary.languages.mongo.errors import BAD_VALUE, FAILED_TO_PARSE, TYPE_MISMATCH, refusal
from armillary.languages.mongo.filters.regexes import regex_matcher
from armillary.languages.mongo.filters.value_types import number_of, type_numbers, whole_number
from armillary.model.bson.bson_values import (
    Document,
    is_number,
    key_set,
    order_key,
    shell_text,
    type_name,
    type_number,
)
from armillary.work import spend

Test = Callable[[Any], bool]

_JSON_TYPES: Final = {
    "array": "array",
    "boolean": "bool",
    "null": "null",
    "number": "number",
    "object": "object",
    "string": "string",
}
_REFUSED: Final = frozenset("$ref $schema default definitions format id".split())
_SILENT: Final = frozenset(["title", "description"])


def compile_schema(given: Any) -> Callable[[Document], bool]:
    if type(given) is not dict:
        raise refusal(TYPE_MISMATCH, "$jsonSchema must be an object")
    return _schema(given)


def failing_keywords(given: Document, value: Any) -> list[str]:
    """The keywords of a schema that a value does not satisfy, in the order of MongoDB's error details."""
    found = []
    for keyword in _TOLD:
        test = _KEYWORDS[keyword](keyword, given[keyword], given) if keyword in given else None
        if test is not None and not test(value):
            found.append(keyword)
    return found


def _schema(given: Any, name: str = "$jsonSchema") -> Test:
    if type(given) is not dict:
        raise refusal(TYPE_MISMATCH, f"{name} must be an object, not {type_name(given)}")
    tests: list[Test] = []
    for keyword, value in given.items():
        if keyword in _SILENT:
            if type(value) is not str:
                raise refusal(TYPE_MISMATCH, f"$jsonSchema keyword '{keyword}' must be of type string")
            continue
        if keyword in _REFUSED:
            raise refusal(FAILED_TO_PARSE, f"$jsonSchema keyword '{keyword}' is not currently supported")
        reader = _KEYWORDS.get(keyword)
        if reader is None:
            raise refusal(FAILED_TO_PARSE, f"Unknown $jsonSchema keyword: {keyword}")
        test = reader(keyword, value, given)
        if test is not None:
            tests.append(test)
    units = 4 * len(tests)

    def test_all(each: Any) -> bool:
        spend(units)
        return all(test(each) for test in tests)

    return test_all


# Any value.


def _type(keyword: str, value: Any, given: Document) -> Test:
    names = value if type(value) is list else [value]
    if not names or any(type(name) is not str for name in names):
        raise refusal(TYPE_MISMATCH, f"$jsonSchema keyword '{keyword}' must be either a string or an array of strings")
    if keyword == "type":
        if "bsonType" in given:
            raise refusal(FAILED_TO_PARSE, "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'")
        for name in names:
            if name not in _JSON_TYPES:
                code = FAILED_TO_PARSE if name == "integer" else BAD_VALUE
                raise refusal(code, f"$jsonSchema type '{name}' is not currently supported.")
        names = [_JSON_TYPES[name] for name in names]
    wanted = type_numbers(names, keyword)
    return lambda each: type_number(each) in wanted


def _enum(keyword: str, value: Any, _given: Document) -> Test:
    if type(value) is not list or not value:
        raise refusal(FAILED_TO_PARSE, f"$jsonSchema keyword '{keyword}' cannot be an empty array")
    wanted = {order_key(each) for each in value}
    return lambda each: order_key(each) in wanted


def _combined(keyword: str, value: Any, _given: Document) -> Test:
    if type(value) is not list:
        raise refusal(TYPE_MISMATCH, f"$jsonSchema keyword '{keyword}' must be an array")
    if not value:
        raise refusal(2, f"$jsonSchema keyword '{keyword}' must be a non-empty array")
    tests = [_schema(each, keyword) for each in value]
    if keyword == "allOf":
        return lambda each: all(test(each) for test in tests)
    if keyword == "anyOf":
        return lambda each: any(test(each) for test in tests)
    return lambda each: [test(each) for test in tests].count(True) == 1


def _not(keyword: str, value: Any, _given: Document) -> Test:
    test = _schema(value, keyword)
    return lambda each: not test(each)


# Numbers.


def _bound(keyword: str, value: Any, given: Document) -> Test:
    if not is_number(value):
        raise refusal(TYPE_MISMATCH, f"$jsonSchema keyword '{keyword}' must be a number")
    limit = number_of(value)
    exclusive = given.get(_EXCLUSIVE[keyword], False)
    if keyword == "minimum":
        return _of_numbers(lambda number: number > limit if exclusive else number >= limit)
    return _of_numbers(lambda number: number < limit if exclusive else number <= limit)


_EXCLUSIVE: Final = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}


def _exclusive(keyword: str, value: Any, given: Document) -> None:
    if type(value) is not bool:
        raise refusal(TYPE_MISMATCH, f"$jsonSchema keyword '{keyword}' must be a boolean")
    beside = keyword.removeprefix("exclusive").lower()
    if beside not in given:
        raise refusal(FAILED_TO_PARSE, f"$jsonSchema keyword '{beside}' must be a present if {keyword} is present")


def _multiple_of(keyword: str, value: Any, _given: Document) -> Test:
    if not is_number(value) or not number_of(value) > 0:
        raise refusal(FAILED_TO_PARSE, f"$jsonSchema keyword '{keyword}' must have a positive value")
    unit = _fraction(number_of(value))
    if unit is None:
        raise refusal(FAILED_TO_PARSE, f"$jsonSchema keyword '{keyword}' must be finite")

    def test(number: Any) -> bool:
        share = _fraction(number)
        return share is not None and share % unit == 0

    return _of_numbers(test)


def _fraction(number: Any) -> Fraction | None:
    """The exact decimal value of a number as written, so that 0.3 is a multiple of 0.1."""
    if not math.isfinite(number):
        return None
    return Fraction(repr(number)) if type(number) is float else Fraction(number)


def _of_numbers(test: Callable[[Any], bool]) -> Test:
    def checked(each: Any) -> bool:
        if not is_number(each):
            return True
        number = number_of(each)
        return number == number and test(number)

    return checked


# Lengths of strings, arrays and objects.


def _sized(kind: type[Any], is_least: bool) -> Callable[[str, Any, Document], Test]:
    def read(keyword: str, value: Any, _given: Document) -> Test:
        size = whole_number(value)
        if size is None or size < 0:
            raise refusal(
                FAILED_TO_PARSE,
                f"$jsonSchema keyword '{keyword}' must be a non-negative integer, not {shell_text(value)}",
            )
        if is_least:
            return lambda each: type(each) is not kind or len(each) >= size
        return lambda each: type(each) is not kind or len(each) <= size

    return read


def _pattern(keyword: str, value: Any, _given: Document) -> Test:
    if type(value) is not str:
        raise refusal(TYPE_MISMATCH, f"$jsonSchema keyword '{keyword}' must be a string")
    occurs_in = regex_matcher(value, "").occurs_in
    return lambda each: type(each) is not str or occurs_in(each)


def _unordered(value: Any) -> Any:
    """The value with fields sorted by name, since a schema compares documents without the order of their fields."""
    if type(value) is dict:
        spend(4 * len(value))
        return {name: _unordered(value[name]) for name in sorted(value)}
    return [_unordered(each) for each in value] if type(value) is list else value


def _unique_items(keyword: str, value: Any, _given: Document) -> Test | None:
    if type(value) is not bool:
        raise refusal(TYPE_MISMATCH, f"$jsonSchema keyword '{keyword}' must be a boolean")
    if not value:
        return None
    return lambda each: type(each) is not list or len(key_set(each, _unordered_key)) == len(each)


def _unordered_key(value: Any) -> Any:
    return order_key(_unordered(value))


def _items(_keyword: str, value: Any, given: Document) -> Test:
    if type(value) is not list:
        every = _schema(value, "items")
        return lambda each: type(each) is not list or all(every(one) for one in each)
    tests = [_schema(each, "items") for each in value]
    rest = _rest("additionalItems", given.get("additionalItems", True))

    def test(each: Any) -> bool:
        if type(each) is not list:
            return True
        first = all(one(item) for one, item in zip(tests, each, strict=False))
        return first and all(rest(item) for item in each[len(tests) :])

    return test


def _additional_items(keyword: str, value: Any, _given: Document) -> None:
    _rest(keyword, value)  # only checked: it has an effect only together with an array of `items`


def _rest(keyword: str, value: Any) -> Test:
    if type(value) is bool:
        return lambda _each: value
    return _schema(value, keyword)


# Objects.


def _required(keyword: str, value: Any, _given: Document) -> Test:
    if type(value) is not list or not value or any(type(name) is not str for name in value):
        raise refusal(FAILED_TO_PARSE, f"$jsonSchema keyword '{keyword}' must be a non-empty array of strings")
    if len(set(value)) != len(value):
        raise refusal(FAILED_TO_PARSE, f"$jsonSchema keyword '{keyword}' array cannot contain duplicate values")
    return lambda each: type(each) is not dict or all(name in each for name in value)


def _properties(keyword: str, value: Any, _given: Document) -> Test:
    if type(value) is not dict:
        raise refusal(TYPE_MISMATCH, f"$jsonSchema keyword '{keyword}' must be an object")
    tests = [(name, _schema(each, name)) for name, each in value.items()]

    def test(each: Any) -> bool:
        spend(2 * len(tests))
        return type(each) is not dict or all(name not in each or one(each[name]) for name, one in tests)

    return test


def _pattern_properties(keyword: str, value: Any, _given: Document) -> Test:
    if type(value) is not dict:
        raise refusal(TYPE_MISMATCH, f"$jsonSchema keyword '{keyword}' must be an object")
    tests = [(regex_matcher(pattern, ""), _schema(each, pattern)) for pattern, each in value.items()]

    def test(each: Any) -> bool:
        if type(each) is not dict:
            return True
        return all(one(member) for name, member in each.items() for pattern, one in tests if pattern.occurs_in(name))

    return test


def _additional_properties(keyword: str, value: Any, given: Document) -> Test:
    rest = _rest(keyword, value)
    known = given.get("properties", {})
    patterns = [regex_matcher(pattern, "") for pattern in given.get("patternProperties", {})]

    def test(each: Any) -> bool:
        if type(each) is not dict:
            return True
        for name, member in each.items():
            spend(3 + 5 * len(patterns))
            if name not in known and not any(pattern.occurs_in(name) for pattern in patterns) and not rest(member):
                return False
        return True

    return test


def _dependencies(keyword: str, value: Any, _given: Document) -> Test:
    if type(value) is not dict:
        raise refusal(TYPE_MISMATCH, f"$jsonSchema keyword '{keyword}' must be an object")
    tests: list[tuple[str, Test]] = []
    for name, each in value.items():
        tests.append((name, _required(keyword, each, value) if type(each) is list else _schema(each, name)))
    return lambda each: type(each) is not dict or all(name not in each or one(each) for name, one in tests)


_KEYWORDS: Final[dict[str, Callable[[str, Any, Document], Test | None]]] = {
    "type": _type,
    "bsonType": _type,
    "enum": _enum,
    "allOf": _combined,
    "anyOf": _combined,
    "oneOf": _combined,
    "not": _not,
    "minimum": _bound,
    "maximum": _bound,
    "exclusiveMinimum": _exclusive,
    "exclusiveMaximum": _exclusive,
    "multipleOf": _multiple_of,
    "minLength": _sized(str, True),
    "maxLength": _sized(str, False),
    "pattern": _pattern,
    "minItems": _sized(list, True),
    "maxItems": _sized(list, False),
    "uniqueItems": _unique_items,
    "items": _items,
    "additionalItems": _additional_items,
    "required": _required,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "minProperties": _sized(dict, True),
    "maxProperties": _sized(dict, False),
    "dependencies": _dependencies,
}

_TOLD: Final = (
    *("allOf", "anyOf", "oneOf", "not", "enum"),
    *("maximum", "minimum", "maxLength", "minLength", "pattern", "multipleOf"),
    *("minItems", "maxItems", "uniqueItems", "items"),
    *("properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties"),
    *("dependencies", "type", "bsonType"),
)
