"""Date operators: parts of dates, conversion from and to parts and texts, and `$dateAdd`, `$dateDiff`, `$dateTrunc`. A
date may also be given as a timestamp or an ObjectId. Calendar arithmetic is in `calendar.py`, formats are in
`date_texts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import Context, Expression, Scope
from armillary.languages.mongo.expressions.calendar import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    UNIT_MONTHS,
    UNIT_MS,
    UNITS,
    UTC_ZONE,
    WEEKDAYS,
    Zone,
    date_of,
    day_number,
    iso_day_number,
    iso_week,
    plus_units,
    truncated,
    units_between,
    weekday_of,
    zone_of,
)
from armillary.languages.mongo.expressions.compiling import (
    Constant,
    Function,
    Named,
    Operator,
    call,
    compile_expression,
    folded,
    named_arguments,
)
from armillary.languages.mongo.expressions.date_texts import (
    READ,
    WRITTEN,
    NoDate,
    check_format,
    date_text,
    parse_date,
    parse_formatted,
    week_of_year,
)
from armillary.languages.mongo.expressions.numbers import is_nullish
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.model.bson.bson_values import INT64_MAX, INT64_MIN, MISSING, shell_text, type_name

CONVERSION_FAILURE: Final = 241


def instant_of(value: Any) -> int | None:
    """The milliseconds of a date, timestamp or ObjectId; None for other values."""
    if type(value) is DatetimeMS:
        return int(value)
    if type(value) is Timestamp:
        return value.time * 1000
    if type(value) is ObjectId:
        return int.from_bytes(value.binary[:4], "big") * 1000
    return None


def date_instant(value: Any, code: int = 16006, what: str = "") -> int:
    instant_ms = instant_of(value)
    if instant_ms is None:
        raise refusal(code, what or f"can't convert from BSON type {type_name(value)} to Date")
    return instant_ms


class _NotGiven:
    """Marks an argument that is absent; an argument whose value is missing makes the result null instead."""


_NOT_GIVEN: Final = _NotGiven()


def _zone(value: Any) -> Zone:
    return UTC_ZONE if value is _NOT_GIVEN else zone_of(value)


# Parts.


def _part(of_day: Callable[[int, int], int]) -> Operator:
    """An operator that gives one part of a date, computed from the day number and the milliseconds of the day."""

    def evaluate(date: Any, zone: Any = "UTC") -> Any:
        if is_nullish(date) or is_nullish(zone):
            return None
        if type(zone) is not str:
            raise refusal(40533, f"requires a string for the timezone argument, but was given a {type_name(zone)}")
        return of_day(*divmod(zone_of(zone).local_ms(date_instant(date)), DAY_MS))

    def compile_part(name: str, spec: Any, context: Context) -> Expression:
        if type(spec) is dict and not next(iter(spec), "").startswith("$"):
            given = named_arguments(name, spec, {"date": 40539}, ("timezone",), 40535, 40535)
            parts = [compile_expression(given["date"], context)]
            if "timezone" in given:
                parts.append(compile_expression(given["timezone"], context))
        else:
            if type(spec) is list and len(spec) != 1:
                raise refusal(
                    40536, f"{name} accepts exactly one argument if given an array, but was given {len(spec)}"
                )
            parts = [compile_expression(spec[0] if type(spec) is list else spec, context)]
        return folded(call(evaluate, parts), parts)

    return compile_part


def _day_of_year(day: int, rest_ms: int) -> int:
    return day - day_number(date_of(day)[0], 1, 1) + 1


def _date_to_parts(date: Any, zone: Any, is_iso: Any) -> Any:
    if is_nullish(zone) or is_nullish(is_iso):
        return None
    own_zone = _zone(zone)
    if type(is_iso) is not bool:
        raise refusal(40521, f"iso8601 must evaluate to a bool, found {type_name(is_iso)}")
    if is_nullish(date):
        return None
    day, rest_ms = divmod(own_zone.local_ms(date_instant(date)), DAY_MS)
    if is_iso:
        year, week = iso_week(day)
        parts = {"isoWeekYear": year, "isoWeek": week, "isoDayOfWeek": weekday_of(day)}
    else:
        year, month, of_month = date_of(day)
        parts = {"year": year, "month": month, "day": of_month}
    return {
        **parts,
        "hour": rest_ms // HOUR_MS,
        "minute": rest_ms // MINUTE_MS % 60,
        "second": rest_ms // SECOND_MS % 60,
        "millisecond": rest_ms % 1000,
    }


_TIME_PARTS: Final = ("hour", "minute", "second", "millisecond", "timezone")
_CALENDAR_PARTS: Final = ("year", "month", "day")
_ISO_PARTS: Final = ("isoWeekYear", "isoWeek", "isoDayOfWeek")


def _date_from_parts(name: str, spec: Any, context: Context) -> Expression:
    given = named_arguments(name, spec, {}, (*_CALENDAR_PARTS, *_ISO_PARTS, *_TIME_PARTS), 40519, 40518)
    is_iso = "isoWeekYear" in given
    if not is_iso and "year" not in given:
        raise refusal(40516, f"{name} requires either 'year' or 'isoWeekYear' to be present")
    if "year" in given and not given.keys().isdisjoint(_ISO_PARTS):
        raise refusal(40489, f"{name} does not allow mixing natural dates with ISO dates")
    if is_iso and not given.keys().isdisjoint(_CALENDAR_PARTS):
        raise refusal(40525, f"{name} does not allow mixing ISO dates with natural dates")
    names = (*(_ISO_PARTS if is_iso else _CALENDAR_PARTS), *_TIME_PARTS)
    defaults = (MISSING, 1, 1, 0, 0, 0, 0, _NOT_GIVEN)
    parts = [
        compile_expression(given[each], context) if each in given else Constant(default)
        for each, default in zip(names, defaults, strict=True)
    ]
    named = {*given}

    def evaluate(*values: Any) -> Any:
        if any(
            value is None or (value is MISSING and each in named) for each, value in zip(names, values, strict=True)
        ):
            return None
        *numbers, zone = values
        for place, each in enumerate(names[:-1]):
            number = whole_number(numbers[place])
            if number is None:
                raise refusal(
                    40515,
                    f"'{each}' must evaluate to an integer, found {type_name(numbers[place])} with value "
                    f"{shell_text(numbers[place])}",
                )
            if place == 0 and not 1 <= number <= 9999:
                raise refusal(
                    31095 if is_iso else 40523,
                    f"'{each}' must evaluate to an integer in the range 1 to 9999, found {number}",
                )
            if place and not -(1 << 15) <= number < 1 << 15 and each not in ("second", "millisecond"):
                raise refusal(31034, f"'{each}' must evaluate to a value in the range [-32768, 32767]; value {number}")
            numbers[place] = number
        first, second, third, hour, minute, whole_second, millisecond = numbers
        day = iso_day_number(first, second, third) if is_iso else day_number(first, second, 1) + third - 1
        local_ms = day * DAY_MS + hour * HOUR_MS + minute * MINUTE_MS + whole_second * SECOND_MS + millisecond
        if abs(local_ms) > INT64_MAX // 1000:
            raise refusal(159, "Overflow casting from a lower-precision duration to a higher-precision duration")
        return DatetimeMS(_zone(zone).instant_ms(local_ms))

    return folded(call(evaluate, parts), parts)


# Texts.


def _date_to_string(date: Any, pattern: Any, zone: Any, on_null: Any) -> Any:
    if pattern is not _NOT_GIVEN and not is_nullish(pattern):
        if type(pattern) is not str:
            raise refusal(18533, f"$dateToString requires that 'format' be a string, found: {type_name(pattern)}")
        check_format(pattern, WRITTEN)
    own_zone = None if is_nullish(zone) else _zone(zone)
    if is_nullish(date):
        return on_null
    if own_zone is None or is_nullish(pattern):
        return None
    if pattern is _NOT_GIVEN:
        pattern = "%Y-%m-%dT%H:%M:%S.%LZ" if own_zone == UTC_ZONE else "%Y-%m-%dT%H:%M:%S.%L"
    return date_text(date_instant(date), pattern, own_zone)


def _date_from_string(name: str, spec: Any, context: Context) -> Expression:
    given = named_arguments(
        name, spec, {"dateString": 40542}, ("format", "timezone", "onError", "onNull"), 40540, 40541
    )
    text_of, format_of, zone_of_text = [
        compile_expression(given[each], context) if each in given else Constant(MISSING)
        for each in ("dateString", "format", "timezone")
    ]
    on_error = compile_expression(given["onError"], context) if "onError" in given else None
    on_null = compile_expression(given.get("onNull"), context)
    has_format, has_zone = "format" in given, "timezone" in given

    def evaluate(scope: Scope) -> Any:
        text, pattern, zone = text_of(scope), format_of(scope), zone_of_text(scope)
        if not is_nullish(pattern):
            if type(pattern) is not str:
                raise refusal(40684, f"{name} requires that 'format' be a string, found: {type_name(pattern)}")
            check_format(pattern, READ)
        own_zone = None if is_nullish(zone) else zone_of(zone)
        if is_nullish(text):
            return on_null(scope)
        if type(text) is not str and on_error is not None:
            return on_error(scope)
        if (has_format and is_nullish(pattern)) or (has_zone and own_zone is None):
            return None
        try:
            if type(text) is not str:
                raise NoDate(
                    f"{name} requires that 'dateString' be a string, found: {type_name(text)} with value "
                    f"{shell_text(text)}"
                )
            found_ms = parse_formatted(text, pattern, own_zone) if has_format else parse_date(text, own_zone)
        except NoDate as reason:
            if on_error is None:
                raise refusal(CONVERSION_FAILURE, str(reason)) from None
            return on_error(scope)
        return DatetimeMS(found_ms)

    return folded(evaluate, [text_of, format_of, zone_of_text, on_null, *([] if on_error is None else [on_error])])


# Units.


def unit_of(name: str, value: Any, type_code: int = 5439013) -> str:
    if type(value) is not str:
        raise refusal(type_code, f"{name} requires 'unit' to be a string, but got {type_name(value)}")
    if value not in UNITS:
        raise refusal(9, f"{name} parameter 'unit' value cannot be recognized as a time unit: {value}")
    return value


def _weekday(name: str, value: Any) -> int:
    if type(value) is not str:
        raise refusal(5439015, f"{name} requires 'startOfWeek' to be a string, but got {type_name(value)}")
    for number, day in enumerate(WEEKDAYS, 1):
        if value.lower() in (day, day[:3]):
            return number
    raise refusal(5439016, f"{name} parameter 'startOfWeek' value cannot be recognized as a day of a week: {value}")


_BINS_MAX: Final = 100_000_000_000  # units in a bin of $dateTrunc

# For each unit, more than the range of dates holds.
_YEARS_MAX: Final = 584_942_417 + 1
_AMOUNTS_MAX: Final = {
    **{unit: 2 * INT64_MAX // width_ms + 1 for unit, width_ms in UNIT_MS.items()},
    **{unit: _YEARS_MAX * 12 // months for unit, months in UNIT_MONTHS.items()},
}


def _date_add(name: str, sign: int) -> Operator:
    def evaluate(start: Any, unit: Any, amount: Any, zone: Any) -> Any:
        if is_nullish(start) or is_nullish(unit) or is_nullish(amount) or is_nullish(zone):
            return None
        own_unit, own_zone = unit_of(name, unit, 5166404), _zone(zone)
        instant_ms = date_instant(start, 5166403, f"{name} requires startDate to be convertible to a date")
        count = whole_number(amount)
        if count is None:
            raise refusal(5166405, f"{name} expects integer amount of time units")
        if sign < 0 and count == INT64_MIN:
            raise refusal(6045000, f"invalid {name} 'amount' parameter value: {count}")
        if abs(count) > _AMOUNTS_MAX[own_unit]:
            raise refusal(5976500, f"invalid {name} 'amount' parameter value: {count} {own_unit}")
        found_ms = plus_units(instant_ms, own_unit, sign * count, own_zone)
        if not INT64_MIN <= found_ms <= INT64_MAX:
            raise refusal(5166406, f"{name} overflowed")
        return DatetimeMS(found_ms)

    return Named(
        evaluate,
        {"startDate": 5166402, "unit": 5166402, "amount": 5166402},
        ("timezone",),
        5166400,
        5166401,
        defaults={"timezone": _NOT_GIVEN},
    )


def _date_diff(start: Any, end: Any, unit: Any, zone: Any, week: Any) -> Any:
    if is_nullish(start) or is_nullish(end) or is_nullish(unit):
        return None
    own_unit = unit_of("$dateDiff", unit)
    if (own_unit == "week" and is_nullish(week)) or is_nullish(zone):
        return None
    weekday = _weekday("$dateDiff", week) if own_unit == "week" else 7
    own_zone = _zone(zone)
    start_ms, end_ms = [
        date_instant(value, 5166307, f"$dateDiff requires '{each}' to be a date, but got {type_name(value)}")
        for value, each in ((start, "startDate"), (end, "endDate"))
    ]
    return Int64(units_between(start_ms, end_ms, own_unit, own_zone, weekday))


def _date_trunc(date: Any, unit: Any, size: Any, zone: Any, week: Any) -> Any:
    if is_nullish(date) or is_nullish(size):
        return None
    count = whole_number(size)
    if count is None:
        raise refusal(
            5439017, "$dateTrunc requires 'binSize' to be a 64-bit integer, but got value " + shell_text(size)
        )
    if count < 1:
        raise refusal(5439018, f"$dateTrunc requires 'binSize' to be greater than 0, but got value {count}")
    if is_nullish(unit):
        return None
    own_unit = unit_of("$dateTrunc", unit)
    if (own_unit == "week" and is_nullish(week)) or is_nullish(zone):
        return None
    weekday = _weekday("$dateTrunc", week) if own_unit == "week" else 7
    own_zone = _zone(zone)
    instant_ms = date_instant(date, 5439012, f"$dateTrunc requires 'date' to be a date, but got {type_name(date)}")
    if count > _BINS_MAX:
        raise refusal(5439006, "dateTrunc unsupported binSize value")
    found_ms = truncated(instant_ms, own_unit, count, own_zone, weekday)
    if not INT64_MIN <= found_ms <= INT64_MAX:
        raise refusal(5166406, "dateTrunc overflowed")
    return DatetimeMS(found_ms)


def _of_timestamp(name: str, code: int, take: Callable[[Timestamp], int]) -> Operator:
    def evaluate(value: Any) -> Any:
        if is_nullish(value):
            return None
        if type(value) is not Timestamp:
            raise refusal(code, f" Argument to {name} must be a timestamp, but is {type_name(value)}")
        return Int64(take(value))

    return Function(evaluate)


OPERATORS: Final[Mapping[str, Operator]] = {
    "$year": _part(lambda day, rest_ms: date_of(day)[0]),
    "$month": _part(lambda day, rest_ms: date_of(day)[1]),
    "$dayOfMonth": _part(lambda day, rest_ms: date_of(day)[2]),
    "$dayOfYear": _part(_day_of_year),
    "$dayOfWeek": _part(lambda day, rest_ms: weekday_of(day) % 7 + 1),
    "$hour": _part(lambda day, rest_ms: rest_ms // HOUR_MS),
    "$minute": _part(lambda day, rest_ms: rest_ms // MINUTE_MS % 60),
    "$second": _part(lambda day, rest_ms: rest_ms // SECOND_MS % 60),
    "$millisecond": _part(lambda day, rest_ms: rest_ms % 1000),
    "$week": _part(lambda day, rest_ms: week_of_year(day)),
    "$isoWeek": _part(lambda day, rest_ms: iso_week(day)[1]),
    "$isoWeekYear": _part(lambda day, rest_ms: Int64(iso_week(day)[0])),
    "$isoDayOfWeek": _part(lambda day, rest_ms: weekday_of(day)),
    "$dateToString": Named(
        _date_to_string,
        {"date": 18628},
        ("format", "timezone", "onNull"),
        18629,
        18534,
        defaults={"onNull": None, "format": _NOT_GIVEN, "timezone": _NOT_GIVEN},
    ),
    "$dateFromString": _date_from_string,
    "$dateToParts": Named(
        _date_to_parts,
        {"date": 40522},
        ("timezone", "iso8601"),
        40524,
        40520,
        defaults={"timezone": _NOT_GIVEN, "iso8601": False},
    ),
    "$dateFromParts": _date_from_parts,
    "$dateAdd": _date_add("$dateAdd", 1),
    "$dateSubtract": _date_add("$dateSubtract", -1),
    "$dateDiff": Named(
        _date_diff,
        {"startDate": 5166303, "endDate": 5166304, "unit": 5166305},
        ("timezone", "startOfWeek"),
        5166301,
        5166302,
        defaults={"timezone": _NOT_GIVEN, "startOfWeek": "sunday"},
    ),
    "$dateTrunc": Named(
        _date_trunc,
        {"date": 5439009, "unit": 5439010},
        ("binSize", "timezone", "startOfWeek"),
        5439007,
        5439008,
        defaults={"binSize": 1, "timezone": _NOT_GIVEN, "startOfWeek": "sunday"},
    ),
    "$tsSecond": _of_timestamp("$tsSecond", 5687301, lambda value: value.time),
    "$tsIncrement": _of_timestamp("$tsIncrement", 5687302, lambda value: value.inc),
}
