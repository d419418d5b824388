"""Writes GraphSON: values to objects for the JSON library. Version 1 is untyped, as Cosmos DB answers; 2 and 3 are
typed.

In versions 1 and 2 all keys of maps become texts, since JSON has no others.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from armillary.languages.gremlin.errors import not_serializable
from armillary.languages.gremlin.formats.graphson_read import special_number
from armillary.languages.gremlin.syntax.tokens import Token
from armillary.languages.gremlin.values.comparing import counted, text_of
from armillary.languages.gremlin.values.dates import iso_duration, milliseconds
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
from armillary.languages.gremlin.values.predicates import P
from armillary.languages.gremlin.values.typed_values import BigInt, BulkSet, Byte, Char, Float32, Long, Set, Short, Uuid
from armillary.work import spend


class Writer:
    """Writes one version. Version 1 is untyped; `is_typed=False` makes the others untyped too."""

    def __init__(self, version: int, *, is_typed: bool | None = None) -> None:
        self.version = version
        self.is_typed = version > 1 if is_typed is None else is_typed

    def write(self, value: Any) -> Any:
        spend(4)
        if value is None or value is True or value is False:
            return value
        kind = type(value)
        if kind is str:
            return value
        if kind is Vertex:
            return self._vertex(value)
        if isinstance(value, int):
            return self._integer(value)
        if isinstance(value, float):
            if math.isfinite(value):
                return self._typed("g:Float" if kind is Float32 else "g:Double", float(value))
            return self._typed("g:Double", special_number(value))
        if isinstance(value, dict):
            return self._map(list(pairs(value)))
        if isinstance(value, list):
            return self._list(value)
        if kind is Edge:
            return self._edge(value)
        return self._other(value)

    def traverser(self, value: Any, bulk: int) -> Any:
        """One result of a bytecode request."""
        return {
            "@type": "g:Traverser",
            "@value": {"bulk": {"@type": "g:Int64", "@value": bulk}, "value": self.write(value)},
        }

    def results(self, values: list[Any]) -> Any:
        """The list of results of one message."""
        return self._list(values)

    def attributes(self, given: dict[str, Any]) -> Any:
        """The status attributes of a response. They are texts, longs and doubles only, so the general `write` is not
        needed.
        """
        if not self.is_typed:
            return given
        flat: list[Any] = []
        for name, value in given.items():
            flat.append(name)
            if type(value) is str:
                flat.append(value)
            else:
                flat.append({"@type": "g:Double" if type(value) is float else "g:Int64", "@value": value})
        if self.version < 3:
            return dict(zip(flat[::2], flat[1::2], strict=True))
        return {"@type": "g:Map", "@value": flat}

    def _typed(self, kind: str, value: Any) -> Any:
        return {"@type": kind, "@value": value} if self.is_typed else value

    def _integer(self, value: int) -> Any:
        kind = type(value)
        if kind is Long and -(2**63) <= value < 2**63:
            return self._typed("g:Int64", int(value))
        if kind is Byte:
            return self._typed("gx:Byte", int(value))
        if kind is Short:
            return self._typed("gx:Int16", int(value))
        if kind is not BigInt and -(2**31) <= value < 2**31:
            return self._typed("g:Int32", int(value))
        if kind is not BigInt and -(2**63) <= value < 2**63:
            return self._typed("g:Int64", int(value))
        # The JSON library writes at most 64 bits; clients also read larger numbers from texts.
        plain: Any = int(value) if -(2**63) <= value < 2**64 else str(int(value))
        return self._typed("gx:BigInteger", plain)

    def _list(self, values: list[Any]) -> Any:
        if not self.is_typed or self.version < 3:
            return [self.write(each) for each in values]
        if isinstance(values, BulkSet):
            flat: list[Any] = []
            for each, count in counted(values):
                flat += [self.write(each), {"@type": "g:Int64", "@value": count}]
            return {"@type": "g:BulkSet", "@value": flat}
        kind = "g:Set" if isinstance(values, Set) else "g:List"
        return {"@type": kind, "@value": [self.write(each) for each in values]}

    def _map(self, entries: list[tuple[Any, Any]]) -> Any:
        if self.is_typed and self.version >= 3:
            flat: list[Any] = []
            for key, each in entries:
                flat += [self.write(key), self.write(each)]
            return {"@type": "g:Map", "@value": flat}
        return {key_text(key): self.write(each) for key, each in entries}

    def _vertex(self, vertex: Vertex) -> Any:
        id = vertex.id
        written: dict[str, Any] = {"id": id if type(id) is str else self.write(id), "label": vertex.label}
        if not self.is_typed:
            written["type"] = "vertex"
        if vertex.properties:
            written["properties"] = {
                key: [self._vertex_property(each, is_inner=True) for each in values]
                for key, values in vertex.properties.items()
            }
        return self._typed("g:Vertex", written)

    def _vertex_property(self, each: VertexProperty, *, is_inner: bool = False) -> Any:
        id, value = each.id, each.value
        written = {
            "id": id if type(id) is str else self.write(id),
            "value": value if type(value) is str else self.write(value),
        }
        if self.is_typed or not is_inner:
            written["label"] = each.key
        if each.meta:
            written["properties"] = {key: self.write(value) for key, value in each.meta.items()}
        return {"@type": "g:VertexProperty", "@value": written} if self.is_typed else written

    def _edge(self, edge: Edge) -> Any:
        written: dict[str, Any] = {"id": self.write(edge.id), "label": edge.label}
        if not self.is_typed:
            written["type"] = "edge"
        written["inVLabel"] = edge.in_vertex.label
        written["outVLabel"] = edge.out_vertex.label
        written["inV"] = self.write(edge.in_vertex.id)
        written["outV"] = self.write(edge.out_vertex.id)
        if edge.properties:
            written["properties"] = {
                key: self._property(Property(key, value)) if self.is_typed else self.write(value)
                for key, value in edge.properties.items()
            }
        return self._typed("g:Edge", written)

    def _property(self, each: Property) -> Any:
        return self._typed("g:Property", {"key": each.key, "value": self.write(each.value)})

    def _other(self, value: Any) -> Any:
        if isinstance(value, VertexProperty):
            return self._vertex_property(value)
        if isinstance(value, Property):
            return self._property(value)
        if isinstance(value, Path):
            labels = [Set(each) for each in value.labels] or [Set() for _ in value.objects]
            return self._typed("g:Path", {"labels": self._list(list(labels)), "objects": self._list(value.objects)})
        if isinstance(value, Entry):
            return self._map([(value[0], value[1])])
        if isinstance(value, Tree):
            return self._tree(value)
        if isinstance(value, Subgraph):
            written = {
                "vertices": [self.write(e) for e in value.vertices],
                "edges": [self.write(e) for e in value.edges],
            }
            return self._typed("g:TinkerGraph" if self.version > 1 else "graph", written)
        if isinstance(value, Token):
            return self._typed(f"g:{value.family}", value.value)
        if isinstance(value, datetime):
            return self._typed("g:Date", milliseconds(value))
        if isinstance(value, Uuid):
            return self._typed("g:UUID", str(value))
        if isinstance(value, Char):
            return self._typed("gx:Char", str(value))
        if isinstance(value, Decimal):
            return self._typed("gx:BigDecimal", float(value) if not self.is_typed else str(value))
        if isinstance(value, timedelta):
            return self._typed("gx:Duration", iso_duration(value))
        if isinstance(value, P):
            return self._typed("g:P", {"predicate": value.name, "value": self.write(value.value)})
        if isinstance(value, str):
            return str(value)
        raise not_serializable(f"A result of type {type(value).__name__} cannot be written as GraphSON.")

    def _tree(self, tree: Tree) -> Any:
        if not self.is_typed:
            return {
                key_text(key): {"key": self.write(key), "value": self._tree(inner)} for key, inner in tree.entries()
            }
        entries = [{"key": self.write(key), "value": self._tree(inner)} for key, inner in tree.entries()]
        return {"@type": "g:Tree", "@value": entries}


def key_text(key: Any) -> str:
    """The key of a map as a text."""
    if isinstance(key, str):
        return str(key)
    if isinstance(key, Vertex | Edge):
        return str(key.id)
    return text_of(key)
