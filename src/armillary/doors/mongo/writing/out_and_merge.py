"""`$out` and `$merge`: writing the documents of a pipeline to a collection."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

from armillary.account import containers
from armillary.account.collections import collection_rules, document_operations, indexes
from armillary.account.collections.compiled_changes import bounded, merge_change
from armillary.account.collections.document_operations import ChangeStatement, DocumentWrite
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, check_collection, check_database
from armillary.doors.mongo.commands import capped, sharding
from armillary.doors.mongo.reading import compiled_filters, query_execution
from armillary.doors.mongo.sessions import authorization
from armillary.doors.mongo.sessions.roles import Right
from armillary.doors.mongo.writing.duplicate_key_errors import ID_INDEX, as_duplicate, duplicate
from armillary.doors.mongo.writing.inserts import check_id, new_id
from armillary.doors.mongo.writing.optimistic_decisions import write_decided
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import CLUSTER_TIME, NOW
from armillary.languages.mongo.stages.outputs import Merge, Out
from armillary.languages.mongo.stages.stage import Batches
from armillary.languages.mongo.updates.upserts import id_first
from armillary.model.bson.bson_values import MISSING, Document, encode

_TRIES = 3


async def write(
    call: Call, output: Out | Merge, batches: Batches, values: Sequence[Any], collation: Document | None
) -> None:
    """`values` and `collation` are those of the pipeline's run."""
    database = check_database(output.database or call.database)
    authorization.require(call, Right.WRITE, database)
    if output.collection.startswith("system."):
        code = 17385 if isinstance(output, Out) else 31319
        raise refusal(code, f"Cannot write to special collection: {output.collection}")
    if database in ("admin", "local", "config"):
        code = 31321 if isinstance(output, Out) else 31320
        raise refusal(code, f"Cannot write to internal database: {database}")
    check_collection(database, output.collection)
    before = call.database

    async def read() -> Batches:
        """What is read is of the pipeline's database, what is written of another one."""
        async with aclosing(batches):
            async for batch in batches:
                call.database = database
                yield batch
                call.database = before

    try:
        call.database = database
        if isinstance(output, Out):
            await _replace(call, output.collection, before, read())
        else:
            await _merge(call, _Merging(output, values, collation), before, read())
    finally:
        call.database = before


# $out.


async def _replace(call: Call, collection: str, source: str, batches: Batches) -> None:
    """Write to a new collection, which then replaces the old one."""
    namespaces.check_new(call, collection)
    present = namespaces.find(call, collection)
    options = namespaces.options_of(present) if present is not None else {}
    throughput = sharding.current_throughput(call, present.record) if present is not None else None
    if present is not None and present.key is not None:
        raise refusal(28769, f"namespace '{call.database}.{collection}' is sharded so it can't be used for $out'")
    if present is not None and capped.is_capped(present):
        raise refusal(17152, f"namespace '{call.database}.{collection}' is capped so it can't be used for $out")
    made = await namespaces.create(call, f"tmp.agg_out.{call.clock.guid()}", (), throughput, options)
    kept = [each for each in indexes.definitions(present) if each["name"] != ID_INDEX] if present is not None else []
    try:
        if kept:
            await indexes.create_indexes(call.account, made, kept)
        target, call.database = call.database, source
        async for batch in batches:
            await _insert(call, made, batch)
        call.database = target
        await namespaces.rename(call, made, collection, drops_target=True)
    except BaseException:  # also on cancellation: the new collection must not be left behind
        await containers.delete_container(call.account, made, None)
        raise


async def _insert(call: Call, container: Container, batch: list[Document]) -> None:
    operations = [_inserting(call, container, document) for document in batch]
    answer = await document_operations.write_many(container, operations, stops=True, at_once=True)
    call.spend(answer.charge_ru)
    last = answer.outcomes[-1]
    if isinstance(last, Failure):
        document = document_operations.document_of(operations[len(answer.outcomes) - 1])
        raise as_duplicate(call, container, last, document)


def _inserting(call: Call, container: Container, document: Document) -> DocumentWrite:
    document = id_first(document) if "_id" in document else {"_id": new_id(call), **document}
    check_id(document["_id"])
    namespaces.check_shard_key(container, document)
    check = _check_of(call, container)
    if check is not None:
        check(document, None)
    return document_operations.inserting(container, document, encode(document), call.clock)


def _check_of(call: Call, container: Container) -> collection_rules.Check | None:
    is_bypassed = call.fields.flag("bypassDocumentValidation", False)
    return collection_rules.check_of(container, skips_validation=is_bypassed)


