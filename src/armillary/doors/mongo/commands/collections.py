"""Commands about collections and databases: create, drop, rename, list, statistics."""

from __future__ import annotations

from typing import Any, Final

from bson.int64 import Int64

from armillary.account import containers
from armillary.account.collections.indexes import create_indexes
from armillary.account.container import Container
from armillary.account.visits.uncounted_visits import renew_figures
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply, check_collection
from armillary.doors.mongo.commands import capped, indexes, views
from armillary.doors.mongo.reading import compiled_filters
from armillary.doors.mongo.reading.cursor_commands import batch_size_of, first_batch, listed
from armillary.doors.mongo.sessions import authorization
from armillary.doors.mongo.sessions.roles import Right
from armillary.doors.mongo.writing.collection_options import checked_options, expiry_of, time_series_options
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document
from armillary.model.resources import ResourceType

CREATE_FIELDS: Final = frozenset(
    "create capped autoIndexId size max storageEngine validator validationLevel validationAction indexOptionDefaults "
    "viewOn pipeline collation timeseries clusteredIndex changeStreamPreAndPostImages expireAfterSeconds idIndex "
    "encryptedFields flags temp".split()
)
_NOT_OFFERED: Final = ("clusteredIndex", "encryptedFields", "temp")


async def create(call: Call) -> Reply:
    collection = call.collection()
    namespaces.check_new(call, collection)
    for name in _NOT_OFFERED:
        if call.body.get(name):
            raise refusal(115, f"create with '{name}' is not supported.")
    _check_id_index(call)
    if "viewOn" in call.fields:
        await views.create(call, collection)
        told = {name: call.body[name] for name in ("viewOn", "pipeline") if name in call.body}
        await call.services.announce("create", call.database, collection, operationDescription=told)
        return {}
    if "pipeline" in call.fields:
        raise refusal(72, "'pipeline' requires 'viewOn' to also be specified")
    views.refuse(call, collection)
    options = {**capped.options_of(call), **time_series_options(call), **checked_options(call)}
    present = namespaces.find(call, collection)
    if present is not None:
        if namespaces.options_of(present) == options and call.transaction is None:
            return {}
        raise refusal(48, f"Collection {call.database}.{collection} already exists.")
    try:
        made = await namespaces.create(call, collection, (), None, options)
    except Failure as failure:
        if failure.kind is not Kind.CONFLICT:
            raise
        raise refusal(48, f"Collection {call.database}.{collection} already exists.") from None
    expiry = expiry_of(options)
    if expiry is not None:
        await create_indexes(call.account, made, [expiry])
    return {}


def _check_id_index(call: Call) -> None:
    """`idIndex` must describe the index of `_id` as it always is."""
    given = call.fields.optional_document("idIndex")
    if given is None:
        return
    if "viewOn" in call.fields:
        raise refusal(72, "'idIndex' is not allowed with 'viewOn'")
    if not given:
        raise refusal(9, "The field 'idIndex' cannot be empty")
    for name in given:
        if name not in ("key", "name", "v", "ns", "collation"):
            raise refusal(197, f"The field '{name}' is not valid for an _id index specification.")
    if given.get("key") != {"_id": 1}:
        raise refusal(2, "The field 'key' for an _id index must be {_id: 1}")
    own = compiled_filters.collation_of(call.fields.optional_document("collation"))
    if "collation" in given and compiled_filters.collation_of(given["collation"]) != own:
        raise refusal(2, "'idIndex' must have the same collation as the collection.")


async def drop(call: Call) -> Reply:
    collection = call.collection()
    container = namespaces.find(call, collection)
    if views.find(call, collection) is not None:
        await views.drop(call, collection)
        return {"ns": f"{call.database}.{collection}"}
    if container is None:
        if call.services.settings.version < "7.0":
            raise refusal(26, "ns not found")
        return {}
    count = len(indexes.listed_indexes(container))
    await call.services.announce("drop", call.database, collection)
    await _drop(call, container)
    return {"nIndexesWas": count, "ns": f"{call.database}.{collection}"}


