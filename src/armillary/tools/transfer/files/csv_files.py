"""CSV files as sources and sinks, with types. A cell that reads as JSON is that (12, 1.5, true, null, {"a": 1}, "12"),
an empty one is a property that is not there, everything else is text; so 007 and 12:30 stay text, and what is exported
is what is imported again. Columns are the first line's names, a name with slashes (/address/city) a property inside.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import orjson

from armillary.errors import bad_request
from armillary.model.keys import parse_path
from armillary.tools.transfer.files.json_files import FileReading, FileWriting
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
from armillary.tools.transfer.transforms import put

_ID: Final = ("id",)
_DELIMITERS: Final = (",", ";", "\t", "|")
_QUOTED: Final = re.compile(r'"(?:[^"]|"")*"?')
_CELL_CHARACTERS_MAX: Final = 16 * 1024 * 1024  # as many as a line of JSON may have
_JSON: Final = re.compile(r'-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?|true|false|null|[\[{"].*', re.DOTALL)


class CsvSource:
    def __init__(self, path: Path | None, *, is_text: bool, delimiter: str | None = None) -> None:
        """`is_text`: every cell is text, whatever it looks like. `delimiter` None: as the first line says."""
        self._file = FileReading(path)
        self._delimiter = delimiter
        self._is_text = is_text
        self.identity = self._file.identity

    async def pages(self, position: Position | None) -> AsyncIterator[Page]:
        skipped = position["row"] if position else 0
        text = io.TextIOWrapper(self._file.stream, "utf-8-sig", newline="")
        csv.field_size_limit(_CELL_CHARACTERS_MAX)  # 131,072 by itself, and items may have longer texts
        lines = csv.reader(text, strict=True, delimiter=self._delimiter or _sniffed(self._file.first_bytes))
        try:
            names = next(lines, None)
            if not names or len(set(names)) != len(names) or not all(names):
                raise bad_request("The first line of a CSV file must name its columns, each differently.")
            paths = [parse_path(name) if name.startswith("/") else (name,) for name in names]
            rows: list[Row | BadRow] = []
            number = page_bytes = 0
            for cells in lines:
                if not cells:
                    continue
                number += 1
                if number <= skipped:
                    continue
                rows.append(self._row(number, paths, cells))
                page_bytes += sum(map(len, cells)) + CELL_BYTES * len(cells)
                if len(rows) == PAGE_ROWS or page_bytes >= PAGE_BYTES:
                    yield Page(rows, {"row": number}, self._file.share)
                    rows, page_bytes = [], 0
            if rows:
                yield Page(rows, {"row": number}, 1.0)
        except (csv.Error, UnicodeDecodeError) as error:
            raise bad_request(f"Line {lines.line_num} of the CSV file cannot be read: {error}.") from None
        finally:
            text.detach()

    def _row(self, number: int, paths: list[tuple[str, ...]], cells: list[str]) -> Row | BadRow:
        if len(cells) != len(paths):
            return bad_row(number, f"It has {len(cells)} cells for {len(paths)} columns.", cells)
        document: Document = {}
        for path, cell in zip(paths, cells, strict=True):
            if not cell:
                continue
            value = cell if self._is_text else _value(cell)
            if path == _ID and not isinstance(value, str):
                value = cell  # an id is always a string, also if it looks like a number
            try:
                put(document, path, value)
            except ValueError as error:
                return bad_row(number, f"{error}.", cells)
        return Row(number, document)

    async def close(self) -> None:
        self._file.close()


class CsvSink:
    """The columns are those of the first items; a property that comes later and has no column makes a bad row."""

    is_ordered = True
    rows_ahead = 0

    def __init__(self, path: Path | None, delimiter: str = ",") -> None:
        self._file = FileWriting(path)
        self._delimiter = delimiter
        self._names: list[str] = []
        self.is_resumable = path is not None

    async def open(self, position: Position | None) -> None:
        self._file.open(position["bytes"] if position else None)
        self._names = position["names"] if position else []

    async def write(self, rows: list[Row]) -> Written:
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=self._delimiter)
        if not self._names and rows:
            self._names = list(dict.fromkeys(name for row in rows for name in row.document))
            writer.writerow([_column(name) for name in self._names])
        known = set(self._names)
        bad: list[BadRow] = []
        written = 0
        for row in rows:
            unknown = sorted(row.document.keys() - known)
            if unknown:
                bad.append(bad_row(row.number, f"There is no column for '{unknown[0]}'.", row.document))
                continue
            try:
                cells = [_cell(row.document[name]) if name in row.document else "" for name in self._names]
            except TypeError as error:
                bad.append(bad_row(row.number, f"It cannot be written as JSON: {error}.", row.document))
                continue
            writer.writerow(cells)
            written += 1
        self._file.write(out.getvalue().encode())
        return Written(written, 0.0, bad)

    def position(self) -> Position:
        return {"bytes": self._file.synced_bytes(), "names": self._names}

    async def close(self, *, is_complete: bool) -> None:
        self._file.close()


def _sniffed(beginning: bytes) -> str:
    """The delimiter that the line of column names has most of, outside of quotes."""
    line = beginning.decode("utf-8", "replace").lstrip("\ufeff\r\n").partition("\n")[0]
    bare = _QUOTED.sub("", line)
    return max(_DELIMITERS, key=bare.count)  # a comma if there is none of them


def _value(cell: str) -> Any:
    if _JSON.fullmatch(cell):
        try:
            return orjson.loads(cell)
        except ValueError:
            pass
    return cell


def _cell(value: Any) -> str:
    if isinstance(value, str) and value and not _JSON.fullmatch(value):
        return value
    return orjson.dumps(value).decode()


def _column(name: str) -> str:
    """A property whose name looks like a path is quoted as one."""
    return f'/"{name}"' if name.startswith("/") else name
