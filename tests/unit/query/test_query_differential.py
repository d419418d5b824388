"""Twenty thousand random queries of every class over random items: the engine with an index, the engine without one,
and a slow evaluator that walks the tree give the same rows in the same order, whatever the pages.
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

from armillary.errors import Failure
from armillary.languages.sql.compiling.compile import BoundQuery, compile_query
from armillary.languages.sql.syntax.parser import parse_query
from armillary.model.encoding import decode_value, encode_value
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.key_values import Key
from armillary.model.values import UNDEFINED
from armillary.query.access.access_path import WHOLE, Index, Scope
from armillary.query.execution import Execution
from armillary.query.ordering import check_order
from armillary.query.page import Progress
from armillary.storage.engine import View

SEED = 20_262
CHUNKS, DATASETS, QUERIES = 10, 20, 100
COMPOSITES = [
    [{"path": f"/{first}", "order": "ascending"}, {"path": f"/{second}", "order": order}]
    for first, second in (("a", "b"), ("b", "long"))
    for order in ("ascending", "descending")
]
LONG = [
    [{"path": "/a", "order": first}, {"path": "/b", "order": second}, {"path": "/long", "order": third}]
    for first, second, third in (
        ("ascending", "ascending", "ascending"),
        ("descending", "ascending", "descending"),
        ("ascending", "ascending", "descending"),
    )
]
POLICIES = [
    {"compositeIndexes": COMPOSITES},
    {"includedPaths": [{"path": "/*"}, {"path": "/a/?"}], "compositeIndexes": COMPOSITES},
    # Longer ones, and through arrays; tuples of elements.
    {
        "includedPaths": [{"path": "/*"}, {"path": "/c/[]/{a, b}/?"}],
        "compositeIndexes": [
            *COMPOSITES,
            *LONG,
            [{"path": "/a"}, {"path": "/c/[]/a", "order": "descending"}],
            [{"path": "/b", "order": "descending"}, {"path": "/c/[]/b"}, {"path": "/c/[]/a"}],
        ],
    },
    # Composites whose first path descends: ties go against the walk.
    {
        "compositeIndexes": [
            [{**entry, "order": "descending" if entry["order"] == "ascending" else "ascending"} for entry in composite]
            for composite in COMPOSITES
        ]
    },
]


def an_item(author: Author, number: int) -> dict[str, Any]:
    item = {**author.item(), "id": f"i{number}", "pk": author.dice.choice(["x", "y"])}
    if author.dice.random() < 0.5:
        long = author.dice.choice([100, 126, 127, 1000])
        item["long"] = author.dice.choice("xy") * long + author.dice.choice(["", "a", "b"])
    if author.dice.random() < 0.4:
        item["c"] = [
            {name: author.scalar() for name in "ab" if author.dice.random() < 0.8}
            for _ in range(author.dice.randrange(4))
        ]
    return item


class Known:
    """What a partition would know about the items of a shelf."""

    def __init__(self, shelf: Shelf, dice: random.Random) -> None:
        self._shelf = shelf
        self._dice = dice

    def item_count(self, view: View, epk: bytes | None) -> int:
        return sum(epk is None or epk == each for each, _ in self._shelf.items.values())

    def expired(self, view: View, most: int) -> frozenset[int] | None:
        return frozenset()

    def is_everywhere(self, view: View, path: str) -> bool:
        name = path[1:]
        return self._dice.choice([False, all(name in item for _, item in self._shelf.items.values())])


async def pages(shelf: Shelf, bound: BoundQuery, scope: Scope, index: Index, dice: random.Random) -> list[Any]:
    """All rows, in pages that each begin anew from what a continuation carries."""
    selection = bound.selection
    progress = Progress(skip=selection.skip, take=selection.take)
    rows: list[Any] = []
    for _ in range(10_000):
        known = dice.choice([None, Known(shelf, dice)])
        execution = Execution(selection, scope=scope, index=index, statistics=known, progress=progress)
        max_items = dice.choice([1, 3, 1000])
        is_due = dice.choice([lambda: False, lambda: True])
        for _ in range(dice.randrange(1, 4)):
            page = await shelf.execute(
                execution, max_items=max_items, max_bytes=dice.choice([50, 10**6]), is_due=is_due
            )
            rows += [orjson.loads(row) for row in page.rows]
            if page.position is None:
                return rows
        while not execution.can_stop:
            page = await shelf.execute(execution, max_items=max_items, is_due=is_due)
            rows += [orjson.loads(row) for row in page.rows]
            if page.position is None:
                return rows
        state = execution.state
        if state is not UNDEFINED:
            state, _ = decode_value(encode_value(state))
        progress = Progress(execution.progress.position, execution.progress.skip, execution.progress.take, state)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("chunk", range(CHUNKS))
async def test_the_engine_gives_what_the_slow_evaluator_gives(chunk: int, with_limits: WithLimits) -> None:
    given = 0
    for dataset in range(DATASETS):
        dice = random.Random(f"{SEED} {chunk} {dataset}")
        policy = IndexingPolicy.parse(dice.choice(POLICIES), key_definition=KEY, has_ttl=False)
        shelf = Shelf(policy)
        await shelf.put([an_item(Author(dice), number) for number in range(dice.choice([0, 3, 12, 12]))])
        for number in range(QUERIES):
            told = f"seed {SEED}, chunk {chunk}, dataset {dataset}, query {number}"
            dice = random.Random(told)
            author = Author(dice)
            text = author.query()
            scope = Scope(epk=KEY.effective_key(Key(("x",)))) if dice.random() < 0.2 else WHOLE
            documents = [item for _, (epk, item) in sorted(shelf.items.items()) if scope.holds(epk)]
            expected = orjson.loads(orjson.dumps(reference.run(parse_query(text), documents, author.parameters)))
            with_limits(QUERY_FEW_ITEMS=dice.choice([0, 3, 1000]))
            told = f"{told}: {text} with {author.parameters}"
            bound = compile_query(text).bind(author.parameters)
            if bound.selection.ordering is not None:
                try:
                    check_order(bound.selection.ordering, policy)
                except Failure:
                    continue
            for is_complete in (True, False):
                try:
                    rows = await pages(shelf, bound, scope, Index(policy, is_complete), dice)
                except Exception as error:
                    raise AssertionError(told) from error
                assert reference.same(rows, expected), f"{told}\nindex {is_complete}\n{rows}\n{expected}"
            given += len(expected)
    assert given > 900, "the queries should give enough rows to say something"
