"""Indexes that commands name or need: `hint`, `min` and `max`, and the indexes that `$text`, `$geoNear` and vector
searches require."""

from __future__ import annotations

from copy import copy
from typing import Any

from armillary.account.collections import indexes
from armillary.account.collections.collection_rules import shard_fields
from armillary.account.container import Container
from armillary.doors.mongo.call import Call
from armillary.languages.mongo.collation import Collation
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.filters.matching import Matcher
from armillary.languages.mongo.filters.text_search import TextIndex
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.languages.mongo.indexes.index_definitions import is_identical_key
from armillary.languages.mongo.indexes.vector_indexes import vector_index_of
from armillary.languages.mongo.sort_keys import KeyBounds, Sort, compile_sort
from armillary.languages.mongo.stages.vector_search import Searchable
from armillary.model.bson.bson_values import Document, is_number


def check(container: Container | None, hint: Any) -> Document | None:
    """The index that a hint names; None: no hint."""
    if hint is None or hint in ("", {}):
        return None
    if not isinstance(hint, str | dict):
        raise refusal(9, "Hint must be a string or an object")
    if isinstance(hint, dict) and "$natural" in hint:
        if len(hint) > 1:
            raise refusal(2, "$natural hint may not be combined with other fields")
        if whole_number(hint["$natural"]) not in (1, -1):
            raise refusal(2, "$natural hint cannot be set to a value other than -1 or 1.")
        return None
    if container is None:
        return None
    for each in indexes.definitions(container):
        if each["name"] == hint if isinstance(hint, str) else is_identical_key(each["key"], hint):
            return each
    raise refusal(2, "planner returned error :: caused by :: hint provided does not correspond to an existing index")


def hinted(matcher: Matcher, definition: Document | None) -> Matcher:
    """The matcher, bound to the index of the hint."""
    if definition is None:
        return matcher
    found = copy(matcher)
    found.hint = definition["name"]
    return found


def check_near(container: Container | None, matcher: Matcher) -> None:
    """`$near` needs a geospatial index."""
    if matcher.near is None or container is None:
        return
    for each in indexes.definitions(container):
        kind = each["key"].get(matcher.near.path)
        if kind == "2dsphere" or (kind == "2d" and matcher.near.unit != "metres"):
            return
    raise refusal(291, "error processing query: planner returned error: unable to find index for $geoNear query")


def natural_order(hint: Any) -> Sort | None:
    """`{$natural: ±1}`: as documents are stored, or the other way."""
    return compile_sort(hint) if isinstance(hint, dict) and "$natural" in hint else None


def order_of(definition: Document, collation: Collation | None) -> Sort | None:
    """The order that an index has, if it holds every document by the values of fields."""
    is_plain = all(is_number(kind) for kind in definition["key"].values()) and "$**" not in "".join(definition["key"])
    if not is_plain or "sparse" in definition or "partialFilterExpression" in definition:
        return None
    return compile_sort(definition["key"], collation)


def bounded(call: Call, matcher: Matcher, hinted: Document | None) -> Matcher:
    """`min` and `max`: documents from one key of an index to before another."""
    least, most = call.fields.document("min", {}), call.fields.document("max", {})
    if not least and not most:
        return matcher
    if hinted is None:
        raise refusal(51173, "A hint must be given with min and max")
    if order_of(hinted, None) is None:
        raise refusal(51174, f"min and max need an index of fields, which '{hinted['name']}' is not")
    if least and most and list(least) != list(most):
        raise refusal(51176, "min and max must have the same field names, in the same order")
    for given in (least, most):
        if given and list(given) != list(hinted["key"]):
            raise refusal(51174, "min and max must name the fields of the hinted index, in its order")
    return matcher.between(KeyBounds(hinted["key"], least, most))


def text_index(container: Container | None) -> TextIndex | None:
    return indexes.text_index(container) if container is not None else None


def geo_paths(container: Container | None) -> tuple[str, ...]:
    """The fields of geospatial indexes."""
    if container is None:
        return ()
    return tuple(
        dict.fromkeys(
            path
            for each in indexes.definitions(container)
            for path, kind in each["key"].items()
            if kind in ("2dsphere", "2d")
        )
    )


def searchable(container: Container | None) -> Searchable:
    """The vector indexes, and the paths that filters of vector searches may use."""
    if container is None:
        return Searchable()
    known = indexes.definitions(container)
    vectors = [vector_index_of(each) for each in known]
    ordinary = [each for each, vector in zip(known, vectors, strict=True) if vector is None]
    return Searchable(
        tuple([each for each in vectors if each is not None]),
        frozenset([path for each in ordinary for path in each["key"]]),
        bool(shard_fields(container)),
    )
