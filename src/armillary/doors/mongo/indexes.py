"""Indexes of collections: listing, making and dropping them."""

from __future__ import annotations

from typing import Final

from armillary.account.container import Container
from armillary.doors.mongo import namespaces
from armillary.doors.mongo.call import Call, Reply
from armillary.doors.mongo.cursors import first_batch
from armillary.doors.mongo.fields import Fields
from armillary.doors.mongo.reads import listed
from armillary.languages.mongo.errors import refusal
from armillary.model.bson_values import Document

ID_INDEX: Final[Document] = {"v": 2, "key": {"_id": 1}, "name": "_id_"}


def listed_indexes(container: Container) -> list[Document]:
    return [ID_INDEX]


async def list_indexes(call: Call) -> Reply:
    collection = call.collection()
    container = namespaces.existing(call, collection, f"ns does not exist: {call.database}.{collection}")
    cursor = listed(call, listed_indexes(container), f"{call.database}.{collection}")
    wanted = call.fields.optional_document("cursor")
    batch_size = Fields(wanted, "listIndexes.cursor").whole("batchSize", low=0) if wanted else None
    return await first_batch(call, cursor, batch_size=batch_size)


async def create_indexes(call: Call) -> Reply:
    raise refusal(115, "createIndexes is not supported yet.")


async def drop_indexes(call: Call) -> Reply:
    raise refusal(115, "dropIndexes is not supported yet.")


async def make(call: Call, container: Container, given: list[Document]) -> None:
    raise refusal(115, "Indexes are not supported yet.")
