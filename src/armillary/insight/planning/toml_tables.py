"""Reading tables of TOML files that people write: every field is checked, and what is wrong or unknown is refused with
its place, such as `operations[2].rate`. Sizes are texts such as "500GB", times such as "P30D" or "12mo".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from armillary.errors import Failure, bad_request
from armillary.limits import GB, KB, MB

_SIZE: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?([KMGT]?B)", re.IGNORECASE | re.ASCII)
_SIZE_UNITS: Final = {"B": 1, "KB": KB, "MB": MB, "GB": GB, "TB": 1024 * GB}
_SHORT_TIME: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(s|min|h|d|w|mo|y)", re.ASCII)
HOUR_S, DAY_S, MONTH_S = 3600.0, 86_400.0, 730 * 3600.0  # a month of prices has 730 hours
_TIME_UNITS: Final = {"s": 1.0, "min": 60.0, "h": HOUR_S, "d": DAY_S, "w": 7 * DAY_S, "mo": MONTH_S, "y": 12 * MONTH_S}
_NUMBER: Final = r"\d{1,9}(?:\.\d{1,6})?"
_ISO_TIME: Final = re.compile(
    rf"P(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?", re.ASCII
)
_ISO_UNITS: Final = (7 * DAY_S, DAY_S, HOUR_S, 60.0, 1.0)
_SHOWN_CHARACTERS_MAX: Final = 60


def size_bytes(text: str) -> int:
    """500GB, 1.5 TB; ValueError otherwise."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return round(float(match.group(1)) * _SIZE_UNITS[match.group(2).upper()])


def duration_s(text: str) -> float:
    """P30D, PT1H30M (ISO 8601, without months and years), 90s, 5min, 1h, 30d, 2w, 12mo, 1y; ValueError otherwise."""
    short = _SHORT_TIME.fullmatch(text.strip())
    if short is not None:
        return float(short.group(1)) * _TIME_UNITS[short.group(2)]
    iso = _ISO_TIME.fullmatch(text.strip())
    if iso is None or not any(iso.groups()) or text.strip().endswith("T"):
        raise ValueError(text)
    return math.fsum(float(part) * unit for part, unit in zip(iso.groups(), _ISO_UNITS, strict=True) if part)


def shown(value: object) -> str:
    """A value in a message, cut."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 1] + "…"


class Table:
    """One table. Fields are taken one by one; `end` refuses those that were not."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, Mapping):
            raise bad_request(f"{place or 'The file'}: expected a table, not {shown(value)}.")
        self._values: Mapping[str, Any] = value
        self._place = place
        self._known: list[str] = []

    @property
    def own_place(self) -> str:
        return self._place

    def place(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name

    def has(self, name: str) -> bool:
        """Whether a field is given. It still has to be taken."""
        return name in self._values

    def _take(self, name: str) -> Any:
        self._known.append(name)
        return self._values.get(name)

    def wrong(self, name: str, expected: str) -> Failure:
        given = self._values.get(name)
        if given is None:
            return bad_request(f"{self.place(name)} is missing; expected {expected}.{self._misspelt(name)}")
        return bad_request(f"{self.place(name)} is {shown(given)}; expected {expected}.")

    def _misspelt(self, name: str) -> str:
        """A field that is given and looks like the one that is missing."""
        close = get_close_matches(name, [str(each) for each in self._values if each not in self._known], 1)
        return f" {self.place(close[0])} is not known: is it meant?" if close else ""

    def number(self, name: str, default: float | None, low: float = 0.0, high: float = 1e15) -> float:
        value = self._take(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.wrong(name, f"a number from {_plain(low)} to {_plain(high)}")
        return float(value)

    def whole(self, name: str, default: int | None, low: int = 0, high: int = 10**15) -> int:
        value = self._take(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"a whole number from {low:,} to {high:,}")
        return value

    def truth(self, name: str, default: bool) -> bool:
        value = self._take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def word(self, name: str, default: str | None, words: Sequence[str]) -> str:
        value = self._take(name)
        if value is None and default is not None:
            return default
        if value not in words:
            raise self.wrong(name, f"one of {', '.join(words)}")
        return str(value)

    def text(self, name: str, default: str | None) -> str:
        value = self._take(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "a text")
        return value

    def size(self, name: str, default: int | None) -> int:
        """Bytes: a whole number, or a text with a unit."""
        value = self._take(name)
        if value is None and default is not None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**18:
            return value
        try:
            return size_bytes(value)
        except (AttributeError, ValueError):
            raise self.wrong(name, 'a size such as "500GB", or a number of bytes') from None

    def duration(self, name: str) -> float:
        value = self._take(name)
        try:
            return duration_s(value)
        except (AttributeError, ValueError):
            raise self.wrong(name, 'a time such as "P30D", "PT12H" or "3mo"') from None

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """So many factors; all 1 without the field."""
        value = self._take(name)
        if value is None:
            return (1.0,) * count
        is_list = isinstance(value, list) and len(value) == count
        if not is_list or not all(_is_factor(each) for each in value):
            raise self.wrong(name, f"a list of {count} numbers from 0 to 1000")
        return tuple(float(each) for each in value)

    def paths(self, name: str, most: int, *, is_needed: bool) -> tuple[str, ...]:
        value = self._take(name)
        if value is None and not is_needed:
            return ()
        is_list = isinstance(value, list) and (1 if is_needed else 0) <= len(value) <= most
        if not is_list or not all(isinstance(each, str) and each.startswith("/") and each[1:] for each in value):
            raise self.wrong(name, f'a list of up to {most} paths such as "/customerId"')
        return tuple(value)

    def table(self, name: str, *, is_needed: bool = False) -> Table:
        """A table in this one; an empty one if it is missing."""
        value = self._take(name)
        if value is None and is_needed:
            raise self.wrong(name, "a table")
        return Table(value if value is not None else {}, self.place(name))

    def tables(self, name: str, most: int, *, is_needed: bool = False) -> list[Table]:
        value = self._take(name)
        if value is None and not is_needed:
            return []
        if not isinstance(value, list) or not (1 if is_needed else 0) <= len(value) <= most:
            raise self.wrong(name, f"a list of up to {most} tables")
        return [Table(each, f"{self.place(name)}[{index}]") for index, each in enumerate(value)]

    def mapping(self, name: str) -> Mapping[str, Any]:
        """A table whose names are values, not fields."""
        value = self._take(name)
        if not isinstance(value, Mapping):
            raise self.wrong(name, "a table")
        return value

    def end(self) -> None:
        for name in self._values:
            if name not in self._known:
                known = ", ".join(sorted(self._known))
                raise bad_request(f"{self.place(str(name))} is not known; known are {known}.")


def _plain(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:g}"


def _is_factor(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1000