async def _drop(call: Call, container: Container) -> None:
    try:
        await containers.delete_container(call.account, container, None)
    except Failure as failure:
        if failure.kind is not Kind.NOT_FOUND:
            raise
    await _end_cursors(call, container.database.name, container.name, "collection dropped")


async def _end_cursors(call: Call, database: str, collection: str, reason: str) -> None:
    await call.services.end_cursors(f"{database}.{collection}", f"{reason}: {database}.{collection}")


async def drop_database(call: Call) -> Reply:
    record = namespaces.find_database(call, call.database)
    if record is None:
        return {}
    for container in namespaces.collections_of(call, call.database):
        await call.services.announce("drop", call.database, container.name)
        await _end_cursors(call, call.database, container.name, "collection dropped")
    await call.services.announce("dropDatabase", call.database, "")
    await containers.delete_database(call.account, record, None)
    return {"dropped": call.database}


async def list_collections(call: Call) -> Reply:
    given = call.fields.document("filter", {})
    is_short = call.fields.flag("nameOnly", False)
    matches = compiled_filters.matcher_of(given, call).matches
    found = []
    for container in namespaces.collections_of(call, call.database):
        options = namespaces.options_of(container)
        entry: Document = {
            "name": container.name,
            "type": "collection",
            "options": options,
            "info": {"readOnly": False, "uuid": namespaces.uuid_of(container)},
            "idIndex": indexes.id_index(container),
        }
        if "timeseries" in options:
            entry = {"name": container.name, "type": "timeseries", "options": options, "info": {"readOnly": False}}
        if matches(entry):
            found.append({"name": entry["name"], "type": entry["type"]} if is_short else entry)
    for name, view in views.views_of(call, call.database).items():
        entry = {"name": name, "type": "view", "options": view.options, "info": {"readOnly": True}}
        if matches(entry):
            found.append({"name": name, "type": "view"} if is_short else entry)
    cursor = listed(call, found, f"{call.database}.$cmd.listCollections")
    return await first_batch(call, cursor, batch_size=batch_size_of(call))


async def list_databases(call: Call) -> Reply:
    given = call.fields.document("filter", {})
    is_short = call.fields.flag("nameOnly", False)
    matches = compiled_filters.matcher_of(given, call).matches
    found: list[Document] = []
    total = 0
    for record in call.account.catalog.of_type(ResourceType.DATABASE):
        if not authorization.may_see(call, record.name):
            continue
        size_bytes = sum([(await _size(each))[1] for each in namespaces.collections_of(call, record.name)])
        entry: Document = {"name": record.name, "sizeOnDisk": Int64(size_bytes), "empty": not size_bytes}
        if matches(entry):
            total += size_bytes
            found.append({"name": record.name} if is_short else entry)
    found.sort(key=lambda each: str(each["name"]))
    if is_short:
        return {"databases": found}
    return {"databases": found, "totalSize": Int64(total), "totalSizeMb": Int64(total >> 20)}


async def rename(call: Call) -> Reply:
    database, _, collection = call.fields.text(call.name).partition(".")
    target_database, _, target = call.fields.text("to").partition(".")
    check_collection(database, collection)
    check_collection(target_database, target)
    authorization.require(call, Right.WRITE | Right.ADMIN, database)
    for name in (collection, target):
        authorization.check_collection(call, database, name)
    call.database = database
    views.refuse(call, collection)
    if views.find(call, target) is not None:
        raise refusal(48, f"a view already exists with that name: {target_database}.{target}")
    container = namespaces.existing(call, collection, f"Source collection {database}.{collection} does not exist")
    if target_database != database:
        raise refusal(115, "renameCollection to another database is not supported.")
    if target == collection:
        raise refusal(20, "Can't rename a collection to itself")
    namespaces.check_new(call, target)
    drops = call.fields.flag("dropTarget", False)
    to = {"db": database, "coll": target}
    described: Document = {"to": to}
    replaced = namespaces.find(call, target) if drops else None
    if drops:
        described["dropTarget"] = namespaces.uuid_of(replaced) if replaced is not None else False
    await call.services.announce("rename", database, collection, to=to, operationDescription=described)
    for name in (collection, target) if drops else (collection,):
        await _end_cursors(call, database, name, "collection renamed")
    await namespaces.rename(call, container, target, drops_target=drops)
    return {}


