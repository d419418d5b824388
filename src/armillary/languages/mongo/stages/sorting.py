"""The `$sort` stage: sorts all documents, or keeps only the first n if a limit follows. The sort is stable. Sort keys
are in `sort_keys.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from armillary import limits, work
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.text_search import TextQuery
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.sort_keys import Sort, compile_sort_by
from armillary.languages.mongo.stages.stage import Batch, Run, Step, Waiting, batches_of
from armillary.model.bson.bson_values import Document
from armillary.work import sorted_values

_FIRST = itemgetter(0)


class Sorting:
    """The stage. `most` is the number of documents that a following limit needs."""

    def __init__(self, sort: Sort, *, is_plain: bool = False) -> None:
        self._sort = sort
        self.is_plain = is_plain  # a `$sort` of the pipeline, not part of another stage
        self.most: int | None = None

    def open(self, run: Run) -> Step:
        return _Sorted(self._sort) if self.most is None else _Foremost(self._sort, self.most)


class _Sorted(Waiting):
    def __init__(self, sort: Sort) -> None:
        self._sort = sort
        self._documents: list[Document] = []
        self._budget = Budget("$sort")

    def keep(self, batch: Batch) -> None:
        for document in batch:
            work.spend(10)
            self._budget.take_document(document)
        self._documents += batch

    def finish(self) -> Iterable[Batch]:
        return batches_of(self._sort.applied(self._documents))


class _Foremost(Waiting):
    def __init__(self, sort: Sort, most: int) -> None:
        self._key, self._most = sort.key, most
        self._kept: list[tuple[Any, Document]] = []
        self._budget = Budget("$sort")
        self._counted = 0

    def keep(self, batch: Batch) -> None:
        key = self._key
        for document in batch:
            work.spend(10)
            self._kept.append((key(document), document))
        if len(self._kept) > max(2 * self._most, self._most + 4 * limits.MONGO_BATCH_DOCUMENTS):
            self._cut()
        for _, document in self._kept[self._counted :]:
            self._budget.take_document(document)
        self._counted = max(self._counted, len(self._kept))

    def _cut(self) -> None:
        self._kept = sorted_values(self._kept, _FIRST)
        del self._kept[self._most :]

    def finish(self) -> Iterable[Batch]:
        self._cut()
        return batches_of(document for _, document in self._kept)


def sort(spec: Any, context: Context, text: TextQuery | None) -> Sorting:
    if type(spec) is not dict:
        raise refusal(15973, "the $sort key specification must be an object")
    if not spec:
        raise refusal(15976, "$sort stage must have at least one sort key")
    return Sorting(compile_sort_by(spec, context.key, text), is_plain=True)
