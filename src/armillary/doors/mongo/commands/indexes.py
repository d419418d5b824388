"""Commands about indexes: createIndexes, listIndexes, dropIndexes, and collMod for indexes and collections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from armillary.account.collections import indexes
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.commands import capped, views
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.reading import compiled_filters
from armillary.doors.mongo.reading.cursor_commands import batch_size_of, first_batch, listed
from armillary.doors.mongo.writing.collection_options import checked_options
from armillary.doors.mongo.writing.duplicate_key_errors import as_duplicate
from armillary.errors import Failure, Kind
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.indexes.index_definitions import (
    ID_DEFINITION,
    ID_NAME,
    added,
    is_identical_key,
    read_definition,
)
from armillary.model.bson.bson_values import Document, shell_text

CREATE_FIELDS: Final = frozenset("createIndexes indexes commitQuorum ignoreUnknownIndexOptions".split())


def listed_indexes(container: Container) -> list[Document]:
    return [_listed(each) for each in (id_index(container), *indexes.definitions(container)[1:])]


def id_index(container: Container) -> Document:
    """The index of `_id`, which has the collation of its collection."""
    collation = namespaces.options_of(container).get("collation")
    return {**ID_DEFINITION, "collation": collation} if collation is not None else ID_DEFINITION


def _listed(definition: Document) -> Document:
    """As listIndexes shows it: text and geospatial indexes have more fields than were given."""
    kinds = [kind for kind in definition["key"].values() if isinstance(kind, str)]
    if "text" in kinds:
        plain = {path: kind for path, kind in definition["key"].items() if kind != "text"}
        weights = {path: 1 for path, kind in definition["key"].items() if kind == "text"} | (
            definition.get("weights") or {}
        )
        return {
            **definition,
            "key": {"_fts": "text", "_ftsx": 1, **plain},
            "weights": weights,
            "default_language": definition.get("default_language", "english"),
            "language_override": definition.get("language_override", "language"),
            "textIndexVersion": 3,
        }
    return {**definition, "2dsphereIndexVersion": 3} if "2dsphere" in kinds else definition


async def list_indexes(call: Call) -> Reply:
    collection = call.collection()
    views.refuse(call, collection)
    container = namespaces.existing(call, collection, f"ns does not exist: {call.database}.{collection}")
    cursor = listed(call, listed_indexes(container), f"{call.database}.{collection}")
    return await first_batch(call, cursor, batch_size=batch_size_of(call))


async def create_indexes(call: Call) -> Reply:
    collection = call.collection()
    given = call.fields.array("indexes")
    if not given:
        raise refusal(2, "Must specify at least one index to create")
    present = namespaces.find(call, collection)
    is_new = present is None
    own = namespaces.options_of(present).get("collation") if present is not None else None
    definitions = [read_definition(_collated(each, own)) for each in given]
    container = await namespaces.for_writing(call, collection)
    if call.transaction is not None and added(indexes.definitions(container), definitions):
        call.transaction.check_indexable(call.database, container)
    before = len(listed_indexes(container))
    made = await _make(call, container, definitions)
    if made:
        told = {"indexes": definitions}
        await call.services.announce("createIndexes", call.database, collection, operationDescription=told)
    reply: Document = {
        "_t": "CreateIndexesResponse",
        "numIndexesBefore": before,
        "numIndexesAfter": before + made,
        "createdCollectionAutomatically": is_new,
    }
    if not made:
        reply["note"] = "all indexes already exist"
    return reply


def _collated(given: Any, own: Document | None) -> Any:
    """A definition with the collation of its collection, if it names none."""
    if own is None or type(given) is not dict or "collation" in given or type(given.get("key")) is not dict:
        return given
    if "text" in given["key"].values():
        raise refusal(67, "Index type 'text' does not support the collection's collation: say {locale: 'simple'}.")
    is_plain = all(not isinstance(kind, str) for kind in given["key"].values()) and given["key"] != {"_id": 1}
    return {**given, "collation": own} if is_plain else given


async def make(call: Call, container: Container, given: Sequence[Document]) -> None:
    """Create the indexes that a customAction lists."""
    await _make(call, container, [read_definition(each) for each in given])


async def _make(call: Call, container: Container, definitions: list[Document]) -> int:
    call.check_time()
    try:
        return await indexes.create_indexes(call.account, container, definitions)
    except Failure as failure:
        if failure.kind is not Kind.CONFLICT:
            raise
        raise as_duplicate(call, container, failure, {}, definitions) from None


async def drop_indexes(call: Call) -> Reply:
    collection = call.collection()
    container = namespaces.existing(call, collection, f"ns not found {call.database}.{collection}")
    present = indexes.definitions(container)
    wanted = call.body.get("index")
    if wanted is None:
        raise call.fields.missing("index")
    names = [each["name"] for each in present if each["name"] != ID_NAME] if wanted == "*" else _named(present, wanted)
    gone = [each for each in present if each["name"] in names]
    if gone:
        told = {"indexes": gone}
        await call.services.announce("dropIndexes", call.database, collection, operationDescription=told)
    await indexes.drop_indexes(call.account, container, names)
    reply: Document = {"nIndexesWas": len(present)}
    if wanted == "*":
        reply["msg"] = "non-_id indexes dropped for collection"
    return reply


def _named(present: list[Document], wanted: Any) -> list[str]:
    names = []
    for each in wanted if isinstance(wanted, list) else [wanted]:
        found = find_index(present, each)
        if found is None:
            what = f"with key: {shell_text(each)}" if isinstance(each, dict) else f"with name [{each}]"
            text = "can't find index " if isinstance(each, dict) else "index not found "
            raise refusal(27, text + what)
        if found["name"] == ID_NAME:
            raise refusal(72, "cannot drop _id index")
        names.append(found["name"])
    return names


def find_index(present: list[Document], wanted: Any) -> Document | None:
    """By name or by key."""
    if isinstance(wanted, str):
        return next((each for each in present if each["name"] == wanted), None)
    if isinstance(wanted, dict):
        return next((each for each in present if is_identical_key(each["key"], wanted)), None)
    raise refusal(14, "An index is named by a string or by its key")


async def rebuild_indexes(call: Call) -> Reply:
    """Nothing to do: indexes are updated with their documents."""
    collection = call.collection()
    container = namespaces.existing(call, collection, f"ns does not exist: {call.database}.{collection}")
    present = listed_indexes(container)
    return {"nIndexesWas": len(present), "nIndexes": len(present), "indexes": present}


# collMod.

MODIFY_FIELDS: Final = frozenset(
    "collMod index validator validationLevel validationAction viewOn pipeline changeStreamPreAndPostImages "
    "expireAfterSeconds timeseries cappedSize cappedMax dryRun".split()
)


async def modify_collection(call: Call) -> Reply:
    collection = call.collection()
    if views.find(call, collection) is not None:
        await views.modify(call, collection)
        return {}
    container = namespaces.existing(call, collection)
    for name in ("viewOn", "pipeline"):
        if name in call.fields:
            raise refusal(72, f"option only supported on a view: {name}")
    for name in ("expireAfterSeconds", "timeseries", "dryRun"):
        if name in call.fields:
            raise refusal(115, f"collMod with '{name}' is not supported.")
    reply: Document = {}
    change = call.fields.optional_document("index")
    if change is not None:
        reply = await _modify_index(call, container, Fields(change, "collMod.index"))
    options = {**capped.changed_options(call, container), **checked_options(call)}
    if "validator" in options:
        known = namespaces.options_of(container)
        options.setdefault("validationLevel", known.get("validationLevel", "strict"))
        options.setdefault("validationAction", known.get("validationAction", "error"))
    if await call.services.is_watched(call.database, collection):
        told = {name: value for name, value in call.body.items() if name in MODIFY_FIELDS and name != "collMod"}
        await call.services.announce("modify", call.database, collection, operationDescription=told)
    if options:
        compiled_filters.forget()
        await namespaces.change_options(call, container, options)
    return reply


async def _modify_index(call: Call, container: Container, change: Fields) -> Document:
    change.only(frozenset(("keyPattern", "name", "expireAfterSeconds", "hidden", "unique", "prepareUnique")))
    for name in ("unique", "prepareUnique"):
        if name in change:
            raise refusal(115, f"collMod of an index with '{name}' is not supported: make a unique index.")
    if "name" in change and "keyPattern" in change:
        raise refusal(72, "Cannot specify both key pattern and name.")
    wanted = change.text("name", "") or change.optional_document("keyPattern")
    if not wanted:
        raise refusal(72, "Must specify either index name or key pattern to modify")
    if "expireAfterSeconds" not in change and "hidden" not in change:
        raise refusal(72, "no expireAfterSeconds, hidden, unique, or prepareUnique field")
    known = indexes.definitions(container)
    found = find_index(known, wanted)
    if found is None:
        raise refusal(27, f"cannot find index {shell_text(wanted)} for ns {call.database}.{container.name}")
    if isinstance(wanted, dict) and sum(is_identical_key(each["key"], wanted) for each in known) > 1:
        raise refusal(119, f"index keyPattern {shell_text(wanted)} matches several indexes: name one")
    if found["name"] == ID_NAME:
        if "hidden" in change:
            raise refusal(2, "can't hide _id index")
        raise refusal(72, "the _id field does not support TTL indexes")
    reply: Document = {}
    changed = dict(found)
    if "expireAfterSeconds" in change:
        if "expireAfterSeconds" in found:
            reply["expireAfterSeconds_old"] = found["expireAfterSeconds"]
        changed["expireAfterSeconds"] = change.body["expireAfterSeconds"]
        reply["expireAfterSeconds_new"] = changed["expireAfterSeconds"]
    if "hidden" in change:
        reply["hidden_old"] = bool(found.get("hidden", False))
        changed["hidden"] = reply["hidden_new"] = change.flag("hidden", False)
    checked = read_definition(changed)
    await indexes.replace_index(call.account, container, found["name"], lambda _: checked)
    return reply
