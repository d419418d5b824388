"""Single entities over the Table protocol: insert, read, update, merge, delete, and their forms that insert what is not
there. What an operation asks for is an Order, which batches make too; doing it is `account/items/items.py`'s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.items import ItemOptions, Verb
from armillary.account.throughput.charge_explanations import explain_item
from armillary.account.visits.read_visits import Answer
from armillary.doors.table.access.grants import Action
from armillary.doors.table.addresses import Address, Place
from armillary.doors.table.call import Call, Preference, preference_of
from armillary.doors.table.entities.entities import (
    Members,
    Sent,
    check_keys,
    edit_link,
    entity_json,
    etag_text,
    item_of,
    read_entity,
)
from armillary.doors.table.errors import bad_input, refused
from armillary.doors.table.service import storage_rules
from armillary.errors import Failure, Kind
from armillary.model import edm
from armillary.model.keys import Key
from armillary.net.charged_requests import HeaderList
from armillary.net.http import Response

_NO_SUCH_ETAG: Final = '"no write has made this"'
_METHODS: Final = ("PUT", "PATCH", "MERGE")
_CONDITIONS_NOT_OFFERED: Final = (b"if-none-match", b"if-modified-since", b"if-unmodified-since")


class Order(NamedTuple):
    """What is to be done to one entity."""

    verb: Verb
    action: Action
    partition_key: str
    row_key: str
    members: Members | None  # None: there is nothing to write
    if_match: str | None  # as the client wrote it
    preference: Preference

    @property
    def item_id(self) -> str:
        return edm.item_id(self.row_key)

    def document(self) -> dict[str, Any]:
        assert self.members is not None
        return item_of(self.partition_key, self.row_key, self.members)


def order_of(call: Call, method: str, address: Address, headers: Mapping[bytes, bytes], body: Any) -> Order:
    """What a request means: `body` is its JSON, which a DELETE does not look at."""
    if_match = headers.get(b"if-match")
    wanted = if_match.decode("latin-1") if if_match is not None else None
    for name in _CONDITIONS_NOT_OFFERED:
        if name in headers:
            raise refused(
                "ConditionHeadersNotSupported",
                f"Condition headers are not supported: {name.decode()}. Writes know If-Match alone.",
            )
    if wanted is not None and method == "POST":
        raise refused("ConditionHeadersNotSupported", "Condition headers are not supported: if-match with an insert.")
    preference = preference_of(headers) if method == "POST" else Preference.NONE
    if method == "DELETE":
        if wanted is None:
            raise refused(
                "MissingRequiredHeader",
                "A required HTTP header was not specified: a DELETE of an entity needs If-Match, an etag or *.",
            )
        assert address.keys is not None
        keys = check_keys(*address.keys, is_storage=call.is_storage)
        return Order(Verb.DELETE, Action.DELETE, *keys, None, wanted, preference)
    sent = read_entity(body, is_storage=call.is_storage, is_addressed=method != "POST")
    if call.is_storage:
        storage_rules.check_members(sent.members)
    if method == "POST":
        keys = check_keys(sent.partition_key, sent.row_key, is_storage=call.is_storage)
        return Order(Verb.CREATE, Action.INSERT, *keys, sent.members, None, preference)
    if address.keys is None or method not in _METHODS:
        raise bad_input("An entity is changed with PUT, PATCH or MERGE, at an address with both keys.")
    _check_same(sent, address.keys)
    keys = check_keys(*address.keys, is_storage=call.is_storage)
    action = Action.UPSERT if wanted is None else Action.UPDATE
    if method == "PUT":
        verb = Verb.UPSERT if wanted is None else Verb.REPLACE
    else:
        verb = Verb.MERGE
    return Order(verb, action, *keys, sent.members, wanted, preference)


def _check_same(sent: Sent, keys: tuple[str, str]) -> None:
    for name, given, addressed in (("PartitionKey", sent.partition_key, keys[0]), ("RowKey", sent.row_key, keys[1])):
        if given is not None and given != addressed:
            raise bad_input(f"The {name} of the entity is not that of the address.")


async def known_etag(container: Container, order: Order) -> str | None:
    """The etag in the core's form. It holds more than the client's, so the item itself is asked; whatever happens to
    that meanwhile, it then has another one."""
    if order.if_match is None or order.if_match == "*":
        return order.if_match
    present = await items.present_etag(container, order.item_id, Key((order.partition_key,)))
    if present is not None and _same_etag(order.if_match, wire_etag(present)):
        return present
    return _NO_SUCH_ETAG


def _same_etag(first: str, second: str) -> bool:
    return _plain(first) == _plain(second)


def _plain(etag: str) -> str:
    return etag.replace("%3A", ":").replace("%3a", ":")


def wire_etag(etag: str) -> str:
    return etag_text(edm.full_moment_text(edm.ticks_of_etag(etag)))


async def write_entity(call: Call) -> Response:
    """Every change of one entity."""
    address, method = call.address, meant_method(call.request.method, call.headers)
    body = call.json() if method != "DELETE" else None
    order = order_of(call, method, address, call.headers, body)
    table = call.table(order.action)
    call.grant.check_keys(order.partition_key, order.row_key)
    options = ItemOptions(key=Key((order.partition_key,)), if_match=await known_etag(table, order))
    clock = call.account.clock
    match order.verb:
        case Verb.CREATE:
            answer = await items.create(table, order.document(), options, clock)
        case Verb.UPSERT:
            answer = await items.upsert(table, order.document(), options, clock)
        case Verb.REPLACE:
            answer = await items.replace(table, order.item_id, order.document(), options, clock)
        case Verb.MERGE:
            answer = await items.merge(table, order.document(), options, clock)
        case _:
            answer = await items.delete(table, order.item_id, options)
    status, headers, content = written(call, table, order, answer.etag, answer.payload)
    return call.answer(status, answer.charge_ru, content, headers, explain_item(answer) if call.explains else None)


def written(
    call: Call, table: Container, order: Order, etag: str | None, payload: bytes | None
) -> tuple[int, HeaderList, bytes]:
    """What is answered when an order was carried out: status, headers, body."""
    if order.verb is Verb.DELETE:
        return 204, [], b""
    assert etag is not None and payload is not None
    headers: HeaderList = [(b"etag", wire_etag(etag).encode("ascii"))]
    if order.verb is not Verb.CREATE:
        return 204, headers, b""
    location = f"{call.root_url}/{edit_link(table.name, order.partition_key, order.row_key)}"
    headers += [(b"location", location.encode("ascii", "xmlcharrefreplace")), *order.preference.headers]
    if order.preference is Preference.NO_CONTENT:
        return 204, [*headers, (b"dataserviceid", headers[1][1])], b""
    entity = entity_json(orjson.loads(payload), call.form(table.name))
    assert entity is not None, "we have just made it"
    return 201, headers, orjson.dumps({**call.metadata(f"{table.name}/@Element"), **entity})


async def read_one(call: Call) -> Response:
    assert call.address.keys is not None
    table = call.table(Action.QUERY)
    partition_key, row_key = check_keys(*call.address.keys, is_storage=call.is_storage)
    call.grant.check_keys(partition_key, row_key)
    options = ItemOptions(key=Key((partition_key,)), read_factor=call.read_factor)
    answer: Answer = await items.read(table, edm.item_id(row_key), options)
    assert answer.payload is not None and answer.etag is not None
    wanted = call.address.query.get("$select")
    entity = call.services.rendered.text(answer.payload, call.form(table.name, selected(wanted)))
    if not entity:
        raise _after_reading(answer, Kind.NOT_FOUND, "What is stored there is no entity.")
    etag = wire_etag(answer.etag)
    if_match, if_none_match = (
        call.headers.get(name, b"").decode("latin-1") for name in (b"if-match", b"if-none-match")
    )
    if if_match not in ("", "*") and not _same_etag(if_match, etag):
        raise _after_reading(answer, Kind.PRECONDITION_FAILED, "The entity has another etag.")
    headers = [(b"etag", etag.encode("ascii"))]
    parts = explain_item(answer, options.read_factor) if call.explains else None
    if if_none_match and (if_none_match == "*" or _same_etag(if_none_match, etag)):
        return call.answer(304, answer.charge_ru, b"", headers, parts)
    metadata = call.metadata(f"{table.name}/@Element")
    content = orjson.dumps(metadata)[:-1] + (b"," if len(entity) > 2 else b"") + entity[1:] if metadata else entity
    return call.answer(200, answer.charge_ru, content, headers, parts)


def _after_reading(answer: Answer, kind: Kind, message: str) -> Failure:
    failure = Failure(kind, message, charge_ru=answer.charge_ru)
    failure.is_metered = True
    return failure


def selected(text: str | None) -> frozenset[str] | None:
    """The properties of `$select`; None: all."""
    if text is None or text.strip() in ("", "*"):
        return None
    return frozenset(name.strip() for name in text.split(","))


def meant_method(method: str, headers: Mapping[bytes, bytes]) -> str:
    """The verb that is meant: `X-HTTP-Method` says it where a client can send a POST only."""
    given = headers.get(b"x-http-method")
    if given is None:
        return method
    if method != "POST":
        raise refused("XMethodNotUsingPost", "The request uses X-HTTP-Method with an HTTP verb other than POST.")
    meant = given.decode("latin-1").strip()
    if meant not in (*_METHODS, "DELETE"):
        raise refused(
            "XMethodIncorrectValue", "The specified X-HTTP-Method is invalid: it is MERGE, PATCH, PUT or DELETE."
        )
    return meant


def place_allows(place: Place, method: str) -> bool:
    """Whether a verb makes a change there."""
    if place is Place.TABLE:
        return method == "POST"
    return place is Place.ENTITY and (method in _METHODS or method == "DELETE")
