"""Requests to a container whose places and partitions move meanwhile, and what must hold of their answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count

import orjson
from support.moving_places import MovingPlaces, OneOf

from armillary.account.changes.change_feed import read_changes
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.queries import merged_queries
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model import documents
from armillary.model.key_values import Key
from armillary.model.patch import parse_patch
from armillary.partition.operations import Result

_INCREMENT = parse_patch({"operations": [{"op": "incr", "path": "/n", "value": 1}]})
_COUNTERS = 8


def _options(key: str) -> ItemOptions:
    return ItemOptions(key=Key((key,)))


@dataclass
class History:
    created: set[str] = field(default_factory=set)  # acknowledged
    unknown: set[str] = field(default_factory=set)  # whose outcome the client was not told
    increments: dict[str, int] = field(default_factory=dict)
    unknown_increments: dict[str, int] = field(default_factory=dict)
    followed: set[str] = field(default_factory=set)  # seen in the change feed
    refusals: int = 0
    queries: int = 0


class Load:
    def __init__(self, among: MovingPlaces) -> None:
        self.among = among
        self.history = History()
        self.numbers = count()
        self.is_over = False
        self.unasked: OneOf | None = None  # a process that no client asks

    def _any(self) -> OneOf:
        return self.among.dice.choice([each for each in self.among.processes if each is not self.unasked])

    async def begin(self) -> None:
        container = self.among.processes[0].container()
        for number in range(_COUNTERS):
            key = f"counter{number}"
            document = {"id": key, "pk": key, "n": 0}
            await items.create(container, document, _options(key), self.among.clock)
            self.history.increments[key] = self.history.unknown_increments[key] = 0

    async def _refused(self, failure: Failure) -> bool:
        """Whether to ask again."""
        assert failure.kind is Kind.UNAVAILABLE, failure
        self.history.refusals += 1
        if failure.retry_after_ms is None:
            return False
        await self.among.clock.sleep(0.1)
        return True

    async def create(self) -> None:
        while not self.is_over:
            key = f"item{next(self.numbers)}"
            while True:
                try:
                    answer = await items.create(
                        self._any().container(), {"id": key, "pk": key}, _options(key), self.among.clock
                    )
                    assert answer.result is Result.CREATED
                    self.history.created.add(key)
                except Failure as failure:
                    if failure.kind is Kind.CONFLICT:
                        raise AssertionError(f"{key} was created by a request that was refused") from None
                    if await self._refused(failure):
                        continue
                    self.history.unknown.add(key)
                break

    async def increment(self) -> None:
        while not self.is_over:
            key = f"counter{self.among.dice.randrange(_COUNTERS)}"
            try:
                await items.patch(self._any().container(), key, _INCREMENT, _options(key))
                self.history.increments[key] += 1
            except Failure as failure:
                if not await self._refused(failure):
                    self.history.unknown_increments[key] += 1

    async def read(self) -> None:
        """What was acknowledged before is found."""
        while not self.is_over:
            known = sorted(self.history.created)
            if not known:
                await asyncio.sleep(0)
                continue
            key = self.among.dice.choice(known)
            try:
                await items.read(self._any().container(), key, _options(key))
            except Failure as failure:
                await self._refused(failure)

    async def query(self) -> None:
        while not self.is_over:
            one, before = self._any(), set(self.history.created)
            try:
                found = await ids_of(one)
            except Failure as failure:
                await self._refused(failure)
                continue
            assert before <= set(found), "a page lacks what was acknowledged before it was asked for"
            assert len(found) == len(set(found)), "a page has an item twice"
            self.history.queries += 1

    async def follow(self) -> None:
        """The change feed, from where the page before ended, whichever process is asked."""
        continuation: str | None = None
        while not self.is_over or self.history.created - self.history.followed:
            try:
                found, continuation = await changed_ids(self._any(), continuation)
            except Failure as failure:
                await self._refused(failure)
                continue
            self.history.followed.update(found)
            await asyncio.sleep(0)

    async def split(self, count: int) -> None:
        among = self.among
        while count and not self.is_over:
            one, container = self._any(), self._any().container()
            range_id = among.dice.choice(sorted(container.partitions))
            try:
                await one.account.reshaper.split(one.container(), range_id)
                count -= 1
            except Failure as failure:  # it is being split, or was, or has no holder now
                if failure.kind not in (Kind.CONFLICT, Kind.RANGE_GONE, Kind.UNAVAILABLE):
                    raise
            await among.clock.sleep(0.2)

    async def move(self, count: int) -> None:
        """Move partitions, where one process holds both places."""
        among = self.among
        while count and not self.is_over:
            one = self._any()
            container = one.container()
            range_id, place = among.dice.choice(sorted(container.partitions)), among.dice.randrange(among.count)
            try:
                await one.account.divided_reshaper.move_partition(container, range_id, place)
                count -= 1
            except Failure as failure:
                if failure.kind not in (Kind.CONFLICT, Kind.RANGE_GONE, Kind.UNAVAILABLE, Kind.BAD_REQUEST):
                    raise
            await among.clock.sleep(0.05)

    async def run(
        self, moves: int, *, splits: int = 0, moved: int = 0, lasts_s: float = 0.0, begins: bool = True
    ) -> None:
        """Until places have moved so often, and so long. `moved`: how many partitions are moved, at most."""
        if begins:
            await self.begin()
        self.is_over = False
        work = [self.create() for _ in range(3)]
        work += [self.increment(), self.read(), self.query(), self.follow(), self.split(splits), self.move(moved)]
        tasks = [asyncio.create_task(each) for each in work]
        try:
            await self._move(moves)
            await self.among.clock.sleep(lasts_s)
        finally:
            self.is_over = True
        await asyncio.gather(*tasks)

    async def _move(self, moves: int) -> None:
        among, dice = self.among, self.among.dice
        for _ in range(moves):
            place = dice.randrange(1, among.count)
            to = dice.choice([each for each in among.processes if each is not among.leaders[place]])
            await dice.choice([among.hand_over, among.depose])(place, to)
            await among.clock.sleep(dice.random() * 0.2)
            for _ in range(dice.randrange(200)):
                await asyncio.sleep(0)


async def ids_of(one: OneOf) -> list[str]:
    container = one.container()
    bound = compile_query("SELECT VALUE c.id FROM c ORDER BY c.id").bind({}, container.query_context())
    found: list[str] = []
    options = FeedOptions(merges=True, page_items=40)
    while True:
        page = await merged_queries.query(one.account, container, bound, b"", options)
        found += [orjson.loads(row) for row in page.rows]
        if page.continuation is None:
            return [each for each in found if not each.startswith("counter")]
        options = FeedOptions(merges=True, page_items=40, continuation=page.continuation)


async def changed_ids(one: OneOf, continuation: str | None = None) -> tuple[list[str], str]:
    container = one.container()
    found: list[str] = []
    while True:
        page = await read_changes(one.account, container, FeedOptions(page_items=30, continuation=continuation))
        found += [orjson.loads(documents.json_text(each.stored, container.schema))["id"] for each in page.items]
        continuation = page.continuation
        if page.is_end:
            return found, continuation


async def check(load: Load) -> None:
    """Every process answers for all that is stored."""
    history = load.history
    for one in load.among.processes:
        found = set(await ids_of(one))
        assert history.created <= found, "an acknowledged write is lost"
        assert found <= history.created | history.unknown
        changed, _ = await changed_ids(one)
        assert found <= set(changed)
        for key, done in history.increments.items():
            answer = await items.read(one.container(), key, _options(key))
            assert answer.payload is not None
            value = orjson.loads(answer.payload)["n"]
            assert done <= value <= done + history.unknown_increments[key], "an increment is lost or done twice"
