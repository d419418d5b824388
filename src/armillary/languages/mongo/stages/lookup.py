"""Stages that read other collections: `$lookup`, `$graphLookup`, `$unionWith`. Equality is that of filters: null also
finds what is missing, arrays are found by their elements. A batch of documents is joined at a time, by one look into
the other collection for all the values in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Any, Final, Protocol

from bson.regex import Regex

from armillary import limits, work
from armillary.languages.mongo.errors import FAILED_TO_PARSE, TYPE_MISMATCH, refusal
from armillary.languages.mongo.expression_context import Context, Expression
from armillary.languages.mongo.expressions.compiling import (
    check_path,
    check_variable_name,
    compile_expression,
    value_at,
)
from armillary.languages.mongo.expressions.numbers import RANKS
from armillary.languages.mongo.filters.matching import compile_filter
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.paths import index_of, predicate, values_at, with_value
from armillary.languages.mongo.stages.stage import Batch, Batches, Run, Stream, collected, of_list, over
from armillary.model.bson.bson_values import MISSING, Document, order_key, shell_text, type_name
from armillary.model.sorting import sorted_values

_PORTION_BYTES: Final = 8 * limits.MB  # of lists of what was found, that are handed on at once


class Nested(Protocol):
    """A pipeline inside a stage."""

    leading_filter: Document
    makes_documents: bool  # it begins with $documents and reads no collection

    def run(self, source: Batches, run: Run) -> Batches: ...


CompileNested = Callable[[str, Any, Context, str | None], Nested]  # the last is the collection that is read


def equal_to_any(path: str, values: Iterable[Any]) -> Document:
    """A filter for documents that have one of the values at a path; patterns are values here, not searches."""
    values = list(values)
    patterns = [value for value in values if isinstance(value, Regex)]
    if not patterns:
        return {path: {"$in": values}}
    plain = [value for value in values if not isinstance(value, Regex)]
    return {"$or": [{path: {"$in": plain}}, *[{path: {"$eq": value}} for value in patterns]]}


def plain_filter(given: Document) -> Document:
    """The part of a filter that says the same without variables: documents that it lets through hold all the others."""
    kept: Document = {}
    for name, operand in given.items():
        if name == "$and":
            parts = [part for each in operand if (part := plain_filter(each))]
            if parts:
                kept[name] = parts
        elif not name.startswith("$") or (name in ("$or", "$nor") and not any(map(_has_variables, operand))):
            kept[name] = operand
    return kept


def _has_variables(given: Document) -> bool:
    return any(
        any(map(_has_variables, operand)) if name in ("$and", "$or", "$nor") else name.startswith("$")
        for name, operand in given.items()
    )


def _narrowed(given: Document, context: Context) -> Document:
    """What another collection can be asked for, which knows neither variables nor the pipeline's collation."""
    return plain_filter(given) if context.key is order_key else {}


class Joined:
    """Documents of another collection by the values that they have at a path, as filters find them."""

    def __init__(self, path: str, key: Callable[[Any], Any], *, joins_missing: bool = True) -> None:
        self._joins_missing = joins_missing
        self._by_key: dict[Any, list[int]] = {}
        self._documents: list[Document] = []
        self._key = key
        self._reached: set[Any] = set()
        self._visit = predicate(path, self._note)

    def _note(self, value: Any) -> bool:
        if value is not MISSING or self._joins_missing:
            self._reached.add(self._key(None if value is MISSING else value))
        return False

    def add(self, document: Document) -> None:
        self._reached.clear()
        work.spend(20)
        self._visit(document)
        for key in self._reached:
            self._by_key.setdefault(key, []).append(len(self._documents))
        self._documents.append(document)

    def find(self, values: Iterable[Any]) -> list[Document]:
        """In the order in which they came."""
        places: set[int] = set()
        for value in values:
            work.spend(10)
            found = self._by_key.get(self._key(value), ())
            work.spend(len(found))
            places.update(found)
        work.make(8 * len(places))
        return [self._documents[place] for place in sorted_values(places)]


