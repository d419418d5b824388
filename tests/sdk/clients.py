"""One face for the two Python clients, so that each test is written once and runs with both.

Tests are coroutines and speak as azure.cosmos.aio does; the synchronous client is put behind the same form by a proxy
that calls at once and lets the result be awaited or iterated. Nothing of what a client sends or reads is changed.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import azure.cosmos
import azure.cosmos.aio
import pytest
from azure.cosmos.exceptions import CosmosHttpResponseError

_AT_ONCE = {"get_database_client", "get_container_client", "get_user_client"}  # not awaited in the asynchronous client
_PROXIES = (
    azure.cosmos.CosmosClient,
    azure.cosmos.DatabaseProxy,
    azure.cosmos.ContainerProxy,
    azure.cosmos.UserProxy,
    azure.cosmos.ScriptsProxy,
)


async def open_client(flavour: str, url: str, credential: Any, **options: Any) -> Any:
    if flavour == "sync":
        return Blocking(azure.cosmos.CosmosClient(url, credential, **options))
    client = azure.cosmos.aio.CosmosClient(url, credential, **options)
    try:
        await client.__aenter__()
    except BaseException:
        await client.close()
        raise
    return client


class Blocking:
    """A client, database, container or user of the synchronous client in the asynchronous form."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not inspect.ismethod(found):
            return _wrapped(found)

        def call(*arguments: Any, **options: Any) -> Any:
            if name == "query_items" and not options.keys() & {"partition_key", "feed_range"}:
                options.setdefault("enable_cross_partition_query", True)  # what the asynchronous client always says
            result = found(*arguments, **options)
            return _wrapped(result) if name in _AT_ONCE else Done(result)

        return call


class Done:
    """What a blocking call returned."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from ()  # makes this the generator that `await` wants
        return _wrapped(self._result)

    async def __aiter__(self) -> AsyncIterator[Any]:
        for each in self._result:
            yield each

    def by_page(self, continuation_token: str | None = None) -> Pages:
        return Pages(self._result.by_page(continuation_token))


class Pages:
    def __init__(self, pages: Any) -> None:
        self._pages = pages

    @property
    def continuation_token(self) -> str | None:
        token: str | None = self._pages.continuation_token
        return token

    def __aiter__(self) -> Pages:
        return self

    async def __anext__(self) -> Any:
        try:
            return Done(next(self._pages))
        except StopIteration:
            raise StopAsyncIteration from None


def _wrapped(result: Any) -> Any:
    return Blocking(result) if isinstance(result, _PROXIES) else result


# What tests say often.


async def everything(paged: Any) -> list[Any]:
    return [each async for each in paged]


async def pages_of(paged: Any, continuation: str | None = None) -> list[list[Any]]:
    return [[each async for each in page] async for page in paged.by_page(continuation)]


async def one_page(paged: Any, continuation: str | None = None) -> tuple[list[Any], str | None]:
    """The next page, and where to go on; None: there is no more."""
    pages = paged.by_page(continuation)
    async for page in pages:
        return [each async for each in page], pages.continuation_token
    return [], None


def user_part(document: dict[str, Any]) -> dict[str, Any]:
    """An item without what the server adds."""
    return {name: value for name, value in document.items() if not name.startswith("_")}


def charge_of(result: Any) -> float:
    return float(result.get_response_headers()["x-ms-request-charge"])


@contextmanager
def refused(status: int, sub_status: int = 0, text: str = "") -> Iterator[Any]:
    with pytest.raises(CosmosHttpResponseError) as caught:
        yield caught
    error = caught.value
    assert (error.status_code, error.sub_status or 0) == (status, sub_status), error.message
    assert text in error.message
