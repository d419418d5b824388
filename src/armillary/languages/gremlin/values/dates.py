"""Dates as text and back: what datetime(), asDate() and the wire formats share. All are kept in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from armillary.languages.gremlin.errors import execution


def parse_date(text: str) -> datetime:
    """ISO 8601; a date without a time is its midnight, a time without a zone is UTC's."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise execution(f"Can't parse {text!r} as Date.") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def from_milliseconds(milliseconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise execution(f"{milliseconds} milliseconds are no date.") from None


def milliseconds(date: datetime) -> int:
    return round(date.timestamp() * 1000)
