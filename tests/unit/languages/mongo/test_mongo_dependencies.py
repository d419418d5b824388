"""Which fields filters and pipelines look at, and documents that are decoded with some of their fields."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.bson_documents import random_document
from support.limits import WithLimits
from support.mongo_author import MongoAuthor
from support.mongo_house import MongoHouse

from armillary.languages.mongo.dependencies import expression_fields, filter_fields, pipeline_fields
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import compile_filter
from armillary.model.bson.bson_elements import FieldDecoder, elements
from armillary.model.bson.bson_values import decode, encode


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, set()),
        ({"a": 1, "b.c": {"$gt": 1}}, {"a", "b"}),
        ({"$and": [{"a": 1}, {"$or": [{"b": 1}, {"$nor": [{"c.d": 1}]}]}]}, {"a", "b", "c"}),
        ({"$expr": {"$gt": ["$a.b", {"$add": ["$c", 1]}]}}, {"a", "c"}),
        ({"a": {"$elemMatch": {"b": 1}}}, {"a"}),
        ({"$comment": "x", "a": 1}, {"a"}),
        ({"$jsonSchema": {}}, None),
        ({"$text": {"$search": "x"}}, None),
        ({"$expr": {"$eq": ["$$ROOT", 1]}}, None),
    ],
)
def test_fields_of_filters(given: dict[str, Any], expected: set[str] | None) -> None:
    assert filter_fields(given) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("$a.b.c", {"a"}),
        ("text", set()),
        ("$$ROOT.a.b", {"a"}),
        ("$$CURRENT", None),
        ("$$NOW", set()),
        ({"$let": {"vars": {"x": "$a"}, "in": "$$x.b"}}, {"a"}),
        ({"$getField": "a"}, None),
        ({"deep": [{"$sum": "$x"}, {"$literal": "$y"}]}, {"x", "y"}),
        ({"$top": {"sortBy": {"a": 1}, "output": "$b"}}, None),
    ],
)
def test_fields_of_expressions(spec: Any, expected: set[str] | None) -> None:
    assert expression_fields(spec) == expected


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([], None),
        ([{"$match": {"a": 1}}], None),
        ([{"$match": {"a": 1}}, {"$group": {"_id": "$b", "n": {"$sum": "$c.d"}}}], {"a", "b", "c"}),
        ([{"$group": {"_id": None, "all": {"$push": "$$ROOT"}}}], None),
        ([{"$match": {"a": 1}}, {"$skip": 1}, {"$count": "n"}, {"$match": {"z": 1}}], {"a"}),
        ([{"$sortByCount": "$a"}], {"a"}),
        ([{"$bucket": {"groupBy": "$a", "boundaries": [0, 1], "output": {"n": {"$sum": "$b"}}}}], {"a", "b"}),
        ([{"$sort": {"a": 1}}, {"$count": "n"}], None),
        ([{"$addFields": {"a": "$b"}}, {"$group": {"_id": "$a"}}], None),
    ],
)
def test_fields_of_pipelines(stages: list[Any], expected: set[str] | None) -> None:
    assert pipeline_fields(stages) == expected


def test_random_filters_look_at_nothing_else(seed: int) -> None:
    author = MongoAuthor(seed)
    documents = [author.document(number) for number in range(40)]
    known = 0
    for _ in range(500):
        given = author.filter()
        fields = filter_fields(given)
        if fields is None:
            continue
        known += 1
        matches = compile_filter(given, Context.of(0, lambda: 0.5)).matches
        for document in documents:
            less = {name: value for name, value in document.items() if name in fields}
            assert matches(less) == matches(document), f"{given} {document}"
    assert known > 300


def test_random_documents_are_taken_apart_and_decoded_in_part(with_limits: WithLimits, seed: int) -> None:
    dice = random.Random(seed)
    with_limits(MONGO_PARTIAL_BYTES_MIN=0)
    for _ in range(500):
        document = random_document(dice, 3, 6)
        encoded = encode(document)
        found = list(elements(encoded))
        assert [name.decode() for _, name, _, _ in found] == list(document)
        assert b"".join([encoded[begin:end] for *_, begin, end in found]) == encoded[4:-1]
        names = [name for name in document if dice.random() < 0.5]
        some = FieldDecoder(names)(encoded)
        assert {name: encode({"v": some[name]}) for name in names} == {
            name: encode({"v": document[name]}) for name in names
        }


def test_documents_of_many_small_fields_are_decoded_whole() -> None:
    wide = encode({f"f{number}": number for number in range(1000)})
    decoder = FieldDecoder(["f1"])
    assert len(decoder(wide)) == 1000
    deep = encode({"a": 1, "b": "x" * 10_000})
    assert FieldDecoder(["a"])(deep) == {"a": 1}
    assert FieldDecoder(["a"])(encode({"a": 1, "b": 2})) == {"a": 1, "b": 2}
    assert decoder(deep) == decode(deep), "after one that was in vain there is a pause"


async def test_large_documents_are_grouped() -> None:
    house = await MongoHouse.open()
    lines = [{"sku": f"s{number}", "price": number} for number in range(200)]
    documents = [{"_id": number, "g": number % 3, "lines": lines, "n": number} for number in range(30)]
    await house.ask({"insert": "c", "documents": documents})
    pipeline = [{"$match": {"n": {"$gte": 3}}}, {"$group": {"_id": "$g", "sum": {"$sum": "$n"}}}, {"$sort": {"_id": 1}}]
    answer = await house.ask({"aggregate": "c", "pipeline": pipeline, "cursor": {}})
    expected = [{"_id": g, "sum": sum(n for n in range(3, 30) if n % 3 == g)} for g in range(3)]
    assert answer["cursor"]["firstBatch"] == expected
    whole = [{"$group": {"_id": None, "n": {"$sum": {"$size": "$lines"}}}}]
    answer = await house.ask({"aggregate": "c", "pipeline": whole, "cursor": {}})
    assert answer["cursor"]["firstBatch"] == [{"_id": None, "n": 6000}]
    await house.close()
