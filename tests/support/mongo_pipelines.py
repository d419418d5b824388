"""Aggregations over collections that are plain lists, run to their end: the pipelines' own tests, and the corpus."""

from __future__ import annotations

import asyncio
from typing import Any

from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import compile_filter
from armillary.languages.mongo.pipeline import Facts, Pipeline, compile_pipeline
from armillary.languages.mongo.stages.stage import Batches, Run
from armillary.model.bson.bson_values import Document


class ListCollections:
    """Other collections; only what matches is given, as an index would have it, in batches of an odd size."""

    def __init__(self, collections: dict[str, list[Document]], batch_documents: int = 3) -> None:
        self._collections, self._batch = collections, batch_documents

    async def documents(self, database: str | None, name: str, given: Document) -> Batches:
        matcher = compile_filter(given, Context.of(0, lambda: 0.5))
        found = [document for document in self._collections.get(name, []) if matcher.matches(document)]
        for first in range(0, len(found), self._batch):
            await asyncio.sleep(0)
            yield found[first : first + self._batch]


async def gathered(batches: Batches) -> list[Document]:
    found: list[Document] = []
    async for batch in batches:
        assert batch, "batches are never empty"
        found += batch
    return found


def aggregate(
    collections: dict[str, list[Document]],
    command: Document,
    context: Context,
    *,
    pushes: bool = False,
    facts: Facts | None = None,
) -> list[Document]:
    """What a command finds; with `pushes`, what can be done while reading is done so."""
    name = command["aggregate"]
    pipeline = compile_pipeline(command["pipeline"], context, facts or Facts(is_database=name == 1))
    return asyncio.run(run_pipeline(pipeline, collections, name, context, pushes=pushes))


async def run_pipeline(
    pipeline: Pipeline, collections: dict[str, list[Document]], name: Any, context: Context, *, pushes: bool = False
) -> list[Document]:
    run = Run(list(context.values), ListCollections(collections))
    documents = collections.get(name, [])
    if pushes and pipeline.reads_collection and pipeline.geo_near is None:
        from armillary.languages.mongo.sort_keys import compile_sort_by

        if pipeline.fields is not None:
            documents = [
                {each: document[each] for each in document if each in pipeline.fields} for document in documents
            ]
        if pipeline.matcher is not None:
            documents = [document for document in documents if pipeline.matcher.matches(document)]
        if pipeline.leading_sort is not None:
            documents = compile_sort_by(pipeline.leading_sort, context.key).applied(documents)
        documents = documents[: pipeline.leading_limit]
    source = ListCollections({"": documents}).documents(None, "", {})
    return await gathered(pipeline.run(source, run, is_filtered=pushes, is_sorted=pushes))
