"""Validators of collections: documents that are written must match them, unless a collection only warns."""

from __future__ import annotations

from collections.abc import Callable

from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.reading import compiled
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.validation.validation_errors import details
from armillary.model.bson.bson_values import Document

_ENDS = (Kind.TIMED_OUT, Kind.TOO_LARGE, Kind.RETRY_WITH)  # of the work, whatever the document is

Check = Callable[[Document, Document | None], None]  # of a document, and what it was before


def validator_of(call: Call, container: Container) -> Check | None:
    options = namespaces.options_of(container)
    given = options.get("validator")
    if not given or options.get("validationAction", "error") != "error":
        return None
    level = options.get("validationLevel", "strict")
    if level == "off":
        return None
    collation = compiled.collation_of(None, options.get("collation"))
    context = compiled.context_of(call, None, collation)
    holds = compiled.matcher_of(given, call, context, has_collation=collation is not None).matches

    def matches(document: Document) -> bool:
        try:
            return holds(document)
        except Failure as failure:  # an expression that cannot be evaluated is not true
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
