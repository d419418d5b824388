"""The Table SDK of .NET (`Microsoft.Azure.Cosmos.Table`), which speaks the SQL protocol to the containers of tables.

Three things it expects of tables, and of no other container:

- *Etags* that are a time: the SDK makes a table's etag of the last half of an item's, and sends back an etag whose
  first half is zero. Its requests and answers are translated; the etag of `model/edm.py` is the same at the Table door.
- *A procedure of the service*, `__.sys.tablesBatchOperation`, for merges and for batches.
- *The texts of failures* of that procedure, by which it tells them apart: its status is always 400.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson

from armillary import limits
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions, Member, Outcome, Verb
from armillary.doors.sql import headers as h
from armillary.doors.sql.call import Call
from armillary.doors.sql.items.documents import addressed_id, header_key
from armillary.doors.sql.session_tokens import place_headers
from armillary.errors import Failure, Kind, bad_request
from armillary.model import edm
from armillary.model.keys import KEY_MISSING, Key
from armillary.net.http import Response

PROCEDURE: Final = "__.sys.tablesBatchOperation"

TABLES: Final = "TablesDB"
_AGENT: Final = b"cosmos-table-sdk/"
_ETAG: Final = re.compile(rb'(?<=\\")[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=\\"")')
_ETAG_MEMBER: Final = re.compile(rb'(?<!\\)"_etag":"\\"[0-9a-f-]{36}\\""')
_ETAG_LINE: Final = re.compile(rb'(?m)^etag: ("[0-9a-f-]{36}")')
_NO_SUCH_ETAG: Final = '"no write has made this"'
# TableOperationType of the SDK. A merge needs an item; one without a condition inserts it if there is none.
_INSERT, _DELETE, _REPLACE, _MERGE, _INSERT_OR_REPLACE, _INSERT_OR_MERGE, _RETRIEVE = range(7)
_VERBS: Final = {
    _INSERT: Verb.CREATE,
    _DELETE: Verb.DELETE,
    _REPLACE: Verb.REPLACE,
    _MERGE: Verb.MERGE,
    _INSERT_OR_REPLACE: Verb.UPSERT,
    _INSERT_OR_MERGE: Verb.MERGE,
    _RETRIEVE: Verb.READ,
}
_CONDITIONAL: Final = (_DELETE, _REPLACE, _MERGE)
_TEXTS: Final = {
    Kind.NOT_FOUND: "Resource Not Found",
    Kind.PRECONDITION_FAILED: "One of the specified pre-condition is not met",
    Kind.CONFLICT: "Resource with specified id or name already exists",
}

Action = Callable[[Call], Awaitable[Response]]


def is_table_client(call: Call) -> bool:
    """Of a request that names the database of tables."""
    return _AGENT in call.headers.get(b"user-agent", b"")


def is_table(container: Container) -> bool:
    return container.database.name == TABLES and container.key is not None and container.key.steps == edm.KEY_STEPS


async def translated(action: Action, call: Call) -> Response:
    """The answer of an action, with the etags that the SDK reads; the condition of the request is the SDK's."""
    given = call.headers.get(h.IF_MATCH)
    if given is not None and call.route.resource_type == "docs":
        container = call.owner_container()
        key = header_key(call, container)
        if key is not None:
            item_id = await addressed_id(call, container, key)
            known = await known_etag(container, item_id, key, given.decode("latin-1"))
            call.headers = {**call.headers, h.IF_MATCH: known.encode("latin-1")}
    response = await action(call)
    headers = [(name, _time_etag(value) if name == b"etag" else value) for name, value in response.headers]
    lines = _ETAG_LINE.sub(lambda found: b"etag: " + _time_etag(found[1]), response.lines)
    body = _ETAG_MEMBER.sub(lambda found: _ETAG.sub(lambda digits: _time_digits(digits[0]), found[0]), response.body)
    return Response(response.status, headers, body, lines)


