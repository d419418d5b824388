"""Filters beyond the corpus: what is refused and how, places, texts, schemas, collations, references; and projections
and sorts of them."""

from __future__ import annotations

from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex

from armillary.errors import Failure
from armillary.languages.mongo.collation import key_function, parse_collation
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.expressions.accumulators import distinct_values
from armillary.languages.mongo.filters.matching import compile_filter
from armillary.languages.mongo.filters.text_search import TextIndex, words_in
from armillary.languages.mongo.projection import compile_projection
from armillary.languages.mongo.sort_keys import compile_sort

CONTEXT = Context.of(1_700_000_000_000, lambda: 0.25)


def matches(given: Any, document: dict[str, Any], **more: Any) -> bool:
    return compile_filter(given, CONTEXT, **more).matches(document)


def code_of(action: Any) -> tuple[int, str]:
    with pytest.raises(Failure) as caught:
        action()
    return caught.value.details["code"], caught.value.message


# Refusals.


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ({"$foo": 1}, 2, "unknown top level operator: $foo."),
        ({"a": {"$foo": 1}}, 2, "unknown operator: $foo"),
        ({"a": {"$gt": 1, "x": 2}}, 2, "unknown operator: x"),
        ({"$and": []}, 2, "$and/$or/$nor must be a nonempty array"),
        ({"$where": 1}, 2, "$where must be a string"),
        ({"a": {"$elemMatch": {"$where": "true"}}}, 2, "$where can only be applied to the top-level document"),
        ({"a": {"$in": 1}}, 2, "$in needs an array"),
        ({"a": {"$all": [1, {"$elemMatch": {}}]}}, 2, "no $ expressions in $all"),
        ({"a": {"$all": [{"$elemMatch": {}}, 1]}}, 2, "$all/$elemMatch has to be consistent"),
        ({"a": {"$options": "i"}}, 2, "$options needs a $regex"),
        ({"a": {"$regex": Regex("a", "i"), "$options": "m"}}, 51075, "options set in both"),
        ({"a": {"$gt": Regex("a")}}, 2, "Can't have RegEx as arg to predicate over field 'a'."),
        ({"a": {"$mod": [0, 1]}}, 2, "divisor cannot be 0"),
        ({"a": {"$bitsAllSet": -1}}, 9, "Expected a non-negative number"),
        ({"a": {"$bitsAllSet": [-1]}}, 2, "Failed to parse bit position"),
        ({"$or": [{"a": {"$near": [1, 2]}}]}, 2, "geo $near must be top-level expr"),
        ({"$text": {"$search": "x"}}, 27, "text index required for $text query"),
        ({"$sampleRate": 2}, 2, "The argument of $sampleRate"),
        ({"a": {"$type": 99}}, 2, "Invalid numerical type code: 99"),
        ({"$jsonSchema": {"foo": 1}}, 9, "Unknown $jsonSchema keyword: foo"),
        ({"$jsonSchema": {"type": "integer"}}, 9, "$jsonSchema type 'integer' is not currently supported."),
        ([], 14, "The filter must be an object."),
    ],
)
def test_refusals(given: Any, code: int, message: str) -> None:
    found = code_of(lambda: compile_filter(given, CONTEXT))
    assert found[0] == code and message in found[1]


# Values.


