"""Views: named pipelines over collections, stored in the state of their database. Reading a view is an aggregation;
writing to one is refused.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from armillary.account.catalog.container_state import Body
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, check_collection
from armillary.doors.mongo.fields import GENERIC
from armillary.doors.mongo.reading import compiled_filters
from armillary.doors.mongo.wire.messages import Request
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.pipeline import compile_pipeline
from armillary.model.bson.bson_values import Document, decode, encode

_VIEWS: Final = "mongo_views"  # in the state of a database
_DEPTH_MAX: Final = 20
_NOT_OF_VIEWS: Final = ("tailable", "awaitData", "returnKey", "showRecordId", "min", "max")


class View(NamedTuple):
    source: str
    pipeline: list[Any]
    options: Document


def views_of(call: Call, database: str) -> dict[str, View]:
    record = namespaces.find_database(call, database)
    if record is None:
        return {}
    found = {}
    for name, encoded in record.state.get(_VIEWS, {}).items():
        options = decode(bytes.fromhex(encoded))
        found[name] = View(options["viewOn"], options["pipeline"], options)
    return found


def find(call: Call, name: str, database: str | None = None) -> View | None:
    record = namespaces.find_database(call, database or call.database)
    if record is None or name not in record.state.get(_VIEWS, {}):
        return None
    return views_of(call, database or call.database)[name]


def resolved(call: Call, name: str, database: str | None = None) -> tuple[Container | None, list[Any]]:
    """The collection of a view, through views of views, and the stages of all of them."""
    stages: list[Any] = []
    for _ in range(_DEPTH_MAX):
        view = find(call, name, database)
        if view is None:
            return namespaces.find(call, name, database), stages
        name, stages = view.source, [*view.pipeline, *stages]
    raise refusal(165, f"View depth too deep; maximum is {_DEPTH_MAX}")


async def create(call: Call, name: str) -> None:
    collation = call.fields.optional_document("collation")
    options = {**_definition(call), **({"collation": collation} if collation else {})}
    if namespaces.find(call, name) is not None or find(call, name) is not None:
        raise refusal(48, f"Collection {call.database}.{name} already exists.")
    await _change(call, lambda views: {**views, name: encode(options).hex()})


def _definition(call: Call) -> Document:
    source = check_collection(call.database, call.fields.text("viewOn"))
    pipeline = call.fields.array("pipeline", [])
    compiled_pipeline = compile_pipeline(pipeline, compiled_filters.context_of(call))
    if compiled_pipeline.output is not None or compiled_pipeline.provided is not None:
        raise refusal(167, "A view's pipeline only reads its collection")
    return {"viewOn": source, "pipeline": pipeline}


async def modify(call: Call, name: str) -> None:
    """`collMod` of a view: another source or pipeline."""
    for field in call.body:
        if field not in ("collMod", "viewOn", "pipeline") and field not in GENERIC:
            raise refusal(72, f"option not supported on a view: {field}")
    if ("viewOn" in call.fields) is not ("pipeline" in call.fields):
        raise refusal(72, "Must specify both 'viewOn' and 'pipeline' when modifying a view")
    if "viewOn" in call.fields:
        changed = _definition(call)

        def with_definition(views: Body) -> Body:
            return {**views, name: encode({**decode(bytes.fromhex(views[name])), **changed}).hex()}

        await _change(call, with_definition)


async def drop(call: Call, name: str) -> None:
    await _change(call, lambda views: {each: kept for each, kept in views.items() if each != name})


async def _change(call: Call, change: Any) -> None:
    record = await namespaces.ensured_database(call)

    def run(state: Body, _new_store: object) -> Body:
        return {**state, _VIEWS: change(state.get(_VIEWS, {}))}

    await call.account.catalog.change_state(record, run)


def refuse(call: Call, name: str) -> None:
    """Refuse a view where a collection is needed."""
    if find(call, name) is not None:
        raise refusal(166, f"Namespace {call.database}.{name} is a view, not a collection")


# Reading.


def as_aggregate(call: Call, stages: list[Any]) -> Call:
    """A read of a view as an aggregation."""
    kept = ("collation", "let", "maxTimeMS", "comment", "readConcern", "hint", "lsid", "$readPreference")
    body: Document = {"aggregate": call.collection(), "pipeline": stages, "cursor": {}, "$db": call.database}
    body |= {name: call.body[name] for name in kept if name in call.body}
    if "batchSize" in call.fields:
        body["cursor"] = {"batchSize": call.body["batchSize"]}
    inner = Call(call.services, call.client, "aggregate", Request(body, b"", {}))
    inner.login = call.login
    inner.session, inner.transaction, inner.txn_number = call.session, call.transaction, call.txn_number
    inner.deadline_s, inner.past, inner.past_time = call.deadline_s, call.past, call.past_time
    return inner


def find_stages(call: Call) -> list[Any]:
    fields = call.fields
    for name in _NOT_OF_VIEWS:
        if call.body.get(name):
            raise refusal(168, f"Option '{name}' is not supported of a view")
    stages: list[Any] = [{"$match": fields.document("filter", {})}]
    if fields.document("sort", {}):
        stages.append({"$sort": call.body["sort"]})
    if fields.number("skip", 0):
        stages.append({"$skip": fields.number("skip", 0)})
    if fields.number("limit", 0):
        stages.append({"$limit": fields.number("limit", 0)})
    if fields.document("projection", {}):
        stages.append({"$project": call.body["projection"]})
    return stages


def count_stages(call: Call) -> list[Any]:
    fields = call.fields
    stages: list[Any] = [{"$match": fields.document("query", {})}]
    if fields.number("skip", 0):
        stages.append({"$skip": fields.number("skip", 0)})
    limit = abs(fields.number("limit", 0, low=-(1 << 62)))
    return [*stages, *([{"$limit": limit}] if limit else []), {"$count": "n"}]
