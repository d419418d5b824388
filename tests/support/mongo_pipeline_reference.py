"""MongoDB's aggregation once more, slowly: expressions walked, stages over whole lists. An oracle for random pipelines;
it knows what `mongo_pipeline_author` writes. Nothing of the product is used but the types of values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from bson.decimal128 import Decimal128, create_decimal128_context
from bson.int64 import Int64
from support.mongo_reference import NOTHING, Refused, is_number, matches, order, sorted_by

Scope = dict[str, Any]
_CONTEXT = create_decimal128_context()
_NAMES = {
    int: "int",
    Int64: "long",
    float: "double",
    Decimal128: "decimal",
    str: "string",
    dict: "object",
    list: "array",
    bool: "bool",
    type(None): "null",
}


def compared(left: Any, right: Any) -> int:
    """As aggregation has it: what is missing comes before null."""
    if (left is NOTHING) != (right is NOTHING) and (left is None or right is None):
        return -1 if left is NOTHING else 1
    return order(left, right)


def is_null(value: Any) -> bool:
    return value is None or value is NOTHING


def is_true(value: Any) -> bool:
    if is_null(value) or value is False:
        return False
    return not (is_number(value) and order(value, 0) == 0)


# Numbers: a value and the type it has.


def _rank(value: Any) -> int:
    return [int, Int64, float, Decimal128].index(type(value))


def _result(exact: Any, kind: int) -> Any:
    if kind == 3:
        return Decimal128(_CONTEXT.plus(exact))
    if kind == 2:
        return float(exact)
    if kind == 0 and -(2**31) <= exact < 2**31:
        return int(exact)
    return Int64(exact) if -(2**63) <= exact < 2**63 else float(exact)


def _decimal(value: Any) -> Decimal:
    if type(value) is Decimal128:
        return value.to_decimal()
    if type(value) is float:
        return Decimal(f"{value:.14e}")
    return Decimal(int(value))


def number_sum(values: list[Any]) -> Any:
    kind = max([_rank(value) for value in values], default=0)
    if kind == 3:
        others = sum([Fraction(value) for value in values if type(value) is not Decimal128], Fraction(0))
        total = _CONTEXT.divide(Decimal(others.numerator), Decimal(others.denominator))
        for value in values:
            if type(value) is Decimal128:
                total = _CONTEXT.add(total, value.to_decimal())
        return Decimal128(total)
    return _result(sum([Fraction(value) for value in values], Fraction(0)), kind)


def _arithmetic(name: str, values: list[Any]) -> Any:
    if name in ("$add", "$multiply"):
        if name == "$add":
            for value in values:
                if is_null(value):
                    return None
                if not is_number(value):
                    raise Refused(14)
            return number_sum(values)
        if any(map(is_null, values)):
            # A value that is no number before the first null is refused all the same.
            for value in values:
                if is_null(value):
                    return None
                if not is_number(value):
                    raise Refused(14)
        result: Any = 1
        for value in values:
            if not is_number(value):
                raise Refused(14)
            kind = max(_rank(result), _rank(value))
            if kind == 3:
                result = Decimal128(_CONTEXT.multiply(_decimal(result), _decimal(value)))
            elif kind == 2:
                result = float(result) * float(value)
            else:
                result = _result(int(result) * int(value), kind)
        return result
    left, right = values
    if not (is_number(left) and is_number(right)):
        if is_null(left) or is_null(right):
            return None
        raise Refused(14)
    kind = max(_rank(left), _rank(right))
    if name == "$subtract":
        if kind == 3:
            return Decimal128(_CONTEXT.subtract(_decimal(left), _decimal(right)))
        return _result(float(left) - float(right) if kind == 2 else int(left) - int(right), kind)
    if order(right, 0) == 0:
        raise Refused(2)
    if name == "$divide":
        if kind == 3:
            return Decimal128(_CONTEXT.divide(_decimal(left), _decimal(right)))
        return float(left) / float(right)
    if kind == 3:
        return Decimal128(_CONTEXT.remainder(_decimal(left), _decimal(right)))
    if kind == 2:
        return math.fmod(float(left), float(right))
    return _result(int(math.copysign(abs(int(left)) % abs(int(right)), int(left))), kind)


# Expressions.


def at_path(value: Any, parts: list[str]) -> Any:
    if not parts:
        return value
    if isinstance(value, dict):
        return at_path(value[parts[0]], parts[1:]) if parts[0] in value else NOTHING
    if isinstance(value, list):
        found = [at_path(each, parts) for each in value if isinstance(each, dict)]
        return [each for each in found if each is not NOTHING]
    return NOTHING


def evaluated(spec: Any, scope: Scope) -> Any:
    if isinstance(spec, str) and spec.startswith("$$"):
        name, *parts = spec[2:].split(".")
        return NOTHING if name == "REMOVE" else at_path(scope[name], parts)
    if isinstance(spec, str) and spec.startswith("$"):
        return at_path(scope["ROOT"], spec[1:].split("."))
    if isinstance(spec, list):
        return [None if (value := evaluated(each, scope)) is NOTHING else value for each in spec]
    if not isinstance(spec, dict):
        return spec
    name = next(iter(spec), "")
    if not name.startswith("$"):
        made = {field: evaluated(each, scope) for field, each in spec.items()}
        return {field: value for field, value in made.items() if value is not NOTHING}
    operand = spec[name]
    if name in _BINDING:
        return _BINDING[name](operand, scope)
    parts = operand if isinstance(operand, list) else [operand]
    if name in ("$and", "$or"):
        truths = (is_true(evaluated(each, scope)) for each in parts)
        return all(truths) if name == "$and" else any(truths)
    if name == "$ifNull":
        for each in parts[:-1]:
            value = evaluated(each, scope)
            if not is_null(value):
                return value
        return evaluated(parts[-1], scope)
    values = [evaluated(each, scope) for each in parts]
    if name in ("$add", "$subtract", "$multiply", "$divide", "$mod"):
        return _arithmetic(name, values)
    if name in _COMPARISONS:
        return _COMPARISONS[name](compared(*values))
    if name in ("$sum", "$avg", "$min", "$max"):
        return accumulated(name, values[0] if len(values) == 1 and isinstance(values[0], list) else values)
    return _FUNCTIONS[name](*values)


def _cond(operand: Any, scope: Scope) -> Any:
    condition, then, otherwise = operand if isinstance(operand, list) else [operand[k] for k in ("if", "then", "else")]
    return evaluated(then if is_true(evaluated(condition, scope)) else otherwise, scope)


def _switch(operand: Any, scope: Scope) -> Any:
    for branch in operand["branches"]:
        if is_true(evaluated(branch["case"], scope)):
            return evaluated(branch["then"], scope)
    return evaluated(operand["default"], scope)


def _over(operand: Any, scope: Scope, code: int) -> list[Any] | None:
    array = evaluated(operand["input"], scope)
    if is_null(array):
        return None
    if not isinstance(array, list):
        raise Refused(code)
    return array


def _map(operand: Any, scope: Scope) -> Any:
    array = _over(operand, scope, 16883)
    if array is None:
        return None
    name = operand.get("as", "this")
    made = [evaluated(operand["in"], {**scope, name: each}) for each in array]
    return [None if value is NOTHING else value for value in made]


def _filter(operand: Any, scope: Scope) -> Any:
    array = _over(operand, scope, 28651)
    name = operand.get("as", "this")
    if array is None:
        return None
    return [each for each in array if is_true(evaluated(operand["cond"], {**scope, name: each}))]


def _reduce(operand: Any, scope: Scope) -> Any:
    array = _over(operand, scope, 40080)
    if array is None:
        return None
    value = evaluated(operand["initialValue"], scope)
    for each in array:
        value = evaluated(operand["in"], {**scope, "this": each, "value": value})
    return value


def _let(operand: Any, scope: Scope) -> Any:
    bound = {name: evaluated(each, scope) for name, each in operand["vars"].items()}
    return evaluated(operand["in"], {**scope, **bound})


def _sort_array(operand: Any, scope: Scope) -> Any:
    array = _over(operand, scope, 2942504)
    return array and sorted(array, key=functools.cmp_to_key(order), reverse=operand["sortBy"] == -1)


_BINDING: dict[str, Callable[[Any, Scope], Any]] = {
    "$cond": _cond,
    "$switch": _switch,
    "$map": _map,
    "$filter": _filter,
    "$reduce": _reduce,
    "$let": _let,
    "$sortArray": _sort_array,
    "$literal": lambda operand, _scope: operand,
}
_COMPARISONS: dict[str, Callable[[int], Any]] = {
    "$cmp": lambda sign: sign,
    "$eq": lambda sign: sign == 0,
    "$ne": lambda sign: sign != 0,
    "$gt": lambda sign: sign > 0,
    "$gte": lambda sign: sign >= 0,
    "$lt": lambda sign: sign < 0,
    "$lte": lambda sign: sign <= 0,
}


def _of_kind(kind: type, code: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Null if an argument is, refused if one is of another kind."""

    def evaluate(*values: Any) -> Any:
        for value in values:
            if is_null(value):
                return None
            if not isinstance(value, kind):
                raise Refused(code)
        return function(*values)

    return evaluate