@pytest.mark.parametrize(
    ("given", "value", "is_match"),
    [
        ({"$gt": MinKey()}, 1, True),
        ({"$gt": MinKey()}, MinKey(), False),
        ({"$gte": MaxKey()}, MaxKey(), True),
        ({"$lt": MaxKey()}, None, True),
        ({"$gt": Decimal128("1.5")}, float("nan"), False),
        ({"$lte": Decimal128("NaN")}, float("nan"), True),
        ({"$eq": 2**53 + 1}, float(2**53), False),
        ({"$lt": 2**53 + 1}, float(2**53), True),
        ({"$gt": DatetimeMS(5)}, DatetimeMS(6), True),
        ({"$gt": DatetimeMS(5)}, 6, False),
        ({"$bitsAllSet": [0, 63]}, -1, True),
        ({"$bitsAllSet": [0, 200]}, Int64(-1), True),
        ({"$bitsAnyClear": 6}, 4, True),
        ({"$bitsAllClear": b"\x03"}, b"\x04", True),
        ({"$bitsAllSet": 1}, 1.5, False),
        ({"$mod": [4, 3]}, Decimal128("7.9"), True),
        ({"$in": [Regex("^A", "i"), None]}, "abc", True),
        ({"$type": "number"}, [Decimal128("1")], True),
        ({"$exists": 0.0}, 1, False),
        ({"$elemMatch": {"0": 1}}, [[1]], True),
        ({"$elemMatch": {"$elemMatch": {"$gt": 1}}}, [[0], [2]], True),
        ({"$size": 0}, [], True),
        ({"$regex": "^a.c$", "$options": "s"}, "a\nc", True),
        ({"$not": Regex("^a")}, ["b", "a"], False),
    ],
)
def test_values(given: Any, value: Any, is_match: bool) -> None:
    assert matches({"v": given}, {"v": value}) == is_match


def test_references_between_documents() -> None:
    oid = ObjectId()
    document = {"_id": 1, "r": DBRef("people", oid), "l": [DBRef("people", oid)]}
    assert matches({"r.$id": oid}, document)
    assert matches({"l.$id": oid}, document)
    assert matches({"r": {"$ref": "people", "$id": oid}}, document)
    assert matches({"r": DBRef("people", oid)}, document)
    assert not matches({"r.$id": ObjectId()}, document)


def test_chances_and_expressions() -> None:
    assert matches({"$sampleRate": 0.5}, {})
    assert not matches({"$sampleRate": 0.1}, {})
    assert matches({"$expr": {"$gt": ["$a", "$b"]}}, {"a": 2, "b": 1})
    assert not matches({"$alwaysFalse": 1}, {})


@pytest.mark.parametrize(
    ("given", "array", "document", "position"),
    [
        ({"a": {"$gt": 2}}, "a", {"a": [1, 3, 5]}, 1),
        ({"a.k": 2, "b": 1}, "a", {"a": [{"k": 1}, {"k": 2}], "b": [0, 0, 1]}, 1),
        ({"a.k": 2, "b": 1}, "b", {"a": [{"k": 1}, {"k": 2}], "b": [0, 0, 1]}, 2),
        ({"a.b": {"$elemMatch": {"$gt": 1}}}, "a.b", {"a": {"b": [0, 5]}}, 1),
        ({"$or": [{"a": 9}, {"a": 3}]}, "a", {"a": [1, 3]}, 1),
        ({"a": 1}, "a", {"a": 1}, None),
        ({"a": {"$ne": 5}}, "a", {"a": [1]}, None),
        ({"a.0": 1}, "a", {"a": [1]}, None),
    ],
)
def test_which_element_matched(given: Any, array: str, document: Any, position: int | None) -> None:
    matcher = compile_filter(given, CONTEXT)
    assert matcher.matches(document)
    assert matcher.first_match(document, array) == position


# Places.

BOX = [[-1, -1], [-1, 3], [3, 3], [3, -1], [-1, -1]]


