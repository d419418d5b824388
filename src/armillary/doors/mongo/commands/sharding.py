"""Sharding and throughput: shardCollection, and Cosmos DB's own commands under `customAction`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from armillary.account import containers
from armillary.account.catalog.records import Record
from armillary.account.collections.new_collections import fault_of_shard_key
from armillary.account.container import Container
from armillary.account.throughput import offers
from armillary.account.throughput.provisioning import Throughput, offer_body, throughput_of
from armillary.account.visits.uncounted_visits import renew_figures
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply, check_collection, check_database
from armillary.doors.mongo.commands import capped, indexes
from armillary.doors.mongo.fields import Fields
from armillary.errors import Failure, Kind, bad_request
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document

_FIXED_RU_MAX: Final = 10_000


async def shard_collection(call: Call) -> Reply:
    database, _, collection = call.fields.text(call.name).partition(".")
    check_database(database)
    check_collection(database, collection)
    key = shard_key_of(call.fields.document("key"))
    if call.fields.flag("unique", False):
        raise refusal(115, "shardCollection with unique: true is not supported: make a unique index.")
    call.database = database
    container = namespaces.find(call, collection)
    if container is None:
        await namespaces.create(call, collection, key, None, {})
    elif namespaces.shard_fields(container) != key:
        await _convert(call, container, key)
    return {"_t": "ShardCollectionResponse", "collectionsharded": f"{database}.{collection}"}


async def _convert(call: Call, container: Container, key: tuple[str, ...]) -> None:
    """Replace an empty unsharded collection by a sharded one."""
    name = container.name
    if container.key is not None:
        raise refusal(23, f"sharding already enabled for collection {call.database}.{name} with another shard key")
    await renew_figures(container)
    if any(partition.head.item_count for partition in container.partitions.values()):
        raise refusal(20, f"The collection {call.database}.{name} has documents: only an empty one can be sharded.")
    if capped.is_capped(container):
        raise refusal(72, f"can't shard a capped collection: {call.database}.{name}")
    throughput = current_throughput(call, container.record)
    options = namespaces.options_of(container)
    await containers.delete_container(call.account, container, None)
    await namespaces.create(call, name, key, throughput, options)


def shard_key_of(given: Document) -> tuple[str, ...]:
    if not given:
        raise refusal(72, "shard key cannot be empty")
    for name, kind in given.items():
        is_one = isinstance(kind, int | float) and not isinstance(kind, bool) and kind == 1
        if not is_one and kind != "hashed":
            raise refusal(2, f'Unsupported shard key pattern {{{name}: {kind}}}: a field is 1 or "hashed"')
    fault = fault_of_shard_key(tuple(given))
    if fault is not None:
        raise refusal(2, fault)
    return tuple(given)


async def enable_sharding(call: Call) -> Reply:
    database = check_database(call.fields.text(call.name))
    if namespaces.find_database(call, database) is None:
        await _make_database(call, database, None)
    return {}


# customAction.


async def custom_action(call: Call) -> Reply:
    wanted = call.fields.text("customAction")
    action = _ACTIONS.get(wanted.lower())
    if action is None:
        raise refusal(115, f"The customAction '{wanted[:64]}' is not supported.")
    return await action(call)


async def _create_database(call: Call) -> Reply:
    if namespaces.find_database(call, call.database) is not None:
        raise refusal(48, f"Database {call.database} already exists.")
    await _make_database(call, call.database, wanted_throughput(call))
    return {}


async def _make_database(call: Call, name: str, throughput: Throughput | None) -> None:
    try:
        await containers.create_database(call.account, {"id": name}, throughput)
    except Failure as failure:
        if failure.kind is not Kind.CONFLICT:
            raise


async def _update_database(call: Call) -> Reply:
    record = namespaces.find_database(call, call.database)
    if record is None:
        raise refusal(26, f"Database {call.database} does not exist.")
    await _change_throughput(call, record)
    return {}


async def _get_database(call: Call) -> Reply:
    record = namespaces.find_database(call, call.database)
    if record is None:
        raise refusal(26, f"Database {call.database} does not exist.")
    return {"database": call.database, **_shown_throughput(call, record)}


async def _create_collection(call: Call) -> Reply:
    collection = call.collection("collection")
    namespaces.check_new(call, collection)
    given = call.body.get("shardKey")
    if given is None:
        key: tuple[str, ...] = ()
    elif type(given) is str:
        key = shard_key_of({given: "hashed"})
    else:
        key = shard_key_of(call.fields.document("shardKey"))
    throughput = wanted_throughput(call)
    if throughput is not None and throughput.ru > _FIXED_RU_MAX and not key:
        raise refusal(2, f"A collection with more than {_FIXED_RU_MAX} RU/s needs a shardKey.")
    if namespaces.find(call, collection) is not None:
        raise refusal(48, f"Collection {call.database}.{collection} already exists.")
    try:
        container = await namespaces.create(call, collection, key, throughput, {})
    except Failure as failure:
        if failure.kind is not Kind.CONFLICT:
            raise
        raise refusal(48, f"Collection {call.database}.{collection} already exists.") from None
    if call.body.get("indexes"):
        await indexes.make(call, container, call.fields.documents("indexes"))
    return {}


async def _update_collection(call: Call) -> Reply:
    collection = call.collection("collection")
    container = namespaces.existing(call, collection)
    if wanted_throughput(call) is not None:
        await _change_throughput(call, container.record)
    if call.body.get("indexes"):
        await indexes.make(call, container, call.fields.documents("indexes"))
    return {}


async def _get_collection(call: Call) -> Reply:
    collection = call.collection("collection")
    container = namespaces.existing(call, collection)
    answer: Document = {"database": call.database, "collection": collection}
    fields = namespaces.shard_fields(container)
    if fields:
        answer["shardKeyDefinition"] = dict.fromkeys(fields, "hashed")
    return answer | _shown_throughput(call, container.record)


_ACTIONS: Final[dict[str, Callable[[Call], Awaitable[Reply]]]] = {
    "createdatabase": _create_database,
    "updatedatabase": _update_database,
    "getdatabase": _get_database,
    "createcollection": _create_collection,
    "updatecollection": _update_collection,
    "getcollection": _get_collection,
}


# Throughput.


def wanted_throughput(call: Call) -> Throughput | None:
    fields = call.fields
    automatic = fields.optional_document("autoScaleSettings")
    ru = fields.whole("offerThroughput")
    if automatic is not None and ru is not None:
        raise refusal(2, "offerThroughput and autoScaleSettings exclude each other")
    try:
        if automatic is not None:
            most = Fields(automatic, "autoScaleSettings").whole("maxThroughput")
            if most is None:
                raise bad_request("autoScaleSettings needs maxThroughput")
            return Throughput.autoscale(most, None)
        return Throughput.manual(ru) if ru is not None else None
    except Failure as failure:
        raise refusal(2, failure.message) from None


def current_throughput(call: Call, record: Record) -> Throughput | None:
    offer = offers.offer_of(call.account, record)
    return throughput_of(offer.body) if offer is not None else None


def _shown_throughput(call: Call, record: Record) -> Document:
    throughput = current_throughput(call, record)
    if throughput is None:
        return {}
    if throughput.is_autoscale:
        return {
            "provisionedThroughput": throughput.least_ru,
            "autoScaleSettings": {"maxThroughput": throughput.ru},
        }
    return {"provisionedThroughput": throughput.ru}


async def _change_throughput(call: Call, record: Record) -> None:
    throughput = wanted_throughput(call)
    if throughput is None:
        raise refusal(2, "Say offerThroughput or autoScaleSettings")
    offer = offers.offer_of(call.account, record)
    if offer is None:
        raise refusal(2, "It has no throughput of its own: its database's is shared")
    present = throughput_of(offer.body)
    if present.is_autoscale != throughput.is_autoscale:
        offer = await offers.replace_offer(
            call.account,
            offer,
            None,
            to_autoscale=throughput.is_autoscale,
            to_manual=present.is_autoscale,
            if_match=None,
        )
    wanted = {"content": offer_body(throughput, "", "", throughput.ru)["content"]}
    try:
        await offers.replace_offer(call.account, offer, wanted, to_autoscale=False, to_manual=False, if_match=None)
    except Failure as failure:
        raise refusal(2, failure.message) from None
