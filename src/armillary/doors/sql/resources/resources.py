"""Everything but items over the SQL protocol: databases, containers, offers, users, permissions, encryption keys and
scripts. Lists and queries of them are in `lists.py`.
"""

from __future__ import annotations

from typing import Any

from armillary import limits
from armillary.account import containers
from armillary.account.catalog.container_state import Body
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.items.procedures import script_body
from armillary.account.overview import quotas_of
from armillary.account.security import permissions
from armillary.account.throughput import offers
from armillary.account.throughput.provisioning import Throughput
from armillary.account.visits.uncounted_visits import CountKeys, at_all, renew_figures
from armillary.doors.sql import headers as h
from armillary.doors.sql.call import Call
from armillary.doors.sql.headers import PostMeaning
from armillary.doors.sql.routes import is_database_rid
from armillary.errors import Failure, Kind, bad_request
from armillary.model.charges import METADATA_READ_RU, METADATA_WRITE_RU
from armillary.model.items import parse_json
from armillary.model.resources import ResourceType, rid_bytes
from armillary.net.charged_requests import HeaderList
from armillary.net.http import Response

# Clients before this version of the API may create containers without partition key, and mean hash V1 by default.
_NEW_CLIENT = b"2018-12-31"


async def read_resource(call: Call) -> Response:
    resource_type = ResourceType(call.route.resource_type)
    record = call.account.find(resource_type, call.route.segments)
    if h.text(call.headers, h.IF_NONE_MATCH) == record.etag:
        return call.answer(304, METADATA_READ_RU, b"", [(b"etag", record.etag.encode())])
    extra: HeaderList = []
    await renew_shown(call)
    content = record_content(call, record)
    if resource_type is ResourceType.CONTAINER:
        container = call.account.container(*call.route.segments)
        extra = await _container_headers(call, container)
        if h.flag(call.headers, h.POPULATE_STATISTICS):
            content["statistics"] = await _statistics(container)
    elif resource_type is ResourceType.OFFER:
        extra = _offer_headers(call, record)
    return call.answer_record(200, METADATA_READ_RU, record, content, extra)


async def delete_resource(call: Call) -> Response:
    resource_type = ResourceType(call.route.resource_type)
    if_match = h.text(call.headers, h.IF_MATCH)
    account = call.account
    if resource_type is ResourceType.CONTAINER:
        await containers.delete_container(account, account.container(*call.route.segments), if_match)
    else:
        record = account.find(resource_type, call.route.segments)
        if resource_type is ResourceType.DATABASE:
            await containers.delete_database(account, record, if_match)
        else:
            await account.catalog.delete(record, if_match=if_match)
    return call.answer(204, METADATA_WRITE_RU)


# Databases and containers.


async def create_database(call: Call) -> Response:
    record = await containers.create_database(call.account, parse_json(call.body), _throughput(call))
    return call.answer_record(201, METADATA_WRITE_RU, record)


async def create_container(call: Call) -> Response:
    database = call.account.owner(ResourceType.CONTAINER, call.route.segments)
    assert database is not None
    container = await containers.create_container(
        call.account, database, parse_json(call.body), _throughput(call), is_old_client=_is_old_client(call)
    )
    return call.answer_record(201, METADATA_WRITE_RU, container.record, record_content(call, container.record))


async def replace_container(call: Call) -> Response:
    container = call.account.container(*call.route.segments)
    if_match = h.text(call.headers, h.IF_MATCH)
    h.flag(call.headers, h.POPULATE_QUOTA)  # refused before anything is stored, if it is wrong
    record = await containers.replace_container(call.account, container, parse_json(call.body), if_match)
    content = record_content(call, record)
    return call.answer_record(200, METADATA_WRITE_RU, record, content, await _container_headers(call, container))


def _is_old_client(call: Call) -> bool:
    return call.headers.get(b"x-ms-version", _NEW_CLIENT) < _NEW_CLIENT