def _text(value: Any) -> str:
    if is_null(value):
        return ""
    if not isinstance(value, str):
        raise Refused(16007)
    return value


def _element(array: Any, place: int) -> Any:
    return array[place] if -len(array) <= place < len(array) else NOTHING


def unique(values: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for value in values:
        if all(compared(value, other) for other in kept):
            kept.append(value)
    return kept


def _among(value: Any, array: Any) -> bool:
    if not isinstance(array, list):
        raise Refused(40081)
    return any(compared(value, each) == 0 for each in array)


def _ascii(text: str, *, is_upper: bool) -> str:
    return "".join([(each.upper() if is_upper else each.lower()) if each.isascii() else each for each in text])


def _size(array: Any) -> int:
    if not isinstance(array, list):
        raise Refused(17124)
    return len(array)


def _absolute(value: Any) -> Any:
    if is_null(value):
        return None
    if not is_number(value):
        raise Refused(28765)
    return value if order(value, 0) >= 0 else _arithmetic("$subtract", [0, value])


def _string_length(text: Any) -> int:
    if not isinstance(text, str):
        raise Refused(34471)
    return len(text)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "$not": lambda value: not is_true(value),
    "$abs": _absolute,
    "$concat": _of_kind(str, 16702, lambda *texts: "".join(texts)),
    "$toUpper": lambda value: _ascii(_text(value), is_upper=True),
    "$toLower": lambda value: _ascii(_text(value), is_upper=False),
    "$strLenCP": _string_length,
    "$substrCP": lambda value, start, count: _text(value)[start : start + count],
    "$split": _of_kind(str, 40085, lambda text, separator: text.split(separator)),
    "$size": _size,
    "$arrayElemAt": lambda array, place: _of_kind(list, 28689, lambda found: _element(found, place))(array),
    "$first": _of_kind(list, 28689, lambda array: _element(array, 0)),
    "$last": _of_kind(list, 28689, lambda array: _element(array, -1)),
    "$slice": lambda array, count: _of_kind(list, 28724, lambda a: a[:count] if count >= 0 else a[count:])(array),
    "$concatArrays": _of_kind(list, 28664, lambda *arrays: [each for array in arrays for each in array]),
    "$reverseArray": _of_kind(list, 34435, lambda array: list(reversed(array))),
    "$in": _among,
    "$isArray": lambda value: isinstance(value, list),
    "$setUnion": _of_kind(list, 17043, lambda *arrays: unique([each for array in arrays for each in array])),
    "$setIntersection": _of_kind(
        list, 17047, lambda first, second: [each for each in unique(first) if _among(each, second)]
    ),
    "$setDifference": _of_kind(
        list, 17048, lambda first, second: [each for each in unique(first) if not _among(each, second)]
    ),
    "$type": lambda value: "missing" if value is NOTHING else _NAMES[type(value)],
    "$mergeObjects": lambda *values: {
        name: each for value in values if not is_null(value) for name, each in value.items()
    },
    "$objectToArray": _of_kind(dict, 40390, lambda value: [{"k": name, "v": each} for name, each in value.items()]),
}


