"""Ports on the released Python clients, the asynchronous one and the synchronous one in a thread of its own. Whatever
they retry by default is retried; nothing else is."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import azure.cosmos
import azure.cosmos.aio
import orjson
from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError
from faults.elastic.port import ANSWERS, Document, Refused, Reply, Step, Unanswered

_END = object()


class PythonPort:
    """Made by `open`. `thread`: of the synchronous client."""

    def __init__(self, client: Any, container: Any, thread: ThreadPoolExecutor | None) -> None:
        self._client = client
        self._container = container
        self._thread = thread
        self.repeats, self.groups = thread is None, False

    @classmethod
    async def open(cls, url: str, key: str, names: tuple[str, str], *, is_blocking: bool) -> Self:
        thread = ThreadPoolExecutor(1) if is_blocking else None
        client: Any
        if thread is None:
            client = azure.cosmos.aio.CosmosClient(url, key)
            await client.__aenter__()
        else:
            client = await asyncio.get_running_loop().run_in_executor(
                thread, lambda: azure.cosmos.CosmosClient(url, key)
            )
        return cls(client, client.get_database_client(names[0]).get_container_client(names[1]), thread)

    async def read(self, key: str, item_id: str) -> Reply:
        return await self._one("read_item", item_id, partition_key=key)

    async def create(self, key: str, document: Document) -> Reply:
        return await self._one("create_item", document)

    async def upsert(self, key: str, document: Document) -> Reply:
        return await self._one("upsert_item", document)

    async def replace(self, key: str, item_id: str, document: Document, etag: str | None) -> Reply:
        return await self._one("replace_item", item_id, document, **_if(etag))

    async def delete(self, key: str, item_id: str, etag: str | None) -> Reply:
        return await self._one("delete_item", item_id, partition_key=key, **_if(etag))

    async def increment(self, key: str, item_id: str) -> Reply:
        operations = [{"op": "incr", "path": "/count", "value": 1}]
        return await self._one("patch_item", item_id, partition_key=key, patch_operations=operations)

    async def batch(self, key: str, steps: Sequence[Step]) -> Reply:
        try:
            results = await self._call(
                lambda: self._container.execute_item_batch([_member(step) for step in steps], partition_key=key)
            )
        except (CosmosHttpResponseError, CosmosBatchOperationError) as error:
            return Reply(_status(error))
        return Reply(200, [each.get("resourceBody") for each in results])

    def query(self, text: str, page_items: int, key: str | None = None) -> AsyncIterator[list[Any]]:
        where: dict[str, Any] = {"partition_key": key}
        if key is None:
            where = {"enable_cross_partition_query": True} if self._thread is not None else {}
        return self._pages(lambda: self._container.query_items(text, max_item_count=page_items, **where))

    def feed(self, page_items: int) -> AsyncIterator[list[Document]]:
        return self._pages(lambda: self._container.read_all_items(max_item_count=page_items))

    async def changes(self, continuation: str | None) -> AsyncIterator[tuple[list[Document], str | None]]:
        start: dict[str, Any] = {"continuation": continuation} if continuation else {"start_time": "Beginning"}
        asked = self._container.query_items_change_feed(max_item_count=20, **start).by_page()
        try:
            while (rows := await self._next(asked)) is not _END:
                yield rows, _place(asked.continuation_token)
        except CosmosHttpResponseError as error:
            raise _refused(error) from error
        yield [], _place(self._container.client_connection.last_response_headers["etag"])

    async def close(self) -> None:
        if self._thread is None:
            await self._client.close()
        else:
            self._thread.shutdown()

    # Asking.

    async def _one(self, method: str, *arguments: Any, **options: Any) -> Reply:
        try:
            body = await self._call(lambda: getattr(self._container, method)(*arguments, **options))
        except CosmosHttpResponseError as error:
            return Reply(_status(error))
        if body is None:
            return Reply(204)
        return Reply(200, dict(body), body.get("_etag"))

    async def _call(self, ask: Callable[[], Any]) -> Any:
        try:
            if self._thread is None:
                return await ask()
            return await asyncio.get_running_loop().run_in_executor(self._thread, ask)
        except (CosmosHttpResponseError, CosmosBatchOperationError):
            raise
        except (AzureError, OSError) as error:
            raise Unanswered(repr(error)) from error

    async def _pages(self, ask: Callable[[], Any]) -> AsyncIterator[list[Any]]:
        try:
            pages = ask().by_page()
            while (rows := await self._next(pages)) is not _END:
                yield rows
        except CosmosHttpResponseError as error:
            raise _refused(error) from error

    async def _next(self, pages: Any) -> Any:
        if self._thread is not None:
            return await self._call(lambda: _drawn(pages))

        async def draw() -> Any:
            async for page in pages:
                return [row async for row in page]
            return _END

        return await self._call(draw)


def _place(token: str) -> str | None:
    """The client cannot go on from a token of its own that has ranges of which nothing was read yet."""
    parts = orjson.loads(b64decode(token))["continuation"]["continuation"]
    return token if all(each["token"] is not None for each in parts) else None


def _drawn(pages: Any) -> Any:
    for page in pages:
        return list(page)
    return _END


def _if(etag: str | None) -> dict[str, Any]:
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified} if etag is not None else {}


def _member(step: Step) -> tuple[Any, ...]:
    if step.verb == "create":
        return ("create", (step.value,))
    if step.verb == "read":
        return ("read", (step.item_id,))
    return ("patch", (step.item_id, [{"op": "add", "path": "/values/-", "value": step.value}]))


def _status(error: Any) -> int:
    if error.status_code not in ANSWERS or getattr(error, "sub_status", None):
        raise _refused(error)
    return int(error.status_code)


def _refused(error: Any) -> Refused:
    return Refused(f"{error.status_code}/{getattr(error, 'sub_status', None)}: {str(error)[:600]}")
