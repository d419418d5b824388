"""`$batch`: the operations of one changeset on one partition key of one table, all or none; or a single query."""

from __future__ import annotations

from armillary import limits
from armillary.account.catalog.tables import find_table
from armillary.account.items import items
from armillary.account.items.items import ItemOptions, Member, Outcome, Verb
from armillary.account.throughput.charge_explanations import explain_batch, explain_failure
from armillary.account.visits.write_visits import BatchAnswer
from armillary.doors.table import addresses
from armillary.doors.table.addresses import Address, Place
from armillary.doors.table.call import Call, unsupported_media
from armillary.doors.table.entities.multipart import (
    InnerAnswer,
    InnerRequest,
    bad_batch,
    boundary_of,
    is_multipart,
    parts_of,
    render,
    request_of,
)
from armillary.doors.table.entities.operations import Order, known_etag, meant_method, order_of, place_allows, written
from armillary.doors.table.errors import refusal_headers, refusal_of, refused
from armillary.errors import Failure, Kind
from armillary.model.charges import Part
from armillary.model.items import parse_json
from armillary.model.keys import Key
from armillary.net.http import Request, Response


class _Failed(Exception):
    """One operation cannot be done, so none is."""

    def __init__(self, index: int, failure: Failure, content_id: bytes | None) -> None:
        super().__init__(str(failure))
        self.index = index
        self.failure = failure
        self.content_id = content_id


async def run_batch(call: Call) -> Response:
    bytes_max = limits.BODY_BYTES_MAX if call.is_storage else limits.BATCH_BYTES_MAX
    if len(call.body) > bytes_max:
        raise Failure(Kind.TOO_LARGE, f"A batch has at most {bytes_max} bytes.")
    parts = parts_of(call.body, boundary_of(call.headers.get(b"content-type")), limits.BATCH_OPERATIONS_MAX)
    if len(parts) != 1:
        raise bad_batch("it has exactly one changeset, or exactly one query")
    part = parts[0]
    if not is_multipart(part):
        return await _run_query(call, request_of(part))
    # One more than there may be: what is too much is refused as such.
    inner = parts_of(part.content, boundary_of(part.headers.get(b"content-type")), limits.BATCH_OPERATIONS_MAX + 1)
    if not inner:
        return _answer(call, [], 0.0, [])
    try:
        answers, answer = await _run_changeset(call, [request_of(each) for each in inner])
    except _Failed as failed:
        return _refusal(call, failed)
    return _answer(call, answers, answer.charge_ru, explain_batch(answer) if call.explains else [])


async def _run_changeset(call: Call, requests: list[InnerRequest]) -> tuple[list[InnerAnswer], BatchAnswer]:
    if len(requests) > limits.BATCH_OPERATIONS_MAX:
        message = "The batch request operation exceeds the maximum 100 changes per change set."
        raise _Failed(limits.BATCH_OPERATIONS_MAX, refused("InvalidInput", message), None)
    orders: list[Order] = []
    seen: set[str] = set()
    table_name: str | None = None
    for index, request in enumerate(requests):
        try:
            address, order = _order(call, request)
            table_name = call.table_name(address.table) if table_name is None else table_name
            if address.table != table_name or (orders and order.partition_key != orders[0].partition_key):
                raise refused(
                    "CommandsInBatchActOnDifferentPartitions",
                    "All commands in a batch must operate on same entity group.",
                )
            if order.row_key in seen:
                raise refused(
                    "InvalidDuplicateRow",
                    "The batch request contains multiple changes with same row key. An entity can appear only once in "
                    "a batch request.",
                )
            call.grant.check(order.action, table_name)
            call.grant.check_keys(order.partition_key, order.row_key)
        except Failure as failure:
            raise _Failed(index, failure, request.content_id) from None
        seen.add(order.row_key)
        orders.append(order)
    assert table_name is not None
    try:
        table = find_table(call.account, table_name, is_storage=call.is_storage)
    except Failure as failure:
        raise _Failed(0, failure, requests[0].content_id) from None
    members = [_member(order, await known_etag(table, order)) for order in orders]
    key = Key((orders[0].partition_key,))
    answer = await items.batch(table, key, members, ItemOptions(key=key), call.account.clock)
    answers: list[InnerAnswer] = []
    for index, (outcome, order, request) in enumerate(zip(answer.members, orders, requests, strict=True)):
        if isinstance(outcome, Outcome):
            status, headers, body = written(call, table, order, outcome.etag, outcome.payload)
            said = [*_CONSTANT, *headers]
            if body:
                said.append((b"content-type", b"application/json;odata=minimalmetadata;streaming=true;charset=utf-8"))
            answers.append(InnerAnswer(status, said, body, request.content_id))
        elif outcome.kind is not Kind.FAILED_DEPENDENCY:
            outcome.charge_ru, outcome.is_metered = answer.charge_ru, True
            raise _Failed(index, outcome, request.content_id)
    return answers, answer


