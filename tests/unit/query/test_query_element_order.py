"""ORDER BY an element of an array, `c.tags[0]`: the index has the terms of all elements under one path, so the order is
that of the items themselves, whatever the other elements are."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.limits import WithLimits
from support.shelf import KEY, Shelf

from armillary import limits
from armillary.errors import Failure
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.key_values import Key
from armillary.query.access.access_path import WHOLE, Scope
from armillary.query.ordering import check_order

VALUES = [0, 1, 1, 2.5, -3, "s", "st", True, None, [1], {"q": 1}]
POLICIES = {
    "all": IndexingPolicy.parse(None, key_definition=KEY, has_ttl=False),
    "named": IndexingPolicy.parse(
        {"includedPaths": [{"path": "/tags/[]/?"}, {"path": "/*"}]}, key_definition=KEY, has_ttl=False
    ),
}
FILTERS = ["true", "c.pk = 'x'", "c.tags[1] > 0", "c.tags[0] >= 1", "IS_DEFINED(c.tags[0])", "NOT IS_DEFINED(c.a[0].x)"]
ORDERS = ["c.tags[0]", "c.tags[0] DESC", "c.tags[1]", 'c["a"][0].x', "c.a[1].x DESC", "c.deep.list[0][1]"]


def long_text(dice: random.Random) -> str:
    """As long as a term, or a little longer: then the item decides."""
    return "x" * (limits.TERM_BYTES_MAX + dice.randrange(-3, 3)) + dice.choice(["", "a", "b"])


def make_item(dice: random.Random, number: int) -> dict[str, Any]:
    def value() -> Any:
        return long_text(dice) if dice.random() < 0.3 else dice.choice(VALUES)

    item: dict[str, Any] = {"id": f"i{number}", "pk": dice.choice(["x", "y", 5])}
    if dice.random() < 0.9:
        item["tags"] = [value() for _ in range(dice.randrange(4))]
    if dice.random() < 0.8:
        item["a"] = [{"x": value()} if dice.random() < 0.7 else {"y": 1} for _ in range(dice.randrange(3))]
    if dice.random() < 0.5:
        item["deep"] = {"list": [[value(), value()]]}
    return item


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_order_is_that_of_a_sort(policy: str, with_limits: WithLimits, seed: int) -> None:
    dice = random.Random(f"{seed} {policy}")
    shelf = Shelf(POLICIES[policy])
    await shelf.put([make_item(dice, number) for number in range(60)])
    for scope in (WHOLE, Scope(epk=KEY.effective_key(Key(("x",))))):
        for order in ORDERS:
            for where in FILTERS:
                text = f"SELECT VALUE c.id FROM c WHERE {where} ORDER BY {order}"
                expected = shelf.expected(text, None, scope.holds)
                for gather in (10_000, 5):  # few candidates are sorted; more than these come off the index
                    with_limits(QUERY_PROBE_ENTRIES=3, QUERY_GATHER_MAX=gather)
                    size = dice.choice([1, 7, 1000])
                    rows = await shelf.all_rows(text, scope=scope, max_items=size)
                    assert rows == expected, f"seed {seed}: {text} {scope} gather {gather} page {size}"


async def test_the_first_rows_come_off_the_index(with_limits: WithLimits) -> None:
    """More items than a sort may have."""
    with_limits(QUERY_SORTED_MAX=100)
    shelf = Shelf(POLICIES["all"])
    await shelf.put([{"id": f"i{n}", "pk": "p", "tags": [n * 7 % 1000, -1]} for n in range(1000)])
    text = "SELECT VALUE c.tags[0] FROM c ORDER BY c.tags[0] DESC"
    page, keys = await shelf.page(text, max_items=10)
    assert page.rows == [str(n).encode() for n in range(999, 989, -1)] and keys < 100
    assert await shelf.all_rows(text, max_items=300) == list(range(999, -1, -1))


def test_it_must_be_indexed_and_alone() -> None:
    def check(text: str, policy: dict[str, Any] | None) -> None:
        ordering = compile_query(text).bind({}).selection.ordering
        assert ordering is not None
        check_order(ordering, IndexingPolicy.parse(policy, key_definition=KEY, has_ttl=False))

    check("SELECT * FROM c ORDER BY c.tags[0]", None)
    with pytest.raises(Failure, match=r"excluded. Include /tags/\[\] in the indexing policy"):
        check("SELECT * FROM c ORDER BY c.tags[0]", {"excludedPaths": [{"path": "/tags/*"}]})
    with pytest.raises(Failure, match="Composite indexes have no elements of arrays"):
        check("SELECT * FROM c ORDER BY c.tags[0], c.id", None)
