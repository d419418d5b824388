"""Spatial indexes: shapes are found through cells, and nothing is found or missed that looking at every item would not
find; over the date line, at the poles and in a plane.
"""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from support.shelf import KEY, Shelf

from armillary.clock import SystemClock
from armillary.languages.sql.compiling.compile import BoundQuery, compile_query
from armillary.languages.sql.library.context import Context
from armillary.model.indexes.indexing import IndexingPolicy, count_charged
from armillary.model.spatial.cells import WHOLE_TERM
from armillary.query.access.access_path import WHOLE, Index, candidates
from armillary.query.execution import Execution
from armillary.query.page import Counters
from armillary.storage.engine import View

SEED = 41
BOX = {"xmin": -100, "ymin": -50, "xmax": 100, "ymax": 50}
HARD = [(180.0, 0.0), (-180.0, 0.0), (0.0, 90.0), (12.0, -90.0), (180.0, 89.9999), (-179.9999, -45.0), (0.0, 0.0)]


def policy_of(*, is_planar: bool, types: list[str] | None = None) -> IndexingPolicy:
    entry: dict[str, Any] = {"path": "/at/*"} | ({"boundingBox": BOX} if is_planar else {})
    if types is not None:
        entry["types"] = types
    several = {**entry, "path": "/several/[]/at/?"}
    return IndexingPolicy.parse({"spatialIndexes": [entry, several]}, key_definition=KEY, has_ttl=False)


class Cartographer:
    """Draws shapes, many of them near one another."""

    def __init__(self, dice: random.Random, *, is_planar: bool) -> None:
        self.dice = dice
        self.is_planar = is_planar

    def place(self) -> tuple[float, float]:
        dice = self.dice
        if self.is_planar:
            return dice.choice(
                [(dice.uniform(-120, 120), dice.uniform(-60, 60)), (dice.randrange(5), dice.randrange(5))]
            )
        if dice.random() < 0.5:
            return dice.choice(HARD)
        return dice.uniform(-180, 180), dice.uniform(-90, 90)

    def moved(self, place: tuple[float, float], size: float) -> list[float]:
        x, y = place[0] + self.dice.uniform(-size, size), place[1] + self.dice.uniform(-size, size)
        if self.is_planar:
            return [x, y]
        return [(x + 180) % 360 - 180, max(-90.0, min(90.0, y))]

    def shape(self) -> Any:
        dice = self.dice
        middle, size = self.place(), dice.choice([0.0, 1e-6, 0.01, 1.0, 10.0, 60.0])
        roll = dice.random()
        if roll < 0.4:
            return {"type": "Point", "coordinates": self.moved(middle, size)}
        if roll < 0.6:
            count = dice.choice([2, 3, 40])
            return {"type": "LineString", "coordinates": [self.moved(middle, size) for _ in range(count)]}
        if roll < 0.85:
            return {"type": "Polygon", "coordinates": [self.ring(middle, size)]}
        if roll < 0.95:
            rings = [[self.ring(self.place(), size)] for _ in range(dice.randrange(1, 4))]
            return {"type": "MultiPolygon", "coordinates": rings}
        return dice.choice([None, 7, {"type": "Point"}, {"type": "Point", "coordinates": [200, 0, "x"]}, {"type": 3}])

    def ring(self, middle: tuple[float, float], size: float) -> list[list[float]]:
        x, y = middle
        size = size or 0.5
        if not self.is_planar:
            y = max(-89.0, min(89.0, y))
        corners = [(x - size, y - size), (x + size, y - size), (x + size, y + size), (x - size, y + size)]
        if self.dice.random() < 0.15:
            corners.reverse()  # on the earth: everything else
        ring = [[each_x, each_y] for each_x, each_y in corners]
        if not self.is_planar:
            ring = [[(each_x + 180) % 360 - 180, max(-90.0, min(90.0, each_y))] for each_x, each_y in ring]
        return [*ring, ring[0]]

    def condition(self) -> str:
        dice = self.dice
        path = dice.choice(["c.at", "c.at", "c.several[0].at"])
        pair = [path, "@given"]
        if dice.random() < 0.3:
            pair.reverse()
        pair_text = ", ".join(pair)
        reach = dice.choice([0, 1e-3, 1, 5.5, 70] if self.is_planar else [0, 1, 5_000, 200_000, 3e6, 1.2e7, 3e7])
        return dice.choice(
            [
                f"ST_WITHIN({pair_text})",
                f"ST_INTERSECTS({pair_text})",
                f"ST_INTERSECTS({pair_text}) = true",
                f"ST_DISTANCE({pair_text}) < {reach}",
                f"ST_DISTANCE({pair_text}) <= {reach}",
                f"{reach} >= ST_DISTANCE({pair_text})",
                f"ST_DISTANCE({pair_text}) BETWEEN 0 AND {reach}",
                "EXISTS(SELECT VALUE s FROM s IN c.several WHERE ST_INTERSECTS(s.at, @given))",
                f"(ST_WITHIN({pair_text}) OR c.n = 1)",
                f"(ST_DISTANCE({pair_text}) < {reach} AND c.n > 0)",
            ]
        )


def bound(text: str, given: Any, *, is_planar: bool) -> BoundQuery:
    return compile_query(text).bind({"@given": given}, Context(SystemClock(), is_planar=is_planar))


async def ids(shelf: Shelf, query: BoundQuery, index: Index) -> list[str]:
    page = await shelf.execute(Execution(query.selection, scope=WHOLE, index=index), max_items=1000)
    return list(map(orjson.loads, page.rows))


