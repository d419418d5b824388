"""The transforms of import and export: properties are renamed, dropped, converted to another type, or composed from
others (synthetic partition keys and ids). They run in the order rename, type, synthetic key, id, drop, whatever the
order of the arguments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from armillary.errors import Failure, bad_request
from armillary.model.keys import parse_path
from armillary.tools.transfer.rows import BadRow, Document, Row, bad_row

Path: TypeAlias = tuple[str, ...]
MISSING: Final = object()
_FIELD = re.compile(r"\{([^{}]+)\}")
_INTEGER = re.compile(r"[-+]?[0-9]+")


class Template(NamedTuple):
    """Text with properties in it: {deviceId}-{date}."""

    text: str
    fields: tuple[tuple[str, Path], ...]

    def fill(self, document: Document) -> str:
        filled = self.text
        for mark, path in self.fields:
            value = get(document, path)
            if value is MISSING or value is None or isinstance(value, dict | list):
                raise ValueError(f"'{'/'.join(path)}' is needed for '{self.text}', and is missing or no plain value")
            text = value if isinstance(value, str) else orjson.dumps(value).decode()
            filled = filled.replace(mark, text)
        return filled


class Transforms:
    def __init__(
        self,
        *,
        renames: Sequence[str] = (),
        types: Sequence[str] = (),
        synthetic_keys: Sequence[str] = (),
        item_id: str | None = None,
        drops: Sequence[str] = (),
    ) -> None:
        self._renames = [(parsed_path(old), parsed_path(new)) for old, new in map(_pair, renames)]
        self._types = [(parsed_path(name), _conversion(word)) for name, word in map(_pair, types)]
        self._sets = [(parsed_path(name), parsed_template(text)) for name, text in map(_pair, synthetic_keys)]
        self._id = parsed_template(item_id) if item_id is not None else None
        self._drops = [parsed_path(name) for name in drops]
        self.is_empty = not (self._renames or self._types or self._sets or self._id or self._drops)

    def apply(self, row: Row) -> Row | BadRow:
        if self.is_empty:
            return row
        document = row.document
        try:
            for old, new in self._renames:
                value = take(document, old)
                if value is not MISSING:
                    put(document, new, value)
            for path, convert in self._types:
                value = get(document, path)
                if value is not MISSING and value is not None:
                    put(document, path, _converted(convert, path, value))
            for path, template in self._sets:
                put(document, path, template.fill(document))
            if self._id is not None:
                document["id"] = self._id.fill(document)
        except ValueError as error:
            return bad_row(row.number, f"{error}.", document)
        for path in self._drops:
            take(document, path)
        return Row(row.number, document)


# Properties by their paths.


def parsed_path(text: str) -> Path:
    """A name, or a path with slashes."""
    return parse_path(text) if text.startswith("/") else (text,)


def parsed_template(text: str) -> Template:
    marks = list(_FIELD.finditer(text))
    if not marks:
        if "{" in text or "}" in text or not text:
            raise bad_request(f"{text!r} is no template; write properties in braces, such as {{deviceId}}-{{date}}.")
        return Template(f"{{{text}}}", ((f"{{{text}}}", parsed_path(text)),))  # a property as it is
    return Template(text, tuple((mark.group(), parsed_path(mark.group(1))) for mark in marks))


def get(document: Document, path: Path) -> Any:
    found: Any = document
    for name in path:
        if not isinstance(found, dict) or name not in found:
            return MISSING
        found = found[name]
    return found


def put(document: Document, path: Path, value: Any) -> None:
    owner: Any = document
    for name in path[:-1]:
        owner = owner.setdefault(name, {})
        if not isinstance(owner, dict):
            raise ValueError(f"'{name}' is no object, so '{'/'.join(path)}' cannot be put into it")
    owner[path[-1]] = value


def take(document: Document, path: Path) -> Any:
    owner = get(document, path[:-1]) if len(path) > 1 else document
    return owner.pop(path[-1], MISSING) if isinstance(owner, dict) else MISSING


def _pair(text: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not left or not equals or not right:
        raise bad_request(f"{text!r} is not of the form NAME=VALUE.")
    return left, right


# Types.


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    text = str(value).strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _integer(value: Any) -> int:
    number = _number(value)
    if number != int(number):
        raise ValueError(value)
    return int(number)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _truth(value: Any) -> bool:
    found = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
    try:
        return found[str(value).strip().lower()]
    except KeyError:
        raise ValueError(value) from None


def _date(value: Any) -> str:
    """A moment as ISO 8601 in UTC, as queries compare it: from text, or seconds or milliseconds since 1970."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value / 1000 if abs(value) >= 1e11 else value
        moment = datetime.fromtimestamp(seconds, UTC)
    else:
        moment = datetime.fromisoformat(str(value).strip())
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    kind = "milliseconds" if moment.microsecond else "seconds"
    return moment.isoformat(timespec=kind).replace("+00:00", "Z")


def _json(value: Any) -> Any:
    return orjson.loads(value) if isinstance(value, str) else value


_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "number": _number,
    "integer": _integer,
    "text": _text,
    "bool": _truth,
    "date": _date,
    "json": _json,
}
TYPES: Final = tuple(_CONVERSIONS)


def _conversion(word: str) -> Callable[[Any], Any]:
    if word not in _CONVERSIONS:
        raise bad_request(f"There is no type {word!r}; there are {', '.join(TYPES)}.")
    return _CONVERSIONS[word]


def _converted(convert: Callable[[Any], Any], path: Path, value: Any) -> Any:
    try:
        return convert(value)
    except (ValueError, TypeError, OverflowError, OSError, Failure):
        word = convert.__name__.lstrip("_").replace("truth", "bool")
        raise ValueError(f"'{'/'.join(path)}' is {value!r:.80}, which is no {word}") from None
