"""The interface between the language and storage: the requests that a traversal makes to its graph, and its writes.
`account/graphs/graph.py` implements it.

Steps work on batches of traversers, so every request is about many elements ("the out-edges labelled 'knows' of these
256 vertices") and takes one `await`; storage groups it by partition and reads each partition once. Scans are pulled
page by page and need no closing: a traversal that has enough results stops pulling. A vertex at the far end of an edge
is a reference (`properties is None`) until `load` fills it, so out().out().dedup().count() reads edges only. Conditions
are a hint: storage may use an index for them or return more elements; the traversal tests them again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from armillary.languages.gremlin.syntax.tokens import Direction, T
from armillary.languages.gremlin.values.elements import Edge, Vertex
from armillary.languages.gremlin.values.predicates import P

ANYWHERE: Final = object()  # the partition of an id that was given without a partition key


@dataclass(frozen=True, slots=True)
class Reference:
    """An id, with the value of its partition key if that is known."""

    id: Any
    partition: Any = ANYWHERE


@dataclass(frozen=True, slots=True)
class Condition:
    """`has(key, predicate)` on the id, the label or a property. It holds if one of several values of a property meets
    the predicate.
    """

    key: str | T
    predicate: P
    is_partition: bool = False  # whether the key is the partition key; edges have its value, but not as a property


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for elements: those referenced, or all if `references` is None, that meet the conditions."""

    references: tuple[Reference, ...] | None = None
    conditions: tuple[Condition, ...] = ()
    count: int | None = None  # the most elements that the traversal will use, if all of them meet the conditions


@dataclass(frozen=True, slots=True)
class AddVertex:
    vertex: Vertex


@dataclass(frozen=True, slots=True)
class ReplaceVertex:
    """Stores the vertex with its current properties, if it has not changed since its token was read."""

    vertex: Vertex


@dataclass(frozen=True, slots=True)
class DropVertex:
    """Deletes the vertex and its edges in both directions, in all partitions."""

    vertex: Vertex


@dataclass(frozen=True, slots=True)
class AddEdge:
    edge: Edge


@dataclass(frozen=True, slots=True)
class ReplaceEdge:
    edge: Edge


@dataclass(frozen=True, slots=True)
class DropEdge:
    edge: Edge


Write = AddVertex | ReplaceVertex | DropVertex | AddEdge | ReplaceEdge | DropEdge
VertexPages = Callable[[], Awaitable[list[Vertex]]]  # an empty page is the end
EdgePages = Callable[[], Awaitable[list[Edge]]]


@dataclass(frozen=True, slots=True)
class StoreOperation:
    """One read of storage, for profiles: the number of partitions, and the elements and bytes they returned."""

    fanout: int
    count: int
    size_bytes: int
    time_ms: float


class Graph(Protocol):
    @property
    def operations(self) -> list[StoreOperation]:
        """The reads so far, in order. A profile looks at those that each step has added."""

    @property
    def partition_key(self) -> str | None:
        """Name of the property that is the partition key; None in a graph of one partition."""

    def element_id(self, value: Any) -> Any:
        """An id as it is stored; for example, numbers become texts."""

    def vertices(self, wanted: Wanted) -> VertexPages: ...

    def edges(self, wanted: Wanted) -> EdgePages: ...

    async def adjacent(
        self, vertices: Sequence[Vertex], direction: Direction, labels: tuple[str, ...], limit: int | None
    ) -> list[list[Edge]]:
        """For each vertex its edges in one direction (OUT or IN), at most `limit` of them, with one of the labels if
        any are given. The vertices of the edges may be references.
        """

    async def load(self, vertices: Sequence[Vertex]) -> None:
        """Reads the label and the properties of vertices that are references. Vertices that no longer exist stay
        references.
        """

    async def write(self, writes: Sequence[Write]) -> None:
        """Writes in the order given, atomically within each partition, and sets the tokens of the elements written."""


class Environment(Protocol):
    """Time, random numbers and ids for a run, so that it can be simulated."""

    def elapsed_s(self) -> float: ...

    def random(self) -> float:
        """From 0 to 1."""

    def guid(self) -> str: ...

    async def pause(self) -> None:
        """Called regularly by long runs: yields to other requests, and may raise to stop the run."""
