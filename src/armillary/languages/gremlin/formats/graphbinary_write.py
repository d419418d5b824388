"""Writes GraphBinary 1: values to bytes, and the frames of responses."""

from __future__ import annotations

import struct
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from armillary.languages.gremlin.errors import not_serializable
from armillary.languages.gremlin.formats import graphbinary_read as codes
from armillary.languages.gremlin.syntax.tokens import Token
from armillary.languages.gremlin.values.comparing import counted
from armillary.languages.gremlin.values.dates import milliseconds
from armillary.languages.gremlin.values.elements import (
    Edge,
    Entry,
    Path,
    Property,
    Subgraph,
    Tree,
    Vertex,
    VertexProperty,
    pairs,
)
from armillary.languages.gremlin.values.typed_values import BigInt, BulkSet, Byte, Char, Float32, Long, Set, Short, Uuid
from armillary.work import spend

_FAMILY_CODES = {family: code for code, family in codes.ENUMERATIONS.items()}
_NULL = bytes((codes.NULL, 1))


class Writer:
    """Appends to one buffer. A bare writer leaves out the properties of elements."""

    def __init__(self, *, is_bare: bool = False) -> None:
        self.buffer = bytearray()
        self._is_bare = is_bare

    def value(self, value: Any) -> None:
        """With its type."""
        spend(4)
        buffer = self.buffer
        if value is None:
            buffer += _NULL
        elif value is True or value is False:
            buffer += bytes((codes.BOOLEAN, 0, int(value)))
        elif type(value) is str:
            buffer += bytes((codes.STRING, 0))
            self.text(value)
        elif isinstance(value, int):
            self._integer(value)
        elif isinstance(value, float):
            is_short = isinstance(value, Float32)
            buffer += bytes((codes.FLOAT if is_short else codes.DOUBLE, 0))
            buffer += struct.pack(">f" if is_short else ">d", value)
        elif isinstance(value, Vertex):
            buffer += bytes((codes.VERTEX, 0))
            self.value(value.id)
            self.text(value.label)
            self._vertex_properties(value)
        elif isinstance(value, Edge):
            self._edge(value)
        elif isinstance(value, list):
            self._list(value)
        elif isinstance(value, dict):
            buffer += bytes((codes.MAP, 0))
            self.map(value)
        else:
            self._other(value)

    def traverser(self, value: Any, bulk: int) -> None:
        self.buffer += bytes((codes.TRAVERSER, 0))
        self.buffer += struct.pack(">q", bulk)
        self.value(value)

    def text(self, text: str) -> None:
        content = text.encode("utf-8", "replace")
        self.int32(len(content))
        self.buffer += content

    def int32(self, number: int) -> None:
        self.buffer += number.to_bytes(4, "big", signed=True)

    def map(self, entries: dict[Any, Any]) -> None:
        self.int32(len(entries))
        for key, value in pairs(entries):
            self.value(key)
            self.value(value)

    def _integer(self, value: int) -> None:
        kind = type(value)
        if kind is Byte and -128 <= value < 128:
            self.buffer += bytes((codes.BYTE, 0)) + value.to_bytes(1, "big", signed=True)
        elif kind is Short and -(2**15) <= value < 2**15:
            self.buffer += bytes((codes.SHORT, 0)) + value.to_bytes(2, "big", signed=True)
        elif kind not in (Long, BigInt) and -(2**31) <= value < 2**31:
            self.buffer += bytes((codes.INT, 0)) + value.to_bytes(4, "big", signed=True)
        elif kind is not BigInt and -(2**63) <= value < 2**63:
            self.buffer += bytes((codes.LONG, 0)) + value.to_bytes(8, "big", signed=True)
        else:
            self.buffer += bytes((codes.BIG_INTEGER, 0))
            self._big(value)

    def _big(self, value: int) -> None:
        size = (value if value >= 0 else value + 1).bit_length() // 8 + 1
        self.int32(size)
        self.buffer += int(value).to_bytes(size, "big", signed=True)

    def _list(self, values: list[Any]) -> None:
        if isinstance(values, BulkSet):
            counts = counted(values)
            self.buffer += bytes((codes.BULK_SET, 0))
            self.int32(len(counts))
            for each, count in counts:
                self.value(each)
                self.buffer += struct.pack(">q", count)
            return
        self.buffer += bytes((codes.SET if isinstance(values, Set) else codes.LIST, 0))
        self.int32(len(values))
        for each in values:
            self.value(each)

    def _vertex_properties(self, vertex: Vertex) -> None:
        if self._is_bare or not vertex.properties:
            self.buffer += _NULL
            return
        self._list([each for values in vertex.properties.values() for each in values])

    def _edge(self, edge: Edge) -> None:
        self.buffer += bytes((codes.EDGE, 0))
        self.value(edge.id)
        self.text(edge.label)
        for end in (edge.in_vertex, edge.out_vertex):
            self.value(end.id)
            self.text(end.label)
        self.buffer += _NULL
        if edge.properties and not self._is_bare:
            self._list([Property(key, value) for key, value in edge.properties.items()])
        else:
            self.buffer += _NULL

    def _other(self, value: Any) -> None:
        buffer = self.buffer
        if isinstance(value, VertexProperty):
            buffer += bytes((codes.VERTEX_PROPERTY, 0))
            self.value(value.id)
            self.text(value.key)
            self.value(value.value)
            buffer += _NULL
            if value.meta and not self._is_bare:
                self._list([Property(key, each) for key, each in value.meta.items()])
            else:
                buffer += _NULL
        elif isinstance(value, Property):
            buffer += bytes((codes.PROPERTY, 0))
            self.text(value.key)
            self.value(value.value)
            buffer += _NULL
        elif isinstance(value, Path):
            buffer += bytes((codes.PATH, 0))
            labels = [Set(each) for each in value.labels] or [Set() for _ in value.objects]
            self._list(list(labels))
            self._list(list(value.objects))
        elif isinstance(value, Entry):
            buffer += bytes((codes.MAP, 0))
            self.int32(1)
            self.value(value[0])
            self.value(value[1])
        elif isinstance(value, Token):
            buffer += bytes((_FAMILY_CODES[value.family], 0))
            self.value(str(value.value))
        elif isinstance(value, datetime):
            buffer += bytes((codes.DATE, 0)) + struct.pack(">q", milliseconds(value))
        elif isinstance(value, Uuid):
            buffer += bytes((codes.UUID, 0)) + bytes.fromhex(value.replace("-", ""))
        elif isinstance(value, Char):
            buffer += bytes((codes.CHAR, 0)) + value.encode("utf-8", "replace")
        elif isinstance(value, timedelta):
            seconds, rest = divmod(value, timedelta(seconds=1))
            buffer += bytes((codes.DURATION, 0)) + struct.pack(">qi", seconds, rest.microseconds * 1000)
        elif isinstance(value, Decimal):
            self._decimal(value)
        elif isinstance(value, Tree):
            buffer += bytes((codes.TREE, 0))
            self._tree(value)
        elif isinstance(value, Subgraph):
            # Most clients cannot read GraphBinary's graph type, so a subgraph is sent as a map of its vertices and
            # edges.
            self.value({"vertices": list(value.vertices), "edges": list(value.edges)})
        elif isinstance(value, str):
            self.value(str(value))
        else:
            raise not_serializable(f"A result of type {type(value).__name__} cannot be written as GraphBinary.")

    def _decimal(self, value: Decimal) -> None:
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            self.value(float(value))
            return
        unscaled = int("".join(map(str, digits)) or "0")
        self.buffer += bytes((codes.BIG_DECIMAL, 0))
        self.int32(-exponent)
        self._big(-unscaled if sign else unscaled)

    def _tree(self, tree: Tree) -> None:
        self.int32(len(tree.branches))
        for key, inner in tree.entries():
            self.value(key)
            self._tree(inner)


def write(value: Any, *, is_bare: bool = False) -> bytes:
    writer = Writer(is_bare=is_bare)
    writer.value(value)
    return bytes(writer.buffer)


def write_answer(request_id: str, status: int, message: str, attributes: dict[str, Any], results: bytes) -> bytes:
    """A whole response; `results` is the list of results, already encoded."""
    writer = Writer()
    writer.buffer += bytes((codes.VERSION, 0)) + bytes.fromhex(request_id.replace("-", ""))
    writer.int32(status)
    writer.buffer += b"\0"
    writer.text(message)
    writer.map(attributes)
    writer.map({})
    return bytes(writer.buffer) + results