def _local_values(document: Document, parts: list[str], missing: Iterable[Any] = (None,)) -> list[Any]:
    """What a path leads to, through places of arrays too; `missing` stands in for nothing."""
    if any(index_of(part) >= 0 for part in parts):
        return list(values_at(document, tuple(parts))) or [*missing]
    value = value_at(document, parts)
    if type(value) is list:
        return value
    return [*missing] if value is MISSING else [value]


# $lookup.

_LOOKUP: Final = ("from", "localField", "foreignField", "let", "pipeline", "as")


def lookup(name: str, spec: Any, context: Context, compile_nested: CompileNested) -> Stream:
    if type(spec) is not dict:
        raise refusal(FAILED_TO_PARSE, f"the $lookup specification must be an object, but found {type_name(spec)}")
    for each, value in spec.items():
        if each not in _LOOKUP:
            raise refusal(FAILED_TO_PARSE, f"unknown argument to $lookup: {each}")
        if each == "let":
            if type(value) is not dict:
                raise refusal(FAILED_TO_PARSE, f"$lookup argument 'let: {shell_text(value)}' must be an object")
        elif each != "pipeline" and type(value) is not str:
            raise refusal(FAILED_TO_PARSE, f"$lookup argument '{each}: {shell_text(value)}' must be a string")
    if "as" not in spec:
        raise refusal(FAILED_TO_PARSE, "must specify 'as' field for a $lookup")
    if ("localField" in spec) != ("foreignField" in spec):
        raise refusal(
            FAILED_TO_PARSE, "$lookup requires both or neither of 'localField' and 'foreignField' to be specified"
        )
    if "localField" not in spec and "pipeline" not in spec:
        raise refusal(
            FAILED_TO_PARSE,
            "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified",
        )
    if "let" in spec and "pipeline" not in spec:
        raise refusal(FAILED_TO_PARSE, "$lookup with a 'let' argument must also specify 'pipeline'")
    let = spec.get("let", {})
    for each in let:
        check_variable_name(each)
    inner = context.nested(let)
    nested = compile_nested(name, spec["pipeline"], inner, spec.get("from")) if "pipeline" in spec else None
    if "from" in spec and nested is not None and nested.makes_documents:
        raise refusal(73, "$lookup cannot have both 'from' and a pipeline that begins with $documents")
    if "from" not in spec and (nested is None or not nested.makes_documents):
        raise refusal(FAILED_TO_PARSE, "must specify 'from' field for a $lookup")
    bound = [compile_expression(each, context) for each in let.values()]
    local = check_path(spec["localField"]) if "localField" in spec else None
    if local is not None:
        check_path(spec["foreignField"])
    return _Lookup(spec, check_path(spec["as"]), local, nested, bound, context)