def accumulated(name: str, values: list[Any]) -> Any:
    numbers = [value for value in values if is_number(value)]
    present = [value for value in values if not is_null(value)]
    match name:
        case "$sum":
            return number_sum(numbers)
        case "$avg":
            if not numbers:
                return None
            return _arithmetic("$divide", [number_sum(numbers), len(numbers)])
        case "$min":
            return min(present, key=functools.cmp_to_key(order), default=None)
        case "$max":
            return max(present, key=functools.cmp_to_key(order), default=None)
        case "$push":
            return [value for value in values if value is not NOTHING]
        case "$addToSet":
            return unique([value for value in values if value is not NOTHING])
        case "$first" | "$last":
            value = values[0 if name == "$first" else -1] if values else None
            return None if value is NOTHING else value
        case "$count":
            return len(values)
    raise AssertionError(name)


# Stages.


def put(target: Any, parts: list[str], value: Any) -> Any:
    if not parts:
        return value
    if isinstance(target, list):
        return [put(each, parts, value) for each in target]
    made = dict(target) if isinstance(target, dict) else {}
    below = put(made.get(parts[0], NOTHING), parts[1:], value)
    if below is NOTHING:
        made.pop(parts[0], None)
    else:
        made[parts[0]] = below
    return made


def _by_id(one: Any, other: Any) -> int:
    return order(one["_id"], other["_id"])


