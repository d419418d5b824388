"""Options of collections that decide about documents: they are checked when a collection is created or changed, and its
validator is run on every document that is written, unless the collection only warns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.reading import compiled_filters
from armillary.errors import Failure, Kind
from armillary.languages.mongo.collation import whole_collation
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.validation.validation_errors import details
from armillary.model.bson.bson_values import Document

_ENDS = (Kind.TIMED_OUT, Kind.TOO_LARGE, Kind.RETRY_WITH)  # these end the command, whatever the document is

Check = Callable[[Document, Document | None], None]  # of a document, and what it was before
_OWN_DATABASES: Final = ("admin", "config", "local")
_KEPT: Final = ("validator", "validationLevel", "validationAction", "collation", "changeStreamPreAndPostImages")
_LEVELS: Final = ("off", "strict", "moderate")
_ACTIONS: Final = ("error", "warn")


def checked_options(call: Call) -> Document:
    """The options of create and collMod that are stored with the collection."""
    fields = call.fields
    validator = fields.optional_document("validator")
    if validator:
        if call.database in _OWN_DATABASES:
            raise refusal(72, f"Document validators are not allowed on collections of the {call.database} database")
        compiled_filters.matcher_of(validator, call)
    if fields.text("validationLevel", "strict") not in _LEVELS:
        raise refusal(
            2, f"Enumeration value '{call.body['validationLevel']}' for field 'validationLevel' is not valid."
        )
    if fields.text("validationAction", "error") not in _ACTIONS:
        raise refusal(
            2, f"Enumeration value '{call.body['validationAction']}' for field 'validationAction' is not valid."
        )
    collation = fields.optional_document("collation")
    if collation == {}:
        raise refusal(40414, "BSON field 'collation.locale' is missing but a required field")
    if collation is not None and compiled_filters.collation_of(collation) is None:
        collation = None  # the simple one, which is what there is without
    if fields.optional_document("changeStreamPreAndPostImages"):
        fields.document("changeStreamPreAndPostImages")
    kept = {name: call.body[name] for name in _KEPT if call.body.get(name) is not None}
    if collation is None:
        kept.pop("collation", None)
    else:
        kept["collation"] = whole_collation(collation)
    return kept


def validator_of(call: Call, container: Container) -> Check | None:
    options = namespaces.options_of(container)
    given = options.get("validator")
    if not given or options.get("validationAction", "error") != "error":
        return None
    level = options.get("validationLevel", "strict")
    if level == "off":
        return None
    collation = compiled_filters.collation_of(None, options.get("collation"))
    context = compiled_filters.context_of(call, None, collation)
    holds = compiled_filters.matcher_of(given, call, context, has_collation=collation is not None).matches

    def matches(document: Document) -> bool:
        try:
            return holds(document)
        except Failure as failure:  # an expression that fails counts as false
            if failure.kind in _ENDS:
                raise
            return False

    def check(document: Document, before: Document | None) -> None:
        if matches(document) or (level == "moderate" and before is not None and not matches(before)):
            return
        raise refusal(
            121,
            "Document failed validation",
            fields={
                "errInfo": {
                    "failingDocumentId": document.get("_id"),
                    "details": details(given, document, context),
                }
            },
        )

    return check
