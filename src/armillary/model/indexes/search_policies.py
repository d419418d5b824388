"""Vector embedding and full-text policies of a container, and the checks of the indexes that build on them. This module
validates; searching is left to the query language.

Texts in the service's words are those that the clients' own tests look for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from armillary import limits
from armillary.errors import bad_request
from armillary.model.indexes.index_paths import is_plain_path
from armillary.model.json_members import INVALID_INPUT, members, shown

FULL_TEXT_LANGUAGES = ("en-US", "de-DE", "es-ES", "fr-FR", "it-IT", "pt-BR", "pt-PT")
_ENGLISH_BY_NUMBER = "1033"  # the Windows code of en-US, which the JavaScript tests use
_DATA_TYPES = ("float32", "float16", "uint8", "int8")
_DISTANCE_FUNCTIONS = ("cosine", "dotproduct", "euclidean")
_VECTOR_INDEX_TYPES = ("flat", "quantizedFlat", "diskANN")
_QUANTIZERS = ("product", "spherical")


@dataclass(frozen=True, slots=True)
class Embedding:
    path: str
    data_type: str
    dimensions: int
    distance_function: str  # lower case


@dataclass(frozen=True, slots=True)
class VectorPolicy:
    embeddings: Mapping[str, Embedding]
    given: dict[str, Any]

    @classmethod
    def parse(cls, given: Any) -> VectorPolicy | None:
        if given is None:
            return None
        listed = members(given, "vectorEmbeddingPolicy", {"vectorEmbeddings"}).get("vectorEmbeddings")
        if type(listed) is not list:
            raise bad_request(f"{INVALID_INPUT}: vectorEmbeddingPolicy.vectorEmbeddings must be a list.")
        embeddings: dict[str, Embedding] = {}
        for entry in listed:
            embedding = _embedding(entry)
            if embedding.path in embeddings:
                raise bad_request(f"The Vector Embedding Policy has the path {embedding.path} twice.")
            embeddings[embedding.path] = embedding
        return cls(embeddings, given)


def check_vector_index(entry: Any, policy: VectorPolicy | None) -> None:
    """One entry of an indexing policy's `vectorIndexes`."""
    known = {"path", "type", "quantizerType", "quantizationByteSize", "indexingSearchListSize", "vectorIndexShardKey"}
    entry = members(entry, "vectorIndexes", known)
    path, index_type = entry.get("path"), entry.get("type")
    embedding = policy.embeddings.get(path) if policy is not None and type(path) is str else None
    if embedding is None:
        raise bad_request(f"The Vector Indexing Policy's path::{shown(path)} not matching in Embedding's path.")
    if type(index_type) is not str or index_type not in _VECTOR_INDEX_TYPES:
        raise bad_request(
            f"The Vector Indexing Policy's Index Type::{shown(index_type)} is invalid. "
            f"Known are {', '.join(_VECTOR_INDEX_TYPES)}."
        )
    if index_type == "flat" and embedding.dimensions > limits.VECTOR_DIMENSIONS_FLAT_MAX:
        raise bad_request(
            f"The Vector Embedding Policy has Dimensions:{embedding.dimensions} which is more than the maximum "
            f"supported value for a flat index, {limits.VECTOR_DIMENSIONS_FLAT_MAX}. Use quantizedFlat or diskANN."
        )
    for name, types in (
        ("quantizerType", ("quantizedFlat", "diskANN")),
        ("quantizationByteSize", ("quantizedFlat", "diskANN")),
        ("indexingSearchListSize", ("diskANN",)),
        ("vectorIndexShardKey", ("quantizedFlat", "diskANN")),
    ):
        if entry.get(name) is not None and index_type not in types:
            raise bad_request(
                f"The Vector Indexing Policy parameter {name} does not apply to the index type {index_type}."
            )
    if entry.get("quantizerType", "product") not in _QUANTIZERS:
        raise bad_request(
            f"The Vector Indexing Policy has an invalid QuantizerType:{shown(entry['quantizerType'])}. "
            f"Known are {', '.join(_QUANTIZERS)}."
        )
    most = min(embedding.dimensions, limits.VECTOR_QUANTIZATION_BYTES_MAX)
    _check_range(entry, "quantizationByteSize", 1, most)
    _check_range(entry, "indexingSearchListSize", limits.VECTOR_SEARCH_LIST_MIN, limits.VECTOR_SEARCH_LIST_MAX)
    _check_shard_key(entry.get("vectorIndexShardKey"))


