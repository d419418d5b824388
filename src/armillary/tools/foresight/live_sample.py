"""A sample of the items of a running server's container, for `armillary advise`: drawn by the server's control API at
random item numbers, in proportion to each partition's items, and charged to no budget. Memory is bounded by a page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import orjson

from armillary.errors import Failure, Kind
from armillary.limits import SAMPLE_ITEMS_MAX
from armillary.model.items import strip_system_properties
from armillary.tools.commands.arguments import container_path
from armillary.tools.remote import Server
from armillary.tools.transfer.rows import Page, Row

_PAGE_ITEMS: Final = 1_000
_PAGE_BYTES: Final = 4 * 1024 * 1024


class LiveSample:
    def __init__(self, server: Server, container: str, rows: int, seed: int) -> None:
        self._server = server
        self._path = container_path(container)
        self._rows, self._seed = rows, seed
        try:
            self.figures: dict[str, Any] = server.get(*self._path, "sample", "figures")
        except BaseException:
            server.close()
            raise

    async def pages(self) -> AsyncIterator[Page]:
        drawn = min(self._rows, self.figures["items"])
        sized = drawn * self.figures["bytes"] / max(1, self.figures["items"]) / _PAGE_BYTES
        count = max(1, -(-drawn // _PAGE_ITEMS), round(sized))
        seen: set[str] = set()  # what is written meanwhile moves the bounds of pages
        number = 0
        for page in range(count):
            for text in await asyncio.to_thread(self._lines, page, count):
                rows = []
                for line in text.split(b"\n") if text else ():
                    document = orjson.loads(line)
                    rid = document.get("_rid", "")
                    if rid in seen:
                        continue
                    seen.add(rid)
                    number += 1
                    rows.append(Row(number, strip_system_properties(document)))
                yield Page(rows, {}, (page + 1) / count, 0.0)

    def _lines(self, page: int, pages: int) -> list[bytes]:
        """A page; where it is too large, its halves."""
        asked = {"count": self._rows, "pages": pages, "page": page, "seed": self._seed}
        try:
            return [self._server.get_bytes(*self._path, "sample", "items", **asked) or b""]
        except Failure as failure:
            if failure.kind is not Kind.TOO_LARGE or 2 * pages > SAMPLE_ITEMS_MAX:
                raise
        return [text for half in (2 * page, 2 * page + 1) for text in self._lines(half, 2 * pages)]

    async def close(self) -> None:
        self._server.close()
