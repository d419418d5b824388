"""Sort specifications: keys of documents by paths in the order of BSON values, by text score, or in natural order;
and bounds by the keys of an index. The `$sort` stage is in `stages/sorting.py`.

An array sorts by its smallest element, or by its greatest in a descending sort. Several fields of the documents in one
array are compared as rows; a sort by two parallel arrays is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from armillary.errors import Failure
from armillary.languages.mongo.collation import Collation, key_function
from armillary.languages.mongo.errors import bad_value, refusal
from armillary.languages.mongo.filters.text_search import TextQuery
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.languages.mongo.paths import split
from armillary.model.bson.bson_values import (
    CLASS_EMPTY_ARRAY,
    CLASS_NULL,
    MISSING,
    Document,
    Key,
    is_number,
    order_key,
    shell_text,
)
from armillary.model.indexes.field_indexes import EMPTY, Parts, rows_of
from armillary.work import portions, sorted_values, spend

_NULL: Final[Key] = (CLASS_NULL,)
_EMPTY: Final[Key] = (CLASS_EMPTY_ARRAY,)
_FIELDS_MAX: Final = 32
_STRIDE: Final = 512  # rows between two calls that meter work


class Descending:
    """A key that sorts in reverse."""

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
    is_score: bool = False  # by the score of `$text`, highest first


@dataclass(frozen=True, slots=True)
class Sort:
    fields: tuple[SortField, ...]
    key: Callable[[Document], Any]  # the sort key of a document
    natural: int = 0  # 1 or -1: natural order, forwards or backwards
    is_collated: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it sorts only by fields in the order of BSON values, as an index can."""
        return bool(self.fields) and not self.is_collated and not any(each.is_score for each in self.fields)

    def applied(self, documents: Iterable[Document]) -> list[Document]:
        if self.natural:
            return list(documents)[:: self.natural]
        return sorted_values(documents, self.key) if self.fields else list(documents)


def compile_sort(given: Any, collation: Collation | None = None, text: TextQuery | None = None) -> Sort:
    return compile_sort_by(given, key_function(collation), text)


def compile_sort_by(given: Any, key: Callable[[Any], Key], text: TextQuery | None = None) -> Sort:
    """The same with a comparison key, as a Context holds it."""
    if type(given) is not dict:
        raise refusal(14, "The sort must be an object.")
    if "$natural" in given:
        return _natural(given)
    if len(given) > _FIELDS_MAX:
        raise refusal(13103, f"too many sort fields: at most {_FIELDS_MAX}")
    fields = tuple([_field(path, direction, text is not None) for path, direction in given.items()])
    return Sort(fields, _key_of(fields, key, text), is_collated=key is not order_key)


def element_key(given: Document, key: Callable[[Any], Key]) -> Callable[[Any], Any]:
    """The sort key of `$sortArray` and of `$push` with `$sort`: values are compared as they are, arrays on a path are
    entered by index only, and elements that are not documents have no fields.
    """
    fields = compile_sort_by(given, key).fields

    def of(element: Any) -> Any:
        keys = [key(_field_of(element, each.path) if type(element) is dict else None) for each in fields]
        return [Descending(found) if each.is_descending else found for found, each in zip(keys, fields, strict=True)]

    return of


def _field_of(value: Any, path: str) -> Any:
    members = value if type(value) is dict else None
    if type(value) is list:
        members = {str(place): each for place, each in enumerate(value)}
    if members is None:
        return None
    name, _, rest = path.partition(".")
    return _field_of(members.get(name), rest) if rest else members.get(name)


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
        if list(direction) == ["$meta"] and direction["$meta"] != "textScore":
            raise refusal(31138, f"Illegal $meta sort: {path}: {shell_text(direction)}")
        if direction != {"$meta": "textScore"}:
            raise refusal(17312, f"$meta is the only expression supported by $sort right now: {shell_text(direction)}")
        if not has_text:
            raise refusal(40218, "query requires text score metadata, but it is not available")
        return SortField(path, True, is_score=True)
    if not is_number(direction):
        raise refusal(15974, f"Illegal key in $sort specification: {path}: {shell_text(direction)}")
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
        rows = _rows(document, parts, key)
        if turned:
            rows = [_turned(row, turned) for portion in portions(rows) for row in portion]
        return rows[0] if len(rows) == 1 else _extreme(rows, min)

    return of_document


def _extreme(rows: list[Any], choose: Callable[[Iterable[Any]], Any]) -> Any:
    """The least or the greatest of the rows."""
    return choose([choose(portion) for portion in portions(rows, 3)])


def _turned(row: tuple[Key, ...], places: list[int]) -> tuple[Any, ...]:
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
        return _extreme(_rows(document, parts, key), min)[0]

    def descending(document: Document) -> Any:
        if name:
            value = document.get(name)
            if type(value) is not list:
                return Descending(key(value))
        return Descending(_extreme(_rows(document, parts, key), max)[0])

    return descending if field.is_descending else ascending


# The values of several paths as rows, one for each element of the array that they share, as in a compound index.


def _rows(document: Document, parts: tuple[Parts, ...], key: Callable[[Any], Key]) -> list[tuple[Key, ...]]:
    try:
        rows = rows_of(document, parts)
    except Failure:
        raise bad_value("cannot sort with keys that are parallel arrays") from None
    keys: list[tuple[Key, ...]] = []
    for first in range(0, len(rows), _STRIDE):
        spend(6 * min(_STRIDE, len(rows) - first) * len(parts))
        keys += [tuple([_key(value, key) for value in row]) for row in rows[first : first + _STRIDE]]
    return keys


def _key(value: Any, key: Callable[[Any], Key]) -> Key:
    if value is MISSING:
        return _NULL
    return _EMPTY if value is EMPTY else key(value)


# Bounds.


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """`min` and `max` of a find: documents from one key of an index to before another."""

    pattern: Document  # the key of the index
    least: Document  # by path; empty: none
    most: Document

    def test(self) -> Callable[[Document], bool]:
        order = compile_sort(self.pattern, None)
        assert order is not None, "an index has a field"
        key = order.key
        low = key(_nested(self.least)) if self.least else None
        high = key(_nested(self.most)) if self.most else None
        if low is not None and high is not None and not low < high:
            raise refusal(51175, "max must be greater than min")

        def is_within(document: Document) -> bool:
            place = key(document)
            return (low is None or not place < low) and (high is None or place < high)

        return is_within


def _nested(values: Document) -> Document:
    document: Document = {}
    for path, value in values.items():
        *above, last = path.split(".")
        place = document
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    return document
