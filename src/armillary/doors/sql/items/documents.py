"""Single items over the SQL protocol: create, upsert, read, replace, patch, delete, and delete by partition key."""

from __future__ import annotations

from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import Document, ItemOptions, Member, Result, Verb
from armillary.account.items.triggers import calls_functions, named_triggers, write_with_triggers
from armillary.account.throughput.charge_explanations import explain_delete_by_key, explain_item
from armillary.account.visits.read_visits import Answer
from armillary.doors.sql import headers as h
from armillary.doors.sql.access.authorization import check_key, is_for_item, names_item_otherwise, refuse_item
from armillary.doors.sql.call import Call
from armillary.doors.sql.headers import SCRIPT_LOGGING, with_log
from armillary.doors.sql.session_tokens import SESSION_TOKEN, VECTOR_SINCE, VERSION, place_headers
from armillary.errors import bad_request
from armillary.model.items import parse_document, parse_json
from armillary.model.keys import KEY_MISSING, NO_KEY, Key
from armillary.model.patch import parse_patch
from armillary.net.charged_requests import charge_header, render_charge
from armillary.net.http import Response

STATUS = {
    Result.CREATED: 201,
    Result.REPLACED: 200,
    Result.DELETED: 204,
    Result.READ: 200,
    Result.NOT_MODIFIED: 304,
}


_WRITTEN = (Result.CREATED, Result.REPLACED)

_LINES = (
    b"x-ms-activity-id: %b\r\nx-ms-request-charge: %b\r\nx-ms-session-token: %d:1#%d\r\n%b\r\n"
    b"x-ms-documentdb-partitionkeyrangeid: %d\r\nlsn: %d\r\nx-ms-cosmos-llsn: %d\r\n"
    b"x-ms-global-committed-lsn: %d\r\nx-ms-quorum-acked-lsn: %d\r\nx-ms-item-lsn: %d\r\n"
    b"x-ms-cosmos-item-llsn: %d"
)
_PLAIN_LINES = _LINES.replace(b"%d:1#%d", b"%d:%d")


async def read_item(call: Call) -> Response:
    container = call.owner_container()
    options = ItemOptions(
        key=header_key(call, container),
        if_none_match=h.text(call.headers, h.IF_NONE_MATCH) if h.IF_NONE_MATCH in call.headers else None,
        session=call.session() if SESSION_TOKEN in call.headers else None,
        read_factor=call.read_factor(),
        ask=call.ask,
    )
    if options.key is None and container.key is None:
        options.key = NO_KEY
    if call.principal.claims is not None:
        await check_token_item(call, container, options.key)
    route = call.route
    item_id = await addressed_id(call, container, options.key) if route.is_rid_based else route.segments[2]
    return answer_item(call, container, await items.read(container, item_id, options), options.read_factor)


async def create_item(call: Call) -> Response:
    container, document, options = _written(call)
    if names_triggers(call):
        return await _triggered(call, container, Member(Verb.CREATE, None, document, options=options))
    return answer_item(call, container, await items.create(container, document, options, call.account.clock))


async def upsert_item(call: Call) -> Response:
    container, document, options = _written(call)
    if names_triggers(call):
        return await _triggered(call, container, Member(Verb.UPSERT, None, document, options=options))
    return answer_item(call, container, await items.upsert(container, document, options, call.account.clock))


async def replace_item(call: Call) -> Response:
    container, document, options = _written(call)
    key = options.key if options.key is not None else container.key_of(document)
    if call.principal.claims is not None:
        await check_token_item(call, container, key)
    item_id = await addressed_id(call, container, key)
    if names_triggers(call):
        return await _triggered(call, container, Member(Verb.REPLACE, item_id, document, options=options))
    return answer_item(call, container, await items.replace(container, item_id, document, options, call.account.clock))


async def patch_item(call: Call) -> Response:
    container = call.owner_container()
    options = _write_options(call, container)
    changes = parse_patch(parse_json(call.body))  # an object, or the bare list that JavaScript may send
    if call.principal.claims is not None:
        await check_token_item(call, container, options.key)
    item_id = await addressed_id(call, container, options.key)
    if names_triggers(call) or calls_functions(changes):
        return await _triggered(call, container, Member(Verb.PATCH, item_id, patch=changes, options=options))
    return answer_item(call, container, await items.patch(container, item_id, changes, options))


async def delete_item(call: Call) -> Response:
    container = call.owner_container()
    options = _write_options(call, container)
    if call.principal.claims is not None:
        await check_token_item(call, container, options.key)
    item_id = await addressed_id(call, container, options.key)
    if names_triggers(call):
        return await _triggered(call, container, Member(Verb.DELETE, item_id, options=options))
    return answer_item(call, container, await items.delete(container, item_id, options))


async def delete_by_key(call: Call) -> Response:
    container = call.owner_container()
    key = header_key(call, container)
    if key is None:
        raise bad_request(KEY_MISSING)
    answer = await items.delete_by_key(container, key, call.ask)
    parts = explain_delete_by_key(answer) if call.explains else None
    return call.answer(
        200, answer.charge_ru, b"", place_headers(call.headers, container, answer.range_id, answer.lsn), parts
    )


async def _triggered(call: Call, container: Container, member: Member) -> Response:
    """A write that runs the triggers which the request names."""
    triggers = named_triggers(call.account, container, member.verb, *trigger_names(call))
    done = await write_with_triggers(call.account, container, member, triggers)
    response = answer_item(call, container, done.answer)
    return with_log(response, done.log) if h.flag(call.headers, SCRIPT_LOGGING) else response


