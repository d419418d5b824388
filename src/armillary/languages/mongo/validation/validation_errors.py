"""The error details (`errInfo`) of a document that fails a validator, in the form of MongoDB: the operators that did
not hold, with the values they were applied to. The parts of the validator are tested one by one with the filter's
matcher. Schemas are in `schema_errors`.
"""

from __future__ import annotations

from typing import Any, Final

from bson.regex import Regex

from armillary.errors import Failure
from armillary.languages.mongo.errors import code_name, refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import compile_filter, is_operators
from armillary.languages.mongo.paths import predicate
from armillary.languages.mongo.validation.schema_errors import schema_details
from armillary.model.bson.bson_values import MISSING, Document, type_name

_VALIDATION_FAILED: Final = 121
# The reason for an operator that did not hold, and for one that held under a negation.
_REASONS: Final = {
    "$exists": ("path does not exist", "path does exist"),
    "$expr": ("expression did not match", "expression did match"),
    "$in": ("no matching value found in array", "matching value found in array"),
    "$nin": ("matching value found in array", "no matching value found in array"),
    "$type": ("type did not match", "type did match"),
    "$size": ("array length was not equal to given size", "array length was equal to given size"),
    "$mod": ("$mod did not evaluate to expected remainder", "$mod did evaluate to expected remainder"),
    "$regex": ("regular expression did not match", "regular expression did match"),
    "$elemMatch": ("array did not satisfy the child predicate", "array did satisfy the child predicate"),
    "$all": ("array did not contain all specified values", "array did contain all specified values"),
    **dict.fromkeys(
        ("$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear"),
        ("bitwise operator failed to match", "bitwise operator matched successfully"),
    ),
}
_COMPARED: Final = ("comparison failed", "comparison succeeded")
_WHOLE: Final = ("$size", "$elemMatch")  # operators on whole arrays, not on their elements
_NOT_ABOUT_VALUES: Final = ("$exists", "$comment")


def details(given: Document, document: Document, context: Context, *, is_inverted: bool = False) -> Document:
    """The parts of a validator that do not hold; with `is_inverted`, those that hold under a negation."""
    clauses = _clauses(given)
    if len(clauses) == 1:
        return _clause(clauses[0], document, context, is_inverted)
    name = "clausesSatisfied" if is_inverted else "clausesNotSatisfied"
    return {"operatorName": "$and", name: _each(clauses, document, context, is_inverted)}


def _clauses(given: Document) -> list[Document]:
    found: list[Document] = []
    for name, operand in given.items():
        if name == "$comment":
            continue
        if name.startswith("$") or not is_operators(operand) or "$regex" in operand:
            found.append({name: operand})
        else:
            found += [{name: {operator: value}} for operator, value in operand.items() if operator != "$comment"]
    return found


def _each(clauses: list[Document], document: Document, context: Context, is_inverted: bool) -> list[Document]:
    return [
        {"index": index, "details": details(each, document, context, is_inverted=is_inverted)}
        for index, each in enumerate(clauses)
        if _holds(each, document, context) is is_inverted
    ]


def _holds(clause: Document, document: Document, context: Context) -> bool:
    try:
        return compile_filter(clause, context).matches(document)
    except Failure:
        return False


def _clause(clause: Document, document: Document, context: Context, is_inverted: bool) -> Document:
    ((name, operand),) = clause.items()
    match name:
        case "$and" | "$or":
            told = "clausesSatisfied" if is_inverted else "clausesNotSatisfied"
            return {"operatorName": name, told: _each(operand, document, context, is_inverted)}
        case "$nor":
            told = "clausesNotSatisfied" if is_inverted else "clausesSatisfied"
            return {"operatorName": name, told: _each(operand, document, context, not is_inverted)}
        case "$jsonSchema":
            if is_inverted:
                return {"operatorName": name, "specifiedAs": clause, "reason": "schema matched"}
            return schema_details(operand, document)
        case "$expr":
            return _expression(clause, document, context, is_inverted)
    if name.startswith("$"):
        return {"operatorName": name, "specifiedAs": clause}
    if not is_operators(operand):
        operator = "$regex" if isinstance(operand, Regex) else "$eq"
        return _of_field(name, operator, clause, document, is_inverted)
    operator, value = next(iter(operand.items()))
    if operator == "$not":
        below = value if type(value) is dict else {"$regex": value}
        return {
            "operatorName": "$not",
            "details": details({name: below}, document, context, is_inverted=not is_inverted),
        }
    return _of_field(name, "$regex" if "$regex" in operand else operator, clause, document, is_inverted)


def validation_failed(validator: Document, document: Document, context: Context) -> Failure:
    """The error of a document that its collection's validator refuses."""
    found = {"failingDocumentId": document.get("_id"), "details": details(validator, document, context)}
    return refusal(_VALIDATION_FAILED, "Document failed validation", fields={"errInfo": found})


def _expression(clause: Document, document: Document, context: Context, is_inverted: bool) -> Document:
    found: Document = {"operatorName": "$expr", "specifiedAs": clause}
    try:
        compile_filter(clause, context).matches(document)
    except Failure as failure:
        code = int(failure.details.get("code", 2))
        return {
            **found,
            "reason": "failed to evaluate aggregation expression",
            "details": {"code": code, "codeName": code_name(code), "errmsg": failure.message},
        }
    return {**found, "reason": _REASONS["$expr"][is_inverted], "expressionResult": is_inverted}


def _of_field(path: str, operator: str, clause: Document, document: Document, is_inverted: bool) -> Document:
    found: Document = {"operatorName": operator, "specifiedAs": clause}
    values = _values(path, document, unwinds=operator not in _WHOLE)
    if operator not in _NOT_ABOUT_VALUES and not values and not is_inverted:
        return {**found, "reason": "field was missing"}
    found["reason"] = _REASONS.get(operator, _COMPARED)[is_inverted]
    if operator == "$exists":
        wants = bool(next(iter(clause.values()))["$exists"])
        found["reason"] = _REASONS[operator][is_inverted is wants]
    elif len(values) == 1:
        found["consideredValue"] = values[0]
    elif values:
        found["consideredValues"] = values
    if operator == "$type" and values:
        types = sorted({type_name(value) for value in values})
        found |= {"consideredType": types[0]} if len(types) == 1 else {"consideredTypes": types}
    return found


def _values(path: str, document: Document, *, unwinds: bool) -> list[Any]:
    """The values at the path that a test is applied to."""
    seen: list[Any] = []

    def note(value: Any) -> bool:
        if value is not MISSING:
            seen.append(value)
        return False

    predicate(path, note, unwinds=unwinds)(document)
    return seen