def _throughput(call: Call) -> Throughput | None:
    wanted = h.throughput(call.headers)
    has_minute_pool = h.flag(call.headers, h.OFFER_MINUTE_POOL)
    if wanted.manual_ru is not None:
        return Throughput.manual(wanted.manual_ru, has_minute_pool=has_minute_pool)
    if has_minute_pool:
        raise bad_request("Request units per minute need x-ms-offer-throughput: they are ten times that number.")
    if wanted.autoscale_max_ru is not None:
        return Throughput.autoscale(wanted.autoscale_max_ru, wanted.increment_percent)
    return None


async def _container_headers(call: Call, container: Container) -> HeaderList:
    headers: HeaderList = []
    if h.flag(call.headers, h.POPULATE_QUOTA):
        await renew_figures(container)
        quotas = quotas_of(call.account.catalog, container)
        headers += [
            (b"x-ms-resource-usage", quotas.usage.encode()),
            (b"x-ms-resource-quota", quotas.quota.encode()),
            (b"x-ms-documentdb-collection-index-transformation-progress", b"%d" % container.restated_percent),
        ]
    return headers


async def _statistics(container: Container) -> list[Body]:
    counts = await at_all(container, CountKeys(limits.SAMPLED_KEYS_MAX))
    return [
        {
            "id": str(partition.range.id),
            "sizeInKB": partition.head.size_bytes // limits.KB,
            "documentCount": partition.head.item_count,
            "sampledDistinctPartitionKeyCount": found.count,
            "partitionKeys": [],
        }
        for partition, found in zip(container.partitions.values(), counts, strict=True)
    ]


# Offers.


async def replace_offer(call: Call) -> Response:
    offer = call.account.find(ResourceType.OFFER, call.route.segments)
    record = await offers.replace_offer(
        call.account,
        offer,
        parse_json(call.body) if call.body else None,
        to_autoscale=h.flag(call.headers, h.MIGRATE_TO_AUTOSCALE),
        to_manual=h.flag(call.headers, h.MIGRATE_TO_MANUAL),
        if_match=h.text(call.headers, h.IF_MATCH),
    )
    content = record_content(call, record)
    return call.answer_record(200, METADATA_WRITE_RU, record, content, _offer_headers(call, record))


def _offer_headers(call: Call, offer: Record) -> HeaderList:
    return [
        (b"x-ms-cosmos-min-throughput", b"%d" % offers.minimum_ru(call.account, offer)),
        (b"x-ms-offer-replace-pending", b"true" if offers.is_pending(call.account, offer) else b"false"),
    ]


# Users, permissions, encryption keys and scripts: stored as they are, after a check.


async def create_resource(call: Call) -> Response:
    resource_type = ResourceType(call.route.resource_type)
    name, body = _checked(resource_type, parse_json(call.body))
    owner = call.account.owner(resource_type, call.route.segments)
    assert owner is not None
    present = call.account.catalog.find(resource_type, owner.rid, name)
    if h.post_meaning(call.headers) is PostMeaning.UPSERT and present is not None and present.name == name:
        return await _replace(call, present, name, body)
    if resource_type is ResourceType.PERMISSION:
        permissions.refuse_second_permission(call.account, owner, body)
        _check_token_request(call, body)
    record = await call.account.catalog.create(resource_type, owner, name, body)
    return _answer(call, 201, record)


async def replace_resource(call: Call) -> Response:
    resource_type = ResourceType(call.route.resource_type)
    record = call.account.find(resource_type, call.route.segments)
    name, body = _checked(resource_type, parse_json(call.body))
    if name != record.name and resource_type not in (ResourceType.USER, ResourceType.PERMISSION):
        raise bad_request(f"The id of {resource_type.value} '{record.name}' cannot be changed to '{name}'.")
    return await _replace(call, record, name, body)


async def _replace(call: Call, record: Record, name: str, body: Body) -> Response:
    state = None
    if record.type is ResourceType.PERMISSION:
        _check_token_request(call, body)
        state = permissions.regranting(call.account, record, body)
    if_match = h.text(call.headers, h.IF_MATCH)
    changed = await call.account.catalog.replace(record, body, name=name, state=state, if_match=if_match)
    return _answer(call, 200, changed)


