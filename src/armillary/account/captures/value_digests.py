"""Keyed digests of values: equal values of one capture have equal digests, and no value can be computed from its digest
without the capture's secret. Also the leaves of an item: the digests of its scalar values by their paths.

A digest is that of `canonical(value)`: a letter for the type and the value's bytes. Numbers are equal by value, as in
filters: 1 is 1.0 and -0.0 is 0.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId

from armillary import limits
from armillary.model.bson.bson_values import to_decimal
from armillary.model.indexes.index_paths import step_text
from armillary.model.values import UNDEFINED, as_double

SECRET_BYTES: Final = 32
_DIGEST_BYTES: Final = 8
_CACHED_MAX: Final = 16_384  # texts whose digests are remembered: keys come again and again
_CACHED_CHARACTERS_MAX: Final = 64
# Tuples, since a union is made anew at each use.
_NUMBERS: Final = (int, float)
_CONTAINERS: Final = (dict, list)
_DOUBLE: Final = struct.Struct(">d")
# Of an item as it is stored; its system properties are not the application's.
_SYSTEM: Final = frozenset(("_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"))


def canonical(value: Any) -> bytes:
    """The bytes that a value's digest is made of."""
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if value is None:
        return b"n"
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, _NUMBERS):
        return b"#" + _DOUBLE.pack(as_double(value) + 0.0)
    if value is UNDEFINED:
        return b"u"
    return _canonical_bson(value)


def _canonical_bson(value: Any) -> bytes:
    if isinstance(value, ObjectId):
        return b"o" + value.binary
    if isinstance(value, Decimal128):
        return b"#" + _DOUBLE.pack(float(to_decimal(value)) + 0.0)
    if isinstance(value, DatetimeMS | datetime):
        moment = value if isinstance(value, DatetimeMS) else DatetimeMS(value)
        return b"d%d" % int(moment)
    if isinstance(value, bytes):
        return b"b" + value
    return b"x" + repr(value).encode("utf-8", "surrogatepass")


class Digests:
    """The digests of one capture."""

    def __init__(self, secret: bytes) -> None:
        self._keyed = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=secret)
        self._known: dict[str, str] = {}

    def of(self, value: Any) -> str:
        """16 hexadecimal digits."""
        if type(value) is not str or len(value) > _CACHED_CHARACTERS_MAX:
            return self._made(canonical(value))
        found = self._known.get(value)
        if found is None:
            if len(self._known) >= _CACHED_MAX:
                self._known.clear()
            found = self._known[value] = self._made(canonical(value))
        return found

    def _made(self, content: bytes) -> str:
        hashed = self._keyed.copy()
        hashed.update(content)
        return hashed.hexdigest()


def leaves(document: Mapping[str, Any], always: Sequence[tuple[str, tuple[str, ...]]]) -> Iterator[tuple[str, Any]]:
    """The scalar values of an item with their paths, outside arrays, as deep and as many as a capture keeps. `always`:
    the paths, as texts and steps, that come first: those of the partition key."""
    seen: set[str] = set()
    for path, steps in always:
        value = _at(document, steps)
        if is_scalar(value):
            seen.add(path)
            yield path, value
    for found, value in islice(_walk(document, "", 1), limits.CAPTURE_MEMBERS_MAX):
        if found is not None and found not in seen:
            if len(seen) >= limits.CAPTURE_LEAVES_MAX:
                return
            seen.add(found)
            yield found, value


def _walk(node: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str | None, Any]]:
    """All members in the order of the item, down to the depth that a capture looks at; those that are no leaf have no
    path."""
    for name, value in node.items():
        if isinstance(value, dict) and depth < limits.CAPTURE_LEAF_DEPTH_MAX:
            yield None, None
            yield from _walk(value, _joined(prefix, name), depth + 1)
        elif is_scalar(value) and not (depth == 1 and name in _SYSTEM):
            yield _joined(prefix, name), value
        else:
            yield None, None


@lru_cache(4096)
def _joined(prefix: str, name: str) -> str:
    return f"{prefix}/{step_text(name)}"


def _at(document: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        document = document.get(step, UNDEFINED) if isinstance(document, Mapping) else UNDEFINED
    return document


def is_scalar(value: Any) -> bool:
    return value is not UNDEFINED and not isinstance(value, _CONTAINERS)
