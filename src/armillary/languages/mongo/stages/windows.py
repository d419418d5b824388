"""The `$setWindowFields` stage: partitions and sorts the documents and computes fields over windows. Bounds are in
`window_bounds.py`, functions in `window_functions.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from armillary import work
from armillary.languages.mongo.errors import FAILED_TO_PARSE, TYPE_MISMATCH, refusal
from armillary.languages.mongo.expression_context import CURRENT, ROOT, Context, Expression
from armillary.languages.mongo.expressions.compiling import Constant, check_path, compile_expression, value_at
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.paths import with_value
from armillary.languages.mongo.sort_keys import Sort, compile_sort_by
from armillary.languages.mongo.stages.stage import Batch, Opened, Stage, Waiting, batches_of
from armillary.languages.mongo.stages.window_functions import Compute, Order, Partition, compile_function
from armillary.model.bson.bson_values import MISSING, Document
from armillary.work import sorted_values

_FIELDS: Final = ("partitionBy", "sortBy", "output")


def set_window_fields(name: str, spec: Any, context: Context) -> Stage:
    if type(spec) is not dict:
        raise refusal(FAILED_TO_PARSE, f"the {name} stage specification must be an object")
    for each in spec:
        if each not in _FIELDS:
            raise refusal(40415, f"BSON field '{name}.{each}' is an unknown field.")
    order, outputs = spec.get("sortBy", {}), spec.get("output", {})
    for each, value in (("sortBy", order), ("output", outputs)):
        if type(value) is not dict:
            raise refusal(TYPE_MISMATCH, f"BSON field '{name}.{each}' is the wrong type, expected type 'object'")
    if "output" not in spec:
        raise refusal(40414, f"BSON field '{name}.output' is missing but a required field")
    sort = compile_sort_by(order, context.key) if order else None
    fields = sort.fields if sort is not None else ()
    facts = Order(len(fields), len(fields) == 1 and not fields[0].is_descending)
    compiled = [(check_path(field), compile_function(field, each, facts, context)) for field, each in outputs.items()]
    partition_of = compile_expression(spec.get("partitionBy"), context)
    return Opened(lambda run: _Windowing(name, partition_of, sort, compiled, context))


class _Windowing(Waiting):
    def __init__(
        self,
        name: str,
        partition_of: Expression,
        sort: Sort | None,
        outputs: list[tuple[list[str], Compute]],
        context: Context,
    ) -> None:
        self._partition_of, self._sort, self._outputs = partition_of, sort, outputs
        self._key, self._scope = context.key, context.scope({})
        self._budget = Budget(name)
        self._entries: list[tuple[Any, Any, Document]] = []  # partition key, sort key, document

    def keep(self, batch: Batch) -> None:
        scope, sort_key = self._scope, self._sort.key if self._sort is not None else None
        for document in batch:
            work.spend(20)
            scope[CURRENT] = scope[ROOT] = document
            value = self._partition_of(scope)
            if type(value) is list:
                raise refusal(TYPE_MISMATCH, "An expression used to partition cannot evaluate to value of type array")
            self._budget.take_document(document)
            partition = self._key(None if value is MISSING else value)
            self._entries.append((partition, 0 if sort_key is None else sort_key(document), document))

    def finish(self) -> Iterable[Batch]:
        return batches_of(self._made())

    def _made(self) -> Iterator[Document]:
        entries = self._entries
        if self._sort is not None:
            entries = sorted_values(entries, lambda entry: entry[1])
        if not isinstance(self._partition_of, Constant):
            entries = sorted_values(entries, lambda entry: entry[0])
        for _, members in groupby(entries, key=lambda entry: entry[0]):
            yield from self._computed(list(members))

    def _computed(self, entries: list[tuple[Any, Any, Document]]) -> Iterator[Document]:
        documents = [document for _, _, document in entries]
        partition = Partition(
            documents,
            [key for _, key, _ in entries],
            lambda: self._sort_values(documents),
            self._scope,
            self._budget,
        )
        columns = [(parts, compute(partition)) for parts, compute in self._outputs]
        for place, document in enumerate(documents):
            made = document
            work.spend(5 * len(columns) + len(document))
            for parts, values in columns:
                value = values[place]
                made = with_value(made, parts, value)
            yield made

    def _sort_values(self, documents: list[Document]) -> list[Any]:
        assert self._sort is not None
        parts = self._sort.fields[0].path.split(".")
        return [value_at(document, parts) for document in documents]
