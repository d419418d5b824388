"""How the clients of the elastic tests reach a server: one set of functions over the product itself, over the Python
clients and over the JavaScript client. Retrying is left to whatever is behind them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Document = dict[str, Any]
ANSWERS = (200, 201, 204, 404, 409, 412)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int  # one of ANSWERS
    body: Any = None
    etag: str | None = None
    was_there: bool | None = None  # of an upsert, if the client tells


class Refused(Exception):
    """An answer that an application does not expect. It had no effect, unless the server died meanwhile; of one that
    `is_certain` the server has said so."""

    is_certain = False


class Unanswered(Exception):
    """No answer: what was asked may have happened or not."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a batch: read, append (of a value to /values), or create."""

    verb: str
    item_id: str
    value: Any = None  # appended, or the document to create


class Port(Protocol):
    repeats: bool  # sends writes again when the connection ends, though they may have happened
    groups: bool  # can GROUP BY over several partitions

    async def read(self, key: str, item_id: str) -> Reply: ...

    async def create(self, key: str, document: Document) -> Reply: ...

    async def upsert(self, key: str, document: Document) -> Reply: ...

    async def replace(self, key: str, item_id: str, document: Document, etag: str | None) -> Reply: ...

    async def delete(self, key: str, item_id: str, etag: str | None) -> Reply: ...

    async def increment(self, key: str, item_id: str) -> Reply:
        """Adds one to /count; the body of the answer is the item."""

    async def batch(self, key: str, steps: Sequence[Step]) -> Reply:
        """200 with the items as each step left them, or the status of the step that failed."""

    def query(self, text: str, page_items: int, key: str | None = None) -> AsyncIterator[list[Any]]:
        """Page by page."""

    def feed(self, page_items: int) -> AsyncIterator[list[Document]]:
        """Every item, page by page."""

    def changes(self, continuation: str | None) -> AsyncIterator[tuple[list[Document], str | None]]:
        """The change feed of all keys until nothing is new: pages of items with _lsn, each with where to go on later;
        None: the client cannot tell yet."""

    async def close(self) -> None: ...