@pytest.mark.parametrize(
    ("given", "place", "is_match"),
    [
        ({"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [BOX]}}}, [1, 1], True),
        ({"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [BOX[::-1]]}}}, [1, 1], True),
        ({"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [BOX]}}}, [4, 1], False),
        (
            {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [BOX]}}},
            {"type": "MultiPoint", "coordinates": [[1, 1], [9, 9]]},
            False,
        ),
        (
            {"$geoIntersects": {"$geometry": {"type": "Polygon", "coordinates": [BOX]}}},
            {"type": "GeometryCollection", "geometries": [{"type": "LineString", "coordinates": [[2, 2], [9, 9]]}]},
            True,
        ),
        ({"$geoWithin": {"$box": [[0, 0], [2, 2]]}}, {"lng": 1, "lat": Int64(2)}, True),
        ({"$geoWithin": {"$polygon": [[0, 0], [2, 0], [0, 2]]}}, [0.5, 0.5], True),
        ({"$geoWithin": {"$polygon": [[0, 0], [2, 0], [0, 2]]}}, [2, 2], False),
        ({"$geoWithin": {"$center": [[0, 0], 5]}}, [3, 4], True),
        ({"$geoWithin": {"$centerSphere": [[0, 0], 0.1]}}, [5, 0], True),
        ({"$geoWithin": {"$centerSphere": [[0, 0], 0.1]}}, [6, 0], False),
        ({"$geoWithin": {"$box": [[0, 0], [2, 2]]}}, [[9, 9], [1, 1]], True),
        ({"$geoWithin": {"$box": [[0, 0], [2, 2]]}}, "x", False),
    ],
)
def test_areas(given: Any, place: Any, is_match: bool) -> None:
    assert matches({"l": given}, {"l": place}) == is_match


def test_near() -> None:
    point = {"type": "Point", "coordinates": [0, 0]}
    matcher = compile_filter({"l": {"$near": {"$geometry": point, "$maxDistance": 200_000}}, "a": 1}, CONTEXT)
    assert matcher.near is not None
    assert matcher.matches({"l": [1, 1], "a": 1}) and not matcher.matches({"l": [2, 2], "a": 1})
    assert matcher.near.distance({"l": [1, 0]}) == pytest.approx(111_319, rel=1e-3)
    assert matcher.near.distance({"l": [[9, 9], [1, 0]]}) == pytest.approx(111_319, rel=1e-3)
    assert matcher.near.distance({"l": "nowhere"}) is None
    flat = compile_filter({"l": {"$near": [0, 0], "$maxDistance": 5, "$minDistance": 1}}, CONTEXT)
    assert flat.matches({"l": [3, 4]}) and not flat.matches({"l": [0, 0]})


@pytest.mark.parametrize(
    "given",
    [
        {"$geoWithin": {"$geometry": {"type": "Point", "coordinates": [1, 1]}}},
        {"$geoWithin": {"$foo": 1}},
        {"$geoWithin": {"$box": [[1, 1]]}},
        {"$geoWithin": {"$center": [[1, 1], -1]}},
        {"$geoIntersects": {"$box": [[1, 1], [2, 2]]}},
        {"$geoIntersects": {"$geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 0]]]}}},
        {"$near": {"$geometry": {"type": "Point", "coordinates": [1, 1]}, "$maxDistance": -1}},
    ],
)
def test_areas_that_are_none(given: Any) -> None:
    assert code_of(lambda: compile_filter({"l": given}, CONTEXT))[0] == 2


# Texts.

INDEX = TextIndex({"title": 10.0, "body": 1.0})


@pytest.mark.parametrize(
    ("search", "is_match"),
    [
        ("sailing", True),
        ("boats zebra", True),
        ("zebra", False),
        ("sails -harbour", False),
        ('"the old boat"', True),
        ('"old the boat"', False),
        ('sail -"old boat"', False),
        ("Café", True),
        ("the", False),
    ],
)
def test_texts(search: str, is_match: bool) -> None:
    document = {"title": "A sailor's cafe", "body": "He sails the old boat out of the harbour"}
    assert matches({"$text": {"$search": search}}, document, text_index=INDEX) == is_match


def test_scores_order_and_show() -> None:
    documents = [{"_id": 1, "body": "boat"}, {"_id": 2, "title": "boat"}, {"_id": 3, "body": "a boat, a big boat"}]
    matcher = compile_filter({"$text": {"$search": "boat"}}, CONTEXT, text_index=INDEX)
    order = compile_sort({"score": {"$meta": "textScore"}}, None, matcher.text)
    project = compile_projection({"s": {"$meta": "textScore"}}, CONTEXT, matcher)
    found = [project(document) for document in order.applied(documents)]
    assert [each["_id"] for each in found] == [2, 3, 1]
    assert found[0]["s"] == pytest.approx(11.0) and found[2]["s"] == pytest.approx(1.1)
    assert code_of(lambda: compile_sort({"s": {"$meta": "textScore"}}))[0] == 40218


# Schemas.


@pytest.mark.parametrize(
    ("schema", "document", "is_match"),
    [
        ({"bsonType": "object", "required": ["a"]}, {"a": 1}, True),
        ({"additionalProperties": False, "properties": {"a": {}}}, {"a": 1, "b": 2}, False),
        ({"patternProperties": {"^x": {"type": "number"}}}, {"x1": "a"}, False),
        ({"properties": {"a": {"items": [{"type": "number"}], "additionalItems": False}}}, {"a": [1, 2]}, False),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [1, 1.0]}, False),
        ({"properties": {"a": {"multipleOf": 0.1}}}, {"a": 0.3}, True),
        ({"properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}}, {"a": 1}, False),
        ({"properties": {"a": {"enum": [1, "x", None]}}}, {"a": Int64(1)}, True),
        ({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, {"a": 1}, False),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1, "b": 1}, False),
        ({"not": {"required": ["a"]}}, {"b": 1}, True),
        ({"minProperties": 2, "maxProperties": 3}, {"a": 1}, False),
        ({"properties": {"a": {"minLength": 2, "maxLength": 3, "pattern": "^x"}}}, {"a": "xyz"}, True),
    ],
)
def test_schemas(schema: Any, document: Any, is_match: bool) -> None:
    assert matches({"$jsonSchema": schema}, document) == is_match


# Collations.


def collated(given: Any) -> Context:
    return Context.of(0, lambda: 0.5, None, key_function(parse_collation(given)))


def test_collations_match() -> None:
    loose = collated({"locale": "en", "strength": 1})
    cased = collated({"locale": "en", "strength": 2})
    document = {"a": ["Été"], "o": {"x": "ABC"}}
    assert compile_filter({"a": "ete"}, loose).matches(document)
    assert not compile_filter({"a": "ete"}, cased).matches(document)
    assert compile_filter({"a": "ÉTÉ"}, cased).matches(document)
    assert compile_filter({"o": {"x": "abc"}}, cased).matches(document)
    assert compile_filter({"a": {"$in": ["été"]}}, cased).matches(document)
    assert compile_filter({"a": {"$gt": "esa"}}, cased).matches(document)
    assert parse_collation({"locale": "simple"}) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"locale": "en"}, ["a", "A", "á", "b", "B", "z"]),
        ({"locale": "en", "caseFirst": "upper"}, ["A", "a", "B", "b"]),
        ({"locale": "en", "numericOrdering": True}, ["a2", "a10", "a100"]),
        ({"locale": "sv"}, ["a", "z", "å", "ä", "ö"]),
        ({"locale": "da"}, ["z", "æ", "ø", "å"]),
        ({"locale": "es"}, ["n", "nz", "ñ", "o"]),
        ({"locale": "en"}, ["-", "1", "a"]),
    ],
)
def test_collations_order(given: Any, words: list[str]) -> None:
    documents = [{"w": word} for word in reversed(words)]
    assert [each["w"] for each in compile_sort({"w": 1}, parse_collation(given)).applied(documents)] == words


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"locale": "xx"}, 2),
        ({"locale": "en", "strength": 6}, 51024),
        ({"locale": "en", "strength": 0}, 2),
        ({"locale": "en", "version": "1"}, 161),
        ({"locale": "en", "foo": 1}, 40415),
        ({"strength": 1}, 40414),
        ({"locale": "en", "caseFirst": "x"}, 2),
        ({"locale": "simple", "strength": 1}, 2),
        ("en", 14),
    ],
)
def test_collations_that_are_none(given: Any, code: int) -> None:
    assert code_of(lambda: parse_collation(given))[0] == code


