"""What sources give and sinks take: numbered rows, bad rows with the reason, and pages with the position after them.
Each format has its module under `files/` or `endpoints/`; `pipeline.py` moves the rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import orjson

Position: TypeAlias = Any  # JSON; only the source that gave it interprets it
Document: TypeAlias = dict[str, Any]

EXCERPT_CHARACTERS = 2000
PAGE_ROWS = 1000
PAGE_BYTES = 2 * 1024 * 1024  # as they are in the source: fewer rows make a page if they are large
CELL_BYTES = 16  # that a cell of a table counts for besides its text


class Row(NamedTuple):
    number: int  # in the source, from 1
    document: Document
    text: bytes | None = None  # the JSON that it came as, if it is still that


class BadRow(NamedTuple):
    number: int
    reason: str
    excerpt: str

    def to_json(self) -> bytes:
        return orjson.dumps({"row": self.number, "reason": self.reason, "content": self.excerpt}) + b"\n"


class Page(NamedTuple):
    """What is read, written and remembered together."""

    rows: Sequence[Row | BadRow]
    position: Position  # behind its rows
    share: float | None  # of the source that has been read by then, where that is known
    charge_ru: float = 0.0  # of reading it


class Written(NamedTuple):
    rows: int
    charge_ru: float  # of what was written
    bad: list[BadRow]
    refused: int = 0  # operations that were refused for lack of throughput, and repeated
    refused_ru: float = 0.0  # what the refusals were charged
    without_key: int = 0  # rows without a value at the partition key


class Source(Protocol):
    identity: Document  # tells whether it is still the same one when a run is resumed

    def pages(self, position: Position | None) -> AsyncIterator[Page]: ...

    async def close(self) -> None: ...


class Sink(Protocol):
    # Whether pages must come one after the other: a file. Else several are written at once.
    is_ordered: bool
    # Whether a run can go on where it stopped; a form that has to be written in one go cannot.
    is_resumable: bool
    # Of pages that are not complete yet, what is done already, for the display of progress.
    rows_ahead: int

    async def open(self, position: Position | None) -> None: ...

    async def write(self, rows: list[Row]) -> Written: ...

    def position(self) -> Position:
        """How far it has got, once that is safe."""
        ...

    async def close(self, *, is_complete: bool) -> None: ...


def bad_row(number: int, reason: str, content: object) -> BadRow:
    if isinstance(content, bytes):
        text = content.decode("utf-8", "replace")
    elif isinstance(content, str):
        text = content
    else:
        try:
            text = orjson.dumps(content, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        except TypeError:
            text = repr(content)
    return BadRow(number, reason[:1].upper() + reason[1:], text[:EXCERPT_CHARACTERS])


def json_text(row: Row) -> bytes:
    """A row as JSON; raises ValueError for what JSON cannot carry."""
    if row.text is not None:
        return row.text
    try:
        return orjson.dumps(row.document)
    except TypeError as error:
        raise ValueError(f"it cannot be written as JSON: {error}") from None
