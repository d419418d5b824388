"""Array operators: elements, slices, searching, sorting, ranges, and conversion between objects and arrays of pairs.
`$map`, `$filter` and `$reduce` are in `map_filter_reduce.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from itertools import islice, zip_longest
from typing import Any, Final

from armillary import limits, work
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import Context, Expression, Scope
from armillary.languages.mongo.expressions.compiling import (
    Constant,
    Function,
    Named,
    Operator,
    check_count,
    compile_expression,
    folded,
    named_arguments,
)
from armillary.languages.mongo.expressions.numbers import RANKS, as_int32, is_nullish
from armillary.languages.mongo.expressions.strings import bound
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.languages.mongo.memory_budget import DOCUMENT_BYTES, LIST_BYTES, MEMBER_BYTES, check_growth
from armillary.languages.mongo.sort_keys import element_key
from armillary.model.bson.bson_values import MISSING, is_number, key_set, shell_text, type_name
from armillary.work import sorted_values

KeyOf = Callable[[Any], Any]
_STRIDE: Final = 512  # elements between two calls that meter work
_SHORT: Final = 8  # elements; for shorter arrays no keys are cached
_KEYED_MAX: Final = 300_000  # elements; for longer arrays no keys are cached
_KEYED_BYTES: Final = 150  # of one cached key
NUMBER_BYTES: Final = 40  # of a number and its slot in a list
LONG: Final = 10_000  # elements; the size of shorter arrays is not measured if an operator only removes elements


def _array_elem_at(array: Any, index: Any) -> Any:
    if is_nullish(array) or is_nullish(index):
        return None
    if type(array) is not list:
        raise refusal(28689, f"$arrayElemAt's first argument must be an array, but is {type_name(array)}")
    if type(index) not in RANKS:
        raise refusal(28690, f"$arrayElemAt's second argument must be a numeric value, but is {type_name(index)}")
    place = as_int32(index)
    if place is None:
        raise refusal(
            28691,
            "$arrayElemAt's second argument must be representable as a 32-bit integer: " + shell_text(index),
        )
    return array[place] if -len(array) <= place < len(array) else MISSING


def _end_element(name: str, place: int) -> Callable[[Any], Any]:
    def evaluate(array: Any) -> Any:
        if is_nullish(array):
            return None
        if type(array) is not list:
            raise refusal(28689, f"{name}'s argument must be an array, but is {type_name(array)}")
        return array[place] if array else MISSING

    return evaluate


def concat_arrays(*arrays: Any) -> Any:
    joined: list[Any] = []
    for array in arrays:
        if is_nullish(array):
            return None
        if type(array) is not list:
            raise refusal(28664, f"$concatArrays only supports arrays, not {type_name(array)}")
        work.make(8 * len(array))
        joined += array
    # If a long array is only extended a little, its previous elements have already been measured.
    is_looked_at = len(joined) < LONG or any(2 * len(array) > len(joined) for array in arrays)
    return joined if is_looked_at else check_growth(joined)


def _size(array: Any) -> int:
    if type(array) is not list:
        raise refusal(17124, f"The argument to $size must be an array, but was of type: {type_name(array)}")
    return len(array)


def _reverse(array: Any) -> Any:
    if is_nullish(array):
        return None
    if type(array) is not list:
        raise refusal(34435, f"The argument to $reverseArray must be an array, but was of type: {type_name(array)}")
    work.make(8 * len(array))
    return array[::-1]


def _slice(array: Any, second: Any, third: Any = MISSING) -> Any:
    if is_nullish(array) or is_nullish(second) or third is None:
        return None
    if type(array) is not list:
        raise refusal(28724, f"First argument to $slice must be an array, but is of type: {type_name(array)}")
    if type(second) not in RANKS:
        raise refusal(28725, f"Second argument to $slice must be a numeric value, but is of type: {type_name(second)}")
    place = as_int32(second)
    if place is None:
        raise refusal(28726, f"Second argument to $slice can't be represented as a 32-bit integer: {second}")
    work.make(8 * min(len(array), abs(place)))
    if third is MISSING:
        return array[:place] if place >= 0 else array[place:]
    if type(third) not in RANKS:
        raise refusal(28727, f"Third argument to $slice must be numeric, but is of type: {type_name(third)}")
    count = as_int32(third)
    if count is None:
        raise refusal(28728, f"Third argument to $slice can't be represented as a 32-bit integer: {third}")
    if count <= 0:
        raise refusal(28729, f"Third argument to $slice must be positive: {count}")
    first = place if place >= 0 else max(0, len(array) + place)
    work.make(8 * min(len(array), count))
    return array[first : first + count]


def _range(start: Any, end: Any, step: Any = 1) -> list[int]:
    numbers = []
    for value, what, code in (
        (start, "starting value", 34443),
        (end, "ending value", 34445),
        (step, "step value", 34447),
    ):
        if type(value) not in RANKS:
            raise refusal(code, f"$range requires a numeric {what}, found value of type: {type_name(value)}")
        number = as_int32(value)
        if number is None:
            raise refusal(
                code + 1, f"$range requires a {what} that can be represented as a 32-bit integer, found value: {value}"
            )
        numbers.append(number)
    if numbers[2] == 0:
        raise refusal(34449, "$range requires a non-zero step value")
    found = range(*numbers)
    if len(found) > limits.MONGO_RANGE_MAX:
        raise refusal(146, f"$range would use too much memory: {len(found)} numbers, at most {limits.MONGO_RANGE_MAX}")
    work.make(NUMBER_BYTES * len(found))
    made: list[int] = []
    for portion in work.portions(found, 1):
        made += portion
    return made


def _index_of_array(key: KeyOf, array: Any, wanted: Any, start: Any = 0, end: Any = MISSING) -> Any:
    if is_nullish(array):
        return None
    if type(array) is not list:
        raise refusal(40090, f"$indexOfArray requires an array as a first argument, found: {type_name(array)}")
    first = bound("$indexOfArray", start, "starting")
    last = len(array) if end is MISSING else min(len(array), bound("$indexOfArray", end, "ending"))
    wanted_key = key(wanted)
    place = _place_of(wanted_key, array[first:last], key)
    return -1 if place is None else first + place


def _place_of(wanted_key: Any, array: list[Any], key: KeyOf) -> int | None:
    for place, each in enumerate(array):
        if place % _STRIDE == 0:
            work.spend(5 * min(_STRIDE, len(array) - place))
        if key(each) == wanted_key:
            return place
    return None


def _in(name: str, spec: Any, context: Context) -> Expression:
    given = spec if type(spec) is list else [spec]
    check_count(name, len(given), 2, 2)
    parts = [compile_expression(each, context) for each in given]
    wanted_of, array_of = parts
    key = context.key
    # The array that was searched last and, from its second search on, the keys of its elements. This saves work when
    # each element of one array is searched in another. Values are never changed in place, so the same object has the
    # same elements.
    last: list[Any] | None = None
    keys: set[Any] | None = None

    def evaluate(scope: Scope) -> bool:
        nonlocal last, keys
        wanted, array = wanted_of(scope), array_of(scope)
        if type(array) is not list:
            raise refusal(40081, f"$in requires an array as a second argument, found: {type_name(array)}")
        if array is not last:
            last, keys = array, None
        elif keys is None and _SHORT < len(array) <= _KEYED_MAX:
            work.make(_KEYED_BYTES * len(array))
            keys = key_set(array, key)
        if keys is not None:
            return key(wanted) in keys
        return _place_of(key(wanted), array, key) is not None

    return folded(evaluate, parts)


def _zip(name: str, spec: Any, context: Context) -> Expression:
    given = named_arguments(name, spec, {"inputs": 34465}, ("useLongestLength", "defaults"), 34460, 34464)
    inputs, defaults = given["inputs"], given.get("defaults", [])
    if type(inputs) is not list:
        raise refusal(34461, f"inputs must be an array of expressions, found {type_name(inputs)}")
    if not inputs:
        raise refusal(34465, "$zip requires at least one input array")
    if type(defaults) is not list:
        raise refusal(34462, f"defaults must be an array of expressions, found {type_name(defaults)}")
    is_longest = given.get("useLongestLength", False)
    if type(is_longest) is not bool:
        raise refusal(34463, f"useLongestLength must be a bool, found {type_name(is_longest)}")
    if defaults and not is_longest:
        raise refusal(34466, "cannot specify defaults unless useLongestLength is true")
    if defaults and len(defaults) != len(inputs):
        raise refusal(34467, "defaults and inputs must have the same length")
    parts = [compile_expression(each, context) for each in inputs]
    fillers = [compile_expression(each, context) for each in defaults] or [Constant(None)] * len(parts)

    def evaluate(scope: Scope) -> Any:
        arrays = []
        for part in parts:
            array = part(scope)
            if is_nullish(array):
                return None
            if type(array) is not list:
                raise refusal(34468, f"$zip found a non-array expression in input: {shell_text(array)}")
            arrays.append(array)
        lengths = [len(array) for array in arrays]
        row_bytes = LIST_BYTES + 8 + 8 * len(arrays)
        work.make((max(lengths) if is_longest else min(lengths)) * row_bytes)
        rows = zip_longest(*arrays, fillvalue=MISSING) if is_longest else zip(*arrays, strict=False)
        fills = [None if (value := each(scope)) is MISSING else value for each in fillers] if is_longest else []
        zipped: list[list[Any]] = []
        while portion := [list(row) for row in islice(rows, limits.WORK_PORTION)]:
            work.spend(len(portion) * (1 + len(arrays)))
            for row in portion if is_longest else ():
                row[:] = [fill if value is MISSING else value for value, fill in zip(row, fills, strict=True)]
            zipped += portion
        return zipped

    return evaluate


# Slices.


def check_n(value: Any) -> int:
    number = whole_number(value)
    if number is None:
        raise refusal(
            5787903 if is_number(value) else 5787902,
            f"Value for 'n' must be of integral type, but found {shell_text(value)}",
        )
    if number <= 0:
        raise refusal(5787908, f"'n' must be greater than 0, found {number}")
    return number


def _some(choose: Callable[[KeyOf, list[Any], int], list[Any]], object_code: int = 5787900) -> Operator:
    def evaluate(key: KeyOf, n: Any, array: Any) -> list[Any]:
        count = check_n(n)
        if type(array) is not list:
            raise refusal(5788200, f"Input must be an array, but found {type_name(array)}")
        return choose(key, array, count)

    return Named(evaluate, {"n": 5787906, "input": 5787907}, (), object_code, 5787901, is_keyed=True)


def least(key: KeyOf, values: list[Any], count: int) -> list[Any]:
    return _extreme(key, values, count, is_greatest=False)


def greatest(key: KeyOf, values: list[Any], count: int) -> list[Any]:
    return _extreme(key, values, count, is_greatest=True)


def _extreme(key: KeyOf, values: list[Any], count: int, *, is_greatest: bool) -> list[Any]:
    work.make(NUMBER_BYTES * len(values))
    found = [value for portion in work.portions(values, 1) for value in portion if not is_nullish(value)]
    if len(found) > _STRIDE:
        return sorted_values(found, key, is_reversed=is_greatest)[:count]
    return (heapq.nlargest if is_greatest else heapq.nsmallest)(count, found, key=key)


def _sort_array(name: str, spec: Any, context: Context) -> Expression:
    given = named_arguments(name, spec, {"input": 2942502, "sortBy": 2942503}, (), 2942500, 2942501)
    array_of = compile_expression(given["input"], context)
    order = given["sortBy"]
    key: Callable[[Any], Any] = context.key
    is_reversed = False
    if type(order) is dict:
        if not order:
            raise refusal(2942505, "The $sort pattern is empty when it should be a set of fields.")
        key = element_key(order, context.key)
    elif as_int32(order) in (1, -1):
        is_reversed = as_int32(order) == -1
    elif type(order) in RANKS:
        raise refusal(2942506, f"The $sort element value must be either 1 or -1, not {shell_text(order)}")
    else:
        raise refusal(
            2942507,
            "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields",
        )

    def evaluate(scope: Scope) -> Any:
        array = array_of(scope)
        if is_nullish(array):
            return None
        if type(array) is not list:
            raise refusal(
                2942504, f"The input argument to $sortArray must be an array, but was of type: {type_name(array)}"
            )
        work.make(8 * len(array))
        return sorted_values(array, key, is_reversed=is_reversed)

    return evaluate


# Arrays and objects.


def _array_to_object(array: Any) -> Any:
    if is_nullish(array):
        return None
    if type(array) is not list:
        raise refusal(40386, f"$arrayToObject requires an array input, found: {type_name(array)}")
    made: dict[str, Any] = {}
    if not array:
        return made
    work.make(DOCUMENT_BYTES + MEMBER_BYTES * len(array))
    is_pairs = type(array[0]) is list
    if not is_pairs and type(array[0]) is not dict:
        raise refusal(40398, f"Unrecognised input type format for $arrayToObject: {type_name(array[0])}")
    for place, each in enumerate(array):
        if place % _STRIDE == 0:
            work.spend(8 * min(_STRIDE, len(array) - place))
        name, value = _pair(each) if is_pairs else _member(each)
        if "\0" in name:
            raise refusal(4940401 if is_pairs else 4940400, "Key field cannot contain an embedded null byte")
        made[name] = value
    return made


def _pair(each: Any) -> tuple[str, Any]:
    if type(each) is not list:
        raise refusal(
            40396,
            "$arrayToObject requires a consistent input format. Elements must all be arrays or all be objects. Array "
            f"was detected, now found: {type_name(each)}",
        )
    if len(each) != 2:
        raise refusal(
            40397,
            "$arrayToObject requires an array of size 2 arrays,found array of size: " + str(len(each)),
        )
    name, value = each
    if type(name) is not str:
        raise refusal(
            40395,
            "$arrayToObject requires an array of key-value pairs, where the key must be of type string. Found key "
            f"type: {type_name(name)}",
        )
    return name, value


def _member(each: Any) -> tuple[str, Any]:
    if type(each) is not dict:
        raise refusal(
            40391,
            "$arrayToObject requires a consistent input format. Elements must all be arrays or all be objects. Object "
            f"was detected, now found: {type_name(each)}",
        )
    if len(each) != 2:
        raise refusal(
            40392,
            "$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys:" + str(len(each)),
        )
    if "k" not in each or "v" not in each:
        raise refusal(
            40393,
            "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys from: "
            + shell_text(each),
        )
    if type(each["k"]) is not str:
        raise refusal(
            40394,
            "$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' must be of type string. "
            f"Found type: {type_name(each['k'])}",
        )
    return each["k"], each["v"]


OPERATORS: Final[Mapping[str, Operator]] = {
    "$arrayElemAt": Function(_array_elem_at, 2, 2),
    "$arrayToObject": Function(_array_to_object),
    "$concatArrays": Function(concat_arrays, 0, None),
    "$first": Function(_end_element("$first", 0)),
    "$last": Function(_end_element("$last", -1)),
    "$firstN": _some(lambda key, array, count: array[:count], 5787801),
    "$lastN": _some(lambda key, array, count: array[-count:], 5787801),
    "$maxN": _some(greatest),
    "$minN": _some(least),
    "$in": _in,
    "$indexOfArray": Function(_index_of_array, 2, 4, is_keyed=True),
    "$isArray": Function(lambda value: type(value) is list),
    "$range": Function(_range, 2, 3),
    "$reverseArray": Function(_reverse),
    "$size": Function(_size),
    "$slice": Function(_slice, 2, 3),
    "$sortArray": _sort_array,
    "$zip": _zip,
}
