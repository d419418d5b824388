"""Tables themselves: making, listing, finding and deleting them. A table is a container of one database, with the
partition key `/$pk`."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Any

import orjson

from armillary import limits
from armillary.account import containers
from armillary.account.catalog.records import Record
from armillary.account.catalog.tables import find_table, table_body, tables_database, tables_of
from armillary.account.throughput.offers import offer_of
from armillary.account.throughput.provisioning import Throughput, parse_autopilot
from armillary.doors.table.access.grants import Action
from armillary.doors.table.addresses import check_new_table
from armillary.doors.table.call import Call, Preference, preference_of
from armillary.doors.table.entities.entities import quoted
from armillary.doors.table.errors import bad_input, refused
from armillary.doors.table.service import storage_rules
from armillary.errors import Failure, Kind
from armillary.languages.odata.compile import compile_list_filter
from armillary.model.charges import METADATA_FEED_RU, METADATA_READ_RU, METADATA_WRITE_RU
from armillary.net.charged_requests import HeaderList
from armillary.net.http import Response


async def create_table(call: Call) -> Response:
    call.grant.check(Action.CREATE_TABLE)
    body = call.json()
    if type(body) is not dict:
        raise bad_input('A table is made with {"TableName": "…"}.')
    unknown = [name for name in body if name != "TableName" and not name.startswith("odata.")]
    if unknown:
        raise bad_input(f"A table has no property '{unknown[0][:64]}'.")
    preference = preference_of(call.headers)
    name = body.get("TableName")
    if call.is_storage and type(name) is str:
        storage_rules.check_table(name)
    name = check_new_table(name)
    database = await tables_database(call.account)
    taken = refused("TableAlreadyExists", f"The specified table already exists: '{name}'.", Kind.CONFLICT)
    if call.is_storage and _is_there(call, name):
        raise taken
    try:
        await containers.create_container(
            call.account,
            database,
            table_body(name),
            _throughput(call, database),
        )
    except Failure as failure:
        if failure.kind is Kind.CONFLICT:
            raise taken from None
        if failure.kind is Kind.BAD_REQUEST:
            raise refused("BadRequest", failure.message) from None
        raise
    location = f"{call.root_url}/Tables('{quoted(name)}')".encode("ascii")
    headers: HeaderList = [(b"location", location), *preference.headers]
    if preference is Preference.NO_CONTENT:
        return call.answer(204, METADATA_WRITE_RU, b"", [*headers, (b"dataserviceid", location)])
    content = {**call.metadata("Tables/@Element"), **_entry(call, name)}
    return call.answer(201, METADATA_WRITE_RU, orjson.dumps(content), headers)


async def list_tables(call: Call) -> Response:
    call.grant.check(Action.LIST_TABLES)
    query = call.address.query
    keeps = compile_list_filter(query["$filter"]) if query.get("$filter") else None
    top = top_of(call)
    first = _decoded(query["NextTableName"]) if "NextTableName" in query else ""
    wanted = query.get("$select")
    if wanted is not None and {name.strip() for name in wanted.split(",")} - {"TableName", "*"}:
        raise bad_input("$select of tables knows TableName alone.")
    names = sorted(name for name in _names(call) if name >= first and (keeps is None or keeps({"TableName": name})))
    page, rest = names[:top], names[top:]
    extra: HeaderList = [(b"x-ms-continuation-nexttablename", _encoded(rest[0]))] if rest else []
    content = {**call.metadata("Tables"), "value": [_entry(call, name) for name in page]}
    return call.answer(200, METADATA_FEED_RU, orjson.dumps(content), extra)


async def read_table(call: Call) -> Response:
    call.grant.check(Action.LIST_TABLES)
    name = call.table_name()
    found = find_table(call.account, name, is_storage=call.is_storage)
    content = {**call.metadata("Tables/@Element"), **_entry(call, found.name)}
    return call.answer(200, METADATA_READ_RU, orjson.dumps(content))


async def delete_table(call: Call) -> Response:
    call.grant.check(Action.DELETE_TABLE)
    name = call.table_name()
    container = find_table(call.account, name, is_storage=call.is_storage)
    try:
        await containers.delete_container(call.account, container, None)
    except Failure as failure:
        if failure.kind is Kind.NOT_FOUND:
            raise Failure(Kind.OWNER_NOT_FOUND, failure.message) from None
        raise
    return call.answer(204, METADATA_WRITE_RU)


def top_of(call: Call) -> int:
    """How many are wanted at once. More than a page are given in several."""
    given = call.address.query.get("$top")
    if given is None:
        return limits.TABLE_PAGE_ITEMS
    if not given.isascii() or not given.isdigit() or len(given) > 10 or not int(given):
        raise bad_input(f"$top must be a whole number from 1, not '{given[:20]}'.")
    if int(given) > limits.TABLE_PAGE_ITEMS and call.is_storage:
        raise bad_input(f"$top must be at most {limits.TABLE_PAGE_ITEMS}.")
    return min(int(given), limits.TABLE_PAGE_ITEMS)


def _names(call: Call) -> list[str]:
    return [each.name for each in tables_of(call.account)]


def _is_there(call: Call, name: str) -> bool:
    return name.lower() in {each.lower() for each in _names(call)}


def _throughput(call: Call, database: Record) -> Throughput | None:
    """What the request asks for, or the default; None where the database shares its own, or nothing is provisioned."""
    manual = call.headers.get(b"x-ms-offer-throughput")
    autoscale = call.headers.get(b"x-ms-cosmos-offer-autopilot-settings")
    if manual is not None and autoscale is not None:
        raise refused("BadRequest", "A table has manual or autoscale throughput, not both.")
    if autoscale is not None:
        try:
            settings = orjson.loads(autoscale)
        except ValueError:
            raise refused("BadRequest", "The autoscale settings must be a JSON object with 'maxThroughput'.") from None
        return parse_autopilot(settings)
    if manual is None:
        if call.account.settings.is_serverless or offer_of(call.account, database) is not None:
            return None
        return Throughput.manual(call.services.settings.throughput_ru)
    if not manual.isdigit() or len(manual) > 9:
        raise refused("BadRequest", "x-ms-offer-throughput must be a whole number of request units a second.")
    return Throughput.manual(int(manual))


def _entry(call: Call, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"TableName": name}
    if call.level != "full":
        return entry
    link = f"Tables('{quoted(name)}')"
    return {
        "odata.type": f"{call.account.settings.name}.Tables",
        "odata.id": f"{call.root_url}/{link}",
        "odata.editLink": link,
        **entry,
    }


def _encoded(name: str) -> bytes:
    """Names may be of any script; headers are ASCII."""
    return b"1!" + urlsafe_b64encode(name.encode())


def _decoded(token: str) -> str:
    try:
        if not token.startswith("1!"):
            raise ValueError(token)
        return urlsafe_b64decode(token[2:].encode("ascii")).decode()
    except (ValueError, Base64Error):
        raise refused(
            "InvalidQueryParameterValue",
            "Value for one of the query parameters specified in the request URI is invalid: NextTableName is not one "
            "that was given.",
        ) from None
