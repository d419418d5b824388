"""Capped collections: their options, the commands that they refuse, convertToCapped and cloneCollectionAsCapped.
Eviction is in `partition/writing/capped_collections.py`, reading from the end in `reading/tailable_cursors.py`.
"""

from __future__ import annotations

from typing import Final

from armillary.account import containers
from armillary.account.collections import document_operations
from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply, check_collection
from armillary.doors.mongo.reading import compiled_filters, query_execution
from armillary.errors import Failure
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document

_SIZE_BYTES_LEAST: Final = 4096
_SIZE_BYTES_STEP: Final = 256
_SIZE_BYTES_MAX: Final = 1 << 50
_COUNT_MAX: Final = (1 << 31) - 1


def options_of(call: Call) -> Document:
    """The cap that `create` asks for, as it is stored; empty for collections without one."""
    fields = call.fields
    if not fields.flag("capped", False):
        if call.body.get("size") is not None or call.body.get("max") is not None:
            raise refusal(72, "the 'capped' field needs to be true when either the 'size' or 'max' fields are present")
        return {}
    if call.body.get("size") is None:
        raise refusal(72, "the 'size' field is required when 'capped' is true")
    options: Document = {"capped": True, "size": size_of(call, "size")}
    if call.body.get("max") is not None:
        count = fields.number("max", 0, low=-_COUNT_MAX)
        if count >= _COUNT_MAX:
            raise refusal(2, "max in a capped collection has to be < 2^31 or not set")
        if count > 0:
            options["max"] = count
    return options


def changed_options(call: Call, container: Container) -> Document:
    """The cap that `collMod` asks for. The next insert evicts what is above a smaller cap."""
    given = [name for name in ("cappedSize", "cappedMax") if name in call.fields]
    if given and not is_capped(container):
        raise refusal(72, f"{' and '.join(given)} can only be used on a capped collection")
    options: Document = {}
    if "cappedSize" in given:
        options["size"] = size_of(call, "cappedSize")
    if "cappedMax" in given:
        options["max"] = call.fields.number("cappedMax", 0, low=-_COUNT_MAX, high=_COUNT_MAX - 1)
    return options


def size_of(call: Call, name: str) -> int:
    """Bytes, rounded up as MongoDB does it."""
    given = call.fields.number(name, 0, low=1, high=_SIZE_BYTES_MAX)
    return max(_SIZE_BYTES_LEAST, -(-given // _SIZE_BYTES_STEP) * _SIZE_BYTES_STEP)


def is_capped(container: Container) -> bool:
    return container.schema.cap is not None


def check_write(call: Call, name: str) -> None:
    """Inside a transaction nothing is written to a capped collection."""
    container = namespaces.find(call, name)
    if container is not None and is_capped(container):
        raise refusal(
            263,
            f"Collection '{call.database}.{name}' is a capped collection. Writes in transactions are not allowed on "
            "capped collections.",
        )


def check_size(container: Container, encoded: bytes) -> None:
    """Refuse a document that is larger than the cap."""
    cap = container.schema.cap
    if cap is not None and len(encoded) > cap.size_bytes:
        raise refusal(2, "object to insert exceeds cappedMaxSize")


def measures(container: Container) -> Document:
    """Its fields in collStats."""
    cap = container.schema.cap
    if cap is None:
        return {"capped": False}
    return {"capped": True, "max": cap.item_count or 0, "maxSize": cap.size_bytes}


# Commands.


async def convert(call: Call) -> Reply:
    """convertToCapped: the newest documents that fit, without the indexes, under the same name."""
    collection = call.collection()
    container = _source(call, collection)
    call.fields.require(("size",))
    made = await _copy(call, container, f"tmp.convertToCapped.{call.clock.guid()}", size_of(call, "size"))
    try:
        await namespaces.rename(call, made, collection, drops_target=True)
    except Failure:
        await containers.delete_container(call.account, made, None)
        raise
    return {}


async def clone(call: Call) -> Reply:
    """cloneCollectionAsCapped: the same under another name."""
    container = _source(call, call.collection())
    target = check_collection(call.database, call.fields.text("toCollection"))
    namespaces.check_new(call, target)
    if namespaces.find(call, target) is not None:
        raise refusal(48, f"cloneCollectionAsCapped failed - destination collection {call.database}.{target} exists.")
    call.fields.require(("size",))
    await _copy(call, container, target, size_of(call, "size"))
    return {}


def _source(call: Call, collection: str) -> Container:
    container = namespaces.existing(call, collection, f"source collection {call.database}.{collection} does not exist")
    if container.key is not None:
        raise refusal(20, f"Can't convert a sharded collection to capped: {call.database}.{collection}")
    return container


async def _copy(call: Call, container: Container, name: str, size_bytes: int) -> Container:
    options = {each: value for each, value in namespaces.options_of(container).items() if each != "max"}
    made = await namespaces.create(call, name, (), None, {**options, "capped": True, "size": size_bytes})
    try:
        everything = compiled_filters.matcher_of({}, call)
        async for page in query_execution.pages(call, container, query_execution.wanted(container, {}, everything)):
            fitting = [each for each in page if len(each.encoded) <= size_bytes]
            operations = [
                document_operations.inserting(made, each.document, each.encoded, call.clock) for each in fitting
            ]
            answer = await document_operations.write_many(made, operations, stops=True)
            call.spend(answer.charge_ru)
            if answer.outcomes and isinstance(answer.outcomes[-1], Failure):
                raise answer.outcomes[-1]
    except Failure:
        await containers.delete_container(call.account, made, None)
        raise
    return made
