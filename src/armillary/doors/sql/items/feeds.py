"""Pages of items over the SQL protocol: read feeds, queries and query plans."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from armillary import limits
from armillary.account.captures import notes
from armillary.account.container import Container
from armillary.account.items.procedures import query_functions
from armillary.account.queries import item_pages, merged_queries
from armillary.account.queries.partition_slices import PageAnswer
from armillary.account.throughput.charge_explanations import explain_feed, explain_query
from armillary.account.visits.page_walk import FeedOptions
from armillary.doors.sql import headers as h
from armillary.doors.sql.call import Call
from armillary.doors.sql.items.change_feed import read_change_feed
from armillary.doors.sql.items.documents import header_key
from armillary.doors.sql.merging_clients import choose_merging, is_unaware_of_splits
from armillary.doors.sql.metrics import Asked, index_metrics, partition_shares, query_advice, query_metrics
from armillary.doors.sql.resources.lists import container_paths, parse_query_body
from armillary.doors.sql.session_tokens import page_headers
from armillary.errors import bad_request
from armillary.languages.sql.compiling.compile import BoundQuery, UserFunctions, compile_query, parse_parameters
from armillary.languages.sql.planning.plan import query_plan
from armillary.languages.sql.syntax.lexer import shape_of
from armillary.model.charges import QUERY_PLAN_RU, Part
from armillary.model.items import parse_document
from armillary.model.resources import ResourceType
from armillary.model.values import UNDEFINED
from armillary.net.charged_requests import HeaderList
from armillary.net.http import Response

# What JavaScript asks of ordered ranges before it goes on from a continuation of its own: that ties come the other way
# round where the order does.
TIES = (b"x-ms-cosmos-query-execution-info", b'{"reverseRidEnabled":true,"reverseIndexScan":false}')


async def read_feed(call: Call) -> Response:
    container = call.owner_container()
    if call.headers.get(h.CHANGE_FEED):
        return await read_change_feed(call, container, _options(call, container))
    options = _options(call, container)
    answer = await item_pages.read_feed(call.account, container, options)
    sizes_bytes = list(map(len, answer.rows))
    parts = explain_feed(sizes_bytes, answer.charge_ru, options.read_factor) if call.explains else None
    return _answer(call, container, answer, parts)


def bound_to(body: bytes, query: BoundQuery) -> bytes:
    """What a continuation is bound to: the query with its parameters."""
    if query.text_without_filter is None:
        return body
    given = {name: value for name, value in query.parameters.items() if value is not UNDEFINED}
    return query.text_without_filter.encode() + b"\n" + orjson.dumps(given)


async def query_items(call: Call) -> Response:
    container = call.owner_container()
    clock = call.account.clock
    begun_s = clock.elapsed_s()
    functions = _functions(call, container)
    computed = container.policies.computed_properties
    query = parse_query_body(call.body, container.query_context(), computed, functions)
    if call.account.captures.is_on:
        notes.describe(lambda: shape_of(parse_document(call.body)["query"]))
    if functions is not None:
        await functions.ready()
    compiled_s = clock.elapsed_s()
    options = _options(call, container)
    if not h.flag(call.headers, h.ENABLE_CROSS_PARTITION):
        options.is_cross_partition_allowed = False
    choose_merging(call.services.queries, call.headers, query, options)
    asked = Asked.of(call.headers)
    options.tells_shares = asked.for_query
    answer = await merged_queries.query(call.account, container, query, bound_to(call.body, query), options)
    extra: HeaderList = []
    if asked.for_query:
        run_s = clock.elapsed_s() - compiled_s
        extra += query_metrics(answer, compiled_s - begun_s, run_s, options.read_factor)
        extra += partition_shares(container, query, options, answer)
    if asked.for_index or asked.for_index_v2:
        extra += index_metrics(container, query, options, is_v2=asked.for_index_v2)
    if asked.for_advice:
        extra += query_advice(query.original)
    if query.selection.ordering is not None:
        extra.append(TIES)
    parts = explain_query(answer, options.read_factor) if call.explains else None
    return _answer(call, container, answer, parts, extra)


async def plan_query(call: Call) -> Response:
    container = call.owner_container()
    given = parse_document(call.body)
    text = given.get("query")
    if not isinstance(text, str):
        raise bad_request("The query must be a string in the property 'query'.")
    compiled = compile_query(text, container.policies.computed_properties)
    functions = _functions(call, container)
    # The service plans a query whose parameters have no values: Go's client requests such plans.
    parameters = dict.fromkeys(compiled.parameters, UNDEFINED) | parse_parameters(given.get("parameters"))
    bound = compiled.bind(parameters, container.query_context(), functions)
    plan = query_plan(bound, container.key, h.text(call.headers, h.QUERY_FEATURES))
    charge_ru = call.account.budgets.count_metadata(QUERY_PLAN_RU)
    parts = [Part("make the plan", charge_ru)]
    return call.answer(200, charge_ru, orjson.dumps(plan), container_paths(container), parts)


def _functions(call: Call, container: Container) -> UserFunctions | None:
    """The user-defined functions that a query may call; None if its text cannot contain a call."""
    find = call.body.find
    is_possible = find(b"udf") >= 0 or find(b"\\u") >= 0  # which may be escaped
    return query_functions(call.account, container) if is_possible else None


def _options(call: Call, container: Container) -> FeedOptions:
    key_range = h.key_range(call.headers)
    h.check_continuation_limit(call.headers)
    return FeedOptions(
        key=header_key(call, container),
        range_id=str(key_range[0]) if key_range is not None else None,
        epk_range=h.epk_range(call.headers),
        page_items=page_items(call.headers),
        continuation=h.text(call.headers, h.CONTINUATION),
        session=call.session(),
        read_factor=call.read_factor(),
        ask=call.ask,
        is_unaware=is_unaware_of_splits(call.headers),
    )


def page_items(headers: h.Headers) -> int:
    """How many items a page has at most."""
    size = h.page_size(headers)
    if size is None:
        is_open = headers.get(b"x-ms-max-item-count") is not None  # -1: as many as you like
        return limits.PAGE_ITEMS_MAX if is_open else limits.PAGE_ITEMS_DEFAULT
    return size


def _answer(
    call: Call,
    container: Container,
    answer: PageAnswer,
    parts: Iterable[Part] | None,
    asked: Iterable[tuple[bytes, bytes]] = (),
) -> Response:
    extra = [*page_headers(call.headers, container, answer.lsns), *asked]
    return call.answer_feed(
        answer.charge_ru, container.rid_text, ResourceType.ITEM.feed, answer.rows, answer.continuation, extra, parts
    )
