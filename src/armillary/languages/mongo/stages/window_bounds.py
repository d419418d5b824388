"""The bounds of windows in `$setWindowFields`: a number of documents before and after each one, or a range of the sort
value in numbers or units of time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from bson.datetime_ms import DatetimeMS

from armillary import work
from armillary.languages.mongo.errors import FAILED_TO_PARSE, refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.expressions.calendar import UTC_ZONE, plus_units
from armillary.languages.mongo.expressions.compiling import Constant, compile_expression
from armillary.languages.mongo.expressions.dates import unit_of
from armillary.languages.mongo.expressions.numbers import RANKS, total
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.model.bson.bson_values import order_key, shell_text, type_name

Span = tuple[int, int]  # start and end index; the end is not included
_NAMED: Final = ("unbounded", "current")


@dataclass(frozen=True, slots=True)
class Window:
    kind: str = "documents"  # or "range"
    lower: Any = "unbounded"
    upper: Any = "unbounded"
    unit: str | None = None

    @property
    def is_whole(self) -> bool:
        return bool(self.lower == self.upper == "unbounded")

    @property
    def only_grows(self) -> bool:
        """Whether each document's window contains the window of the document before it."""
        return bool(self.lower == "unbounded")

    def spans(self, count: int, sort_values: Callable[[], list[Any]]) -> list[Span]:
        if self.kind == "range":
            values = sort_values()
            self._check(values)
            return [(0, count)] * count if self.is_whole else self._within(values)
        if self.is_whole:
            return [(0, count)] * count
        return [self._around(place, count) for place in range(count)]

    def _around(self, place: int, count: int) -> Span:
        first = 0 if self.lower == "unbounded" else place + (0 if self.lower == "current" else self.lower)
        last = count if self.upper == "unbounded" else place + 1 + (0 if self.upper == "current" else self.upper)
        first, last = max(0, min(first, count)), max(0, min(last, count))
        return first, max(first, last)

    def _check(self, values: list[Any]) -> None:
        for value in values:
            if self.unit is None and type(value) not in RANKS:
                raise refusal(
                    5429414, f"Invalid range: Expected the sortBy field to be a number, but it was {type_name(value)}"
                )
            if self.unit is not None and type(value) is not DatetimeMS:
                raise refusal(
                    5429513, f"Invalid range: Expected the sortBy field to be a Date, but it was {type_name(value)}"
                )

    def _within(self, values: list[Any]) -> list[Span]:
        keys = [order_key(value) for value in values]
        spans = []
        for place, value in enumerate(values):
            work.spend(20)
            # In a range "current" is the document itself; 0 also includes documents with an equal sort value.
            match self.lower:
                case "unbounded":
                    first = 0
                case "current":
                    first = place
                case _:
                    first = bisect_left(keys, order_key(self._moved(value, self.lower)))
            match self.upper:
                case "unbounded":
                    last = len(keys)
                case "current":
                    last = place + 1
                case _:
                    last = bisect_right(keys, order_key(self._moved(value, self.upper)))
            spans.append((first, max(first, last)))
        return spans

    def _moved(self, value: Any, distance: Any) -> Any:
        if self.unit is None:
            return total([value, distance])
        return DatetimeMS(plus_units(int(value), self.unit, distance, UTC_ZONE))


def read_window(name: str, given: Any, has_order: bool, is_ascending: bool, context: Context) -> Window:
    if type(given) is not dict:
        raise refusal(FAILED_TO_PARSE, "'window' field must be an object")
    for each in given:
        if each not in ("documents", "range", "unit"):
            raise refusal(FAILED_TO_PARSE, f"'window' has no field '{each}'")
    kinds = [each for each in ("documents", "range") if each in given]
    if not given:
        return Window()
    if len(kinds) != 1:
        raise refusal(
            FAILED_TO_PARSE, "'window' field must specify one of 'documents' or 'range', and 'unit' with 'range' only"
        )
    kind = kinds[0]
    if kind == "documents" and "unit" in given:
        raise refusal(FAILED_TO_PARSE, "Window bounds can only specify 'unit' with range-based bounds.")
    bounds = given[kind]
    if type(bounds) is not list or len(bounds) != 2:
        raise refusal(FAILED_TO_PARSE, "Window bounds must be a 2-element array: " + shell_text(bounds))
    unit = unit_of(name, given["unit"]) if "unit" in given else None
    what = "document-based" if kind == "documents" else "range-based" if unit is not None else ""
    lower, upper = [_bound(each, what, context) for each in bounds]
    window = Window(kind, lower, upper, unit)
    if not window.is_whole and not has_order:
        raise refusal(5339901, f"{kind.capitalize()}-based bounds require a sortBy")
    if kind == "range" and not is_ascending:
        raise refusal(5339902, "Range-based bounds require sortBy a single field, in ascending order")
    _check_order(lower, upper)
    return window


def _bound(value: Any, what: str, context: Context) -> Any:
    """Reads one bound. `what` names it in the error for a bound that must be a whole number."""
    if type(value) is dict:
        expression = compile_expression(value, context)
        value = expression.value if isinstance(expression, Constant) and type(expression.value) in RANKS else None
    if type(value) is str:
        if value in _NAMED:
            return value
        raise refusal(FAILED_TO_PARSE, f"Window bounds must be 'unbounded', 'current', or a number, not '{value}'")
    if type(value) not in RANKS:
        raise refusal(FAILED_TO_PARSE, "Window bounds must be 'unbounded', 'current', or a number.")
    number = whole_number(value)
    if number is None and what:
        raise refusal(FAILED_TO_PARSE, f"Numeric {what} bounds must be an integer")
    return number if what else value


def _check_order(lower: Any, upper: Any) -> None:
    if "unbounded" in (lower, upper):
        return
    first, last = [0 if each == "current" else each for each in (lower, upper)]
    if order_key(first) > order_key(last):
        raise refusal(5339900, f"Lower bound must not exceed upper bound: [{shell_text(lower)}, {shell_text(upper)}]")
