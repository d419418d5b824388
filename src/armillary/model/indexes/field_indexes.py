"""Indexes of MongoDB collections: the keys of a document in each, as bytes in the order of BSON values. They are terms
of an item like those of an indexing policy, with the index's name in place of a path. `query` chooses an index for a
filter or sort, `languages/mongo` validates definitions.

Where a path goes through an array a document has a key for each element, and a further term marks it as multikey; paths
through two different arrays cannot be indexed together. A missing field counts as null. Long keys are truncated, so a
filter must check the document too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef

from armillary import limits, work
from armillary.errors import Failure, Kind, Reason
from armillary.model.bson.bson_order import EMPTY_BYTES, NULL_BYTES, inverted, order_bytes
from armillary.model.bson.bson_values import MISSING, Document, is_number, to_decimal

KEYS_NAME: Final = "keys:"  # begins the index name, which stands in place of a path
SEVERAL_NAME: Final = "several:"
SEVERAL_TERM: Final = b"\x01"
WILDCARD: Final = "$**"
_DIGEST_MARK: Final = b"\xff"
_DIRECTIONS: Final = (1, -1, "hashed")

Parts = tuple[str, ...]
Terms = list[tuple[str, bytes]]
SpecialKeys = Callable[[Document], Sequence[bytes]]
Requirements = tuple[tuple[str, tuple[tuple[bytes, bytes], ...]], ...]


@dataclass(frozen=True, slots=True)
class FieldIndex:
    name: str
    fields: tuple[tuple[str, bool], ...]  # dotted paths, and whether each descends; empty: it has no keys
    wildcard: str | None = None  # a wildcard index on everything below this path; "" for all
    is_unique: bool = False
    is_sparse: bool = False
    slot: int = 0  # of a unique index: the constraint number of its values
    keeps: Callable[[Document], bool] | None = None  # the filter of a partial index
    expires_after_s: int | None = None
    # Of a partial index: a document with a key in one of these ranges of each of these fields is in the index. None:
    # keys cannot decide it.
    requires: Requirements | None = None
    special: SpecialKeys | None = None  # the keys of a text or geospatial index
    # Of a unique index with a collation: the document with equal strings made identical.
    folds: Callable[[Document], Document] | None = None
    is_hashed: bool = False  # a hashed index: it refuses arrays

    @classmethod
    def parse(
        cls,
        definition: Mapping[str, Any],
        slot: int = 0,
        keeps: Callable[[Document], bool] | None = None,
        requires: Requirements | None = None,
        special: tuple[str, SpecialKeys] | None = None,
        folds: Callable[[Document], Document] | None = None,
    ) -> FieldIndex:
        """From a validated definition. For text and geospatial indexes the caller passes their name and key
        function."""
        key: Mapping[str, Any] = definition["key"]
        fields: tuple[tuple[str, bool], ...] = ()
        wildcard = None
        names = list(key)
        if special is not None:
            fields = ((special[0], False),)
        elif len(names) == 1 and (names[0] == WILDCARD or names[0].endswith(f".{WILDCARD}")):
            wildcard = names[0].removesuffix(WILDCARD).removesuffix(".")
        elif all(_direction(each) in _DIRECTIONS for each in key.values()):
            fields = tuple([(path, _direction(each) == -1) for path, each in key.items()])
        expires = definition.get("expireAfterSeconds")
        return cls(
            definition["name"],
            fields,
            wildcard,
            bool(definition.get("unique")),
            bool(definition.get("sparse")),
            slot,
            keeps,
            int(expires) if expires is not None and names != ["_ts"] else None,
            requires,
            special[1] if special is not None else None,
            folds,
            "hashed" in key.values(),
        )

    @property
    def term_name(self) -> str:
        return KEYS_NAME + self.name

    @property
    def several_name(self) -> str:
        return SEVERAL_NAME + self.name

    @property
    def is_complete(self) -> bool:
        """Whether every document is in it."""
        return not self.is_sparse and self.keeps is None and self.wildcard is None and self.special is None

    def terms(self, document: Document) -> Terms:
        keys = self._keys(document)
        name = self.term_name
        terms = (
            [(name, _cut(key)) for key in keys]
            if len(keys) == 1
            else [(name, _cut(key)) for key in work.paced(keys, 2)]
        )
        if len(keys) > 1 and self.wildcard is None:
            terms.append((self.several_name, SEVERAL_TERM))
            return work.unique(terms)  # long ones may be truncated alike
        return terms

    def unique_values(self, document: Document) -> list[bytes]:
        """The values that must be unique within the logical partition."""
        if not self.is_unique:
            return []
        keys = self._keys(document, self.folds)
        return [key if len(key) <= limits.FIELD_KEY_BYTES_MAX else _DIGEST_MARK + sha256(key).digest() for key in keys]

    def expires_s(self, document: Document) -> int | None:
        """When a document expires by its TTL field, at the earliest of several dates; None: never."""
        if self.expires_after_s is None:
            return None
        dates = [int(value) for value in _values(document, tuple(self.fields[0][0].split("."))) if _is_date(value)]
        return min(dates) // 1000 + self.expires_after_s if dates else None

    def _keys(self, document: Document, folds: Callable[[Document], Document] | None = None) -> list[bytes]:
        if self.keeps is not None and not self.keeps(document):
            return []
        if folds is not None:
            document = folds(document)
        if self.wildcard is not None:
            return work.unique(list(_everything(document, self.wildcard)))
        if not self.fields:
            return []
        if len(self.fields) == 1 and self.special is None:
            path, is_descending = self.fields[0]
            if "." not in path:
                value = document.get(path, MISSING)
                if type(value) is not list:
                    if value is MISSING and self.is_sparse:
                        return []
                    return [inverted(order_bytes(value)) if is_descending else order_bytes(value)]
        try:
            if self.special is not None:
                return [*self.special(document)]
            if self.is_hashed:
                for path, _ in self.fields:
                    _refuse_arrays(document, path)
            rows = rows_of(document, tuple([tuple(path.split(".")) for path, _ in self.fields]))
        except Failure as failure:
            failure.details = {**failure.details, "index": self.name}
            raise
        if self.is_sparse:
            rows = [row for row in work.paced(rows, 5) if any(value is not MISSING for value in row)]
        return work.unique([self._joined(row) for portion in work.portions(rows, 15) for row in portion])

    def _joined(self, row: tuple[Any, ...]) -> bytes:
        parts = []
        for value, (_, is_descending) in zip(row, self.fields, strict=True):
            part = EMPTY_BYTES if value is EMPTY else order_bytes(value)
            parts.append(inverted(part) if is_descending else part)
        return b"".join(parts)


class _Empty:
    """The value of an empty array."""


EMPTY: Final = _Empty()


def _direction(given: Any) -> Any:
    if isinstance(given, str):
        return given
    return 1 if is_number(given) and to_decimal(given) > 0 else -1


def _cut(key: bytes) -> bytes:
    """Truncate a key. No key is a prefix of another, so a truncated key sorts where the whole key does."""
    return key if len(key) < limits.FIELD_KEY_BYTES_MAX else key[: limits.FIELD_KEY_BYTES_MAX - 1] + b"\x01"


def cut_key(key: bytes) -> bytes:
    return _cut(key)


def is_cut_key(term: bytes) -> bool:
    return len(term) >= limits.FIELD_KEY_BYTES_MAX


def _is_date(value: Any) -> bool:
    return type(value) is DatetimeMS or (is_number(value) and to_decimal(value).is_finite())


# Values of paths, as an index holds them: one row for each element of the array that the paths share.


def rows_of(document: Document, paths: tuple[Parts, ...]) -> list[tuple[Any, ...]]:
    return _expanded([(place, rest, document) for place, rest in enumerate(paths)], [MISSING] * len(paths))


def _values(document: Document, path: Parts) -> Iterator[Any]:
    return (row[0] for row in rows_of(document, (path,)))


def _expanded(pending: list[tuple[int, Parts, Any]], found: list[Any]) -> list[tuple[Any, ...]]:
    waiting: list[tuple[int, Parts, list[Any]]] = []
    for place, rest, value in pending:
        rest, value = _followed(rest, value)
        if type(value) is list:
            waiting.append((place, rest, value))
        else:
            found[place] = value
    if not waiting:
        return [tuple(found)]
    array = waiting[0][2]
    if any(other is not array for _, _, other in waiting):
        raise Failure(Kind.BAD_REQUEST, "cannot index parallel arrays", details={"reason": Reason.PARALLEL_ARRAYS})
    if not array:
        for place, rest, _ in waiting:
            found[place] = MISSING if rest else EMPTY
        return [tuple(found)]
    rows: list[tuple[Any, ...]] = []
    for element in (element for portion in work.portions(array, 10) for element in portion):
        inner = list(found)
        deeper: list[tuple[int, Parts, Any]] = []
        for place, rest, _ in waiting:
            if rest:
                # Nested arrays are not unwound.
                deeper.append((place, rest, MISSING if type(element) is list else element))
            else:
                inner[place] = element
        rows.extend(_expanded(deeper, inner))
    return rows


def _followed(rest: Parts, value: Any) -> tuple[Parts, Any]:
    """Follow a path up to the first array whose elements it would have to choose among."""
    while rest:
        if type(value) is DBRef:
            value = dict(value.as_doc())
        if type(value) is dict:
            value = value.get(rest[0], MISSING)
        elif type(value) is list:
            if not _is_index(rest[0]):
                return rest, value
            index = int(rest[0])
            value = value[index] if index < len(value) else MISSING
        else:
            return (), MISSING
        rest = rest[1:]
    return rest, value


def _refuse_arrays(document: Document, path: str) -> None:
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if type(value) is dict else None
        if type(value) is list:
            raise Failure(
                Kind.BAD_REQUEST,
                f"hashed indexes do not currently support array values. Found array at path: {path}",
                details={"reason": Reason.HASHED_ARRAY},
            )


def _is_index(part: str) -> bool:
    return part.isdigit() and part.isascii() and (part[0] != "0" or part == "0") and len(part) < 10


# Wildcards.


def wildcard_prefix(path: str) -> bytes:
    """The prefix of a path's keys in a wildcard index."""
    return order_bytes(path)


def _everything(document: Document, root: str) -> Iterator[bytes]:
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        work.spend(10)
        path, value = waiting.pop()
        if type(value) is DBRef:
            value = dict(value.as_doc())
        if type(value) is dict and value:
            for name, each in value.items():
                below = f"{path}.{name}" if path else name
                if not root or below == root or below.startswith(f"{root}.") or root.startswith(f"{below}."):
                    waiting.append((below, each))
        elif root and path != root and not path.startswith(f"{root}."):
            continue
        elif type(value) is list:
            if not value:
                yield wildcard_prefix(path) + EMPTY_BYTES
            for each in value:
                if type(each) is list:
                    yield wildcard_prefix(path) + order_bytes(each)
                else:
                    waiting.append((path, each))
        elif path:
            yield wildcard_prefix(path) + (order_bytes(value) if value is not None else NULL_BYTES)
