"""`$lookup`, and the parts that it shares with `graph_lookup` and `union_and_facet`. Equality is that of filters: null
also matches missing fields, and arrays match by their elements. Documents are joined in batches, with one read of the
other collection for all values of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Any, Final, Protocol

from bson.regex import Regex

from armillary import limits, work
from armillary.languages.mongo.errors import FAILED_TO_PARSE, refusal
from armillary.languages.mongo.expression_context import Context, Expression
from armillary.languages.mongo.expressions.compiling import (
    check_path,
    check_variable_name,
    compile_expression,
    value_at,
)
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.paths import index_of, predicate, values_at, with_value
from armillary.languages.mongo.stages.stage import Batch, Batches, Run, Stream, collected, of_list, over
from armillary.model.bson.bson_values import MISSING, Document, order_key, shell_text, type_name
from armillary.work import sorted_values

PORTION_BYTES: Final = 8 * limits.MB  # of joined documents that are passed on at once


class Nested(Protocol):
    """A compiled pipeline nested in a stage."""

    leading_filter: Document
    makes_documents: bool  # whether it begins with $documents and reads no collection

    def run(self, source: Batches, run: Run) -> Batches: ...


CompileNested = Callable[[str, Any, Context, str | None], Nested]  # the last argument is the collection that is read


def equal_to_any(path: str, values: Iterable[Any]) -> Document:
    """A filter for documents with one of the values at a path. Regular expressions are compared, not matched."""
    values = list(values)
    patterns = [value for value in values if isinstance(value, Regex)]
    if not patterns:
        return {path: {"$in": values}}
    plain = [value for value in values if not isinstance(value, Regex)]
    return {"$or": [{path: {"$in": plain}}, *[{path: {"$eq": value}} for value in patterns]]}


def plain_filter(given: Document) -> Document:
    """The part of a filter without variables. It matches at least all documents that the whole filter matches."""
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


def narrowed(given: Document, context: Context) -> Document:
    """The filter for reading another collection, which knows neither variables nor the pipeline's collation."""
    return plain_filter(given) if context.key is order_key else {}


class Joined:
    """A hash table of another collection's documents by their values at a path, with the equality of filters."""

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
        """The documents with one of the values, in the order in which they were added."""
        places: set[int] = set()
        for value in values:
            work.spend(10)
            found = self._by_key.get(self._key(value), ())
            work.spend(len(found))
            places.update(found)
        work.make(8 * len(places))
        return [self._documents[place] for place in sorted_values(places)]


def local_values(document: Document, parts: list[str], missing: Iterable[Any] = (None,)) -> list[Any]:
    """The values at a path, which may contain array indexes; `missing` if there is none."""
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
        # A pipeline with random numbers runs again for each document.
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
        values_of = [local_values(document, local) for document in batch]
        for values in values_of:
            for value in values:
                work.spend(10)
                wanted.setdefault(self._context.key(value), value)
        joined = Joined(self._foreign, self._context.key)
        if wanted:
            budget = Budget("$lookup")
            given = narrowed(equal_to_any(self._foreign, wanted.values()), self._context)
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
            if work.made() - before_bytes > PORTION_BYTES:
                work.release(before_bytes)
                yield made
                made = []
        work.release(before_bytes)
        if made:
            yield made

    async def _among_made(self, batch: Batch, local: list[str], run: Run) -> Batch:
        """Joins with documents that the nested pipeline generates."""
        made = []
        for document in batch:
            joined = Joined(self._foreign, self._context.key)
            for each in await self._through(document, [], run):
                joined.add(each)
            made.append(with_value(document, self._as, joined.find(local_values(document, local))))
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
        """Reads the other collection once and runs the nested pipeline for each document, or once for all without
        `let`.
        """
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
            self._foreign_documents(run, narrowed(self._nested.leading_filter, self._context)), Budget("$lookup")
        )
