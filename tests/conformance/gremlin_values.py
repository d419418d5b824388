"""Expected values of the Gremlin corpus against results of the language, in process. See gremlin/README.md."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal
from typing import Any

from armillary.languages.gremlin.syntax.tokens import Token
from armillary.languages.gremlin.values.elements import Edge, Entry, Path, Property, Tree, Vertex, VertexProperty, pairs
from armillary.languages.gremlin.values.typed_values import Set


def canonical(value: Any, is_bag: bool) -> Any:
    """Of an expected JSON value or of a result; equal ones are equal, numbers by value."""
    match value:
        case None | bool() | str():
            return value
        case int() | float() | Decimal():
            return round(float(value), 6)
        case datetime():
            return value.isoformat()
        case Vertex():
            return ("v", str(value.id))
        case Edge():
            return ("e", str(value.id))
        case VertexProperty() | Property():
            return ("prop", value.key, canonical(value.value, is_bag))
        case Path():
            return ("path", tuple(canonical(each, is_bag) for each in value.objects))
        case Tree():
            return ("tree", tuple(sorted((text(key), canonical(inner, is_bag)) for key, inner in value.entries())))
        case Set():
            return ("bag", _sorted(canonical(each, is_bag) for each in value))
        case Entry():
            return ("map", ((text(value[0]), canonical(value[1], is_bag)),))
        case list():
            items = [canonical(each, is_bag) for each in value]
            return ("bag", _sorted(items)) if is_bag else ("list", tuple(items))
        case Token():
            return value.value
        case dict():
            return _canonical_map(value, is_bag)
    return str(value)


def _canonical_map(value: dict[Any, Any], is_bag: bool) -> Any:
    if "$v" in value:
        return ("v", value["$v"])
    if "$e" in value:
        return ("e", value["$e"])
    if "$prop" in value:
        return ("prop", value["$prop"][0], canonical(value["$prop"][1], is_bag))
    if "$path" in value:
        return ("path", tuple(canonical(each, is_bag) for each in value["$path"]))
    if "$set" in value:
        return ("bag", _sorted(canonical(each, is_bag) for each in value["$set"]))
    if "$tree" in value:
        return _tree(value["$tree"])
    entries = value["$map"] if "$map" in value else pairs(value)
    return ("map", _sorted((text(key), canonical(each, is_bag)) for key, each in entries))


def _tree(value: dict[str, Any]) -> Any:
    return ("tree", tuple(sorted((key, _tree(inner)) for key, inner in value.items())))


def _sorted(items: Any) -> tuple[Any, ...]:
    return tuple(sorted(items, key=repr))


def text(key: Any) -> str:
    """Map keys compare as text, as GraphSON 1 and 2 can only write text."""
    if isinstance(key, Token):
        return str(key.value)
    if isinstance(key, int | float) and not isinstance(key, bool) and float(key).is_integer():
        return str(int(key))
    if isinstance(key, Vertex | Edge):
        return str(key.id)
    return str(key)


def are_close(expected: Any, found: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=1e-6, abs_tol=1e-6)
    if isinstance(expected, tuple) and isinstance(found, tuple):
        if expected[:1] == ("bag",) and found[:1] == ("list",):
            found = ("bag", _sorted(found[1]))
        return len(expected) == len(found) and all(map(are_close, expected, found))
    return bool(expected == found)


def matches(case: dict[str, Any], results: list[Any]) -> bool:
    is_bag = case.get("bag", False)
    expected = [canonical(each, is_bag) for each in case["expect"]]
    found = [canonical(each, is_bag) for each in results]
    if len(expected) != len(found):
        return False
    if not case["ordered"]:
        expected, found = sorted(expected, key=repr), sorted(found, key=repr)
        for each in expected:
            at = next((at for at, other in enumerate(found) if are_close(each, other)), None)
            if at is None:
                return False
            del found[at]
        return True
    return all(map(are_close, expected, found))
