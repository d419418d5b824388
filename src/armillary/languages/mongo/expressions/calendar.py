"""Calendar arithmetic: milliseconds since 1970 to year, month, day and time in a time zone and back; ISO weeks; adding,
truncating and counting units. Years outside the range of Python's dates are supported; there the offset of a named zone
is that of the nearest year in the range.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import type_name

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000
UNIT_MS: Final = {
    "millisecond": 1,
    "second": SECOND_MS,
    "minute": MINUTE_MS,
    "hour": HOUR_MS,
    "day": DAY_MS,
    "week": 7 * DAY_MS,
}
UNIT_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
UNITS: Final = (*UNIT_MS, *UNIT_MONTHS)
WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS, _LAST_MS = -62_135_510_400_000, 253_402_214_400_000  # the years 1 to 9999, less a day for offsets
_OFFSET: Final = re.compile(r"([+-])(\d\d)(?::?(\d\d))?")


def day_number(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01, for any year. Months and days outside their ranges carry over."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468 + day - 1


def date_of(day: int) -> tuple[int, int, int]:
    """Year, month and day of the month."""
    day += 719_468
    era = day // 146_097
    of_era = day - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    return (
        year + era * 400 + (month >= 10),
        month + (3 if month < 10 else -9),
        of_year - (153 * month + 2) // 5 + 1,
    )


def weekday_of(day: int) -> int:
    """1 is Monday, 7 is Sunday."""
    return (day + 3) % 7 + 1


def days_of_month(year: int, month: int) -> int:
    return day_number(year, month + 1, 1) - day_number(year, month, 1)


def iso_week(day: int) -> tuple[int, int]:
    """The ISO year and the number of the week."""
    thursday = day - weekday_of(day) + 4
    year = date_of(thursday)[0]
    return year, (thursday - day_number(year, 1, 1)) // 7 + 1


def iso_day_number(year: int, week: int, weekday: int) -> int:
    fourth = day_number(year, 1, 4)  # always in week 1
    return fourth - weekday_of(fourth) + 1 + (week - 1) * 7 + weekday - 1


# Zones.


@dataclass(frozen=True, slots=True)
class Zone:
    fixed_ms: int = 0
    named: ZoneInfo | None = None

    def offset_ms(self, instant_ms: int) -> int:
        """The offset of a zone from UTC at an instant."""
        if self.named is None:
            return self.fixed_ms
        bounded_ms = min(max(instant_ms, _FIRST_MS), _LAST_MS)
        offset = (_EPOCH + timedelta(milliseconds=bounded_ms)).astimezone(self.named).utcoffset()
        assert offset is not None
        return round(offset.total_seconds() * 1000)

    def local_ms(self, instant_ms: int) -> int:
        return instant_ms + self.offset_ms(instant_ms)

    def instant_ms(self, local_ms: int) -> int:
        """The instant of a local time. If the local time occurs twice, the first instant; if it is skipped, computed
        with the offset before the skip.
        """
        if self.named is None:
            return local_ms - self.fixed_ms
        bounded_ms = min(max(local_ms, _FIRST_MS), _LAST_MS)
        shown = (_EPOCH + timedelta(milliseconds=bounded_ms)).replace(tzinfo=self.named, fold=0)
        offset = shown.utcoffset()
        assert offset is not None
        return local_ms - round(offset.total_seconds() * 1000)


UTC_ZONE: Final = Zone()


@lru_cache(maxsize=256)
def zone_named(name: str) -> Zone:
    found = _OFFSET.fullmatch(name)
    if found is not None:
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        return Zone((minutes if found[1] == "+" else -minutes) * MINUTE_MS)
    if name in ("UTC", "GMT", "Z"):
        return UTC_ZONE
    try:
        return Zone(named=ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise refusal(40485, f'unrecognized time zone identifier: "{name}"') from None


def zone_of(value: Any) -> Zone:
    if type(value) is not str:
        raise refusal(40517, f"timezone must evaluate to a string, found {type_name(value)}")
    return zone_named(value)


# Whole units.


def plus_units(instant_ms: int, unit: str, amount: int, zone: Zone) -> int:
    """Adds units. The day of the month is limited to the length of the month, and days keep the local time."""
    if unit in UNIT_MONTHS:
        local_ms = zone.local_ms(instant_ms)
        day, rest_ms = divmod(local_ms, DAY_MS)
        year, month, of_month = date_of(day)
        first = day_number(year, month + amount * UNIT_MONTHS[unit], 1)
        year, month, _ = date_of(first)
        day = first + min(of_month, days_of_month(year, month)) - 1
        return zone.instant_ms(day * DAY_MS + rest_ms)
    if unit in ("day", "week"):
        return zone.instant_ms(zone.local_ms(instant_ms) + amount * UNIT_MS[unit])
    return instant_ms + amount * UNIT_MS[unit]


def units_between(start_ms: int, end_ms: int, unit: str, zone: Zone, first_weekday: int) -> int:
    """The number of boundaries of a unit between two instants."""
    start_local, end_local = zone.local_ms(start_ms), zone.local_ms(end_ms)
    if unit in UNIT_MONTHS:
        months = UNIT_MONTHS[unit]
        return _month_number(end_local) // months - _month_number(start_local) // months
    if unit == "week":
        shift = first_weekday - 4  # 1970-01-01 was a Thursday
        return (end_local // DAY_MS - shift) // 7 - (start_local // DAY_MS - shift) // 7
    if unit == "day":
        return end_local // DAY_MS - start_local // DAY_MS
    if unit == "hour":
        # Hours are elapsed time, counted between whole hours of the zone.
        first_ms = start_ms - start_local % HOUR_MS
        return (end_ms - end_local % HOUR_MS - first_ms) // HOUR_MS
    width_ms = UNIT_MS[unit]
    return end_ms // width_ms - start_ms // width_ms


def _month_number(local_ms: int) -> int:
    year, month, _ = date_of(local_ms // DAY_MS)
    return year * 12 + month - 1


_ORIGIN_DAY: Final = day_number(2000, 1, 1)  # the origin of bins


def truncated(instant_ms: int, unit: str, size: int, zone: Zone, first_weekday: int) -> int:
    """The start of the bin that an instant lies in."""
    local_ms = zone.local_ms(instant_ms)
    if unit in UNIT_MONTHS:
        width = UNIT_MONTHS[unit] * size
        months = (_month_number(local_ms) - 2000 * 12) // width * width
        return zone.instant_ms(day_number(2000, 1 + months, 1) * DAY_MS)
    if unit == "week":
        origin = _ORIGIN_DAY + (first_weekday - weekday_of(_ORIGIN_DAY)) % 7
        width = 7 * size
        return zone.instant_ms((origin + (local_ms // DAY_MS - origin) // width * width) * DAY_MS)
    if unit == "day":
        return zone.instant_ms((_ORIGIN_DAY + (local_ms // DAY_MS - _ORIGIN_DAY) // size * size) * DAY_MS)
    width_ms = UNIT_MS[unit] * size
    origin_ms = zone.instant_ms(_ORIGIN_DAY * DAY_MS)
    return origin_ms + (instant_ms - origin_ms) // width_ms * width_ms
