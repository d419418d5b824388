"""The update operators (`$set`, `$inc`, `$push`, `$pull` and so on) on one value: from the current value, or MISSING,
to the new one.

KEPT means no change, MISSING removes the field. Finding the values at paths and creating missing parents is
`updates.py`'s part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import localcontext
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128, create_decimal128_context
from bson.int64 import Int64
from bson.regex import Regex

from armillary.languages.mongo.errors import FAILED_TO_PARSE, TYPE_MISMATCH, bad_value, refusal
from armillary.languages.mongo.expression_context import CLUSTER_TIME, NOW, Context
from armillary.languages.mongo.filters.comparisons import equals
from armillary.languages.mongo.filters.matching import compile_filter, compile_test, is_operators
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.languages.mongo.sort_keys import compile_sort_by, element_key
from armillary.model.bson.bson_values import (
    INT64_MAX,
    INT64_MIN,
    MISSING,
    Document,
    is_identical,
    is_number,
    key_set,
    shell_text,
    to_decimal,
    type_name,
    whole,
)
from armillary.work import paced, sorted_values, spend


class _Kept:
    def __repr__(self) -> str:
        return "KEPT"


KEPT: Final = _Kept()

_CONTEXT_OF_DECIMALS: Final = create_decimal128_context()


@dataclass(frozen=True, slots=True)
class Place:
    """The document and path that an operator is applied to, for error messages."""

    document: Document
    path: str
    is_insert: bool = False

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def id_text(self) -> str:
        return f"{{_id: {shell_text(self.document['_id'])}}}" if "_id" in self.document else "{}"


Modifier = Callable[[Any, Place], Any]


@dataclass(frozen=True, slots=True)
class Reaching:
    """A modifier that does nothing on a missing field, but is refused if the field could not be created there."""

    apply: Modifier

    def __call__(self, value: Any, place: Place) -> Any:
        return self.apply(value, place)


_COMPARED_ALONE: Final = frozenset([str, int, bool, Int64])  # types whose equal values have the same encoding


def _changed(old: Any, new: Any) -> Any:
    kind = type(old)
    if kind is not type(new):
        return new  # also if the old value is MISSING
    if kind in _COMPARED_ALONE:
        return KEPT if old == new else new
    return KEPT if is_identical(old, new) else new


# $set, $unset, $setOnInsert, $currentDate.


def set_to(operand: Any, _path: str, _context: Context) -> Modifier:
    return lambda value, _place: _changed(value, operand)


def set_on_insert(operand: Any, _path: str, _context: Context) -> Modifier:
    return lambda value, place: _changed(value, operand) if place.is_insert else KEPT


def unset(_operand: Any, _path: str, _context: Context) -> Modifier:
    return lambda value, _place: KEPT if value is MISSING else MISSING


def least(operand: Any, _path: str, context: Context) -> Modifier:
    wanted, key = context.key(operand), context.key
    return lambda value, _place: operand if value is MISSING or wanted < key(value) else KEPT


def greatest(operand: Any, _path: str, context: Context) -> Modifier:
    wanted, key = context.key(operand), context.key
    return lambda value, _place: operand if value is MISSING or wanted > key(value) else KEPT


def current_date(operand: Any, path: str, context: Context) -> Modifier:
    kind = operand.get("$type") if type(operand) is dict else None
    if type(operand) is dict and set(operand) - {"$type"}:
        raise bad_value(f"Unrecognized $currentDate option: {next(each for each in operand if each != '$type')}")
    if type(operand) is dict and kind not in ("date", "timestamp"):
        raise bad_value(
            "The '$type' string field is required to be 'date' or 'timestamp': "
            "{$currentDate: {field : {$type: 'date'}}}"
        )
    if type(operand) is not dict and type(operand) is not bool:
        raise bad_value(
            f"{type_name(operand)} is not valid type for $currentDate. Please use a boolean ('true') or a $type "
            f"expression ({{$type: 'timestamp/date'}}): {path}"
        )
    values = context.values
    if kind == "timestamp":
        return lambda _value, _place: values[CLUSTER_TIME]
    return lambda _value, _place: DatetimeMS(int(values[NOW]))


# Arithmetic.


def increased(operand: Any, path: str, _context: Context) -> Modifier:
    _check_number("$inc", "increment", operand, path)

    def apply(value: Any, place: Place) -> Any:
        if value is MISSING:
            return operand
        _check_target("$inc", value, place)
        return _changed(value, _computed("$inc", value, operand, place))

    return apply


def multiplied(operand: Any, path: str, _context: Context) -> Modifier:
    _check_number("$mul", "multiply", operand, path)

    def apply(value: Any, place: Place) -> Any:
        if value is MISSING:
            return _zero(operand)
        _check_target("$mul", value, place)
        return _changed(value, _computed("$mul", value, operand, place))

    return apply


def _check_number(name: str, verb: str, operand: Any, path: str) -> None:
    if not is_number(operand):
        raise refusal(
            TYPE_MISMATCH, f"Cannot {verb} with non-numeric argument: {{{path}: {shell_text(operand)}}} ({name})"
        )


def _check_target(name: str, value: Any, place: Place) -> None:
    if not is_number(value):
        raise refusal(
            TYPE_MISMATCH,
            f"Cannot apply {name} to a value of non-numeric type. {place.id_text} has the field '{place.name}' of "
            f"non-numeric type {type_name(value)}",
        )


def _zero(operand: Any) -> Any:
    match operand:
        case Decimal128():
            return Decimal128("0")
        case float():
            return 0.0
    return Int64(0) if type(operand) is Int64 else 0


def _computed(name: str, left: Any, right: Any, place: Place) -> Any:
    is_sum = name == "$inc"
    if type(left) is Decimal128 or type(right) is Decimal128:
        with localcontext(_CONTEXT_OF_DECIMALS):
            first, second = to_decimal(left), to_decimal(right)
            return Decimal128(first + second if is_sum else first * second)
    if type(left) is float or type(right) is float:
        return float(left) + float(right) if is_sum else float(left) * float(right)
    number = int(left) + int(right) if is_sum else int(left) * int(right)
    if not INT64_MIN <= number <= INT64_MAX:
        raise bad_value(
            f"Failed to apply {name} operations to current value ({shell_text(left)}) for document {place.id_text}"
        )
    return whole(number, is_long=type(left) is Int64 or type(right) is Int64)


def bits(operand: Any, path: str, _context: Context) -> Modifier:
    if type(operand) is not dict or not operand:
        raise bad_value(
            f"The $bit modifier is not compatible with a {type_name(operand)}. You must pass in an embedded document: "
            "{$bit: {field: {and/or/xor: #}}"
        )
    for name, mask in operand.items():
        if name not in ("and", "or", "xor"):
            raise bad_value(
                f"The $bit modifier only supports 'and', 'or', and 'xor', not '{name}' which is an unknown operator"
            )
        if type(mask) is not int and type(mask) is not Int64:
            raise bad_value(
                f"The $bit modifier field must be an Integer(32/64 bit); a '{type_name(mask)}' is not supported here: "
                f"{{{path}: {shell_text(operand)}}}"
            )

    def apply(value: Any, place: Place) -> Any:
        number = 0 if value is MISSING else value
        if type(number) is not int and type(number) is not Int64:
            raise bad_value(
                f"Cannot apply $bit to a value of non-integral type.{place.id_text} has the field {place.name} of "
                f"non-integer type {type_name(value)}"
            )
        is_long = type(number) is Int64
        for name, mask in operand.items():
            is_long = is_long or type(mask) is Int64
            number = number & mask if name == "and" else number | mask if name == "or" else number ^ mask
        return _changed(value, whole(int(number), is_long=is_long))

    return apply


# Arrays.


def push(operand: Any, path: str, context: Context) -> Modifier:
    clauses = operand if type(operand) is dict and "$each" in operand else {"$each": [operand]}
    for name in clauses:
        if name not in ("$each", "$position", "$slice", "$sort"):
            raise bad_value(f"Unrecognized clause in $push: {name}")
    added = _each("$push", clauses["$each"])
    position = _clause(clauses, "$position")
    limit = _clause(clauses, "$slice")
    order = _push_order(clauses["$sort"], context) if "$sort" in clauses else None

    def apply(value: Any, place: Place) -> Any:
        array = _array("$push", value, place)
        spend((len(array) + len(added)) // 16)
        if position is None:
            result = [*array, *added]
        else:
            start = max(0, len(array) + position) if position < 0 else position
            result = [*array[:start], *added, *array[start:]]
        if order is not None:
            result = sorted_values(result, order)
        if limit is not None:
            result = result[:limit] if limit >= 0 else result[limit:]
        return result if value is MISSING else _changed(value, result)

    return apply


def _each(name: str, value: Any) -> list[Any]:
    if type(value) is not list:
        raise bad_value(f"The argument to $each in {name} must be an array but it was of type: {type_name(value)}")
    return value


def _clause(clauses: Document, name: str) -> int | None:
    if name not in clauses:
        return None
    number = whole_number(clauses[name])
    if number is None:
        raise bad_value(f"The value for {name} must be an integer value but was given type: {type_name(clauses[name])}")
    return number


def _push_order(given: Any, context: Context) -> Callable[[Any], Any]:
    if type(given) is dict and given:
        for path, direction in given.items():
            if not path or "" in path.split("."):
                raise bad_value(f"The $sort field is a dotted field but has an empty part: {path}")
            if whole_number(direction) not in (1, -1):
                raise bad_value("The $sort element value must be either 1 or -1")
        return element_key(given, context.key)
    direction = whole_number(given)
    if direction not in (1, -1):
        raise bad_value(
            "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields"
        )
    # Elements that are arrays are compared as a whole.
    key = compile_sort_by({"v": direction}, lambda value: context.key(value[0])).key
    return lambda value: key({"v": (value,)})


def _array(name: str, value: Any, place: Place) -> list[Any]:
    if value is MISSING:
        return []
    if type(value) is not list:
        raise bad_value(
            f"The field '{place.path}' must be an array but is of type {type_name(value)} in document {place.id_text}"
            f" ({name})"
        )
    return value


def add_to_set(operand: Any, path: str, context: Context) -> Modifier:
    if type(operand) is dict and next(iter(operand), "") == "$each":
        if len(operand) > 1:
            raise bad_value(f"Found unexpected fields after $each in $addToSet: {shell_text(operand)}")
        added = _each("$addToSet", operand["$each"])
    else:
        added = [operand]
    key = context.key

    def apply(value: Any, place: Place) -> Any:
        if value is not MISSING and type(value) is not list:
            raise bad_value(
                f"Cannot apply $addToSet to non-array field. Field named '{place.name}' has non-array type "
                f"{type_name(value)}"
            )
        array: list[Any] = value if type(value) is list else []
        known = key_set(array, key)
        result = list(array)
        for each in paced(added, 4):
            found = key(each)
            if found not in known:
                known.add(found)
                result.append(each)
        return KEPT if value is not MISSING and len(result) == len(array) else result

    return apply


def pop(operand: Any, path: str, _context: Context) -> Modifier:
    direction = whole_number(operand)
    if direction not in (1, -1):
        raise refusal(FAILED_TO_PARSE, f"$pop expects 1 or -1, found: {shell_text(operand)}")

    def apply(value: Any, place: Place) -> Any:
        if value is MISSING:
            return KEPT
        if type(value) is not list:
            raise refusal(
                TYPE_MISMATCH, f"Path '{place.path}' contains an element of non-array type '{type_name(value)}'"
            )
        if not value:
            return KEPT
        return value[:-1] if direction == 1 else value[1:]

    return Reaching(apply)


def pull(operand: Any, path: str, context: Context) -> Modifier:
    return _culled("$pull", _pulled(operand, context))


def _pulled(operand: Any, context: Context) -> Callable[[Any], bool]:
    if is_operators(operand) and next(iter(operand)) not in ("$and", "$or", "$nor"):
        matches = compile_filter({"v": operand}, context).matches
        # An element that is an array is tested as a field with an array would be.
        return lambda each: matches({"v": each})
    if type(operand) is dict:
        of_documents = compile_filter(operand, context).matches
        return lambda each: type(each) is dict and of_documents(each)
    if isinstance(operand, Regex):
        return compile_test({"$regex": operand}, context)
    return equals(operand, context.key)


def pull_all(operand: Any, path: str, context: Context) -> Modifier:
    if type(operand) is not list:
        raise bad_value(f"$pullAll requires an array argument but was given a {type_name(operand)}")
    unwanted, key = {context.key(each) for each in paced(operand, 5)}, context.key
    return _culled("$pullAll", lambda each: key(each) in unwanted)


def _culled(name: str, is_unwanted: Callable[[Any], bool]) -> Modifier:
    def apply(value: Any, place: Place) -> Any:
        if value is MISSING:
            return KEPT
        if type(value) is not list:
            raise bad_value(f"Cannot apply {name} to a non-array value")
        result = [each for each in paced(value, 5) if not is_unwanted(each)]
        return KEPT if len(result) == len(value) else result

    return Reaching(apply)


MODIFIERS: Final[dict[str, Callable[[Any, str, Context], Modifier]]] = {
    "$set": set_to,
    "$setOnInsert": set_on_insert,
    "$unset": unset,
    "$inc": increased,
    "$mul": multiplied,
    "$min": least,
    "$max": greatest,
    "$currentDate": current_date,
    "$bit": bits,
    "$push": push,
    "$addToSet": add_to_set,
    "$pop": pop,
    "$pull": pull,
    "$pullAll": pull_all,
}
