"""What a traversal asks of the graph behind it, and the writes it makes: the seam between the language and storage.

Why it has this form: steps work on batches of traversers, so every question is about many things at once ("the
out-edges labelled 'knows' of these 256 vertices"), and one `await` answers it; storage groups the question by partition
and reads each partition once. Scans are pulled page by page, and nobody has to close them: a traversal that has enough
stops asking. Vertices met at the far end of an edge are references (`properties is None`) until `load` is asked to fill
them, so out().out().dedup().count() reads edges only. Conditions are a hint: storage may use an index for them or give
more than was asked; the traversal looks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from armillary.languages.gremlin.syntax.tokens import Direction, T
from armillary.languages.gremlin.values.elements import Edge, Vertex
from armillary.languages.gremlin.values.predicates import P

ANYWHERE: Final = object()  # the partition of an id that was given alone


@dataclass(frozen=True, slots=True)
class Reference:
    """An id, with the value of its partition key if that is known."""

    id: Any
    partition: Any = ANYWHERE


@dataclass(frozen=True, slots=True)
class Condition:
    """`has(key, predicate)`: of the id, the label or a property. Of many values of a property one is enough."""

    key: str | T
    predicate: P
    is_partition: bool = False  # whether the key is the partition key, which edges have without showing it


@dataclass(frozen=True, slots=True)
class Wanted:
    """Elements asked for: by reference if any are named, else all; and what is known of them besides."""

    references: tuple[Reference, ...] | None = None
    conditions: tuple[Condition, ...] = ()
    count: int | None = None  # no more than so many will be used if all of them meet the conditions


@dataclass(frozen=True, slots=True)
class AddVertex:
    vertex: Vertex


@dataclass(frozen=True, slots=True)
class ReplaceVertex:
    """The vertex with its properties as they are now; its token says what it was read as."""

    vertex: Vertex


@dataclass(frozen=True, slots=True)
class DropVertex:
    """With its edges of both directions, wherever they are stored."""

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
    """One reading of storage, for profiles: how many partitions were asked, and what they gave."""

    fanout: int
    count: int
    size_bytes: int
    time_ms: float


class Graph(Protocol):
    @property
    def operations(self) -> list[StoreOperation]:
        """Appended to by every reading, the latest last. Whoever runs a profile looks at what was added."""

    @property
    def partition_key(self) -> str | None:
        """Name of the property that is the partition key; None in a graph of one partition."""

    def element_id(self, value: Any) -> Any:
        """An id as it is stored: numbers given as ids are texts in it, say."""

    def vertices(self, wanted: Wanted) -> VertexPages: ...

    def edges(self, wanted: Wanted) -> EdgePages: ...

    async def adjacent(
        self, vertices: Sequence[Vertex], direction: Direction, labels: tuple[str, ...], limit: int | None
    ) -> list[list[Edge]]:
        """For each vertex its edges in one direction (OUT or IN), with one of the labels if there are any; no more than
        `limit` for each vertex. Their ends may be references."""

    async def load(self, vertices: Sequence[Vertex]) -> None:
        """Fills the properties, and the label, of vertices known by reference. Those that are gone stay as they are."""

    async def write(self, writes: Sequence[Write]) -> None:
        """In this order; those of one partition together or not at all. Sets the tokens of what was written."""


class Environment(Protocol):
    """What a run needs of the world."""

    def elapsed_s(self) -> float: ...

    def random(self) -> float:
        """From 0 to 1."""

    def guid(self) -> str: ...

    async def pause(self) -> None:
        """Called now and then by long runs: gives others their turn, and may raise to stop the run."""
