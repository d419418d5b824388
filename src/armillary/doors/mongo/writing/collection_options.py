"""Options of collections that decide about documents, checked when a collection is created or changed. What they demand
of documents is in `account/collections/collection_rules.py`.
"""

from __future__ import annotations

from typing import Final

from armillary.doors.mongo.call import Call
from armillary.doors.mongo.reading import compiled_filters
from armillary.languages.mongo.collation import whole_collation
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document

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
