"""Reads the file of a capture: gzip, first a head, then a JSON line for each operation. It is read as a stream, so
memory does not depend on its size. `account/captures` writes it; docs/foresight.md has the format.

A capture may also be a table of diagnostic logs from the cloud, as CSV (`azure_exports.py`); `open_capture` reads both.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final, NamedTuple

import orjson

from armillary.account.captures.value_digests import Digests
from armillary.errors import Failure, bad_request
from armillary.insight.azure_exports import read_export

FORMAT, VERSION = "armillary-capture", 1
AZURE: Final = "azure:"
_READ_BYTES: Final = 256 * 1024
_LINE_BYTES_MAX: Final = 4 * 1024 * 1024
_GZIP: Final = 31  # window bits of a gzip member
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Head:
    """What a capture says of itself."""

    database: str
    container: str
    key: tuple[str, ...]  # paths of the partition key; empty: none, or not known
    partitions: int  # when it began; 0: not known
    begun_at: str
    share: float  # of the requests that it has
    has_values: bool
    requests: int | None  # None: not known before the end is read
    missed: int = 0
    is_of_cloud: bool = False  # a table of diagnostic logs: no leaves and no conditions


class ValueList(NamedTuple):
    total: int
    digests: tuple[str, ...]  # of the first ones


@dataclass(frozen=True, slots=True)
class Captured:
    """One operation. Paths are those of the index: /a/b. Values are digests; `values` has those that were kept."""

    t_ms: int
    door: str
    operation: str  # read create upsert replace patch delete batch execute query feed changes
    status: int
    sub: int
    charge_ru: float
    partitions: tuple[int, ...]
    rows: int = 0
    size_bytes: int = 0
    loaded: int = 0
    key: tuple[str, ...] | None = None
    item_id: str | None = None
    group: str | None = None  # of a transaction
    run: str | None = None  # of the pages and parts of one query, and the operations of one command
    leaf: Mapping[str, str] = field(default_factory=lambda: _NONE)
    equal: Mapping[str, str] = field(default_factory=lambda: _NONE)
    lists: Mapping[str, ValueList] = field(default_factory=lambda: _NONE)
    ranges: tuple[str, ...] = ()
    order: tuple[tuple[str, bool], ...] = ()
    shape: str | None = None
    values: Mapping[str, Any] = field(default_factory=lambda: _NONE)

    @property
    def is_query(self) -> bool:
        return self.operation == "query"


class Capture(NamedTuple):
    head: Head
    records: Iterator[Captured]  # to be read once

    def digests(self, secret: str) -> Digests:
        """The digests of values as this capture has them, by its secret, to join it with items."""
        return Digests(bytes.fromhex(secret))


def open_capture(name: str) -> Capture:
    """`name`: a file, or azure:FILE.csv. Refused if it is neither; an error in the middle is raised where it is met."""
    if name.startswith(AZURE):
        path = Path(name.removeprefix(AZURE))
        begun_at, rows = read_export(path)
        head = Head("", "", (), 0, begun_at, 1.0, True, None, is_of_cloud=True)
        return Capture(head, (Captured(**row) for row in rows))
    path = Path(name)
    try:
        stream = path.open("rb")
    except OSError as error:
        raise bad_request(f"The capture {path} cannot be read: {error.strerror}.") from None
    return read_capture(stream, str(path))


def read_capture(stream: BinaryIO, name: str = "the capture") -> Capture:
    """The stream is closed with the last record."""
    lines = _lines(stream, name)
    try:
        head = _head(next(lines, b""), name)
    except BaseException:
        stream.close()
        raise
    return Capture(head, _records(lines, name))


def _lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Whole lines of all members. What follows the last whole line is told as an error behind it."""
    reader = zlib.decompressobj(_GZIP)
    rest = pending = b""
    has_begun = False  # a member that has not ended
    with stream:
        while pending or (pending := stream.read(_READ_BYTES)):
            try:
                text = reader.decompress(pending, _READ_BYTES)
            except zlib.error:
                raise bad_request(f"{name} is damaged, or is no capture: it is not gzip at some place.") from None
            has_begun = True
            pending = reader.unconsumed_tail
            if reader.eof:
                pending, reader, has_begun = reader.unused_data, zlib.decompressobj(_GZIP), False
            *whole, rest = (rest + text).split(b"\n")
            yield from whole
            if len(rest) > _LINE_BYTES_MAX:
                raise bad_request(f"{name} is no capture: a line has more than {_LINE_BYTES_MAX} bytes.")
    if has_begun or rest:
        raise bad_request(f"{name} ends in the middle of a line: the file was cut off. What was read before is whole.")


def _head(line: bytes, name: str) -> Head:
    content = _object(line)
    if content is None or content.get("format") != FORMAT:
        raise bad_request(f"{name} is no capture: its first line is not the head of one.")
    if content.get("version") != VERSION:
        shown = str(content.get("version"))[:20]
        raise bad_request(f"{name} is a capture of version {shown}; this program reads version {VERSION}.")
    try:
        return Head(
            str(content["database"]),
            str(content["container"]),
            tuple(map(str, content["key"])),
            int(content["partitions"]),
            str(content["begunAt"]),
            float(content["share"]),
            bool(content["values"]),
            int(content["requests"]),
            int(content.get("missed", 0)),
        )
    except (KeyError, TypeError, ValueError):
        raise bad_request(f"{name} has a head that cannot be read: a field is missing or is of another type.") from None


def _records(lines: Iterator[bytes], name: str) -> Iterator[Captured]:
    for number, line in enumerate(lines, 2):
        content = _object(line)
        try:
            if content is None:
                raise ValueError
            yield _record(content)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise _bad_line(name, number) from None


def _record(line: dict[str, Any]) -> Captured:
    key = line.get("key")
    return Captured(
        int(line["t"]),
        str(line["door"]),
        str(line["op"]),
        int(line["status"]),
        int(line.get("sub", 0)),
        float(line["ru"]),
        tuple(map(int, line["parts"])),
        int(line["rows"]),
        int(line["bytes"]),
        int(line.get("loaded", 0)),
        tuple(map(str, key)) if key is not None else None,
        line.get("id"),
        line.get("group"),
        line.get("run"),
        line.get("leaf", _NONE),
        line.get("eq", _NONE),
        {path: ValueList(int(each["n"]), tuple(each["digests"])) for path, each in line.get("in", _NONE).items()},
        tuple(line.get("range", ())),
        tuple([(str(path), bool(is_descending)) for path, is_descending in line.get("order", ())]),
        line.get("shape"),
        line.get("values", _NONE),
    )


def _bad_line(name: str, number: int) -> Failure:
    return bad_request(f"Line {number} of {name} is no request of a capture.")


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        content = orjson.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
