"""Set operators on arrays: equal values count once, whatever their numeric type, in the order of their first
appearance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from armillary import work
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expressions.compiling import Function, Operator
from armillary.languages.mongo.expressions.numbers import is_nullish
from armillary.languages.mongo.filters.value_types import truth
from armillary.model.bson.bson_values import list_keys, type_name

_ELEMENT_BYTES: Final = 150  # of a key and its slot

KeyOf = Callable[[Any], Any]


def _keys(key: KeyOf, values: list[Any]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    _add(found, key, values)
    return found


def _add(found: dict[Any, Any], key: KeyOf, values: list[Any]) -> None:
    work.make(_ELEMENT_BYTES * len(values))
    for portion in work.portions(values, 2):
        for each, value in zip(list_keys(portion, key), portion, strict=True):
            found.setdefault(each, value)


def _has_all(of: dict[Any, Any], names: dict[Any, Any]) -> bool:
    return all(name in of for name in work.paced(names, 2))


def _equals(key: KeyOf, *arrays: Any) -> bool:
    for array in arrays:
        if type(array) is not list:
            raise refusal(
                17044, f"All operands of $setEquals must be arrays. One argument is of type: {type_name(array)}"
            )
    first, *others = [_keys(key, array) for array in arrays]
    return all(len(other) == len(first) and _has_all(other, first) for other in others)


def _intersection(key: KeyOf, *arrays: Any) -> Any:
    if any(is_nullish(array) for array in arrays):
        return None
    kept: dict[Any, Any] | None = None
    for array in arrays:
        if type(array) is not list:
            raise refusal(
                17047, f"All operands of $setIntersection must be arrays. One argument is of type: {type_name(array)}"
            )
        present = _keys(key, array)
        kept = (
            present if kept is None else {name: value for name, value in work.paced(kept.items(), 2) if name in present}
        )
    return list((kept or {}).values())


def _union(key: KeyOf, *arrays: Any) -> Any:
    if any(is_nullish(array) for array in arrays):
        return None
    found: dict[Any, Any] = {}
    for array in arrays:
        if type(array) is not list:
            raise refusal(
                17043, f"All operands of $setUnion must be arrays. One argument is of type: {type_name(array)}"
            )
        _add(found, key, array)
    return list(found.values())


def _difference(key: KeyOf, left: Any, right: Any) -> Any:
    if is_nullish(left) or is_nullish(right):
        return None
    for array, which, code in ((left, "First", 17048), (right, "Second", 17049)):
        if type(array) is not list:
            raise refusal(
                code,
                f"both operands of $setDifference must be arrays. {which} argument is of type: {type_name(array)}",
            )
    without = _keys(key, right)
    return [value for name, value in work.paced(_keys(key, left).items(), 2) if name not in without]


def _is_subset(key: KeyOf, left: Any, right: Any) -> bool:
    for array, which, code in ((left, "First", 17046), (right, "Second", 17042)):
        if type(array) is not list:
            raise refusal(
                code,
                f"both operands of $setIsSubset must be arrays. {which} argument is of type: {type_name(array)}",
            )
    return _has_all(_keys(key, right), _keys(key, left))


def _elements(name: str, code: int, decide: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def evaluate(array: Any) -> bool:
        if type(array) is not list:
            raise refusal(code, f"{name}'s argument must be an array, but is {type_name(array)}")
        return decide(truth(value) for value in work.paced(array, 2))

    return evaluate


OPERATORS: Final[Mapping[str, Operator]] = {
    "$setEquals": Function(_equals, 2, None, 17045, is_keyed=True),
    "$setIntersection": Function(_intersection, 0, None, is_keyed=True),
    "$setUnion": Function(_union, 0, None, is_keyed=True),
    "$setDifference": Function(_difference, 2, 2, is_keyed=True),
    "$setIsSubset": Function(_is_subset, 2, 2, is_keyed=True),
    "$anyElementTrue": Function(_elements("$anyElementTrue", 17041, any)),
    "$allElementsTrue": Function(_elements("$allElementsTrue", 17040, all)),
}
