"""Requests of the SQL protocol that do several operations at once: transactional batches and bulk requests, with the
operations in their body, and stored procedures, whose script does them."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import orjson

from armillary import limits, work
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.bulk import run_bulk
from armillary.account.items.items import ItemOptions, Member, Outcome, Result, Verb
from armillary.account.items.procedures import PROCEDURE_RU, execute
from armillary.account.items.triggers import (
    Triggers,
    batch_with_triggers,
    bulk_with_triggers,
    calls_functions,
    triggers_by_member,
)
from armillary.account.throughput.charge_explanations import explain_batch
from armillary.account.visits.write_visits import BatchAnswer
from armillary.doors.sql import headers as h
from armillary.doors.sql.access.authorization import check_key
from armillary.doors.sql.call import Call
from armillary.doors.sql.errors import ROWS
from armillary.doors.sql.headers import SCRIPT_LOGGING, with_log
from armillary.doors.sql.items import bulk_executor_clients, table_clients
from armillary.doors.sql.items.batch_rows import FIRST_BYTE, read_operations, write_results
from armillary.doors.sql.items.documents import STATUS, header_key, names_triggers, trigger_names
from armillary.doors.sql.session_tokens import place_headers
from armillary.errors import Failure, Kind, bad_request
from armillary.model.charges import Part, fitted
from armillary.model.items import parse_json
from armillary.model.keys import KEY_MISSING, NO_KEY
from armillary.model.patch import parse_patch
from armillary.model.resources import ResourceType
from armillary.net.http import Response

_VERBS = {
    "create": Verb.CREATE,
    "upsert": Verb.UPSERT,
    "replace": Verb.REPLACE,
    "patch": Verb.PATCH,
    "delete": Verb.DELETE,
    "read": Verb.READ,
}
_MEMBERS = {
    "operationType",
    "id",
    "resourceBody",
    "ifMatch",
    "ifNoneMatch",
    "partitionKey",
    "index",
    "indexingDirective",
    "resourceUri",
    "ttlInSeconds",
    "timeToLiveInSeconds",
    "binaryId",
    "effectivePartitionKey",
    "minimalReturnPreference",
}
_REFUSED = ("ttlInSeconds", "timeToLiveInSeconds", "binaryId", "effectivePartitionKey")
_ONLY_HEADERS = (Result.CREATED, Result.REPLACED)  # results that a minimal answer has without their items


async def run_batch(call: Call) -> Response:
    container = call.owner_container()
    is_hybrid = call.body[:1] == FIRST_BYTE
    if not is_hybrid and call.body.lstrip()[:1] != b"[":
        raise Failure(
            Kind.UNSUPPORTED_MEDIA, "A batch must be a JSON array of operations, or a stream of HybridRow records."
        )
    is_minimal = h.prefers_minimal(call.headers)
    h.consistency(call.headers, call.account.settings.consistency)
    is_atomic = h.flag(call.headers, h.IS_BATCH_ATOMIC)
    if is_atomic and h.flag(call.headers, h.BATCH_CONTINUES_ON_ERROR):
        raise bad_request("A batch cannot be atomic and continue on errors.")
    # Clients cut bulk requests into pieces far smaller than this, so one that is over it has a member that is.
    if len(call.body) > limits.BATCH_BYTES_MAX:
        raise Failure(Kind.TOO_LARGE, f"Batch request size is too large: {len(call.body)} bytes, the limit is 2 MB.")
    operations = await work.run(partial(read_operations, call.body)) if is_hybrid else parse_json(call.body)
    if not operations:
        raise bad_request("Batch request has no operations.")
    if len(operations) > limits.BATCH_OPERATIONS_MAX:
        raise bad_request(
            f"Batch request has more operations than what is supported, the limit is {limits.BATCH_OPERATIONS_MAX}."
        )
    members = [_member(index, each, call, container, is_atomic) for index, each in enumerate(operations)]
    form = _Form(is_hybrid, [is_minimal or each.get("minimalReturnPreference") is True for each in operations])
    if is_atomic:
        key = header_key(call, container)
        if key is None:
            raise bad_request(KEY_MISSING)
        options = ItemOptions(key=key, session=call.session(), ask=call.ask)
        if _runs_scripts(call, members):
            triggers = _triggers(call, container, members)
            done = await batch_with_triggers(call.account, container, key, members, triggers, options)
            return _logged(call, _answer(call, container, done.answer, form), done.log)
        answer = await items.batch(container, key, members, options, call.account.clock)
        return _answer(call, container, answer, form)
    return await _bulk(call, container, members, form)


def _logged(call: Call, response: Response, log: str) -> Response:
    return with_log(response, log) if h.flag(call.headers, SCRIPT_LOGGING) else response


def _runs_scripts(call: Call, members: list[Member]) -> bool:
    return names_triggers(call) or any(each.patch is not None and calls_functions(each.patch) for each in members)


def _triggers(call: Call, container: Container, members: list[Member]) -> list[Triggers]:
    verbs = [member.verb for member in members]
    return triggers_by_member(call.account, container, verbs, *trigger_names(call))


async def _bulk(call: Call, container: Container, members: list[Member], form: _Form) -> Response:
    for member in members:
        assert member.options is not None
        if member.options.key is None:
            raise bad_request("Each operation of a bulk request needs its 'partitionKey', a JSON array as a string.")
        if call.principal.claims is not None:
            check_key(call.principal, call.route, container.key, [member.options.key])
    key_range = h.key_range(call.headers)
    if key_range is None:
        raise bad_request("A bulk request must name its partition key range (x-ms-documentdb-partitionkeyrangeid).")
    continues = h.flag(call.headers, h.BATCH_CONTINUES_ON_ERROR)
    range_id = str(key_range[0])
    if _runs_scripts(call, members):
        triggers = _triggers(call, container, members)
        done = await bulk_with_triggers(call.account, container, range_id, members, triggers, continues=continues)
        return _logged(call, _answer(call, container, done.answer, form), done.log)
    answer = await run_bulk(container, range_id, members, call.account.clock, continues=continues)
    return _answer(call, container, answer, form)


def _member(index: int, given: Any, call: Call, container: Container, is_atomic: bool) -> Member:
    if not isinstance(given, dict):
        raise bad_request(f"Operation {index} of the batch is not a JSON object.")
    unknown = sorted(given.keys() - _MEMBERS)
    if unknown:
        raise bad_request(f"Operation {index} of the batch has the unknown property '{unknown[0]}'.")
    for name in _REFUSED:
        if given.get(name) is not None:
            raise Failure(Kind.UNSUPPORTED, f"'{name}' of a batch operation is not supported.")
    word = given.get("operationType")
    verb = _VERBS.get(word.lower()) if isinstance(word, str) else None
    if verb is None:
        raise bad_request(f"Operation {index} of the batch has the unknown operationType {word!r}.")
    body = given.get("resourceBody")
    if not isinstance(given.get("minimalReturnPreference", False), bool | None):
        raise bad_request(f"'minimalReturnPreference' of operation {index} of the batch must be true or false.")
    directive = _text(given, "indexingDirective", index) or "Default"
    if directive not in ("Default", "Include", "Exclude"):
        raise bad_request(f"'indexingDirective' of operation {index} must be Default, Include or Exclude.")
    if_match, if_none_match = _text(given, "ifMatch", index), _text(given, "ifNoneMatch", index)
    if verb is Verb.READ:
        # The service answers a read in a batch with 304 for either condition: the suites of .NET and Java want it so.
        if_match, if_none_match = None, if_none_match or if_match
    options = ItemOptions(if_match=if_match, if_none_match=if_none_match, directive=directive, ask=call.ask)
    if not is_atomic and isinstance(given.get("partitionKey"), str):
        options.key = container.parse_key(given["partitionKey"])
    member = Member(verb, _text(given, "id", index), options=options)
    if verb is Verb.PATCH:
        member.patch = parse_patch(body)
    elif verb in (Verb.CREATE, Verb.UPSERT, Verb.REPLACE):
        if not isinstance(body, dict):
            raise bad_request(f"Operation {index} of the batch needs a JSON object as 'resourceBody'.")
        member.document = body
    if member.item_id is None and verb not in (Verb.CREATE, Verb.UPSERT):
        raise bad_request(f"Operation {index} of the batch needs the 'id' of an item.")
    return member


def _text(given: dict[str, Any], name: str, index: int) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_request(f"'{name}' of operation {index} of the batch must be a string.")
    return value


class _Form(NamedTuple):
    """How a batch is answered."""

    is_hybrid: bool  # in HybridRow, as it came
    is_minimal: list[bool]  # of each member: without the item that it wrote


def _answer(call: Call, container: Container, answer: BatchAnswer, form: _Form) -> Response:
    rows = zip(answer.members, form.is_minimal, strict=True)
    if form.is_hybrid:
        body = write_results(_columns(*each) for each in rows)
    else:
        body = b"[" + b",".join([_row(*each) for each in rows]) + b"]"
    is_mixed = any(isinstance(each, Failure) or each.result is Result.NOT_MODIFIED for each in answer.members)
    return call.answer(
        207 if is_mixed else 200,
        answer.charge_ru,
        body,
        place_headers(call.headers, container, answer.range_id, answer.lsn),
        explain_batch(answer) if call.explains else None,
    )


def _head(member: Outcome | Failure) -> dict[str, Any]:
    """What the row of a member says in both forms, except for its text or its item."""
    if isinstance(member, Failure):
        row = ROWS[member.kind]
        return {
            "statusCode": row.status,
            "subStatusCode": row.sub_status,
            "requestCharge": round(member.charge_ru, 2),
            "retryAfterMilliseconds": member.retry_after_ms or 0,
        }
    head: dict[str, Any] = {
        "statusCode": STATUS[member.result],
        "subStatusCode": 0,
        "requestCharge": round(member.charge_ru, 2),
    }
    if member.etag is not None:
        head["eTag"] = member.etag
    return head


def _row(member: Outcome | Failure, is_minimal: bool) -> bytes:
    if isinstance(member, Failure):
        return orjson.dumps({**_head(member), "message": member.message})
    text = orjson.dumps(_head(member))
    if member.payload is None or (is_minimal and member.result in _ONLY_HEADERS):
        return text
    # The stored text is passed on as it is.
    return text[:-1] + b',"resourceBody":' + member.payload + b"}"


def _columns(member: Outcome | Failure, is_minimal: bool) -> dict[str, Any]:
    """The same in HybridRow. Its schema has no message: .NET reads the text of a failure from the body."""
    columns = _head(member)
    if not isinstance(member, Failure):
        if not (is_minimal and member.result in _ONLY_HEADERS):
            columns["resourceBody"] = member.payload
    elif member.kind is not Kind.FAILED_DEPENDENCY:
        columns["resourceBody"] = orjson.dumps({"Errors": [member.message]})
    return columns


async def execute_procedure(call: Call) -> Response:
    container = call.owner_container()
    name = call.route.segments[2]
    is_bulk = name in bulk_executor_clients.PROCEDURES
    is_system = is_bulk or (name == table_clients.PROCEDURE and table_clients.is_table(container))
    record = None if is_system else call.account.find(ResourceType.PROCEDURE, call.route.segments)
    arguments = parse_json(call.body) if call.body else []
    if not isinstance(arguments, list):
        raise bad_request("The arguments of a stored procedure are sent as a JSON array.")
    has_log = h.flag(call.headers, SCRIPT_LOGGING)
    h.consistency(call.headers, call.account.settings.consistency)
    if is_bulk:
        return await bulk_executor_clients.run_procedure(call, container, name, arguments)
    if record is None:
        return await table_clients.run_procedure(call, container, arguments)
    key = header_key(call, container)
    if key is None:
        if container.key is not None:
            raise bad_request(KEY_MISSING)
        key = NO_KEY
    answer = await execute(call.account, container, record, arguments, key, session=call.session(), ask=call.ask)
    extra = place_headers(call.headers, container, answer.range_id, answer.lsn)
    parts = [Part("run the script", PROCEDURE_RU), Part("its operations", answer.charge_ru - PROCEDURE_RU)]
    explained = fitted([part for part in parts if part.ru], answer.charge_ru) if call.explains else None
    response = call.answer(200, answer.charge_ru, answer.body, extra, explained)
    return with_log(response, answer.log) if has_log else response
