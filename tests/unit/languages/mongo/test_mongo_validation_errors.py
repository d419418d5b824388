"""What a document that fails a validator is told: the examples of MongoDB's documentation, each operator and keyword
once."""

from __future__ import annotations

from typing import Any

import pytest
from bson.regex import Regex

from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import compile_filter
from armillary.languages.mongo.validation.validation_errors import details

CONTEXT = Context.of(0, lambda: 0.5)
STUDENTS: dict[str, Any] = {
    "$jsonSchema": {
        "bsonType": "object",
        "title": "Student",
        "required": ["name", "year"],
        "properties": {
            "year": {"bsonType": "int", "minimum": 2017, "description": "must be an integer"},
            "address": {"bsonType": "object", "properties": {"street": {"bsonType": "string"}}},
        },
    }
}
CONTACTS: dict[str, Any] = {
    "$or": [
        {"phone": {"$type": "string"}},
        {"email": {"$regex": "@mongodb"}},
        {"status": {"$in": ["Unknown", "Incomplete"]}},
    ]
}


def why(validator: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    assert not compile_filter(validator, CONTEXT).matches(document)
    return details(validator, document, CONTEXT)


def test_students() -> None:
    assert why(STUDENTS, {"year": 2016, "address": {"street": 5}}) == {
        "operatorName": "$jsonSchema",
        "title": "Student",
        "schemaRulesNotSatisfied": [
            {
                "operatorName": "properties",
                "propertiesNotSatisfied": [
                    {
                        "propertyName": "year",
                        "description": "must be an integer",
                        "details": [
                            {
                                "operatorName": "minimum",
                                "specifiedAs": {"minimum": 2017},
                                "reason": "comparison failed",
                                "consideredValue": 2016,
                            }
                        ],
                    },
                    {
                        "propertyName": "address",
                        "details": [
                            {
                                "operatorName": "properties",
                                "propertiesNotSatisfied": [
                                    {
                                        "propertyName": "street",
                                        "details": [
                                            {
                                                "operatorName": "bsonType",
                                                "specifiedAs": {"bsonType": "string"},
                                                "reason": "type did not match",
                                                "consideredValue": 5,
                                                "consideredType": "int",
                                            }
                                        ],
                                    }
                                ],
                            }
                        ],
                    },
                ],
            },
            {
                "operatorName": "required",
                "specifiedAs": {"required": ["name", "year"]},
                "missingProperties": ["name"],
            },
        ],
    }


def test_contacts() -> None:
    told = why(CONTACTS, {"email": "info@example.com"})
    assert told["operatorName"] == "$or"
    reasons = [(each["index"], each["details"]["operatorName"], each["details"]["reason"]) for each in _clauses(told)]
    assert reasons == [
        (0, "$type", "field was missing"),
        (1, "$regex", "regular expression did not match"),
        (2, "$in", "field was missing"),
    ]


def _clauses(told: dict[str, Any]) -> list[dict[str, Any]]:
    clauses: list[dict[str, Any]] = told["clausesNotSatisfied"]
    return clauses


@pytest.mark.parametrize(
    ("validator", "document", "expected"),
    [
        ({"a": 1}, {"a": 2}, {"operatorName": "$eq", "reason": "comparison failed", "consideredValue": 2}),
        ({"a": {"$gt": 5}}, {"a": [1, 2]}, {"operatorName": "$gt", "consideredValues": [1, 2, [1, 2]]}),
        ({"a": {"$exists": True}}, {}, {"reason": "path does not exist"}),
        ({"a": {"$exists": False}}, {"a": 1}, {"reason": "path does exist"}),
        ({"a": {"$size": 2}}, {"a": [1]}, {"operatorName": "$size", "consideredValue": [1]}),
        ({"a": {"$not": {"$gt": 5}}}, {"a": 6}, {"operatorName": "$not"}),
        ({"a": Regex("x")}, {"a": "y"}, {"operatorName": "$regex"}),
        ({"$nor": [{"a": 1}]}, {"a": 1}, {"operatorName": "$nor"}),
        ({"a": 1, "b": {"$gt": 1, "$lt": 3}}, {"a": 2, "b": 9}, {"operatorName": "$and"}),
        ({"$expr": {"$eq": ["$a", 1]}}, {"a": 2}, {"expressionResult": False}),
    ],
    ids=str,
)
def test_operators(validator: dict[str, Any], document: dict[str, Any], expected: dict[str, Any]) -> None:
    told = why(validator, document)
    assert {name: told[name] for name in expected} == expected


def test_clauses_are_those_that_fail() -> None:
    told = why({"a": 1, "b": {"$gt": 1, "$lt": 3}}, {"a": 2, "b": 9})
    assert [(each["index"], each["details"]["specifiedAs"]) for each in _clauses(told)] == [
        (0, {"a": 1}),
        (2, {"b": {"$lt": 3}}),
    ]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"enum": [1, 2]}, 3, {"reason": "value was not found in enum"}),
        ({"maximum": 5, "exclusiveMaximum": True}, 5, {"specifiedAs": {"maximum": 5, "exclusiveMaximum": True}}),
        ({"multipleOf": 2}, 3, {"reason": "considered value is not a multiple of the specified value"}),
        ({"minLength": 2}, "x", {"reason": "specified string length was not satisfied"}),
        ({"pattern": "^a"}, "x", {"reason": "regular expression did not match"}),
        ({"maxItems": 1}, [1, 2], {"reason": "array did not match specified length"}),
        ({"uniqueItems": True}, [1, 2, 1], {"duplicatedValue": 1}),
        ({"items": {"bsonType": "int"}}, [1, "x"], {"itemIndex": 1}),
        ({"items": [{"bsonType": "int"}], "additionalItems": False}, [1, 2], {"additionalItems": [2]}),
        ({"additionalProperties": False, "properties": {"b": {}}}, {"b": 1, "c": 1}, {"additionalProperties": ["c"]}),
        ({"additionalProperties": {"bsonType": "int"}}, {"c": "x"}, {"failingProperty": "c"}),
        ({"minProperties": 2}, {"b": 1}, {"numberOfProperties": 1}),
        ({"dependencies": {"b": ["c"]}}, {"b": 1}, {"operatorName": "dependencies"}),
        ({"patternProperties": {"^b": {"bsonType": "int"}}}, {"bb": "x"}, {"operatorName": "patternProperties"}),
        ({"anyOf": [{"minimum": 5}, {"maximum": 1}]}, 3, {"operatorName": "anyOf"}),
        ({"oneOf": [{"minimum": 1}, {"maximum": 5}]}, 3, {"matchingSchemaIndexes": [0, 1]}),
        ({"not": {"bsonType": "int"}}, 3, {"reason": "child expression matched"}),
    ],
    ids=str,
)
def test_keywords(schema: dict[str, Any], value: Any, expected: dict[str, Any]) -> None:
    told = why({"$jsonSchema": {"properties": {"a": schema}}}, {"a": value})
    (rule,) = told["schemaRulesNotSatisfied"][0]["propertiesNotSatisfied"][0]["details"]
    assert {name: rule[name] for name in expected} == expected
