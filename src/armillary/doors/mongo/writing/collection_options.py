"""Options of collections that decide about documents, checked when a collection is created or changed. What they demand
of documents is in `account/collections/collection_rules.py`.

A time series is an ordinary collection whose documents have a date: nothing is bucketed. Its options are kept and
listed, and say when documents expire.
"""

from __future__ import annotations

from typing import Final

from armillary import limits
from armillary.account.collections.collection_rules import TIME_SERIES_EXPIRY
from armillary.doors.mongo.call import Call
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.reading import compiled_filters
from armillary.languages.mongo.collation import whole_collation
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document

_OWN_DATABASES: Final = ("admin", "config", "local")
_KEPT: Final = ("validator", "validationLevel", "validationAction", "collation", "changeStreamPreAndPostImages")
_LEVELS: Final = ("off", "strict", "moderate")
_ACTIONS: Final = ("error", "warn")
_SPANS_S: Final = {"seconds": 3_600, "minutes": 86_400, "hours": 2_592_000}  # of a bucket in MongoDB
_SPAN_S_MAX: Final = 31_536_000
_SERIES: Final = frozenset("timeField metaField granularity bucketMaxSpanSeconds bucketRoundingSeconds".split())


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


# Time series.


def time_series_options(call: Call) -> Document:
    """The options of `create` for a time series, as they are stored; empty for other collections."""
    given = call.fields.optional_document("timeseries")
    if given is None:
        if call.body.get("expireAfterSeconds") is not None:
            raise refusal(72, "'expireAfterSeconds' is for time series only: make a TTL index")
        return {}
    if call.fields.flag("capped", False):
        raise refusal(72, "A time series cannot be capped")
    series = Fields(given, "create.timeseries")
    series.only(_SERIES)
    field, about = series.text("timeField"), series.text("metaField", "")
    if not field or "." in field or field.startswith("$"):
        raise refusal(72, "'timeField' must be the name of a top-level field")
    if about in ("_id", field) or "." in about:
        raise refusal(72, "'metaField' must be a top-level field other than '_id' and 'timeField'")
    options: Document = {"timeseries": {**given, **_span(series)}}
    if call.body.get("expireAfterSeconds") is not None:
        options["expireAfterSeconds"] = call.fields.number("expireAfterSeconds", 0, high=limits.TTL_SECONDS_MAX)
    return options


def _span(series: Fields) -> Document:
    """How long a bucket is: by its granularity, or in seconds."""
    span_s = series.whole("bucketMaxSpanSeconds", low=1, high=_SPAN_S_MAX)
    rounding_s = series.whole("bucketRoundingSeconds", low=1, high=_SPAN_S_MAX)
    granularity = series.text("granularity", "seconds")
    if granularity not in _SPANS_S:
        raise refusal(2, f"Enumeration value '{granularity}' for field 'granularity' is not valid.")
    if rounding_s is not None or (span_s is not None and "granularity" not in series):
        if span_s != rounding_s:
            raise refusal(72, "'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' must be equal and both be set")
        return {"bucketMaxSpanSeconds": span_s, "bucketRoundingSeconds": rounding_s}
    if span_s is not None and span_s != _SPANS_S[granularity]:
        raise refusal(72, f"'bucketMaxSpanSeconds' of granularity '{granularity}' is {_SPANS_S[granularity]}")
    return {"granularity": granularity, "bucketMaxSpanSeconds": _SPANS_S[granularity]}


def expiry_of(options: Document) -> Document | None:
    """The index by which the documents of a time series expire: when the bucket that would hold them in MongoDB does,
    so a span after their own time at the latest."""
    seconds = options.get("expireAfterSeconds")
    if seconds is None:
        return None
    series = options["timeseries"]
    after_s = min(seconds + series["bucketMaxSpanSeconds"], limits.TTL_SECONDS_MAX)
    return {"v": 2, "key": {series["timeField"]: 1}, "name": TIME_SERIES_EXPIRY, "expireAfterSeconds": after_s}
