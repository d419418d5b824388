"""Access paths and pages over a real store: whatever path is chosen, the answer is that of a plain scan."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from support.limits import WithLimits
from support.shelf import KEY, Shelf

from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.key_values import Key
from armillary.model.keys import PartitionKeyDefinition
from armillary.query.access.access_path import WHOLE, Scope
from armillary.query.page import START, Position

TREE_KEY = PartitionKeyDefinition.parse({"paths": ["/pk", "/a"], "kind": "MultiHash", "version": 2})
POLICIES = {
    "all": IndexingPolicy.parse(None, key_definition=KEY, has_ttl=False),
    "some": IndexingPolicy.parse(
        {"includedPaths": [{"path": "/a/?"}, {"path": "/tags/*"}], "excludedPaths": [{"path": "/*"}]},
        key_definition=KEY,
        has_ttl=False,
    ),
    "none": IndexingPolicy.parse({"indexingMode": "none", "automatic": False}, key_definition=KEY, has_ttl=False),
}


def make_item(dice: random.Random, number: int) -> dict[str, Any]:
    item: dict[str, Any] = {"id": f"i{number}", "pk": dice.choice(["x", "y", "z", 5, None])}
    for name in ("a", "b"):
        if dice.random() < 0.8:
            item[name] = dice.choice(
                [0, 1, 2, 2.5, -3, 2**60, "s", "st", "stu", "\x00", True, False, None, [1], {"q": 1}]
            )
    if dice.random() < 0.5:
        item["tags"] = dice.choices(["red", "blue", 7, None, ["red"], {"n": 1}], k=dice.randrange(4))
    if dice.random() < 0.2:
        item["long"] = "x" * dice.choice([100, 124, 125, 126, 127, 128, 200]) + dice.choice(["", "a", "b"])
    return item


FILTERS = [
    "true",
    "false",
    "c.a = 1",
    "c.a = 1 AND c.b = 2",
    "c.a = 1 AND c.b = 2 AND c.pk = 'x'",
    "c.a = [1]",
    "c.a = null OR c.b = true",
    "c.a IN (1, 2, 's', null, [1])",
    "c.a IN (1, 2, 's', null)",
    "c.a > 0",
    "c.a >= 2 AND c.a < 3",
    "c.a <= 's'",
    "c.a > 's' AND c.b <= 2",
    "c.a >= null",
    "c.a < true",
    "STARTSWITH(c.a, 'st')",
    "IS_DEFINED(c.a)",
    "NOT IS_DEFINED(c.a)",
    "IS_OBJECT(c.b)",
    "ARRAY_CONTAINS(c.tags, 'red')",
    "ARRAY_CONTAINS(c.tags, 'red') AND ARRAY_CONTAINS(c.tags, 7)",
    "c.tags[0] = 'red' OR c.tags[1] > 5",
    "c.long >= @long AND c.long < @longer",
    "c.long = @long",
    "c.long > @long",
    "c.id = 'i7'",
    "c.id IN ('i7', 'i8', 'nobody')",
    "c.id > 'i5'",
    "(c.id = 'i7' AND c.pk = 'x') OR (c.id = 'i8' AND c.pk = 'y') OR (c.id = 'i9' AND IS_DEFINED(c.pk) = false)",
    "c.nowhere = 1",
    "c.nowhere = 1 OR c.a = 1",
    "(c.a = 1 OR c.a = 2) AND (c.b > 0 OR c.b = 's')",
    "c.a != 1",
    "c.a + 1 = 2",
]
PARAMETERS = {"@long": "x" * 126, "@longer": "x" * 127 + "b"}


@pytest.mark.parametrize("policy", POLICIES)
async def test_every_path_gives_what_a_scan_gives(policy: str, with_limits: WithLimits) -> None:
    seed = 99
    dice = random.Random(f"{seed} {policy}")
    shelf = Shelf(POLICIES[policy])
    await shelf.put([make_item(dice, number) for number in range(150)])
    epk = KEY.effective_key(Key(("x",)))
    middle = KEY.effective_key(Key((5,)))
    scopes = [WHOLE, Scope(epk=epk), Scope(low=b"", high=middle), Scope(low=middle, high=b"\xff")]
    for where in FILTERS:
        for scope in scopes:
            text = f"SELECT c.id, c.a FROM c WHERE {where}"
            given = {name: value for name, value in PARAMETERS.items() if name in compile_query(text).parameters}
            expected = shelf.expected(text, given, scope.holds)
            for probe, gather in ((256, 10_000), (3, 10_000), (3, 5)):
                with_limits(QUERY_PROBE_ENTRIES=probe, QUERY_GATHER_MAX=gather)
                size = dice.choice([1, 7, 100, 1000])
                rows = await shelf.all_rows(text, given, scope=scope, max_items=size)
                assert rows == expected, f"seed {seed}: {where} {scope} probe {probe} gather {gather} page {size}"


async def test_an_equality_that_the_index_tells_exactly_gives_what_a_scan_gives() -> None:
    dice = random.Random(7)
    shelf = Shelf(POLICIES["all"])
    items = [make_item(dice, number) for number in range(150)]
    items += [{"id": f"n{at}", "pk": "x", "a": a} for at, a in enumerate([0.0, -0.0, 1.0, 2**53, 2**53 + 1, 2.0**60])]
    await shelf.put(items)
    for value in (0, -0.0, 1, 2.5, 2**53, 2**53 + 1, 2**60, "s", "", "\x00", True, False, None, [1], {"q": 1}):
        for text in (
            "SELECT * FROM c WHERE c.a = @a",
            "SELECT * FROM c WHERE @a = c.a",
            "SELECT c.b FROM c WHERE c.a = @a",
        ):
            for size in (1, 7, 1000):
                rows = await shelf.all_rows(text, {"@a": value}, scope=WHOLE, max_items=size)
                assert rows == shelf.expected(text, {"@a": value}, WHOLE.holds), (text, value, size)
    for length in (125, 126, 127, 128, 200):
        text, given = "SELECT * FROM c WHERE c.long = @long", {"@long": "x" * length}
        rows = await shelf.all_rows(text, given, scope=WHOLE, max_items=7)
        assert rows == shelf.expected(text, given, WHOLE.holds), length


async def test_a_range_that_the_index_tells_exactly_gives_what_a_scan_gives(with_limits: WithLimits) -> None:
    dice = random.Random(8)
    shelf = Shelf(POLICIES["all"])
    items = [make_item(dice, number) for number in range(150)]
    items += [{"id": f"n{at}", "pk": "x", "a": a} for at, a in enumerate([0.0, -0.0, 1.0, 2**53, 2**53 + 1, 2.0**60])]
    await shelf.put(items)
    bounds = [-3, -0.0, 0, 1, 2.5, 2**53, 2**53 + 1, 2**60, "", "s", "stu", True, None, "x" * 125, "x" * 200]
    for name in ("a", "long"):
        for text in (
            f"SELECT * FROM c WHERE c.{name} >= @low AND c.{name} < @high",
            f"SELECT * FROM c WHERE c.{name} > @low AND c.{name} <= @high",
            f"SELECT * FROM c WHERE c.{name} BETWEEN @low AND @high",
            f"SELECT c.id FROM c WHERE c.{name} < @high",
        ):
            for _ in range(40):
                with_limits(QUERY_GATHER_MAX=dice.choice([5, 10_000]))
                given = {"@high": dice.choice(bounds)}
                if "@low" in text:
                    given["@low"] = dice.choice(bounds)
                rows = await shelf.all_rows(text, given, scope=WHOLE, max_items=dice.choice([1, 7, 1000]))
                assert rows == shelf.expected(text, given, WHOLE.holds), (text, given)


async def test_a_range_of_too_many_items_is_sought_in_the_index_once(with_limits: WithLimits) -> None:
    with_limits(QUERY_GATHER_MAX=100)
    shelf = Shelf(POLICIES["all"])
    await shelf.put([{"id": f"i{number}", "pk": "x", "a": number} for number in range(400)])
    page, keys_read = await shelf.page("SELECT * FROM c WHERE c.a >= 0 AND c.a < 1000", max_items=10)
    assert len(page.rows) == 10
    assert keys_read < 100 + 10 + 10, "the terms up to the limit, the items of the page, and a few"


async def test_star_is_passed_through_unparsed() -> None:
    shelf = Shelf(POLICIES["all"])
    await shelf.put([{"id": "1", "pk": "x", "n": 1.0}])
    page, _ = await shelf.page("SELECT * FROM c")
    assert page.rows == [b'{"id":"1","pk":"x","n":1.0}'] and page.position is None
    assert page.counters.items_loaded == 1 and page.counters.bytes_loaded == page.size_bytes == len(page.rows[0])
    page, _ = await shelf.page("SELECT VALUE c FROM c WHERE c.n = 1")
    assert page.rows == [b'{"id":"1","pk":"x","n":1.0}']


async def test_pages_end_on_count_size_and_time() -> None:
    shelf = Shelf(POLICIES["all"])
    await shelf.put([{"id": f"{number}", "pk": "x", "text": "t" * 100} for number in range(200)])
    page, _ = await shelf.page("SELECT * FROM c", max_items=3)
    assert len(page.rows) == 3 and page.position == Position(1002)
    page, _ = await shelf.page("SELECT * FROM c", max_items=200)
    assert len(page.rows) == 200 and page.position is None
    page, _ = await shelf.page("SELECT * FROM c", max_items=1000, max_bytes=1000)
    assert 1 < len(page.rows) < 10 and page.size_bytes <= 1000 and page.position is not None
    page, _ = await shelf.page("SELECT * FROM c", max_items=1000, max_bytes=10)
    assert len(page.rows) == 1, "a page makes progress even if its first row is too large"
    page, _ = await shelf.page("SELECT * FROM c WHERE c.pk = 'y' OR c.text = ''", is_due=lambda: True, scope=WHOLE)
    assert page.rows == []
    page, _ = await shelf.page("SELECT * FROM c WHERE c.text != 't'", max_items=1000, is_due=lambda: True)
    assert 0 < len(page.rows) < 200 and page.position is not None
    rows = await shelf.all_rows("SELECT VALUE c.id FROM c WHERE c.text != 't'", is_due=lambda: True, max_items=1000)
    assert rows == [str(number) for number in range(200)]


async def test_expired_items_are_not_there() -> None:
    shelf = Shelf(POLICIES["all"])
    await shelf.put([{"id": f"{number}", "pk": "x", "_ts": number} for number in range(10)])
    rows = await shelf.all_rows("SELECT VALUE c.id FROM c", is_live=lambda header: header.ts > 6, max_items=2)
    assert rows == ["7", "8", "9"]


async def test_points_and_hierarchical_prefixes() -> None:
    shelf = Shelf(POLICIES["all"], TREE_KEY)
    await shelf.put([{"id": f"{number}", "pk": number % 3, "a": number % 5} for number in range(60)])
    low, high = TREE_KEY.prefix_range(Key((1,)))
    rows = await shelf.all_rows("SELECT VALUE c.id FROM c", scope=Scope(low=low, high=high), max_items=7)
    assert rows == [str(number) for number in range(60) if number % 3 == 1]
    points = tuple((TREE_KEY.effective_key(Key((number % 3, number % 5))), str(number)) for number in (9, 4, 4, 700))
    rows = await shelf.all_rows("SELECT VALUE c.id FROM c", scope=Scope(points=points))
    assert rows == ["4", "9"]


async def test_the_index_is_used() -> None:
    shelf = Shelf(POLICIES["all"])
    count = 3000
    await shelf.put([{"id": f"i{n}", "pk": f"p{n % 10}", "n": n, "half": n % 2, "t": n % 1000} for n in range(count)])
    epk = KEY.effective_key(Key(("p7",)))
    for text, scope, keys_max in [
        ("SELECT * FROM c WHERE c.id = 'i7'", WHOLE, 5),
        ("SELECT * FROM c WHERE c.id = 'i7'", Scope(epk=epk), 3),
        ("SELECT * FROM c WHERE c.t = 7", WHOLE, 10),
        ("SELECT * FROM c WHERE c.t = 7 AND c.half = 1", WHOLE, 20),
        ("SELECT * FROM c WHERE c.half = 1 AND c.t = 7", WHOLE, 300),
        ("SELECT * FROM c WHERE c.half = 1 AND c.n < 20", WHOLE, 400),
        ("SELECT * FROM c WHERE c.t = 7", Scope(epk=epk), 20),
        ("SELECT * FROM c WHERE c.n BETWEEN 100 AND 120", WHOLE, 60),
        ("SELECT * FROM c WHERE c.id IN ('i1', 'i2', 'i3')", WHOLE, 15),
        ("SELECT * FROM c WHERE c.absent = 1", WHOLE, 2),
        ("SELECT * FROM c WHERE c.half = 1 AND c.pk = 'p7'", Scope(epk=epk), 3500),
        ("SELECT * FROM c WHERE false", WHOLE, 0),
    ]:
        page, keys = await shelf.page(text, scope=scope, max_items=1000)
        assert [orjson.loads(row) for row in page.rows] == shelf.expected(text, None, scope.holds), text
        assert keys <= keys_max, f"{text} read {keys} keys"
        assert not page.counters.is_full_scan


async def test_counters_do_not_depend_on_paging() -> None:
    shelf = Shelf(POLICIES["all"])
    await shelf.put([{"id": f"i{n}", "pk": "p", "n": n} for n in range(100)])
    whole, _ = await shelf.page("SELECT * FROM c WHERE c.n > 20 AND c.pk = 'p' AND CONTAINS(c.id, '3')", max_items=1000)
    assert (whole.counters.seeks, whole.counters.precise_scans) == (1, 1)
    loaded, position = 0, START
    while True:
        page, _ = await shelf.page(
            "SELECT * FROM c WHERE c.n > 20 AND c.pk = 'p' AND CONTAINS(c.id, '3')", max_items=2, position=position
        )
        loaded += page.counters.bytes_loaded
        if page.position is None:
            break
        position = page.position
    assert loaded == whole.counters.bytes_loaded


class Counted:
    """What a partition knows about a shelf whose items all have everything."""

    def __init__(self, count: int) -> None:
        self._count = count

    def item_count(self, view: Any, epk: bytes | None) -> int:
        return self._count if epk is None else self._count // 10

    def expired(self, view: Any, most: int) -> frozenset[int] | None:
        return frozenset()

    def is_everywhere(self, view: Any, path: str) -> bool:
        return True


COMPOSITE = IndexingPolicy.parse(
    {"compositeIndexes": [[{"path": "/half", "order": "descending"}, {"path": "/n", "order": "ascending"}]]},
    key_definition=KEY,
    has_ttl=False,
)


async def test_orders_and_aggregates_come_off_the_index() -> None:
    shelf = Shelf(COMPOSITE)
    count = 5000
    await shelf.put([{"id": f"i{n}", "pk": f"p{n % 10}", "n": n * 7 % count, "half": n % 2} for n in range(count)])
    logical = Scope(epk=KEY.effective_key(Key(("p7",))))
    for text, scope, keys_max in [
        ("SELECT TOP 10 VALUE c.n FROM c ORDER BY c.n", WHOLE, 100),
        ("SELECT TOP 10 VALUE c.n FROM c ORDER BY c.n DESC", WHOLE, 100),
        ("SELECT TOP 10 VALUE c.id FROM c ORDER BY c.half", WHOLE, 100),
        ("SELECT TOP 10 VALUE c.n FROM c WHERE c.n > 2000 ORDER BY c.n", WHOLE, 1200),
        ("SELECT TOP 10 VALUE c.n FROM c WHERE c.half = 1 ORDER BY c.n", WHOLE, 1200),
        ("SELECT TOP 10 VALUE c.n FROM c ORDER BY c.half DESC, c.n", WHOLE, 200),
        ("SELECT TOP 10 VALUE c.n FROM c ORDER BY c.half, c.n DESC", WHOLE, 200),
        ("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 3 LIMIT 2", WHOLE, 100),
        ("SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n", logical, 2000),
        ("SELECT VALUE COUNT(1) FROM c", WHOLE, 0),
        ("SELECT VALUE COUNT(1) FROM c", logical, 0),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.n >= 10 AND c.n < 30", WHOLE, 25),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.n IN (1, 2, 3, 3)", WHOLE, 10),
        ("SELECT VALUE COUNT(c.n) FROM c", WHOLE, count + 1),
        ("SELECT MIN(c.n) AS least, MAX(c.n) AS most, COUNT(1) AS n FROM c", WHOLE, 10),
        ("SELECT VALUE MAX(c.n) FROM c WHERE c.n < 1000", WHOLE, 10),
    ]:
        page, keys = await shelf.page(text, scope=scope, max_items=10, statistics=Counted(count))
        assert [orjson.loads(row) for row in page.rows] == shelf.expected(text, None, scope.holds), text
        assert keys <= keys_max, f"{text} read {keys} keys"


async def test_an_ordered_query_goes_on_where_it_was() -> None:
    """Also in the middle of many items with the same value."""
    shelf = Shelf(COMPOSITE)
    await shelf.put([{"id": f"i{n}", "pk": "p", "n": n, "half": n % 2} for n in range(3000)])
    for order in ("c.half", "c.half DESC", "c.n DESC", "c.half, c.n DESC", "c.half DESC, c.n"):
        text = f"SELECT VALUE c.n FROM c ORDER BY {order}"
        expected = shelf.expected(text, None, WHOLE.holds)
        position, rows = START, []
        while True:
            page, keys = await shelf.page(text, position=position, max_items=100, statistics=Counted(3000))
            rows += [orjson.loads(row) for row in page.rows]
            assert keys < 600, f"{text} read {keys} keys"
            if page.position is None:
                break
            position = page.position
        assert rows == expected, text


async def test_what_is_held_in_memory_is_bounded(with_limits: WithLimits) -> None:
    shelf = Shelf(POLICIES["all"])
    await shelf.put([{"id": f"i{n}", "pk": "p", "n": n, "many": list(range(40))} for n in range(30)])
    for name, text in [
        ("QUERY_GROUPS_MAX", "SELECT c.n FROM c GROUP BY c.n"),
        ("QUERY_DISTINCT_MAX", "SELECT DISTINCT c.n FROM c"),
        ("QUERY_COLLECTED_MAX", "SELECT VALUE MAKELIST(c.n) FROM c"),
        ("QUERY_COLLECTED_MAX", "SELECT VALUE MAKESET(c.n) FROM c"),
        ("QUERY_SORTED_MAX", "SELECT c.n FROM c WHERE c.pk = 'p' ORDER BY c.n"),
    ]:
        with_limits(**{name: 30})
        assert (await shelf.page(text))[0].rows
        with_limits(**{name: 29})
        with pytest.raises(Failure) as caught:
            await shelf.page(text)
        assert caught.value.kind is Kind.BAD_REQUEST and "more than 29" in caught.value.message
        with_limits.restore()
    for text in (
        "SELECT VALUE COUNT(1) FROM c JOIN a IN c.many JOIN b IN c.many",
        "SELECT VALUE (SELECT VALUE COUNT(1) FROM a IN c.many JOIN b IN c.many) FROM c",
    ):
        with_limits(QUERY_TUPLES_MAX=1640)
        assert (await shelf.page(text))[0].rows
        with_limits(QUERY_TUPLES_MAX=1639)
        with pytest.raises(Failure, match="1639 tuples"):
            await shelf.page(text)


async def test_a_join_gives_its_rows_in_pages() -> None:
    shelf = Shelf(POLICIES["all"])
    await shelf.put([{"id": f"i{n}", "pk": "p", "many": list(range(n * 5))} for n in range(6)])
    text = "SELECT c.id, a, b FROM c JOIN a IN c.many JOIN b IN c.many WHERE a < b"
    expected = shelf.expected(text, None, WHOLE.holds)
    for size in (1, 7, 300):
        assert await shelf.all_rows(text, max_items=size) == expected
    assert await shelf.all_rows(text, max_items=50, max_bytes=200, is_due=lambda: True) == expected
