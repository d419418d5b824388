"""What a collection demands of its documents: its options as stored, the fields of its shard key, and its validator,
which is run on every document that is written unless the collection only warns. Time series are collections whose
documents have a date.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from bson.datetime_ms import DatetimeMS

from armillary.account.container import Container
from armillary.clock import Clock
from armillary.errors import Failure, Kind, bad_request
from armillary.languages.mongo.collation import key_function, parse_collation
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import cached_matcher, compile_filter
from armillary.languages.mongo.updates.updates import check_immutable, immutable_refused
from armillary.languages.mongo.validation.validation_errors import validation_failed
from armillary.model.bson.bson_json import field_name
from armillary.model.bson.bson_values import MISSING, Document, decode

Check = Callable[[Document, Document | None], None]  # of a document, and what it was before

_ENDS = (Kind.TIMED_OUT, Kind.TOO_LARGE, Kind.RETRY_WITH)  # these end the command, whatever the document is


def dice(clock: Clock) -> Callable[[], float]:
    """The random numbers of expressions."""
    return lambda: int.from_bytes(clock.random_bytes(7), "big") / (1 << 56)


def options_of(container: Container) -> Document:
    collection = container.state.collection
    return _decoded_options(collection.options) if collection is not None and collection.options else {}


@lru_cache(1024)
def _decoded_options(encoded: str) -> Document:
    """Cached and shared: not to be changed in place."""
    return decode(bytes.fromhex(encoded))


# Shard keys.


def shard_fields(container: Container) -> tuple[str, ...]:
    """The fields of the shard key, as clients name them; none: the collection is not sharded."""
    return _shard_fields(container.key.steps) if container.key is not None else ()


def plain_fields(container: Container) -> frozenset[str] | None:
    """`_id` and the fields of the shard key, if values for them all name one document; None: fields lie inside others,
    or a collation says which values are equal."""
    collection, key = container.state.collection, container.key
    return _plain_fields(key.steps if key is not None else (), collection.options if collection is not None else None)


@lru_cache(1024)
def _plain_fields(key: tuple[tuple[str, ...], ...], options: str | None) -> frozenset[str] | None:
    fields = _shard_fields(key)
    if any("." in each for each in fields) or (options and "collation" in _decoded_options(options)):
        return None
    return frozenset(("_id", *fields))


@lru_cache(1024)
def _shard_fields(key: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    fields = []
    for steps in key:
        first = field_name(steps[0])
        # A container that another API partitions by `id` is sharded by `_id` here.
        fields.append(".".join(["_id" if first is None else first, *steps[1:]]))
    return tuple(fields)


def value_at(document: Document, field: str) -> Any:
    """The value at a dotted path, through documents alone."""
    value: Any = document
    for part in field.split("."):
        if type(value) is not dict or part not in value:
            return MISSING
        value = value[part]
    return value


def check_shard_field(before: Document, after: Document, field: str) -> None:
    """Refuse a change of a field of the shard key."""
    check_immutable(before, after, field)
    if value_at(before, field) is MISSING and value_at(after, field) is not MISSING:
        raise immutable_refused(field)


# Time series and validators.

TIME_SERIES_EXPIRY = "$timeseries_expiry"  # the name of the index by whose dates a time series expires; not listed


def check_of(container: Container, *, skips_validation: bool) -> Check | None:
    """What every document that is written must pass; None: nothing. A time series needs its dates, whatever is
    skipped."""
    validates = None if skips_validation else validator_of(container)
    series = options_of(container).get("timeseries")
    if series is None:
        return validates
    field = series["timeField"]

    def check(document: Document, before: Document | None) -> None:
        if not isinstance(document.get(field), DatetimeMS):
            raise bad_request(f"'{field}' must be present and contain a valid BSON UTC datetime value")
        if validates is not None:
            validates(document, before)

    return check


def validator_of(container: Container) -> Check | None:
    options = options_of(container)
    given = options.get("validator")
    if not given or options.get("validationAction", "error") != "error":
        return None
    level = options.get("validationLevel", "strict")
    if level == "off":
        return None
    collation = parse_collation(options.get("collation"))

    def make_context() -> Context:
        return Context.of(int(container.clock.now_s() * 1000), dice(container.clock), None, key_function(collation))

    context = make_context()
    if collation is not None:
        holds = compile_filter(given, context).matches
    else:
        holds = cached_matcher(given, make_context, context, None).matches

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
        raise validation_failed(given, document, context)

    return check
