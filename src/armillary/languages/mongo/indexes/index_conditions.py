"""The part of a filter that the container's index can use: conditions that every matching document satisfies, on the
JSON form in which documents are indexed (`model/bson/bson_json.py`); and the values that a filter fixes for fields, to
find the shard and the document.

A path may lead through an array at every step, so a condition is made for each variant. Dates, numbers that JSON cannot
hold and the like are indexed as objects with a tag: they are found by their text if equal values have one text,
otherwise by the tag only. The matcher tests all documents again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex

from armillary import limits
from armillary.languages.mongo.filters.comparisons import is_nan
from armillary.languages.mongo.filters.matching import is_operators
from armillary.languages.mongo.filters.regexes import literal_prefix
from armillary.languages.mongo.filters.value_types import truth
from armillary.languages.mongo.paths import index_of, split
from armillary.model.bson.bson_ids import id_text
from armillary.model.bson.bson_json import member_name
from armillary.model.bson.bson_values import (
    INT64_MAX,
    Document,
    Key,
    is_number,
    list_keys,
    order_key,
    regex_options,
)
from armillary.model.indexes.index_paths import path_text
from armillary.model.values import EXACT_INT_MAX, UNDEFINED, Value
from armillary.query.conditions import (
    ALL,
    NOTHING,
    Condition,
    Defined,
    Equal,
    In,
    Range,
    both,
    either,
    prefix_range,
)
from armillary.work import paced, portions, spend

_VARIANTS_MAX: Final = 16
_PINS_MAX: Final = 4096
_ORDERS: Final = ("$gt", "$gte", "$lt", "$lte")
_ALL_MAX: Final = 100  # values of `$all` that an index searches for
_NEVER_EMPTY: Final = frozenset(["$eq", *_ORDERS])  # operators that some value always meets
_ORDER_KINDS: Final[dict[type, str]] = {str: "text", bool: "truth", ObjectId: "id", DatetimeMS: "date", DBRef: "dict"}
_ELEMENT: Final = None  # the step into an array, as in `path_text`

Steps = tuple[str | None, ...]


# Paths.


def index_paths(path: str) -> list[str]:
    """The index paths at which values of a field may be, which an index on the field must include."""
    return [path_text(steps) for steps in _variants(_members(path))]


def _members(path: str) -> tuple[str, ...]:
    first, *rest = split(path)
    return (member_name(first), *rest)


def _variants(parts: Sequence[str], prefix: Steps = ()) -> list[Steps]:
    """The variants of a path: with and without an array after each step. A number may be a field name or an array
    index.
    """
    found: list[Steps] = [prefix]
    for place, part in enumerate(parts):
        following: list[Steps] = []
        for steps in found:
            following += [(*steps, part), (*steps, part, _ELEMENT)]
            if place and index_of(part) >= 0 and steps[-1] is _ELEMENT:
                following += [steps, (*steps, _ELEMENT)]
        found = list(dict.fromkeys(following))
    return found


@dataclass(frozen=True, slots=True)
class _Places:
    """The index paths at which values of a field may be, without and with an array on the way."""

    plain: tuple[Steps, ...]
    through_arrays: tuple[Steps, ...]


# Conditions.


def filter_condition(
    given: Document,
    *,
    is_collated: bool = False,
    single_paths: Collection[str] = (),
    indexed: Collection[str] | None = None,
) -> Condition:
    """The condition of a filter that has been compiled, and is therefore valid. `single_paths` are fields that never
    lead through an array, such as those of the shard key. `indexed` are the fields that the indexing policy includes;
    None: all.
    """
    return _Reader(is_collated, frozenset([*single_paths, "_id"]), indexed).query(given, None)


class _Reader:
    def __init__(self, is_collated: bool, single_paths: frozenset[str], indexed: Collection[str] | None) -> None:
        self._is_collated = is_collated
        self._single_paths = single_paths
        self._indexed = indexed

    def query(self, given: Document, elements_of: Sequence[Steps] | None) -> Condition:
        """The condition of a query on documents, or on the elements of arrays at some paths."""
        parts: list[Condition] = []
        for name, operand in given.items():
            spend(10)
            if name == "$and":
                parts.append(both([self.query(each, elements_of) for each in operand]))
            elif name == "$or":
                parts.append(either([self.query(each, elements_of) for each in operand]))
            elif not name.startswith("$") and (elements_of is not None or self._may_use(name, operand)):
                parts.append(self._field(name, operand, elements_of))
        return both(parts)

    def _may_use(self, path: str, operand: Any) -> bool:
        """Whether a condition can be used. On a field without an index it can only if no value can meet it."""
        if self._indexed is None or path in self._single_paths or path.partition(".")[0] in self._indexed:
            return True
        if not is_operators(operand) or operand.keys() <= _NEVER_EMPTY:
            return False
        return not (len(operand) == 1 and next(iter(operand)) in ("$in", "$all") and next(iter(operand.values())))

    def _field(self, path: str, operand: Any, elements_of: Sequence[Steps] | None) -> Condition:
        operators = operand if is_operators(operand) else {"$regex" if isinstance(operand, Regex) else "$eq": operand}
        if elements_of is None and path == "_id":
            pinned = _pinned_id(operators, self._is_collated)
            if pinned is not None:
                return pinned
        if len(split(path)) > 4:
            return ALL
        return self._operators(self._places(path, elements_of), operators)

    def _places(self, path: str, elements_of: Sequence[Steps] | None) -> _Places:
        if elements_of is not None:
            steps = [each for start in elements_of for each in _variants(split(path), start)]
            return _Places((), tuple(steps[:_VARIANTS_MAX]) if len(steps) <= _VARIANTS_MAX else ())
        members = _members(path)
        if path in self._single_paths:
            return _Places((members,), ())
        return _Places((members,), tuple([each for each in _variants(members) if each != members]))

    def _operators(self, places: _Places, operators: Document) -> Condition:
        if not places.plain and not places.through_arrays:
            return ALL
        # Without an array all operators test one value; through arrays different elements may meet them.
        sides = [self._of_one_value(places.plain, operators)] if places.plain else []
        if places.through_arrays:
            parts = [self._at(places.through_arrays, name, operand, operators) for name, operand in operators.items()]
            sides.append(both(parts))
        return either(sides)

    def _of_one_value(self, places: Sequence[Steps], operators: Document) -> Condition:
        bounds = {name: operand for name, operand in operators.items() if name in _ORDERS}
        parts = [
            self._at(places, name, operand, operators) for name, operand in operators.items() if name not in bounds
        ]
        if bounds:
            parts.append(self._ordered(places, bounds))
        return both(parts)

    def _at(self, places: Sequence[Steps], name: str, operand: Any, beside: Document) -> Condition:
        match name:
            case "$eq":
                return self._equal(places, operand)
            case "$in":
                return either([self._in(places, operand)])
            case "$gt" | "$gte" | "$lt" | "$lte":
                return self._ordered(places, {name: operand})
            case "$all":
                return both([self._all(places, each) for each in operand[:_ALL_MAX]]) if operand else NOTHING
            case "$elemMatch":
                return self._element(places, operand)
            case "$regex":
                return self._regex(places, operand, beside.get("$options", ""))
            case "$exists" if truth(operand):
                return _any_of(places, Defined)
            case "$size" | "$mod" | "$bitsAllSet" | "$bitsAnySet" | "$bitsAllClear" | "$bitsAnyClear":
                return _any_of(places, Defined)
        return ALL

    def _equal(self, places: Sequence[Steps], value: Any) -> Condition:
        if value is None or (self._is_collated and isinstance(value, (str, dict, list))):
            return ALL
        return either([_equal_at(steps, value) for steps in places])

    def _in(self, places: Sequence[Steps], values: list[Any]) -> Condition:
        if len(values) > limits.MONGO_KEYED_VALUES_MAX:
            return ALL
        texts = [each for each in values if type(each) is str]
        parts: list[Condition] = []
        if texts:
            if self._is_collated:
                return ALL
            parts += [In(path_text(steps), tuple(texts)) for steps in places]
        for each in values:
            if isinstance(each, Regex):
                parts.append(self._regex(places, each, ""))
            elif type(each) is not str:
                parts.append(self._equal(places, each))
        return either(parts)

    def _all(self, places: Sequence[Steps], operand: Any) -> Condition:
        if is_operators(operand):
            return self._element(places, operand["$elemMatch"])
        return self._regex(places, operand, "") if isinstance(operand, Regex) else self._equal(places, operand)

    def _ordered(self, places: Sequence[Steps], bounds: dict[str, Any]) -> Condition:
        """The condition of order operators on one value."""
        kinds = {_order_kind(value) for value in bounds.values()}
        if None in kinds or (self._is_collated and "text" in kinds):
            return ALL
        if len(kinds) > 1:
            return NOTHING  # the bounds are of different types, which no value meets
        (kind,) = kinds
        return either([_between(steps, str(kind), bounds) for steps in places])

    def _element(self, places: Sequence[Steps], operand: Any) -> Condition:
        arrays = [steps for steps in places if steps and steps[-1] is not _ELEMENT]
        elements = [(*steps, _ELEMENT) for steps in arrays]
        if isinstance(operand, DBRef):
            return ALL
        if not elements:
            # Only arrays inside arrays remain; they are too rare to search for.
            return _any_of(places, Defined)
        if is_operators(operand) and next(iter(operand)) not in ("$and", "$or", "$nor", "$expr"):
            return self._of_one_value(elements, operand)
        return self.query(operand, elements)

    def _regex(self, places: Sequence[Steps], operand: Any, options: str) -> Condition:
        prefix = prefix_of(operand, options)
        parts: list[Condition] = []
        for steps in places:
            parts.append(prefix_range(path_text(steps), prefix))
            parts.append(Defined(path_text((*steps, "$regularExpression"))))
        return either(parts)


def prefix_of(operand: Any, options: str) -> str:
    """The prefix of all strings that match a regular expression."""
    if isinstance(operand, Regex):
        options = options or regex_options(operand)
        operand = operand.pattern if isinstance(operand.pattern, str) else operand.pattern.decode()
    return literal_prefix(operand, options)


def _any_of(places: Iterable[Steps], make: Any) -> Condition:
    return either([make(path_text(steps)) for steps in places])


def _equal_at(steps: Steps, value: Any) -> Condition:
    spend(60)
    path = path_text(steps)
    kind = type(value)
    if kind is str or kind is bool:
        return Equal(path, value)
    if is_number(value):
        return _equal_number(steps, value)
    if kind is ObjectId:
        return Equal(path_text((*steps, "$oid")), str(value))
    if kind is DatetimeMS:
        return Equal(path_text((*steps, "$date", "$numberLong")), str(int(value)))
    return Defined(path)


def _equal_number(steps: Steps, value: Any) -> Condition:
    """A number may be indexed as a JSON number, as a large whole number, or as a decimal, where equal values have many
    texts.
    """
    number = value.to_decimal() if type(value) is Decimal128 else value
    decimals = Defined(path_text((*steps, "$numberDecimal")))
    if is_nan(value) or not math.isfinite(number):
        return either([decimals, Defined(path_text((*steps, "$numberDouble")))])
    parts: list[Condition] = [decimals, Equal(path_text(steps), _json_number(number))]
    if EXACT_INT_MAX < abs(number) <= INT64_MAX + 1 and number == int(number):
        parts.append(Equal(path_text((*steps, "$numberLong")), str(int(number))))
    return either(parts)


def _json_number(number: Any) -> Value:
    if isinstance(number, (int, Int64)) and abs(number) <= EXACT_INT_MAX:
        return int(number)
    double = float(number)
    return int(double) if double.is_integer() and abs(double) <= EXACT_INT_MAX else double


def _order_kind(value: Any) -> str | None:
    """How values of this type bracket are indexed; None for values that compare with other types or with missing."""
    if value is None or isinstance(value, (MinKey, MaxKey)):
        return None
    if is_number(value):
        return "number"
    if isinstance(value, bytes):
        return "binary"  # with or without a subtype
    return _ORDER_KINDS.get(type(value), type(value).__name__)


def _between(steps: Steps, kind: str, bounds: dict[str, Any]) -> Condition:
    path = path_text(steps)
    match kind:
        case "text":
            return _range(path, bounds)
        case "truth":
            return In(path, (False, True))
        case "id":
            return _range(path_text((*steps, "$oid")), {name: str(value) for name, value in bounds.items()})
        case "date":
            # Their texts do not sort by time.
            return Defined(path_text((*steps, "$date", "$numberLong")))
        case "number":
            tagged = [Defined(path_text((*steps, tag))) for tag in ("$numberDecimal", "$numberLong", "$numberDouble")]
            return either([_range_of_numbers(path, bounds), *tagged])
    return Defined(path)


def _range_of_numbers(path: str, bounds: dict[str, Any]) -> Range:
    doubles: dict[str, Value] = {}
    for name, value in bounds.items():
        number = value.to_decimal() if type(value) is Decimal128 else value
        if is_nan(value):
            continue
        double = float(number)
        # A bound that was rounded to a double is included, because it may have moved past a value.
        doubles[name if double == number else name[:3] + "e"] = double
    return _range(path, doubles) if doubles else Range(path, -math.inf, UNDEFINED)


def _range(path: str, bounds: Mapping[str, Value]) -> Range:
    """The range of bounds of one type. Of several lower or upper bounds the last is used; the others are left to the
    matcher.
    """
    low: Value = UNDEFINED
    high: Value = UNDEFINED
    includes_low = includes_high = True
    for name, value in bounds.items():
        if name in ("$gt", "$gte"):
            low, includes_low = value, name == "$gte"
        else:
            high, includes_high = value, name == "$lte"
    return Range(path, low, high, includes_low, includes_high)


# Values that a filter pins.


def _pinned_id(operators: Document, is_collated: bool) -> Condition | None:
    values = _pinned(operators)
    if values is None or (is_collated and any(isinstance(value, (str, dict)) for value in values)):
        return None
    if len(values) > limits.MONGO_KEYED_VALUES_MAX:
        return None
    texts = tuple(dict.fromkeys([id_text(value) for value in paced(values, 20)]))
    return Equal("/id", texts[0]) if len(texts) == 1 else In("/id", texts) if texts else NOTHING


def _pinned(operators: Document) -> list[Any] | None:
    """The values of which a field must equal one; None if the filter does not fix it."""
    if "$eq" in operators:
        return [operators["$eq"]]
    values = operators.get("$in")
    if values is None or any(isinstance(each, Regex) for each in values):
        return None
    found: dict[Key, Any] = {}
    for portion in portions(values, 2):
        found.update(zip(list_keys(portion, order_key), portion, strict=True))
    return list(found.values())


def pinned_fields(given: Document, fields: Sequence[str]) -> list[tuple[Any, ...]] | None:
    """The combinations of values that a filter allows for fields which never lead through an array: a shard key and
    perhaps `_id`. None if one of the fields is not fixed; empty if nothing can match. Strings are compared by their
    bytes, so it does not apply to filters with a collation.
    """
    found = _pins(given, frozenset(fields))
    choices: list[list[Any]] = []
    for each in fields:
        values = found.get(each)
        if values is None:
            return None
        choices.append(values)
    if math.prod([len(values) for values in choices]) > _PINS_MAX:
        return None
    return list(product(*choices))


def _pins(given: Document, fields: frozenset[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, operand in given.items():
        if name == "$and" or (name == "$or" and len(operand) == 1):
            for each in operand:
                for path, values in _pins(each, fields).items():
                    _narrow(found, path, values)
        elif name in fields and not isinstance(operand, Regex):
            pinned = _pinned(operand) if is_operators(operand) else [operand]
            if pinned is not None:
                _narrow(found, name, pinned)
    return found


def _narrow(found: dict[str, list[Any]], path: str, values: list[Any]) -> None:
    if path in found:
        allowed = {order_key(each) for each in values}
        values = [each for each in found[path] if order_key(each) in allowed]
    found[path] = values