_CONSTANT = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-cache"),
    (b"dataserviceversion", b"3.0;"),
)


def _order(call: Call, request: InnerRequest) -> tuple[Address, Order]:
    method = meant_method(request.method, request.headers)
    address = addresses.parse(request.target, call.services.accounts_of(call.headers))
    if not place_allows(address.place, method):
        raise bad_batch(f"{method} is no change of an entity")
    if address.query.keys() - {"timeout"}:
        raise bad_batch("operations of a changeset have no query parameters")
    body = None
    if method != "DELETE":
        content_type = request.headers.get(b"content-type", b"application/json").lower()
        if not content_type.startswith(b"application/json"):
            raise unsupported_media(content_type)
        body = parse_json(request.body)
    return address, order_of(call, method, address, request.headers, body)


def _member(order: Order, if_match: str | None) -> Member:
    document = order.document() if order.members is not None else None
    item_id = order.item_id if order.verb in (Verb.REPLACE, Verb.DELETE) else None
    return Member(order.verb, item_id, document, options=ItemOptions(if_match=if_match))


async def _run_query(call: Call, request: InnerRequest) -> Response:
    if request.method != "GET":
        raise bad_batch("a change stands in a changeset; alone stands only a query")
    address = addresses.parse(request.target, call.services.accounts_of(call.headers))
    if address.place not in (Place.TABLE, Place.ENTITY):
        raise bad_batch("a query is about entities")
    headers = {**request.headers, b"host": call.headers.get(b"host", b"localhost")}
    outer = call.request
    inner = Request("GET", request.target, headers, b"", outer.is_tls, outer.peer)
    answer = await call.services.answer_for(inner, address, call.grant, call.request_id)
    body = InnerAnswer(answer.status, answer.headers, answer.body, request.content_id)
    return _answer(call, [body], 0.0, [], has_changeset=False)  # its charge is in its part


def _answer(
    call: Call, answers: list[InnerAnswer], charge_ru: float, explained: list[Part], *, has_changeset: bool = True
) -> Response:
    content_type, body = render(answers, call.account.clock.guid(), has_changeset=has_changeset)
    response = call.answer(202, charge_ru, b"", [(b"content-type", content_type)], explained)
    response.body = body
    return response


def _refusal(call: Call, failed: _Failed) -> Response:
    """Every batch that was looked at is accepted; what failed is in its one part."""
    failure = failed.failure
    if failure.kind in (Kind.DROPPED, Kind.THROTTLED, Kind.UNAVAILABLE, Kind.CORRUPT, Kind.INTERNAL):
        raise failure  # about all of it: clients come again
    refusal = refusal_of(
        failure, call.request_id, call.services.moment(), is_storage=call.is_storage, index=failed.index
    )
    headers = [*_CONSTANT, *refusal_headers(failure, refusal, is_xml=False)]
    answer = InnerAnswer(refusal.status, headers, refusal.json(), failed.content_id)
    return _answer(call, [answer], failure.charge_ru, explain_failure(failure, failure.charge_ru))
