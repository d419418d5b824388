"""A reader of TinkerPop's feature files and a runner of their scenarios on the graph in memory.

The files are another project's and are not kept here: `test_gremlin_features.py` is told where they are.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path as FilePath
from typing import Any

from support.gremlin_graph import MemoryGraph, run_script

from armillary.errors import Failure
from armillary.languages.gremlin.syntax.tokens import Token, find
from armillary.languages.gremlin.values.comparing import map_key
from armillary.languages.gremlin.values.elements import (
    Edge,
    Entry,
    Frozen,
    Path,
    Property,
    Subgraph,
    Tree,
    Vertex,
    VertexProperty,
    pairs,
)
from armillary.languages.gremlin.values.predicates import make
from armillary.languages.gremlin.values.typed_values import BigInt, Byte, Float32, Long, Set, Short, Uuid


@dataclass
class Scenario:
    folder: str
    name: str
    tags: set[str]
    steps: list[tuple[str, str, list[str]]] = field(default_factory=list)  # text, docstring, rows of a table


def scenarios(directory: FilePath) -> Iterator[Scenario]:
    for path in sorted(directory.rglob("*.feature")):
        yield from _parse(path.read_text("utf-8"), f"{path.parent.name}/{path.stem}")


def _parse(text: str, folder: str) -> Iterator[Scenario]:
    tags: set[str] = set()
    inherited: set[str] = set()
    current: Scenario | None = None
    docstring: list[str] | None = None
    for line in text.splitlines():
        stripped = line.strip()
        if docstring is not None:
            if stripped == '"""':
                assert current is not None
                step, _, rows = current.steps[-1]
                current.steps[-1] = (step, "\n".join(docstring), rows)
                docstring = None
            else:
                docstring.append(stripped)
        elif stripped.startswith("@"):
            if current is not None:
                yield current
                current = None
            tags |= set(stripped.split())
        elif stripped.startswith("Feature:"):
            inherited, tags = tags, set()
        elif stripped.startswith("Scenario:"):
            if current is not None:
                yield current
            current = Scenario(folder, stripped.removeprefix("Scenario:").strip(), tags | inherited)
            tags = set()
        elif stripped == '"""':
            docstring = []
        elif stripped.startswith("|") and current is not None:
            current.steps[-1][2].append(stripped)
        elif current is not None and re.match(r"(Given|And|When|Then|But) ", stripped):
            current.steps.append((stripped.split(" ", 1)[1], "", []))
    if current is not None:
        yield current


class Skipped(Exception):
    pass


class Graphs:
    """The graphs that scenarios name, built once, copied for each scenario that might write."""

    def __init__(self, directory: FilePath | None) -> None:
        self._directory = directory
        self._built: dict[str, MemoryGraph] = {}

    async def get(self, name: str) -> MemoryGraph:
        if name == "empty":
            return MemoryGraph()
        if name not in self._built:
            self._built[name] = self._load(name)
        return self._built[name].copy()

    def _load(self, name: str) -> MemoryGraph:
        if self._directory is None:
            raise Skipped("no data")
        file = {"grateful": "grateful-dead"}.get(name, f"tinkerpop-{name}")
        path = self._directory / f"{file}.json"
        if not path.exists():
            raise Skipped(f"no {path.name}")
        graph = MemoryGraph()
        edges = []
        for line in path.read_text("utf-8").splitlines():
            record = json.loads(line)
            id = str(_plain(record["id"]))
            vertex = Vertex(id, record["label"], None, {})
            assert vertex.properties is not None
            for key, values in record.get("properties", {}).items():
                vertex.properties[key] = [
                    VertexProperty(
                        str(_plain(each["id"])),
                        key,
                        _plain(each["value"]),
                        vertex,
                        {name: _plain(value) for name, value in each.get("properties", {}).items()},
                    )
                    for each in values
                ]
            graph.stored_vertices[(None, id)] = vertex
            for label, given in record.get("outE", {}).items():
                edges += [(label, id, each) for each in given]
        for label, out, each in edges:
            into = str(_plain(each["inV"]))
            edge = Edge(
                str(_plain(each["id"])),
                label,
                graph.stored_vertices[(None, out)],
                graph.stored_vertices[(None, into)],
                {name: _plain(value) for name, value in each.get("properties", {}).items()},
            )
            graph.stored_edges[(None, edge.id)] = edge
            graph.out_edges.setdefault((None, out), {})[(None, edge.id)] = None
            graph.in_edges.setdefault((None, into), {})[(None, edge.id)] = None
        return graph


