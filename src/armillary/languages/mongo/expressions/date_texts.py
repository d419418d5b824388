"""Dates as texts: formatting and parsing with `%` directives, and the forms that are parsed without a format. Error
codes and `onError` are handled by `dates.py` and `conversion.py`.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expressions.calendar import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    UTC_ZONE,
    Zone,
    date_of,
    day_number,
    days_of_month,
    iso_day_number,
    iso_week,
    weekday_of,
    zone_named,
)

MONTHS: Final = "January February March April May June July August September October November December".split()
_SHORT: Final = [name[:3] for name in MONTHS]
_WEEKDAYS: Final = "(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\\.?,?\\s+"


class NoDate(Exception):
    """The text is not a date; the reason is part of the error message."""


class _Part(Protocol):
    def __call__(self, name: str, least: int, most: int, default: int) -> int: ...


# Writing.


def iso_text(instant_ms: int) -> str:
    return date_text(instant_ms, "%Y-%m-%dT%H:%M:%S.%LZ", UTC_ZONE)


def check_format(pattern: str, known: str) -> None:
    place = pattern.find("%")
    while place >= 0:
        if place + 1 == len(pattern):
            raise refusal(18535, f"Unmatched '%' at end of format string, \"{pattern}\"")
        if pattern[place + 1] not in known:
            raise refusal(18536, f"Invalid format character '%{pattern[place + 1]}' in format string")
        place = pattern.find("%", place + 2)


WRITTEN: Final = "YmdHMSLjwuUVGzZbB%"
READ: Final = "YmdHMSLjuVGzZbB%"


def date_text(instant_ms: int, pattern: str, zone: Zone) -> str:
    offset_ms = zone.offset_ms(instant_ms)
    day, rest_ms = divmod(instant_ms + offset_ms, DAY_MS)
    year, month, of_month = date_of(day)

    def directive(found: re.Match[str]) -> str:
        match found[1]:
            case "Y":
                if not 0 <= year <= 9999:
                    raise refusal(18537, f"$dateToString is only defined on year 0-9999, tried to use year {year}")
                return f"{year:04}"
            case "m":
                return f"{month:02}"
            case "d":
                return f"{of_month:02}"
            case "H":
                return f"{rest_ms // HOUR_MS:02}"
            case "M":
                return f"{rest_ms // MINUTE_MS % 60:02}"
            case "S":
                return f"{rest_ms // SECOND_MS % 60:02}"
            case "L":
                return f"{rest_ms % 1000:03}"
            case "j":
                return f"{day - day_number(year, 1, 1) + 1:03}"
            case "w":
                return str(weekday_of(day) % 7 + 1)
            case "u":
                return str(weekday_of(day))
            case "U":
                return f"{week_of_year(day):02}"
            case "V":
                return f"{iso_week(day)[1]:02}"
            case "G":
                return f"{iso_week(day)[0]:04}"
            case "z":
                sign, minutes = "-" if offset_ms < 0 else "+", abs(offset_ms) // MINUTE_MS
                return f"{sign}{minutes // 60:02}{minutes % 60:02}"
            case "Z":
                return str(int(offset_ms / MINUTE_MS))
            case "b":
                return _SHORT[month - 1]
            case "B":
                return MONTHS[month - 1]
        return "%"

    return re.sub("%(.)", directive, pattern, flags=re.DOTALL)


def week_of_year(day: int) -> int:
    """Weeks begin on Sunday; days before the first Sunday are in week 0."""
    year = date_of(day)[0]
    return (day - day_number(year, 1, 1) + 7 - weekday_of(day) % 7) // 7


# Reading.

_TIME: Final = (
    r"(?:(?P<hour>\d{1,2}):(?P<minute>\d{2})(?:[:.](?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?:\s*(?P<half>[ap])\.?m\.?)?|(?P<hour_alone>\d{1,2})\s*(?P<half_alone>[ap])\.?m\.?|(?P<word>noon|midnight))"
)
_ZONE_TEXT: Final = r"\s*(?P<zone>(?:(?:UTC|GMT)?[+-]\d{1,2}(?::?\d{2})?)|[A-Za-z_]+(?:/[A-Za-z_/]+)?)"
_ZONE: Final = f"(?:{_ZONE_TEXT})?"
# Abbreviations that stand for one zone only, and the military letters (there is no J).
_ABBREVIATIONS_HOURS: Final = {
    "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "BST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "MSK": 3, "JST": 9,
    "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "Z": 0,
    **{letter: hours for hours, letter in enumerate("ABCDEFGHIKLM", 1)},
    **{letter: -hours for hours, letter in enumerate("NOPQRSTUVWXY", 1)},
}  # fmt: skip
_NAMES: Final = "|".join(f"{name[:3]}(?:{name[3:]})?" for name in MONTHS)
_FORMS: Final = [
    re.compile(f"(?:{_WEEKDAYS})?{form}(?:(?:[Tt]|,?\\s+){_TIME}{_ZONE})?\\s*", re.IGNORECASE | re.ASCII)
    for form in (
        r"(?P<year>\d{4})-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?",
        r"(?P<year>\d{4})/(?P<month>\d{1,2})/(?P<day>\d{1,2})",
        r"(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})",
        r"(?P<month>\d{1,2})/(?P<day>\d{1,2})/(?P<year>\d{4}|\d{2})",
        rf"(?P<year>\d{{4}})-(?P<name>{_NAMES})-(?P<day>\d{{1,2}})",
        r"(?P<day>\d{1,2})[-.](?P<month>\d{1,2})[-.](?P<year>\d{4})",
        rf"(?P<name>{_NAMES})\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<year>\d{{4}})",
        rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?[\s-](?P<name>{_NAMES})\.?,?[\s-](?P<year>\d{{4}})",
    )
]


def parse_date(text: str, zone: Zone | None = None) -> int:
    """Parses the common forms of dates to milliseconds. `zone` applies to texts without a zone."""
    for form in _FORMS:
        found = form.fullmatch(text.strip())
        if found is not None:
            return _instant(found.groupdict(), text, zone)
    raise NoDate(f"Error parsing date string '{text}'")


_DIRECTIVES: Final = {
    "Y": r"(?P<year>\d{4})",
    "m": r"(?P<month>\d{1,2})",
    "d": r"(?P<day>\d{1,2})",
    "H": r"(?P<hour>\d{1,2})",
    "M": r"(?P<minute>\d{1,2})",
    "S": r"(?P<second>\d{1,2})",
    "L": r"(?P<fraction>\d{1,3})",
    "j": r"(?P<ordinal>\d{1,3})",
    "u": r"(?P<weekday>[1-7])",
    "V": r"(?P<week>\d{1,2})",
    "G": r"(?P<weekyear>\d{1,4})",
    "z": _ZONE_TEXT,
    "Z": r"(?P<minutes>[+-]?\d{1,3})",
    "b": f"(?P<name>{'|'.join(_SHORT)})",
    "B": f"(?P<name>{'|'.join(MONTHS)})",
}


def parse_formatted(text: str, pattern: str, zone: Zone | None = None) -> int:
    seen: set[str] = set()

    def directive(found: re.Match[str]) -> str:
        letter = found[1]
        if letter == "%":
            return "%"
        if letter in seen:
            raise NoDate(f"Error parsing date string '{text}'; the format '{pattern}' has %{letter} twice")
        seen.add(letter)
        return _DIRECTIVES[letter]

    parts = re.split("(%.)", pattern, flags=re.DOTALL)
    written = "".join([re.sub("%(.)", directive, part) if part[:1] == "%" else re.escape(part) for part in parts])
    try:
        found = re.fullmatch(written, text, re.IGNORECASE | re.ASCII)
    except re.error:  # a directive occurs twice, for example %b and %B
        found = None
    if found is None:
        raise NoDate(f"Error parsing date string '{text}'; it does not have the format '{pattern}'")
    given = found.groupdict()
    _check_complete(given, text)
    return _instant(given, text, zone)


def _check_complete(given: dict[str, str | None], text: str) -> None:
    """Checks that a format gives a complete date, as year, month and day or as an ISO week date."""
    names = {name for name, value in given.items() if value is not None}
    if names & {"weekyear", "week", "weekday"}:
        if names & {"year", "month", "name", "day", "ordinal"}:
            raise NoDate(f"Error parsing date string '{text}'; Mixing of ISO dates with natural dates is not allowed")
        if "weekyear" not in names:
            raise NoDate(f"Error parsing date string '{text}'; The parsed date was invalid")
    elif "year" not in names or not ("ordinal" in names or ("day" in names and names & {"month", "name"})):
        raise NoDate(f"an incomplete date/time string has been found, with elements missing: '{text}'")


def _instant(given: dict[str, str | None], text: str, zone: Zone | None) -> int:
    def part(name: str, least: int, most: int, default: int) -> int:
        found = given.get(name)
        if found is None:
            return default
        number = int(found)
        if not least <= number <= most:
            raise NoDate(f"Error parsing date string '{text}'; {name} {number} is out of range")
        return number

    day = _day(given, part, text)
    name = "hour_alone" if given.get("hour_alone") else "hour"
    hour = part(name, 0, 24, 12 if (given.get("word") or "").lower() == "noon" else 0)
    half = given.get("half") or given.get("half_alone")
    if half is not None:
        hour = part(name, 1, 12, 12) % 12 + (12 if half.lower() == "p" else 0)
    fraction_ms = int(((given.get("fraction") or "0") + "00")[:3])
    local_ms = (
        day * DAY_MS
        + hour * HOUR_MS
        + part("minute", 0, 59, 0) * MINUTE_MS
        + part("second", 0, 60, 0) * SECOND_MS
        + fraction_ms
    )
    own = given.get("zone")
    minutes = given.get("minutes")
    if own is None and minutes is None:
        return (zone or UTC_ZONE).instant_ms(local_ms)
    if zone is not None and zone != UTC_ZONE:
        raise NoDate(
            f"you cannot pass in a date/time string with time zone information ('{own or minutes}') together with a "
            "timezone argument"
        )
    if minutes is not None:
        return local_ms - int(minutes) * MINUTE_MS
    assert own is not None
    try:
        return _own_zone(own).instant_ms(local_ms)
    except Failure as failure:
        raise NoDate(failure.message) from None


def _own_zone(text: str) -> Zone:
    if "/" in text:
        return zone_named(text)
    hours = _ABBREVIATIONS_HOURS.get(text.upper())
    if hours is not None:
        return Zone(hours * HOUR_MS)
    sign, digits = text.upper().removeprefix("UTC").removeprefix("GMT")[:1], re.sub(r"\D", "", text)
    return zone_named(sign + (digits if len(digits) % 2 == 0 else f"0{digits}"))


def _day(given: dict[str, str | None], part: _Part, text: str) -> int:
    if given.get("weekyear") is not None or given.get("week") is not None:
        return iso_day_number(part("weekyear", 0, 9999, 1970), part("week", 1, 53, 1), part("weekday", 1, 7, 1))
    year = part("year", 0, 9999, -1)
    if year < 0:
        raise NoDate(f"Error parsing date string '{text}'; it has no year")
    if len(given.get("year") or "") == 2:
        year += 2000 if year < 70 else 1900
    if given.get("ordinal") is not None:
        return day_number(year, 1, part("ordinal", 0, 366, 0) + 1)  # counted from 0, as in MongoDB's own tests
    name = given.get("name")
    month = part("month", 1, 12, 1) if name is None else _SHORT.index(name[:3].capitalize()) + 1
    return day_number(year, month, part("day", 1, days_of_month(year, month), 1))