def _flat(spec: dict[str, Any]) -> list[tuple[str, Any]]:
    """Objects of fields to add are paths; only those of operators are values."""
    found = []
    for path, value in spec.items():
        if isinstance(value, dict) and not next(iter(value)).startswith("$"):
            found += [(f"{path}.{below}", each) for below, each in _flat(value)]
        else:
            found.append((path, value))
    return found


class Oracle:
    """Runs pipelines over collections that are lists."""

    def __init__(self, collections: dict[str, list[Any]]) -> None:
        self._collections = collections

    def run(self, stages: list[Any], documents: list[Any], variables: Scope | None = None) -> list[Any]:
        for stage in stages:
            ((name, spec),) = stage.items()
            documents = getattr(self, "_" + name[1:])(spec, documents, variables or {})
        return documents

    def _value(self, spec: Any, document: Any, variables: Scope) -> Any:
        return evaluated(spec, {**variables, "ROOT": document})

    def _match(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:
        plain = {name: each for name, each in spec.items() if name != "$expr"}
        found = [document for document in documents if matches(plain, document)]
        if "$expr" in spec:
            found = [each for each in found if is_true(self._value(spec["$expr"], each, variables))]
        return found

    def _project(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:
        if all(value == 0 and type(value) is int for value in spec.values()):
            return [{name: each for name, each in document.items() if name not in spec} for document in documents]
        made = []
        for document in documents:
            kept = {n: each for n, each in document.items() if spec.get(n) == 1 or (n == "_id" and "_id" not in spec)}
            for name, value in spec.items():
                if not (type(value) is int and value in (0, 1)):
                    result = self._value(value, document, variables)
                    if result is not NOTHING:
                        kept[name] = result
            made.append(kept)
        return made

    def _unset(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:
        return self._project(dict.fromkeys(spec, 0), documents, variables)

    def _addFields(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:  # noqa: N802
        made = []
        for document in documents:
            result = document
            for path, value in _flat(spec):
                result = put(result, path.split("."), self._value(value, document, variables))
            made.append(result)
        return made

    def _replaceWith(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:  # noqa: N802
        made = [self._value(spec, document, variables) for document in documents]
        if not all(isinstance(each, dict) for each in made):
            raise Refused(40228)
        return made

    def _sort(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:
        for path, direction in reversed(spec.items()):
            documents = sorted_by(documents, path, direction)
        return documents

    def _limit(self, spec: int, documents: list[Any], variables: Scope) -> list[Any]:
        return documents[:spec]

    def _skip(self, spec: int, documents: list[Any], variables: Scope) -> list[Any]:
        return documents[spec:]

    def _count(self, spec: str, documents: list[Any], variables: Scope) -> list[Any]:
        return [{spec: len(documents)}] if documents else []

    def _unwind(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:
        name = spec["path"][1:]
        made = []
        for document in documents:
            value = document.get(name, NOTHING)
            rows: list[tuple[dict[str, Any], Int64 | None]]
            if isinstance(value, list) and value:
                rows = [({**document, name: each}, Int64(place)) for place, each in enumerate(value)]
            elif isinstance(value, list):
                rest = {other: each for other, each in document.items() if other != name}
                rows = [(rest, None)] if spec.get("preserveNullAndEmptyArrays") else []
            elif is_null(value) and not spec.get("preserveNullAndEmptyArrays"):
                rows = []
            else:
                rows = [(document, None)]
            for row, place in rows:
                made.append({**row, spec["includeArrayIndex"]: place} if "includeArrayIndex" in spec else row)
        return made

    def _group(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:
        groups: list[tuple[Any, list[Any]]] = []
        for document in documents:
            key = self._value(spec["_id"], document, variables)
            key = None if key is NOTHING else key
            for known, members in groups:
                if order(known, key) == 0:
                    members.append(document)
                    break
            else:
                groups.append((key, [document]))
        made = []
        for key, members in groups:
            row = {"_id": key}
            for field, rule in spec.items():
                if field != "_id":
                    ((name, operand),) = rule.items()
                    row[field] = accumulated(name, [self._value(operand, each, variables) for each in members])
            made.append(row)
        return made

    def _sortByCount(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:  # noqa: N802
        return sorted(
            self._group({"_id": spec, "count": {"$sum": 1}}, documents, variables), key=lambda row: -row["count"]
        )

    def _bucket(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:
        bounds = spec["boundaries"]
        rows = []
        for document in documents:
            value = self._value(spec["groupBy"], document, variables)
            within = [lower for lower in bounds[:-1] if compared(lower, value) <= 0 and compared(value, bounds[-1]) < 0]
            rows.append({"_id": within[-1] if within else spec["default"]})
        found = self._group({"_id": "$_id", "count": {"$sum": 1}}, rows, variables)
        return sorted(found, key=functools.cmp_to_key(_by_id))

    def _lookup(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:
        made = []
        for document in documents:
            others = self._collections.get(spec["from"], [])
            if "localField" in spec:
                value = at_path(document, spec["localField"].split("."))
                wanted = value if isinstance(value, list) else [None if value is NOTHING else value]
                others = [each for each in others if matches({spec["foreignField"]: {"$in": wanted}}, each)]
            bound = {name: self._value(each, document, variables) for name, each in spec.get("let", {}).items()}
            found = self.run(spec.get("pipeline", []), others, {**variables, **bound})
            made.append(put(document, spec["as"].split("."), found))
        return made

    def _unionWith(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:  # noqa: N802
        return [*documents, *self.run(spec["pipeline"], self._collections.get(spec["coll"], []), variables)]

    def _facet(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:
        return [{name: self.run(stages, documents, variables) for name, stages in spec.items()}]

    def _setWindowFields(self, spec: Any, documents: list[Any], variables: Scope) -> list[Any]:  # noqa: N802
        documents = self._sort(spec["sortBy"], documents, variables)
        parts = self._group({"_id": spec["partitionBy"], "all": {"$push": "$$ROOT"}}, documents, variables)
        made = []
        for part in sorted(parts, key=functools.cmp_to_key(_by_id)):
            members = part["all"]
            for place, document in enumerate(members):
                row = document
                for field, rule in spec["output"].items():
                    name = next(each for each in rule if each != "window")
                    lower, upper = rule.get("window", {"documents": ["unbounded", "unbounded"]})["documents"]
                    first = 0 if lower == "unbounded" else max(0, place + (0 if lower == "current" else lower))
                    last = len(members) if upper == "unbounded" else place + 1 + (0 if upper == "current" else upper)
                    values = [self._value(rule[name], each, variables) for each in members[first : max(0, last)]]
                    row = put(row, field.split("."), accumulated(name, values))
                made.append(row)
        return made
