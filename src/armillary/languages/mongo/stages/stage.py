"""What a stage is: it takes batches of documents and gives batches. Most do so without waiting for anything and are
steps; those that read other collections are streams. A stage is compiled once and opened for every run. No stage
changes a document it was given.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from armillary import limits, work
from armillary.languages.mongo.expression_context import Context, Expression
from armillary.languages.mongo.memory_budget import Budget
from armillary.model.bson.bson_values import Document

_DOCUMENT_UNITS = 20  # of handing on one document
_FIRST_PORTION = 4
_PORTION_BYTES = 8 * limits.MB

Batch = list[Document]
Batches = AsyncGenerator[Batch, None]  # closed by whoever takes batches from it


class Collections(Protocol):
    """Other collections, as `$lookup` and its like read them."""

    def documents(self, database: str | None, name: str, given: Document) -> Batches:
        """All documents that match a filter; others may be among them. No database is the one that is aggregated in.
        A collection that is not there has none."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the values of variables as `context.run_values` makes them, and where other documents come from."""

    values: list[Any]
    collections: Collections


class Step(Protocol):
    """A stage that is being run."""

    is_full: bool  # nothing that it is still given would change what it gives

    def take(self, batch: Batch) -> Batch: ...

    def finish(self) -> Iterable[Batch]:
        """What remains when there is no more; evaluated as it is asked for."""


class Stage(Protocol):
    def open(self, run: Run) -> Step: ...


@runtime_checkable
class Stream(Protocol):
    """A stage that may have to wait."""

    collection: str | None  # that it reads

    def stream(self, source: Batches, run: Run) -> Batches: ...


@dataclass(frozen=True, slots=True)
class Piecewise:
    """A stage that does the same to every batch, whatever came before."""

    take: Callable[[Batch], Batch]

    is_full = False

    def open(self, run: Run) -> Step:
        return self

    def finish(self) -> Iterable[Batch]:
        return ()


def each(transform: Callable[[Document], Document]) -> Piecewise:
    """A stage that makes another document of each."""

    def take(batch: Batch) -> Batch:
        made: Batch = []
        for document in batch:
            work.spend(_DOCUMENT_UNITS + len(document))
            made.append(transform(document))
        return made

    return Piecewise(take)


class Waiting:
    """A step that gives nothing before it has seen everything; for deriving."""

    is_full = False

    def take(self, batch: Batch) -> Batch:
        self.keep(batch)
        return []

    def keep(self, batch: Batch) -> None:
        raise NotImplementedError

    def finish(self) -> Iterable[Batch]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Opened:
    """A stage whose step is made by a function."""

    make: Callable[[Run], Step]

    def open(self, run: Run) -> Step:
        return self.make(run)


def batches_of(documents: Iterable[Document]) -> Iterator[Batch]:
    batch: Batch = []
    for document in documents:
        batch.append(document)
        if len(batch) >= limits.MONGO_BATCH_DOCUMENTS:
            yield batch
            batch = []
    if batch:
        yield batch


def over(expression: Expression, context: Context) -> Callable[[Document], Any]:
    """An expression as a function of a document."""
    places = context.scope({})[2:]

    def evaluate(document: Document) -> Any:
        work.spend(_DOCUMENT_UNITS)
        return expression([document, document, *places])

    return evaluate


# Running.


async def chained(stages: Sequence[Stage], source: Batches, run: Run, context: Context) -> Batches:
    """Documents through stages that wait for nothing."""
    steps = [stage.open(run) for stage in stages]
    portions = _Portions()
    async with aclosing(source):
        async for whole in source:
            for portion in portions.of(whole):
                context.begin(run.values)
                before_bytes = work.made()
                batch = _through(steps, 0, portion)
                portions.note(len(portion), work.made() - before_bytes)
                work.release(before_bytes)
                if batch:
                    yield batch
                if any(step.is_full for step in steps):
                    break
            if any(step.is_full for step in steps):
                break
    for place, step in enumerate(steps):
        context.begin(run.values)
        for whole in step.finish():
            for portion in portions.of(whole):
                before_bytes = work.made()
                batch = _through(steps, place + 1, portion)
                portions.note(len(portion), work.made() - before_bytes)
                work.release(before_bytes)
                if batch:
                    yield batch
                    context.begin(run.values)
                if any(later.is_full for later in steps[place + 1 :]):
                    break
            if any(later.is_full for later in steps[place + 1 :]):
                break


class _Portions:
    """How many documents go through the stages at once: as many as come, unless what is made of them is large. Else a
    batch of small documents, each of which becomes a large one, would have to fit into memory as a whole."""

    def __init__(self) -> None:
        self._size = _FIRST_PORTION

    def of(self, batch: Batch) -> Iterator[Batch]:
        first = 0
        while first < len(batch):
            size = self._size
            yield batch[first : first + size] if first or size < len(batch) else batch
            first += size

    def note(self, count: int, made_bytes: int) -> None:
        wanted = _PORTION_BYTES * count // max(made_bytes, 1)
        self._size = max(1, min(wanted, 16 * self._size, limits.MONGO_BATCH_DOCUMENTS * 2))


def _through(steps: Sequence[Step], first: int, batch: Batch) -> Batch:
    for place in range(first, len(steps)):
        if not batch:
            break
        batch = steps[place].take(batch)
    return batch


async def collected(source: Batches, budget: Budget) -> list[Document]:
    """Everything that comes, counted."""
    found: list[Document] = []
    async with aclosing(source):
        async for batch in source:
            for document in batch:
                work.spend(_DOCUMENT_UNITS)
                budget.take_document(document)
            found += batch
    return found


async def of_list(documents: Sequence[Document]) -> Batches:
    for first in range(0, len(documents), limits.MONGO_BATCH_DOCUMENTS):
        yield list(documents[first : first + limits.MONGO_BATCH_DOCUMENTS])
