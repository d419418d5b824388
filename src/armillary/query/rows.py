"""Rows as JSON text. One row may hold a long value many times over, so rows that may be large are weighed before they
are written, and written piece by piece.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.model.values import weight
from armillary.work import make, spend

_PIECE_BYTES: Final = 256 * limits.KB  # of memory that a piece takes, about
_UNIT_BYTES: Final = 100  # of text for one unit of work


def dump_large(row: Any) -> bytes:
    """The JSON text of a row that may be too large to be written at once; refused if it is too large to be answered."""
    kind = row.__class__
    if kind is not dict and kind is not list:
        return orjson.dumps(row)
    size_bytes = weight(row)
    if size_bytes <= _PIECE_BYTES:
        return orjson.dumps(row)
    make(size_bytes)
    writer = _Writer()
    writer.write(row)
    return b"".join(writer.parts)


class _Writer:
    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._size_bytes = 0

    def write(self, value: Any) -> None:
        """Write a value of which it is known that it is large."""
        if value.__class__ is list:
            self._add(b"[")
            self._write_elements(value)
            self._add(b"]")
        elif value.__class__ is dict:
            mark = b"{"
            for name, inner in value.items():
                self._add(mark + orjson.dumps(name) + b":")
                mark = b","
                self._write_one(inner)
            self._add(b"}")
        else:
            self._add(orjson.dumps(value))

    def _write_one(self, value: Any) -> None:
        if weight(value) <= _PIECE_BYTES:
            self._add(orjson.dumps(value))
        else:
            self.write(value)

    def _write_elements(self, values: list[Any]) -> None:
        batch: list[Any] = []
        batch_bytes = 0
        is_first = True
        for value in values:
            size_bytes = weight(value)
            if batch and batch_bytes + size_bytes > _PIECE_BYTES:
                self._add(b"" if is_first else b",", orjson.dumps(batch)[1:-1])
                batch, batch_bytes, is_first = [], 0, False
            if size_bytes > _PIECE_BYTES:
                self._add(b"" if is_first else b",")
                self.write(value)
                is_first = False
            else:
                batch.append(value)
                batch_bytes += size_bytes
        if batch:
            self._add(b"" if is_first else b",", orjson.dumps(batch)[1:-1])

    def _add(self, *parts: bytes) -> None:
        for part in parts:
            self.parts.append(part)
            self._size_bytes += len(part)
            spend(len(part) // _UNIT_BYTES)
        if self._size_bytes > limits.QUERY_ROW_BYTES_MAX:
            raise Failure(
                Kind.TOO_LARGE,
                f"A row of the answer has more than {limits.QUERY_ROW_BYTES_MAX // limits.MB} MB. Select less of the "
                "item, or let JOIN give the elements of an array as rows of their own.",
            )
