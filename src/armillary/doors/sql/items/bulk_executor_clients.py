"""The bulk executor libraries of Java and .NET, made for the clients of 2017. They send documents and updates in
groups to three procedures of the service, `__.sys.commonBulkInsert`, `__.sys.bulkPatch` and `__.sys.commonDelete`.
Each is asked of one range of partition keys and does as much of its list as it can: the client sends the rest again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from armillary import limits
from armillary.account.container import Container
from armillary.account.items import bulk_procedures
from armillary.account.items.bulk_procedures import ItemUpdate, Progress
from armillary.account.items.bulk_updates import apply_updates, parse_updates
from armillary.account.items.items import Document
from armillary.doors.sql import headers as h
from armillary.doors.sql.access.authorization import check_key
from armillary.doors.sql.call import Call
from armillary.doors.sql.errors import ROWS
from armillary.doors.sql.session_tokens import place_headers
from armillary.errors import Failure, Kind, bad_request
from armillary.languages.sql.compiling.compile import compile_condition, parse_parameters
from armillary.model.items import check_depth, parse_document
from armillary.net.http import Response

_INSERT: Final = "__.sys.commonBulkInsert"
_UPDATE: Final = "__.sys.bulkPatch"
_DELETE: Final = "__.sys.commonDelete"
PROCEDURES: Final = frozenset((_INSERT, _UPDATE, _DELETE))

_OPTIONS: Final = frozenset(
    (
        "disableAutomaticIdGeneration",
        "softStopOnConflict",
        "softStopOnBadRequest",
        "enableUpsert",
        "enableBsonSchema",
        "systemCollectionId",
    )
)
_QUERY: Final = frozenset(("rootSymbol", "filterExpr", "orderByExpr", "sqlParameterCollection", "limit"))
# Failures of one document: it is told from the others. What concerns the request is answered as a failure of it.
_BAD: Final = (Kind.BAD_REQUEST, Kind.KEY_MISMATCH, Kind.UNSUPPORTED, Kind.TOO_LARGE, Kind.KEY_FULL)


Done = tuple[Progress, dict[str, Any]]  # with what is answered


async def run_procedure(call: Call, container: Container, name: str, arguments: list[Any]) -> Response:
    if len(call.body) > limits.BATCH_BYTES_MAX:
        raise Failure(Kind.TOO_LARGE, f"The arguments of {name} have {len(call.body)} bytes, the limit is 2 MB.")
    key_range = h.key_range(call.headers)
    if key_range is None:
        raise bad_request(f"{name} must name a partition key range (x-ms-documentdb-partitionkeyrangeid).")
    done, answer = await _RUN[name](call, container, str(key_range[0]), arguments)
    place = place_headers(call.headers, container, done.range_id, done.lsn)
    return call.answer(200, done.charge_ru, orjson.dumps(answer), place)


async def _insert(call: Call, container: Container, range_id: str, arguments: list[Any]) -> Done:
    documents, options = _two(arguments, _INSERT)
    if not isinstance(documents, list) or not isinstance(options, dict) or not options.keys() <= _OPTIONS:
        raise bad_request(f"{_INSERT} takes a list of documents and options, which are {', '.join(sorted(_OPTIONS))}.")
    if options.get("enableBsonSchema") or options.get("systemCollectionId") is not None:
        raise Failure(Kind.UNSUPPORTED, "'enableBsonSchema' and 'systemCollectionId' of a bulk insert are not offered.")
    makes_ids = options.get("disableAutomaticIdGeneration") is not True
    stops_at = {Kind.CONFLICT} if options.get("softStopOnConflict") is True else set()
    if options.get("softStopOnBadRequest") is True:
        stops_at |= {*_BAD}
    done = await bulk_procedures.insert(
        call.account,
        container,
        range_id,
        [_document(call, container, each, makes_ids=makes_ids) for each in documents],
        call.ask,
        is_upsert=options.get("enableUpsert") is True,
        stops_at=stops_at,
    )
    answer = _told(done)
    if done.failure is not None:
        answer["failedDoc"] = documents[done.count]
    return done, answer


def _document(call: Call, container: Container, given: Any, *, makes_ids: bool) -> Callable[[], Document]:
    def made() -> Document:
        """Java sends the texts of documents, .NET documents."""
        document = parse_document(given.encode()) if isinstance(given, str) else given
        if not isinstance(document, dict):
            raise bad_request("A document of a bulk insert must be a JSON object.")
        check_depth(document)
        if makes_ids and "id" not in document:
            document = {**document, "id": call.account.clock.guid()}
        check_key(call.principal, call.route, container.key, [container.key_of(document)])
        return document

    return made


async def _update(call: Call, container: Container, range_id: str, arguments: list[Any]) -> Done:
    given, _ = _two(arguments, _UPDATE)  # the second is the name of the partition key, which the container knows
    if not isinstance(given, list):
        raise bad_request(f"{_UPDATE} takes a list of items with their updates.")
    updates = [_item_update(call, container, each) for each in given]
    done = await bulk_procedures.update(
        call.account, container, range_id, updates, call.ask, stops_at={Kind.NOT_FOUND, *_BAD}
    )
    return done, _told(done)


def _item_update(call: Call, container: Container, given: Any) -> ItemUpdate:
    if not isinstance(given, dict) or not isinstance(given.get("id"), str):
        raise bad_request(f"An item of {_UPDATE} must be an object with 'id', 'pk' and 'updates'.")
    if container.key is None or len(container.key.paths) != 1:
        raise bad_request(f"{_UPDATE} needs a container whose partition key has one path.")
    key = container.key.key_of_parts([given.get("pk")])
    check_key(call.principal, call.route, container.key, [key])
    updates = parse_updates(given.get("updates"))
    return ItemUpdate(given["id"], key, lambda document: apply_updates(document, updates))


async def _delete(call: Call, container: Container, range_id: str, arguments: list[Any]) -> Done:
    given = arguments[0] if arguments else None
    if not isinstance(given, dict) or not given.keys() <= _QUERY:
        raise bad_request(f"{_DELETE} takes a query with {', '.join(sorted(_QUERY))}.")
    condition, items_max = given.get("filterExpr"), given.get("limit")
    if not isinstance(condition, str) or type(items_max) is not int or items_max < 1:
        raise bad_request(f"{_DELETE} needs the condition 'filterExpr', a string, and a 'limit' above 0.")
    if given.get("rootSymbol") != "c" or given.get("orderByExpr") is not None:
        raise Failure(
            Kind.UNSUPPORTED, "Of a bulk delete, a 'rootSymbol' other than c and 'orderByExpr' are not offered."
        )
    check_key(call.principal, call.route, container.key, [None])
    parameters = parse_parameters(given.get("sqlParameterCollection"))
    bound = compile_condition(condition).bind(parameters, container.query_context())
    done, is_all = await bulk_procedures.delete(call.account, container, range_id, bound, items_max, call.ask)
    return done, {"count": done.count, "done": is_all}


def _two(arguments: list[Any], name: str) -> tuple[Any, Any]:
    if len(arguments) < 2:
        raise bad_request(f"{name} takes two arguments at least.")
    return arguments[0], arguments[1]


def _told(done: Progress) -> dict[str, Any]:
    status = ROWS[done.failure.kind].status if done.failure is not None else 0
    return {"count": done.count, "errorCode": status}


_RUN: Final = {_INSERT: _insert, _UPDATE: _update, _DELETE: _delete}