# $merge.


class _Merging(NamedTuple):
    output: Merge
    values: Sequence[Any]  # of the pipeline's run
    collation: Document | None

    def statement(self, incoming: Document, variables: Document, *, skips_validation: bool) -> ChangeStatement:
        """What becomes of a document that an incoming one is merged with."""
        output = self.output
        return ChangeStatement(
            {},
            incoming if output.stages is None else output.stages,
            merge=output.when_matched,
            collation=self.collation,
            let=variables or None,
            now_ms=int(self.values[NOW]),
            cluster_time=self.values[CLUSTER_TIME],
            skips_validation=skips_validation,
        )


async def _merge(call: Call, merging: _Merging, source: str, batches: Batches) -> None:
    output = merging.output
    container = await namespaces.for_writing(call, output.collection)
    if output.on != ("_id",) and not namespaces.has_unique_index(container, output.on):
        raise refusal(51183, "Cannot find index to verify that join fields will be unique")
    call.database = source
    async for batch in batches:
        failure: Failure | None = None
        for document in batch:
            call.check_time()
            try:
                await _merge_one(call, container, merging, document)
            except Failure as refused:
                # The other documents of the batch are merged nevertheless.
                failure = failure or refused
        if failure is not None:
            raise failure


async def _merge_one(call: Call, container: Container, merging: _Merging, incoming: Document) -> None:
    output = merging.output
    if "_id" not in incoming and "_id" in output.on:
        incoming = {"_id": new_id(call), **incoming}
    given: Document = {}
    for field in output.on:
        value = namespaces.value_at(incoming, field)
        if isinstance(value, list) or _leads_through_array(incoming, field):
            raise refusal(51185, f"$merge write error: 'on' field '{field}' is an array")
        if value is MISSING or value is None:
            raise refusal(51132, f"$merge write error: 'on' field '{field}' cannot be missing, null or undefined")
        given[field] = {"$eq": value}
    for field in namespaces.shard_fields(container):
        if field not in given and namespaces.value_at(incoming, field) is not MISSING:
            given[field] = {"$eq": namespaces.value_at(incoming, field)}
    for attempt in range(1, _TRIES + 1):
        if await _merge_into(call, container, merging, given, incoming):
            return
        match output.when_not_matched:
            case "discard":
                return
            case "fail":
                raise refusal(
                    13113,
                    "$merge could not find a matching document in the target collection for at least one document in "
                    "the source collection",
                )
        try:
            await _insert(call, container, [incoming])
            return
        except Failure as failure:
            # Another client may have inserted the same document; if there is none, another unique index has the
            # conflict.
            if failure.kind is not Kind.CONFLICT or output.on != ("_id",) or attempt == _TRIES:
                raise


def _leads_through_array(document: Document, path: str) -> bool:
    value: Any = document
    for part in path.split("."):
        if not isinstance(value, dict):
            break
        value = value.get(part)
    return isinstance(value, list)


async def _merge_into(call: Call, container: Container, merging: _Merging, given: Document, incoming: Document) -> bool:
    """Merge with the present document; False: there is none."""
    output = merging.output
    matcher = compiled_filters.matcher_of(given, call)
    wanted = query_execution.wanted(container, given, matcher, most=1)
    check = _check_of(call, container)
    async for page in query_execution.pages(call, container, wanted):
        for found in page:
            if output.when_matched == "fail":
                values_found = {field: namespaces.value_at(found.document, field) for field in output.on}
                key = dict.fromkeys(output.on, 1)
                index = ID_INDEX if output.on == ("_id",) else "_".join(f"{field}_1" for field in output.on)
                raise duplicate(f"{call.database}.{container.name}", index, values_found, key)

            variables = output.variables(incoming, merging.values)
            statement = merging.statement(incoming, variables, skips_validation=check is None)

            def merged(existing: Document) -> Document:
                return output.merged(existing, incoming, variables, merging.values)  # noqa: B023

            change = merge_change(container, statement, merged, check)
            place = container.key_of_bson(found.document)
            id_value = found.document["_id"]
            operation = document_operations.changing(container, place, id_value, statement, bounded(change))
            write = partial(document_operations.write, container, operation)
            try:
                answer = await write_decided(call, container, operation, id_value, change, write)
            except Failure as failure:
                if failure.kind is not Kind.NOT_FOUND:
                    raise
                return False
            call.spend(answer.charge_ru)
            return True
    return False
