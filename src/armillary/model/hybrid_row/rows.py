"""Rows of HybridRow, version 1. A row is a header (the version and the id of its schema), a bit for each column that
may be absent, the fixed columns, the variable columns that are present, and the sparse columns that are present. A
layout is the schema compiled to places, as the clients compile it. Integers are little-endian.

Rows come from a client, so they may be hostile: every length is checked against the row, and a column that the schema
does not have is refused. Of the types of columns, those are here that batches use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from struct import Struct
from typing import Any, Final, NamedTuple, NoReturn

from armillary.errors import bad_request

VERSION: Final = 0x81  # the first byte of a row; no JSON text and no binary JSON begins with it
HEADER: Final = Struct("<Bi")

_LENGTH_BYTES_MAX: Final = 5  # of a length that fits 32 bits


class Type(Enum):
    """Types of columns by their type code."""

    BOOLEAN = 3  # sparse columns only; the code is the value
    INT32 = 7
    UINT32 = 11
    FLOAT64 = 16
    UTF8 = 20
    BINARY = 21


class Storage(Enum):
    REQUIRED = "required"  # fixed, never absent
    FIXED = "fixed"
    VARIABLE = "variable"
    SPARSE = "sparse"


_FALSE: Final = 2  # the type code of a false Boolean
_NUMBERS: Final = {Type.INT32: Struct("<i"), Type.UINT32: Struct("<I"), Type.FLOAT64: Struct("<d")}


class Column(NamedTuple):
    name: str
    type: Type
    storage: Storage


class Layout:
    """A schema with the places of its columns. Sparse columns are named by a token: 1 and up in the order fixed,
    variable, sparse. Names that are no column have tokens from `token_count` on, which tell their length."""

    def __init__(self, schema_id: int, columns: Sequence[Column]) -> None:
        self.schema_id = schema_id
        self.fixed = [each for each in columns if each.storage in (Storage.REQUIRED, Storage.FIXED)]
        self.variable = [each for each in columns if each.storage is Storage.VARIABLE]
        self.sparse = [each for each in columns if each.storage is Storage.SPARSE]
        absentable = [each for each in columns if each.storage in (Storage.FIXED, Storage.VARIABLE)]
        self.bits = {column.name: bit for bit, column in enumerate(absentable)}
        self.bit_bytes = (len(absentable) + 7) // 8
        self.fixed_bytes = self.bit_bytes + sum(_NUMBERS[each.type].size for each in self.fixed)
        ordered = [*self.fixed, *self.variable, *self.sparse]
        self.tokens = {column.name: token for token, column in enumerate(ordered, start=1)}
        self.sparse_by_token = {self.tokens[column.name]: column for column in self.sparse}
        self.token_count = len(ordered) + 1

    @property
    def row_bytes_min(self) -> int:
        return HEADER.size + self.fixed_bytes


def malformed(cause: str) -> NoReturn:
    raise bad_request(f"The request body is not valid HybridRow: {cause}.")


def write_row(layout: Layout, values: Mapping[str, Any]) -> bytes:
    """A row of the values that are not None."""
    present = {name: value for name, value in values.items() if value is not None}
    bits = sum(1 << layout.bits[name] for name in present if name in layout.bits)
    parts = [HEADER.pack(VERSION, layout.schema_id), bits.to_bytes(layout.bit_bytes, "little")]
    parts += [_NUMBERS[column.type].pack(present.get(column.name, 0)) for column in layout.fixed]
    parts += [_value(column, present[column.name]) for column in layout.variable if column.name in present]
    for column in layout.sparse:
        if column.name in present:
            value = present[column.name]
            code = _FALSE if column.type is Type.BOOLEAN and not value else column.type.value
            parts += [bytes([code]), write_length(layout.tokens[column.name]), _value(column, value)]
    return b"".join(parts)


def read_row(layout: Layout, row: bytes) -> dict[str, Any]:
    """The values of the columns that are present."""
    if len(row) < layout.row_bytes_min:
        malformed(f"a row has {len(row)} bytes, its fixed columns take {layout.row_bytes_min}")
    version, schema_id = HEADER.unpack_from(row)
    if version != VERSION or schema_id != layout.schema_id:
        malformed(f"a row has the version {version} and the schema {schema_id}, not {VERSION} and {layout.schema_id}")
    at = HEADER.size + layout.bit_bytes
    bits = int.from_bytes(row[HEADER.size : at], "little")
    values: dict[str, Any] = {}
    for column in layout.fixed:
        number = _NUMBERS[column.type]
        if column.storage is Storage.REQUIRED or bits >> layout.bits[column.name] & 1:
            values[column.name] = number.unpack_from(row, at)[0]
        at += number.size
    for column in layout.variable:
        if bits >> layout.bits[column.name] & 1:
            values[column.name], at = _read_bytes(column, row, at)
    while at < len(row):
        at = _read_sparse(layout, row, at, values)
    return values


def _read_sparse(layout: Layout, row: bytes, at: int, values: dict[str, Any]) -> int:
    """Add the sparse column at a place to the values; the place after it."""
    code = row[at]
    token, at = read_length(row, at + 1)
    column = layout.sparse_by_token.get(token)
    if column is None:
        name = (
            row[at : at + token - layout.token_count].decode("utf-8", "replace") if token >= layout.token_count else ""
        )
        malformed(f"a row has the unknown sparse column {name[:64]!r}")
    if column.name in values:
        malformed(f"a row has the column '{column.name}' twice")
    if column.type is Type.BOOLEAN and code in (_FALSE, Type.BOOLEAN.value):
        values[column.name] = code == Type.BOOLEAN.value
        return at
    if code != column.type.value:
        malformed(f"the column '{column.name}' has the type code {code}, not {column.type.value}")
    number = _NUMBERS.get(column.type)
    if number is None:
        values[column.name], at = _read_bytes(column, row, at)
        return at
    if len(row) - at < number.size:
        malformed(f"a row ends in the middle of '{column.name}'")
    values[column.name] = number.unpack_from(row, at)[0]
    return at + number.size


def _read_bytes(column: Column, row: bytes, at: int) -> tuple[str | bytes, int]:
    length, at = read_length(row, at)
    end = at + length
    if end > len(row):
        malformed(f"the column '{column.name}' of {length} bytes is longer than the rest of its row")
    if column.type is Type.BINARY:
        return row[at:end], end
    try:
        return row[at:end].decode(), end
    except UnicodeDecodeError:
        malformed(f"the column '{column.name}' is not valid UTF-8")


def _value(column: Column, value: Any) -> bytes:
    if column.type is Type.BOOLEAN:
        return b""
    number = _NUMBERS.get(column.type)
    if number is not None:
        return number.pack(value)
    content: bytes = value.encode() if column.type is Type.UTF8 else value
    return write_length(len(content)) + content


def write_length(length: int) -> bytes:
    """Seven bits in each byte, the lowest first; the high bit says that another byte follows."""
    made = bytearray()
    while length >= 0x80:
        made.append(length & 0x7F | 0x80)
        length >>= 7
    made.append(length)
    return bytes(made)


def read_length(row: bytes, at: int) -> tuple[int, int]:
    """A length, and the place after it."""
    length = 0
    for place, byte in enumerate(row[at : at + _LENGTH_BYTES_MAX]):
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return length, at + place + 1
    malformed("a length does not end")
