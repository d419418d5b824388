"""Queries gathered from several partitions: thousands of random ones give what a slow evaluator gives for all items
together, and what is held on the way is bounded.
"""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from support import reference
from support.author import Author
from support.limits import WithLimits
from support.shelf import KEY, Shelf
from unit.query.test_query_differential import POLICIES, Known, an_item

from armillary.errors import Failure
from armillary.languages.sql.compiling.compile import compile_query
from armillary.languages.sql.syntax.parser import parse_query
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.values import Value
from armillary.query.access.access_path import WHOLE, Index
from armillary.query.execution import Execution
from armillary.query.gather import Gather, partial
from armillary.query.ordering import check_order
from armillary.query.page import Page
from armillary.query.selection import Selection

SEED = 31_337
CHUNKS, DATASETS, QUERIES = 4, 20, 50


class ShelfSource:
    """A shelf in the place of a partition."""

    def __init__(self, shelf: Shelf, selection: Selection, dice: random.Random, *, is_indexed: bool = True) -> None:
        self._shelf = shelf
        self._dice = dice
        index = Index(shelf.policy, is_indexed)
        known = dice.choice([None, Known(shelf, dice)])
        self._execution = Execution(selection, scope=WHOLE, index=index, statistics=known)
        self.reads: list[int] = []  # rows of each

    async def read(self, max_items: int, max_bytes: int) -> Page:
        is_due = self._dice.choice([lambda: False, lambda: True])
        page = await self._shelf.execute(self._execution, max_items=max_items, max_bytes=max_bytes, is_due=is_due)
        assert len(page.rows) <= max_items
        self.reads.append(len(page.rows))
        return page

    def state(self) -> Value:
        return self._execution.state


async def all_rows(gather: Gather) -> list[Any]:
    return list(map(orjson.loads, await gather.rows(lambda: None)))


def serial(shelves: list[Shelf], *, is_descending: bool) -> list[Any]:
    """All items, so that equal ones end up by range, and inside a range by rid or the other way round."""
    ordered = reversed(shelves) if is_descending else shelves
    return [item for shelf in ordered for _, (_, item) in sorted(shelf.items.items())]


@pytest.mark.parametrize("chunk", range(CHUNKS))
async def test_gathered_rows_are_those_of_all_items_together(chunk: int, with_limits: WithLimits) -> None:
    given = 0
    for dataset in range(DATASETS):
        dice = random.Random(f"{SEED} {chunk} {dataset}")
        policy = IndexingPolicy.parse(dice.choice(POLICIES), key_definition=KEY, has_ttl=False)
        shelves = [Shelf(policy) for _ in range(dice.choice([1, 2, 4]))]
        for place, shelf in enumerate(shelves):
            # Rids of earlier ranges are not smaller ones.
            items = [an_item(Author(dice), 100 * place + number) for number in range(dice.choice([0, 3, 6]))]
            await shelf.put(items, first_rid=10_000 - 1000 * place)
        for number in range(QUERIES):
            told = f"seed {SEED}, chunk {chunk}, dataset {dataset}, query {number}"
            dice = random.Random(told)
            author = Author(dice)
            text = author.query()
            told = f"{told}: {text} with {author.parameters}"
            bound = compile_query(text).bind(author.parameters)
            ordering = bound.selection.ordering
            if ordering is not None:
                try:
                    check_order(ordering, policy)
                except Failure:
                    continue
            if not bound.has_source:
                continue
            documents = serial(shelves, is_descending=ordering is not None and ordering.keys[0].is_descending)
            expected = orjson.loads(orjson.dumps(reference.run(parse_query(text), documents, author.parameters)))
            with_limits(QUERY_FEW_ITEMS=dice.choice([0, 3, 1000]))
            is_indexed = dice.random() < 0.8
            selection = partial(bound.selection)
            sources = [ShelfSource(shelf, selection, dice, is_indexed=is_indexed) for shelf in shelves]
            try:
                rows = await all_rows(Gather(bound.selection, sources))
            except Exception as error:
                raise AssertionError(told) from error
            assert reference.same(rows, expected), f"{told}\n{rows}\n{expected}"
            given += len(expected)
    assert given > 500, "the queries should give enough rows to say something"


async def shelves_of(count: int, items: int, policy: IndexingPolicy | None = None) -> list[Shelf]:
    """Numbers dealt out to shelves in turn."""
    policy = policy or IndexingPolicy.parse(None, key_definition=KEY, has_ttl=False)
    shelves = [Shelf(policy) for _ in range(count)]
    for place, shelf in enumerate(shelves):
        numbers = range(place, items, count)
        await shelf.put([{"id": f"{number}", "pk": "x", "n": number, "parity": number % 2} for number in numbers])
    return shelves


