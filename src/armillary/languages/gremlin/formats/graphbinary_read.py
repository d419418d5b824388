"""Reads GraphBinary 1: bytes to values, and the frames of requests. `graphbinary_write` is the other direction.

Every value is a type code, a null flag and the value itself; where the type is fixed by the format, code and flag are
left out. Lengths are checked against the bytes that are left before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any, Final

from armillary import limits
from armillary.languages.gremlin.errors import malformed
from armillary.languages.gremlin.formats.message_limits import COMPOUND, PLACE, SCALAR, Allowance
from armillary.languages.gremlin.syntax import bytecode
from armillary.languages.gremlin.values.comparing import map_key, unique
from armillary.languages.gremlin.values.dates import from_milliseconds
from armillary.languages.gremlin.values.elements import Edge, Path, Property, Vertex, VertexProperty
from armillary.languages.gremlin.values.typed_values import BigInt, BulkSet, Byte, Char, Float32, Long, Set, Short, Uuid

VERSION: Final = 0x81
NULL: Final = 0xFE
INT, LONG, STRING, DATE, TIMESTAMP, CLASS, DOUBLE, FLOAT, LIST, MAP, SET, UUID = range(1, 13)
EDGE, PATH, PROPERTY, GRAPH, VERTEX, VERTEX_PROPERTY, BARRIER, BINDING, BYTECODE = range(0x0D, 0x16)
LAMBDA, P, TRAVERSER, BIG_DECIMAL, BIG_INTEGER, BYTE = 0x1D, 0x1E, 0x21, 0x22, 0x23, 0x24
BYTE_BUFFER, SHORT, BOOLEAN, TEXT_P, STRATEGY, BULK_SET, TREE = 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x2B
CHAR, DURATION, OFFSET_DATE_TIME = 0x80, 0x81, 0x88
ENUMERATIONS: Final = {
    0x13: "Barrier",
    0x16: "Cardinality",
    0x17: "Column",
    0x18: "Direction",
    0x19: "Operator",
    0x1A: "Order",
    0x1B: "Pick",
    0x1C: "Pop",
    0x1F: "Scope",
    0x20: "T",
    0x2E: "Merge",
    0x2F: "DT",
    0x30: "GType",
}


class Reader:
    """Reads the bytes of one message from front to back."""

    def __init__(self, content: bytes, allowance: Allowance | None = None) -> None:
        self._content = content
        self._at = 0
        self.allowance = allowance or Allowance()
        self.allowance.depth = 0  # here depth counts from the values inside the outermost one

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._content)

    def take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._content):
            raise malformed("A GraphBinary message ends too early.")
        piece = self._content[self._at : end]
        self._at = end
        return piece

    def byte(self) -> int:
        return self.take(1)[0]

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def size(self) -> int:
        """The size of a collection. Each of its values takes at least one byte, so larger sizes are refused."""
        size = self.int32()
        if not 0 <= size <= len(self._content) - self._at:
            raise malformed("A GraphBinary message names a size that it does not have.")
        return size

    def text(self) -> str:
        try:
            return self.take(self.int32()).decode("utf-8")
        except UnicodeDecodeError:
            raise malformed("A text of a GraphBinary message is not valid UTF-8.") from None

    def value(self) -> Any:
        """With its type."""
        code = self.byte()
        if code == NULL:
            self.byte()
            return None
        if self.byte() & 1:
            return None
        return self.bare(code)

    def bare(self, code: int) -> Any:
        """A value without type code and null flag."""
        allowance = self.allowance
        allowance.enter(SCALAR if code in _SCALARS else COMPOUND)
        reader = _READERS.get(code)
        if reader is not None:
            found = reader(self)
        elif code in ENUMERATIONS:
            found = bytecode.token_of(ENUMERATIONS[code], self.value())
        else:
            raise malformed(f"GraphBinary's type 0x{code:02x} is not supported.")
        allowance.leave()
        return found

    def values(self) -> list[Any]:
        size = self.size()
        self.allowance.spend(PLACE * size)
        return [self.value() for _ in range(size)]

    def map(self) -> dict[Any, Any]:
        found = {}
        allowance = self.allowance
        for _ in range(self.size()):
            before = allowance.left
            key = self.value()
            allowance.spend_key(key, before)
            found[map_key(key)] = self.value()
        return found

    def instructions(self) -> list[Any]:
        found = []
        for _ in range(self.size()):
            self.allowance.spend(COMPOUND)
            name: list[Any] = [self.text()]
            found.append(name + self.values())
        return found


def read(content: bytes) -> Any:
    """One value with its type; nothing may follow."""
    reader = Reader(content)
    found = reader.value()
    if not reader.is_at_end:
        raise malformed("Bytes follow a GraphBinary value.")
    return found


def read_request(
    content: bytes, allowance: Allowance | None = None, *, only: str | None = None
) -> tuple[str, str, str, dict[Any, Any]]:
    """Id, operation, processor and arguments. With `only`, the arguments of other operations are not read."""
    reader = Reader(content, allowance)
    if reader.byte() != VERSION:
        raise malformed("The version of a GraphBinary message is not 1.")
    request_id = _uuid(reader)
    op, processor = reader.text(), reader.text()
    if only is not None and op != only:
        return request_id, op, processor, {}
    arguments = reader.map()
    if not reader.is_at_end:
        raise malformed("Bytes follow a GraphBinary message.")
    return request_id, op, processor, arguments


def _uuid(reader: Reader) -> Uuid:
    text = reader.take(16).hex()
    return Uuid(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")


def _big_integer(reader: Reader) -> BigInt:
    size = reader.int32()
    if size > limits.GREMLIN_NUMBER_BITS_MAX // 8:
        raise malformed("A whole number is too large.")
    return BigInt(int.from_bytes(reader.take(size), "big", signed=True))


def _decimal(reader: Reader) -> Decimal:
    scale = reader.int32()
    unscaled = _big_integer(reader)
    if abs(scale) > 10_000:
        raise malformed("A decimal number is out of range.")
    return Decimal(int(unscaled)).scaleb(-scale, context=Context(prec=2000))


def _char(reader: Reader) -> Char:
    first = reader.byte()
    more = 0 if first < 0x80 else 1 if first >> 5 == 6 else 2 if first >> 4 == 14 else 3
    try:
        return Char((bytes([first]) + reader.take(more)).decode("utf-8"))
    except UnicodeDecodeError:
        raise malformed("A character of a GraphBinary message is not valid UTF-8.") from None


def _duration(reader: Reader) -> timedelta:
    seconds, nanoseconds = reader.int64(), reader.int32()
    try:
        return timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
    except OverflowError:
        raise malformed("A duration is out of range.") from None


def _offset_date_time(reader: Reader) -> datetime:
    year, month, day = reader.int32(), reader.byte(), reader.byte()
    nanoseconds, offset_s = reader.int64(), reader.int32()
    try:
        zone = timezone(timedelta(seconds=offset_s))
        date = datetime(year, month, day, tzinfo=zone) + timedelta(microseconds=nanoseconds // 1000)
        return date.astimezone(UTC)
    except (ValueError, OverflowError):
        raise malformed("A date is out of range.") from None


def _id(reader: Reader) -> Any:
    return bytecode.id_of(reader.value())


def _vertex(reader: Reader) -> Vertex:
    vertex = Vertex(_id(reader), reader.text())
    reader.value()  # properties; clients send elements as references
    return vertex


def _edge(reader: Reader) -> Edge:
    id, label = _id(reader), reader.text()
    into = Vertex(_id(reader), reader.text())
    out = Vertex(_id(reader), reader.text())
    reader.value()  # the parent
    reader.value()  # properties
    return Edge(id, label, out, into)


def _vertex_property(reader: Reader) -> VertexProperty:
    found = VertexProperty(_id(reader), reader.text(), reader.value())
    reader.value()
    reader.value()
    return found


def _property(reader: Reader) -> Property:
    found = Property(reader.text(), reader.value())
    reader.value()
    return found


def _path(reader: Reader) -> Path:
    labels, objects = reader.value(), reader.value()
    return bytecode.path_of(objects, labels)


def _predicate(reader: Reader) -> Any:
    name = reader.text()
    values = reader.values()
    takes_many = name in ("within", "without", "and", "or", "between", "inside", "outside")
    return bytecode.predicate_of(name, values if takes_many or len(values) != 1 else values[0])


def _bytecode(reader: Reader) -> Any:
    steps = reader.instructions()
    source = reader.instructions()
    return bytecode.traversal_of(source, steps)


def _binding(reader: Reader) -> Any:
    reader.text()
    return reader.value()


def _traverser(reader: Reader) -> Any:
    reader.int64()
    return reader.value()


def _lambda(reader: Reader) -> Any:
    raise bytecode.refuse_lambda()


def _strategy(reader: Reader) -> Any:
    name = reader.text()
    return bytecode.strategy_of(name, reader.map())


def _bulk_set(reader: Reader) -> BulkSet:
    found = BulkSet()
    allowance = reader.allowance
    for _ in range(reader.size()):
        before = allowance.left
        value, count = reader.value(), reader.int64()
        if not 0 <= count <= limits.GREMLIN_LIST_MAX - len(found):
            raise malformed("A bulk set is too large.")
        allowance.spend_repeated(count, before)
        found.extend([value] * count)
    return found


def _set(reader: Reader) -> Set:
    before = reader.allowance.left
    values = reader.values()
    reader.allowance.spend_members(len(values), before)
    return unique(values)


_SCALARS: Final = frozenset((INT, LONG, STRING, CLASS, DOUBLE, FLOAT, BYTE, SHORT, BOOLEAN, CHAR))
_READERS: Final[dict[int, Callable[[Reader], Any]]] = {
    INT: Reader.int32,
    LONG: lambda reader: Long(reader.int64()),
    STRING: Reader.text,
    DATE: lambda reader: from_milliseconds(reader.int64()),
    TIMESTAMP: lambda reader: from_milliseconds(reader.int64()),
    CLASS: Reader.text,
    DOUBLE: lambda reader: struct.unpack(">d", reader.take(8))[0],
    FLOAT: lambda reader: Float32(struct.unpack(">f", reader.take(4))[0]),
    LIST: Reader.values,
    MAP: Reader.map,
    SET: _set,
    UUID: _uuid,
    EDGE: _edge,
    PATH: _path,
    PROPERTY: _property,
    VERTEX: _vertex,
    VERTEX_PROPERTY: _vertex_property,
    BINDING: _binding,
    BYTECODE: _bytecode,
    LAMBDA: _lambda,
    P: _predicate,
    TEXT_P: _predicate,
    TRAVERSER: _traverser,
    BIG_DECIMAL: _decimal,
    BIG_INTEGER: _big_integer,
    BYTE: lambda reader: Byte(int.from_bytes(reader.take(1), "big", signed=True)),
    SHORT: lambda reader: Short(int.from_bytes(reader.take(2), "big", signed=True)),
    BOOLEAN: lambda reader: reader.byte() == 1,
    STRATEGY: _strategy,
    BULK_SET: _bulk_set,
    CHAR: _char,
    DURATION: _duration,
    OFFSET_DATE_TIME: _offset_date_time,
}
