"""Streams of HybridRow records ("RecordIO"): a segment, whose header is a row of its own length, and then each record
as a row with the record's length and CRC-32, followed by the record. A record is a row of any schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from zlib import crc32

from armillary.model.hybrid_row.rows import (
    HEADER,
    Column,
    Layout,
    Storage,
    Type,
    malformed,
    read_row,
    write_row,
)

_SEGMENT: Final = Layout(
    2147473648,
    [
        Column("length", Type.INT32, Storage.FIXED),
        Column("comment", Type.UTF8, Storage.SPARSE),
        Column("sdl", Type.UTF8, Storage.SPARSE),
    ],
)
_RECORD: Final = Layout(
    2147473649,
    [Column("length", Type.INT32, Storage.REQUIRED), Column("crc32", Type.UINT32, Storage.REQUIRED)],
)


def write_records(records: Iterable[bytes]) -> bytes:
    """One segment of the records."""
    parts = [write_row(_SEGMENT, {"length": _SEGMENT.row_bytes_min})]
    for record in records:
        parts += [write_row(_RECORD, {"length": len(record), "crc32": crc32(record)}), record]
    return b"".join(parts)


def read_records(stream: bytes) -> Iterator[bytes]:
    """The records of all segments. A schema that a segment brings is refused: the reader of a batch has its own."""
    at = _skip_segment(stream, 0)
    while at < len(stream):
        if _schema_id(stream, at) == _SEGMENT.schema_id:
            at = _skip_segment(stream, at)
            continue
        begin = at + _RECORD.row_bytes_min
        head = read_row(_RECORD, stream[at:begin])
        at = begin + head["length"]
        if head["length"] <= 0 or at > len(stream):
            malformed(f"a record of {head['length']} bytes where {len(stream) - begin} follow")
        record = stream[begin:at]
        if crc32(record) != head["crc32"]:
            malformed(f"the CRC-32 of the record at byte {begin} differs from what its header says")
        yield record


def _skip_segment(stream: bytes, at: int) -> int:
    # The header's own length comes first in it; the rest of the header may then be read.
    begin = stream[at : at + _SEGMENT.row_bytes_min]
    length = read_row(_SEGMENT, begin).get("length", 0)
    if not len(begin) <= length <= len(stream) - at:
        malformed(f"a segment header of {length} bytes where {len(stream) - at} follow")
    read_row(_SEGMENT, stream[at : at + length])
    return at + int(length)


def _schema_id(stream: bytes, at: int) -> int:
    if len(stream) - at < HEADER.size:
        malformed("the stream ends in the middle of a row")
    schema_id: int = HEADER.unpack_from(stream, at)[1]
    return schema_id
