"""Dates and durations as texts and numbers, both ways: what datetime(), asDate() and the wire formats share. All dates
are kept in UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from armillary.languages.gremlin.errors import execution
from armillary.languages.gremlin.syntax.tokens import DT

_DURATION: Final = re.compile(r"(-)?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


def parse_date(text: str) -> datetime:
    """ISO 8601; a date without a time is midnight, a time without a zone is in UTC."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise execution(f"Can't parse {text!r} as Date.") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def from_milliseconds(milliseconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise execution(f"{milliseconds} milliseconds are not a valid date.") from None


def milliseconds(date: datetime) -> int:
    return round(date.timestamp() * 1000)


def plus_units(date: datetime, unit: DT, count: int) -> datetime:
    try:
        return date + timedelta(**{f"{unit.value}s": count})
    except OverflowError:
        raise execution("The date is out of range.") from None


def parse_duration(text: str) -> timedelta | None:
    """An ISO 8601 duration of days and smaller units; None if the text is not one, OverflowError if it is too long."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    sign, days, hours, minutes, seconds = match.groups()
    length = timedelta(int(days or 0), float(seconds or 0), 0, 0, int(minutes or 0), int(hours or 0))
    return -length if sign else length


def iso_duration(length: timedelta) -> str:
    seconds = length.total_seconds()
    sign = "-" if seconds < 0 else ""
    whole, part = divmod(abs(seconds), 1)
    hours, rest = divmod(int(whole), 3600)
    minutes, left = divmod(rest, 60)
    text = f"{left}" if not part else f"{left + part:.6f}".rstrip("0")
    return f"{sign}PT{hours}H{minutes}M{text}S"
