"""Values to other types: asDate(), asBool(), asNumber(); and sums and differences of dates: dateAdd(), dateDiff()."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from armillary import limits
from armillary.languages.gremlin.errors import compilation, execution
from armillary.languages.gremlin.pipeline import Builder, Pipeline, PlainStep, Scope, Step, WaitingStep, builds
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.syntax.instructions import Traversal
from armillary.languages.gremlin.syntax.lexer import integer
from armillary.languages.gremlin.syntax.tokens import DT, GType
from armillary.languages.gremlin.traversers import Batch
from armillary.languages.gremlin.values.comparing import is_number, kind_of, text_of
from armillary.languages.gremlin.values.dates import from_milliseconds, milliseconds, parse_date, plus_units
from armillary.languages.gremlin.values.typed_values import BigInt, Byte, Float32, Long, Short, Uuid


class ConvertStep(PlainStep):
    """Applies a function to each value."""

    def __init__(self, name: str, convert: Callable[[Any], Any]) -> None:
        self.name = name
        self.convert = convert

    def apply(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        return [each.to(self.convert(each.value)) for each in batch]


def _date(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, str) and not isinstance(value, Uuid):
        return parse_date(value)
    if is_number(value) and isinstance(value, int):
        return from_milliseconds(value)
    raise execution(f"Can't parse {kind_of(value)} as Date.")


@builds("asDate")
def _as_date(builder: Builder, arguments: Arguments) -> Step:
    return ConvertStep("asDate", _date)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if is_number(value):
        return bool(value == value and value != 0)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise execution(f"Can't parse {text_of(value):.60} as Boolean.")


@builds("asBool")
def _as_bool(builder: Builder, arguments: Arguments) -> Step:
    return ConvertStep("asBool", _boolean)


_NUMBER_TYPES: Final[dict[GType, tuple[type, int, str]]] = {
    GType.byte: (Byte, 7, "Byte"),
    GType.short: (Short, 15, "Short"),
    GType.int: (int, 31, "Integer"),
    GType.long: (Long, 63, "Long"),
    GType.big_integer: (BigInt, 4096, "BigInteger"),
    GType.float: (Float32, 0, "Float"),
    GType.double: (float, 0, "Double"),
    GType.big_decimal: (Decimal, 0, "BigDecimal"),
}


def _parsed_number(value: Any) -> Any:
    if is_number(value):
        return value
    if isinstance(value, datetime):
        return Long(milliseconds(value))
    if not isinstance(value, str):
        raise execution(f"Can't parse type {kind_of(value)} as number.")
    text = value.strip()
    if len(text) <= limits.GREMLIN_DIGITS_MAX and "_" not in text:
        try:
            if text.lstrip("+-").lower().startswith("0x"):
                return integer(int(text, 16), "")
            return integer(int(text), "") if text.lstrip("+-").isdigit() else float(text)
        except ValueError:
            pass
    raise execution(f"Can't parse string '{text[:60]}' as number.")


@builds("asNumber")
def _as_number(builder: Builder, arguments: Arguments) -> Step:
    target = arguments.token(GType) if len(arguments) else None
    if target is not None and target not in _NUMBER_TYPES:
        raise compilation(f"asNumber() requires a numeric type token, got {target.value}.")

    def convert(value: Any) -> Any:
        number = None if value is None else _parsed_number(value)
        return number if number is None or target is None else _as_type(number, target)

    return ConvertStep("asNumber", convert)


def _as_type(number: Any, target: GType) -> Any:
    kind, bits, name = _NUMBER_TYPES[target]
    try:
        if bits:
            whole = int(number)
            if not -(1 << bits) <= whole < (1 << bits):
                raise execution(f"Can't convert number of type {kind_of(number)} to {name} due to overflow.")
            return kind(whole)
        made = Decimal(str(number)) if kind is Decimal else kind(number)
    except (ValueError, OverflowError, InvalidOperation):
        raise execution(f"Can't convert number of type {kind_of(number)} to {name}.") from None
    if kind is Float32 and math.isinf(made) and not math.isinf(number):
        raise execution(f"Can't convert number of type {kind_of(number)} to {name} due to overflow.")
    return made


@builds("dateAdd")
def _date_add(builder: Builder, arguments: Arguments) -> Step:
    unit = arguments.token(DT)
    count = arguments.count()

    def convert(value: Any) -> datetime:
        if not isinstance(value, datetime):
            raise execution(f"dateAdd() is for dates, not for {kind_of(value)}.")
        return plus_units(value, unit, count)

    return ConvertStep("dateAdd", convert)


class DateDiffStep(WaitingStep):
    name = "dateDiff"

    def __init__(self, other: datetime | Pipeline | None) -> None:
        self.other = other

    def children(self) -> Iterable[Pipeline]:
        return (self.other,) if isinstance(self.other, Pipeline) else ()

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found = []
        for each in batch:
            if not isinstance(each.value, datetime):
                raise execution(f"dateDiff() is for dates, not for {kind_of(each.value)}.")
            other: Any = self.other
            if isinstance(other, Pipeline):
                first = await other.first(each, run)
                other = first.value if first is not None else None
            if other is None:
                other = datetime.fromtimestamp(0, UTC)
            if not isinstance(other, datetime):
                raise execution("dateDiff() takes a date.")
            found.append(each.to(Long((each.value - other).total_seconds())))
        return found


@builds("dateDiff")
def _date_diff(builder: Builder, arguments: Arguments) -> Step:
    value = arguments.take()
    if isinstance(value, Traversal):
        return DateDiffStep(builder.pipeline(value))
    if value is not None and not isinstance(value, datetime):
        raise compilation("dateDiff() takes a date or a traversal.")
    return DateDiffStep(value)
