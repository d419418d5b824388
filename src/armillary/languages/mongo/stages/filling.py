"""`$densify` adds documents in the gaps of a sequence; `$fill` sets missing and null fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from bson.datetime_ms import DatetimeMS

from armillary import limits, work
from armillary.languages.mongo.errors import FAILED_TO_PARSE, TYPE_MISMATCH, refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.expressions.calendar import UTC_ZONE, plus_units
from armillary.languages.mongo.expressions.compiling import check_path, compile_expression, value_at
from armillary.languages.mongo.expressions.dates import unit_of
from armillary.languages.mongo.expressions.numbers import RANKS, as_double, is_nullish, sum_in_order
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.paths import with_value
from armillary.languages.mongo.stages.shaping import setter
from armillary.languages.mongo.stages.stage import Batch, Opened, Stage, Waiting, batches_of, each
from armillary.languages.mongo.stages.windows import set_window_fields
from armillary.model.bson.bson_values import Document, shell_text, type_name
from armillary.work import sorted_values

# $densify.


def _fields(name: str, spec: Any, known: Iterable[str], required: Iterable[str]) -> Document:
    if type(spec) is not dict:
        raise refusal(FAILED_TO_PARSE, f"The {name} stage specification must be an object")
    for field in spec:
        if field not in known:
            raise refusal(40415, f"BSON field '{name}.{field}' is an unknown field.")
    for field in required:
        if field not in spec:
            raise refusal(40414, f"BSON field '{name}.{field}' is missing but a required field")
    return spec


class Steps:
    """The step of `$densify`, in numbers or in units of time."""

    def __init__(self, step: Any, unit: str | None) -> None:
        self._step, self._unit = step, unit

    def after(self, value: Any) -> Any:
        if self._unit is None:
            return sum_in_order((value, self._step))
        return DatetimeMS(plus_units(int(value), self._unit, self._step, UTC_ZONE))

    def check(self, value: Any) -> None:
        if type(value) not in RANKS and type(value) is not DatetimeMS:
            raise refusal(5733201, f"$densify field must be numeric or a date, but found {type_name(value)}")
        if (self._unit is None) == (type(value) is DatetimeMS):
            raise refusal(
                6053600, f"$densify field must be a date with a unit and numeric without, but is {type_name(value)}"
            )


def densify(name: str, spec: Any, context: Context) -> Stage:
    known = {"field": str, "partitionByFields": list, "range": dict}
    if type(spec) is dict:
        _check_types(name, spec, known)
    given = _fields(name, spec, known, ("field", "range"))
    partitions = given.get("partitionByFields", [])
    for place, one in enumerate(partitions):
        _check_types(f"{name}.partitionByFields", {str(place): one}, {str(place): str})
    rule = given["range"]
    if "unit" in rule:
        _check_types(f"{name}.range", rule, {"unit": str})
    _fields("$densify.range", rule, ("step", "unit", "bounds"), ("step", "bounds"))
    step, unit = _step(name, rule)
    bounds = _bounds(rule["bounds"], step, unit, context)
    path = check_path(given["field"])
    for one in partitions:
        if one == given["field"] or one.startswith(f"{given['field']}."):
            raise refusal(8993000, "BSON field '$densify.partitionByFields' contains the field that is densified")
        if given["field"].startswith(f"{one}."):
            raise refusal(9554500, "The field that is densified contains the BSON field '$densify.partitionByFields'")
    if bounds == "partition" and not partitions:
        raise refusal(
            5733408,
            "one may not specify the bounds as 'partition' without specifying a non-empty array of partitionByFields",
        )
    paths = [check_path(one) for one in partitions]
    steps = Steps(step, unit)
    return Opened(lambda run: _Densifying(path, paths, steps, bounds, context))


def _check_types(name: str, given: Document, types: Mapping[str, type]) -> None:
    for field, value in given.items():
        if field in types and type(value) is not types[field]:
            raise refusal(TYPE_MISMATCH, f"BSON field '{name}.{field}' is the wrong type '{type_name(value)}'")


def _step(name: str, rule: Document) -> tuple[Any, str | None]:
    step = rule["step"]
    if type(step) not in RANKS:
        raise refusal(TYPE_MISMATCH, f"BSON field '$densify.range.step' is the wrong type '{type_name(step)}'")
    if not as_double(step) > 0:
        raise refusal(5733401, "The step parameter in a range statement must be a strictly positive numeric value")
    if "unit" not in rule:
        return step, None
    number = whole_number(step)
    if number is None:
        raise refusal(
            6586400, "The step parameter in a range statement must be a whole number when densifying a date range"
        )
    return number, unit_of(name, rule["unit"], TYPE_MISMATCH)


def _bounds(bounds: Any, step: Any, unit: str | None, context: Context) -> Any:
    if type(bounds) is str:
        if bounds not in ("full", "partition"):
            raise refusal(5946802, "Bounds string must either be 'full' or 'partition'")
        return bounds
    if type(bounds) is not list:
        raise refusal(
            5733404,
            "The bounds in a range statement must be the string 'full', 'partition', or an ascending array of two "
            "numbers or two dates",
        )
    if len(bounds) != 2:
        raise refusal(5733403, "A bounding array in a range statement must have exactly two elements")
    first, last = bounds
    if context.key(first) > context.key(last):
        raise refusal(5733402, "A bounding array must be an ascending array of either two dates or two numbers")
    if type(first) in RANKS:
        if unit is not None:
            raise refusal(5733409, "Numeric bounds may not have unit parameter")
        if type(last) not in RANKS:
            raise refusal(5733406, "A bounding array must contain either both dates or both numeric types")
        if not type(first) is type(last) is type(step):
            raise refusal(5876900, "Upper bound, lower bound, and step must all have the same type")
    elif type(first) is not DatetimeMS:
        raise refusal(5946800, "Explicit bounds must be numeric or dates")
    elif type(last) is not DatetimeMS:
        raise refusal(5733405, "A bounding array must contain either both dates or both numeric types")
    elif unit is None:
        raise refusal(5733410, "A bounding array of dates must specify a unit")
    return bounds


class _Densifying(Waiting):
    def __init__(
        self, path: list[str], partitions: list[list[str]], steps: Steps, bounds: Any, context: Context
    ) -> None:
        self._path, self._partitions, self._steps, self._bounds = path, partitions, steps, bounds
        self._key: Callable[[Any], Any] = context.key
        self._budget = Budget("$densify")
        self._lacking: list[Document] = []
        # partition key, comparison key of the value, value, document
        self._entries: list[tuple[Any, Any, Any, Document]] = []
        self._left = limits.MONGO_DENSIFIED_MAX

    def keep(self, batch: Batch) -> None:
        for document in batch:
            work.spend(20)
            self._budget.take_document(document)
            value = value_at(document, self._path)
            if is_nullish(value):
                self._lacking.append(document)
                continue
            self._steps.check(value)
            partition = tuple([self._key(value_at(document, parts)) for parts in self._partitions])
            self._entries.append((partition, self._key(value), value, document))

    def finish(self) -> Iterable[Batch]:
        return batches_of(self._made())

    def _made(self) -> Iterator[Document]:
        yield from self._lacking
        entries = sorted_values(self._entries, lambda entry: (entry[0], entry[1]))
        whole: tuple[Any, Any] | None = None
        if self._bounds == "full" and entries:
            whole = tuple([choose(entries, key=lambda entry: entry[1])[2] for choose in (min, max)])
        if not entries and type(self._bounds) is list and not self._partitions:
            yield from self._filled([], self._bounds[0], self._bounds[1], {}, includes_last=False)
        for _, group in groupby(entries, key=lambda entry: entry[0]):
            members = list(group)
            pattern: Document = {}
            for parts in self._partitions:
                pattern = with_value(pattern, parts, value_at(members[0][3], parts))
            if type(self._bounds) is list:
                yield from self._filled(members, self._bounds[0], self._bounds[1], pattern, includes_last=False)
            else:
                first, last = whole or (members[0][2], members[-1][2])
                yield from self._filled(members, first, last, pattern, includes_last=True)

    def _filled(
        self,
        members: list[tuple[Any, Any, Any, Document]],
        first: Any,
        last: Any,
        pattern: Document,
        *,
        includes_last: bool,
    ) -> Iterator[Document]:
        """The documents of a partition, with a new document for every step at which there is none."""
        end = self._key(last)
        place = 0
        value = first
        while True:
            work.spend(40)
            key = self._key(value)
            if key > end or (key == end and not includes_last):
                break
            while place < len(members) and members[place][1] < key:
                yield members[place][3]
                place += 1
            if place == len(members) or members[place][1] != key:
                self._left -= 1
                if self._left < 0:
                    raise refusal(
                        5897900,
                        f"Generated {limits.MONGO_DENSIFIED_MAX} documents in $densify, which is over the limit",
                    )
                yield with_value(pattern, self._path, value)
            else:
                value = members[place][2]  # generated values continue with its type
            value = self._steps.after(value)
        for _, _, _, document in members[place:]:
            yield document


# $fill.

_METHODS: Final = {"linear": "$linearFill", "locf": "$locf"}


def fill(name: str, spec: Any, context: Context) -> list[Stage]:
    given = _fields(name, spec, ("partitionBy", "partitionByFields", "sortBy", "output"), ("output",))
    outputs = given["output"]
    if type(outputs) is not dict:
        raise refusal(TYPE_MISMATCH, f"BSON field '$fill.output' is the wrong type '{type_name(outputs)}'")
    if not outputs:
        raise refusal(6050203, "The output field in '$fill' must contain an object with at least one element")
    if "partitionBy" in given and "partitionByFields" in given:
        raise refusal(6050204, "Maximum one of 'partitionBy' and 'partitionByFields can be specified in '$fill'")
    windows: Document = {}
    values: list[tuple[list[str], Any]] = []
    for field, rule in outputs.items():
        if type(rule) is not dict:
            raise refusal(6050200, f"Each fill output must be an object, not {shell_text(rule)}")
        for each_name in rule:
            if each_name not in ("value", "method"):
                raise refusal(40415, f"BSON field '$fill.output.{field}.{each_name}' is an unknown field.")
        if len(rule) != 1:
            raise refusal(6050201, f"Each fill output has one of 'value' and 'method', not {shell_text(rule)}")
        if "value" in rule:
            values.append((check_path(field), compile_expression({"$ifNull": [f"${field}", rule["value"]]}, context)))
        elif rule["method"] not in _METHODS:
            raise refusal(6050202, f"Method must be either locf or linear, not {shell_text(rule['method'])}")
        else:
            windows[field] = {_METHODS[rule["method"]]: f"${field}"}
    stages: list[Stage] = []
    window: Document = {"output": windows}
    if "sortBy" in given:
        window["sortBy"] = given["sortBy"]
    partition = _partition(given)
    if partition is not None:
        window["partitionBy"] = partition
    if not windows:
        set_window_fields("$setWindowFields", window, context)  # only checks the order and the partition
    else:
        stages.append(set_window_fields("$setWindowFields", window, context))
    if values:
        stages.append(each(setter(values, context)))
    return stages


def _partition(given: Document) -> Any:
    if "partitionByFields" not in given:
        return given.get("partitionBy")
    fields = given["partitionByFields"]
    if type(fields) is not list or not all(type(one) is str for one in fields):
        raise refusal(TYPE_MISMATCH, "$fill's 'partitionByFields' must be an array of strings")
    for field in fields:
        check_path(field)
    return {str(place): f"${field}" for place, field in enumerate(fields)}
