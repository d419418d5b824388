"""A port on the product itself, without a socket between: the functions that doors call, as clients make them call."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import orjson
from faults.elastic.port import Document, Refused, Reply, Step, Unanswered

from armillary.account.account import Account
from armillary.account.changes.change_feed import ChangePage, read_changes
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.bulk import run_bulk
from armillary.account.items.items import ItemOptions, Member
from armillary.account.queries import item_pages, merged_queries
from armillary.account.queries.partition_slices import PageAnswer
from armillary.account.visits.page_walk import FeedOptions
from armillary.account.visits.read_visits import Answer
from armillary.account.visits.write_visits import BatchAnswer
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.encoding import payload_of
from armillary.model.key_values import Key
from armillary.model.keys import SPACE_HIGH, SPACE_LOW
from armillary.model.patch import parse_patch
from armillary.model.ranges import KeyRange, PartitionMap
from armillary.partition.operations import Outcome, Result, Verb

STATUS = {Kind.NOT_FOUND: 404, Kind.CONFLICT: 409, Kind.PRECONDITION_FAILED: 412}
BULK_CHANCE = 0.3
RESULTS = {Result.CREATED: 201, Result.DELETED: 204}


class Place:
    """Where the account is at present: it dies and comes back."""

    def __init__(self, database: str, container: str) -> None:
        self.names = (database, container)
        self.account: Account | None = None
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_back = asyncio.Event()

    def put(self, account: Account) -> None:
        self.account = account
        self.death = asyncio.get_running_loop().create_future()
        self.is_back.set()

    def die(self) -> None:
        self.account = None
        self.is_back.clear()
        self.death.set_result(None)


class InsidePort:
    repeats, groups = False, True

    def __init__(self, place: Place, dice: random.Random) -> None:
        self._place = place
        self._dice = dice
        self._session: dict[int, int] = {}
        self._ranges: PartitionMap | None = None

    async def read(self, key: str, item_id: str) -> Reply:
        return await self._one(lambda account, c: items.read(c, item_id, self._options(key)))

    async def create(self, key: str, document: Document) -> Reply:
        if self._dice.random() < BULK_CHANCE:
            return await self._create_in_bulk(key, document)
        return await self._one(lambda account, c: items.create(c, document, self._options(key), account.clock))

    async def _create_in_bulk(self, key: str, document: Document) -> Reply:
        """As clients do that know the ranges: if they do not know them any more, they read them again."""
        members = [Member(Verb.CREATE, None, document, options=self._options(key))]
        ranges = self._known_ranges()
        while True:
            owner = ranges.find(self._found()[1].effective_key(Key((key,))))

            async def bulk(account: Account, container: Container, owner: KeyRange = owner) -> BatchAnswer:
                return await run_bulk(container, str(owner.id), members, account.clock)

            try:
                answer = await self._ask(bulk, (Kind.RANGE_GONE,))
            except Failure:
                ranges = self._known_ranges(is_new=True)
                continue
            outcome = answer.members[0]
            if isinstance(outcome, Outcome):
                return Reply(201, etag=outcome.etag)
            if outcome.kind is not Kind.RANGE_GONE:
                return Reply(_status(outcome))
            ranges = self._known_ranges(is_new=True)

    def _known_ranges(self, *, is_new: bool = False) -> PartitionMap:
        _, container = self._found()
        if self._ranges is None or is_new:
            self._ranges = container.map
        return self._ranges

    async def upsert(self, key: str, document: Document) -> Reply:
        return await self._one(lambda account, c: items.upsert(c, document, self._options(key), account.clock))

    async def replace(self, key: str, item_id: str, document: Document, etag: str | None) -> Reply:
        options = self._options(key, etag)
        return await self._one(lambda account, c: items.replace(c, item_id, document, options, account.clock))

    async def delete(self, key: str, item_id: str, etag: str | None) -> Reply:
        return await self._one(lambda account, c: items.delete(c, item_id, self._options(key, etag)))

    async def increment(self, key: str, item_id: str) -> Reply:
        change = parse_patch({"operations": [{"op": "incr", "path": "/count", "value": 1}]})
        return await self._one(lambda account, c: items.patch(c, item_id, change, self._options(key)))

    async def batch(self, key: str, steps: Sequence[Step]) -> Reply:
        members = [_member(step) for step in steps]
        answer = await self._ask(
            lambda account, c: items.batch(c, Key((key,)), members, self._options(key), account.clock)
        )
        self._see([(answer.range_id, answer.lsn)])
        if answer.is_done:
            outcomes = [each for each in answer.members if isinstance(each, Outcome)]
            return Reply(200, [orjson.loads(each.payload) if each.payload else None for each in outcomes])
        failures = [each for each in answer.members if isinstance(each, Failure)]
        failed = next(each for each in failures if each.kind is not Kind.FAILED_DEPENDENCY)
        return Reply(_status(failed))

    async def query(self, text: str, page_items: int, key: str | None = None) -> AsyncIterator[list[Any]]:
        """In pages with a continuation, merged by the server."""
        continuation: str | None = None
        while True:
            options = replace(self._feed_options(page_items, continuation, key), merges=True)

            async def page(account: Account, container: Container, options: FeedOptions = options) -> PageAnswer:
                bound = compile_query(text).bind({}, container.query_context())
                return await merged_queries.query(account, container, bound, text.encode(), options)

            answer = await self._ask(page)
            self._see(answer.lsns)
            yield [orjson.loads(row) for row in answer.rows]
            continuation = answer.continuation
            if continuation is None:
                return

    async def feed(self, page_items: int) -> AsyncIterator[list[Document]]:
        """The whole container at once, or range by range as clients do that know the ranges."""
        way = self._dice.choice(("whole", "stretches", "ranges"))
        if way == "whole":
            pages = self._feed_pages(page_items, SPACE_LOW, SPACE_HIGH, None)
            async for page in pages:
                yield page
            return
        for each in self._known_ranges(is_new=way == "stretches").ranges:
            range_id = each.id if way == "ranges" else None
            async for page in self._feed_pages(page_items, each.low, each.high, range_id):
                yield page

    async def _feed_pages(
        self, page_items: int, low: bytes, high: bytes, range_id: int | None, continuation: str | None = None
    ) -> AsyncIterator[list[Document]]:
        while True:
            options = self._feed_options(page_items, continuation)
            if range_id is not None:
                options.range_id = str(range_id)
            if (low, high) != (SPACE_LOW, SPACE_HIGH):
                options.epk_range = (low, high)

            async def page(account: Account, container: Container, options: FeedOptions = options) -> PageAnswer:
                return await item_pages.read_feed(account, container, options)

            try:
                answer = await self._ask(page, (Kind.RANGE_GONE,))
            except Failure:
                assert range_id is not None, "nobody said which range"
                for each in self._known_ranges(is_new=True).overlapping(low, high):
                    cut = (max(low, each.low), min(high, each.high))
                    async for rows in self._feed_pages(page_items, *cut, each.id, continuation):
                        yield rows
                return
            self._see(answer.lsns)
            yield [orjson.loads(row) for row in answer.rows]
            continuation = answer.continuation
            if continuation is None:
                return

    async def changes(self, continuation: str | None) -> AsyncIterator[tuple[list[Document], str | None]]:
        page = ChangePage(is_end=False)
        while not page.is_end:
            options = self._feed_options(self._dice.choice((3, 30)), continuation)

            async def read(account: Account, container: Container, options: FeedOptions = options) -> ChangePage:
                return await read_changes(account, container, options)

            page = await self._ask(read)
            self._see(page.lsns)
            continuation = page.continuation
            yield [{**orjson.loads(payload_of(each.stored)), "_lsn": each.lsn} for each in page.items], continuation

    async def close(self) -> None:
        pass

    # Asking.

    async def _one(self, ask: Callable[[Account, Container], Coroutine[Any, Any, Answer]]) -> Reply:
        try:
            answer = await self._ask(ask, tuple(STATUS))
        except Failure as failure:
            return Reply(_status(failure))
        self._see([(answer.range_id, answer.lsn)])
        body = orjson.loads(answer.payload) if answer.payload else None
        return Reply(RESULTS.get(answer.result, 200), body, answer.etag, answer.result is not Result.CREATED)

    async def _ask(
        self,
        ask: Callable[[Account, Container], Coroutine[Any, Any, Any]],
        passed: tuple[Kind, ...] = (),
        of: Account | None = None,
    ) -> Any:
        account, container = self._found()
        if of is not None and account is not of:
            raise Unanswered("the connection ended")
        death = self._place.death
        task = asyncio.create_task(ask(account, container), name="request")
        await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() or task.cancelled():
            task.cancel()
            raise Unanswered("the connection ended")
        try:
            return task.result()
        except Failure as failure:
            if failure.kind in passed:
                raise
            raise Refused(f"{failure.kind.name}: {failure.message}") from failure

    def _found(self) -> tuple[Account, Container]:
        account = self._place.account
        if account is None:
            raise Unanswered("nobody is there")
        return account, account.owner_container(*self._place.names)

    def _options(self, key: str, etag: str | None = None) -> ItemOptions:
        return ItemOptions(key=Key((key,)), if_match=etag, session=dict(self._session))

    def _feed_options(self, page_items: int, continuation: str | None, key: str | None = None) -> FeedOptions:
        return FeedOptions(
            key=Key((key,)) if key is not None else None,
            page_items=page_items,
            continuation=continuation,
            session=dict(self._session),
        )

    def _see(self, lsns: Sequence[tuple[int, int]]) -> None:
        for range_id, lsn in lsns:
            self._session[range_id] = max(lsn, self._session.get(range_id, 0))


def _status(failure: Failure) -> int:
    try:
        return STATUS[failure.kind]
    except KeyError:
        raise Refused(f"{failure.kind.name}: {failure.message}") from failure


def _member(step: Step) -> Member:
    if step.verb == "create":
        return Member(Verb.CREATE, None, step.value)
    if step.verb == "read":
        return Member(Verb.READ, step.item_id)
    change = parse_patch({"operations": [{"op": "add", "path": "/values/-", "value": step.value}]})
    return Member(Verb.PATCH, step.item_id, patch=change)
