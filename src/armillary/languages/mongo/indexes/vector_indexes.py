"""Vector indexes (`cosmosSearch`) of Azure Cosmos DB for MongoDB vCore. The rules follow the published source of
DocumentDB, which that service runs.

An index has no entries: searches compare the query with every vector, so that they are exact. What an index does is to
name the similarity, and to refuse vectors of another length. The options that tune an approximate search (`numLists`,
`m`, `efConstruction`, `maxDegree`, `lBuild`) are checked and listed as given.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from armillary import limits
from armillary.errors import Failure
from armillary.languages.mongo.errors import bad_value, refusal
from armillary.languages.mongo.expressions.numbers import as_double
from armillary.languages.mongo.paths import split
from armillary.model.bson.bson_values import Document, is_number, type_name
from armillary.model.indexes.field_indexes import SpecialKeys
from armillary.work import spend

Vector: TypeAlias = "array[float]"  # of single precision, as the service stores vectors

KIND: Final = "cosmosSearch"
OPTION: Final = "cosmosSearchOptions"
SIMILARITIES: Final = ("COS", "IP", "L2")
_CANNOT_CREATE: Final = 67
_OTHER_DIMENSIONS: Final = 130
_NAME: Final = "cosmosSearch:"  # before the path
# The options of each kind, with the least and the greatest value. LangChain for JavaScript also sends `lSearch`, an
# option of searches, which the service passes over here.
_KINDS: Final[Mapping[str, Mapping[str, tuple[int, int]]]] = {
    "vector-ivf": {"numLists": (1, 32_768)},
    "vector-hnsw": {"m": (2, 100), "efConstruction": (4, 1_000)},
    "vector-diskann": {"maxDegree": (20, 2_048), "lBuild": (10, 500), "lSearch": (10, 1_000)},
}
_DIMENSIONS_MAX: Final = {
    None: limits.MONGO_VECTOR_DIMENSIONS_MAX,
    "half": limits.MONGO_VECTOR_DIMENSIONS_HALF_MAX,
    "pq": limits.MONGO_VECTOR_DIMENSIONS_PQ_MAX,
}
_M, _CONSTRUCTION = 16, 64  # what an HNSW index has if its options do not say


@dataclass(frozen=True, slots=True)
class VectorIndex:
    path: str
    similarity: str
    dimensions: int
    is_compressed: bool

    def vector_in(self, document: Document) -> Vector | None:
        """The vector of a document; None if the field is missing or not an array of numbers."""
        value: Any = document
        for part in split(self.path):
            if type(value) is not dict:
                return None
            value = value.get(part)
        return vector_of(value)

    def check_length(self, vector: Vector) -> None:
        if len(vector) != self.dimensions:
            raise refusal(_OTHER_DIMENSIONS, f"expected {self.dimensions} dimensions, not {len(vector)}")


def vector_of(value: Any) -> Vector | None:
    """An array of numbers as a vector; None for other values."""
    if type(value) is not list or not value:
        return None
    spend(len(value) >> 2)
    if any(kind is not float for kind in set(map(type, value))):
        if not all(map(is_number, value)):
            return None
        value = [as_double(each) for each in value]
    vector = array("f", value)
    if not all(map(math.isfinite, vector)):
        raise bad_value("NaN and infinite values are not allowed in vectors, nor numbers beyond single precision.")
    return vector


def vector_index_of(definition: Document) -> VectorIndex | None:
    """The vector index of an index definition; None if it is another index."""
    path, kind = next(iter(definition["key"].items()))
    if kind != KIND:
        return None
    options = definition[OPTION]
    return VectorIndex(path, options["similarity"], int(as_double(options["dimensions"])), "compression" in options)


def vector_keys(definition: Document) -> tuple[str, SpecialKeys] | None:
    """The artificial field of a vector index, and the function that checks the vector of a document."""
    index = vector_index_of(definition)
    if index is None:
        return None

    def keys(document: Document) -> Sequence[bytes]:
        vector = index.vector_in(document)
        if vector is not None:
            index.check_length(vector)
        return ()

    return _NAME + index.path, keys


# Definitions.


def check_definition(definition: Document) -> None:
    key, options = definition["key"], definition.get(OPTION)
    if KIND not in [kind for kind in key.values() if isinstance(kind, str)]:
        if options is not None:
            raise _cannot_create(f"The option '{OPTION}' is for {KIND} indexes only.")
        return
    if options is None:
        raise _cannot_create(
            "Index type 'CosmosSearch' was requested, but the 'cosmosSearch' options were not provided."
        )
    if len(key) > 1:
        raise _cannot_create(f"A {KIND} index has one field.")
    for name in ("unique", "sparse", "expireAfterSeconds", "partialFilterExpression"):
        if name in definition:
            raise _cannot_create(f"The option '{name}' is not for {KIND} indexes.")
    if type(options) is not dict:
        raise refusal(14, f"The field '{OPTION}' must be an object, but got {type_name(options)}")
    _check_options(options)


def _check_options(options: Document) -> None:
    kind = options.get("kind")
    if kind is None:
        raise _cannot_create("cosmosSearch index kind must be specified")
    if type(kind) is not str or kind not in _KINDS:
        raise _cannot_create(f"Invalid search index kind {kind}")
    compression = options.get("compression")
    if compression not in (None, "pq" if kind == "vector-diskann" else "half"):
        raise _cannot_create(f"Compression type '{compression}' is not supported for {kind} indexes")
    dimensions = options.get("dimensions", 0)
    if not is_number(dimensions):
        raise _cannot_create(f"dimensions must be a number not {type_name(dimensions)}")
    if not as_double(dimensions) >= 2:
        raise _cannot_create("vector index must specify dimensions greater than 1")
    if as_double(dimensions) > _DIMENSIONS_MAX[compression]:
        raise _cannot_create(f"field cannot have more than {_DIMENSIONS_MAX[compression]} dimensions for vector index")
    similarity = options.get("similarity")
    if similarity is None:
        raise _cannot_create("vector index must specify similarity metric")
    if type(similarity) is not str or similarity not in SIMILARITIES:
        raise _cannot_create(f"Invalid search index distance kind {similarity}")
    _check_tuning(kind, options)


def _check_tuning(kind: str, options: Document) -> None:
    known = _KINDS[kind]
    for name, value in options.items():
        if name in ("kind", "similarity", "dimensions", "compression"):
            continue
        if name not in known:
            raise _cannot_create(f"A {kind} index has no option '{name}'.")
        low, high = known[name]
        if not is_number(value):
            raise _cannot_create(f"{name} must be a number not {type_name(value)}")
        if not low <= as_double(value) <= high:
            raise _cannot_create(f"{name} must be from {low} to {high}, but was {value}")
    construction, m = (as_double(options.get(*each)) for each in (("efConstruction", _CONSTRUCTION), ("m", _M)))
    if kind == "vector-hnsw" and construction < 2 * m:
        raise _cannot_create("efConstruction must be greater than or equal to 2 * m for vector-hnsw indexes")


def _cannot_create(message: str) -> Failure:
    return refusal(_CANNOT_CREATE, message)
