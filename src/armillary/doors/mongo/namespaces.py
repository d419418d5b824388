"""Collections as containers: finding them, creating them on the first insert, and their options. An unsharded
collection is a container without partition key; a shard key is a partition key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bson.binary import UUID_SUBTYPE, Binary

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.catalog.container_state import CollectionState, ContainerState
from armillary.account.catalog.records import Record
from armillary.account.collections import event_feed, indexes
from armillary.account.collections.collection_rules import options_of as options_of
from armillary.account.collections.collection_rules import plain_fields as plain_fields
from armillary.account.collections.collection_rules import shard_fields as shard_fields
from armillary.account.collections.collection_rules import value_at as value_at
from armillary.account.collections.new_collections import PENDING as PENDING
from armillary.account.collections.new_collections import SYSTEM as SYSTEM
from armillary.account.collections.new_collections import collection_body, fault_of_name, with_options
from armillary.account.container import Container
from armillary.account.throughput.provisioning import Throughput
from armillary.doors.mongo.call import Call
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import MISSING, Document
from armillary.model.resources import ResourceType


def find(call: Call, collection: str, database: str | None = None) -> Container | None:
    """The container of a collection; None: there is none."""
    name = call.database if database is None else database
    try:
        container = call.account.container(name, collection)
    except Failure as failure:
        if failure.kind not in (Kind.NOT_FOUND, Kind.OWNER_NOT_FOUND):
            raise
        return call.transaction.made.get((name, collection)) if call.transaction is not None else None
    # `account.container` finds rids too, which are no names here.
    return container if container.name == collection and container.database.name == name else None


def existing(call: Call, collection: str, text: str = "ns not found") -> Container:
    container = find(call, collection)
    if container is None:
        raise refusal(26, text)
    return container


def find_database(call: Call, name: str) -> Record | None:
    record = call.account.catalog.find(ResourceType.DATABASE, b"", name)
    return record if record is not None and record.name == name else None


async def for_writing(call: Call, collection: str) -> Container:
    """The container of a collection, created if it does not exist."""
    container = find(call, collection)
    if container is not None:
        return container
    record = find_database(call, call.database)
    if record is not None and collection in record.state.get("mongo_views", {}):
        raise refusal(166, f"Namespace {call.database}.{collection} is a view, not a collection")
    check_new(call, collection)
    try:
        return await create(call, collection, (), None, {})
    except Failure as failure:
        if failure.kind is not Kind.CONFLICT:
            raise
    return existing(call, collection)  # created by another request meanwhile


def check_new(call: Call, collection: str) -> None:
    fault = fault_of_name(call.database, collection)
    if fault is not None:
        raise refusal(73, fault)


async def create(
    call: Call, collection: str, shard_key: tuple[str, ...], throughput: Throughput | None, options: Document
) -> Container:
    """A new collection. CONFLICT if there is one of that name. What a transaction makes is its own until it commits:
    until then it has another name."""
    database = await ensured_database(call)
    transaction = call.transaction
    pending = f"{pending_prefix(call.account)}{call.clock.guid()}"
    body = collection_body(collection if transaction is None else pending, shard_key)
    if throughput is None and not call.account.settings.is_serverless:
        # A collection that names no throughput is never refused for it.
        least_ru = call.account.settings.partitioned_throughput_min_ru if shard_key else 0
        throughput = Throughput.manual(max(call.services.settings.throughput_ru, least_ru))
    identity = call.clock.guid()
    collection_state = with_options(CollectionState(identity), options)
    is_watched = await call.services.is_watched(call.database, collection)
    if is_watched and transaction is None:
        await announce_creation(call, call.database, collection, _uuid(identity), options)

    def begin(state: ContainerState) -> ContainerState:
        return replace(state, collection=collection_state, is_watched=is_watched)

    try:
        made = await containers.create_container(
            call.account, database, body, throughput, is_old_client=not shard_key, begin=begin
        )
        for partition in made.partitions.values() if is_watched else ():
            await event_feed.keep_events(made, partition)
        if transaction is not None:
            transaction.made[call.database, collection] = made
        return made
    except Failure as failure:
        if failure.kind is Kind.BAD_REQUEST and "code" not in failure.details:
            raise refusal(
                73, f"Invalid namespace specified '{call.database}.{collection}': {failure.message}"
            ) from None
        raise


def pending_prefix(account: Account) -> str:
    """Of the names of collections that open transactions of this process have created."""
    return f"{PENDING}{account.place}." if account.place else PENDING


def is_left_pending(account: Account, name: str) -> bool:
    """When this process begins: whether a transaction that has ended with a former run has created the collection."""
    place = name.removeprefix(PENDING).partition(".")[0]
    is_of_other = place.isdigit() and int(place) in account.other_places
    return name.startswith(pending_prefix(account)) and not is_of_other


async def ensured_database(call: Call) -> Record:
    found = find_database(call, call.database)
    if found is not None:
        return found
    try:
        return await containers.create_database(call.account, {"id": call.database}, None)
    except Failure as failure:
        if failure.kind is not Kind.CONFLICT:
            raise
    record = find_database(call, call.database)
    assert record is not None, "it is there, as we were told"
    return record


def collections_of(call: Call, database: str) -> list[Container]:
    record = find_database(call, database)
    if record is None:
        return []
    found = [
        call.account.container_by_rid(each.rid)
        for each in call.account.catalog.children(ResourceType.CONTAINER, record.rid)
    ]
    return [each for each in found if each is not None and not each.name.startswith(PENDING)]


async def rename(call: Call, container: Container, name: str, *, drops_target: bool) -> None:
    """Give a collection another name in its database, perhaps in the place of another one."""
    present = find(call, name, container.database.name)
    if present is not None and present is not container:
        if not drops_target:
            raise refusal(48, "target namespace exists")
        await containers.delete_container(call.account, present, None)
    await containers.rename_container(call.account, container, name)


def has_unique_index(container: Container, fields: tuple[str, ...]) -> bool:
    """Whether an index keeps documents from having the same values in exactly these fields."""
    return any(
        each.get("unique") and "partialFilterExpression" not in each and set(each["key"]) == set(fields)
        for each in indexes.definitions(container)
    )


async def change_options(call: Call, container: Container, options: Document) -> None:
    """Merge options into those of a collection."""
    merged = {**options_of(container), **options}

    def change(state: ContainerState, _new_store: object) -> ContainerState:
        return replace(state, collection=with_options(state.collection or CollectionState(), merged))

    await call.account.catalog.change_container(container.record, change, on_changed=container.adopt_kept)


def uuid_of(container: Container) -> Binary:
    collection = container.state.collection
    known = collection.uuid if collection is not None else None
    # A container of another protocol gets one that is derived from its rid.
    return _uuid(known) if known else Binary(container.record.rid.ljust(16, b"\x00")[:16], UUID_SUBTYPE)


def _uuid(identity: str) -> Binary:
    return Binary(bytes.fromhex(identity.replace("-", "")), UUID_SUBTYPE)


async def announce_creation(call: Call, database: str, collection: str, identity: Binary, options: Document) -> None:
    """Send the create event of a new collection to change streams."""
    told = {**options, "idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}}
    await call.services.announce("create", database, collection, collectionUUID=identity, operationDescription=told)


# Shard keys.


def check_shard_key(container: Container, document: Document) -> None:
    """A document to be stored has the whole shard key, and no arrays in it."""
    for field in shard_fields(container):
        value: Any = document
        for part in field.split("."):
            if type(value) is list:
                raise _array_in_key()
            value = value.get(part, MISSING) if type(value) is dict else MISSING
        if value is MISSING:
            if field == "_id":
                continue
            raise refusal(61, f"document does not contain shard key field '{field}'")
        if type(value) is list:
            raise _array_in_key()


def _array_in_key() -> Failure:
    return refusal(61, "Shard key cannot contain array values or array descendants.")
