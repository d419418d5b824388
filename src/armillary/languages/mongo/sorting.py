"""Sorts of documents: by paths in the order of BSON values, by text scores, or in the order they are stored.

An array counts by its least element, or by its greatest where the order descends. Fields of several documents in one
array belong together; two arrays that do not cannot both be sorted by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from bson.dbref import DBRef

from armillary.languages.mongo.collation import Collation, key_function
from armillary.languages.mongo.elements import whole_number
from armillary.languages.mongo.errors import bad_value, refusal
from armillary.languages.mongo.paths import fields_of, index_of, split
from armillary.languages.mongo.text import TextQuery
from armillary.model.bson_values import CLASS_EMPTY_ARRAY, CLASS_NULL, MISSING, Document, Key, order_key, shell_text

_NULL: Final[Key] = (CLASS_NULL,)
_EMPTY: Final[Key] = (CLASS_EMPTY_ARRAY,)
_FIELDS_MAX: Final = 32

Rest = tuple[str, ...]


class Descending:
    """A key that comes before smaller ones."""

    __slots__ = ("key",)

    def __init__(self, key: Key) -> None:
        self.key = key

    def __lt__(self, other: Descending) -> bool:
        return other.key < self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, slots=True)
class SortField:
    path: str
    is_descending: bool
    is_score: bool = False  # of `$text`, the best first


@dataclass(frozen=True, slots=True)
class Sort:
    fields: tuple[SortField, ...]
    key: Callable[[Document], Any]  # documents are in order when their keys are
    natural: int = 0  # 1 or -1: as they are stored, or the other way
    is_collated: bool = False

    @property
    def is_plain(self) -> bool:
        """By fields in the order of BSON values and nothing else: as an index may have it."""
        return bool(self.fields) and not self.is_collated and not any(each.is_score for each in self.fields)

    def applied(self, documents: Iterable[Document]) -> list[Document]:
        if self.natural:
            return list(documents)[:: self.natural]
        return sorted(documents, key=self.key) if self.fields else list(documents)


def compile_sort(given: Any, collation: Collation | None = None, text: TextQuery | None = None) -> Sort:
    return compile_sort_by(given, key_function(collation), text)


def compile_sort_by(given: Any, key: Callable[[Any], Key], text: TextQuery | None = None) -> Sort:
    """The same with the order of values given as a function, as a context has it."""
    if type(given) is not dict:
        raise refusal(14, "The sort must be an object.")
    if "$natural" in given:
        return _natural(given)
    if len(given) > _FIELDS_MAX:
        raise refusal(13103, f"too many sort fields: at most {_FIELDS_MAX}")
    fields = tuple([_field(path, direction, text is not None) for path, direction in given.items()])
    return Sort(fields, _key_of(fields, key, text), is_collated=key is not order_key)


def _natural(given: Document) -> Sort:
    direction = whole_number(given["$natural"])
    if len(given) > 1:
        raise bad_value(f"$natural sort cannot be set to a value other than -1 or 1: {shell_text(given)}")
    if direction not in (1, -1):
        raise bad_value("$natural sort cannot be set to a value other than -1 or 1.")
    return Sort((), lambda _document: 0, direction)


def _field(path: str, direction: Any, has_text: bool) -> SortField:
    if not path:
        raise refusal(40352, "FieldPath cannot be constructed with empty string")
    if path.startswith("$"):
        raise refusal(16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField.")
    if path.endswith("."):
        raise refusal(40353, "FieldPath must not end with a '.'.")
    if "" in split(path):
        raise refusal(15998, "FieldPath field names may not be empty strings.")
    if type(direction) is dict:
        if direction != {"$meta": "textScore"}:
            raise refusal(17312, f"$meta is the only expression supported by $sort right now: {shell_text(direction)}")
        if not has_text:
            raise refusal(40218, "query requires text score metadata, but it is not available")
        return SortField(path, True, is_score=True)
    number = whole_number(direction)
    if number not in (1, -1):
        raise refusal(15975, f"$sort key ordering must be 1 (for ascending) or -1 (for descending): {path}")
    return SortField(path, number == -1)


def _key_of(
    fields: tuple[SortField, ...], key: Callable[[Any], Key], text: TextQuery | None
) -> Callable[[Document], Any]:
    if len(fields) == 1 and not fields[0].is_score:
        return _key_of_one(fields[0], key)
    if text is not None and any(field.is_score for field in fields):
        score = text.score
        single = [
            (lambda document: -score(document)) if field.is_score else _key_of_one(field, key) for field in fields
        ]
        return lambda document: tuple([each(document) for each in single])
    parts = tuple([split(field.path) for field in fields])
    turned = [place for place, field in enumerate(fields) if field.is_descending]

    def of_document(document: Document) -> Any:
        rows = [_turned(row, turned) for row in _rows(document, parts, key)]
        return rows[0] if len(rows) == 1 else min(rows)

    return of_document


def _turned(row: tuple[Key, ...], places: list[int]) -> tuple[Any, ...]:
    if not places:
        return row
    keys: list[Any] = list(row)
    for place in places:
        keys[place] = Descending(keys[place])
    return tuple(keys)


def _key_of_one(field: SortField, key: Callable[[Any], Key]) -> Callable[[Document], Any]:
    parts = (split(field.path),)
    name = field.path if len(parts[0]) == 1 else ""

    def ascending(document: Document) -> Any:
        if name:
            value = document.get(name)
            if type(value) is not list:
                return key(value)
        return min(_rows(document, parts, key))[0]

    def descending(document: Document) -> Any:
        if name:
            value = document.get(name)
            if type(value) is not list:
                return Descending(key(value))
        return Descending(max(_rows(document, parts, key))[0])

    return descending if field.is_descending else ascending


# The values of several paths, as an index would hold them: one row for each element of the array they share.


def _rows(document: Document, parts: tuple[Rest, ...], key: Callable[[Any], Key]) -> list[tuple[Key, ...]]:
    found: list[Key | None] = [None] * len(parts)
    return _expanded([(place, rest, document) for place, rest in enumerate(parts)], found, key)


def _expanded(
    pending: list[tuple[int, Rest, Any]], found: list[Key | None], key: Callable[[Any], Key]
) -> list[tuple[Key, ...]]:
    waiting: list[tuple[int, Rest, list[Any]]] = []
    for place, rest, value in pending:
        rest, value = _followed(rest, value)
        if type(value) is list:
            waiting.append((place, rest, value))
        else:
            found[place] = _NULL if value is MISSING else key(value)
    if not waiting:
        return [tuple([each if each is not None else _NULL for each in found])]
    array = waiting[0][2]
    if any(other is not array for _, _, other in waiting):
        raise bad_value("cannot sort with keys that are parallel arrays")
    if not array:
        for place, rest, _ in waiting:
            found[place] = _NULL if rest else _EMPTY
        return [tuple([each if each is not None else _NULL for each in found])]
    rows: list[tuple[Key, ...]] = []
    for element in array:
        inner = list(found)
        deeper: list[tuple[int, Rest, Any]] = []
        for place, rest, _ in waiting:
            if not rest:
                inner[place] = key(element)
            else:
                # An array inside the array is not gone through.
                deeper.append((place, rest, MISSING if type(element) is list else element))
        rows.extend(_expanded(deeper, inner, key))
    return rows


def _followed(rest: Rest, value: Any) -> tuple[Rest, Any]:
    """As far as a path goes without choosing among the elements of an array."""
    while rest:
        if type(value) is DBRef:
            value = fields_of(value)
        if type(value) is dict:
            value = value.get(rest[0], MISSING)
        elif type(value) is list:
            index = index_of(rest[0])
            if index < 0:
                return rest, value
            value = value[index] if index < len(value) else MISSING
        else:
            return (), MISSING
        rest = rest[1:]
    return rest, value