class _Lookup:
    def __init__(
        self,
        spec: Document,
        target: list[str],
        local: list[str] | None,
        nested: Nested | None,
        let: list[Expression],
        context: Context,
    ) -> None:
        self._collection: str | None = spec.get("from")
        self._foreign: str = spec.get("foreignField", "")
        self._as, self._local, self._nested, self._context = target, local, nested, context
        self._let = [over(each, context) for each in let]
        # What is drawn by lot is drawn again for each document.
        given = repr(spec.get("pipeline", ()))
        self._is_random = any(f"'{name}'" in given for name in ("$sample", "$rand", "$sampleRate"))
        self.collection = self._collection

    async def stream(self, source: Batches, run: Run) -> Batches:
        if self._local is None:
            async with aclosing(self._by_pipeline(source, run)) as joined:
                async for batch in joined:
                    yield batch
            return
        async with aclosing(source):
            async for batch in source:
                async for made in self._by_fields(batch, self._local, run):
                    yield made

    async def _by_fields(self, batch: Batch, local: list[str], run: Run) -> Batches:
        if self._collection is None:
            yield await self._among_made(batch, local, run)
            return
        wanted: dict[Any, Any] = {}
        values_of = [_local_values(document, local) for document in batch]
        for values in values_of:
            for value in values:
                work.spend(10)
                wanted.setdefault(self._context.key(value), value)
        joined = Joined(self._foreign, self._context.key)
        if wanted:
            budget = Budget("$lookup")
            given = _narrowed(equal_to_any(self._foreign, wanted.values()), self._context)
            if given and self._nested is not None and self._nested.leading_filter:
                given = {"$and": [given, plain_filter(self._nested.leading_filter)]}
            for document in await collected(self._foreign_documents(run, given), budget):
                joined.add(document)
        made: Batch = []
        before_bytes = work.made()
        for document, values in zip(batch, values_of, strict=True):
            matches = joined.find(values)
            if self._nested is not None:
                matches = await self._through(document, matches, run)
            made.append(with_value(document, self._as, matches))
            if work.made() - before_bytes > _PORTION_BYTES:
                work.release(before_bytes)
                yield made
                made = []
        work.release(before_bytes)
        if made:
            yield made

    async def _among_made(self, batch: Batch, local: list[str], run: Run) -> Batch:
        """Among documents that the pipeline itself makes."""
        made = []
        for document in batch:
            joined = Joined(self._foreign, self._context.key)
            for each in await self._through(document, [], run):
                joined.add(each)
            made.append(with_value(document, self._as, joined.find(_local_values(document, local))))
        return made

    async def _through(self, document: Document, matches: list[Document], run: Run) -> list[Document]:
        assert self._nested is not None
        return await collected(self._nested.run(of_list(matches), self._inner_run(document, run)), Budget("$lookup"))

    def _inner_run(self, document: Document, run: Run) -> Run:
        if not self._let:
            return run
        self._context.begin(run.values)
        return Run([*run.values, *[each(document) for each in self._let]], run.collections)

    def _foreign_documents(self, run: Run, given: Document) -> Batches:
        assert self._collection is not None
        return run.collections.documents(None, self._collection, given)

    async def _by_pipeline(self, source: Batches, run: Run) -> Batches:
        """The other collection is read once and kept; without `let` it has one answer for all."""
        assert self._nested is not None
        kept: list[Document] | None = None
        answer: list[Document] | None = None
        async with aclosing(source):
            async for batch in source:
                if kept is None:
                    kept = await self._kept(run)
                made = []
                for document in batch:
                    if answer is None or self._let or self._is_random:
                        answer = await self._through(document, kept, run)
                    made.append(with_value(document, self._as, answer))
                yield made

    async def _kept(self, run: Run) -> list[Document]:
        assert self._nested is not None
        if self._collection is None:
            return []
        return await collected(
            self._foreign_documents(run, _narrowed(self._nested.leading_filter, self._context)), Budget("$lookup")
        )


# $graphLookup.

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
        """Breadth first; every document once, at the least depth."""
        key = self._context.key
        budget = Budget("$graphLookup")
        seen_values: set[Any] = set()
        seen_documents: set[Any] = set()  # whatever the collation
        found: list[Document] = []
        frontier = {key(value): value for value in values}
        depth = 0
        while frontier and (self._depth is None or depth <= self._depth):
            seen_values.update(frontier)
            following: dict[Any, Any] = {}
            joined = Joined(self._to, key, joins_missing=False)
            given = _narrowed(equal_to_any(self._to, frontier.values()), self._context)
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
                for each in _local_values(document, self._from, ()):
                    work.spend(10)
                    following.setdefault(key(each), each)
            frontier = {hashed: value for hashed, value in following.items() if hashed not in seen_values}
            depth += 1
        return found


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
        self._wanted = _narrowed(nested.leading_filter, context)

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