async def looked_at(shelf: Shelf, query: BoundQuery) -> tuple[int, bool]:
    """How many items an index leaves to look at, and whether none was used."""

    def run(view: View) -> tuple[int, bool]:
        counters = Counters()
        found = candidates(view, query.condition, WHOLE, Index(shelf.policy), -1, 1000, counters)
        return len(list(found)), counters.is_full_scan

    return await shelf.read(run)


@pytest.mark.parametrize("is_planar", [False, True])
@pytest.mark.parametrize("chunk", range(3))
async def test_an_index_changes_nothing_but_the_way(chunk: int, is_planar: bool) -> None:
    print("seed", SEED, chunk, is_planar)
    dice = random.Random(f"{SEED} {chunk} {is_planar}")
    artist = Cartographer(dice, is_planar=is_planar)
    given = served = saved = 0
    for _ in range(3):
        types = dice.choice([None, None, ["Point"], ["Polygon", "LineString"]])
        shelf = Shelf(policy_of(is_planar=is_planar, types=types))
        items = []
        for number in range(30):
            item: dict[str, Any] = {"id": f"i{number}", "pk": "x", "n": dice.randrange(3), "at": artist.shape()}
            if dice.random() < 0.5:
                item["several"] = [{"at": artist.shape()} for _ in range(dice.randrange(3))]
            items.append(item)
        await shelf.put(items)
        for _ in range(25):
            text, shape = f"SELECT VALUE c.id FROM c WHERE {artist.condition()}", artist.shape()
            query = bound(text, shape, is_planar=is_planar)
            rows = await ids(shelf, query, Index(shelf.policy))
            assert rows == await ids(shelf, query, Index(shelf.policy, is_complete=False)), (text, shape)
            count, is_scan = await looked_at(shelf, query)
            given += len(rows)
            served += not is_scan
            saved += 30 - count
    assert given > 40 and served > 25 and saved > 500, (given, served, saved)


@pytest.mark.parametrize(
    ("near", "far"),
    [
        ([179.99999, 10.0], [-179.99999, 10.0]),  # over the date line
        ([10.0, 89.99999], [-170.0, 89.99999]),  # over the pole
        ([0.0, -90.0], [77.0, -90.0]),  # the pole has any longitude
    ],
)
async def test_what_is_near_has_other_coordinates(near: list[float], far: list[float]) -> None:
    shelf = Shelf(policy_of(is_planar=False))
    places = [near, far, [10.0, 50.0], [-60.0, -50.0]]
    await shelf.put(
        [{"id": f"i{n}", "pk": "x", "at": {"type": "Point", "coordinates": p}} for n, p in enumerate(places)]
    )
    query = bound(
        "SELECT VALUE c.id FROM c WHERE ST_DISTANCE(c.at, @given) < 10",
        {"type": "Point", "coordinates": near},
        is_planar=False,
    )
    assert await ids(shelf, query, Index(shelf.policy)) == ["i0", "i1"]
    assert await looked_at(shelf, query) == (2, False)


async def test_a_few_of_many() -> None:
    dice = random.Random(SEED)
    shelf = Shelf(policy_of(is_planar=False))
    await shelf.put(
        [
            {
                "id": f"i{number}",
                "pk": "x",
                "at": {"type": "Point", "coordinates": [dice.uniform(5, 15), dice.uniform(45, 55)]},
            }
            for number in range(2000)
        ]
    )
    # A tenth of a degree is some ten kilometres: a circle of 0.03 square degrees, of which 20 items have one each.
    query = bound(
        "SELECT VALUE c.id FROM c WHERE ST_DISTANCE(c.at, @given) < 10000",
        {"type": "Point", "coordinates": [10.0, 50.0]},
        is_planar=False,
    )
    count, is_scan = await looked_at(shelf, query)
    assert not is_scan and count < 20


async def test_an_index_of_the_plane_knows_nothing_of_the_earth() -> None:
    shelf = Shelf(policy_of(is_planar=True))
    await shelf.put([{"id": "i", "pk": "x", "at": {"type": "Point", "coordinates": [0, 0]}}])
    query = bound(
        "SELECT VALUE c.id FROM c WHERE ST_DISTANCE(c.at, @given) < 1",
        {"type": "Point", "coordinates": [0, 0]},
        is_planar=False,
    )
    assert await looked_at(shelf, query) == (1, True)


def test_terms() -> None:
    policy = policy_of(is_planar=False, types=["Point", "Polygon"])

    def cells(shape: Any) -> list[bytes]:
        found = policy.terms({"id": "i", "at": shape}, 1)
        return sorted(term for path, term in found.terms if path == "cells:/at")

    point = cells({"type": "Point", "coordinates": [1, 2]})
    assert len(point) == 1 and len(point[0]) == 11
    square = [[0, 0], [3, 0], [3, 3], [0, 3], [0, 0]]
    assert 1 < len(cells({"type": "Polygon", "coordinates": [square]})) <= 8
    # Everything but a square is everywhere, and so is what the index does not name.
    assert cells({"type": "Polygon", "coordinates": [square[::-1]]}) == [WHOLE_TERM]
    assert cells({"type": "LineString", "coordinates": [[0, 0], [1, 1]]}) == [WHOLE_TERM]
    assert cells({"type": "Point", "coordinates": [0, 100]}) == []
    assert cells(7) == []


def test_a_moved_shape_is_charged_like_one() -> None:
    before = [("cells:/at", b"\x01\x00"), ("cells:/at", b"\x02\x00"), ("/at/x", b"\x05")]
    assert count_charged(before) == 5
    assert count_charged([("cells:/at", WHOLE_TERM)]) == 0
