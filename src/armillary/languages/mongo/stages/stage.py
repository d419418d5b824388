"""The interface of stages: they take and give batches of documents. Most never wait and are run as Steps; those that
read other collections are Streams. A stage is compiled once and opened for every run. Stages do not change documents in
place.
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

_DOCUMENT_UNITS = 20  # work units for passing on one document
_FIRST_PORTION = 4
_PORTION_BYTES = 8 * limits.MB

Batch = list[Document]
Batches = AsyncGenerator[Batch, None]  # the consumer closes it


class Collections(Protocol):
    """Access to other collections for `$lookup`, `$graphLookup` and `$unionWith`."""

    def documents(self, database: str | None, name: str, given: Document) -> Batches:
        """At least all documents that match a filter; others may be included. Without a database it is that of the
        pipeline. A collection that does not exist is empty.
        """


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the values of variables (see `expression_context.run_values`) and the access to other collections."""

    values: list[Any]
    collections: Collections


class Step(Protocol):
    """A stage opened for one run."""

    is_full: bool  # whether further input cannot change its results

    def take(self, batch: Batch) -> Batch: ...

    def finish(self) -> Iterable[Batch]:
        """The remaining results after the end of the input, as an iterable that is evaluated lazily."""


class Stage(Protocol):
    def open(self, run: Run) -> Step: ...


@runtime_checkable
class Stream(Protocol):
    """A stage that may wait for reads."""

    collection: str | None  # the collection that it reads

    def stream(self, source: Batches, run: Run) -> Batches: ...


@dataclass(frozen=True, slots=True)
class Piecewise:
    """A stage without state: a function of a batch."""

    take: Callable[[Batch], Batch]

    is_full = False

    def open(self, run: Run) -> Step:
        return self

    def finish(self) -> Iterable[Batch]:
        return ()


def each(transform: Callable[[Document], Document]) -> Piecewise:
    """A stage that maps each document to another."""

    def take(batch: Batch) -> Batch:
        made: Batch = []
        for document in batch:
            work.spend(_DOCUMENT_UNITS + len(document))
            made.append(transform(document))
        return made

    return Piecewise(take)


class Waiting:
    """Parent class of steps that give no result before the end of the input."""

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
    """An expression compiled to a function of a document."""
    places = context.scope({})[2:]

    def evaluate(document: Document) -> Any:
        work.spend(_DOCUMENT_UNITS)
        return expression([document, document, *places])

    return evaluate


# Running.


async def chained(stages: Sequence[Stage], source: Batches, run: Run, context: Context) -> Batches:
    """Runs documents through a chain of stages that never wait."""
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
    """Adapts the number of documents that go through the stages at once: whole batches, unless the results are large.
    Otherwise a batch of small documents that each become a large one would have to fit into memory as a whole.
    """

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
    """All documents of a stream in a list, counted against a budget."""
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