@dataclass(frozen=True, slots=True)
class FullTextPolicy:
    default_language: str
    languages: Mapping[str, str]  # by path
    given: dict[str, Any]

    @classmethod
    def parse(cls, given: Any) -> FullTextPolicy | None:
        if given is None:
            return None
        policy = members(given, "fullTextPolicy", {"defaultLanguage", "fullTextPaths"})
        default = _language(policy.get("defaultLanguage", FULL_TEXT_LANGUAGES[0]))
        listed = policy.get("fullTextPaths", [])
        if type(listed) is not list:
            raise bad_request(f"{INVALID_INPUT}: fullTextPolicy.fullTextPaths must be a list.")
        languages: dict[str, str] = {}
        for entry in listed:
            entry = members(entry, "fullTextPaths", {"path", "language"})
            path = entry.get("path")
            if not is_plain_path(path):
                raise bad_request(f"The Full Text Policy contains an invalid Path: {shown(path)}")
            if path in languages:
                raise bad_request(f"The Full Text Policy contains the Path {shown(path)} twice")
            languages[path] = _language(entry.get("language", default))
        return cls(default, languages, given)


def check_full_text_index(entry: Any, policy: FullTextPolicy | None) -> None:
    """One entry of an indexing policy's `fullTextIndexes`."""
    path = members(entry, "fullTextIndexes", {"path"}).get("path")
    if not is_plain_path(path):
        raise bad_request(f"The Full Text Index contains an invalid Path: {shown(path)}")
    if policy is None or path not in policy.languages:
        raise bad_request(
            f"The Full Text Index's path {shown(path)} is not in the Full Text Policy. Add it there first."
        )


def _embedding(entry: Any) -> Embedding:
    entry = members(entry, "vectorEmbeddings", {"path", "dataType", "dimensions", "distanceFunction"})
    path, data_type = entry.get("path"), entry.get("dataType", "float32")
    dimensions, distance = entry.get("dimensions", 1536), entry.get("distanceFunction", "cosine")
    if not is_plain_path(path):
        raise bad_request(f"The Vector Embedding Policy has an invalid Path: {shown(path)}.")
    if data_type not in _DATA_TYPES:
        raise bad_request(
            f"The Vector Embedding Policy has an invalid DataType:{shown(data_type)}. "
            f"Known are {', '.join(_DATA_TYPES)}."
        )
    if type(dimensions) is not int:
        raise bad_request(f"{INVALID_INPUT}: dimensions of the vector {path} must be a whole number.")
    if dimensions < 1:
        raise bad_request(
            f"The Vector Embedding Policy has Dimensions:{dimensions} which is less than the minimum supported value 1."
        )
    if dimensions > limits.VECTOR_DIMENSIONS_MAX:
        raise bad_request(
            f"The Vector Embedding Policy has Dimensions:{dimensions} which is more than the maximum supported value "
            f"{limits.VECTOR_DIMENSIONS_MAX}."
        )
    if type(distance) is not str or distance.lower() not in _DISTANCE_FUNCTIONS:
        raise bad_request(
            f"The Vector Embedding Policy has an invalid DistanceFunction:{shown(distance)}. "
            f"Known are {', '.join(_DISTANCE_FUNCTIONS)}."
        )
    return Embedding(path, data_type, dimensions, distance.lower())


def _check_range(entry: Mapping[str, Any], name: str, least: int, most: int) -> None:
    value = entry.get(name)
    if value is None:
        return
    if type(value) is not int:
        raise bad_request(f"{INVALID_INPUT}: {name} of the Vector Indexing Policy must be a whole number.")
    if not least <= value <= most:
        raise bad_request(
            f"The Vector Indexing Policy parameter {name[0].upper() + name[1:]} value :: {value} is out of range. "
            f"The allowed range is between {least} and {most}."
        )


def _check_shard_key(shard_key: Any) -> None:
    if shard_key is None:
        return
    if type(shard_key) is not list:
        raise bad_request(f"{INVALID_INPUT}: vectorIndexShardKey must be a list of paths.")
    if len(shard_key) > limits.VECTOR_SHARD_PATHS_MAX:
        raise bad_request(
            f"The number of shard paths defined in the Vector Indexing Policy: {len(shard_key)} exceeds the maximum: "
            f"{limits.VECTOR_SHARD_PATHS_MAX}."
        )
    for path in shard_key:
        if not is_plain_path(path):
            raise bad_request(f"The Vector Indexing Policy has an invalid Shard Path: {shown(path)}.")


def _language(language: Any) -> str:
    if language == _ENGLISH_BY_NUMBER:
        return FULL_TEXT_LANGUAGES[0]
    if language not in FULL_TEXT_LANGUAGES:
        raise bad_request(
            f"The Full Text Policy contains an unsupported language {shown(language)}. "
            f"Supported are {', '.join(FULL_TEXT_LANGUAGES)}."
        )
    return str(language)
