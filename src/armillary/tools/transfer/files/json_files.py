"""JSON files as sources and sinks: one item a line (JSON Lines), or one array of items. Lines are found again by their
offset, elements of an array by counting. Compressed files (.gz) can be read, not written.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, NoReturn, cast

import orjson

from armillary.errors import Failure, bad_request
from armillary.storage.private import open_file
from armillary.tools.transfer.rows import (
    PAGE_BYTES,
    PAGE_ROWS,
    BadRow,
    Document,
    Page,
    Position,
    Row,
    Written,
    bad_row,
    json_text,
)

_READ_BYTES: Final = 512 * 1024
_ELEMENT_CHARACTERS_MAX: Final = 64 * 1024 * 1024
_LINE_BYTES_MAX: Final = 16 * 1024 * 1024  # an item has 2 MB at most
_BLANKS: Final = " \t\r\n"


class FileReading:
    """A file that is read, perhaps compressed, and how much of it that was so far."""

    def __init__(self, path: Path | None) -> None:
        """`path` None: standard input."""
        self.path = path
        try:
            self._raw: IO[bytes] = sys.stdin.buffer if path is None else path.open("rb")
            self._size_bytes = 0 if path is None else path.stat().st_size
        except OSError as error:
            raise bad_request(f"{path} cannot be read: {error.strerror}.") from None
        is_packed = path is not None and path.suffix == ".gz"
        self.stream = cast(IO[bytes], _PackedReading(path, self._raw)) if path and is_packed else self._raw

    @property
    def identity(self) -> Document:
        return {"file": str(self.path.resolve()) if self.path else "-", "bytes": self._size_bytes}

    @property
    def share(self) -> float | None:
        return min(1.0, self._raw.tell() / self._size_bytes) if self._size_bytes else None

    @property
    def first_bytes(self) -> bytes:
        """What comes next, as much as is read at once; nothing is consumed."""
        return cast(io.BufferedReader, self.stream).peek(_READ_BYTES)

    def close(self) -> None:
        if self.path is not None:
            self._raw.close()


class _PackedReading(gzip.GzipFile):
    """A compressed file that says what is wrong with it if it is damaged, or cut off."""

    def __init__(self, path: Path, raw: IO[bytes]) -> None:
        super().__init__(fileobj=raw)
        self._path = path

    def read(self, size: int | None = -1) -> bytes:
        with self._refusing():
            return super().read(size)

    def read1(self, size: int = -1) -> bytes:
        with self._refusing():
            return super().read1(size)

    def readline(self, size: int | None = -1) -> bytes:
        with self._refusing():
            return super().readline(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with self._refusing():
            return super().seek(offset, whence)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise bad_request(f"{self._path} is no whole gzip file: {error}.") from None


def _lines(stream: IO[bytes]) -> Iterator[tuple[bytes | None, int]]:
    """Each line, and its length; None for one that is too long to be held in memory."""
    while line := stream.readline(_LINE_BYTES_MAX):
        length = len(line)
        if length < _LINE_BYTES_MAX or line.endswith(b"\n"):
            yield line, length
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(_READ_BYTES)
            length += len(line)
        yield None, length


class JsonLinesSource:
    def __init__(self, path: Path | None) -> None:
        self._file = FileReading(path)
        self.identity = self._file.identity

    async def pages(self, position: Position | None) -> AsyncIterator[Page]:
        offset, number = (position["offset"], position["row"]) if position else (0, 0)
        stream = self._file.stream
        if offset:
            stream.seek(offset)
        rows: list[Row | BadRow] = []
        page_begin = offset
        for line, length in _lines(stream):
            number += 1
            if line is None:
                rows.append(bad_row(number, f"It is longer than {_LINE_BYTES_MAX >> 20} MB.", ""))
            elif text := (line if offset else line.removeprefix(codecs.BOM_UTF8)).strip():
                rows.append(parsed_row(number, text))
            offset += length
            if len(rows) == PAGE_ROWS or offset - page_begin >= PAGE_BYTES:
                yield Page(rows, {"offset": offset, "row": number}, self._file.share)
                rows, page_begin = [], offset
        if rows:
            yield Page(rows, {"offset": offset, "row": number}, 1.0)

    async def close(self) -> None:
        self._file.close()


def parsed_row(number: int, text: bytes) -> Row | BadRow:
    try:
        document = orjson.loads(text)
    except ValueError as error:
        return bad_row(number, f"It is not JSON: {error}.", text)
    if type(document) is not dict:
        return bad_row(number, "It is not a JSON object.", text)
    return Row(number, document, text)


class JsonArraySource:
    def __init__(self, path: Path | None) -> None:
        self._file = FileReading(path)
        self.identity = self._file.identity

    async def pages(self, position: Position | None) -> AsyncIterator[Page]:
        skipped = position["row"] if position else 0
        rows: list[Row | BadRow] = []
        number = 0
        page_characters = 0
        for element, length in _elements(self._file.stream):
            number += 1
            if number <= skipped:
                continue
            is_object = type(element) is dict
            rows.append(Row(number, element) if is_object else bad_row(number, "It is not a JSON object.", element))
            page_characters += length
            if len(rows) == PAGE_ROWS or page_characters >= PAGE_BYTES:
                yield Page(rows, {"row": number}, self._file.share)
                rows, page_characters = [], 0
        if rows:
            yield Page(rows, {"row": number}, 1.0)

    async def close(self) -> None:
        self._file.close()


def _elements(stream: IO[bytes]) -> Iterator[tuple[Any, int]]:
    """The elements of an array, one at a time, whatever its size, each with the number of its characters."""
    decode = codecs.getincrementaldecoder("utf-8-sig")(errors="strict").decode
    raw_decode = json.JSONDecoder(parse_constant=_no_constant).raw_decode
    buffer, at, count, is_end = "", 0, 0, False

    def fill() -> None:
        nonlocal buffer, at, is_end
        # As much again as is waiting: an element is then looked at a few times at most, however large it is.
        piece = stream.read(max(_READ_BYTES, len(buffer) - at))
        try:
            buffer, at = buffer[at:] + decode(piece, final=not piece), 0
        except UnicodeDecodeError:
            raise bad_request(f"The file is not UTF-8 behind element {count}.") from None
        is_end = not piece
        if len(buffer) > _ELEMENT_CHARACTERS_MAX:
            raise bad_request(f"Element {count + 1} of the array is not JSON, or too large.")

    def next_mark() -> str:
        nonlocal at
        while True:
            while at < len(buffer) and buffer[at] in _BLANKS:
                at += 1
            if at < len(buffer):
                return buffer[at]
            if is_end:
                return ""
            fill()

    if next_mark() != "[":
        raise bad_request("The file is not a JSON array. One object a line is --format jsonl.")
    at += 1
    if next_mark() == "]":
        return
    while True:
        next_mark()
        while True:
            try:
                element, end = raw_decode(buffer, at)
                if end < len(buffer) or is_end:  # else a number may go on
                    break
            except ValueError as error:
                if is_end:
                    raise bad_request(f"Element {count + 1} of the array is not JSON: {error}.") from None
            except RecursionError:
                raise bad_request(f"Element {count + 1} of the array is nested too deeply.") from None
            fill()
        length, at, count = end - at, end, count + 1
        yield element, length
        mark = next_mark()
        at += 1
        if mark == "]":
            return
        if mark != ",":
            raise bad_request(f"The array ends, or is no JSON, behind element {count}.")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


class FileWriting:
    """A file that grows, and can be cut back to where it is known to be right."""

    def __init__(self, path: Path | None) -> None:
        """`path` None: standard output."""
        self.path = path
        self._stream: IO[bytes] | None = None
        self._size_bytes = 0

    def open(self, size_bytes: int | None) -> None:
        if self.path is None:
            self._stream = sys.stdout.buffer
            return
        try:
            self._stream = open_file(self.path, "r+b" if size_bytes is not None else "wb")
        except OSError as error:
            raise bad_request(f"{self.path} cannot be written: {error.strerror}.") from None
        if size_bytes is not None:
            self._stream.truncate(size_bytes)
            self._stream.seek(size_bytes)
            self._size_bytes = size_bytes

    def write(self, content: bytes) -> None:
        assert self._stream is not None
        try:
            self._stream.write(content)
        except OSError as error:
            raise self._failed(error) from None
        self._size_bytes += len(content)

    def _failed(self, error: OSError) -> Failure:
        if isinstance(error, BrokenPipeError):
            raise error  # the reader of standard output has closed it
        return bad_request(f"{self.path or 'Standard output'} cannot be written: {error.strerror}.")

    def synced_bytes(self) -> int:
        """How much is on the disk."""
        assert self._stream is not None
        try:
            self._stream.flush()
            if self.path is not None and self.path.is_file():  # else it is a pipe, or a device
                os.fsync(self._stream.fileno())
        except OSError as error:
            raise self._failed(error) from None
        return self._size_bytes

    def close(self) -> None:
        """What is written is on the disk, or it is said why not."""
        stream = self._stream
        if stream is not None:
            try:
                self.synced_bytes()
            finally:
                self._stream = None
                if self.path is not None:
                    with suppress(OSError):  # it was said already
                        stream.close()


class JsonSink:
    """One item a line; as an array the lines stand in brackets."""

    is_ordered = True
    rows_ahead = 0

    def __init__(self, path: Path | None, *, is_array: bool) -> None:
        self._file = FileWriting(path)
        self._is_array = is_array
        self._is_empty = True
        self.is_resumable = path is not None

    async def open(self, position: Position | None) -> None:
        self._file.open(position["bytes"] if position else None)
        self._is_empty = position is None or position["empty"]
        if position is None and self._is_array:
            self._file.write(b"[\n")

    async def write(self, rows: list[Row]) -> Written:
        bad: list[BadRow] = []
        texts: list[bytes] = []
        for row in rows:
            try:
                texts.append(json_text(row))
            except ValueError as error:
                bad.append(bad_row(row.number, str(error), row.document))
        if texts:
            if self._is_array:
                self._file.write((b"" if self._is_empty else b",\n") + b",\n".join(texts))
            else:
                self._file.write(b"\n".join(texts) + b"\n")
            self._is_empty = False
        return Written(len(texts), 0.0, bad)

    def position(self) -> Position:
        return {"bytes": self._file.synced_bytes(), "empty": self._is_empty}

    async def close(self, *, is_complete: bool) -> None:
        if is_complete and self._is_array:
            self._file.write(b"]\n" if self._is_empty else b"\n]\n")
        self._file.close()