# Statistics.


async def _size(container: Container) -> tuple[int, int]:
    """Documents, and bytes of them."""
    await renew_figures(container)
    heads = [partition.head for partition in container.partitions.values()]
    return sum(head.item_count for head in heads), sum(head.size_bytes for head in heads)


async def statistics(call: Call, container: Container | None, namespace: str, scale: int = 1) -> Document:
    count, size_bytes = await _size(container) if container is not None else (0, 0)
    found = indexes.listed_indexes(container) if container is not None else []
    answer: Document = {
        "ns": namespace,
        "size": size_bytes // scale,
        "count": count,
        "numOrphanDocs": 0,
        "storageSize": size_bytes // scale,
        "totalIndexSize": 0,
        "totalSize": size_bytes // scale,
        "indexSizes": {each["name"]: 0 for each in found},
        **(capped.measures(container) if container is not None else {"capped": False}),
        "nindexes": len(found),
        "scaleFactor": scale,
    }
    if count:
        answer["avgObjSize"] = size_bytes // count
    if container is not None:
        answer["sharded"] = container.key is not None
        answer["partitions"] = len(container.partitions)
    return answer


def _scale(call: Call) -> int:
    return call.fields.number("scale", 1, low=1)


async def collection_statistics(call: Call) -> Reply:
    collection = call.collection()
    container = namespaces.find(call, collection)
    return await statistics(call, container, f"{call.database}.{collection}", _scale(call))


async def database_statistics(call: Call) -> Reply:
    found = namespaces.collections_of(call, call.database)
    scale = _scale(call)
    count = size_bytes = index_count = 0
    for container in found:
        documents, taken = await _size(container)
        count += documents
        size_bytes += taken
        index_count += len(indexes.listed_indexes(container))
    return {
        "db": call.database,
        "collections": Int64(len(found)),
        "views": Int64(len(views.views_of(call, call.database))),
        "objects": Int64(count),
        "avgObjSize": size_bytes / count if count else 0.0,
        "dataSize": size_bytes / scale,
        "storageSize": size_bytes / scale,
        "indexes": Int64(index_count),
        "indexSize": 0.0,
        "totalSize": size_bytes / scale,
        "scaleFactor": Int64(scale),
    }


async def measured_size(call: Call) -> Reply:
    database, _, collection = call.fields.text("dataSize").partition(".")
    check_collection(database, collection)
    authorization.require(call, Right.READ | Right.ADMIN, database)
    authorization.check_collection(call, database, collection)
    container = namespaces.find(call, collection, database)
    count, size_bytes = await _size(container) if container is not None else (0, 0)
    answer: dict[str, Any] = {"size": size_bytes, "numObjects": count, "millis": 0, "estimate": False}
    return answer


async def validate(call: Call) -> Reply:
    collection = call.collection()
    container = namespaces.existing(
        call, collection, f"Collection '{call.database}.{collection}' does not exist to validate."
    )
    if call.fields.flag("full", False) and call.fields.flag("background", False):
        raise refusal(72, "Running the validate command with { background: true } and { full: true } is not supported")
    count, _ = await _size(container)
    found = indexes.listed_indexes(container)
    return {
        "ns": f"{call.database}.{collection}",
        "nInvalidDocuments": 0,
        "nrecords": count,
        "nIndexes": len(found),
        "keysPerIndex": {each["name"]: count for each in found},
        "valid": True,
        "repaired": False,
        "warnings": [],
        "errors": [],
    }
