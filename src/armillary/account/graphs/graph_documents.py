"""Vertices and edges as items: the JSON that Cosmos's graphs are stored as, which the SQL door reads and writes too.

A vertex has its properties as arrays of `{id, _value, _meta}`, but for the partition key and `ttl`, which are bare; an
edge has them bare. What JSON cannot tell (dates, UUIDs, large and odd numbers) has its type noted beside it. Where such
items are and how they are found is `graph_reads.py`'s part.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import orjson

from armillary import limits
from armillary.errors import Failure
from armillary.languages.gremlin.errors import execution
from armillary.languages.gremlin.values import dates
from armillary.languages.gremlin.values.comparing import kind_of
from armillary.languages.gremlin.values.comparing import shown as shown_as
from armillary.languages.gremlin.values.elements import Edge, Vertex, VertexProperty
from armillary.languages.gremlin.values.typed_values import BigInt, Set, Uuid
from armillary.model.items import SYSTEM_PROPERTIES

ID: Final = "id"
LABEL: Final = "label"
IS_EDGE: Final = "_isEdge"
SOURCE, SOURCE_LABEL = "_vertexId", "_vertexLabel"
SINK, SINK_LABEL, SINK_PARTITION = "_sink", "_sinkLabel", "_sinkPartition"
TTL: Final = "ttl"
VALUE, META, TYPE, META_TYPES, EDGE_TYPES = "_value", "_meta", "_type", "_metaTypes", "_types"

_OF_EDGES: Final = frozenset(
    (ID, LABEL, IS_EDGE, SOURCE, SOURCE_LABEL, SINK, SINK_LABEL, SINK_PARTITION, EDGE_TYPES, *SYSTEM_PROPERTIES)
)
_OF_VERTICES: Final = frozenset((ID, LABEL, IS_EDGE, *SYSTEM_PROPERTIES))
EDGE_PARTITIONS: Final = ("outVPartition", "inVPartition")  # the partition keys of an edge's ends, shown on request
_EDGE_MARK: Final = b'"_isEdge":true'
_NO_LABEL: Final = "vertex"  # of an end whose label is not noted


# Reading.


Item = dict[str, Any]


def vertex_of(text: bytes, partition_key: str | None, shown: tuple[str, ...] = ()) -> Vertex | None:
    """None: the item is no vertex. `shown`: system properties that are to be among its properties."""
    item = vertex_item(text)
    return vertex_from(item, partition_key, shown) if item is not None else None


def vertex_item(text: bytes) -> Item | None:
    """The JSON of an item that is a vertex."""
    mark = text.find(_EDGE_MARK)
    if mark >= 0 and text.find(b"{", 1, mark) < 0:
        return None  # it is not inside anything: scans pass over many edges
    item: Item = orjson.loads(text)
    if mark >= 0 and item.get(IS_EDGE) is True:
        return None
    return item if type(item.get(LABEL)) is str else None


def vertex_from(item: Item, partition_key: str | None, shown: tuple[str, ...] = ()) -> Vertex:
    partition = item.get(partition_key) if partition_key is not None else None
    vertex = Vertex(item[ID], item[LABEL], partition, {}, item.get("_etag"))
    properties: dict[str, list[VertexProperty]] = {}
    for name, content in item.items():
        if name not in _OF_VERTICES:
            properties[name] = _values_of(vertex, name, content)
    for name in shown:
        if name in SYSTEM_PROPERTIES and name in item:
            properties[name] = _values_of(vertex, name, item[name])
    vertex.properties = properties
    return vertex


def _values_of(vertex: Vertex, name: str, content: Any) -> list[VertexProperty]:
    if type(content) is list and content:
        for each in content:
            if type(each) is not dict or VALUE not in each:
                break
        else:
            return [_property_of(vertex, name, each) for each in content]
    # The partition key, ttl, and what was written bare through another door.
    return [VertexProperty(f"{vertex.id}|{name}", name, content, vertex)]


def _property_of(vertex: Vertex, name: str, content: dict[str, Any]) -> VertexProperty:
    value = content[VALUE]
    if len(content) == 2 and ID in content:  # as nearly all are
        return VertexProperty(content[ID], name, value, vertex)
    if TYPE in content:
        value = _typed(value, content[TYPE])
    meta = content.get(META)
    if type(meta) is dict:
        kinds = content.get(META_TYPES)
        meta = _typed_members(meta, kinds) if type(kinds) is dict else meta
    else:
        meta = None
    return VertexProperty(content.get(ID, f"{vertex.id}|{name}"), name, value, vertex, meta)


def edge_item(text: bytes, labels: tuple[str, ...] = ()) -> Item | None:
    """The JSON of an item that is an edge, with one of the labels if some are given."""
    item: Item = orjson.loads(text)
    label = item.get(LABEL)
    if item.get(IS_EDGE) is not True or type(label) is not str or (labels and label not in labels):
        return None
    return item if type(item.get(SOURCE)) is str and type(item.get(SINK)) is str else None


def sink_partition(item: Item, partition_key: str | None) -> Any:
    """Of an edge. Without one of its own the sink is taken for one in the edge's partition."""
    return item.get(SINK_PARTITION, item.get(partition_key)) if partition_key is not None else None