# Reading requests.


def names_triggers(call: Call) -> bool:
    return h.PRE_TRIGGERS in call.headers or h.POST_TRIGGERS in call.headers


def trigger_names(call: Call) -> tuple[list[str], list[str]]:
    """Those that run before, and those that run after."""
    lists = [(h.text(call.headers, each) or "").split(",") for each in (h.PRE_TRIGGERS, h.POST_TRIGGERS)]
    before, after = ([name.strip() for name in each if name.strip()] for each in lists)
    return before, after


def header_key(call: Call, container: Container, document: Document | None = None) -> Key | None:
    """The partition key of the request's header. A token that is for one key only must be for that key and for the
    item's own: a container that was moved to another key takes the former one in the header for a while."""
    given = call.headers.get(h.PARTITION_KEY)
    key = container.parse_key(given) if given is not None else None
    if call.principal.claims is not None:
        keys = [key] if key is not None or document is None else []
        if document is not None:
            keys.append(container.key_of(document))
        check_key(call.principal, call.route, container.key, keys)
    return key


async def addressed_id(call: Call, container: Container, key: Key | None) -> str:
    """The id of the item that the path names, which may be its rid."""
    database, _, name = call.route.segments
    # The database's segment decides, and a database may have a name that looks like a rid.
    is_rid = call.route.is_rid_based and database != container.database.name
    return await items.id_behind_rid(container, name, key) if is_rid else name


async def check_token_item(call: Call, container: Container, key: Key | None) -> None:
    """Refuse a token for an item by its rid if the path names another one by its id, and the other way round."""
    claims = call.principal.claims
    if claims is None or not names_item_otherwise(claims, call.route):
        return
    if key is None:
        raise bad_request(KEY_MISSING)
    item_id = await addressed_id(call, container, key)
    rid = await items.rid_behind_id(container, item_id, key)
    if not is_for_item(claims, item_id, rid or ""):
        raise refuse_item(call.route)


def _write_options(call: Call, container: Container, document: Document | None = None) -> ItemOptions:
    headers = call.headers
    if h.PREFER in headers:
        # Checked here because a wrong value must be refused before anything is stored; the answer reads it again.
        h.prefers_minimal(headers)
    if h.CONSISTENCY in headers:
        h.consistency(headers, call.account.settings.consistency)
    options = ItemOptions(header_key(call, container, document), ask=call.ask)
    if h.IF_MATCH in headers:
        options.if_match = h.text(headers, h.IF_MATCH)
    if h.IF_NONE_MATCH in headers:
        options.if_none_match = h.text(headers, h.IF_NONE_MATCH)
    if h.INDEXING_DIRECTIVE in headers:
        options.directive = h.indexing_directive(headers)
    return options


def _written(call: Call) -> tuple[Container, Document, ItemOptions]:
    container = call.owner_container()
    document = parse_document(call.body)
    return container, document, _write_options(call, container, document)


# Answers.


def answer_item(call: Call, container: Container, answer: Answer, read_factor: int = 1) -> Response:
    """The answer to an operation on one item: the hottest of all, so its header lines are made in one go. None of the
    values can contain a line end: ids are checked, links encoded, the rest are numbers of our own."""
    place = answer.range_id, answer.lsn, answer.item_lsn
    lines = item_lines(call.headers, call.activity_id, container, answer.charge_ru, *place)
    if call.explains:
        lines += b"\r\n%b: %b" % charge_header(explain_item(answer, read_factor))
    if answer.etag is not None:
        lines += b"\r\netag: " + answer.etag.encode("ascii")
    result = answer.result
    if result is Result.READ:
        lines += _content_location(call)
    payload = answer.payload or b""
    if h.PREFER in call.headers and result in _WRITTEN and h.prefers_minimal(call.headers):
        payload = b""
    return Response(STATUS[result], (), payload, lines)


def item_lines(
    headers: h.Headers,
    activity_id: str,
    container: Container,
    charge_ru: float,
    range_id: int,
    lsn: int,
    item_lsn: int,
) -> bytes:
    """The header lines of every answer about one item."""
    is_plain = headers.get(VERSION, VECTOR_SINCE) < VECTOR_SINCE  # as `session_tokens.expects_plain` says
    return (_PLAIN_LINES if is_plain else _LINES) % (
        activity_id.encode("ascii"),
        render_charge(charge_ru),
        range_id,
        lsn,
        h.path_headers(container.link, container.rid_text).lines,
        range_id,
        lsn,
        lsn,
        lsn,
        lsn,
        item_lsn,
        item_lsn,
    )


def _content_location(call: Call) -> bytes:
    """The whole address, as the client used it: azure-cosmos tells by its host which region has answered. Headers and
    target were parsed, so there is no line end in them."""
    headers, request = call.headers, call.request
    host = headers.get(b"host")
    if not host:
        return b"\r\ncontent-location: " + request.target
    is_tls = request.is_tls
    if b"x-forwarded-proto" in headers:
        is_tls = headers[b"x-forwarded-proto"].lower() == b"https"
    return (b"\r\ncontent-location: https://%b%b" if is_tls else b"\r\ncontent-location: http://%b%b") % (
        host,
        request.target,
    )
