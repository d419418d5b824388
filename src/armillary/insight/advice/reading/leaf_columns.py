"""Items taken apart into columns: for each scalar path the values of a batch of items, with a digest of eight bytes for
each. The digest is the beginning of the partition-key hash (V2) that the value would have, so that the partition of a
value is known where only its digest was kept.

Names and nesting come from foreign files: depth and number of paths are bounded, and what is beyond is counted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from armillary.errors import Failure
from armillary.limits import KEY_BYTES_MAX
from armillary.model.items import SYSTEM_PROPERTIES
from armillary.model.keys import PartitionKeyDefinition, hash_v2, parse_path

Steps = tuple[str, ...]
Digests = NDArray[np.uint64]

DEPTH_MAX: Final = 5
NODES_MAX: Final = 2_000  # paths of all kinds that are told apart
MISSING: Final = 0  # in place of a digest. A real hash is 0 once in 2 ** 62 values
_CACHED_MAX: Final = 4_096  # values of one path whose digests are remembered
_CACHED_CHARACTERS: Final = 64
_KEY: Final = PartitionKeyDefinition(("/key",))
_PLAIN_NAME: Final = re.compile(r"[^\s*?/\"'\[\]\\]+")


def digest_of(value: Any) -> bytes:
    """Of a scalar: the first eight bytes of its effective partition key."""
    return hash_v2(_KEY.component(value))[:8]


def digest_number(value: Any) -> int:
    return int.from_bytes(digest_of(value), "big")


class _TextDigests(dict[str, bytes]):
    """Digests of texts. Remembers those of short values, of which some paths have few."""

    oversized = 0

    def __missing__(self, text: str) -> bytes:
        # Not by key_of_parts, which refuses a value that is too long for a key.
        digest = hash_v2(text)[:8]
        if len(text) <= _CACHED_CHARACTERS:
            if len(self) < _CACHED_MAX:
                self[text] = digest
        elif len(text) > KEY_BYTES_MAX // 4 and len(text.encode()) > KEY_BYTES_MAX:
            self.oversized += 1
        return digest


class _NumberDigests(dict[float, bytes]):
    """Digests of numbers: equal ones are one key, whatever their type."""

    def __missing__(self, number: float) -> bytes:
        digest = digest_of(number)
        if len(self) < _CACHED_MAX:
            self[number] = digest
        return digest


_TRUE, _FALSE = digest_of(True), digest_of(False)


class Column:
    """The values at one path in the items of a batch. What it counts is of all batches."""

    __slots__ = (
        *("_numbers", "_texts", "below", "is_kept", "nulls", "numbers", "objects", "rows", "steps", "truths"),
        "values",
    )

    def __init__(self, steps: Steps, *, is_kept: bool = True) -> None:
        self.steps = steps
        self.is_kept = is_kept  # False: its values are not looked at
        self.below: dict[str, Column] = {}
        self.rows: list[int] = []
        self.values: list[Any] = []  # texts, numbers and truth values
        self.nulls = self.objects = 0  # arrays count as objects
        self.numbers = self.truths = 0
        self._texts, self._numbers = _TextDigests(), _NumberDigests()

    @property
    def oversized(self) -> int:
        """Texts that are too long for a key."""
        return self._texts.oversized

    def digests(self) -> Digests:
        """Of the batch's values, in their order."""
        texts = self._texts
        before = self.numbers, self.truths
        try:
            found = [texts[value] if type(value) is str else self._of_other(value) for value in self.values]
        except (Failure, UnicodeEncodeError):  # a lone surrogate, or a number beyond doubles: no key may hold them
            self.numbers, self.truths = before
            found = [self._of_any(value) for value in self.values]
        return np.frombuffer(b"".join(found), dtype=">u8").astype(np.uint64)

    def _of_other(self, value: Any) -> bytes:
        if type(value) is bool:
            self.truths += 1
            return _TRUE if value else _FALSE
        self.numbers += 1
        return self._numbers[value]

    def _of_any(self, value: Any) -> bytes:
        try:
            return self._texts[value] if type(value) is str else self._of_other(value)
        except (Failure, UnicodeEncodeError):
            return digest_of(value.encode("utf-8", "replace").decode() if type(value) is str else str(value))

    def clear(self) -> None:
        self.rows, self.values = [], []


class Columns:
    """A tree of columns that items are added to, one batch after the other."""

    def __init__(self, named: Collection[Steps] = ()) -> None:
        """`named`: paths that are looked at however many others there are."""
        self.root = Column(())
        self.count = 0
        # Properties that were not looked at, and the first of them.
        self.too_deep, self.too_many = 0, 0
        self.first_too_deep: Steps = ()
        self.first_too_many: Steps = ()
        self._named = {steps[:length] for steps in named for length in range(1, len(steps) + 1)}
        self._kept: Collection[Steps] | None = None  # None: not chosen yet

    def add(self, row: int, document: Mapping[str, Any]) -> None:
        self._walk(self.root, document, row, 1)

    def _walk(self, node: Column, document: Mapping[str, Any], row: int, depth: int) -> None:
        below = node.below
        for name, value in document.items():
            column = below.get(name)
            if column is None:
                column = self._new(node, name, depth)
                if column is None:
                    continue
            kind = type(value)
            if kind is str or kind is int or kind is bool or kind is float:
                if column.is_kept:
                    column.rows.append(row)
                    column.values.append(value)
            elif value is None:
                column.nulls += 1
            else:
                column.objects += 1
                if kind is dict and depth < DEPTH_MAX:
                    self._walk(column, value, row, depth + 1)
                elif kind is dict and value:
                    self.too_deep += 1
                    self.first_too_deep = self.first_too_deep or column.steps

    def _new(self, node: Column, name: str, depth: int) -> Column | None:
        if depth == 1 and name in SYSTEM_PROPERTIES:
            return None
        steps = (*node.steps, name)
        if self.count >= NODES_MAX and steps not in self._named:
            self.too_many += 1
            self.first_too_many = self.first_too_many or steps
            return None
        self.count += 1
        is_kept = self._kept is None or steps in self._kept
        column = node.below[name] = Column(steps, is_kept=is_kept)
        return column

    def keep_only(self, paths: Collection[Steps]) -> None:
        """From now on look at the values of these paths alone: with thousands of others a batch would be large."""
        self._kept = paths
        for column in self:
            column.is_kept = column.steps in paths

    def __iter__(self) -> Iterator[Column]:
        """All columns below the root, parents first."""
        pending = list(self.root.below.values())
        while pending:
            column = pending.pop(0)
            yield column
            pending += column.below.values()

    def clear(self) -> None:
        for column in self:
            column.clear()


def path_of(steps: Steps) -> str | None:
    """A path as partition keys are defined; None: it cannot be written so that it is read as the same names."""
    parts = [name if _PLAIN_NAME.fullmatch(name) else f'"{name}"' for name in steps]
    text = "/" + "/".join(parts)
    if not all(steps):
        return None
    try:
        return text if parse_path(text) == steps else None
    except Failure:
        return None
