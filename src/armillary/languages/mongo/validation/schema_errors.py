"""The error details of a document that fails a schema, in the form of MongoDB: the rules that are not satisfied, nested
as in the schema. `json_schema` decides which keywords a value fails.
"""

from __future__ import annotations

from typing import Any, Final

from armillary.languages.mongo.filters.regexes import regex_matcher
from armillary.languages.mongo.validation.json_schema import failing_keywords
from armillary.model.bson.bson_values import Document, order_key, type_name

_REASONS: Final = {
    "enum": "value was not found in enum",
    "minimum": "comparison failed",
    "maximum": "comparison failed",
    "multipleOf": "considered value is not a multiple of the specified value",
    "minLength": "specified string length was not satisfied",
    "maxLength": "specified string length was not satisfied",
    "pattern": "regular expression did not match",
    "minItems": "array did not match specified length",
    "maxItems": "array did not match specified length",
    "minProperties": "specified number of properties was not satisfied",
    "maxProperties": "specified number of properties was not satisfied",
}
_EXCLUSIVE: Final = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}


def schema_details(schema: Document, document: Document) -> Document:
    return {
        "operatorName": "$jsonSchema",
        **_described(schema),
        "schemaRulesNotSatisfied": _rules(schema, document),
    }


def _described(schema: Document) -> Document:
    return {name: schema[name] for name in ("title", "description") if name in schema}


def _rules(schema: Document, value: Any) -> list[Document]:
    return [_rule(schema, keyword, value) for keyword in failing_keywords(schema, value)]


def _rule(schema: Document, keyword: str, value: Any) -> Document:
    wanted = schema[keyword]
    told: Document = {"operatorName": keyword}
    specified = {**told, "specifiedAs": {keyword: wanted}}
    match keyword:
        case "type" | "bsonType":
            return {
                **specified,
                "reason": "type did not match",
                "consideredValue": value,
                "consideredType": type_name(value),
            }
        case "properties":
            failing = [name for name in wanted if name in value and failing_keywords(wanted[name], value[name])]
            return {**told, "propertiesNotSatisfied": [_property(wanted[name], name, value) for name in failing]}
        case "required":
            return {**specified, "missingProperties": [name for name in wanted if name not in value]}
        case "additionalProperties":
            return _additional_properties(schema, value)
        case "patternProperties":
            return {**told, "details": _pattern_properties(wanted, value)}
        case "dependencies":
            return {**told, "failingDependencies": _dependencies(wanted, value)}
        case "allOf" | "anyOf" | "oneOf":
            return {**told, **_combined(keyword, wanted, value)}
        case "not":
            return {**told, "reason": "child expression matched"}
        case "items":
            return {**told, **_items(schema, value)}
        case "uniqueItems":
            return {
                **specified,
                "reason": "found a duplicate item",
                "consideredValue": value,
                "duplicatedValue": _duplicate(value),
            }
        case "minProperties" | "maxProperties":
            return {**specified, "reason": _REASONS[keyword], "numberOfProperties": len(value)}
    beside = _EXCLUSIVE.get(keyword)
    if beside in schema:
        specified["specifiedAs"] = {keyword: wanted, beside: schema[beside]}
    return {**specified, "reason": _REASONS[keyword], "consideredValue": value}


def _property(schema: Document, name: str, value: Document) -> Document:
    return {"propertyName": name, **_described(schema), "details": _rules(schema, value[name])}


def _pattern_properties(wanted: Document, value: Document) -> list[Document]:
    return [
        {"propertyName": name, "regexMatched": pattern, "details": _rules(schema, member)}
        for pattern, schema in wanted.items()
        for name, member in value.items()
        if regex_matcher(pattern, "").occurs_in(name) and failing_keywords(schema, member)
    ]


def _additional_properties(schema: Document, value: Document) -> Document:
    wanted = schema["additionalProperties"]
    patterns = [regex_matcher(pattern, "") for pattern in schema.get("patternProperties", {})]
    known = schema.get("properties", {})
    others = [name for name in value if name not in known and not any(each.occurs_in(name) for each in patterns)]
    told: Document = {"operatorName": "additionalProperties"}
    if type(wanted) is bool:
        return {**told, "specifiedAs": {"additionalProperties": wanted}, "additionalProperties": others}
    name = next(each for each in others if failing_keywords(wanted, value[each]))
    return {
        **told,
        "reason": "at least one additional property did not match the subschema",
        "failingProperty": name,
        "details": _rules(wanted, value[name]),
    }


def _dependencies(wanted: Document, value: Document) -> list[Document]:
    found: list[Document] = []
    for name, needed in wanted.items():
        if name not in value:
            continue
        if type(needed) is list:
            missing = [each for each in needed if each not in value]
            if missing:
                found.append({"conditionalProperty": name, "missingProperties": missing})
        elif failing_keywords(needed, value):
            found.append({"conditionalProperty": name, "details": _rules(needed, value)})
    return found


def _combined(keyword: str, wanted: list[Document], value: Any) -> Document:
    failing = [index for index, schema in enumerate(wanted) if failing_keywords(schema, value)]
    if keyword == "oneOf" and len(failing) < len(wanted):
        matching = [index for index in range(len(wanted)) if index not in failing]
        return {"reason": "more than one subschema matched", "matchingSchemaIndexes": matching}
    return {
        "schemasNotSatisfied": [{"index": index, "details": _rules(wanted[index], value)} for index in failing],
    }


def _items(schema: Document, value: list[Any]) -> Document:
    wanted = schema["items"]
    if type(wanted) is dict:
        index = next(index for index, each in enumerate(value) if failing_keywords(wanted, each))
        return {
            "reason": "At least one item did not match the sub-schema",
            "itemIndex": index,
            "details": _rules(wanted, value[index]),
        }
    failing = [
        {"itemIndex": index, "details": _rules(one, each)}
        for index, (one, each) in enumerate(zip(wanted, value, strict=False))
        if failing_keywords(one, each)
    ]
    if failing:
        return {"details": failing}
    return {"reason": "found additional items", "additionalItems": value[len(wanted) :]}


def _duplicate(value: list[Any]) -> Any:
    seen = []
    for each in value:
        key = order_key(each)
        if key in seen:
            return each
        seen.append(key)
    return None