def test_distinct_values() -> None:
    documents: list[dict[str, Any]] = [{"a": ["x", "X"]}, {"a": "x"}, {"a": [[1]]}, {}]
    assert distinct_values(documents, "a") == ["X", "x", [1]]
    assert distinct_values(documents, "a", parse_collation({"locale": "en", "strength": 2})) == ["x", [1]]


# Sorts.


def test_sorts_of_several_fields() -> None:
    several = [{"x": 1, "y": 9}, {"x": 2, "y": 0}]
    documents: list[dict[str, Any]] = [{"_id": 1, "a": several}, {"_id": 2, "a": [{"x": 1, "y": 5}]}, {"_id": 3}]
    order = compile_sort({"a.x": 1, "a.y": -1})
    assert [each["_id"] for each in order.applied(documents)] == [3, 1, 2]
    assert [each["_id"] for each in compile_sort({"$natural": -1}).applied(documents)] == [3, 2, 1]
    parallel = compile_sort({"a": 1, "b": 1})
    assert code_of(lambda: parallel.key({"a": [1], "b": [2]}))[1] == "cannot sort with keys that are parallel arrays"


@pytest.mark.parametrize("given", [{"a": 2}, {"a": "x"}, {"": 1}, {"$a": 1}, {"a": {"$foo": 1}}, {"$natural": 5}, []])
def test_sorts_that_are_none(given: Any) -> None:
    code_of(lambda: compile_sort(given))


