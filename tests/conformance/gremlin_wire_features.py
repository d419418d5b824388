"""Scenarios of TinkerPop's feature files through a released client against a real server: graphs are loaded through the
door, parameters stand in the scripts as literals, and elements are looked up by what the server gives.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Coroutine, Iterator
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path as FilePath
from typing import Any

from conformance.gremlin_features import Graphs, Lambda, Run, Scenario, Skipped
from conformance.gremlin_received import ours as received
from gremlin_python.driver.client import Client
from gremlin_python.driver.protocol import GremlinServerError

from armillary.errors import Failure, Kind
from armillary.languages.gremlin.syntax.tokens import Token, find
from armillary.languages.gremlin.values.comparing import map_key
from armillary.languages.gremlin.values.elements import Edge, Vertex, pairs
from armillary.languages.gremlin.values.predicates import P
from armillary.languages.gremlin.values.typed_values import BigInt, Byte, Long, Set, Short, Uuid

GRAPHS = {"modern": "tinkerpop-modern", "crew": "tinkerpop-crew", "sink": "tinkerpop-sink", "grateful": "grateful-dead"}
_RESULT_S = 60
_SUFFIXES = {Long: "L", Byte: "b", Short: "s", BigInt: "n"}
_TYPED = {"g:Int64": "L", "g:Double": "d", "g:Float": "f"}


class Door:
    """A server that has the graphs of the scenarios, as one client sees it."""

    def __init__(self, clients: dict[str, Client]) -> None:
        self._clients = clients
        self._known: dict[str, dict[str, dict[str, Any]]] = {}

    def ask(self, graph: str, script: str) -> list[Any]:
        try:
            return [ours(each) for each in self._clients[graph].submit(script).all().result(_RESULT_S)]
        except GremlinServerError as error:
            raise Failure(Kind.BAD_REQUEST, str(error)) from None

    def load(self, graph: str, path: FilePath) -> None:
        self.ask(graph, "g.V().drop()")
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        # Vertices and edges of a partition share their ids.
        vertices = {_plain(record["id"]) for record in records}
        edges = {_plain(each["id"]) for record in records for some in record.get("outE", {}).values() for each in some}
        prefix = "e" if vertices & edges else ""
        for script in (*map(_vertex, records), *(edge for record in records for edge in _edges(record, prefix))):
            self.ask(graph, script)

    def known(self, graph: str) -> dict[str, dict[str, Any]]:
        """Elements by what scenarios call them. The empty graph is looked at anew each time."""
        if graph == "empty" or graph not in self._known:
            self._known[graph] = self._look(graph)
        return self._known[graph]

    def _look(self, graph: str) -> dict[str, dict[str, Any]]:
        vertices: dict[str, Any] = {}
        for each in self.ask(graph, "g.V().project('v','n').by().by(values('name').fold())"):
            vertices.setdefault(str(each["n"][0] if each["n"] else each["v"].id), each["v"])
        ends = "by(outV().values('name').fold()).by(inV().values('name').fold())"
        edges = {
            f"{each['o'][0]}-{each['e'].label}->{each['i'][0]}": each["e"]
            for each in self.ask(graph, f"g.E().project('e','o','i').by().{ends}")
            if each["o"] and each["i"]
        }
        owned = "g.V().has('name').properties().project('p','n').by().by(element().values('name'))"
        properties = {
            f"{each['n']}-{each['p'].key}->{_shown(each['p'].value)}": each["p"] for each in self.ask(graph, owned)
        }
        return {"v": vertices, "e": edges, "vp": properties}


class WireRun(Run):
    def __init__(self, scenario: Scenario, door: Door) -> None:
        super().__init__(scenario, Graphs(None))
        self._door = door
        self._name = "empty"

    async def choose(self, name: str) -> None:
        self._name = name
        if name == "empty":
            self._door.ask(name, "g.V().drop()")

    async def evaluate(self, script: str) -> list[Any]:
        if self.parameters:
            names = "|".join(sorted(self.parameters, key=len, reverse=True))
            script = re.sub(rf"\b({names})\b", lambda match: literal(self.parameters[match.group(1)]), script)
        return self._door.ask(self._name, script)

    def element(self, kind: str, inner: str) -> Any:
        found = self._door.known(self._name)[kind].get(inner)
        if found is None and kind != "v":
            raise Skipped(f"no {kind}[{inner}]")
        return found if found is not None else Vertex(inner)


def finish(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run what never waits: the client cannot be used inside an event loop."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


def ours(value: Any) -> Any:
    match value:
        case Enum():
            return find(type(value).__name__, value.name.removesuffix("_")) or value
        case list() | tuple():
            return [ours(each) for each in value]
        case dict() if value.get("@type") != "g:Tree":
            return {map_key(ours(key)): ours(each) for key, each in value.items()}
    if type(value).__name__ == "BigDecimal":
        return Decimal(value.unscaled_value).scaleb(-value.scale)
    return received(value)


def literal(value: Any) -> str:
    """A value as scripts write it."""
    match value:
        case Lambda():
            raise Skipped("lambda")
        case None | bool():
            return json.dumps(value)
        case Uuid():
            return f'UUID("{value}")'
        case str():
            return json.dumps(str(value))
        case int():
            return f"{int(value)}{_SUFFIXES.get(type(value), '')}"
        case Decimal():
            return f"{value}m"
        case float():
            if math.isfinite(value):
                return f"{float(value)!r}d"
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        case datetime():
            return f'datetime("{value.isoformat()}")'
        case Set():
            return "{" + ",".join(map(literal, value)) + "}"
        case list():
            return "[" + ",".join(map(literal, value)) + "]"
        case dict():
            entries = [f"({literal(key)}):{literal(each)}" for key, each in pairs(value)]
            return "[" + (",".join(entries) or ":") + "]"
        case Token():
            return f"{value.family}.{value.value}"
        case Vertex():
            return f"new Vertex({literal(value.id)},{literal(value.label)})"
        case Edge():
            return literal(value.id)
        case P():
            return f"P.{value.name}({literal(value.value)})"
    raise Skipped(f"{type(value).__name__} has no literal")


def _shown(value: Any) -> str:
    """Of a property, as scenarios write it."""
    if isinstance(value, int | float):
        return f"d[{value}].{'i' if isinstance(value, int) else 'd'}"
    return str(value)


# The toy graphs, from GraphSON.


def _vertex(record: dict[str, Any]) -> str:
    script = f"g.addV({_stored(record['label'])}).property(T.id,{_stored(str(_plain(record['id'])))})"
    for key, values in record.get("properties", {}).items():
        for each in values:
            meta = "".join(f",{_stored(name)},{_stored(one)}" for name, one in each.get("properties", {}).items())
            script += f".property({'list,' if len(values) > 1 else ''}{_stored(key)},{_stored(each['value'])}{meta})"
    return script


def _edges(record: dict[str, Any], prefix: str) -> Iterator[str]:
    source = _stored(str(_plain(record["id"])))
    for label, edges in record.get("outE", {}).items():
        for each in edges:
            ends = f"g.V({source}).addE({_stored(label)}).to(__.V({_stored(str(_plain(each['inV'])))}))"
            properties = "".join(
                f".property({_stored(name)},{_stored(one)})" for name, one in each.get("properties", {}).items()
            )
            yield f"{ends}.property(T.id,{_stored(prefix + str(_plain(each['id'])))}){properties}"


def _plain(value: Any) -> Any:
    return value["@value"] if isinstance(value, dict) else value


def _stored(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['@value']}{_TYPED.get(value['@type'], '')}"
    return json.dumps(value).replace("$", "\\$")
