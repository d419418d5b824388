"""Stages that let documents through or not, or several for one: filters, limits, samples, unwinding, counting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any

from bson.int64 import Int64

from armillary import work
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import RANDOM, Context
from armillary.languages.mongo.expressions.compiling import check_path
from armillary.languages.mongo.expressions.numbers import INT, integer
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.paths import with_value
from armillary.languages.mongo.stages.shaping import redact as redact_document
from armillary.languages.mongo.stages.stage import (
    Batch,
    Batches,
    Opened,
    Piecewise,
    Run,
    Step,
    Stream,
    Waiting,
    batches_of,
)
from armillary.model.bson.bson_values import MISSING, Document, shell_text, type_name

# $limit and $skip.


def count_of(name: str, spec: Any, code: int) -> int:
    number = whole_number(spec)
    if number is None:
        what = "Expected an integer" if type(spec) is float else "Expected a number"
        raise refusal(code, f"invalid argument to {name} stage: {what} in: {name}: {shell_text(spec)}")
    if number < 0:
        raise refusal(
            code, f"invalid argument to {name} stage: Expected a non-negative number in: {name}: {shell_text(spec)}"
        )
    return number


def limit_of(spec: Any) -> int:
    number = count_of("$limit", spec, 5107201)
    if number == 0:
        raise refusal(15958, "the limit must be positive")
    return number


class _Limiting:
    def __init__(self, most: int) -> None:
        self._left = most
        self.is_full = False

    def take(self, batch: Batch) -> Batch:
        if len(batch) >= self._left:
            batch = batch[: self._left]
            self.is_full = True
        self._left -= len(batch)
        return batch

    def finish(self) -> Iterable[Batch]:
        return ()


class _Skipping:
    is_full = False

    def __init__(self, count: int) -> None:
        self._left = count

    def take(self, batch: Batch) -> Batch:
        if not self._left:
            return batch
        kept = batch[self._left :]
        self._left = max(0, self._left - len(batch))
        return kept

    def finish(self) -> Iterable[Batch]:
        return ()


def limit(name: str, spec: Any, context: Context) -> Opened:
    most = limit_of(spec)
    return Opened(lambda run: _Limiting(most))


def skip(name: str, spec: Any, context: Context) -> Opened:
    count = count_of(name, spec, 5107200)
    return Opened(lambda run: _Skipping(count))


# $redact.


def redact(name: str, spec: Any, context: Context) -> Piecewise:
    shown = redact_document(name, spec, context)
    return Piecewise(lambda batch: [made for document in batch if (made := shown(document)) is not MISSING])


# $sample.


class _Sampling(Waiting):
    """A reservoir: every document is in the sample with the same chance, whatever their number."""

    def __init__(self, size: int, run: Run) -> None:
        self._size, self._random = size, run.values[RANDOM]
        self._kept: list[Document] = []
        self._seen = 0
        self._budget = Budget("$sample")

    def keep(self, batch: Batch) -> None:
        for document in batch:
            self._seen += 1
            if len(self._kept) < self._size:
                self._budget.take_document(document)
                self._kept.append(document)
            else:
                work.spend(5)
                place = int(self._random() * self._seen)
                if place < self._size:
                    self._kept[place] = document

    def finish(self) -> Iterable[Batch]:
        shuffled = self._kept
        for place in range(len(shuffled) - 1, 0, -1):
            other = int(self._random() * (place + 1))
            shuffled[place], shuffled[other] = shuffled[other], shuffled[place]
        return batches_of(shuffled)


def sample(name: str, spec: Any, context: Context) -> Opened:
    if type(spec) is not dict:
        raise refusal(28745, "the $sample stage specification must be an object")
    for each in spec:
        if each != "size":
            raise refusal(28748, f"unrecognized option to $sample: {each}")
    if "size" not in spec:
        raise refusal(28749, "$sample stage must specify a size")
    size = whole_number(spec["size"])
    if size is None:
        raise refusal(28746, "size argument to $sample must be a number")
    if size <= 0:
        raise refusal(28747, "size argument to $sample must be a positive integer")
    return Opened(lambda run: _Sampling(size, run))


# $unwind.


def unwind(name: str, spec: Any, context: Context) -> Stream:
    index: list[str] | None = None
    preserves = False
    if type(spec) is dict:
        for each, value in spec.items():
            if each == "path":
                if type(value) is not str:
                    raise refusal(28808, f"expected a string as the path for $unwind stage, got {type_name(value)}")
            elif each == "preserveNullAndEmptyArrays":
                if type(value) is not bool:
                    raise refusal(
                        28809,
                        "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got "
                        + type_name(value),
                    )
                preserves = value
            elif each == "includeArrayIndex":
                if type(value) is not str or not value:
                    raise refusal(
                        28810, "expected a non-empty string for the includeArrayIndex  option to $unwind stage"
                    )
                if value.startswith("$"):
                    raise refusal(
                        28822, f"includeArrayIndex option to $unwind stage should not be prefixed with a '$': {value}"
                    )
                index = check_path(value)
            else:
                raise refusal(28811, f"unrecognized option to $unwind stage: {each}")
        path = spec.get("path")
    else:
        path = spec
        if type(spec) is not str:
            raise refusal(
                15981,
                f"expected either a string or an object as specification for $unwind stage, got {type_name(spec)}",
            )
    if not path:
        raise refusal(28812, "no path specified to $unwind stage")
    if not path.startswith("$"):
        raise refusal(28818, f"path option to $unwind stage should be prefixed with a '$': {path}")
    parts = check_path(path[1:])

    return _Unwinding(lambda document: _unwound(document, parts, index, preserves))


class _Unwinding:
    """Hands on long arrays in parts: a document for each element takes much more room than the array."""

    collection: str | None = None

    def __init__(self, unwound: Callable[[Document], Iterable[Document]]) -> None:
        self._unwound = unwound

    async def stream(self, source: Batches, run: Run) -> Batches:
        async with aclosing(source):
            async for batch in source:
                for made in batches_of(self._each(batch)):
                    yield made

    def _each(self, batch: Batch) -> Iterator[Document]:
        for document in batch:
            for made in self._unwound(document):
                work.spend(10 + len(made))
                yield made


def _unwound(document: Document, parts: list[str], index: list[str] | None, preserves: bool) -> Iterable[Document]:
    value: Any = document
    for part in parts:
        value = value.get(part, MISSING) if type(value) is dict else MISSING
    if type(value) is not list:
        if not preserves and (value is None or value is MISSING):
            return
        yield document if index is None else with_value(document, index, None)
        return
    if not value:
        if preserves:
            made = with_value(document, parts, MISSING)
            yield made if index is None else with_value(made, index, None)
        return
    for place, element in enumerate(value):
        made = {**document, parts[0]: element} if len(parts) == 1 else with_value(document, parts, element)
        yield made if index is None else with_value(made, index, Int64(place))


# $count.


class _Counting(Waiting):
    def __init__(self, field: str) -> None:
        self._field = field
        self._count = 0

    def keep(self, batch: Batch) -> None:
        self._count += len(batch)

    def finish(self) -> Iterable[Batch]:
        return [[{self._field: integer(self._count, INT)}]] if self._count else ()


def count(name: str, spec: Any, context: Context) -> Opened:
    if type(spec) is not str:
        raise refusal(40156, "the count field must be a non-empty string")
    if not spec:
        raise refusal(40157, "the count field must be a non-empty string")
    if spec.startswith("$"):
        raise refusal(40158, "the count field cannot be a $-prefixed path")
    if "\0" in spec:
        raise refusal(40159, "the count field cannot contain a null byte")
    if "." in spec:
        raise refusal(40160, "the count field cannot contain '.'")

    def make(run: Run) -> Step:
        return _Counting(spec)

    return Opened(make)