# Projections.

DOCUMENT = {"_id": 1, "a": 1, "b": {"c": 2, "d": [1, 2, 3]}, "l": [{"x": [1, 2], "y": 1}, 5, {"x": [3], "y": 2}]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"b.d": {"$slice": 1}, "l": 0}, {"_id": 1, "a": 1, "b": {"c": 2, "d": [1]}}),
        ({"a": 1, "b.d": {"$slice": [-2, 1]}}, {"_id": 1, "a": 1, "b": {"d": [2]}}),
        ({"l.x": {"$slice": 1}, "_id": 0, "a": 0, "b": 0}, {"l": [{"x": [1], "y": 1}, 5, {"x": [3], "y": 2}]}),
        ({"l": {"$elemMatch": {"y": 2}}, "b.c": 1}, {"_id": 1, "b": {"c": 2}, "l": [{"x": [3], "y": 2}]}),
        ({"b": {"c": 1}}, {"_id": 1, "b": {"c": 2}}),
        ({"b.z": {"$add": ["$a", 1]}, "b.c": 1}, {"_id": 1, "b": {"c": 2, "z": 2}}),
        ({"_id": {"$literal": "x"}}, {"_id": "x"}),
        ({"_id": 0, "n": "lit"}, {"n": "lit"}),
        ({}, DOCUMENT),
        ({"l.y": 0, "a": False, "b": 0}, {"_id": 1, "l": [{"x": [1, 2]}, 5, {"x": [3]}]}),
    ],
)
def test_projections(given: Any, expected: Any) -> None:
    found = compile_projection(given, CONTEXT)(DOCUMENT)
    assert found == expected and list(found) == list(expected)


def test_projections_leave_the_document_alone() -> None:
    before = repr(DOCUMENT)
    compile_projection({"b.d": {"$slice": 1}, "b.z": {"$meta": "textScore"}}, CONTEXT, text_matcher())(DOCUMENT)
    compile_projection({"b.z": {"$literal": 1}, "b.c": 1}, CONTEXT)(DOCUMENT)
    assert repr(DOCUMENT) == before