def edge_from(
    item: Item,
    partition_key: str | None,
    *,
    source: Vertex | None = None,
    sink: Vertex | None = None,
    shown: tuple[str, ...] = (),
) -> Edge:
    """The edge that an item is. `source` and `sink`: the ends that are known already."""
    partition_of_sink = sink_partition(item, partition_key)
    take = item.pop  # what is left in the end are the properties
    label, source_id, sink_id = take(LABEL), take(SOURCE), take(SINK)
    take(IS_EDGE)
    partition = None
    if partition_key is not None:
        partition = take(partition_key, None)
        take(SINK_PARTITION, None)
    source_label, sink_label = take(SOURCE_LABEL, None), take(SINK_LABEL, None)
    if sink is None:
        sink = Vertex(sink_id, sink_label if type(sink_label) is str else _NO_LABEL, partition_of_sink)
    if source is None:
        source = Vertex(source_id, source_label if type(source_label) is str else _NO_LABEL, partition)
    id, etag, kinds = take(ID), item.get("_etag"), take(EDGE_TYPES, None)
    for name in SYSTEM_PROPERTIES:
        if name not in shown:
            take(name, None)
    if type(kinds) is dict:
        item = _typed_members(item, kinds)
    if shown and partition_key is not None:
        ends = zip(EDGE_PARTITIONS, (source.partition, sink.partition), strict=True)
        item.update({name: value for name, value in ends if name in shown})
    return Edge(id, label, source, sink, item, etag)


def _typed_members(members: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Any]:
    return {name: _typed(value, kinds[name]) if name in kinds else value for name, value in members.items()}


def _typed(value: Any, kind: Any) -> Any:
    """A value with the type that is stored beside it, or of a number the type and the exact value. The value as it
    is if it was changed through another API since, so that the two no longer agree."""
    if type(kind) is not str:
        return value
    name, _, exact = kind.partition(":")
    try:
        match name:
            case "date" if type(value) is str:
                return dates.parse_date(value)
            case "uuid" if type(value) is str:
                return Uuid(value)
            case "set" if type(value) is list:
                return Set(value)
            case "bigint" | "decimal" | "double" if len(exact) <= limits.GREMLIN_DIGITS_MAX * 2:
                return _NUMBERS[name](exact)
    except (ValueError, InvalidOperation, Failure):
        pass
    return value


_NUMBERS: Final[dict[str, Callable[[str], Any]]] = {"bigint": BigInt, "decimal": Decimal, "double": float}


# Writing.


def vertex_document(vertex: Vertex, partition_key: str | None, shown: tuple[str, ...] = ()) -> dict[str, Any]:
    """`shown`: as it was read."""
    assert vertex.properties is not None, "a vertex is written as a whole"
    item: dict[str, Any] = {ID: vertex.id, LABEL: vertex.label}
    if partition_key is not None:
        item[partition_key] = _key_value(vertex.partition, partition_key)
    for name, values in vertex.properties.items():
        if name == partition_key or (name in shown and name in SYSTEM_PROPERTIES):
            continue
        if name in _OF_VERTICES:
            raise execution(f"A property of a vertex cannot have the name '{name}': it is the system's.")
        if name == TTL and values:
            item[TTL] = _ttl(values)
        elif values:
            item[name] = [_stored_property(each) for each in values]
    return item


