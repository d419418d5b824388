"""DateTimeFormat: .NET's custom date format strings, with English names. Characters after a backslash or in quotes are
literal, and so are all that are not format specifiers. Parsing and arithmetic of dates are in `dates.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any, Final

from armillary import limits
from armillary.languages.sql.library.dates import parse_ticks, parts_of
from armillary.model.values import UNDEFINED, Value

_MONTHS: Final = "January February March April May June July August September October November December".split()
_DAYS: Final = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_PIECE: Final = re.compile(r"\\(.)|'([^']*)'|\"([^\"]*)\"|(y+|M+|d+|H+|h+|m+|s+|f+|F+|t+)|(.)", re.DOTALL)
_FRACTION_DIGITS: Final = 7


def date_format(given: Any, pattern: Any) -> Value:
    ticks = parse_ticks(given)
    if ticks is None or pattern.__class__ is not str or len(pattern) > limits.DATE_FORMAT_CHARACTERS_MAX:
        return UNDEFINED
    time = parts_of(ticks)
    shown: list[str] = []
    for escaped, quoted, also_quoted, letters, other in _PIECE.findall(pattern):
        if not letters:
            shown.append(escaped or quoted or also_quoted or other.strip("'\"\\"))
            continue
        text = _WRITERS[letters[0]](time, len(letters))
        if text is None:
            return UNDEFINED
        shown.append(text)
    return "".join(shown)


_Time = tuple[date, int, int, int, int]


def _year(time: _Time, width: int) -> str | None:
    year = time[0].year
    return str(year % 100).zfill(width) if width <= 2 else str(year).zfill(width)


def _month(time: _Time, width: int) -> str | None:
    month = time[0].month
    if width <= 2:
        return str(month).zfill(width)
    return _MONTHS[month - 1][:3] if width == 3 else _MONTHS[month - 1]


def _day(time: _Time, width: int) -> str | None:
    if width <= 2:
        return str(time[0].day).zfill(width)
    name = _DAYS[time[0].weekday()]
    return name[:3] if width == 3 else name


def _hour_of_twelve(time: _Time, width: int) -> str | None:
    return str((time[1] + 11) % 12 + 1).zfill(min(width, 2))


def _half_of_day(time: _Time, width: int) -> str | None:
    return ("AM" if time[1] < 12 else "PM")[: min(width, 2)]


def _fraction(time: _Time, width: int) -> str | None:
    return f"{time[4]:07}"[:width] if width <= _FRACTION_DIGITS else None


def _fraction_without_zeros(time: _Time, width: int) -> str | None:
    digits = _fraction(time, width)
    return None if digits is None else digits.rstrip("0")


def _padded(place: int) -> Callable[[_Time, int], str | None]:
    return lambda time, width: str(time[place]).zfill(min(width, 2))


_WRITERS: Final[dict[str, Callable[[_Time, int], str | None]]] = {
    "y": _year,
    "M": _month,
    "d": _day,
    "H": _padded(1),
    "h": _hour_of_twelve,
    "m": _padded(2),
    "s": _padded(3),
    "f": _fraction,
    "F": _fraction_without_zeros,
    "t": _half_of_day,
}
