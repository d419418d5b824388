"""Queries of every class through the account: partitions that are written to meanwhile, continuations, time limits,
expiry, and who merges what."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import support.house
from support.limits import WithLimits

from armillary.account import containers
from armillary.account.container import Container
from armillary.account.queries import item_pages
from armillary.account.queries.partition_slices import PageAnswer
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.key_values import Key
from armillary.partition.check import check_partition


class House(support.house.House):
    async def page(self, container: Container, text: str, **options: Any) -> PageAnswer:
        compiled = compile_query(text, container.policies.computed_properties)
        bound = compiled.bind({}, container.query_context())
        if len(container.map.ranges) == 1 and options.get("key") is None:
            # As clients ask once they have a plan.
            options = {"range_id": str(container.map.ranges[0].id), **options}
        return await item_pages.query(self.account, container, bound, text.encode(), FeedOptions(**options))

    async def rows(self, container: Container, text: str, **options: Any) -> tuple[list[Any], int]:
        """All rows, and in how many pages they came."""
        rows: list[Any] = []
        continuation = None
        for number in range(1, 10_000):
            page = await self.page(container, text, continuation=continuation, **options)
            rows += [orjson.loads(row) for row in page.rows]
            continuation = page.continuation
            if continuation is None:
                return rows, number
        raise AssertionError("it never ends")


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await House.open()
    yield house
    await house.close()


@pytest.mark.parametrize("seed", range(3))
async def test_orders_see_every_write(house: House, seed: int, with_limits: WithLimits) -> None:
    """Items come, go, gain and lose the path that is ordered by; the index alone does not know who lacks it."""
    print("seed", seed)
    dice = random.Random(seed)
    with_limits(QUERY_FEW_ITEMS=0)
    container = await house.container()
    model: dict[str, dict[str, Any]] = {}
    chance = dice.choice([0.0, 0.02])  # of lacking n
    for _ in range(150):
        for _ in range(dice.randrange(5)):
            document: dict[str, Any] = {"id": f"i{dice.randrange(40)}", "pk": "x", "n": dice.randrange(10)}
            if dice.random() < chance:
                del document["n"]
            if document["id"] in model and dice.random() < 0.4:
                await house.delete(container, document)
                del model[document["id"]]
            else:
                await house.put(container, document)
                model[document["id"]] = document
        house.clock.step_s = dice.choice([0.0, 0.02])
        order = dice.choice(["", " DESC"])
        found, _ = await house.rows(
            container, f"SELECT VALUE c.n ?? 'none' FROM c ORDER BY c.n{order}", page_items=dice.choice([7, 1000])
        )
        expected = sorted((document.get("n", -1) for document in model.values()), reverse=bool(order))
        assert [-1 if n == "none" else n for n in found] == expected
        (counted,), _ = await house.rows(container, "SELECT COUNT(1) AS n, MIN(c.n) AS least FROM c")
        assert counted["n"] == len(model)


async def test_long_computations_go_on_in_the_next_page(house: House) -> None:
    container = await house.container()
    await house.put(container, *[{"id": f"i{n}", "pk": "x", "n": n, "kind": n % 3} for n in range(400)])
    house.clock.step_s = 0.6
    for text, expected in [
        ("SELECT VALUE SUM(c.n) FROM c WHERE c.n + 1 > 0", [79_800]),
        ("SELECT VALUE AVG(c.n) FROM c WHERE c.n + 1 > 0", [199.5]),
        (
            "SELECT c.kind, COUNT(1) AS n FROM c GROUP BY c.kind",
            [{"kind": k, "n": n} for k, n in ((0, 134), (1, 133), (2, 133))],
        ),
    ]:
        rows, pages = await house.rows(container, text)
        assert rows == expected, text
        assert pages > 1, "the half-made aggregates went through a continuation"
    rows, pages = await house.rows(container, "SELECT DISTINCT VALUE c.kind + 0 FROM c")
    assert (rows, pages) == ([0, 1, 2], 1), "what was seen fits no token: it goes on instead"
    house.clock.step_s = 10.0
    with pytest.raises(Failure) as caught:
        await house.rows(container, "SELECT DISTINCT VALUE c.kind + 0 FROM c")
    assert caught.value.kind is Kind.TIMED_OUT


@pytest.mark.parametrize("kind", ["Geography", "Geometry"])
async def test_indexes_of_shapes_and_tuples_reach_stored_items(house: House, kind: str) -> None:
    container = await house.container(geospatialConfig={"type": kind})
    for number in range(60):
        at = {"type": "Point", "coordinates": [number / 10, 0]}
        await house.put(container, {"id": f"i{number}", "pk": "x", "at": at, "tags": [{"a": number % 7, "b": number}]})
    spatial = {"path": "/at/*"} | (
        {"boundingBox": {"xmin": 0, "ymin": -1, "xmax": 6, "ymax": 1}} if kind == "Geometry" else {}
    )
    policy = {
        "includedPaths": [{"path": "/*"}, {"path": "/tags/[]/{a, b}/?"}],
        "spatialIndexes": [spatial],
        "compositeIndexes": [[{"path": "/pk"}, {"path": "/id"}]],
    }
    body = {**container.record.body, "indexingPolicy": policy}
    reach = 0.15 if kind == "Geometry" else 15_000
    near = f"SELECT VALUE c.id FROM c WHERE ST_DISTANCE(c.at, {{'type': 'Point', 'coordinates': [2, 0]}}) < {reach}"
    tags = "SELECT VALUE c.id FROM c JOIN t IN c.tags WHERE t.a = 3 AND t.b = 24"
    loaded = []
    for policies in (None, body):
        if policies is not None:
            await containers.replace_container(house.account, container, policies, None)
        for _ in range(1000):
            page = await house.page(container, near)
            assert list(map(orjson.loads, page.rows)) == ["i19", "i20", "i21"], "while it is being made, too"
            if not container.is_restating:
                break
            await asyncio.sleep(0)
        assert not container.is_restating
        page = await house.page(container, near)
        other = await house.page(container, tags)
        assert other.rows == [b'"i24"']
        loaded.append((page.counters.items_loaded, other.counters.items_loaded))
    assert loaded[0][0] == 60
    assert loaded[1][0] < 10
    assert loaded[1][1] == 1
    (partition,) = container.partitions.values()
    assert await partition.read(lambda view: list(check_partition(view, container.schema, partition.range))) == []


async def test_expired_items_are_not_counted(house: House) -> None:
    container = await house.container(defaultTtl=100)
    await house.put(container, *[{"id": f"i{n}", "pk": "x", "n": n} for n in range(5)])
    house.clock.advance(60)
    await house.put(container, {"id": "late", "pk": "x", "n": 9})
    house.clock.advance(60)
    for text in ("SELECT VALUE COUNT(1) FROM c", "SELECT VALUE COUNT(1) FROM c WHERE c.n >= 0"):
        assert (await house.rows(container, text))[0] == [1]
    assert (await house.rows(container, "SELECT VALUE MIN(c.n) FROM c"))[0] == [9]
    assert (await house.rows(container, "SELECT VALUE c.id FROM c ORDER BY c.n"))[0] == ["late"]


@pytest.mark.parametrize("seed", range(3))
async def test_aggregates_with_expiry_come_off_the_index(house: House, seed: int) -> None:
    print("seed", seed)
    dice = random.Random(seed)
    container = await house.container(defaultTtl=50)
    live: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {}
    for _ in range(40):
        for _ in range(4):
            item: dict[str, Any] = {
                "id": f"i{dice.randrange(30)}",
                "pk": dice.choice("xy"),
                "n": dice.randrange(6),
                "k": dice.choice("ab"),
            }
            item["ttl"] = dice.choice([10, 30, -1])
            await house.put(container, item)
            ends_s = int(house.clock.now_s()) + item["ttl"] if item["ttl"] > 0 else float("inf")
            live[item["pk"], item["id"]] = (ends_s, item)
        house.clock.advance(dice.choice([0.5, 3, 9]))
        key = dice.choice([None, "x", "y"])
        found = [item for ends_s, item in live.values() if ends_s > house.clock.now_s() and key in (None, item["pk"])]
        numbers = [item["n"] for item in found]
        for text, wanted in (
            ("COUNT(1) FROM c", len(found)),
            ("COUNT(1) FROM c WHERE c.n = 3", numbers.count(3)),
            ("COUNT(1) FROM c WHERE c.n = 3 AND c.k = 'a'", sum(item["n"] == 3 and item["k"] == "a" for item in found)),
            ("COUNT(1) FROM c WHERE c.n >= 2 ", sum(number >= 2 for number in numbers)),
            ("COUNT(1) FROM c WHERE c.n IN (1, 4)", sum(number in (1, 4) for number in numbers)),
            ("MIN(c.n) FROM c", min(numbers, default=None)),
            ("MAX(c.n) FROM c WHERE c.n <= 4", max((number for number in numbers if number <= 4), default=None)),
        ):
            page = await house.page(container, f"SELECT VALUE {text}", key=None if key is None else Key((key,)))
            assert [orjson.loads(row) for row in page.rows] == ([] if wanted is None else [wanted]), text
            is_on_keys = key is not None and (">=" in text or "IN (" in text or not text.startswith("COUNT"))
            assert is_on_keys or page.counters.items_loaded == 0, text


MERGED = [
    "SELECT * FROM c ORDER BY c.n",
    "SELECT TOP 3 VALUE c.n FROM c",
    "SELECT * FROM c OFFSET 1 LIMIT 2",
    "SELECT DISTINCT c.n FROM c",
    "SELECT VALUE COUNT(1) FROM c",
    "SELECT c.n FROM c GROUP BY c.n",
]


@pytest.mark.parametrize("text", MERGED)
async def test_rows_of_several_partitions_are_the_clients_to_merge(house: House, text: str) -> None:
    container = await house.container(30_000)
    assert len(container.partitions) > 1
    await house.put(container, *[{"id": f"i{n}", "pk": f"p{n % 5}", "n": n} for n in range(20)])
    with pytest.raises(Failure) as caught:
        await house.page(container, text)
    assert caught.value.kind is Kind.CROSS_PARTITION
    for partition in container.partitions:
        await house.page(container, text, range_id=str(partition))
    rows, _ = await house.rows(container, text, key=Key(("p3",)), page_items=1)
    word = "AND" if "WHERE" in text else "WHERE"
    before, from_c, after = text.partition("FROM c")
    if not after.startswith(")"):
        pinned = f"{before}{from_c} {word} c.pk = 'p3'{after}"
        assert rows == (await house.rows(container, pinned))[0], "a filter that pins the key is as good as the key"


async def test_joins_over_several_partitions_need_no_merging(house: House) -> None:
    container = await house.container(30_000)
    await house.put(container, *[{"id": f"i{n}", "pk": f"p{n}", "tags": list(range(n))} for n in range(8)])
    rows, pages = await house.rows(container, "SELECT c.id, t FROM c JOIN t IN c.tags", page_items=5)
    assert sorted((row["id"], row["t"]) for row in rows) == [(f"i{n}", t) for n in range(8) for t in range(n)]
    # Rows of two partitions never share a page, so up to one page per partition is not full.
    assert 6 <= pages <= 6 + len(container.partitions)


async def test_rows_of_a_subquery_that_nobody_can_merge(house: House) -> None:
    container = await house.container(30_000)
    with pytest.raises(Failure) as caught:
        await house.page(container, "SELECT VALUE s FROM (SELECT DISTINCT VALUE c.n FROM c) s")
    assert caught.value.kind is Kind.BAD_REQUEST
    assert "one partition key at a time" in caught.value.message


async def test_ordering_needs_an_index(house: House) -> None:
    policy = {"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/hidden/?"}]}
    container = await house.container(indexingPolicy=policy)
    await house.put(container, {"id": "1", "pk": "x", "hidden": 1})
    for text, part in [
        ("SELECT * FROM c ORDER BY c.hidden", "is excluded"),
        ("SELECT * FROM c ORDER BY c.a, c.b", "does not have a corresponding composite index"),
    ]:
        with pytest.raises(Failure) as caught:
            await house.page(container, text)
        assert caught.value.kind is Kind.BAD_REQUEST and part in caught.value.message


async def test_computed_properties_stand_wherever_a_name_may(house: House) -> None:
    computed = [
        {"name": "lower", "query": "SELECT VALUE LOWER(c.name) FROM c"},
        {"name": "double", "query": "SELECT VALUE r.n * 2 FROM root r"},
    ]
    container = await house.container(computedProperties=computed)
    await house.put(container, *[{"id": f"i{n}", "pk": "x", "n": n % 3, "name": name} for n, name in enumerate("DbAC")])
    for text, expected in [
        ("SELECT VALUE c.id FROM c WHERE c.lower = 'a'", ["i2"]),
        ("SELECT c.lower, c.double FROM c WHERE c.id = 'i1'", [{"lower": "b", "double": 2}]),
        ("SELECT VALUE x['double'] FROM x WHERE x.double > 2", [4]),
        ("SELECT VALUE c.name FROM c ORDER BY c.lower", ["A", "b", "C", "D"]),
        ("SELECT TOP 2 VALUE c.name FROM c ORDER BY c.lower DESC", ["D", "C"]),
        (
            "SELECT c.double, COUNT(1) AS n FROM c GROUP BY c.double",
            [{"double": d, "n": n} for d, n in ((0, 2), (2, 1), (4, 1))],
        ),
        ("SELECT VALUE SUM(c.double) FROM c", [6]),
        ("SELECT DISTINCT VALUE c.double FROM c", [0, 2, 4]),
        ("SELECT VALUE EXISTS(SELECT VALUE 1 WHERE c.lower = 'b') FROM c", [False, True, False, False]),
        ("SELECT VALUE c.double FROM c.n c", []),
        ("SELECT VALUE IS_DEFINED(s.lower) FROM (SELECT VALUE c FROM c) s", [False] * 4),
    ]:
        assert (await house.rows(container, text, page_items=2))[0] == expected, text
    (item,), _ = await house.rows(container, "SELECT * FROM c WHERE c.lower = 'd'")
    assert "lower" not in item
    plain = await house.container(500)
    await house.put(plain, {"id": "1", "pk": "x", "name": "A"})
    assert (await house.rows(plain, "SELECT VALUE c.id FROM c WHERE c.lower = 'a'"))[0] == [], (
        "another container's name"
    )


async def test_charges(house: House) -> None:
    """The published figures: 100 results ordered about 70, the first ten about 10."""
    container = await house.container()
    await house.put(container, *[{"id": f"i{n}", "pk": "x", "n": n} for n in range(100)])
    ordered = await house.page(container, "SELECT * FROM c ORDER BY c.n", page_items=100)
    assert round(ordered.charge_ru, 2) == 70.0
    top = await house.page(container, "SELECT TOP 10 * FROM c ORDER BY c.n")
    assert round(top.charge_ru, 2) == 9.25
    counted = await house.page(container, "SELECT VALUE COUNT(1) FROM c")
    assert counted.charge_ru < 4
    parts = [await house.page(container, "SELECT * FROM c ORDER BY c.n", page_items=30)]
    while parts[-1].continuation is not None:
        more = await house.page(
            container, "SELECT * FROM c ORDER BY c.n", page_items=30, continuation=parts[-1].continuation
        )
        parts.append(more)
    assert len(parts) == 4 and round(sum(part.charge_ru for part in parts), 2) == 70.0


@pytest.mark.parametrize(
    "text", ["SELECT * FROM c ORDER BY c.n", "SELECT VALUE COUNT(1) FROM c", "SELECT TOP 1 * FROM c"]
)
async def test_whole_containers_are_merged_by_their_clients(house: House, text: str) -> None:
    """Even where there is one partition: that is when clients learn of the ranges, before there are two."""
    container = await house.container()
    bound = compile_query(text, container.policies.computed_properties).bind({}, container.query_context())
    with pytest.raises(Failure) as caught:
        await item_pages.query(house.account, container, bound, text.encode(), FeedOptions())
    assert caught.value.kind is Kind.CROSS_PARTITION
