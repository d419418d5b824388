"""Updates beyond the corpus: what is refused and in which words, paths with `$`, upserts, pipelines, no changes."""

from __future__ import annotations

from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from bson.regex import Regex
from bson.timestamp import Timestamp

from armillary.errors import Failure
from armillary.languages.mongo.collation import key_function, parse_collation
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import compile_filter
from armillary.languages.mongo.updates.updates import check_immutable, compile_update, is_replacement
from armillary.languages.mongo.updates.upserts import document_from, upserted_document

NOW_MS = 1_700_000_000_000
CONTEXT = Context.of(NOW_MS, lambda: 0.5)


def applied(update: Any, document: dict[str, Any], filters: Any = None, matched: int | None = None) -> dict[str, Any]:
    return compile_update(update, CONTEXT, filters).apply(document, matched)


@pytest.mark.parametrize(
    ("update", "document", "code", "message"),
    [
        (
            {"$inc": {"a": 1}},
            {"_id": 1, "a": "x"},
            14,
            "Cannot apply $inc to a value of non-numeric type. {_id: 1} has the field 'a' of non-numeric type string",
        ),
        ({"$set": {"a.b": 1}}, {"a": 1}, 28, "Cannot create field 'b' in element {a: 1}"),
        ({"$set": {"a.b.c": 1}}, {"a": {"b": None}}, 28, "Cannot create field 'c' in element {b: null}"),
        ({"$set": {"a.x": 1}}, {"a": [1]}, 28, "Cannot create field 'x' in element {a: [ 1 ]}"),
        ({"$set": {"a": 1}, "$inc": {"a": 1}}, {}, 40, "Updating the path 'a' would create a conflict at 'a'"),
        ({"$set": {"_id": 2}}, {"_id": 1}, 66, "Performing an update on the path '_id' would modify the immutable"),
        ({"b": 1, "_id": 2}, {"_id": 1}, 66, "was found to have been altered to _id: 2"),
        ({"$set": {"": 1}}, {}, 56, "An empty update path is not valid."),
        ({"$foo": {"a": 1}}, {}, 9, "Unknown modifier: $foo. Expected a valid update modifier or pipeline-style"),
        ({"$set": 1}, {}, 9, "Modifiers operate on fields but we found type int instead."),
        ({"a": 1, "$set": {"a": 1}}, {}, 52, "The dollar ($) prefixed field '$set'"),
        ({"$set": {"a.$": 1}}, {"a": [1]}, 2, "The positional operator did not find the match needed from the query."),
        ({"$set": {"a.$[]": 1}}, {"a": 1}, 2, "Cannot apply array updates to non-array element a: 1"),
        ({"$set": {"a.$[]": 1}}, {}, 2, "The path 'a' must exist in the document in order to apply array updates."),
        ({"$set": {"a.$.b.$": 1}}, {}, 2, "Too many positional (i.e. '$') elements found in path 'a.$.b.$'"),
        ({"$set": {"$[]": 1}}, {}, 2, "Cannot have positional (i.e. '$') element in the first position"),
        ({"$set": {"a.$[x]": 1}}, {}, 2, "No array filter found for identifier 'x' in path 'a.$[x]'"),
        ({"$rename": {"a": "b.0"}}, {"a": 1, "b": [1]}, 2, "The destination field cannot be an array element"),
        ({"$rename": {"a": 1}}, {}, 2, "The 'to' field for $rename must be a string"),
        ({"$pop": {"a": 2}}, {}, 9, "$pop expects 1 or -1"),
        ({"$inc": {"a": Int64(2**63 - 1)}}, {"_id": 1, "a": 1}, 2, "Failed to apply $inc operations to current value"),
        ({"$bit": {"a": {"nand": 1}}}, {}, 2, "The $bit modifier only supports 'and', 'or', and 'xor'"),
        ({"$push": {"a": {"$each": [], "$foo": 1}}}, {}, 2, "Unrecognized clause in $push: $foo"),
        ({"$pull": {"a": 1}}, {"a": 1}, 2, "Cannot apply $pull to a non-array value"),
        ({"$pullAll": {"a": 1}}, {}, 2, "$pullAll requires an array argument"),
        ({"$set": {"a.9999999": 1}}, {"a": []}, 2, "Cannot add more than"),
        ([{"$group": {"_id": 1}}], {}, 72, "$group is not allowed to be used within an update"),
        ([{"$foo": 1}], {}, 40324, "Unrecognized pipeline stage name: '$foo'"),
        ([{"$set": {"_id": 2}}], {"_id": 1}, 66, "altered to _id: 2"),
        ("x", {}, 9, "Update argument must be either an object or an array"),
    ],
)
def test_refusals(update: Any, document: dict[str, Any], code: int, message: str) -> None:
    with pytest.raises(Failure) as caught:
        applied(update, document)
    assert caught.value.details["code"] == code and message in caught.value.message


