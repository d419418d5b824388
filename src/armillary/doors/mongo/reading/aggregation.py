"""aggregate: a pipeline over a collection, over diagnostics of the server, or over no collection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from armillary import limits
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply, check_collection, read_only
from armillary.doors.mongo.commands import collections, diagnostics, indexes, views
from armillary.doors.mongo.reading import compiled_filters, hints, query_execution
from armillary.doors.mongo.reading.change_streams import ChangeStream, check_after
from armillary.doors.mongo.reading.cursor_commands import batch_size_of, first_batch, new_cursor
from armillary.doors.mongo.reading.cursors import ListedSource, PagedSource
from armillary.doors.mongo.reading.split_events import without_split
from armillary.doors.mongo.replica_set import admission
from armillary.doors.mongo.sessions import authorization, read_write_concerns, session_commands
from armillary.doors.mongo.sessions.roles import Right
from armillary.doors.mongo.settings import Grant
from armillary.doors.mongo.writing import out_and_merge
from armillary.errors import Failure
from armillary.languages.mongo.collation import Collation
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expression_context import run_values
from armillary.languages.mongo.pipeline import Facts, Pipeline, compile_pipeline
from armillary.languages.mongo.sort_keys import compile_sort_by
from armillary.languages.mongo.stages.sources import GeoNear
from armillary.languages.mongo.stages.stage import Batches, Run, of_list
from armillary.model.bson.bson_values import Document, encode

FIELDS: Final = frozenset(
    "aggregate pipeline cursor explain allowDiskUse collation hint let bypassDocumentValidation needsMerge fromMongos "
    "exchange isMapReduceCommand requestReshardingResumeToken collectionUUID".split()
)
_EVERYTHING: Final[Document] = {}
_OF_SERVER: Final = ("$currentOp", "$listLocalSessions", "$listSessions", "$queryStats")


async def aggregate(call: Call) -> Reply:
    wanted = call.body.get("aggregate")
    is_database = wanted == 1 and not isinstance(wanted, bool)
    name = "$cmd.aggregate" if is_database else call.collection()
    namespace = f"{call.database}.{name}"
    if call.fields.optional_document("cursor") is None and not call.body.get("explain"):
        raise refusal(9, "The 'cursor' option is required, except for aggregate with the explain argument")
    batch_size = batch_size_of(call)
    container, stages = (None, []) if is_database else views.resolved(call, name)
    stream = Aggregation(call, container, is_database=is_database, before=stages)
    provided = stream.pipeline.provided
    if provided is not None and provided.name == "$changeStream":
        return await _watch(call, stream, None if is_database else name, namespace, batch_size)
    if provided is not None and call.transaction is not None:
        raise refusal(263, f"Aggregation stage {provided.name} cannot run within a multi-document transaction.")
    if stream.pipeline.output is not None:
        if call.client.grant is not Grant.WRITE:
            raise read_only(call)
        call.account.check_writable()
        if call.transaction is not None:
            raise refusal(263, "$out and $merge cannot be used in a transaction")
        level = (call.body.get("readConcern") or {}).get("level")
        if level == "linearizable":
            raise refusal(72, "$out and $merge cannot be used with a 'linearizable' read concern level")
        admission.require_primary(call)
        await out_and_merge.write(call, stream.pipeline.output, stream.batches(), stream.values, stream.given_collation)
        return await first_batch(call, new_cursor(call, ListedSource([]), namespace), batch_size=None)
    cursor = new_cursor(call, PagedSource(_encoded(stream.batches())), namespace)
    return await first_batch(call, cursor, batch_size=batch_size)


async def documents_of(call: Call) -> list[Document]:
    """All documents of a pipeline over a view."""
    container, stages = views.resolved(call, call.collection())
    found: list[Document] = []
    async for batch in Aggregation(call, container, is_database=False, before=stages).batches():
        found += batch
    return found


async def _watch(
    call: Call, stream: Aggregation, collection: str | None, namespace: str, batch_size: int | None
) -> Reply:
    if call.transaction is not None:
        raise refusal(263, "$changeStream cannot be used in a transaction")
    check_after(without_split(call.fields.array("pipeline"))[0])
    level = (call.body.get("readConcern") or {}).get("level", "majority")
    if level != "majority":
        raise refusal(72, f"$changeStream cannot run with a readConcern other than 'majority'; got '{level}'")
    provided = stream.pipeline.provided
    assert provided is not None
    run = Run(stream.values, _Others(call))
    source = ChangeStream(call, collection, provided.spec, stream.pipeline, run, splits=stream.splits)
    await source.open(call)
    cursor = new_cursor(call, source, namespace, has_waits=True)
    return await first_batch(call, cursor, batch_size=batch_size)


async def _encoded(batches: Batches) -> AsyncIterator[list[bytes]]:
    async for batch in batches:
        yield [_encoded_one(document) for document in batch]


def _encoded_one(document: Document) -> bytes:
    encoded = encode(document)
    if len(encoded) > limits.MONGO_DOCUMENT_BYTES_MAX + 16 * limits.KB:
        raise refusal(
            10334,
            f"BSONObj size: {len(encoded)} is invalid. Size must be between 0 and "
            f"{limits.MONGO_DOCUMENT_BYTES_MAX + 16 * limits.KB}(16MB)",
        )
    return encoded


def _facts(call: Call, container: Container | None, is_database: bool) -> Facts:
    def of_other(name: str) -> Facts:
        return _facts(call, views.resolved(call, name)[0], False)

    return Facts(
        hints.text_index(container),
        hints.geo_paths(container),
        is_database,
        lambda: hints.searchable(container),
        of_other,
    )


class Aggregation:
    """A pipeline, compiled for a command, and where its documents come from."""

    def __init__(
        self, call: Call, container: Container | None, *, is_database: bool, before: list[Any] | None = None
    ) -> None:
        """`before`: the stages of a view."""
        fields = call.fields
        own = namespaces.options_of(container).get("collation") if container is not None else None
        if container is not None:
            authorization.check_collection(call, call.database, container.name)
        self._call = call
        self._container = container
        self.given_collation: Document | None = fields.optional_document("collation") or own
        self._collation: Collation | None = compiled_filters.collation_of(self.given_collation)
        let = compiled_filters.let_of(call)
        context = compiled_filters.context_of(call, let, self._collation)
        self.values = run_values(
            int(call.clock.now_s() * 1000),
            compiled_filters.dice(call.clock),
            (let or {}).values(),
            call.services.cluster_time.now,
            call.run_javascript,
        )
        facts = _facts(call, container, is_database)
        given, self.splits = without_split([*(before or ()), *fields.array("pipeline")])
        read_write_concerns.check_stages(call.body, given)
        self.pipeline: Pipeline = compile_pipeline(given, context, facts)
        self._context = context
        self._hinted = hints.check(container, call.body.get("hint"))

    def batches(self) -> Batches:
        pipeline = self.pipeline
        run = Run(self.values, _Others(self._call))
        if pipeline.provided is not None:
            return pipeline.run(self._provided(), run)
        if not pipeline.reads_collection or self._container is None:
            return pipeline.run(of_list([]), run)
        if pipeline.geo_near is not None:
            return pipeline.run(self._nearby(pipeline.geo_near), run)
        if pipeline.vector_search is not None:
            return pipeline.run(self._candidates(pipeline.vector_search.query), run)
        if pipeline.leading_sort is not None:
            return pipeline.run(self._first_in_order(), run, is_filtered=True, is_sorted=True)
        return pipeline.run(self._filtered(), run, is_filtered=True)

    def _wanted(self, most: int | None) -> query_execution.Wanted:
        assert self._container is not None
        matcher = self.pipeline.matcher or compiled_filters.matcher_of(_EVERYTHING, self._call)
        return query_execution.wanted(
            self._container,
            self.pipeline.leading_filter,
            hints.hinted(matcher, self._hinted),
            has_collation=self._collation is not None,
            most=most,
        )

    async def _filtered(self) -> Batches:
        assert self._container is not None
        most = self.pipeline.leading_limit if self.pipeline.leading_sort is None else None
        self._context.begin(self.values)
        wanted = self._wanted(most)._replace(names=self.pipeline.fields)
        async for batch in query_execution.documents(self._call, self._container, wanted):
            yield batch

    async def _first_in_order(self) -> Batches:
        assert self._container is not None and self.pipeline.leading_sort is not None
        self._context.begin(self.values)
        sort = compile_sort_by(self.pipeline.leading_sort, self._context.key, self.pipeline.text)
        most = self.pipeline.leading_limit
        async for page in query_execution.ordered(self._call, self._container, self._wanted(None), sort, most=most):
            if page:
                yield [found.document for found in page]

    async def _nearby(self, near: GeoNear) -> Batches:
        assert self._container is not None
        query = near.query if self._collation is None else _EVERYTHING  # the stage itself looks at it again
        given = {"$and": [query, near.near.as_filter()]}
        wanted = query_execution.wanted(self._container, given, compiled_filters.matcher_of(query, self._call))
        async for batch in query_execution.documents(self._call, self._container, wanted):
            yield batch

    async def _candidates(self, query: Document) -> Batches:
        """The documents that a vector search compares. The stage looks at the filter again, with the collation."""
        assert self._container is not None
        given = query if self._collation is None else _EVERYTHING
        async for batch in _documents(self._call, self._container, given):
            yield batch

    # Stages that show the state of the server.

    async def _provided(self) -> Batches:
        provided = self.pipeline.provided
        assert provided is not None
        for document in await self._shown(provided.name, provided.spec):
            yield [document]

    async def _shown(self, name: str, spec: Any) -> list[Document]:
        call = self._call
        if name in _OF_SERVER:
            authorization.refuse_limited(call)
        match name:
            case "$currentOp":
                if call.database != "admin":
                    raise refusal(73, "$currentOp must be run against the 'admin' database with {aggregate: 1}")
                return await diagnostics.running(call)
            case "$listLocalSessions" | "$listSessions":
                return await session_commands.listed(call)
            case "$queryStats":
                return []
            case "$listSearchIndexes":
                raise only_atlas()
        namespace = f"{call.database}.{call.body['aggregate']}"
        if self._container is None:
            raise refusal(26, f"Collection [{namespace}] not found.")
        match name:
            case "$planCacheStats":
                return []
            case "$indexStats":
                return [
                    {
                        "name": each["name"],
                        "key": each["key"],
                        "host": call.services.address_of(call.client),
                        "spec": each,
                    }
                    for each in indexes.listed_indexes(self._container)
                ]
            case "$collStats":
                return [await _collection_statistics(call, self._container, namespace, spec)]
        raise refusal(115, f"{name} is not supported.")


def only_atlas() -> Failure:
    """What MongoDB itself says of search indexes elsewhere."""
    return refusal(
        31082,
        "Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage requires additional "
        "configuration. Please connect to Atlas or an AtlasCLI local deployment to enable.",
    )


async def _collection_statistics(call: Call, container: Container, namespace: str, spec: Document) -> Document:
    statistics = await collections.statistics(call, container, namespace)
    shown: Document = {"ns": namespace, "host": call.services.address_of(call.client), "localTime": _now(call)}
    for name in spec:
        match name:
            case "count":
                shown["count"] = statistics["count"]
            case "storageStats":
                shown["storageStats"] = {key: value for key, value in statistics.items() if key != "ns"}
            case "latencyStats" | "queryExecStats":
                shown[name] = {}
            case _:
                raise refusal(40415, f"BSON field '$collStats.{name}' is an unknown field.")
    return shown


def _now(call: Call) -> Any:
    from bson.datetime_ms import DatetimeMS

    return DatetimeMS(int(call.clock.now_s() * 1000))


class _Others:
    """Other collections, for `$lookup`, `$unionWith` and `$graphLookup`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def documents(self, database: str | None, name: str, given: Document) -> Batches:
        check_collection(database or self._call.database, name)
        authorization.require(self._call, Right.READ, database or self._call.database)
        container, stages = views.resolved(self._call, name, database)
        if container is None:
            return
        authorization.check_collection(self._call, container.database.name, container.name)
        if not stages:
            async for batch in _documents(self._call, container, given):
                yield batch
            return
        pipeline = compile_pipeline(stages, compiled_filters.context_of(self._call))
        values = run_values(
            int(self._call.clock.now_s() * 1000),
            compiled_filters.dice(self._call.clock),
            javascript=self._call.run_javascript,
        )
        source = _documents(self._call, container, pipeline.leading_filter)
        async for batch in pipeline.run(source, Run(values, self), is_filtered=True):
            yield batch  # the reader filters it


async def _documents(call: Call, container: Container, given: Document) -> Batches:
    wanted = query_execution.wanted(container, given, compiled_filters.matcher_of(given, call))
    async for batch in query_execution.documents(call, container, wanted):
        yield batch
