"""Rows of a query as a table for people, as JSON lines or as CSV for programs. Rows are written page by page: memory
does not grow with their number. Standard output carries the rows; with JSON and CSV all else goes to standard error.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from armillary.errors import bad_request
from armillary.tools.screen import Screen, json_line

TABLE_PAGE_ROWS: Final = 100
LINES_PAGE_ROWS: Final = 1_000
_CELL_CHARACTERS_MAX: Final = 60
_SYSTEM: Final = ("_attachments", "_self", "_rid", "_etag", "_ts")
_VALUE: Final = "value"  # the column of rows that are no objects, as SELECT VALUE yields them


class RowOutput:
    """One run's output."""

    def __init__(self, form: str, screen: Screen) -> None:
        """`form`: table, json or csv."""
        self.form = form
        self._screen = screen
        self._columns: list[str] | None = None  # of CSV
        self.page_rows = TABLE_PAGE_ROWS if form == "table" else LINES_PAGE_ROWS

    def write(self, rows: Sequence[Any]) -> None:
        if not rows:
            return
        {"table": self._write_table, "json": self._write_lines, "csv": self._write_csv}[self.form](rows)

    def say(self, text: str) -> None:
        """What is no row."""
        if self.form == "table":
            self._screen.say(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def _write_lines(self, rows: Sequence[Any]) -> None:
        lines = [json_line(json.dumps(row, ensure_ascii=False, separators=(",", ":"))) for row in rows]
        print("\n".join(lines), flush=True)

    def _write_table(self, rows: Sequence[Any]) -> None:
        objects = [row if isinstance(row, dict) else {_VALUE: row} for row in rows]
        names = list(dict.fromkeys(name for each in objects for name in each))
        own = [name for name in names if name not in _SYSTEM]
        names = own or names  # stamps of the server are shown if the query selects nothing else
        numbers = {name for name in names if all(_is_number(each.get(name, 0)) for each in objects)}
        cells = [[_shown(each[name]) if name in each else "" for name in names] for each in objects]
        columns = [f">{name}" if name in numbers else name for name in names]
        # Those on the left are kept: a query names first what matters most.
        self._screen.table(columns, cells, drop=list(reversed(names[1:])))

    def _write_csv(self, rows: Sequence[Any]) -> None:
        objects = [row if isinstance(row, dict) else {_VALUE: row} for row in rows]
        out = io.StringIO(newline="")
        writer = csv.writer(out, lineterminator="\n")
        if self._columns is None:
            self._columns = list(dict.fromkeys(name for each in objects for name in each))
            writer.writerow(self._columns)
        known = set(self._columns)
        for each in objects:
            unknown = next((name for name in each if name not in known), None)
            if unknown is not None:
                print(out.getvalue(), end="", flush=True)
                raise bad_request(
                    f"A row has the property {unknown!r}, for which the first {LINES_PAGE_ROWS:,} rows gave no column. "
                    "Name the properties in SELECT, or use --output json."
                )
            writer.writerow([_cell(each[name]) if name in each else "" for name in self._columns])
        print(out.getvalue(), end="", flush=True)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    """Of CSV: text as it is, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _shown(value: Any) -> str:
    text = _cell(value)
    return text if len(text) <= _CELL_CHARACTERS_MAX else text[: _CELL_CHARACTERS_MAX - 1] + "…"
