"""Files of mongodump as sources and sinks: documents in BSON one behind the other, perhaps compressed. A folder stands
for the one collection in it. What is written can be read by mongorestore, which wants a file of metadata beside it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, Final, cast

from bson.errors import BSONError

from armillary.errors import bad_request
from armillary.model.bson.bson_json import document_of, json_of
from armillary.model.bson.bson_values import decode, encode
from armillary.storage.private import make_directory, open_file
from armillary.tools.transfer.files.json_files import FileReading, FileWriting
from armillary.tools.transfer.files.plain_values import plain_item
from armillary.tools.transfer.rows import PAGE_BYTES, PAGE_ROWS, BadRow, Document, Page, Position, Row, Written, bad_row

ENDINGS: Final = (".bson", ".bson.gz")
_DOCUMENT_BYTES_MAX: Final = 48 * 1024 * 1024  # more than any server takes: the file is broken
_EMPTY_BYTES: Final = 5


def bson_file(path: Path) -> Path:
    """The file of a folder."""
    if not path.is_dir():
        return path
    found = sorted(each for each in path.rglob("*") if each.name.endswith(ENDINGS) and each.name != "oplog.bson")
    if len(found) != 1:
        names = ", ".join(str(each.relative_to(path)) for each in found[:10]) or "none"
        raise bad_request(f"{path} must hold one collection (*.bson, *.bson.gz) to be imported, or name one: {names}.")
    return found[0]


class BsonSource:
    def __init__(self, path: Path, *, is_exact: bool) -> None:
        self._file = FileReading(bson_file(path))
        self._is_exact = is_exact
        self.identity = self._file.identity

    async def pages(self, position: Position | None) -> AsyncIterator[Page]:
        offset, number = (position["offset"], position["row"]) if position else (0, 0)
        if offset:
            self._file.stream.seek(offset)
        rows: list[Row | BadRow] = []
        page_begin = offset
        for encoded in self._encoded(number):
            number += 1
            offset += len(encoded)
            try:
                rows.append(Row(number, item_of_document(decode(encoded), is_exact=self._is_exact)))
            except (BSONError, ValueError, RecursionError) as error:
                rows.append(bad_row(number, f"It is no BSON: {error}.", encoded[:200].hex()))
            if len(rows) == PAGE_ROWS or offset - page_begin >= PAGE_BYTES:
                yield Page(rows, {"offset": offset, "row": number}, self._file.share)
                rows, page_begin = [], offset
        if rows:
            yield Page(rows, {"offset": offset, "row": number}, 1.0)

    def _encoded(self, number: int) -> Iterator[bytes]:
        read = self._file.stream.read
        while head := read(4):
            size_bytes = int.from_bytes(head, "little")
            number += 1
            if len(head) < 4 or not _EMPTY_BYTES <= size_bytes <= _DOCUMENT_BYTES_MAX:
                raise bad_request(f"Document {number} of the file does not begin as BSON does: the file is broken.")
            rest = read(size_bytes - 4)
            if len(rest) < size_bytes - 4:
                raise bad_request(f"The file ends inside document {number}: it is not complete.")
            yield head + rest

    async def close(self) -> None:
        self._file.close()


class BsonSink:
    is_ordered = True
    rows_ahead = 0

    def __init__(self, path: Path, *, is_exact: bool) -> None:
        self._path = path
        self._is_packed = path.suffix == ".gz"
        self.is_resumable = not self._is_packed
        self._file = FileWriting(path)
        self._packed: IO[bytes] | None = None
        self._is_exact = is_exact

    async def open(self, position: Position | None) -> None:
        try:
            make_directory(self._path.parent, parents=True)
        except OSError as error:
            raise bad_request(f"{self._path.parent} cannot be made: {error.strerror}.") from None
        self._file.open(position["bytes"] if position else None)
        if self._is_packed:
            self._packed = cast(IO[bytes], gzip.GzipFile(fileobj=cast(IO[bytes], self._file), mode="wb", mtime=0))

    async def write(self, rows: list[Row]) -> Written:
        bad: list[BadRow] = []
        pieces: list[bytes] = []
        for row in rows:
            try:
                pieces.append(encode(document_of_item(row.document, is_exact=self._is_exact)))
            except (BSONError, ValueError, OverflowError) as error:
                bad.append(bad_row(row.number, f"It cannot be written as BSON: {error}.", row.document))
        content = b"".join(pieces)
        if self._packed is not None:
            self._packed.write(content)
        else:
            self._file.write(content)
        return Written(len(pieces), 0.0, bad)

    def position(self) -> Position:
        return {"bytes": self._file.synced_bytes()}

    async def close(self, *, is_complete: bool) -> None:
        if self._packed is not None:
            self._packed.close()
        self._file.close()
        if is_complete:
            ending = ".gz" if self._is_packed else ""
            name = self._path.name.removesuffix(".gz").removesuffix(".bson")
            index = {"v": {"$numberInt": "2"}, "key": {"_id": {"$numberInt": "1"}}, "name": "_id_"}
            text = json.dumps({"indexes": [index], "collectionName": name, "type": "collection"}).encode()
            file = self._path.with_name(f"{name}.metadata.json{ending}")
            with open_file(file, "wb") as stream:
                stream.write(gzip.compress(text) if ending else text)


def item_of_document(document: Document, *, is_exact: bool) -> Document:
    """`is_exact`: with all types, as Extended JSON, which the MongoDB door shows as what they were."""
    return json_of(document) if is_exact else plain_item(document)


def document_of_item(item: Document, *, is_exact: bool) -> Document:
    if is_exact:
        return document_of(item)
    document: Document = {"_id": item.get("id")} | item
    if document["_id"] == item.get("id"):
        document.pop("id", None)
    return document
