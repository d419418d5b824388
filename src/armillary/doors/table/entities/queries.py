"""Queries over the entities of a table: `$filter`, `$select`, `$top` and the continuation headers."""

from __future__ import annotations

import orjson

from armillary import limits, work
from armillary.account.captures import notes
from armillary.account.queries import item_pages
from armillary.account.throughput.charge_explanations import explain_query
from armillary.account.visits.page_walk import FeedOptions
from armillary.doors.table.access.grants import Action
from armillary.doors.table.call import Call
from armillary.doors.table.entities.operations import selected
from armillary.doors.table.errors import refused
from armillary.doors.table.service.tables import top_of
from armillary.errors import Failure, Kind
from armillary.languages.odata.compile import ALL_ENTITIES, compile_filter
from armillary.languages.odata.lexer import shape_of
from armillary.net.charged_requests import HeaderList
from armillary.net.http import Response

_SHORT_FILTER, _FEW_ROWS, _SMALL_PAGE_BYTES = 500, 100, 16 * limits.KB  # that take less than a millisecond
_ROW_UNITS, _UNIT_BYTES = 20, 16  # of work to render an entity, and bytes of it for one unit
_ROW_KEY_TOKEN = "-"  # one token is enough; some clients go on only if there are two
_HEAD, _FOOT = '{"token":"', '"}'


async def query_entities(call: Call) -> Response:
    table = call.table(Action.QUERY)
    query = call.address.query
    text = query.get("$filter", "").strip()
    form = call.form(table.name, selected(query.get("$select")))
    keys = call.grant.keys
    within = keys.condition if keys is not None else None
    options = FeedOptions(page_items=top_of(call), continuation=_continuation(query), read_factor=call.read_factor)
    selection = ALL_ENTITIES
    if text or within is not None:
        if len(text) <= _SHORT_FILTER and within is None:
            selection = compile_filter(text).selection()
        else:
            selection = await work.run(lambda: compile_filter(text, within).selection())
    if call.account.captures.is_on:
        notes.describe(lambda: shape_of(text))
    # What a continuation is bound to: repr quotes every text of the tree, so no filter reads like another's range.
    asked = text if within is None else f"{text}\n{within!r}"
    try:
        page = await item_pages.select(call.account, table, selection, asked.encode("utf-8", "surrogatepass"), options)
    except Failure as failure:
        if failure.kind is Kind.BAD_REQUEST and options.continuation is not None:
            raise _bad_continuation() from None
        raise
    rendered = call.services.rendered

    def render() -> list[bytes]:
        entities = []
        for row in page.rows:
            work.spend(_ROW_UNITS + len(row) // _UNIT_BYTES)
            entity = rendered.text(row, form)
            if entity:
                entities.append(entity)
        return entities

    is_small = len(page.rows) <= _FEW_ROWS and sum(map(len, page.rows)) <= _SMALL_PAGE_BYTES
    entities = render() if is_small else await work.run(render)
    headers: HeaderList = []
    if page.continuation is not None:
        token = page.continuation.removeprefix(_HEAD).removesuffix(_FOOT)
        headers = [
            (b"x-ms-continuation-nextpartitionkey", token.encode("ascii")),
            (b"x-ms-continuation-nextrowkey", _ROW_KEY_TOKEN.encode("ascii")),
        ]
    metadata = call.metadata(table.name)
    head = orjson.dumps(metadata)[:-1] + b"," if metadata else b"{"
    body = b'%b"value":[%b]}' % (head, b",".join(entities))
    return call.answer(
        200, page.charge_ru, body, headers, explain_query(page, options.read_factor) if call.explains else None
    )


def _continuation(query: dict[str, str]) -> str | None:
    token = query.get("NextPartitionKey")
    row_token = query.get("NextRowKey")
    if row_token not in (None, "", _ROW_KEY_TOKEN) or (token is None and row_token):
        raise _bad_continuation()
    return f"{_HEAD}{token}{_FOOT}" if token else None


def _bad_continuation() -> Failure:
    return refused(
        "InvalidQueryParameterValue",
        "Value for one of the query parameters specified in the request URI is invalid: NextPartitionKey and "
        "NextRowKey are not a continuation that was given for this query on this table.",
    )
