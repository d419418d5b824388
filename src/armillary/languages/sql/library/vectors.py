"""VectorDistance: cosine similarity, dot product or Euclidean distance of two vectors. Always computed exactly and in
doubles, whatever the data type of the embedding, and without a vector index. Without a numeric library: see
docs/performance.md for what one would gain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import mul
from typing import Any, Final

from armillary import limits
from armillary.languages.sql.library.context import Context
from armillary.languages.sql.library.numbers import ABSENT, number
from armillary.model.values import UNDEFINED, Value, as_double
from armillary.work import spend

_NUMBERS: Final = frozenset([int, float])
_DATA_TYPES: Final = frozenset(["float32", "float16", "int8", "uint8"])


def vector_distance(
    context: Context, path: str, first: Any, second: Any, is_exact: Any = False, options: Any = ABSENT
) -> Value:
    """`path`: the first argument that is a path; the container's vector policy may set its distance function."""
    left, right = _vector(context, 0, first), _vector(context, 1, second)
    if left is None or right is None or len(left.values) != len(right.values) or is_exact.__class__ is not bool:
        return UNDEFINED
    name = context.distance_function_of(path)
    if options is not ABSENT:
        if options.__class__ is not dict:
            return UNDEFINED
        name = options.get("distanceFunction", name)
        data_type = options.get("dataType", "float32")
        if name.__class__ is not str or data_type.__class__ is not str or data_type.lower() not in _DATA_TYPES:
            return UNDEFINED
    spend(len(left.values) >> 1)
    compute = _FUNCTIONS.get(name.lower())
    return UNDEFINED if compute is None else compute(left, right)


def is_similarity(name: str) -> bool:
    """Whether greater means more similar; otherwise the result is a distance."""
    return name.lower() != "euclidean"


class _Vector:
    __slots__ = ("_length", "given", "values")

    def __init__(self, given: list[Any], values: list[float]) -> None:
        self.given = given
        self.values = values
        self._length = -1.0

    @property
    def length(self) -> float:
        if self._length < 0:
            self._length = math.hypot(*self.values)
        return self._length


def _vector(context: Context, argument: int, given: Any) -> _Vector | None:
    """Read a vector. The last one of each argument is cached: the query's own vector is the same list for every
    item."""
    known: _Vector | None = context.vectors[argument]
    if known is not None and known.given is given:
        return known
    values = _values(given)
    made = None if values is None else _Vector(given, values)
    context.vectors[argument] = made
    return made


def _values(given: Any) -> list[float] | None:
    if given.__class__ is not list or not 0 < len(given) <= limits.VECTOR_DIMENSIONS_MAX:
        return None
    spend(len(given) >> 2)
    kinds = set(map(type, given))
    if kinds == {float}:
        return given
    return [as_double(each) for each in given] if kinds <= _NUMBERS else None


def _dot(left: _Vector, right: _Vector) -> float:
    return float(sum(map(mul, left.values, right.values)))


def _cosine(left: _Vector, right: _Vector) -> Value:
    lengths = left.length * right.length
    if lengths == 0:
        return UNDEFINED  # a zero vector has no direction
    return number(max(-1.0, min(1.0, _dot(left, right) / lengths)))


def _euclidean(left: _Vector, right: _Vector) -> Value:
    return number(math.dist(left.values, right.values))


def _dot_product(left: _Vector, right: _Vector) -> Value:
    return number(_dot(left, right))


_FUNCTIONS: Final[dict[str, Callable[[_Vector, _Vector], Value]]] = {
    "cosine": _cosine,
    "dotproduct": _dot_product,
    "euclidean": _euclidean,
}