def _time_etag(etag: bytes) -> bytes:
    return b'"%b"' % _time_digits(etag[1:-1]) if len(etag) == 38 else etag


def _time_digits(digits: bytes) -> bytes:
    return edm.file_time_digits(edm.ticks_of_etag(f'"{digits.decode("ascii")}"')).encode("ascii")


async def known_etag(container: Container, item_id: str, key: Key, given: str) -> str:
    """The item's own etag, if the given one is its time; else one that no item has."""
    if given == "*":
        return given
    present = await items.present_etag(container, item_id, key)
    if present is not None and given.strip('"') == edm.file_time_digits(edm.ticks_of_etag(present)):
        return present
    return given if given == present else _NO_SUCH_ETAG


async def run_procedure(call: Call, container: Container, arguments: list[Any]) -> Response:
    """`__.sys.tablesBatchOperation`: documents, the types of their operations, and their etags, as one batch."""
    key = header_key(call, container)
    if key is None:
        raise bad_request(KEY_MISSING)
    members = await _members(container, key, arguments)
    options = ItemOptions(key=key, session=call.session(), ask=call.ask)
    answer = await items.batch(container, key, members, options, call.account.clock)
    documents = []
    for index, outcome in enumerate(answer.members):
        if isinstance(outcome, Outcome):
            documents.append(outcome.payload or b"{}")
        elif outcome.kind is not Kind.FAILED_DEPENDENCY:
            outcome.charge_ru, outcome.is_metered = answer.charge_ru, True
            raise _told(outcome, index)
    # The procedure answers with a text, which is a JSON array itself.
    text = b"[" + b",".join(documents) + b"]"
    if _AGENT in call.headers.get(b"user-agent", b""):
        text = _ETAG_MEMBER.sub(lambda found: _ETAG.sub(lambda digits: _time_digits(digits[0]), found[0]), text)
    place = place_headers(call.headers, container, answer.range_id, answer.lsn)
    return call.answer(200, answer.charge_ru, orjson.dumps(text.decode()), place)


async def _members(container: Container, key: Key, arguments: list[Any]) -> list[Member]:
    if len(arguments) != 3 or not all(isinstance(each, list) for each in arguments):
        raise bad_request(f"{PROCEDURE} takes three arrays: documents, types of operations, etags.")
    documents, kinds, etags = arguments
    if not 0 < len(documents) <= limits.BATCH_OPERATIONS_MAX or not len(documents) == len(kinds) == len(etags):
        raise bad_request(
            f"{PROCEDURE} takes as many documents as types and etags, from 1 to {limits.BATCH_OPERATIONS_MAX}."
        )
    members = []
    for index, (document, kind, etag) in enumerate(zip(documents, kinds, etags, strict=True)):
        verb = _VERBS.get(kind) if type(kind) is int else None
        item_id = document.get("id") if isinstance(document, dict) else None
        if verb is None or not isinstance(item_id, str) or not isinstance(etag, str | None):
            raise bad_request(f"Operation {index} of {PROCEDURE} has a document without an id, or an unknown type.")
        if_match = await known_etag(container, item_id, key, etag) if etag and kind in _CONDITIONAL else None
        if kind == _MERGE and if_match is None:
            if_match = "*"
        has_document = verb not in (Verb.READ, Verb.DELETE)
        options = ItemOptions(key=key, if_match=if_match)
        members.append(Member(verb, item_id, document if has_document else None, options=options))
    return members


def _told(failure: Failure, index: int) -> Failure:
    """A failure as the procedure reports it. What may be tried again stays what it is."""
    text = _TEXTS.get(failure.kind)
    if text is None:
        return failure
    message = f"{text}. OperationCount:{index}. {failure.message}"
    told = Failure(Kind.SCRIPT_FAILED, message, charge_ru=failure.charge_ru)
    told.is_metered = failure.is_metered
    return told
