"""Date and time functions over ISO 8601 texts in UTC and ticks, which are units of 100 ns since 1970. Dates are
Gregorian, years 1 to 9999; a result outside them is undefined.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any, Final

from armillary.languages.sql.library.context import Context
from armillary.languages.sql.library.numbers import ABSENT, whole
from armillary.model.values import UNDEFINED, Value

_TEXT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,7}))?)?Z?", re.ASCII
)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
TICKS_PER_SECOND: Final = 10_000_000
TICKS_PER_DAY: Final = 86_400 * TICKS_PER_SECOND
_TICKS_MIN: Final = (1 - _EPOCH_DAY) * TICKS_PER_DAY
_TICKS_MAX: Final = (date.max.toordinal() + 1 - _EPOCH_DAY) * TICKS_PER_DAY - 1
_ORIGIN_MIN: Final = (date(1601, 1, 1).toordinal() - _EPOCH_DAY) * TICKS_PER_DAY

_PARTS: Final = {
    name: part
    for part, names in {
        "year": "year yyyy yy",
        "month": "month mm m",
        "day": "day dd d",
        "hour": "hour hh",
        "minute": "minute mi n",
        "second": "second ss s",
        "millisecond": "millisecond ms",
        "microsecond": "microsecond mcs",
        "nanosecond": "nanosecond ns",
    }.items()
    for name in names.split()
}
_MONTHS: Final = {"year": 12, "month": 1}
_NANOSECONDS: Final = {
    "day": 86_400_000_000_000,
    "hour": 3_600_000_000_000,
    "minute": 60_000_000_000,
    "second": 1_000_000_000,
    "millisecond": 1_000_000,
    "microsecond": 1_000,
    "nanosecond": 1,
}


# Text and ticks.


def parse_ticks(given: Any) -> int | None:
    """The ticks of an ISO 8601 text; None if it is not a date."""
    match = _TEXT.fullmatch(given) if given.__class__ is str else None
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction = match.groups()
    parts = (year, month, day, hour or 0, minute or 0, second or 0, (fraction or "").ljust(7, "0"))
    return _ticks(*map(int, parts))


def _ticks(year: int, month: int, day: int, hour: int, minute: int, second: int, fraction: int) -> int | None:
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= fraction < TICKS_PER_SECOND):
        return None
    try:
        days = date(year, month, day).toordinal() - _EPOCH_DAY
    except (ValueError, OverflowError):
        return None
    return days * TICKS_PER_DAY + ((hour * 60 + minute) * 60 + second) * TICKS_PER_SECOND + fraction


def parts_of(ticks: int) -> tuple[date, int, int, int, int]:
    """Day, hour, minute, second and fraction of a second."""
    days, rest = divmod(ticks, TICKS_PER_DAY)
    seconds, fraction = divmod(rest, TICKS_PER_SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return date.fromordinal(_EPOCH_DAY + days), hour, minute, second, fraction


def _text(ticks: int | None) -> Value:
    if ticks is None or not _TICKS_MIN <= ticks <= _TICKS_MAX:
        return UNDEFINED
    day, hour, minute, second, fraction = parts_of(ticks)
    return f"{day.isoformat()}T{hour:02}:{minute:02}:{second:02}.{fraction:07}Z"


def _part(given: Any) -> str | None:
    return _PARTS.get(given) if given.__class__ is str else None


# Arithmetic.


def _plus(ticks: int, part: str, amount: int) -> int | None:
    months = _MONTHS.get(part)
    if months is not None:
        return _plus_months(ticks, months * amount)
    nanoseconds = _NANOSECONDS[part] * amount
    # Fractions of a tick are truncated towards zero.
    return ticks + (nanoseconds // 100 if nanoseconds >= 0 else -(-nanoseconds // 100))


def _plus_months(ticks: int, months: int) -> int | None:
    """The same day of another month, or its last day if that month is shorter."""
    days, rest = divmod(ticks, TICKS_PER_DAY)
    day = date.fromordinal(_EPOCH_DAY + days)
    year, month = divmod(_month_number(day) + months, 12)
    if not 1 <= year <= 9999:
        return None
    following = date(year, month + 2, 1) if month < 11 else date(year, 12, 31)
    length = (following - date(year, month + 1, 1)).days + (month == 11)
    moved = date(year, month + 1, min(day.day, length)).toordinal() - _EPOCH_DAY
    return moved * TICKS_PER_DAY + rest


def _month_number(day: date) -> int:
    return day.year * 12 + day.month - 1


def date_add(part: Any, amount: Any, given: Any) -> Value:
    unit, ticks, steps = _part(part), parse_ticks(given), whole(amount)
    return UNDEFINED if unit is None or ticks is None or steps is None else _text(_plus(ticks, unit, steps))


def date_difference(part: Any, start: Any, end: Any) -> Value:
    """DateTimeDiff: the number of boundaries of the part between two times, not elapsed time."""
    unit, first, last = _part(part), parse_ticks(start), parse_ticks(end)
    if unit is None or first is None or last is None:
        return UNDEFINED
    if unit in _MONTHS:
        divisor = _MONTHS[unit]
        return _month_number(parts_of(last)[0]) // divisor - _month_number(parts_of(first)[0]) // divisor
    size = _NANOSECONDS[unit]
    return last * 100 // size - first * 100 // size


def date_part(part: Any, given: Any) -> Value:
    unit, ticks = _part(part), parse_ticks(given)
    if unit is None or ticks is None:
        return UNDEFINED
    day, hour, minute, second, fraction = parts_of(ticks)
    match unit:
        case "year":
            return day.year
        case "month":
            return day.month
        case "day":
            return day.day
        case "hour":
            return hour
        case "minute":
            return minute
        case "second":
            return second
    return fraction * 100 // _NANOSECONDS[unit]


def year(given: Any) -> Value:
    return date_part("year", given)


def month(given: Any) -> Value:
    return date_part("month", given)


def day(given: Any) -> Value:
    return date_part("day", given)


def date_bin(given: Any, part: Any, size: Any = 1, origin: Any = ABSENT) -> Value:
    """DateTimeBin: the start of the bin that contains a time; bins of `size` parts start at the origin."""
    ticks, unit, steps = parse_ticks(given), _part(part), whole(size)
    start = 0 if origin is ABSENT else parse_ticks(origin)
    if ticks is None or unit is None or steps is None or steps <= 0 or start is None or start < _ORIGIN_MIN:
        return UNDEFINED
    if unit in _MONTHS:
        width = steps * _MONTHS[unit]
        between = _month_number(parts_of(ticks)[0]) - _month_number(parts_of(start)[0])
        bins = between // width
        found = _plus_months(start, bins * width)
        if found is not None and found > ticks:
            found = _plus_months(start, (bins - 1) * width)
        return _text(found)
    width = steps * _NANOSECONDS[unit]
    return _text(start + (ticks - start) * 100 // width * width // 100)


def date_from_parts(*parts: Any) -> Value:
    numbers = [whole(part) for part in parts]
    if None in numbers:
        return UNDEFINED
    filled = [*numbers, *[0] * (7 - len(numbers))]
    return _text(_ticks(*filled))  # type: ignore[arg-type]


def date_to_ticks(given: Any) -> Value:
    ticks = parse_ticks(given)
    return UNDEFINED if ticks is None else ticks


def ticks_to_date(given: Any) -> Value:
    return _text(whole(given))


def date_to_timestamp(given: Any) -> Value:
    ticks = parse_ticks(given)
    return UNDEFINED if ticks is None else ticks // 10_000


def timestamp_to_date(given: Any) -> Value:
    milliseconds = whole(given)
    return UNDEFINED if milliseconds is None else _text(milliseconds * 10_000)


# Current time.


def current_date(context: Context) -> Value:
    return _text(context.now_ticks())


def current_ticks(context: Context) -> Value:
    return context.now_ticks()


def current_timestamp(context: Context) -> Value:
    return context.now_ticks() // 10_000


def static_date(context: Context) -> Value:
    return _text(context.static_ticks())


def static_ticks(context: Context) -> Value:
    return context.static_ticks()


def static_timestamp(context: Context) -> Value:
    return context.static_ticks() // 10_000


def now(context: Context, part: Any = ABSENT, amount: Any = ABSENT) -> Value:
    """The current time, optionally plus an interval."""
    ticks = context.now_ticks()
    if part is ABSENT:
        return _text(ticks)
    unit, steps = _part(part), whole(amount)
    return UNDEFINED if unit is None or steps is None else _text(_plus(ticks, unit, steps))


def ago(context: Context, part: Any, amount: Any) -> Value:
    unit, steps = _part(part), whole(amount)
    return UNDEFINED if unit is None or steps is None else _text(_plus(context.now_ticks(), unit, -steps))
