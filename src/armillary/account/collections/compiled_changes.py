"""MongoDB's change statements, compiled: functions that say what becomes of a document. Operations carry the statement;
it is compiled where their visit runs, unless the sender is in the same process and has compiled it already, to find the
documents that it is about.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from armillary import limits, work
from armillary.account.collections import collection_rules, indexes
from armillary.account.collections.collection_rules import Check, dice
from armillary.account.container import Container
from armillary.errors import Kind
from armillary.languages.mongo.collation import key_function, parse_collation
from armillary.languages.mongo.expression_context import CLUSTER_TIME, Context
from armillary.languages.mongo.filters.matching import Matcher, cached_matcher, compile_filter
from armillary.languages.mongo.pipeline import compile_transform
from armillary.languages.mongo.projection import compile_projection
from armillary.languages.mongo.updates.updates import Update, check_immutable, check_replacement_names, compile_update
from armillary.languages.mongo.updates.upserts import id_first
from armillary.model.bson.bson_values import Document, encode, is_identical
from armillary.partition.document_changes import CHANGE_SHARES, Changed, ChangeStatement, CompiledChange
from armillary.partition.operations import Operation
from armillary.scripts.functions import CHANGING

Transform = Callable[[Document], Document]

SHARES: Final = CHANGE_SHARES

_compiled: OrderedDict[tuple[bytes, bytes], tuple[Any, CompiledChange]] = OrderedDict()


def with_change(container: Container, operation: Operation, shares: int) -> Operation:
    """The operation with its statement compiled."""
    statement = operation.change
    assert statement is not None
    return replace(operation, compiled=bounded(_cached(container, statement), shares))


def _cached(container: Container, statement: ChangeStatement) -> CompiledChange:
    """Operations of one statement come in several visits. What was compiled holds as long as the collection's options
    and indexes are the same."""
    key = container.record.rid, encode(_bson_of(statement))
    rules = container.state.collection, container.state.indexes
    found = _compiled.get(key)
    if found is not None and found[0] == rules:
        return found[1]
    made = compile_change(container, statement)
    _compiled[key] = rules, made
    if len(_compiled) > limits.QUERY_CACHE_ENTRIES:
        _compiled.popitem(last=False)
    return made


def _bson_of(statement: ChangeStatement) -> Document:
    returning = statement.returning
    return {
        "q": statement.filter,
        "u": statement.update,
        "f": statement.array_filters,
        "m": statement.merge,
        "c": statement.collation,
        "l": statement.let,
        "n": statement.now_ms,
        "t": statement.cluster_time,
        "v": statement.skips_validation,
        "r": None if returning is None else [returning.is_new, returning.fields],
    }


def compile_change(container: Container, statement: ChangeStatement) -> CompiledChange:
    collation = parse_collation(statement.collation)

    def make_context() -> Context:
        return Context.of(
            statement.now_ms, dice(container.clock), statement.let, key_function(collation), _javascript_before
        )

    context = make_context()
    if statement.cluster_time is not None:
        context.values[CLUSTER_TIME] = statement.cluster_time
    check = collection_rules.check_of(container, skips_validation=statement.skips_validation)
    if statement.merge is not None:
        return merge_change(container, statement, _merging(statement, context), check)
    text_index = indexes.text_index(container)
    if collation is not None or statement.let is not None:
        matcher = compile_filter(statement.filter, context, text_index=text_index)
    else:
        matcher = cached_matcher(statement.filter, make_context, context, text_index)
    if statement.update is None:
        return delete_change(statement, matcher, projection_of(statement, context, matcher))
    update = compile_update(statement.update, context, statement.array_filters)
    return update_change(container, statement, matcher, update, projection_of(statement, context, matcher), check)


def _javascript_before(request: Document) -> Any:
    """JavaScript runs in another process, for which a transaction cannot wait: the sender computes the change."""
    raise work.Outlasted(Kind.RETRY_WITH, CHANGING)


def bounded(change: CompiledChange, shares: int = 1) -> CompiledChange:
    """The change as a transaction calls it, which it must not hold up. It raises `work.Outlasted` if it takes too long
    and must be computed before. `shares`: the number of changes that share the transaction's time."""
    units = limits.WORK_ATOMIC_UNITS // shares
    return lambda document: work.bounded(lambda: change(document), units)


def projection_of(statement: ChangeStatement, context: Context, matcher: Matcher) -> Transform | None:
    fields = statement.returning.fields if statement.returning is not None else None
    return compile_projection(fields, context, matcher) if fields else None


def update_change(
    container: Container,
    statement: ChangeStatement,
    matcher: Matcher,
    update: Update,
    project: Transform | None,
    check: Check | None,
) -> CompiledChange:
    fields = collection_rules.shard_fields(container)
    returning = statement.returning

    def updated(document: Document) -> Document | None:
        position = matcher.first_match(document, update.positional_array) if update.needs_position else None
        after = update.apply(document, position)
        if after is document:
            if check is not None and update.kind == "replacement":
                check(document, document)  # it is written as it was, which must be allowed
            return None
        check_immutable(document, after, "_id")
        for field in fields:
            collection_rules.check_shard_field(document, after, field)
        after = id_first(after)
        if check is not None:
            check(after, document)
        return after

    def change(document: Document) -> Changed:
        if not matcher.matches(document):
            return Changed()
        after = updated(document)
        answer = None
        if returning is not None:
            value = after if returning.is_new and after is not None else document
            answer = modified_answer(value, project, is_removing=False)
        return Changed(document, after, answer)

    return change


def delete_change(statement: ChangeStatement, matcher: Matcher, project: Transform | None) -> CompiledChange:
    def change(document: Document) -> Changed:
        if not matcher.matches(document):
            return Changed()
        answer = modified_answer(document, project, is_removing=True) if statement.returning is not None else None
        return Changed(document, None, answer)

    return change


def modified_answer(
    value: Document | None, project: Transform | None, *, is_removing: bool, upserted: Document | None = None
) -> Document:
    """The answer of findAndModify: what it did, and the document, if there is one. `upserted`: the document that it has
    inserted."""
    status: Document = {"n": int(value is not None or upserted is not None)}
    if not is_removing:
        status["updatedExisting"] = value is not None and upserted is None
    if upserted is not None:
        status["upserted"] = upserted["_id"]
    return {"lastErrorObject": status, "value": value if value is None or project is None else project(value)}


# $merge.


def merge_change(
    container: Container, statement: ChangeStatement, merged: Transform, check: Check | None
) -> CompiledChange:
    """`merged` makes the new document of the present one."""
    fields = collection_rules.shard_fields(container)
    is_replacing = statement.merge == "replace"

    def change(existing: Document) -> Changed:
        after = merged(existing)
        if after is existing:
            return Changed(existing)
        if is_replacing:
            check_replacement_names(after)
        after = id_first({"_id": existing["_id"], **after} if "_id" not in after else after)
        check_immutable(existing, after, "_id")
        for field in fields:
            check_immutable(existing, after, field)
        if is_identical(existing, after):
            return Changed(existing)
        if check is not None:
            check(after, existing)
        return Changed(existing, after)

    return change


def _merging(statement: ChangeStatement, context: Context) -> Transform:
    given = statement.update
    if statement.merge == "pipeline":
        assert isinstance(given, list)
        return compile_transform(given, context)
    assert isinstance(given, dict)
    match statement.merge:
        case "merge":
            return lambda existing: {**existing, **given}
        case "keepExisting":
            return lambda existing: existing
    return lambda existing: given
