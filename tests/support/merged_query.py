"""A query that the server merges over partitions, page after page."""

from __future__ import annotations

from dataclasses import replace

from armillary.account.account import Account
from armillary.account.container import Container
from armillary.account.queries import merged_queries
from armillary.account.queries.partition_slices import PageAnswer
from armillary.account.visits.page_walk import FeedOptions
from armillary.languages.sql.compiling.compile import BoundQuery


class MergedQuery:
    def __init__(self, account: Account, container: Container, bound: BoundQuery, options: FeedOptions) -> None:
        self._account, self._container, self._bound = account, container, bound
        self._options = replace(options, merges=True)
        self.is_done = False

    async def page(self) -> PageAnswer:
        answer = await merged_queries.query(self._account, self._container, self._bound, b"query", self._options)
        self._options = replace(self._options, continuation=answer.continuation)
        self.is_done = answer.continuation is None
        return answer

    async def whole(self) -> list[bytes]:
        """The rows of all pages."""
        rows: list[bytes] = []
        while not self.is_done:
            rows += (await self.page()).rows
        return rows
