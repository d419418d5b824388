"""`$graphLookup`: a breadth-first search through another collection, from each document. The tables of documents by
joined value are those of `lookup`.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, Final

from armillary import work
from armillary.languages.mongo.errors import FAILED_TO_PARSE, refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.expressions.compiling import (
    check_path,
    compile_expression,
)
from armillary.languages.mongo.expressions.numbers import RANKS
from armillary.languages.mongo.filters.matching import compile_filter
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.paths import with_value
from armillary.languages.mongo.stages.lookup import (
    Joined,
    equal_to_any,
    local_values,
    narrowed,
    plain_filter,
)
from armillary.languages.mongo.stages.stage import Batches, Run, Stream, collected, over
from armillary.model.bson.bson_values import MISSING, Document, order_key, shell_text, type_name

_GRAPH: Final = {
    "from": True,
    "startWith": True,
    "connectFromField": True,
    "connectToField": True,
    "as": True,
    "maxDepth": False,
    "depthField": False,
    "restrictSearchWithMatch": False,
}


def graph_lookup(name: str, spec: Any, context: Context) -> Stream:
    if type(spec) is not dict:
        raise refusal(
            FAILED_TO_PARSE, f"the $graphLookup stage specification must be an object, but found {type_name(spec)}"
        )
    if type(spec.get("from")) is not str:
        raise refusal(FAILED_TO_PARSE, "$graphLookup needs a 'from' that is a string")
    for each, value in spec.items():
        if each not in _GRAPH:
            raise refusal(40104, f"unknown argument to $graphLookup: {each}")
        if each not in ("startWith", "maxDepth", "restrictSearchWithMatch") and type(value) is not str:
            raise refusal(40103, f"expected string as argument for {each}, found: {shell_text(value)}")
    for each, is_required in _GRAPH.items():
        if is_required and each not in spec:
            raise refusal(
                40105,
                "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and "
                "'connectToField' to be specified.",
            )
    depth = None
    if "maxDepth" in spec:
        if type(spec["maxDepth"]) not in RANKS:
            raise refusal(40100, f"maxDepth requires a numeric argument, found type: {type_name(spec['maxDepth'])}")
        depth = whole_number(spec["maxDepth"])
        if depth is None:
            raise refusal(40102, f"maxDepth could not be represented as a long long: {shell_text(spec['maxDepth'])}")
        if depth < 0:
            raise refusal(40101, f"maxDepth requires a nonnegative argument, found: {depth}")
    restriction = spec.get("restrictSearchWithMatch", {})
    if type(restriction) is not dict:
        raise refusal(40185, "restrictSearchWithMatch must be an object, found " + type_name(restriction))
    return _GraphLookup(spec, depth, restriction, context)


class _GraphLookup:
    def __init__(self, spec: Document, depth: int | None, restriction: Document, context: Context) -> None:
        self.collection: str | None = spec["from"]
        self._name: str = spec["from"]
        self._start = over(compile_expression(spec["startWith"], context), context)
        self._from = check_path(spec["connectFromField"])
        self._to: str = spec["connectToField"]
        check_path(self._to)
        self._as = check_path(spec["as"])
        self._depth_field = check_path(spec["depthField"]) if "depthField" in spec else None
        self._depth, self._restriction, self._context = depth, restriction, context
        matcher = compile_filter(restriction, context)
        if matcher.near is not None:
            raise refusal(5626500, "$geoNear, $near, and $nearSphere are not allowed in this context")
        self._matches = matcher.matches

    async def stream(self, source: Batches, run: Run) -> Batches:
        async with aclosing(source):
            async for batch in source:
                made = []
                for document in batch:
                    self._context.begin(run.values)
                    start = self._start(document)
                    values = start if type(start) is list else [] if start is MISSING else [start]
                    found = await self._search(values, run)
                    made.append(with_value(document, self._as, found))
                yield made

    async def _search(self, values: list[Any], run: Run) -> list[Document]:
        """Breadth-first search; every document once, at its smallest depth."""
        key = self._context.key
        budget = Budget("$graphLookup")
        seen_values: set[Any] = set()
        seen_documents: set[Any] = set()  # by `_id`, independent of the collation
        found: list[Document] = []
        frontier = {key(value): value for value in values}
        depth = 0
        while frontier and (self._depth is None or depth <= self._depth):
            seen_values.update(frontier)
            following: dict[Any, Any] = {}
            joined = Joined(self._to, key, joins_missing=False)
            given = narrowed(equal_to_any(self._to, frontier.values()), self._context)
            if given and self._restriction:
                given = {"$and": [given, plain_filter(self._restriction)]}
            others = await collected(run.collections.documents(None, self._name, given), Budget("$graphLookup"))
            self._context.begin(run.values)
            for document in others:
                if self._matches(document):
                    joined.add(document)
            for document in joined.find(frontier.values()):
                identity = order_key(document.get("_id"))
                if identity in seen_documents:
                    continue
                seen_documents.add(identity)
                budget.take_document(document)
                if self._depth_field is None:
                    found.append(document)
                else:
                    found.append(with_value(document, self._depth_field, depth))
                for each in local_values(document, self._from, ()):
                    work.spend(10)
                    following.setdefault(key(each), each)
            frontier = {hashed: value for hashed, value in following.items() if hashed not in seen_values}
            depth += 1
        return found
