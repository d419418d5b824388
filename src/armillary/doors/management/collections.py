"""MongoDB collections over the management API: `mongodbDatabases/D/collections`, with their shard key and indexes.

The API describes an index by the names of its fields and two options. Indexes that MongoDB clients have made with more
(descending fields, text, geospatial, partial, with a collation) are shown by these alone, and an update whose list has
them in this form leaves them as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from armillary import limits
from armillary.account import containers
from armillary.account.catalog.container_state import CollectionState, ContainerState
from armillary.account.catalog.records import Record
from armillary.account.collections import indexes
from armillary.account.collections.collection_rules import shard_fields
from armillary.account.collections.new_collections import (
    PENDING,
    collection_body,
    fault_of_name,
    fault_of_shard_key,
    with_options,
)
from armillary.account.container import Container
from armillary.account.throughput.provisioning import Throughput
from armillary.doors.management import throughput
from armillary.doors.management.call import Action, Call
from armillary.doors.management.databases import without_links
from armillary.doors.management.members import Members
from armillary.errors import bad_request
from armillary.languages.mongo.indexes.index_definitions import ID_DEFINITION, added, default_name, read_definition
from armillary.model.bson.bson_values import Document
from armillary.model.json_members import shown
from armillary.net.http import Response

DATABASES: Final = "mongodbDatabases"
KIND: Final = f"{DATABASES}/collections"
_WHAT: Final = "collection"
_HASHED: Final = ("hash", "hashed")
_ID: Final = ("_id",)


class WantedIndex(NamedTuple):
    """An index as far as the management API describes it."""

    fields: tuple[str, ...]
    is_unique: bool
    expires_s: int | None

    @classmethod
    def of(cls, definition: Document) -> WantedIndex:
        expires_s = definition.get("expireAfterSeconds")
        expires = int(expires_s) if expires_s is not None else None
        return cls(tuple(definition["key"]), bool(definition.get("unique")), expires)

    def definition(self) -> Document:
        key = dict.fromkeys(self.fields, 1)
        given: Document = {"key": key, "name": default_name(key)}
        if self.is_unique:
            given["unique"] = True
        if self.expires_s is not None:
            given["expireAfterSeconds"] = self.expires_s
        return read_definition(given)

    def to_json(self) -> dict[str, Any]:
        options: dict[str, Any] = {"unique": True} if self.is_unique else {}
        if self.expires_s is not None:
            options["expireAfterSeconds"] = self.expires_s
        return {"key": {"keys": list(self.fields)}, "options": options}


async def list_collections(call: Call) -> Response:
    database = call.database()
    found = [each for each in call.account.containers if each.database.rid == database.rid]
    return call.answer_list(KIND, [(each.name, _shown(each)) for each in found if not each.name.startswith(PENDING)])


async def show_collection(call: Call) -> Response:
    return call.answer_resource(KIND, _shown(call.container(_WHAT)))


async def put_collection(call: Call) -> Response:
    resource, options = call.envelope(KIND)
    call.named_resource(resource)
    key = _shard_key(resource)
    wanted = _indexes(resource)
    resource.end()
    ru = throughput.read_options(options)
    present = call.find_container()
    if present is None:
        present = await _create(call, key or (), wanted or (), ru)
    else:
        _check_key(present, key)
        throughput.check_change(call, present.record, ru)
        if wanted is not None:
            await _change_indexes(call, present, wanted)
        await throughput.change(call, present.record, ru)
    return call.answer_resource(KIND, _shown(present))


async def delete_collection(call: Call) -> Response:
    await containers.delete_container(call.account, call.container(_WHAT), None)
    return call.answer_deleted()


def _shard_key(resource: Members) -> tuple[str, ...] | None:
    given = resource.take("shardKey")
    if given is None:
        return None
    if not isinstance(given, dict) or not given:
        raise bad_request("'properties.resource.shardKey' must be an object of fields, each with the value Hash.")
    for name, kind in given.items():
        if not isinstance(kind, str) or kind.lower() not in _HASHED:
            raise bad_request(f"The shard key field '{shown(name)}' must have the value Hash, not {shown(kind)}.")
    fault = fault_of_shard_key(tuple(given))
    if fault is not None:
        raise bad_request(fault)
    return tuple(given)


def _indexes(resource: Members) -> list[WantedIndex] | None:
    """None: the request does not name any, and those that there are stay."""
    given = resource.objects("indexes")
    if given is None:
        return None
    if len(given) > limits.INDEXES_MAX:
        raise bad_request(f"A collection has at most {limits.INDEXES_MAX} indexes.")
    wanted = []
    for each in given:
        key = each.required_object("key")
        fields = key.texts("keys")
        options = each.object("options")
        index = WantedIndex(tuple(fields), options.truth("unique"), options.whole("expireAfterSeconds"))
        for part in (each, key, options):
            part.end()
        if len(set(fields)) < len(fields):
            raise bad_request(f"The index over {shown(', '.join(fields))} has a field twice.")
        index.definition()  # refuses what no index can be
        if index.fields != _ID:  # which is always there
            wanted.append(index)
    if len(set(wanted)) < len(wanted):
        raise bad_request("'properties.resource.indexes' has an index twice.")
    return wanted


def _check_key(present: Container, key: tuple[str, ...] | None) -> None:
    fields = shard_fields(present)
    if (key or ()) != fields:
        described = ", ".join(fields) if fields else "none"
        raise bad_request(f"The shard key of a collection cannot be changed; it is: {shown(described)}.")


async def _create(call: Call, key: tuple[str, ...], wanted: Sequence[WantedIndex], ru: Throughput | None) -> Container:
    database, name = call.database(), call.names[1]
    fault = fault_of_name(database.name, name)
    if fault is not None:
        raise bad_request(fault)
    account = call.account
    if ru is None:
        ru = throughput.default_of(call, database, call.services.settings.mongo_throughput_ru, has_key=bool(key))
    definitions = [each.definition() for each in wanted]
    _check_indexes(key, [ID_DEFINITION], definitions)
    collection = with_options(CollectionState(account.clock.guid()), {})

    def begin(state: ContainerState) -> ContainerState:
        return replace(state, collection=collection)

    body = collection_body(name, key)
    made = await containers.create_container(account, database, body, ru, is_old_client=not key, begin=begin)
    await indexes.create_indexes(account, made, definitions)
    return made


def _check_indexes(key: Sequence[str], present: Sequence[Document], new: Sequence[Document]) -> None:
    """Refuse indexes that cannot be made, before anything is changed."""
    added(present, new)
    for each in new:
        indexes.check_unique(key, each)


async def _change_indexes(call: Call, present: Container, wanted: Sequence[WantedIndex]) -> None:
    """Create and drop indexes until the collection has those that are wanted, and that of `_id`."""
    there = indexes.definitions(present)
    found = {each["name"]: WantedIndex.of(each) for each in there[1:]}
    new = [each for each in wanted if each not in found.values()]
    unwanted = {name for name, each in found.items() if each not in wanted}
    fields = {each.fields for each in new}
    # An index over the same fields with other options has to go first; any other goes once the new ones are there.
    replaced = {name for name in unwanted if found[name].fields in fields}
    definitions = [each.definition() for each in new]
    shard_key = shard_fields(present) if present.is_collection else ()
    _check_indexes(shard_key, [each for each in there if each["name"] not in replaced], definitions)
    await indexes.drop_indexes(call.account, present, replaced)
    await indexes.create_indexes(call.account, present, definitions)
    await indexes.drop_indexes(call.account, present, unwanted - replaced)


def _shown(container: Container) -> dict[str, Any]:
    resource = without_links(container.record)
    fields = shard_fields(container)
    if fields:
        resource["shardKey"] = dict.fromkeys(fields, "Hash")
    resource["indexes"] = [WantedIndex.of(each).to_json() for each in indexes.definitions(container)]
    return resource


def _record(call: Call) -> Record:
    return call.container(_WHAT).record


ACTIONS: Final[tuple[tuple[str, str, Action], ...]] = (
    ("GET", f"{DATABASES}/{{}}/collections", list_collections),
    ("GET", f"{DATABASES}/{{}}/collections/{{}}", show_collection),
    ("PUT", f"{DATABASES}/{{}}/collections/{{}}", put_collection),
    ("DELETE", f"{DATABASES}/{{}}/collections/{{}}", delete_collection),
    *(
        (method, f"{DATABASES}/{{}}/collections/{{}}/{words}", action)
        for method, words, action in throughput.settings_actions(KIND, _record)
    ),
)
