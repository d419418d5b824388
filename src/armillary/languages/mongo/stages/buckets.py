"""`$bucket`, groups between given boundaries, and `$bucketAuto`, documents in order of a value divided into buckets of
about the same size, with boundaries from a series of preferred numbers if one is asked for.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

from bson.decimal128 import Decimal128

from armillary import work
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import CURRENT, ROOT, Context, Expression, Scope
from armillary.languages.mongo.expressions.accumulator_operators import Aggregate
from armillary.languages.mongo.expressions.compiling import Constant, compile_expression
from armillary.languages.mongo.expressions.numbers import RANKS, as_double, as_int32
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.stages.grouping import COUNT, Grouping, check_group_by, compile_outputs
from armillary.languages.mongo.stages.stage import (
    Batch,
    Opened,
    Stage,
    Waiting,
    batches_of,
)
from armillary.model.bson.bson_values import MISSING, Document, shell_text, type_class, type_name
from armillary.work import sorted_values

_SERIES: Final[dict[str, tuple[float, ...]]] = {
    "R5": (10, 16, 25, 40, 63),
    "R10": (100, 125, 160, 200, 250, 315, 400, 500, 630, 800),
    "R20": (100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800, 900),
    "R40": (
        100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212, 224, 236, 250, 265, 280, 300, 315, 335,
        355, 375, 400, 425, 450, 475, 500, 530, 560, 600, 630, 670, 710, 750, 800, 850, 900, 950,
    ),
    "R80": (
        103, 109, 115, 122, 128, 136, 145, 155, 165, 175, 185, 195, 206, 218, 230, 243, 258, 272, 290, 307, 325, 345,
        365, 387, 412, 437, 462, 487, 515, 545, 575, 615, 650, 690, 730, 775, 825, 875, 925, 975,
    ),
    "1-2-5": (10, 20, 50),
    "E6": (10, 15, 22, 33, 47, 68),
    "E12": (10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82),
    "E24": (
        10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91,
    ),
    "E48": (
        100, 105, 110, 115, 121, 127, 133, 140, 147, 154, 162, 169, 178, 187, 196, 205, 215, 226, 237, 249, 261, 274,
        287, 301, 316, 332, 348, 365, 383, 402, 422, 442, 464, 487, 511, 536, 562, 590, 619, 649, 681, 715, 750, 787,
        825, 866, 909, 953,
    ),
    "E96": (
        100, 102, 105, 107, 110, 113, 115, 118, 121, 124, 127, 130, 133, 137, 140, 143, 147, 150, 154, 158, 162, 165,
        169, 174, 178, 182, 187, 191, 196, 200, 205, 210, 215, 221, 226, 232, 237, 243, 249, 255, 261, 267, 274, 280,
        287, 294, 301, 309, 316, 324, 332, 340, 348, 357, 365, 374, 383, 392, 402, 412, 422, 432, 442, 453, 464, 475,
        487, 499, 511, 523, 536, 549, 562, 576, 590, 604, 619, 634, 649, 665, 681, 698, 715, 732, 750, 768, 787, 806,
        825, 845, 866, 887, 909, 931, 953, 976,
    ),
    "E192": (
        100, 101, 102, 104, 105, 106, 107, 109, 110, 111, 113, 114, 115, 117, 118, 120, 121, 123, 124, 126, 127, 129,
        130, 132, 133, 135, 137, 138, 140, 142, 143, 145, 147, 149, 150, 152, 154, 156, 158, 160, 162, 164, 165, 167,
        169, 172, 174, 176, 178, 180, 182, 184, 187, 189, 191, 193, 196, 198, 200, 203, 205, 208, 210, 213, 215, 218,
        221, 223, 226, 229, 232, 234, 237, 240, 243, 246, 249, 252, 255, 258, 261, 264, 267, 271, 274, 277, 280, 284,
        287, 291, 294, 298, 301, 305, 309, 312, 316, 320, 324, 328, 332, 336, 340, 344, 348, 352, 357, 361, 365, 370,
        374, 379, 383, 388, 392, 397, 402, 407, 412, 417, 422, 427, 432, 437, 442, 448, 453, 459, 464, 470, 475, 481,
        487, 493, 499, 505, 511, 517, 523, 530, 536, 542, 549, 556, 562, 569, 576, 583, 590, 597, 604, 612, 619, 626,
        634, 642, 649, 657, 665, 673, 681, 690, 698, 706, 715, 723, 732, 741, 750, 759, 768, 777, 787, 796, 806, 816,
        825, 835, 845, 856, 866, 876, 887, 898, 909, 920, 931, 942, 953, 965, 976, 988,
    ),
}  # fmt: skip


_LEAST: Final = 5e-324


class Granularity:
    """Boundaries from a series of preferred numbers: the next one above a number and the last one below it."""

    def __init__(self, name: str) -> None:
        self._powers = name == "POWERSOF2"
        self._series = _SERIES.get(name, ())
        if not self._powers and not self._series:
            raise refusal(40257, f"Unknown rounding granularity '{name}'")

    def above(self, number: float) -> float:
        if number == 0 or math.isinf(number):
            return number
        if self._powers:
            return 2.0 ** (math.floor(math.log2(number)) + 1)
        scale = self._scale(number)
        for each in (*self._series, self._series[0] * 10):
            if each * scale > number:
                return each * scale
        return self._series[0] * 100 * scale

    def below(self, number: float) -> float:
        if number == 0 or math.isinf(number):
            return number
        if self._powers:
            return 2.0 ** (math.ceil(math.log2(number)) - 1)
        scale = self._scale(number)
        for each in (*reversed(self._series), self._series[-1] / 10):
            if each * scale < number:
                return each * scale
        return self._series[0] / 10 * scale

    def _scale(self, number: float) -> float:
        """The power of ten that scales a number to the range of the series."""
        # In two steps, because the quotient of the smallest doubles would be 0.
        scale = 10.0 ** math.floor(math.log10(number) - math.log10(self._series[0])) or _LEAST
        while self._series[0] * scale > number and scale > _LEAST:
            scale /= 10
        while self._series[0] * 10 * scale <= number:
            scale *= 10
        return scale


def _check_options(
    name: str, spec: Document, known: tuple[str, str, str, str], unknown_code: int, missing_code: int
) -> None:
    """The first two known options are required."""
    for each in spec:
        if each not in known:
            raise refusal(unknown_code, f"Unrecognized option to {name}: {each}.")
    if known[0] not in spec or known[1] not in spec:
        raise refusal(missing_code, f"{name} requires '{known[0]}' and '{known[1]}' to be specified.")


def bucket_auto(name: str, spec: Any, context: Context) -> Stage:
    if type(spec) is not dict:
        raise refusal(40240, f"The argument to $bucketAuto must be an object, but found type: {type_name(spec)}.")
    _check_options(name, spec, ("groupBy", "buckets", "output", "granularity"), 40245, 40246)
    check_group_by(spec["groupBy"], 40239, "The $bucketAuto 'groupBy' field")
    given = spec["buckets"]
    if type(given) not in RANKS:
        raise refusal(
            40241, f"The $bucketAuto 'buckets' field must be a numeric value, but found type: {type_name(given)}"
        )
    count = as_int32(given)
    if count is None:
        raise refusal(
            40242, f"The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but found {given}"
        )
    if count <= 0:
        raise refusal(40243, f"The $bucketAuto 'buckets' field must be greater than 0, but found: {count}")
    outputs = spec.get("output", COUNT)
    if type(outputs) is not dict:
        raise refusal(40244, f"The $bucketAuto 'output' field must be an object, but found type: {type_name(outputs)}")
    series = None
    if "granularity" in spec:
        if type(spec["granularity"]) is not str:
            raise refusal(40261, "The $bucketAuto 'granularity' field must be a string")
        series = Granularity(spec["granularity"])
    value_of = compile_expression(spec["groupBy"], context)
    compiled = compile_outputs(name, outputs, context)
    return Opened(lambda run: _Dividing(value_of, count, compiled, series, context))


class _Dividing(Waiting):
    def __init__(
        self,
        value_of: Expression,
        count: int,
        outputs: list[tuple[str, Aggregate]],
        series: Granularity | None,
        context: Context,
    ) -> None:
        self._value_of, self._count, self._outputs, self._series = value_of, count, outputs, series
        self._key: Callable[[Any], Any] = context.key
        self._scope = context.scope({})
        self._budget = Budget("$bucketAuto")
        self._entries: list[tuple[Any, Any, Document]] = []  # key, value, document

    def keep(self, batch: Batch) -> None:
        scope = self._scope
        for document in batch:
            work.spend(20)
            scope[CURRENT] = scope[ROOT] = document
            value = self._value_of(scope)
            value = None if value is MISSING else value
            if self._series is not None:
                self._check_number(value)
            self._budget.take_document(document)
            self._entries.append((self._key(value), value, document))

    @staticmethod
    def _check_number(value: Any) -> None:
        if type(value) not in RANKS:
            raise refusal(
                40258,
                "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a value with type: "
                + type_name(value),
            )
        number = as_double(value)
        if math.isnan(number):
            raise refusal(
                40259, "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a NaN"
            )
        if number < 0:
            raise refusal(
                40260,
                "$bucketAuto can specify a 'granularity' with non-negative numbers only, but found "
                + shell_text(value),
            )

    def finish(self) -> Iterable[Batch]:
        return batches_of(self._buckets())

    def _buckets(self) -> Iterator[Document]:
        entries = sorted_values(self._entries, lambda entry: entry[0])
        size = max(1, math.floor(len(entries) / self._count + 0.5))
        first, made = 0, 0
        lower: Any = None
        while first < len(entries):
            made += 1
            last = len(entries) if made == self._count and self._series is None else min(first + size, len(entries))
            if self._series is None:
                while last < len(entries) and entries[last][0] == entries[last - 1][0]:
                    last += 1
                lower = entries[first][1]
                upper = entries[last][1] if last < len(entries) else entries[-1][1]
            else:
                if made == 1:
                    lower = self._bound(entries[first][1], self._series.below)
                if made == self._count:
                    last = len(entries)
                upper = self._bound(entries[last - 1][1], self._series.above)
                limit = self._key(upper)
                while last < len(entries) and entries[last][0] < limit:
                    last += 1
            yield self._bucket(lower, upper, [document for _, _, document in entries[first:last]])
            first, lower = last, upper

    @staticmethod
    def _bound(value: Any, rounded: Callable[[float], float]) -> Any:
        number = rounded(as_double(value))
        return Decimal128(repr(number)) if type(value) is Decimal128 else number

    def _bucket(self, lower: Any, upper: Any, documents: list[Document]) -> Document:
        scope = self._scope
        bounds = {"min": lower, "max": upper}
        scope[CURRENT] = scope[ROOT] = bounds
        states = [aggregate.begin(scope, self._budget) for _, aggregate in self._outputs]
        for document in documents:
            work.spend(10 + 10 * len(states))
            scope[CURRENT] = scope[ROOT] = document
            for state, (_, aggregate) in zip(states, self._outputs, strict=True):
                state.add(aggregate.argument(scope))
        made: Document = {"_id": bounds}
        for state, (field, _) in zip(states, self._outputs, strict=True):
            made[field] = state.result()
        return made


# $bucket.


def bucket(name: str, spec: Any, context: Context) -> Stage:
    if type(spec) is not dict:
        raise refusal(40201, f"Argument to $bucket stage must be an object, but found: {shell_text(spec)}")
    _check_options(name, spec, ("groupBy", "boundaries", "default", "output"), 40197, 40198)
    check_group_by(spec["groupBy"], 40202, "The $bucket 'groupBy' field")
    boundaries = _boundaries(spec["boundaries"], context)
    default = _default(spec, boundaries, context)
    outputs = spec.get("output", COUNT)
    if type(outputs) is not dict:
        raise refusal(40196, f"The $bucket 'output' field must be an object, but found: {shell_text(outputs)}")
    compiled = compile_outputs(name, outputs, context)
    keys = [context.key(value) for value in boundaries]
    value_of = compile_expression(spec["groupBy"], context)

    def lower_bound(scope: Scope) -> Any:
        key = context.key(value_of(scope))
        place = bisect_right(keys, key) - 1
        if 0 <= place < len(keys) - 1:
            return boundaries[place]
        if default is None:
            raise refusal(40066, "$switch could not find a matching branch for an input, and no default was specified.")
        return default.value

    def ascending(found: list[Any]) -> list[int]:
        return sorted_values(range(len(found)), lambda place: context.key(found[place]))

    return Opened(lambda run: Grouping(name, lower_bound, compiled, context, ascending))


def _constant(spec: Any, context: Context, code: int, what: str) -> Any:
    expression = compile_expression(spec, context)
    if not isinstance(expression, Constant):
        raise refusal(code, f"{what} must be a constant, but found: {shell_text(spec)}")
    return expression.value


def _boundaries(spec: Any, context: Context) -> list[Any]:
    if type(spec) is not list:
        raise refusal(
            40200, f"The $bucket 'boundaries' field must be an array of values, but found: {shell_text(spec)}"
        )
    if len(spec) < 2:
        raise refusal(40192, "The $bucket 'boundaries' field must have at least 2 values, but found 1 value(s).")
    values = [_constant(each, context, 40191, "The $bucket 'boundaries' field's values") for each in spec]
    for lower, upper in pairwise(values):
        if type_class(lower) != type_class(upper):
            raise refusal(
                40193, "All values in the the 'boundaries' option to $bucket must have the same type. Found conflicting"
            )
        if context.key(lower) >= context.key(upper):
            raise refusal(40194, "The 'boundaries' option to $bucket must be sorted, but elements are not in order")
    return values


def _default(spec: Document, boundaries: list[Any], context: Context) -> Constant | None:
    if "default" not in spec:
        return None
    value = _constant(spec["default"], context, 40195, "The $bucket 'default' field")
    if context.key(boundaries[0]) <= context.key(value) < context.key(boundaries[-1]):
        raise refusal(
            40199,
            "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the highest "
            "boundary.",
        )
    return Constant(value)
