"""Composite and tuple indexes at work: how little of the index is read for several filters, for filters with ORDER BY
and for what is said of one element; and DISTINCT from an index. That they change no row is shown by
`test_query_differential.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from support.shelf import KEY, Shelf

from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.key_values import Key
from armillary.query.access.access_path import Scope
from armillary.query.page import Counters
from armillary.storage.engine import View

COUNT = 2000
COMPOSITES = [
    [{"path": "/tenth"}, {"path": "/third"}, {"path": "/n"}],
    [{"path": "/tenth"}, {"path": "/n", "order": "descending"}],
    [{"path": "/third"}, {"path": "/tags/[]/name"}, {"path": "/tags/[]/kind"}],
]
POLICY = {
    "compositeIndexes": COMPOSITES,
    "includedPaths": [{"path": "/*"}, {"path": "/tags/[]/{name, kind}/?"}],
}


class Everywhere:
    """Of a partition whose items all have everything."""

    def item_count(self, view: View, epk: bytes | None) -> int:
        return COUNT

    def expired(self, view: View, most: int) -> frozenset[int] | None:
        return frozenset()

    def is_everywhere(self, view: View, path: str) -> bool:
        return True


def item(number: int) -> dict[str, Any]:
    tags = [{"name": f"t{number % 40}", "kind": number // 40}, {"name": f"t{number % 7}", "kind": number % 3}]
    return {
        "id": f"i{number}",
        "pk": "x" if number % 2 else "y",
        "n": number,
        "tenth": number % 10,
        "third": number % 3,
        "tags": tags,
        "odd": "o" * 200 if number % 100 == 0 else f"v{number % 5}",
    }


async def filled() -> Shelf:
    shelf = Shelf(IndexingPolicy.parse(POLICY, key_definition=KEY, has_ttl=False))
    await shelf.put([item(number) for number in range(COUNT)])
    return shelf


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    return asyncio.run(filled())


@pytest.mark.parametrize(
    ("text", "keys_max"),
    [
        # 2 of 2,000; each of the first two filters leaves hundreds.
        ("SELECT VALUE c.n FROM c WHERE c.tenth = 3 AND c.third = 1 AND c.n BETWEEN 100 AND 150", 10),
        ("SELECT VALUE c.n FROM c WHERE c.third = 1 AND c.n = 133 AND c.tenth = 3", 10),
        ("SELECT VALUE c.n FROM c WHERE c.tenth = 3 AND c.n > 1900", 30),
        ("SELECT VALUE c.n FROM c WHERE c.tenth = 3 AND c.n > 1900 OR c.tenth = 4 AND c.n < 50", 40),
        # Straight off the index: as many as are wanted.
        ("SELECT TOP 5 VALUE c.n FROM c WHERE c.tenth = 3 ORDER BY c.n", 40),
        ("SELECT TOP 5 VALUE c.n FROM c WHERE c.tenth = 3 ORDER BY c.n DESC", 40),
        ("SELECT TOP 5 VALUE c.n FROM c WHERE c.tenth = 3 AND c.n > 700 ORDER BY c.n", 40),
        ("SELECT TOP 5 VALUE c.n FROM c WHERE c.tenth = 3 AND c.third = 2 ORDER BY c.n", 40),
        ("SELECT TOP 5 VALUE c.n FROM c WHERE c.tenth = 3 ORDER BY c.tenth, c.n DESC", 40),
        ("SELECT TOP 5 VALUE c.n FROM c WHERE c.tenth = 3 AND c.third = 1 ORDER BY c.tenth, c.third, c.n", 40),
        # One element.
        ("SELECT VALUE c.n FROM c JOIN t IN c.tags WHERE t.name = 't1' AND t.kind = 7", 10),
        (
            "SELECT VALUE c.n FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.kind = 7 AND t.name = 't1')",
            10,
        ),
        ("SELECT VALUE c.n FROM c JOIN t IN c.tags WHERE t.name = 't1' AND t.kind = 7 AND c.third = 2", 10),
        # Values: five, and what is cut.
        ("SELECT DISTINCT VALUE c.tenth FROM c", 50),
        ("SELECT DISTINCT VALUE c.tenth FROM c WHERE c.tenth > 6", 40),
        ("SELECT DISTINCT c.third FROM c", 40),
        ("SELECT DISTINCT TOP 2 VALUE c.odd FROM c", 120),
    ],
)
async def test_only_what_is_asked_for_is_read(shelf: Shelf, text: str, keys_max: int) -> None:
    page, keys = await shelf.page(text, statistics=Everywhere(), max_items=10 if "TOP" in text else 1000)
    assert page.position is None or "TOP" in text
    assert list(map(orjson.loads, page.rows)) == shelf.expected(text, None, lambda epk: True)
    assert page.rows
    assert keys <= keys_max, f"{text} read {keys} keys"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT DISTINCT VALUE c.n FROM c",  # as many values as items
        "SELECT DISTINCT VALUE c.tags FROM c",  # not told apart by the index
        "SELECT DISTINCT VALUE c.tenth FROM c WHERE c.third = 1",
        "SELECT DISTINCT c.tenth, c.third FROM c",
        "SELECT DISTINCT VALUE c.tenth + 1 FROM c",
    ],
)
async def test_distinct_looks_at_the_items_where_it_must(shelf: Shelf, text: str) -> None:
    assert await shelf.all_rows(text) == shelf.expected(text, None, lambda epk: True)


async def test_distinct_of_what_some_items_lack() -> None:
    shelf = Shelf(IndexingPolicy.parse(None, key_definition=KEY, has_ttl=False))
    await shelf.put([{"id": f"i{number}", "pk": "x"} | ({"a": 1} if number % 2 else {}) for number in range(6)])
    assert await shelf.all_rows("SELECT DISTINCT c.a FROM c") == [{}, {"a": 1}]
    assert await shelf.all_rows("SELECT DISTINCT VALUE c.a FROM c") == [1]


@pytest.mark.parametrize(
    "text", ["SELECT DISTINCT VALUE c.tenth FROM c", "SELECT VALUE c.n FROM c WHERE c.tenth = 3 ORDER BY c.n"]
)
async def test_in_one_logical_partition(shelf: Shelf, text: str) -> None:
    scope = Scope(epk=KEY.effective_key(Key(("x",))))
    assert await shelf.all_rows(text, scope=scope) == shelf.expected(text, None, scope.holds)


async def test_an_order_that_a_composite_index_has_is_not_charged_as_a_sort(shelf: Shelf) -> None:
    async def counters(text: str) -> Counters:
        page, _ = await shelf.page(text)
        return page.counters

    assert (await counters("SELECT TOP 5 * FROM c WHERE c.tenth = 3 ORDER BY c.n")).sorted_rows == 0
    assert (await counters("SELECT TOP 5 * FROM c WHERE c.third = 1 ORDER BY c.n")).sorted_rows == 5
