"""Random queries that the server merges over partitions, in pages of random length, against a slow evaluator over all
items together."""

from __future__ import annotations

import random
from typing import Any

import orjson
from support import reference
from support.author import Author
from support.house import AccountHouse
from unit.query.test_query_differential import POLICIES, an_item

from armillary.account.container import Container
from armillary.account.queries import item_pages
from armillary.account.queries.merged_queries import query
from armillary.account.visits.page_walk import FeedOptions
from armillary.clock import VirtualClock
from armillary.errors import Failure
from armillary.languages.sql.compiling.compile import BoundQuery, compile_query
from armillary.languages.sql.syntax.parser import parse_query
from armillary.query.ordering import check_order
from armillary.storage.memory import MemoryEngine

DATASETS, QUERIES = 3, 100


async def by_range(house: AccountHouse[VirtualClock], container: Container) -> list[list[dict[str, Any]]]:
    """The items of each partition in the order of their creation."""
    found = []
    for each in container.map.ranges:
        page = await item_pages.read_feed(house.account, container, FeedOptions(range_id=str(each.id)))
        found.append(list(map(orjson.loads, page.rows)))
    return found


async def all_rows(
    house: AccountHouse[VirtualClock], container: Container, bound: BoundQuery, dice: random.Random
) -> list[Any]:
    rows: list[Any] = []
    continuation = None
    for _ in range(1000):
        options = FeedOptions(merges=True, page_items=dice.choice([1, 3, 1000]), continuation=continuation)
        page = await query(house.account, container, bound, b"text", options)
        rows += map(orjson.loads, page.rows)
        continuation = page.continuation
        if continuation is None:
            return rows
    raise AssertionError("it never ends")


async def test_rows_are_those_of_all_items_together(seed: int) -> None:
    given = 0
    for dataset in range(DATASETS):
        dice = random.Random(f"{seed} {dataset}")
        house = await AccountHouse.begin(MemoryEngine(), VirtualClock())
        container = await house.create("c", 24_000, indexingPolicy=dice.choice(POLICIES))
        items = [an_item(Author(dice), number) | {"pk": f"k{number}"} for number in range(dice.choice([4, 15]))]
        await house.put(container, *items)
        ranges = await by_range(house, container)
        for number in range(QUERIES):
            told = f"seed {seed}, dataset {dataset}, query {number}"
            dice = random.Random(told)
            author = Author(dice)
            text = author.query()
            told = f"{told}: {text} with {author.parameters}"
            bound = compile_query(text).bind(author.parameters, container.query_context())
            ordering = bound.selection.ordering
            if not bound.has_source:
                continue
            try:
                if ordering is not None:
                    check_order(ordering, container.schema.rules.indexing)
            except Failure:
                continue
            # Equal rows come by range, and inside a range by creation or the other way round.
            is_descending = ordering is not None and ordering.keys[0].is_descending
            documents = [item for items in (reversed(ranges) if is_descending else ranges) for item in items]
            expected = orjson.loads(orjson.dumps(reference.run(parse_query(text), documents, author.parameters)))
            house.clock.advance(60)
            try:
                rows = await all_rows(house, container, bound, dice)
            except Exception as error:
                raise AssertionError(told) from error
            assert reference.same(rows, expected), f"{told}\n{rows}\n{expected}"
            given += len(expected)
        await house.close()
    assert given > 100, "the queries should give enough rows to say something"
