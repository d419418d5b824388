"""`$search` with `cosmosSearch`, and `$vectorSearch`: the documents whose vectors are the most similar to a vector, as
in Azure Cosmos DB for MongoDB vCore. The search is exact. Each document gets its score in the field `__cosmos_meta__`,
from which `{$meta: "searchScore"}` reads it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import mul
from typing import Any, Final

from armillary.languages.mongo.errors import FAILED_TO_PARSE, bad_value, refusal
from armillary.languages.mongo.expression_context import SEARCH_META, Context
from armillary.languages.mongo.expressions.numbers import as_double
from armillary.languages.mongo.filters.matching import Matcher, compile_filter
from armillary.languages.mongo.indexes.vector_indexes import Vector, VectorIndex, vector_of
from armillary.languages.mongo.memory_budget import Budget, value_bytes
from armillary.model.bson.bson_values import INT32_MAX, Document, is_number, type_name
from armillary.work import spend

STAGES: Final = ("$search", "$vectorSearch")
_NOT_FOUND: Final = "Similarity index was not found for a vector similarity search query."
_REQUIRED: Final = ("path", "vector", "k")
# How far an approximate search looks: least and greatest values. An exact one looks at everything.
_TUNING: Final[Mapping[str, tuple[int, int]]] = {
    "nProbes": (1, 32_768),
    "efSearch": (1, 1_000),
    "lSearch": (10, 1_000),
    "numCandidates": (1, 1_000),
}
# The names of $vectorSearch, and those of cosmosSearch for the same.
_NATIVE: Final = {"queryVector": "vector", "limit": "k", "path": "path", "filter": "filter", "index": "index"}


@dataclass(frozen=True, slots=True)
class Searchable:
    """What a search needs to know about the collection."""

    indexes: tuple[VectorIndex, ...] = ()
    indexed_paths: frozenset[str] = frozenset()  # of ordinary indexes: filters of searches may use these
    is_sharded: bool = False


class Nearest:
    """The most similar documents so far, at most as many as are wanted."""

    def __init__(self, search: VectorSearch) -> None:
        self._search = search
        self._budget = Budget(search.stage)
        self._kept: list[tuple[float, int, float, int, Document]] = []  # a heap, the least similar first
        self._count = 0

    def add(self, batch: list[Document]) -> None:
        search = self._search
        for document in batch:
            score = search.score_of(document)
            if score is None or not search.matcher.matches(document):
                continue
            self._count += 1
            similarity = -score if search.index.similarity == "L2" else score
            if len(self._kept) == search.most and similarity <= self._kept[0][0]:
                continue
            size_bytes = value_bytes(document)
            self._budget.take(size_bytes)
            heapq.heappush(self._kept, (similarity, -self._count, score, size_bytes, document))
            if len(self._kept) > search.most:
                self._budget.take(-heapq.heappop(self._kept)[3])

    def in_order(self) -> list[Document]:
        return [
            {**document, SEARCH_META: {"score": score}} for *_, score, _, document in sorted(self._kept, reverse=True)
        ]


@dataclass(frozen=True, slots=True)
class VectorSearch:
    stage: str
    index: VectorIndex
    vector: Vector
    most: int
    query: Document
    matcher: Matcher

    def begin(self) -> Nearest:
        return Nearest(self)

    def score_of(self, document: Document) -> float | None:
        """Cosine similarity, inner product or Euclidean distance; None for documents that have none."""
        vector = self.index.vector_in(document)
        if vector is None or len(vector) != len(self.vector):
            return None
        spend(len(vector) >> 1)
        return _SCORES[self.index.similarity](self.vector, vector)


def _dot(one: Vector, other: Vector) -> float:
    return float(sum(map(mul, one, other)))


def _cosine(one: Vector, other: Vector) -> float | None:
    lengths = math.hypot(*one) * math.hypot(*other)
    return max(-1.0, min(1.0, _dot(one, other) / lengths)) if lengths else None  # a zero vector has no direction


_SCORES: Final[Mapping[str, Callable[[Vector, Vector], float | None]]] = {"COS": _cosine, "IP": _dot, "L2": math.dist}


# Specifications.


def vector_search(name: str, spec: Any, context: Context, collection: Searchable) -> VectorSearch:
    if type(spec) is not dict:
        raise refusal(14, f"the {name} specification must be an object, but found {type_name(spec)}")
    wanted = _native(spec) if name == "$vectorSearch" else _operator(spec)
    vector = _check(wanted)
    index = next((each for each in collection.indexes if each.path == wanted["path"]), None)
    if index is None:
        raise bad_value(_NOT_FOUND)
    index.check_length(vector)
    if as_double(wanted.get("oversampling", 1)) > 1 and (wanted.get("exact", False) or not index.is_compressed):
        raise bad_value("oversampling is not allowed for exact search or for a non-compressed vector index.")
    query = wanted.get("filter", {})
    _check_filter(query, collection)
    matcher = compile_filter(query, context)
    if matcher.near is not None or matcher.text is not None or matcher.has_where:
        raise bad_value(f"The filter of {name} cannot use $near, $text or $where.")
    return VectorSearch(name, index, vector, int(min(as_double(wanted["k"]), INT32_MAX)), query, matcher)


def _operator(spec: Document) -> Document:
    """The specification of `cosmosSearch` or its older name `knnBeta`."""
    found: Any = None
    for name, given in spec.items():
        if name in ("cosmosSearch", "knnBeta"):
            if type(given) is not dict:
                raise refusal(14, f"$search.{name} must be an object, but found {type_name(given)}")
            if name == "knnBeta" and given.get("filter"):
                raise refusal(115, "$filter is not supported for knnBeta queries.")
            found = given
        elif name not in ("index", "returnStoredSource"):
            raise refusal(115, f"Unrecognized $search option: {name}, should be one of: cosmosSearch, knnBeta.")
    if found is None:
        raise refusal(FAILED_TO_PARSE, "$search needs one of: cosmosSearch, knnBeta.")
    for name in found:
        # A path has one index, so that its name, which some clients send, says nothing new.
        if name not in (*_REQUIRED, "filter", "exact", "oversampling", "index", *_TUNING) or name == "numCandidates":
            raise bad_value(f"cosmosSearch has no option '{name}'.")
    return dict(found)


def _native(spec: Document) -> Document:
    for name in spec:
        if name not in _NATIVE and name != "numCandidates":
            raise refusal(40415, f"BSON field '$vectorSearch.{name}' is an unknown field.")
    return {_NATIVE.get(name, name): given for name, given in spec.items()}


def _check(wanted: Document) -> Vector:
    for name in _REQUIRED:
        if name not in wanted:
            raise bad_value(f"${name} is required field for using a vector index.")
    if type(wanted["path"]) is not str or not wanted["path"]:
        raise bad_value("$path must be a text value, and not empty.")
    if type(wanted["vector"]) is list and not wanted["vector"]:
        raise bad_value("$vector cannot be an empty array.")
    vector = vector_of(wanted["vector"])
    if vector is None:
        raise bad_value("$vector must be an array of numbers.")
    if not is_number(wanted["k"]) or not as_double(wanted["k"]) >= 1:
        raise bad_value("$k must be a positive integer value.")
    if type(wanted.get("filter", {})) is not dict:
        raise bad_value("$filter must be a document value.")
    if type(wanted.get("exact", False)) is not bool:
        raise bad_value("$exact must represent a valid boolean value.")
    oversampling = wanted.get("oversampling", 1)
    if not is_number(oversampling) or not as_double(oversampling) >= 1:
        raise bad_value("$oversampling must be a number that is greater or equal to 1.")
    for name, (low, high) in _TUNING.items():
        if name in wanted and not (is_number(wanted[name]) and low <= as_double(wanted[name]) <= high):
            raise bad_value(f"${name} must be a number from {low} to {high}.")
    return vector


def _check_filter(query: Document, collection: Searchable) -> None:
    if not query:
        return
    if collection.is_sharded:
        raise refusal(115, "Filter is not supported for vector search on sharded collection.")
    for path in _paths_in(query):
        if path not in collection.indexed_paths:
            raise bad_value(
                f"The index for filter path '{path}' was not found, please check whether the index is created."
            )


def _paths_in(query: Document) -> Iterator[str]:
    for name, operand in query.items():
        if not name.startswith("$"):
            yield name
        elif type(operand) is list:
            for each in operand:
                if type(each) is dict:
                    yield from _paths_in(each)
