"""mapReduce, as the aggregation that it means: what the map function emits for each document, grouped by key and
reduced. The functions run in a process of their own (`languages/mongo/javascript`).
"""

from __future__ import annotations

from typing import Any, Final

from bson.code import Code

from armillary import limits
from armillary.doors.mongo.call import Call, Reply, check_collection, check_database
from armillary.doors.mongo.commands import views
from armillary.doors.mongo.reading import aggregation
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.javascript.requests import source_of
from armillary.model.bson.bson_values import Document, encode, type_name

FIELDS: Final = frozenset(
    "mapReduce mapreduce map reduce finalize out query sort limit scope collation bypassDocumentValidation".split()
)
_ACTIONS: Final = ("inline", "replace", "merge", "reduce")


async def map_reduce(call: Call) -> Reply:
    fields = call.fields
    output = _output(call)
    scope = fields.document("scope", {})
    reduce = _code(call, "reduce", scope)
    stages: list[Any] = [{"$match": fields.document("query", {})}]
    if fields.document("sort", {}):
        stages.append({"$sort": call.body["sort"]})
    if fields.number("limit", 0):
        stages.append({"$limit": fields.number("limit", 0)})
    emits = {"$_internalJsEmit": {"eval": _code(call, "map", scope), "this": "$$ROOT"}}
    reduced = {"$_internalJsReduce": {"eval": reduce, "data": "$emits"}}
    stages += [
        {"$project": {"_id": 0, "emits": emits}},
        {"$unwind": "$emits"},
        {"$group": {"_id": "$emits.k", "value": reduced}},
        {"$sort": {"_id": 1}},
    ]
    finishing: list[Any] = []
    if call.body.get("finalize") is not None:
        finishing = [_with_value(_code(call, "finalize", scope), ["$_id", "$value"])]
    stages += finishing
    action, database, collection = output
    if action == "inline":
        return await _inline(call, stages)
    into = {"db": database, "coll": collection}
    if action == "replace":
        stages.append({"$out": into})
    elif action == "merge":
        stages.append({"$merge": {"into": into, "whenMatched": "replace"}})
    else:
        combined = [_with_value(reduce, ["$_id", ["$value", "$$new.value"]]), *finishing]
        stages.append({"$merge": {"into": into, "whenMatched": combined}})
    inner = _aggregation(call, stages)
    await aggregation.aggregate(inner)
    call.spend(inner.charge_ru)
    return {"result": collection if database == call.database else {"db": database, "collection": collection}}


def _aggregation(call: Call, stages: list[Any]) -> Call:
    inner = views.as_aggregate(call, stages)
    if "bypassDocumentValidation" in call.body:
        inner.body["bypassDocumentValidation"] = call.body["bypassDocumentValidation"]
    return inner


async def _inline(call: Call, stages: list[Any]) -> Reply:
    inner = _aggregation(call, stages)
    found = await aggregation.documents_of(inner)
    call.spend(inner.charge_ru)
    reply: Document = {"results": found}
    if len(encode(reply)) > limits.MONGO_DOCUMENT_BYTES_MAX:
        raise refusal(10334, "The results of mapReduce exceed 16 MB: write them to a collection by 'out'.")
    return reply


def _with_value(source: Code, values: list[Any]) -> Document:
    return {"$project": {"value": {"$function": {"body": source, "args": values, "lang": "js"}}}}


def _code(call: Call, name: str, scope: Document) -> Code:
    given = call.body.get(name)
    if given is None:
        raise call.fields.missing(name)
    source = source_of(given, name).with_scope(scope)
    return Code(source.text, source.scope)


def _output(call: Call) -> tuple[str, str, str]:
    """What is done with the results: the action, the database and the collection."""
    given = call.body.get("out")
    if given is None:
        raise call.fields.missing("out")
    if isinstance(given, str):
        return "replace", call.database, check_collection(call.database, given)
    if type(given) is not dict:
        raise refusal(14, f"'out' must be a string or an object, found {type_name(given)}")
    actions = [name for name in given if name in _ACTIONS]
    unknown = [name for name in given if name not in _ACTIONS and name != "db"]
    if unknown:
        raise refusal(115, f"The option '{unknown[0]}' of 'out' is not supported.")
    if len(actions) != 1:
        raise refusal(9, "'out' must have one of inline, replace, merge and reduce")
    if actions[0] == "inline":
        return "inline", call.database, ""
    database, collection = given.get("db", call.database), given[actions[0]]
    if not isinstance(database, str) or not isinstance(collection, str):
        raise refusal(14, "The collection and the database of 'out' must be strings")
    return actions[0], check_database(database), check_collection(database, collection)