def begin(text: str, shelves: list[Shelf]) -> tuple[Gather, list[ShelfSource]]:
    selection = compile_query(text).bind({}).selection
    sources = [ShelfSource(shelf, partial(selection), random.Random(1)) for shelf in shelves]
    return Gather(selection, sources), sources


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT DISTINCT VALUE COUNT(1) FROM c", [40]),
        ("SELECT DISTINCT VALUE COUNT(1) FROM c GROUP BY c.parity", [20]),
        ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.parity FROM c)", [2]),
        ("SELECT TOP 1 VALUE COUNT(1) FROM c", [40]),
        ("SELECT TOP 0 VALUE COUNT(1) FROM c", []),
        ("SELECT VALUE AVG(c.n) FROM c", [19.5]),
        ("SELECT VALUE [MIN(c.n), MAX(c.n), SUM(c.n)] FROM c", [[0, 39, 780]]),
        ("SELECT VALUE MAX(c.nowhere) FROM c", []),
        ("SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 1 LIMIT 2", [38, 37]),
        ("SELECT DISTINCT VALUE c.parity FROM c ORDER BY c.parity DESC", [1, 0]),
    ],
)
async def test_the_whole_is_counted_skipped_and_told_apart_once(text: str, expected: list[Any]) -> None:
    gather, _ = begin(text, await shelves_of(4, 40))
    assert await all_rows(gather) == expected


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ("QUERY_DISTINCT_MAX", "SELECT DISTINCT VALUE c.n FROM c"),
        ("QUERY_GROUPS_MAX", "SELECT c.n, COUNT(1) AS k FROM c GROUP BY c.n"),
        ("QUERY_COLLECTED_MAX", "SELECT VALUE MAKELIST(c.n) FROM c"),
    ],
)
async def test_what_is_held_for_the_whole_has_a_limit(limit: str, text: str, with_limits: WithLimits) -> None:
    shelves = await shelves_of(4, 40)
    with_limits(**{limit: 40})
    gather, _ = begin(text, shelves)
    assert await all_rows(gather)
    with_limits(**{limit: 39})  # each partition has 10 and none is over it
    gather, _ = begin(text, shelves)
    with pytest.raises(Failure, match="more than 39"):
        await all_rows(gather)


async def test_arrays_spoil_the_least_value_in_whatever_partition_they_are() -> None:
    policy = IndexingPolicy.parse(None, key_definition=KEY, has_ttl=False)
    shelves = [Shelf(policy), Shelf(policy), Shelf(policy)]
    await shelves[0].put([{"id": "1", "pk": "x", "n": 1}])
    await shelves[1].put([{"id": "2", "pk": "x"}])
    gather, _ = begin("SELECT VALUE MIN(c.n) FROM c", shelves)
    assert await all_rows(gather) == [1]
    await shelves[2].put([{"id": "3", "pk": "x", "n": [1]}])
    gather, _ = begin("SELECT VALUE MIN(c.n) FROM c", shelves)
    assert await all_rows(gather) == []


RANKED = [
    "SELECT VALUE c.n FROM c ORDER BY VectorDistance(c.v, [1, 0.5])",
    "SELECT TOP 7 VALUE c.n FROM c ORDER BY VectorDistance(c.v, [1, 0.5])",
    "SELECT VALUE c.n FROM c WHERE c.n % 3 = 1 ORDER BY VectorDistance(c.v, [1, 0.5]) OFFSET 2 LIMIT 5",
    "SELECT TOP 9 VALUE c.n FROM c ORDER BY RANK FullTextScore(c.text, 'red', 'blue')",
    "SELECT TOP 9 VALUE c.n FROM c WHERE c.n > 20 "
    "ORDER BY RANK RRF(FullTextScore(c.text, 'red'), VectorDistance(c.v, [0, 1]))",
]


@pytest.mark.parametrize("text", RANKED)
async def test_scores_are_those_of_all_items_together(text: str, with_limits: WithLimits) -> None:
    with_limits(QUERY_RANKED_SPARE_ITEMS=3)
    dice = random.Random(5)
    policy = IndexingPolicy.parse(None, key_definition=KEY, has_ttl=False)
    shelves = [Shelf(policy) for _ in range(3)]
    for place, shelf in enumerate(shelves):
        items = [
            {
                "id": f"{number}",
                "pk": "x",
                "n": number,
                "v": [dice.random(), dice.random()] if dice.random() < 0.9 else None,
                "text": " ".join(dice.choices(["red", "blue", "green", "yellow"], k=dice.randrange(1, 6))),
            }
            for number in range(place, 60, 3)
        ]
        await shelf.put(items)
    expected = compile_query(text).bind({}).evaluate_over(serial(shelves, is_descending=False))
    gather, _ = begin(text, shelves)
    assert expected and await all_rows(gather) == expected
