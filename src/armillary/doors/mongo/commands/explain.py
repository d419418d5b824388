"""explain: the plan of a command, and with higher verbosity its execution statistics. Nothing is changed. Stages have
MongoDB's names where they correspond; what has no counterpart is under `armillary`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from bson.int64 import Int64

from armillary import __version__
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.commands.diagnostics import version_text
from armillary.doors.mongo.fields import GENERIC, Fields
from armillary.doors.mongo.reading import aggregation, compiled_filters, find, find_query, hints, query_execution
from armillary.doors.mongo.reading.query_execution import winning_plan
from armillary.doors.mongo.wire.messages import Request
from armillary.doors.mongo.writing import change_statements, find_and_modify
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.sort_keys import Sort, compile_sort_by
from armillary.model.bson.bson_values import Document

_VERBOSITIES: Final = ("queryPlanner", "executionStats", "allPlansExecution")


async def explain(call: Call) -> Reply:
    command = call.fields.document("explain")
    verbosity = call.fields.text("verbosity", "allPlansExecution")
    if verbosity not in _VERBOSITIES:
        raise refusal(9, f"Enumeration value '{verbosity[:64]}' for field 'explain.verbosity' is not a valid value.")
    if not command:
        raise refusal(9, "explain needs a command")
    name = next(iter(command))
    run = _EXPLAINED.get(name)
    if run is None:
        raise refusal(59, f"Explain failed due to unknown command: {name[:64]}")
    inner = inner_call(call, name, command)
    return await run(inner, verbosity)


def inner_call(call: Call, name: str, command: Document) -> Call:
    inner = Call(call.services, call.client, name, Request({**command, "$db": call.database}, b"", {}))
    inner.deadline_s, inner.login = call.deadline_s, call.login
    return inner


async def of_aggregate(call: Call, verbosity: str) -> Reply:
    """Also for an aggregate with `explain: true`."""
    is_database = call.body.get("aggregate") == 1
    collection = "$cmd.aggregate" if is_database else call.collection()
    container = None if is_database else namespaces.find(call, collection)
    stream = aggregation.Aggregation(call, container, is_database=is_database)
    pipeline = stream.pipeline
    context = compiled_filters.context_of(call)
    sort = compile_sort_by(pipeline.leading_sort, context.key) if pipeline.leading_sort else None
    matcher = pipeline.matcher or compiled_filters.matcher_of({}, call)
    matcher = hints.hinted(matcher, hints.check(container, call.body.get("hint")))
    answer = await _answer(call, container, collection, pipeline.leading_filter, matcher, sort, [])
    given = call.fields.array("pipeline")
    rest = given[sum(1 for _ in _leading(given)) :]
    if verbosity != "queryPlanner":
        count = 0
        async for batch in stream.batches():
            count += len(batch)
        answer |= _statistics(call, answer, count)
    if not rest:
        return answer
    cursor = {name: answer.pop(name) for name in ("queryPlanner", "executionStats") if name in answer}
    return {"stages": [{"$cursor": cursor}, *rest], **answer}


def _leading(given: list[Any]) -> list[Any]:
    found = []
    for stage in given:
        if next(iter(stage), "") not in ("$match",):
            break
        found.append(stage)
    return found


async def _of_find(call: Call, verbosity: str) -> Reply:
    collection = call.collection()
    container = namespaces.find(call, collection)
    query = find_query.query_of(call, container)
    outer: list[Document] = []
    if query.project is not None:
        outer.append({"stage": "PROJECTION_SIMPLE", "transformBy": call.body["projection"]})
    if query.limit:
        outer.append({"stage": "LIMIT", "limitAmount": query.limit})
    if query.skip:
        outer.append({"stage": "SKIP", "skipAmount": query.skip})
    answer = await _answer(call, container, collection, query.given, query.matcher, query.sort, outer)
    if verbosity != "queryPlanner":
        count = 0
        if container is not None:
            async for page in find.found_pages(call, container, query):
                count += len(page)
        answer |= _statistics(call, answer, count)
    return answer


async def _of_count(call: Call, verbosity: str) -> Reply:
    return await _of_filter(call, verbosity, "query", {"stage": "COUNT"})


async def _of_distinct(call: Call, verbosity: str) -> Reply:
    call.fields.text("key")
    return await _of_filter(call, verbosity, "query", {"stage": "PROJECTION_DEFAULT"})


async def _of_find_and_modify(call: Call, verbosity: str) -> Reply:
    find_and_modify.check_options(call)
    find_and_modify.order_of(call, namespaces.find(call, call.collection()), change_statements.Variables(call))
    stage = "DELETE" if call.fields.flag("remove", False) else "UPDATE"
    return await _of_filter(call, verbosity, "query", {"stage": stage})


async def _of_update(call: Call, verbosity: str) -> Reply:
    return await _of_statement(call, verbosity, "updates", "UPDATE")


async def _of_delete(call: Call, verbosity: str) -> Reply:
    return await _of_statement(call, verbosity, "deletes", "DELETE")


async def _of_statement(call: Call, verbosity: str, field: str, stage: str) -> Reply:
    statements = call.fields.documents(field)
    if len(statements) != 1:
        raise refusal(72, "explained write batches must be of size 1")
    statement = Fields(statements[0], f"{call.name}.{field}")
    container = namespaces.find(call, call.collection())
    variables = change_statements.Variables(call)
    if stage == "UPDATE":
        statement.require(("q", "u"))
        order = change_statements.update_order(call, container, statement, variables)
    else:
        statement.require(("q", "limit"))
        order = change_statements.delete_order(call, container, statement, variables)
    body = {**call.body, "query": order.given, "hint": statement.body.get("hint")}
    inner = inner_call(call, call.name, body)
    return await _of_filter(inner, verbosity, "query", {"stage": stage})


async def _of_filter(call: Call, verbosity: str, field: str, outer: Document) -> Reply:
    collection = call.collection()
    container = namespaces.find(call, collection)
    given = call.fields.document(field, {})
    matcher = compiled_filters.matcher_of(given, call, text_index=hints.text_index(container))
    matcher = hints.hinted(matcher, hints.check(container, call.body.get("hint")))
    answer = await _answer(call, container, collection, given, matcher, None, [outer])
    if verbosity != "queryPlanner":
        count = 0
        if container is not None:
            async for page in query_execution.pages(call, container, query_execution.wanted(container, given, matcher)):
                count += len(page)
        answer |= _statistics(call, answer, count)
    return answer


_EXPLAINED: Final[dict[str, Callable[[Call, str], Awaitable[Reply]]]] = {
    "find": _of_find,
    "aggregate": of_aggregate,
    "count": _of_count,
    "distinct": _of_distinct,
    "findAndModify": _of_find_and_modify,
    "findandmodify": _of_find_and_modify,
    "update": _of_update,
    "delete": _of_delete,
}


# Plans.


async def _answer(
    call: Call,
    container: Container | None,
    collection: str,
    given: Document,
    matcher: Any,
    sort: Sort | None,
    outer: list[Document],
) -> Document:
    plan: Document = {"stage": "EOF"}
    if container is not None:
        wanted = query_execution.wanted(container, given, matcher)
        plan = await winning_plan(container, wanted, sort)
        if sort is not None and sort.fields and plan.get("sorts") is not True:
            pattern = {each.path: -1 if each.is_descending else 1 for each in sort.fields}
            plan = {"stage": "SORT", "sortPattern": pattern, "type": "simple", "inputStage": plan}
        plan.pop("sorts", None)
        for stage in reversed(outer):
            plan = {**stage, "inputStage": plan}
        touched = _touched(container, wanted)
        if len(touched) > 1:
            plan = {
                "stage": "SHARD_MERGE",
                "shards": [{"shardName": f"partition {number}", "winningPlan": plan} for number in touched],
            }
    host, port = call.client.local
    return {
        "explainVersion": "1",
        "queryPlanner": {
            "plannerVersion": 1,
            "namespace": f"{call.database}.{collection}",
            "indexFilterSet": False,
            "parsedQuery": given,
            "winningPlan": plan,
            "rejectedPlans": [],
        },
        "command": {name: value for name, value in call.body.items() if name not in GENERIC},
        "serverInfo": {
            "host": host,
            "port": port,
            "version": version_text(call),
            "gitVersion": f"armillary-{__version__}",
        },
    }


def _touched(container: Container, wanted: query_execution.Wanted) -> list[int]:
    """The partitions that would be read."""
    if wanted.target.key is not None and container.key is not None:
        return [container.partition_for(container.effective_key(wanted.target.key)).range.id]
    return sorted(container.partitions)


def _statistics(call: Call, answer: Document, count: int) -> Document:
    plan = answer["queryPlanner"]["winningPlan"]
    return {
        "executionStats": {
            "executionSuccess": True,
            "nReturned": count,
            "executionTimeMillis": 0,
            "totalKeysExamined": call.keys_examined if plan["stage"] != "COLLSCAN" else 0,
            "totalDocsExamined": call.documents_examined,
            "executionStages": {**plan, "nReturned": count, "docsExamined": call.documents_examined},
            "allPlansExecution": [],
        },
        "armillary": {"requestCharge": call.charge_ru, "documentsExamined": Int64(call.documents_examined)},
    }