def _plain(value: Any) -> Any:
    if isinstance(value, dict) and "@value" in value:
        number = value["@value"]
        return Long(number) if value["@type"] == "g:Int64" else number
    return value


_NUMBERS: dict[str, Any] = {
    "i": int,
    "l": Long,
    "b": Byte,
    "s": Short,
    "n": BigInt,
    "d": float,
    "f": Float32,
    "m": Decimal,
}


class Run:
    """One scenario."""

    def __init__(self, scenario: Scenario, graphs: Graphs) -> None:
        self.scenario = scenario
        self.graphs = graphs
        self.graph = MemoryGraph()
        self.parameters: dict[str, Any] = {}
        self.script = ""
        self.results: list[Any] = []
        self.failure: Failure | None = None

    async def run(self) -> None:
        for text, docstring, rows in self.scenario.steps:
            await self._step(text, docstring, rows)

    async def _step(self, text: str, docstring: str, rows: list[str]) -> None:
        if match := re.fullmatch(r"the (\w+) graph", text):
            await self.choose(match.group(1))
        elif text == "the graph initializer of":
            await self.evaluate(_joined(docstring))
        elif match := re.fullmatch(r'using the parameter (\w+) defined as "(.*)"', text):
            self.parameters[match.group(1)] = self.value(match.group(2).replace('\\"', '"'))
        elif match := re.fullmatch(r'using the parameter (\w+) of P\.(\w+)\("(.*)"\)', text):
            value = self.value(match.group(3).replace('\\"', '"'))
            self.parameters[match.group(1)] = make(match.group(2), [value])
        elif match := re.fullmatch(r'using the side effect (\w+) defined as "(.*)"', text):
            self.parameters[match.group(1)] = self.value(match.group(2).replace('\\"', '"'))
        elif text == "the traversal of":
            self.script = _joined(docstring)
        elif text == "an unsupported test":
            raise Skipped("unsupported in TinkerPop itself")
        elif text in ("iterated to list", "iterated next"):
            await self._iterate(text == "iterated next")
        elif match := re.fullmatch(r'the traversal will raise an error( with message \w+ text of "(.*)")?', text):
            assert self.failure is not None, f"no error but {self.results}"
            assert (match.group(2) or "") in self.failure.message, (match.group(2), self.failure.message)
        elif match := re.fullmatch(r"the result should be (\w+)", text):
            self._check(match.group(1), rows)
        elif match := re.fullmatch(r"the result should have a count of (\d+)", text):
            self._raise()
            found = self.results
            count = len(found)
            if count == 1 and isinstance(found[0], list | dict) and int(match.group(1)) != 1:
                count = len(found[0])
            assert count == int(match.group(1)), found
        elif match := re.fullmatch(r'the graph should return (\d+) for count of "(.*)"', text):
            self._raise()
            found = await self.evaluate(match.group(2).replace('\\"', '"') + ".count()")
            assert found == [int(match.group(1))], (match.group(2), found)
        elif text.startswith("nothing should happen"):
            raise Skipped("nothing to check")
        else:
            raise Skipped(f"unknown: {text}")

    async def _iterate(self, is_next: bool) -> None:
        if "Lambda." in self.script or any(isinstance(value, Lambda) for value in self.parameters.values()):
            raise Skipped("lambda")
        if "withComputer" in self.script:
            raise Skipped("graph computer")
        try:
            self.results = await self.evaluate(self.script)
            if is_next:
                first = self.results[0]
                self.results = list(first.objects) if isinstance(first, Path) else list(_unfolded(first))
        except Failure as failure:
            self.failure = failure

    # -- what others do in another way

    async def choose(self, name: str) -> None:
        self.graph = await self.graphs.get(name)

    async def evaluate(self, script: str) -> list[Any]:
        return await run_script(self.graph, script, self.parameters)

    def _raise(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _check(self, kind: str, rows: list[str]) -> None:
        self._raise()
        if kind == "empty":
            assert self.results == [], self.results
            return
        cells = [row.strip()[1:-1].strip().replace("\\|", "|").replace('\\\\"', '\\"') for row in rows[1:]]
        expected = [plain(self.value(cell)) for cell in cells]
        found = [plain(each) for each in self.results]
        if kind == "of":
            assert all(each in expected for each in found), (found, expected)
            return
        assert len(found) == len(expected), (found, expected)
        if kind == "ordered":
            assert found == expected, (found, expected)
            return
        left = list(found)
        for each in expected:
            assert each in left, (each, found, expected)
            left.remove(each)

    # -- values in the notation of the files

    def value(self, text: str) -> Any:
        if match := re.fullmatch(r"d\[(.*)\]\.([bsilfdmn])", text):
            return _NUMBERS[match.group(2)](match.group(1))
        if match := re.fullmatch(r"(str|uuid|dt|[a-zA-Z]{1,2})\[(.*)\](\.id|\.sid)?", text, re.DOTALL):
            return self._bracketed(match.group(1), match.group(2), match.group(3) or "")
        return {"null": None, "true": True, "false": False}.get(text, text)

    def _bracketed(self, kind: str, inner: str, suffix: str) -> Any:
        match kind:
            case "str":
                return inner
            case "uuid":
                return Uuid(inner)
            case "dt":
                date = datetime.fromisoformat(inner)
                return date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
            case "d":
                return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}[inner]
            case "l":
                return [self.value(each) for each in _split(inner)]
            case "s":
                return Set(self.value(each) for each in _split(inner))
            case "p":
                return Path([self.value(each) for each in _split(inner)], [])
            case "m":
                return self._json(json.loads(inner))
            case "t":
                return find("T", inner)
            case "D":
                return find("Direction", inner)
            case "M":
                return find("Merge", inner)
            case "v" | "e" | "vp":
                element = self.element(kind, inner)
                return element if not suffix else element.id
            case "c":
                return Lambda(inner)
        raise Skipped(f"{kind}[…]")

    def _json(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {map_key(self.value(key)): self._json(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._json(each) for each in value]
        return self.value(value) if isinstance(value, str) else value

    def element(self, kind: str, inner: str) -> Any:
        vertices = self.graph.stored_vertices.values()

        def name(vertex: Vertex) -> Any:
            values = (vertex.properties or {}).get("name")
            return values[0].value if values else None

        if kind == "v":
            for vertex in vertices:
                if name(vertex) == inner or str(vertex.id) == inner:
                    return vertex
            return Vertex(inner)
        if kind == "e":
            for edge in self.graph.stored_edges.values():
                out = self.graph.stored_vertices[(None, edge.out_vertex.id)]
                into = self.graph.stored_vertices[(None, edge.in_vertex.id)]
                if f"{name(out)}-{edge.label}->{name(into)}" == inner:
                    return edge
            raise Skipped(f"no edge {inner}")
        for vertex in vertices:
            for values in (vertex.properties or {}).values():
                for each in values:
                    if f"{name(vertex)}-{each.key}->{each.value}" == inner:
                        return each
        raise Skipped(f"no property {inner}")


class Lambda:
    def __init__(self, text: str) -> None:
        self.text = text


def _joined(text: str) -> str:
    return text.replace("\n", " ")


def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    found, depth, piece = [], 0, ""
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            found.append(piece)
            piece = ""
        else:
            piece += character
    return [*found, piece] if text else []


def _unfolded(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        return iter([{key: each} for key, each in value.items()])
    return iter(value) if isinstance(value, list) else iter([value])


def plain(value: Any) -> Any:
    """Comparable by ==, as the suites of other languages compare: maps and sets without order, NaN equal to itself."""
    match value:
        case bool() | None | str():
            return ("uuid", str(value)) if isinstance(value, Uuid) else value
        case int():
            return int(value)
        case float() | Decimal():
            return "NaN" if value != value else round(float(value), 9)
        case Vertex():
            return ("v", str(value.id))
        case Edge():
            return ("e", str(value.id))
        case VertexProperty():
            return ("vp", value.key, plain(value.value))
        case Property():
            return ("p", value.key, plain(value.value))
        case Path():
            return ("path", [plain(each) for each in value.objects])
        case Set():
            return ("set", sorted((plain(each) for each in value), key=repr))
        case Entry():
            return ("map", [(plain(value[0]), plain(value[1]))])
        case list():
            return [plain(each) for each in value]
        case dict():
            return ("map", sorted(((plain(key), plain(each)) for key, each in pairs(value)), key=repr))
        case Tree():
            return ("map", sorted(((plain(key), plain(inner)) for key, inner in value.entries()), key=repr))
        case Token():
            return ("token", value.value)
        case Frozen():
            return plain(value.value)
        case Subgraph():
            return ("graph", len(value.vertices), len(value.edges))
    return value