def _ttl(values: list[VertexProperty]) -> int:
    value = values[0].value
    if len(values) > 1 or not isinstance(value, int) or isinstance(value, bool):
        raise execution(f"The ttl of a vertex is one whole number of seconds, not {shown_as(value):.60}.")
    return int(value)


def _stored_property(given: VertexProperty) -> dict[str, Any]:
    value, kind = _stored(given.value, given.key)
    content: dict[str, Any] = {ID: given.id, VALUE: value}
    if kind is not None:
        content[TYPE] = kind
    if given.meta:
        content[META], kinds = _stored_members(given.meta)
        if kinds:
            content[META_TYPES] = kinds
    return content


def edge_document(edge: Edge, partition_key: str | None, shown: tuple[str, ...] = ()) -> dict[str, Any]:
    source, sink = edge.out_vertex, edge.in_vertex
    item: dict[str, Any] = {
        ID: edge.id,
        LABEL: edge.label,
        IS_EDGE: True,
        SOURCE: source.id,
        SOURCE_LABEL: source.label,
        SINK: sink.id,
        SINK_LABEL: sink.label,
    }
    if partition_key is not None:
        item[partition_key] = _key_value(source.partition, partition_key)
        item[SINK_PARTITION] = sink.partition
    properties = {name: value for name, value in (edge.properties or {}).items() if name not in shown}
    for name in properties:
        if name in _OF_EDGES:
            raise execution(f"A property of an edge cannot have the name '{name}': it is the system's.")
    members, kinds = _stored_members(properties)
    if partition_key is not None and partition_key in members:
        raise execution(f"The property '{partition_key}' of an edge is that of its out-vertex: leave it out.")
    item.update(members)
    if kinds:
        item[EDGE_TYPES] = kinds
    return item


def _key_value(value: Any, partition_key: str) -> Any:
    if isinstance(value, bool | str):
        return str(value) if type(value) is not bool else value
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value) if isinstance(value, float) else int(value)
    shown = "null" if value is None else str(value)[:60]
    raise execution(f"Cannot add a vertex where the partition key property '{partition_key}' has value '{shown}'.")


def _stored_members(members: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    stored: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    for name, value in members.items():
        stored[name], kind = _stored(value, name)
        if kind is not None:
            kinds[name] = kind
    return stored, kinds


def _stored(value: Any, name: str) -> tuple[Any, str | None]:
    """A value as JSON has it, and its type where JSON does not say it."""
    if value is None or value is True or value is False:
        return value, None
    if isinstance(value, str):
        return str(value), "uuid" if isinstance(value, Uuid) else None
    if isinstance(value, int):
        is_large = type(value) is BigInt or not -(2**63) <= value < 2**63
        return (_nearest(int(value)), f"bigint:{int(value)}") if is_large else (int(value), None)
    if isinstance(value, float):
        return (float(value), None) if math.isfinite(value) else (_nearest(value), f"double:{float(value)}")
    if isinstance(value, Decimal):
        return _nearest(value), f"decimal:{value}"
    if isinstance(value, datetime):
        return value.isoformat(), "date"
    if isinstance(value, Set):
        return _plain(value, name, 0), "set"
    return _plain(value, name, 0), None


def _nearest(value: int | float | Decimal) -> float | None:
    """The double that stands for a number in filters; none for NaN, which is met by none."""
    try:
        found = float(value)
    except OverflowError:
        found = math.inf if value > 0 else -math.inf
    return None if math.isnan(found) else min(max(found, -sys.float_info.max), sys.float_info.max)


def _plain(value: Any, name: str, depth: int) -> Any:
    """What lists and maps hold: JSON only, since there is nowhere to note a type."""
    if depth > limits.GREMLIN_VALUE_DEPTH_MAX:
        raise execution(f"The value of the property '{name}' is nested too deeply.")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int) and abs(value) < 2**63:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, list):
        return [_plain(each, name, depth + 1) for each in value]
    if isinstance(value, dict):
        return {_member_name(key, name): _plain(each, name, depth + 1) for key, each in value.items()}
    raise execution(f"The property '{name}' cannot hold a value of the type {kind_of(value)}.")


def _member_name(key: Any, name: str) -> str:
    if not isinstance(key, str):
        raise execution(f"A map in the property '{name}' has texts as its keys, not {shown_as(key):.60}.")
    return str(key)
