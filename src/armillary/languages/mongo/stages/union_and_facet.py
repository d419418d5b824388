"""`$unionWith`, which appends the results of a pipeline over another collection, and `$facet`, which runs several
pipelines over the same documents.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from armillary.languages.mongo.errors import FAILED_TO_PARSE, TYPE_MISMATCH, refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.stages.lookup import (
    CompileNested,
    Nested,
    narrowed,
)
from armillary.languages.mongo.stages.stage import Batches, Run, Stream, collected, of_list
from armillary.model.bson.bson_values import Document, shell_text, type_name

# $unionWith.


def union_with(name: str, spec: Any, context: Context, compile_nested: CompileNested) -> Stream:
    if type(spec) is str:
        spec = {"coll": spec}
    if type(spec) is not dict:
        raise refusal(
            FAILED_TO_PARSE,
            f"the $unionWith stage specification must be an object or string, but found {type_name(spec)}",
        )
    for each in spec:
        if each not in ("coll", "pipeline"):
            raise refusal(40415, f"BSON field '$unionWith.{each}' is an unknown field.")
    collection = spec.get("coll")
    if "coll" in spec and type(collection) is not str:
        raise refusal(TYPE_MISMATCH, "BSON field '$unionWith.coll' is the wrong type, expected type 'string'")
    nested = compile_nested(name, spec.get("pipeline", []), context.nested(), collection)
    if "coll" in spec and nested.makes_documents:
        raise refusal(73, "$unionWith cannot have both 'coll' and a pipeline that begins with $documents")
    if "coll" not in spec and not nested.makes_documents:
        raise refusal(
            FAILED_TO_PARSE,
            "$unionWith stage without explicit collection must have a pipeline with $documents as first stage",
        )
    return _UnionWith(collection, nested, context)


class _UnionWith:
    def __init__(self, collection: str | None, nested: Nested, context: Context) -> None:
        self.collection, self._nested = collection, nested
        self._wanted = narrowed(nested.leading_filter, context)

    async def stream(self, source: Batches, run: Run) -> Batches:
        async with aclosing(source):
            async for batch in source:
                yield batch
        if self.collection is None:
            others = of_list([])
        else:
            others = run.collections.documents(None, self.collection, self._wanted)
        async with aclosing(self._nested.run(others, run)) as found:
            async for batch in found:
                yield batch


# $facet.


def facet(name: str, spec: Any, context: Context, compile_nested: CompileNested) -> Stream:
    if type(spec) is not dict or not spec:
        raise refusal(40169, f"the $facet specification must be a non-empty object, but found: {shell_text(spec)}")
    parts = []
    for field, stages in spec.items():
        if "." in field or field.startswith("$") or not field:
            raise refusal(40170 if field else 40352, f"'{field}' is not allowed as a name in $facet")
        if type(stages) is not list:
            raise refusal(40170, f"arguments to $facet must be arrays, {field} is type {type_name(stages)}")
        for stage in stages:
            if type(stage) is not dict:
                raise refusal(
                    40171,
                    f"elements of arrays in $facet spec must be non-empty objects, {field} argument contained an "
                    f"element of type {type_name(stage)}",
                )
        parts.append((field, compile_nested(name, stages, context.nested(), None)))
    return _Facet(parts)


class _Facet:
    collection: str | None = None

    def __init__(self, parts: list[tuple[str, Nested]]) -> None:
        self._parts = parts

    async def stream(self, source: Batches, run: Run) -> Batches:
        budget = Budget("$facet")
        kept = await collected(source, budget)
        made: Document = {}
        for field, nested in self._parts:
            made[field] = await collected(nested.run(of_list(kept), run), budget)
        yield [made]
