"""Dotted paths through documents and arrays, as filters read them: a predicate on a path holds if it holds for any
value at the path.

A path continues in all documents of an array, and a number in the path also selects the element with that index. At the
end of a path an array stands for its elements and for itself. Arrays directly inside arrays are entered by a number
only. Sorts and updates have their own rules (`sort_keys`, `updates`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bson.dbref import DBRef

from armillary.model.bson.bson_values import MISSING
from armillary.work import make, spend

_STRIDE = 256  # elements between two calls that meter work

Parts = tuple[str, ...]
Test = Callable[[Any], bool]


def split(path: str) -> Parts:
    return tuple(path.split("."))


def index_of(part: str) -> int:
    """The array index that a part of a path is (0, 1, … without leading zeros), or -1."""
    if part.isdigit() and part.isascii() and (part[0] != "0" or part == "0") and len(part) < 10:
        return int(part)
    return -1


def predicate(path: str, test: Test, *, unwinds: bool = True) -> Callable[[dict[str, Any]], bool]:
    """A function that tells whether a test holds for any value at a path. Without `unwinds` an array at the end is
    tested as a whole only.
    """
    parts = split(path)
    if len(parts) == 1:
        return _predicate_of_field(path, test) if unwinds else lambda document: test(document.get(path, MISSING))

    def holds(document: dict[str, Any]) -> bool:
        return _walk(document, parts, 0, test, unwinds)

    return holds


def _predicate_of_field(name: str, test: Test) -> Callable[[dict[str, Any]], bool]:
    def holds(document: dict[str, Any]) -> bool:
        value = document.get(name, MISSING)
        if type(value) is list and _any(value, test):
            return True
        return test(value)

    return holds


def _any(array: list[Any], test: Test) -> bool:
    if len(array) <= _STRIDE:
        spend(2 * len(array))
        for each in array:  # noqa: SIM110 # half the time of any()
            if test(each):
                return True
        return False
    return any(_any(array[first : first + _STRIDE], test) for first in range(0, len(array), _STRIDE))


def _walk(container: Any, parts: Parts, place: int, test: Test, unwinds: bool) -> bool:
    """Follows a path into a document, or into an array by index."""
    last = len(parts)
    while True:
        value = member(container, parts[place])
        place += 1
        if place == last:
            if unwinds and type(value) is list and _any(value, test):
                return True
            return test(value)
        kind = type(value)
        if kind is dict:
            container = value
        elif kind is list:
            return _through(value, parts, place, test, unwinds)
        elif kind is DBRef:
            container = fields_of(value)
        else:
            return test(MISSING)


def _through(array: list[Any], parts: Parts, place: int, test: Test, unwinds: bool) -> bool:
    wanted = index_of(parts[place])
    is_end = place + 1 == len(parts)
    for index, each in enumerate(array):
        if index % _STRIDE == 0:
            spend(5 * min(_STRIDE, len(array) - index))
        kind = type(each)
        if kind is DBRef:
            each, kind = fields_of(each), dict
        if kind is dict and _walk(each, parts, place, test, unwinds):
            return True
        if index == wanted:
            if is_end:
                if test(each):
                    return True
            elif kind is dict or kind is list:
                lead_on = _walk if kind is dict else _through
                if lead_on(each, parts, place + 1, test, unwinds):
                    return True
    return False


def member(container: Any, name: str) -> Any:
    if type(container) is dict:
        return container.get(name, MISSING)
    index = index_of(name)
    return container[index] if 0 <= index < len(container) else MISSING


def fields_of(reference: DBRef) -> dict[str, Any]:
    """The fields of a document. A DBRef is a document too, which the BSON codec decodes to its own class."""
    return dict(reference.as_doc())


def position(document: dict[str, Any], parts: Parts, test: Test, *, unwinds: bool = True) -> int | None:
    """The index of the first element of the outermost array for which the test holds; None if there is no array on the
    way.
    """
    container: Any = document
    for place, name in enumerate(parts, 1):
        value = member(container, name)
        if type(value) is list:
            if place == len(parts):
                return next((index for index, each in enumerate(value) if test(each)), None) if unwinds else None
            for index, each in enumerate(value):
                if type(each) is DBRef:
                    each = fields_of(each)
                if type(each) is dict and _walk(each, parts, place, test, unwinds):
                    return index
            # A number in the path selects an element itself; it does not count as the matching one.
            container = value
            continue
        if type(value) is DBRef:
            value = fields_of(value)
        if type(value) is not dict:
            return None
        container = value
    return None


def values_at(document: dict[str, Any], parts: Parts) -> Iterator[Any]:
    """All values at a path, with an array at its end replaced by its elements, as `distinct` lists them."""
    found: list[Any] = []

    def keep(value: Any) -> bool:
        if value is not MISSING:
            found.append(value)
        return False

    _walk(document, parts, 0, keep, False)
    for value in found:
        if type(value) is list:
            yield from value
        else:
            yield value


def with_value(target: Any, parts: Sequence[str], value: Any, place: int = 0) -> Any:
    """The target with a value set at a path, in every element of arrays on the way. MISSING removes the field; the
    documents around it are created all the same.
    """
    if place == len(parts):
        return value
    if type(target) is list:
        make(8 * len(target))
        spend(5 * len(target))
        return [with_value(each, parts, value, place) for each in target]
    made = dict(target) if type(target) is dict else {}
    if len(made) > _STRIDE:
        make(24 * len(made))
    field = parts[place]
    below = with_value(made.get(field, MISSING), parts, value, place + 1)
    if below is MISSING:
        made.pop(field, None)
    else:
        made[field] = below
    return made
