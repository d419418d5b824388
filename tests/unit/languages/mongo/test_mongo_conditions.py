"""Conditions of filters: whatever a filter matches satisfies them, as the index's terms have it; and what they pin."""

from __future__ import annotations

import random
from typing import Any

import pytest
from bson.int64 import Int64
from bson.objectid import ObjectId
from support.mongo_author import MongoAuthor

from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import compile_filter
from armillary.languages.mongo.indexes.index_conditions import filter_condition, index_paths, pinned_fields
from armillary.model.bson.bson_json import json_of
from armillary.model.encoding import encode_term
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.values import UNDEFINED
from armillary.query.access.term_ranges import term_bounds
from armillary.query.conditions import All, And, Condition, Defined, Equal, In, Nothing, Or, Range

SEEDS = [random.Random(20240701 + place).getrandbits(32) for place in range(6)]
CONTEXT = Context.of(1_700_000_000_000, lambda: 0.5)
EVERYTHING = IndexingPolicy.parse(None, key_definition=None, has_ttl=False)


def satisfies(terms: set[tuple[str, bytes]], condition: Condition) -> bool:
    match condition:
        case All():
            return True
        case Nothing():
            return False
        case And():
            return all(satisfies(terms, part) for part in condition.parts)
        case Or():
            return any(satisfies(terms, part) for part in condition.parts)
        case In():
            return any((condition.path, encode_term(value)) in terms for value in condition.values)
        case Equal() | Range() | Defined():
            bounds = term_bounds(condition)
            assert bounds is not None
            return any(path == condition.path and bounds[0] <= term < bounds[1] for path, term in terms)
    raise AssertionError(condition)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_matches_satisfies_the_condition(seed: int) -> None:
    author = MongoAuthor(seed)
    documents = [author.document(number) for number in range(40)]
    terms = [set(EVERYTHING.terms(json_of(document), 0).terms) for document in documents]
    useful = 0
    for _ in range(400):
        given = author.filter()
        matches = compile_filter(given, CONTEXT).matches
        condition = filter_condition(given)
        useful += not isinstance(condition, All)
        for document, indexed in zip(documents, terms, strict=True):
            assert not matches(document) or satisfies(indexed, condition), (
                f"seed {seed}: {given} {document}: {condition}"
            )
    assert useful > 200


def test_ids_are_points() -> None:
    oid = ObjectId("5f0000000000000000000001")
    assert filter_condition({"_id": oid}) == Equal("/id", f"oid:{oid}")
    assert filter_condition({"_id": {"$in": [1, 1.0, "x"]}}) == In("/id", ("i:1", "x"))
    assert filter_condition({"_id": {"$in": []}}) == Nothing()
    assert filter_condition({"_id": {"$gt": "a", "$lt": "b"}}) == Range("/_id", "a", "b", False, False)


def test_bounds_of_one_value_are_one_range() -> None:
    assert filter_condition({"region": {"$gte": "a", "$lt": "c"}}, single_paths=["region"]) == Range(
        "/region", "a", "c", True, False
    )
    condition = filter_condition({"a": {"$gte": "a", "$lt": "c"}})
    assert condition == Or(
        (
            Range("/a", "a", "c", True, False),
            And((Range("/a/[]", "a", UNDEFINED), Range("/a/[]", UNDEFINED, "c", True, False))),
        )
    )


def test_strings_under_a_collation_are_not_looked_up() -> None:
    assert filter_condition({"a": "x"}, is_collated=True) == All()
    assert filter_condition({"a": {"$in": ["x", 1]}}, is_collated=True) == All()
    assert filter_condition({"a": {"$gt": "x"}}, is_collated=True) == All()
    assert filter_condition({"_id": "x"}, is_collated=True) == All()
    assert filter_condition({"_id": 1}, is_collated=True) == Equal("/id", "i:1")
    assert filter_condition({"a": True}, is_collated=True) != All()


def test_what_says_nothing() -> None:
    for given in ({}, {"a": None}, {"a": {"$ne": 1}}, {"$nor": [{"a": 1}]}, {"$or": [{"a": 1}, {"b": None}]}):
        assert filter_condition(given) == All()


def test_paths_of_an_index() -> None:
    assert index_paths("a") == ["/a", "/a/[]"]
    assert index_paths("a.b") == ["/a/b", "/a/b/[]", "/a/[]/b", "/a/[]/b/[]"]
    assert "/a/[]" in index_paths("a.0")
    assert index_paths("id")[0] == "/$_id"


@pytest.mark.parametrize(
    ("given", "fields", "expected"),
    [
        ({"r": "x"}, ["r"], [("x",)]),
        ({"r": {"$in": ["x", "y"]}, "_id": 1}, ["r", "_id"], [("x", 1), ("y", 1)]),
        ({"r": {"$in": ["x", "y"]}, "$and": [{"r": "y"}]}, ["r"], [("y",)]),
        ({"r": "x", "$and": [{"r": "y"}]}, ["r"], []),
        ({"r": 1, "$and": [{"r": Int64(1)}]}, ["r"], [(1,)]),
        ({"$or": [{"r": "x"}]}, ["r"], [("x",)]),
        ({"$or": [{"r": "x"}, {"r": "y"}]}, ["r"], None),
        ({"r": {"$gt": 1}}, ["r"], None),
        ({"r": {"$eq": None}}, ["r"], [(None,)]),
    ],
)
def test_pinned_fields(given: dict[str, Any], fields: list[str], expected: Any) -> None:
    assert pinned_fields(given, fields) == expected
