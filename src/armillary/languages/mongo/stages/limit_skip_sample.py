"""`$limit`, `$skip` and `$sample`: stages that pass on a number of the documents they are given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armillary import work
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import RANDOM, Context
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.stages.stage import (
    Batch,
    Opened,
    Run,
    Waiting,
    batches_of,
)
from armillary.model.bson.bson_values import Document, shell_text

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


# $sample.


class _Sampling(Waiting):
    """Reservoir sampling: every document has the same chance, without knowing their number in advance."""

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