@pytest.mark.parametrize(
    ("filters", "code"),
    [
        ([{"x": 1}, {"x": 2}], 9),
        ([{"x": 1, "y": 1}], 9),
        ([{}], 9),
        ([{"X": 1}], 2),
        ([1], 14),
        (1, 14),
        ([{"x": 1}, {"y": 1}], 9),
    ],
)
def test_array_filters_that_are_none(filters: Any, code: int) -> None:
    with pytest.raises(Failure) as caught:
        compile_update({"$set": {"a.$[x]": 1}}, CONTEXT, filters)
    assert caught.value.details["code"] == code


@pytest.mark.parametrize(
    ("update", "document", "expected"),
    [
        ({"$set": {"a.2": 1}}, {"a": []}, {"a": [None, None, 1]}),
        ({"$set": {"a.0.b": 1}}, {"a": []}, {"a": [{"b": 1}]}),
        ({"$set": {"a.0": 1}}, {}, {"a": {"0": 1}}),
        ({"$unset": {"a.b": 1, "c.0": 1}}, {"a": 1, "c": []}, {"a": 1, "c": []}),
        ({"$rename": {"a": "b"}}, {"a": {"x": 1}, "b": 2, "c": 3}, {"b": {"x": 1}, "c": 3}),
        ({"$rename": {"x": "a.b"}}, {"a": 1}, {"a": 1}),
        ({"$setOnInsert": {"a.b": 1}}, {"a": 1}, {"a": 1}),
        ({"$inc": {"a": 1}}, {"a": 2**31 - 1}, {"a": Int64(2**31)}),
        ({"$currentDate": {"a": True}}, {}, {"a": DatetimeMS(NOW_MS)}),
        ({"$currentDate": {"a": {"$type": "timestamp"}}}, {}, {"a": Timestamp(NOW_MS // 1000, 1)}),
        (
            {"$push": {"a": {"$each": [{"k": 1}], "$sort": {"k": -1}}}},
            {"a": [{"k": 2}, 5]},
            {"a": [{"k": 2}, {"k": 1}, 5]},
        ),
        ({"$push": {"a": {"$each": [], "$slice": 0}}}, {"a": [1]}, {"a": []}),
        ({"$pull": {"a": {"x": None}}}, {"a": [{"x": None}, {}, {"x": 1}, 3]}, {"a": [{"x": 1}, 3]}),
        ({"$pull": {"a": None}}, {"a": [None, {}, 1]}, {"a": [{}, 1]}),
        ({"$pull": {"a": {"$in": [Regex("^a"), 1]}}}, {"a": ["ab", 1, "b"]}, {"a": ["b"]}),
        ({"$addToSet": {"a": {"$each": [1, 1.0, 2]}}}, {}, {"a": [1, 2]}),
        ({"$min": {"a": 1, "b": 1}}, {"a": None}, {"a": None, "b": 1}),
        ([{"$set": {"n": {"$size": "$a"}}}, {"$unset": "a"}], {"_id": 1, "a": [1, 2]}, {"_id": 1, "n": 2}),
        ([{"$replaceWith": {"x": 1}}], {"_id": 1, "a": 1}, {"_id": 1, "x": 1}),
        ([], {"_id": 1, "a": 1}, {"_id": 1, "a": 1}),
    ],
)
def test_changes(update: Any, document: dict[str, Any], expected: dict[str, Any]) -> None:
    found = applied(update, document)
    assert found == expected and list(found) == list(expected)
    assert [type(value) for value in found.values()] == [type(value) for value in expected.values()]


def test_positions() -> None:
    document = {"g": [{"n": [1, 2]}, {"n": [3]}]}
    update = compile_update({"$set": {"g.$.n.$[].x": 1}}, CONTEXT)
    assert update.needs_position and update.positional_array == "g"
    matcher = compile_filter({"g.n": 3}, CONTEXT)
    assert matcher.first_match(document, update.positional_array) == 1
    both = compile_update({"$inc": {"g.$.n.$[i]": 5, "g.$.m": 1}}, CONTEXT, [{"i": {"$gt": 1}}])
    assert both.apply(document, 0) == {"g": [{"n": [1, 7], "m": 1}, {"n": [3]}]}
    with pytest.raises(Failure) as caught:
        compile_update({"$set": {"a.$": 1, "a.0": 2}}, CONTEXT).apply({"a": [1]}, 0)
    assert caught.value.details["code"] == 40


@pytest.mark.parametrize(
    "update",
    [
        {"$set": {"a": 1}},
        {"$set": {}},
        {"$inc": {"a": 0}},
        {"$unset": {"z": 1}},
        {"$addToSet": {"l": 1.0}},
        {"$push": {"l": {"$each": []}}},
        {"$bit": {"a": {"or": 1}}},
        {"_id": 1, "a": 1, "l": [1]},
        [{"$set": {"a": "$a"}}],
    ],
)
def test_no_change_is_the_same_object(update: Any) -> None:
    document = {"_id": 1, "a": 1, "l": [1]}
    assert applied(update, document) is document


def test_a_type_is_a_change() -> None:
    document = {"_id": 1, "a": 1}
    assert type(applied({"$set": {"a": 1.0}}, document)["a"]) is float
    assert type(applied({"$set": {"a": Int64(1)}}, document)["a"]) is Int64


def test_collations_reach_updates() -> None:
    context = Context.of(0, lambda: 0.5, None, key_function(parse_collation({"locale": "en", "strength": 2})))
    assert compile_update({"$addToSet": {"a": "X"}}, context).apply({"a": ["x"]}) == {"a": ["x"]}
    assert compile_update({"$pull": {"a": "X"}}, context).apply({"a": ["x", "y"]}) == {"a": ["y"]}


# Upserts.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"a": 1, "b": {"$gt": 5}, "c": {"$eq": None}}, {"a": 1, "c": None}),
        ({"a.b": 1, "a.c": 2}, {"a": {"b": 1, "c": 2}}),
        ({"$and": [{"a": 1}, {"$or": [{"b": 2}]}]}, {"a": 1, "b": 2}),
        ({"$or": [{"a": 1}, {"b": 2}]}, {}),
        ({"a": {"$all": [1]}, "b": {"$in": [1]}, "c": Regex("x")}, {"a": 1, "b": 1}),
        ({"a": {"$in": [1, 2]}}, {}),
        ({"a": 1, "$and": [{"a": 1.0}]}, {"a": 1}),
    ],
)
def test_documents_from_filters(given: Any, expected: Any) -> None:
    assert document_from(given) == expected


@pytest.mark.parametrize("given", [{"a": 1, "$and": [{"a": 2}]}, {"a": {"b": 1}, "a.b": 1}])
def test_contradictions_in_filters(given: Any) -> None:
    with pytest.raises(Failure) as caught:
        document_from(given)
    assert caught.value.details["code"] == 54


def test_upserts() -> None:
    def inserted(given: Any, update: Any) -> dict[str, Any]:
        return upserted_document(given, compile_update(update, CONTEXT))

    assert list(inserted({"z": 1, "_id": 5}, {"$setOnInsert": {"b": 1}}).items()) == [("_id", 5), ("z", 1), ("b", 1)]
    assert inserted({"a": 1}, {"$set": {"_id": 7}}) == {"_id": 7, "a": 1}
    assert inserted({"_id": 5, "a": 1}, {"b": 1}) == {"_id": 5, "b": 1}
    assert inserted({"a": 1}, {"$inc": {"a": 2}}) == {"a": 3}
    assert inserted({"_id": 1, "a": 1}, [{"$set": {"b": "$a"}}]) == {"_id": 1, "a": 1, "b": 1}
    with pytest.raises(Failure) as caught:
        inserted({"_id": 5}, {"$set": {"_id": 6}})
    assert caught.value.details["code"] == 66


def test_what_must_stay() -> None:
    check_immutable({"k": {"r": 1}}, {"k": {"r": 1.0}}, "k.r")
    check_immutable({}, {"k": 1}, "k")
    with pytest.raises(Failure):
        check_immutable({"k": 1}, {}, "k")
    assert (
        is_replacement({}) and is_replacement({"a": 1}) and not is_replacement({"$set": {}}) and not is_replacement([])
    )
