"""Parquet files as sources and sinks, by pyarrow, which is an extra of the installation: `armillary[parquet]`. The
columns of what is written are worked out from the first items; the file is written in one go, so such an export begins
anew when it was interrupted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

import orjson

from armillary.errors import Failure, Kind, bad_request
from armillary.storage.private import open_file
from armillary.tools.transfer.files.plain_values import plain
from armillary.tools.transfer.rows import (
    CELL_BYTES,
    PAGE_BYTES,
    PAGE_ROWS,
    BadRow,
    Document,
    Page,
    Position,
    Row,
    Written,
    bad_row,
)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise Failure(
            Kind.UNSUPPORTED, "Parquet needs pyarrow, which is not installed: pip install 'armillary[parquet]'."
        ) from None
    return pyarrow, parquet


class ParquetSource:
    def __init__(self, path: Path) -> None:
        self._arrow, parquet = _pyarrow()
        arrow = self._arrow
        try:
            self._file = parquet.ParquetFile(path)
            # Python's moments have microseconds.
            fields = [field.with_type(self._coarse(field.type)) for field in self._file.schema_arrow]
            self._schema = arrow.schema(fields)
            self.identity: Document = {"file": str(path.resolve()), "bytes": path.stat().st_size}
        except OSError as error:
            raise bad_request(f"{path} cannot be read: {error.strerror or error}.") from None
        except arrow.ArrowInvalid as error:
            raise bad_request(f"{path} is no Parquet file: {error}") from None

    async def pages(self, position: Position | None) -> AsyncIterator[Page]:
        number = 0
        skipped = position["row"] if position else 0
        total = self._file.metadata.num_rows
        columns = max(1, self._file.metadata.num_columns)
        page_rows = max(1, min(PAGE_ROWS, PAGE_BYTES // (CELL_BYTES * columns)))
        for batch in self._file.iter_batches(batch_size=page_rows):
            if number + batch.num_rows <= skipped:
                number += batch.num_rows
                continue
            rows: list[Row | BadRow] = []
            for values in self._arrow.Table.from_batches([batch]).cast(self._schema, safe=False).to_pylist():
                number += 1
                if number > skipped:
                    rows.append(_row(number, values))
            yield Page(rows, {"row": number}, number / total if total else 1.0)

    def _coarse(self, kind: Any) -> Any:
        """The same type with microseconds in the place of nanoseconds, also inside."""
        types = self._arrow.types
        if types.is_timestamp(kind) and kind.unit == "ns":
            return self._arrow.timestamp("us", tz=kind.tz)
        if types.is_time64(kind):
            return self._arrow.time64("us")
        if types.is_duration(kind) and kind.unit == "ns":
            return self._arrow.duration("us")
        if types.is_struct(kind):
            return self._arrow.struct([each.with_type(self._coarse(each.type)) for each in kind])
        if types.is_list(kind) or types.is_large_list(kind):
            make = self._arrow.list_ if types.is_list(kind) else self._arrow.large_list
            return make(kind.value_field.with_type(self._coarse(kind.value_type)))
        return kind

    async def close(self) -> None:
        self._file.close()


def _row(number: int, values: dict[str, Any]) -> Row | BadRow:
    # A column that has no value in a row is a property that is not there.
    return Row(number, {name: plain(value) for name, value in values.items() if value is not None})


class ParquetSink:
    is_ordered = True
    rows_ahead = 0
    is_resumable = False

    def __init__(self, path: Path) -> None:
        self._arrow, self._parquet = _pyarrow()
        self._path = path
        self._writer: Any = None
        self._stream: IO[bytes] | None = None
        self._schema: Any = None
        self._json_columns: set[str] = set()

    async def open(self, position: Position | None) -> None:
        assert position is None
        if not self._path.parent.is_dir():
            raise bad_request(f"{self._path} cannot be written: there is no such directory.")

    async def write(self, rows: list[Row]) -> Written:
        if self._writer is None and rows:
            self._schema = self._columns([row.document for row in rows])
            self._writer = self._parquet.ParquetWriter(self._file(), self._schema)
        bad: list[BadRow] = []
        documents: list[Document] = []
        for row in rows:
            try:
                documents.append(self._fitted(row.document))
            except (self._arrow.ArrowException, TypeError, ValueError) as error:
                bad.append(bad_row(row.number, f"It does not fit the columns: {error}", row.document))
        if documents:
            self._writer.write_table(self._arrow.Table.from_pylist(documents, schema=self._schema))
        return Written(len(documents), 0.0, bad)

    def _columns(self, documents: list[Document]) -> Any:
        """Of one type each; those whose values have none in common hold JSON."""
        fields = []
        for name in dict.fromkeys(name for document in documents for name in document):
            try:
                kind = self._arrow.array([document.get(name) for document in documents]).type
            except (self._arrow.ArrowException, TypeError, OverflowError):
                kind = self._arrow.string()
                self._json_columns.add(name)
            fields.append(self._arrow.field(name, kind))
        return self._arrow.schema(fields)

    def _fitted(self, document: Document) -> Document:
        unknown = sorted(document.keys() - set(self._schema.names))
        if unknown:
            raise ValueError(f"there is no column for '{unknown[0]}'.")
        fitted = {
            name: orjson.dumps(value).decode() if name in self._json_columns and value is not None else value
            for name, value in document.items()
        }
        for name, value in fitted.items():
            self._arrow.scalar(value, type=self._schema.field(name).type)  # raises if it is of another type
        return fitted

    def position(self) -> Position:
        return None

    async def close(self, *, is_complete: bool) -> None:
        if self._writer is None and is_complete:
            self._writer = self._parquet.ParquetWriter(self._file(), self._arrow.schema([]))
        if self._writer is not None:
            self._writer.close()
        if self._stream is not None:
            self._stream.close()

    def _file(self) -> IO[bytes]:
        try:
            self._stream = open_file(self._path, "wb")
        except OSError as error:
            raise bad_request(f"{self._path} cannot be written: {error.strerror}.") from None
        return self._stream
