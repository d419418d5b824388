"""Rows as JSON text. One row may contain a long value many times, so the size of a row that may be large is estimated
before it is written, and it is written in pieces.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from armillary import limits
from armillary.errors import computed_too_large
from armillary.model.values import weight
from armillary.work import make, spend

_PIECE_BYTES: Final = 256 * limits.KB  # of memory that a piece takes, about
_UNIT_BYTES: Final = 100  # of text for one unit of work


def dump_large(row: Any) -> bytes:
    """The JSON text of a row that may be too large to be written at once; refused if it is too large to be answered."""
    kind = row.__class__
    if kind is not dict and kind is not list:
        return orjson.dumps(row)
    if weight(row) <= _PIECE_BYTES:
        return orjson.dumps(row)
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
            self._write_list(value)
        elif value.__class__ is dict:
            self._write_dict(value)
        else:
            self._add(orjson.dumps(value))

    def _write_list(self, values: list[Any]) -> None:
        mark = b"["
        batch: list[Any] = []
        batch_bytes = 0
        for value in values:
            size_bytes = weight(value)
            if batch and batch_bytes + size_bytes > _PIECE_BYTES:
                self._add(mark, orjson.dumps(batch)[1:-1])
                batch, batch_bytes, mark = [], 0, b","
            if size_bytes > _PIECE_BYTES:
                self._add(mark)
                self.write(value)
                mark = b","
            else:
                batch.append(value)
                batch_bytes += size_bytes
        self._add(mark if batch or not values else b"", orjson.dumps(batch)[1:-1], b"]")

    def _write_dict(self, values: dict[str, Any]) -> None:
        mark = b"{"
        batch: dict[str, Any] = {}
        batch_bytes = 0
        for name, value in values.items():
            size_bytes = weight(value) + len(name)
            if batch and batch_bytes + size_bytes > _PIECE_BYTES:
                self._add(mark, orjson.dumps(batch)[1:-1])
                batch, batch_bytes, mark = {}, 0, b","
            if size_bytes > _PIECE_BYTES:
                self._add(mark, orjson.dumps(name), b":")
                self.write(value)
                mark = b","
            else:
                batch[name] = value
                batch_bytes += size_bytes
        self._add(mark if batch or not values else b"", orjson.dumps(batch)[1:-1], b"}")

    def _add(self, *parts: bytes) -> None:
        for part in parts:
            self.parts.append(part)
            self._size_bytes += len(part)
            make(len(part))  # the text alone: the values are there, perhaps one of them many times in the row
            spend(len(part) // _UNIT_BYTES)
        if self._size_bytes > limits.QUERY_ROW_BYTES_MAX:
            raise computed_too_large(
                f"A row of the answer has more than {limits.QUERY_ROW_BYTES_MAX // limits.MB} MB. Select less of the "
                "item, or let JOIN give the elements of an array as rows of their own.",
            )
