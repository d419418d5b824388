"""Vertices, edges, properties, paths, trees and map entries as traversals see them. Numbers and collections that Python
has no type for are in `typed_values`.

A vertex or edge may be a reference (`properties is None`): steps that need its properties load it in batches
(`run.Run.load`). Elements are equal if they have the same id and partition key.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sized
from typing import Any, Final

from armillary.model.key_values import same_component


class Vertex:
    __slots__ = ("id", "label", "partition", "properties", "token")

    def __init__(
        self,
        id: Any,
        label: str = "vertex",
        partition: Any = None,
        properties: dict[str, list[VertexProperty]] | None = None,
        token: Any = None,
    ) -> None:
        self.id = id
        self.label = label
        self.partition = partition  # value of the partition key; None in a graph without one
        self.properties = properties
        self.token = token  # opaque, set by storage; for example an etag

    def __eq__(self, other: object) -> bool:
        if type(other) is not Vertex or self.id != other.id:
            return False
        # Clients know vertices by their ids alone.
        if self.partition is None or other.partition is None:
            return True
        return same_component(self.partition, other.partition)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"v[{self.id}]"


class Edge:
    __slots__ = ("id", "in_vertex", "label", "out_vertex", "properties", "token")

    def __init__(
        self,
        id: Any,
        label: str,
        out_vertex: Vertex,
        in_vertex: Vertex,
        properties: dict[str, Any] | None = None,
        token: Any = None,
    ) -> None:
        self.id = id
        self.label = label
        self.out_vertex = out_vertex
        self.in_vertex = in_vertex
        self.properties = properties
        self.token = token

    @property
    def partition(self) -> Any:
        return self.out_vertex.partition

    def __eq__(self, other: object) -> bool:
        return type(other) is Edge and self.id == other.id and same_component(self.partition, other.partition)

    def __hash__(self) -> int:
        return hash(self.id) ^ 1

    def __repr__(self) -> str:
        return f"e[{self.id}][{self.out_vertex.id}-{self.label}->{self.in_vertex.id}]"


class VertexProperty:
    __slots__ = ("id", "key", "meta", "value", "vertex")

    def __init__(self, id: Any, key: str, value: Any, vertex: Vertex | None = None, meta: dict[str, Any] | None = None):
        self.id = id
        self.key = key
        self.value = value
        self.vertex = vertex
        self.meta = meta if meta is not None else {}

    @property
    def label(self) -> str:
        return self.key

    def __eq__(self, other: object) -> bool:
        return type(other) is VertexProperty and self.id == other.id and self.vertex == other.vertex

    def __hash__(self) -> int:
        return hash(self.id) ^ 2

    def __repr__(self) -> str:
        return f"vp[{self.key}->{_text(self.value)[:20]}]"


class Property:
    """A property of an edge or of a vertex property."""

    __slots__ = ("key", "owner", "value")

    def __init__(self, key: str, value: Any, owner: Edge | VertexProperty | None = None) -> None:
        self.key = key
        self.value = value
        self.owner = owner

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is Property
            and self.key == other.key
            and self.owner == other.owner
            and bool(self.value == other.value)
        )

    def __hash__(self) -> int:
        return hash((self.key, _hash(self.value)))

    def __repr__(self) -> str:
        return f"p[{self.key}->{_text(self.value)[:20]}]"


_HASHED_ENDS: Final = 8  # objects of a path


def _hash(value: Any) -> int:
    """Equal values have the same. Those that Python does not hash are told apart by their sizes alone."""
    try:
        return hash(value)
    except TypeError:
        return len(value) if isinstance(value, Sized) else 0


Element = Vertex | Edge
ATTRIBUTED = (Vertex, Edge, VertexProperty)  # types that have properties


class Path:
    __slots__ = ("labels", "objects")

    def __init__(self, objects: list[Any], labels: list[tuple[str, ...]]) -> None:
        self.objects = objects
        self.labels = labels

    def __eq__(self, other: object) -> bool:
        return type(other) is Path and self.objects == other.objects

    def __hash__(self) -> int:
        """Of the ends of a long path: paths that only differ between them are rare, and no hash may take long."""
        objects = self.objects
        hashed = objects if len(objects) <= 2 * _HASHED_ENDS else objects[:_HASHED_ENDS] + objects[-_HASHED_ENDS:]
        return hash((len(objects), *[_hash(each) for each in hashed]))

    def __repr__(self) -> str:
        return f"path{self.objects}"


class Tree:
    """The result of tree(): nested maps of the objects of paths, in the order of their first appearance."""

    __slots__ = ("branches",)

    def __init__(self) -> None:
        self.branches: dict[Hashable, tuple[Any, Tree]] = {}

    def branch(self, key: Hashable, value: Any) -> Tree:
        found = self.branches.get(key)
        if found is None:
            found = self.branches[key] = (value, Tree())
        return found[1]

    def entries(self) -> Iterator[tuple[Any, Tree]]:
        return iter(self.branches.values())

    def as_map(self) -> dict[Any, Any]:
        """The first level as a map, for steps that take maps."""
        return {
            value if isinstance(value, Hashable) and not isinstance(value, bool) else Frozen(value, key): tree
            for key, (value, tree) in self.branches.items()
        }

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{value!r}={tree!r}" for value, tree in self.entries()) + "}"

    def __eq__(self, other: object) -> bool:
        return type(other) is Tree and self.branches == other.branches

    def __hash__(self) -> int:
        return len(self.branches)


class Subgraph:
    """The vertices and edges collected by subgraph()."""

    __slots__ = ("edges", "vertices")

    def __init__(self) -> None:
        self.vertices: dict[Vertex, Vertex] = {}
        self.edges: dict[Edge, Edge] = {}

    def add(self, edge: Edge) -> None:
        self.edges.setdefault(edge, edge)
        for vertex in (edge.out_vertex, edge.in_vertex):
            self.vertices.setdefault(vertex, vertex)

    def __repr__(self) -> str:
        return f"graph[vertices:{len(self.vertices)} edges:{len(self.edges)}]"


class Entry(tuple[Any, Any]):
    """One pair of a map, as unfold() gives it."""

    __slots__ = ()

    def __new__(cls, key: Any, value: Any) -> Entry:
        return super().__new__(cls, (key, value))


class Frozen:
    """A list, map or boolean as a key of a map, hashed by its content."""

    __slots__ = ("_key", "value")

    def __init__(self, value: Any, key: Hashable) -> None:
        self.value = value
        self._key = key

    def __eq__(self, other: object) -> bool:
        return type(other) is Frozen and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return repr(self.value)


def thaw(key: Any) -> Any:
    """The value of a map's key, unwrapped if it is Frozen."""
    return key.value if type(key) is Frozen else key


def pairs(entries: dict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    return ((thaw(key), value) for key, value in entries.items())


def _text(value: Any) -> str:
    return str(value)
