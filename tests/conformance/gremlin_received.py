"""What the released client makes of answers, as values of our own, so that one comparison serves both."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import Any

from gremlin_python.structure import graph as client

from armillary.languages.gremlin.values.elements import Edge, Path, Property, Vertex, VertexProperty
from armillary.languages.gremlin.values.typed_values import Set


def ours(value: Any) -> Any:
    match value:
        case client.Vertex():
            return Vertex(value.id, value.label)
        case client.Edge():
            return Edge(value.id, value.label, ours(value.outV), ours(value.inV))
        case client.VertexProperty():
            return VertexProperty(value.id, value.label, ours(value.value))
        case client.Property():
            return Property(value.key, ours(value.value))
        case client.Path():
            return Path([ours(each) for each in value.objects], [])
        case enum.Enum():
            return value.name.removesuffix("_")
        case set() | frozenset():
            return Set([ours(each) for each in value])
        case list():
            return [ours(each) for each in value]
        case datetime():
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value
        case dict() if value.get("@type") == "g:Tree":
            return {"$tree": _tree(value)}
        case dict():
            return {_key(key): ours(each) for key, each in value.items()}
    return value


def _key(key: Any) -> Any:
    found = ours(key)
    return str(found) if isinstance(found, list | dict) else found


def _tree(value: dict[str, Any]) -> dict[str, Any]:
    return {str(ours(each["key"])): _tree(each["value"]) for each in value["@value"]}
