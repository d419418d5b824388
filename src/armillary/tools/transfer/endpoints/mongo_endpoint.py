"""A collection of a MongoDB server as source and sink, by pymongo. It is read in the order of `_id`, so that a place is
the last `_id` that was read, and written by replacing what has the same `_id`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from pymongo import AsyncMongoClient, ReplaceOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, ConfigurationError, InvalidURI, OperationFailure, PyMongoError
from pymongo.uri_parser import parse_uri

from armillary.errors import Failure, Kind, bad_request
from armillary.tools.transfer.endpoints.retries import Retries
from armillary.tools.transfer.files.bson_files import document_of_item, item_of_document
from armillary.tools.transfer.rows import PAGE_ROWS, BadRow, Document, Page, Position, Row, Written, bad_row
from armillary.tools.transfer.transforms import MISSING, get

_WRITES: Final = 100  # in one request
_THROTTLED: Final = 16500
_OPTIONS: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_MS
)
_AS_IT_IS: Final = json_util.CANONICAL_JSON_OPTIONS.with_options(datetime_conversion=DatetimeConversion.DATETIME_MS)


def _collection(uri: str) -> tuple[AsyncMongoClient[Any], AsyncCollection[Any]]:
    try:
        parsed = parse_uri(uri)
        if not parsed["database"] or not parsed["collection"]:
            raise bad_request("A collection is named as mongodb://host:port/database.collection.")
        client: AsyncMongoClient[Any] = AsyncMongoClient(uri, serverSelectionTimeoutMS=20_000)
    except (InvalidURI, ConfigurationError) as error:
        raise bad_request(f"The address of the MongoDB server is not valid: {error}") from None
    return client, client[parsed["database"]].get_collection(parsed["collection"], codec_options=_OPTIONS)


class MongoSource:
    def __init__(self, uri: str, *, is_exact: bool) -> None:
        self._client, self._collection = _collection(uri)
        self._is_exact = is_exact
        self.identity: Document = {"collection": self._collection.full_name}

    async def pages(self, position: Position | None) -> AsyncIterator[Page]:
        number = position["row"] if position else 0
        # As an expression: a filter with $gt would find ids of the same type alone.
        last = {"$literal": json_util.loads(position["id"], json_options=_AS_IT_IS)} if position else None
        wanted: Document = {"$expr": {"$gt": ["$_id", last]}} if position else {}
        rows: list[Row | BadRow] = []
        try:
            total = number + await self._collection.count_documents(wanted)
            last_id: Any = None
            async for document in self._collection.find(wanted).sort("_id", 1).batch_size(PAGE_ROWS):
                number += 1
                last_id = document["_id"]
                rows.append(self._row(number, document))
                if len(rows) == PAGE_ROWS:
                    yield self._page(rows, number, last_id, total)
                    rows = []
        except PyMongoError as error:
            raise _refusal(error) from None
        if rows:
            yield self._page(rows, number, last_id, total)

    def _row(self, number: int, document: Document) -> Row | BadRow:
        try:
            return Row(number, item_of_document(document, is_exact=self._is_exact))
        except (BSONError, ValueError) as error:
            return bad_row(number, f"It cannot be an item: {error}.", repr(document))

    def _page(self, rows: list[Row | BadRow], number: int, last_id: Any, total: int) -> Page:
        place = {"row": number, "id": json_util.dumps(last_id, json_options=_AS_IT_IS)}
        return Page(rows, place, min(1.0, number / total) if total else None)

    async def close(self) -> None:
        await self._client.close()


class MongoSink:
    is_ordered = False
    is_resumable = True

    def __init__(self, uri: str, parallel: int, *, is_exact: bool) -> None:
        self._client, self._collection = _collection(uri)
        self._gate = asyncio.Semaphore(parallel)
        self._is_exact = is_exact
        self.rows_ahead = 0
        self._key_fields: tuple[str, ...] = ("_id",)  # what tells a document from others: with its shard key

    async def open(self, position: Position | None) -> None:
        try:
            await self._client.admin.command("ping")
            self._key_fields = tuple(dict.fromkeys(("_id", *await self._shard_key())))
        except PyMongoError as error:
            raise _refusal(error) from None

    async def _shard_key(self) -> list[str]:
        """Of a sharded collection, as Cosmos DB tells it, or MongoDB itself; none where neither does."""
        collection = self._collection
        try:
            told = await collection.database.command("customAction", "GetCollection", collection=collection.name)
            return list(told.get("shardKeyDefinition", ()))
        except OperationFailure:
            pass
        try:
            listed = await self._client["config"]["collections"].find_one({"_id": collection.full_name})
            return list(listed.get("key", ())) if listed is not None else []
        except OperationFailure:
            return []

    def _filter(self, document: Document) -> Document:
        found: Document = {}
        for field in self._key_fields:
            value = get(document, tuple(field.split(".")))
            if value is not MISSING:
                found[field] = value
        return found

    async def write(self, rows: list[Row]) -> Written:
        bad: list[BadRow] = []
        documents: list[tuple[Row, Document]] = []
        for row in rows:
            try:
                documents.append((row, document_of_item(row.document, is_exact=self._is_exact)))
            except (BSONError, ValueError) as error:
                bad.append(bad_row(row.number, f"It cannot be a document: {error}.", row.document))
        groups = [documents[first : first + _WRITES] for first in range(0, len(documents), _WRITES)]
        counts = await asyncio.gather(*[self._send(group, bad) for group in groups])
        self.rows_ahead -= sum(counts)
        return Written(sum(counts), 0.0, bad)

    async def _send(self, group: list[tuple[Row, Document]], bad: list[BadRow]) -> int:
        retries = Retries()
        written = 0
        while group:
            try:
                writes = [ReplaceOne(self._filter(each), each, upsert=True) for _, each in group]
                async with self._gate:
                    await self._collection.bulk_write(writes, ordered=False)
                self.rows_ahead += len(group)
                return written + len(group)
            except BulkWriteError as error:
                failed = {each["index"]: each for each in (error.details or {}).get("writeErrors", ())}
                if not failed:
                    raise _refusal(error) from None
                again = [group[index] for index, each in failed.items() if each.get("code") == _THROTTLED]
                for index, each in failed.items():
                    if each.get("code") != _THROTTLED:
                        bad.append(bad_row(group[index][0].number, str(each.get("errmsg")), group[index][0].document))
                written += len(group) - len(failed)
                self.rows_ahead += len(group) - len(failed)
                group = again
                if group:
                    await retries.wait(100)
            except PyMongoError as error:
                if not await retries.wait():
                    raise _refusal(error) from None
        return written

    def position(self) -> Position:
        return None

    async def close(self, *, is_complete: bool) -> None:
        await self._client.close()


def _refusal(error: PyMongoError) -> Failure:
    details = error.details if isinstance(error, OperationFailure) else None
    # Without the details that the driver adds for debugging.
    reason = str((details or {}).get("errmsg") or str(error).partition(" (configured timeouts")[0])
    return Failure(Kind.UNAVAILABLE, f"The MongoDB server does not do it: {reason.removesuffix('.')}.")
