"""Writes of a traversal: elements to items, those of one physical partition in one transaction.

A vertex is dropped with its edges, which may be stored anywhere. Those of other partitions go in transactions of their
own: until then a traversal may find an edge whose vertex is gone, and skips it, as all traversals do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from armillary import limits
from armillary.account.container import Container
from armillary.account.graphs.graph_documents import edge_document, vertex_document
from armillary.account.items import items
from armillary.account.visits import visits
from armillary.account.visits.write_visits import WriteMany
from armillary.clock import Clock
from armillary.errors import Failure, Kind
from armillary.languages.gremlin.graph_protocol import (
    AddEdge,
    AddVertex,
    DropEdge,
    DropVertex,
    ReplaceEdge,
    ReplaceVertex,
    Write,
)
from armillary.languages.gremlin.syntax.tokens import Direction
from armillary.languages.gremlin.values.elements import Edge, Vertex
from armillary.model.keys import NO_KEY, Key
from armillary.partition.operations import Document, MemberFailed, Operation, Outcome, Verb, draft

Element = Vertex | Edge
_CONFLICT = "Conflicting request to resource has been attempted. Retry to avoid conflicts."


class WrittenGraph(Protocol):
    charge_ru: float
    shown: tuple[str, ...]

    @property
    def partition_key(self) -> str | None: ...

    async def adjacent(
        self, vertices: Sequence[Vertex], direction: Direction, labels: tuple[str, ...], limit: int | None
    ) -> list[list[Edge]]: ...


@dataclass(slots=True)
class _Change:
    """One item's part of a write."""

    operation: Operation
    element: Element | None  # whose token it changes; None: of a drop


async def write(graph: WrittenGraph, container: Container, clock: Clock, writes: Sequence[Write]) -> None:
    writer = _GraphWriter(graph, container, clock)
    doomed = await writer.edges_of([each.vertex for each in writes if isinstance(each, DropVertex)])
    for each in writes:
        writer.add(each, doomed)
    await writer.run()


class _GraphWriter:
    def __init__(self, graph: WrittenGraph, container: Container, clock: Clock) -> None:
        self._graph = graph
        self._container = container
        self._clock = clock
        self._changes: list[_Change] = []
        self._dropped: set[tuple[bytes, str]] = set()
        self._written: set[tuple[bytes, str]] = set()

    async def edges_of(self, vertices: Sequence[Vertex]) -> dict[Vertex, list[Edge]]:
        """All edges of vertices that go."""
        if not vertices:
            return {}
        found: dict[Vertex, list[Edge]] = {vertex: [] for vertex in vertices}
        unique = list(found)
        for direction in (Direction.IN, Direction.OUT):
            for vertex, edges in zip(unique, await self._graph.adjacent(unique, direction, (), None), strict=True):
                found[vertex] += edges
        return found

    # Elements to operations.

    def add(self, given: Write, doomed: dict[Vertex, list[Edge]]) -> None:
        partition_key, shown = self._graph.partition_key, self._graph.shown
        if isinstance(given, AddVertex):
            self._store(Verb.CREATE, vertex_document(given.vertex, partition_key), given.vertex)
        elif isinstance(given, AddEdge):
            self._store(Verb.CREATE, edge_document(given.edge, partition_key), given.edge)
        elif isinstance(given, ReplaceVertex):
            self._store(Verb.REPLACE, vertex_document(given.vertex, partition_key, shown), given.vertex)
        elif isinstance(given, ReplaceEdge):
            self._store(Verb.REPLACE, edge_document(given.edge, partition_key, shown), given.edge)
        elif isinstance(given, DropEdge):
            self._drop(given.edge)
        else:
            for edge in doomed.get(given.vertex, ()):
                self._drop(edge)
            self._drop(given.vertex)

    def _store(self, verb: Verb, document: Document, element: Element) -> None:
        container = self._container
        made = draft(container.schema, document, int(self._clock.now_s()))
        key = container.key_of(document)
        epk = container.effective_key(key)
        place = (epk, made.item_id)
        # An element that this call has written already has a newer etag than the one that was read.
        if_match = element.token if verb is Verb.REPLACE and place not in self._written else None
        self._written.add(place)
        operation = Operation(verb, epk, key, made.item_id, draft=made, if_match=if_match)
        self._changes.append(_Change(operation, element))

    def _drop(self, element: Element) -> None:
        key = NO_KEY if self._graph.partition_key is None else Key((element.partition,))
        epk = self._container.effective_key(key)
        if (epk, element.id) in self._dropped:
            return
        self._dropped.add((epk, element.id))
        self._changes.append(_Change(Operation(Verb.DELETE, epk, key, element.id), None))

    # Operations to partitions.

    async def run(self) -> None:
        left = self._changes
        while left:
            portion, left = self._portion(left)
            if not await self._write(portion):
                left = portion + left

    def _portion(self, changes: list[_Change]) -> tuple[list[_Change], list[_Change]]:
        """Those for the partition of the first, as many as a transaction takes; and the others."""
        container = self._container
        partition = container.partition_for(changes[0].operation.epk)
        taken: list[_Change] = []
        others: list[_Change] = []
        size_bytes = 0
        for at, change in enumerate(changes):
            if container.partition_for(change.operation.epk) is not partition:
                others.append(change)
                continue
            made = change.operation.draft
            size_bytes += len(made.text) if made is not None else 0
            if taken and (len(taken) >= limits.MANY_OPERATIONS_MAX or size_bytes > limits.MANY_BYTES_MAX):
                return taken, others + changes[at:]
            taken.append(change)
        return taken, others

    async def _write(self, portion: list[_Change]) -> bool:
        """False: the partition is being split or merged; its successors are to be asked."""
        container = self._container
        if container.faults is not None:
            for change in portion:
                await self._write_one(change)
            return True
        partition = container.partition_for(portion[0].operation.epk)
        while portion:
            operations = [change.operation for change in portion]
            visit = WriteMany(operations[0].epk, operations, takes_gone=True)
            try:
                done = await visits.run_at(container, partition, visit)
            except MemberFailed as failed:
                if visit.is_gone(failed):
                    del portion[failed.index]  # another client was faster
                    continue
                raise _explained(failed.failure) from None
            if done is None:
                await partition.released()
                return False
            self._graph.charge_ru += done.charge_ru
            for change, outcome in zip(portion, done.outcomes, strict=True):
                _settle(change, outcome)
            return True
        return True

    async def _write_one(self, change: _Change) -> None:
        """Where rules of faults look at every write."""
        try:
            answer = await items.write(self._container, change.operation, None)
        except Failure as failure:
            if failure.kind is Kind.NOT_FOUND and change.operation.verb is Verb.DELETE:
                return
            raise _explained(failure) from None
        self._graph.charge_ru += answer.charge_ru
        if answer.outcome is not None:
            _settle(change, answer.outcome)


def _settle(change: _Change, outcome: Outcome) -> None:
    if change.element is not None:
        change.element.token = outcome.etag


def _explained(failure: Failure) -> Failure:
    if failure.kind is Kind.CONFLICT:
        failure.message = f"{_CONFLICT} {failure.message}"
    return failure