def text_matcher() -> Any:
    return compile_filter({"$text": {"$search": "x"}}, CONTEXT, text_index=INDEX)


def test_positional_projection() -> None:
    matcher = compile_filter({"l.y": 2}, CONTEXT)
    assert compile_projection({"l.$": 1}, CONTEXT, matcher)(DOCUMENT) == {"_id": 1, "l": [{"x": [3], "y": 2}]}
    nothing = compile_projection({"l.$": 1}, CONTEXT, compile_filter({}, CONTEXT))
    assert code_of(lambda: nothing(DOCUMENT))[0] == 51246


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"a": 0, "b": 1}, 31253),
        ({"a": 0, "b": {"$add": [1, 2]}}, 31252),
        ({"a": {}}, 51270),
        ({"a.$": 1, "b.$": 1}, 31276),
        ({"a.$": 0}, 31395),
        ({"a.$.b": 1}, 31394),
        ({"a.b": {"$elemMatch": {}}}, 31275),
        ({"a": {"$slice": [1, 0]}}, 28724),
        ({"a": {"$slice": "x"}}, 28667),
        ({"a.": 1}, 40353),
        ({"a": {"$meta": "foo"}}, 17308),
        ({"a.b": 1, "a": 1}, 31250),
    ],
)
def test_projections_that_are_none(given: Any, code: int) -> None:
    assert code_of(lambda: compile_projection(given, CONTEXT))[0] == code


@pytest.mark.parametrize(
    ("searched", "is_found"),
    [("the", False), ("over the", False), ("jump", True), ("THE fox", True), ('"over the"', False)],
)
def test_words_that_every_text_has_are_not_searched_for(searched: str, is_found: bool) -> None:
    matcher = compile_filter({"$text": {"$search": searched}}, CONTEXT, text_index=TextIndex({"t": 1.0}))
    assert matcher.matches({"t": "The quick fox jumps over the dog"}) is is_found


@pytest.mark.parametrize(
    ("search", "document", "is_found"),
    [
        ({"$search": "d"}, {"t": "b c d"}, True),
        ({"$search": "don"}, {"t": "don't"}, False),
        ({"$search": "john"}, {"t": "John's house"}, True),
        ({"$search": "Coffee", "$caseSensitive": True}, {"t": "coffee"}, False),
        ({"$search": "Coffee", "$caseSensitive": True}, {"t": "Coffee"}, True),
        ({"$search": "-Coffee tea", "$caseSensitive": True}, {"t": "tea coffee"}, True),
        ({"$search": "caf\u00e9", "$diacriticSensitive": True}, {"t": "cafe"}, False),
        ({"$search": "caf\u00e9"}, {"t": "cafe"}, True),
        ({"$search": "testing", "$language": "none"}, {"t": "testing"}, False),
        ({"$search": "testing", "$language": "none"}, {"t": "testing", "language": "none"}, True),
        ({"$search": "tests"}, {"t": "testing"}, True),
        ({"$search": "tests"}, {"t": "testing", "language": "none"}, False),
    ],
    ids=str,
)
def test_words_and_languages(search: dict[str, Any], document: dict[str, Any], is_found: bool) -> None:
    matcher = compile_filter({"$text": search}, CONTEXT, text_index=TextIndex({"t": 1.0}))
    assert matcher.matches(document) is is_found
    if is_found:
        assert matcher.text is not None and matcher.text.terms & words_in(document, TextIndex({"t": 1.0}))


@pytest.mark.parametrize("place", [[4.9999, 52], [5, 52], [5.0001, 52], [5, 52.0001], [5, 51.9999]], ids=str)
def test_places_on_a_circle_are_inside(place: list[float]) -> None:
    circle = {"l": {"$geoWithin": {"$center": [[5, 52], 0.0001]}}}
    assert matches(circle, {"l": place})
    assert not matches(circle, {"l": [5.0001, 52.0001]})
