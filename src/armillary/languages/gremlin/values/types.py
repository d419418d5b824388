"""The types that typeOf() tests, by name.

Numbers keep the type that the client sent; which types survive storage is decided by
`account/graphs/graph_documents.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from armillary.languages.gremlin.errors import compilation
from armillary.languages.gremlin.syntax.tokens import GType
from armillary.languages.gremlin.values.comparing import is_number
from armillary.languages.gremlin.values.elements import Edge, Path, Property, Subgraph, Tree, Vertex, VertexProperty
from armillary.languages.gremlin.values.typed_values import BigInt, BulkSet, Byte, Char, Float32, Long, Set, Short, Uuid

_CLASSES: Final[dict[GType, type]] = {
    GType.byte: Byte,
    GType.short: Short,
    GType.int: int,
    GType.long: Long,
    GType.big_integer: BigInt,
    GType.float: Float32,
    GType.double: float,
    GType.big_decimal: Decimal,
    GType.null: type(None),
    GType.boolean: bool,
    GType.char: Char,
    GType.string: str,
    GType.uuid: Uuid,
    GType.datetime: datetime,
    GType.duration: timedelta,
    GType.binary: bytes,
    GType.vertex: Vertex,
    GType.edge: Edge,
    GType.vertex_property: VertexProperty,
    GType.path: Path,
    GType.tree: Tree,
    GType.graph: Subgraph,
}
_WIDER: Final[dict[GType, Callable[[Any], bool]]] = {
    GType.number: is_number,
    GType.list: lambda value: isinstance(value, list) and not isinstance(value, Set),
    GType.set: lambda value: isinstance(value, Set | BulkSet),
    GType.map: lambda value: isinstance(value, dict | Tree),
    GType.property: lambda value: isinstance(value, Property | VertexProperty),
}
# Names of Java classes that differ from the token by more than upper and lower case.
_CALLED: Final = {
    "Integer": GType.int,
    "BigInteger": GType.big_integer,
    "Character": GType.char,
    "VertexProperty": GType.vertex_property,
    "OffsetDateTime": GType.datetime,
}


def type_named(value: Any) -> GType:
    """The type for an argument of typeOf(): a token or a name."""
    if isinstance(value, GType):
        return value
    if isinstance(value, str):
        found = _CALLED.get(value) or next((each for each in GType if each.value == value.upper()), None)
        if found is not None:
            return found
        raise compilation(f"{value[:60]} is not a registered type.")
    raise compilation("typeOf() takes a type: GType.INT, say.")


def is_of(value: Any, wanted: GType) -> bool:
    wider = _WIDER.get(wanted)
    return type(value) is _CLASSES[wanted] if wider is None else wider(value)