def _answer(call: Call, status: int, record: Record) -> Response:
    return call.answer_record(status, METADATA_WRITE_RU, record, record_content(call, record))


def _checked(resource_type: ResourceType, given: Any) -> tuple[str, Body]:
    match resource_type:
        case ResourceType.USER:
            return permissions.user_body(given)
        case ResourceType.PERMISSION:
            return permissions.permission_body(given)
        case ResourceType.ENCRYPTION_KEY:
            return permissions.encryption_key_body(given)
        case ResourceType.PROCEDURE | ResourceType.TRIGGER | ResourceType.FUNCTION:
            return script_body(resource_type, given)
    raise AssertionError(resource_type)


async def no_such_conflict(call: Call) -> Response:
    call.account.owner_container(*call.route.segments[:2])
    raise Failure(Kind.NOT_FOUND, f"There is no conflict '{call.route.segments[2]}': one region has none.")


async def renew_shown(call: Call) -> None:
    """Before resources are answered: what they say of partitions that other processes hold."""
    if call.route.resource_type == ResourceType.OFFER.value:
        await call.account.refresh_figures()


def record_content(call: Call, record: Record) -> Body:
    """A resource as this client is answered: a permission with a token that is new each time, an offer with what is
    true at this moment, and a container without partition key with the one that newer clients take it to have."""
    if record.type is ResourceType.OFFER:
        return offers.offer_content(call.account, record)
    content = record.to_json()
    if record.type is ResourceType.PERMISSION:
        content["_token"] = _permission_token(call, record)
    elif record.type is ResourceType.CONTAINER and "partitionKey" not in content and not _is_old_client(call):
        content["partitionKey"] = containers.SYSTEM_KEY
    return content


# Permission tokens.


def _check_token_request(call: Call, body: Body) -> None:
    """Refuse what no token can be issued for before the permission is stored, not after."""
    h.token_lifetime_s(call.headers)
    _both_links(call, body["resource"].strip("/"))


def _permission_token(call: Call, record: Record) -> str:
    name_link, rid_link, rids = _both_links(call, record.body["resource"].strip("/"))
    return call.services.tokens.issue(
        permission_rid=record.rid_text,
        mode=record.body["permissionMode"].capitalize(),
        name_link=name_link,
        rid_link=rid_link,
        partition_key=record.body.get("resourcePartitionKey"),
        lifetime_s=h.token_lifetime_s(call.headers) or limits.RESOURCE_TOKEN_SECONDS_DEFAULT,
        rids=rids,
        grant=permissions.grant_of(record),
        is_secondary=call.principal.is_secondary,
    )


def _both_links(call: Call, link: str) -> tuple[str, str, list[str]]:
    """A permission's resource by name and by rid, and the rids that are known. From where it does not exist (yet), only
    the form it was given in is known, and the words of the other are empty: for items that is always so, since neither
    form of their link tells the other."""
    words = link.split("/")
    if len(words) not in (2, 4, 6):
        raise bad_request(f"The permission's resource '{link}' is not a link such as dbs/<db>/colls/<coll>.")
    is_rid_based = is_database_rid(words[1]) and call.account.catalog.get(
        ResourceType.DATABASE, rid_bytes(words[1]) or b""
    )
    names: list[str] = []
    rids: list[str] = []
    owner = b""
    for type_word, name in zip(words[::2], words[1::2], strict=True):
        record = _find(call, type_word, owner, name)
        if record is None:
            rest = words[len(names) :]
            unknown = [word if place % 2 == 0 else "" for place, word in enumerate(rest)]
            named, numbered = (unknown, rest) if is_rid_based else (rest, unknown)
            return "/".join([*names, *named]), "/".join([*rids, *numbered]), rids[1::2]
        names += [type_word, record.name]
        rids += [type_word, record.rid_text]
        owner = record.rid
    return "/".join(names), "/".join(rids), rids[1::2]


def _find(call: Call, type_word: str, owner: bytes, name: str) -> Record | None:
    try:
        return call.account.catalog.find(ResourceType(type_word), owner, name)
    except ValueError:
        return None
