"""Shapes on the earth and in the plane: published distances and areas, relations by example, validity with reasons, and
random convex polygons against the definition of being inside one.
"""

from __future__ import annotations

import math
import random
import time
from itertools import pairwise
from typing import Any

import pytest

from armillary.clock import VirtualClock
from armillary.errors import Failure
from armillary.languages.sql.library import spatial
from armillary.languages.sql.library.context import Context
from armillary.model.spatial.geodesy import area_left, distance_m
from armillary.model.values import UNDEFINED

EARTH = Context(VirtualClock())
PLANE = Context(VirtualClock(), is_planar=True)
BOTH = pytest.mark.parametrize("context", [EARTH, PLANE], ids=["earth", "plane"])


def point(x: float, y: float) -> dict[str, Any]:
    return {"type": "Point", "coordinates": [x, y]}


def line(*places: Any) -> dict[str, Any]:
    return {"type": "LineString", "coordinates": [list(place) for place in places]}


def polygon(*rings: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [[list(place) for place in ring] for ring in rings]}


def box(west: float, south: float, east: float, north: float) -> list[tuple[float, float]]:
    return [(west, south), (east, south), (east, north), (west, north), (west, south)]


# Measures.


@pytest.mark.parametrize(
    ("first", "second", "expected_m"),
    [
        ((-73.8, 40.6), (-0.5, 51.6), 5551759.400),
        ((0, 0), (0, 1), 110574.389),
        ((0, 0), (1, 0), 111319.491),
        ((0, 0), (179.5, 0.5), 19936288.579),  # where Vincenty's iteration fails
        ((0, 0), (179.7, 0.5), 19944127.421),
        ((0, 0), (180, 0), 20003931.459),
        ((0, 90), (0, -90), 20003931.459),
        ((10, 30), (-170, -30), 20003931.459),
        ((179.9, 10), (-179.9, 10), distance_m((-0.1, 10), (0.1, 10))),
        ((5, 3), (5, 3), 0),
        ((12, 90), (77, 90), 0),
    ],
)
def test_distance_of_points(first: Any, second: Any, expected_m: float) -> None:
    assert distance_m(first, second) == pytest.approx(expected_m, rel=1e-9, abs=1e-3)
    assert distance_m(second, first) == pytest.approx(distance_m(first, second), rel=1e-9)


def test_distance_to_edges() -> None:
    equator = line((-10, 0), (10, 0))
    assert spatial.distance(EARTH, point(3, 1), equator) == pytest.approx(110574.389, rel=1e-7)
    assert spatial.distance(EARTH, equator, point(12, 0)) == pytest.approx(2 * 111319.491, rel=1e-7)
    assert spatial.distance(EARTH, point(0, 0), polygon(box(-1, -1, 1, 1))) == 0
    assert spatial.distance(EARTH, polygon(box(0, -1, 1, 1)), polygon(box(3, -1, 4, 1))) == pytest.approx(
        distance_m((1, 1), (3, 1)), rel=1e-3
    )
    assert spatial.distance(PLANE, point(3, 4), line((0, 0), (0, 10))) == 3
    assert spatial.distance(PLANE, polygon(box(0, 0, 1, 1)), polygon(box(4, 5, 6, 6))) == 5
    assert spatial.distance(PLANE, point(0, 0), point(3, 4)) == 5
    assert spatial.distance(PLANE, line((0, 0), (2, 2)), line((0, 2), (2, 0))) == 0


def test_area() -> None:
    shape = polygon([(31.8, -5), (32, -5), (32, -4.7), (31.8, -4.7), (31.8, -5)])
    assert spatial.area(EARTH, shape) == pytest.approx(735970283.05, rel=1e-9)
    assert spatial.area(EARTH, point(1, 2)) == 0
    assert spatial.area(EARTH, line((1, 2), (3, 4))) == 0
    whole = 510065621724088.44  # of the ellipsoid
    octant = polygon([(0, 0), (90, 0), (0, 90), (0, 0)])
    assert spatial.area(EARTH, octant) == pytest.approx(whole / 8, rel=1e-9)
    # Clockwise means everything else.
    turned = {"type": "Polygon", "coordinates": [octant["coordinates"][0][::-1]]}
    assert spatial.area(EARTH, turned) == pytest.approx(whole * 7 / 8, rel=1e-9)
    around_pole = polygon([(0, 80), (90, 80), (180, 80), (-90, 80), (0, 80)])
    cap_area: Any = spatial.area(EARTH, around_pole)
    assert 0 < cap_area < whole / 50
    with_hole = polygon(box(0, 0, 10, 10), box(2, 2, 4, 4))
    assert spatial.area(PLANE, with_hole) == 96
    assert spatial.area(PLANE, {"type": "MultiPolygon", "coordinates": [[box_list(0)], [box_list(5)]]}) == 2
    assert area_left(box(0, 0, 1, 1)) < 0.001


def box_list(at: float) -> list[list[float]]:
    return [list(place) for place in box(at, at, at + 1, at + 1)]


# Relations.


@BOTH
def test_within(context: Context) -> None:
    square = polygon(box(0, 0, 10, 10))
    ringed = polygon(box(0, 0, 10, 10), box(4, 4, 6, 6))
    two = {"type": "MultiPolygon", "coordinates": [[box_list(0)], [box_list(5)]]}
    for inner, outer, expected in (
        (point(5, 5), square, True),
        (point(15, 5), square, False),
        (point(0, 5), square, False),  # on the border
        (point(5, 5), ringed, False),
        (point(2, 2), ringed, True),
        (point(5.5, 5.5), two, True),
        (point(3, 3), two, False),
        (point(3, 3), point(3, 3), True),
        (point(3, 3), point(3, 4), False),
        (point(0, 5), line((0, 0), (0, 10)), True),
        (point(0, 0), line((0, 0), (0, 10)), False),  # its end
        (line((1, 1), (9, 9)), square, True),
        (line((1, 1), (19, 9)), square, False),
        (line((0, 0), (0, 10)), square, False),  # on the border alone
        (line((1, 1), (9, 9)), ringed, False),
        (line((0, 1), (0, 2)), line((0, 0), (0, 10)), True),
        (polygon(box(1, 1, 2, 2)), square, True),
        (square, square, True),
        (polygon(box(0, 0, 5, 5)), square, True),
        (polygon(box(5, 5, 15, 15)), square, False),
        (square, polygon(box(1, 1, 2, 2)), False),
        (polygon(box(3, 3, 7, 7)), ringed, False),
        (polygon(box(4, 4, 6, 6)), ringed, False),  # just the hole
        (polygon(box(1, 1, 3, 3)), ringed, True),
        (square, line((0, 0), (0, 10)), False),
        (square, point(5, 5), False),
        (line((5, 0), (1, 2), (1, 3)), point(3, 1), False),  # which is the middle of an edge
    ):
        assert spatial.within(context, inner, outer) is expected, (inner, outer)


@BOTH
def test_intersects(context: Context) -> None:
    square = polygon(box(0, 0, 10, 10))
    for first, second, expected in (
        (point(5, 5), square, True),
        (point(0, 5), square, True),
        (point(0, 0), square, True),
        (point(-1, 5), square, False),
        (line((-5, 5), (15, 5)), square, True),
        (line((-5, -5), (15, -5)), square, False),
        (line((1, 1), (2, 2)), square, True),
        (polygon(box(10, 0, 20, 10)), square, True),
        (polygon(box(11, 0, 20, 10)), square, False),
        (polygon(box(-5, -5, 15, 15)), square, True),
        (polygon(box(4, 4, 5, 5)), square, True),
        (point(5, 5), polygon(box(0, 0, 10, 10), box(4, 4, 6, 6)), False),
        (line((4.5, 5), (5.5, 5)), polygon(box(0, 0, 10, 10), box(4, 4, 6, 6)), False),
        (line((0, 0), (10, 10)), line((0, 10), (10, 0)), True),
        (line((0, 0), (1, 1)), line((3, 3), (4, 4)), False),
        (point(1, 1), line((0, 0), (2, 2)), context.is_planar),  # a great circle is not straight in degrees
    ):
        assert spatial.intersects(context, first, second) is expected, (first, second)
        assert spatial.intersects(context, second, first) is expected, (second, first)


def test_the_earth_is_round() -> None:
    across = polygon([(170, -10), (-170, -10), (-170, 10), (170, 10), (170, -10)])
    assert spatial.within(EARTH, point(180, 0), across) is True
    assert spatial.within(EARTH, point(-175, 0), across) is True
    assert spatial.within(EARTH, point(0, 0), across) is False
    cap = polygon([(0, 80), (90, 80), (180, 80), (-90, 80), (0, 80)])
    assert spatial.within(EARTH, point(33, 89), cap) is True
    assert spatial.within(EARTH, point(33, -89), cap) is False
    assert spatial.within(EARTH, point(33, 70), cap) is False
    rest = {"type": "Polygon", "coordinates": [cap["coordinates"][0][::-1]]}
    assert spatial.within(EARTH, point(33, 89), rest) is False
    assert spatial.within(EARTH, point(33, 70), rest) is True
    assert spatial.within(EARTH, polygon(box(0, 0, 1, 1)), rest) is True
    assert spatial.intersects(EARTH, line((0, 0), (0, 89)), cap) is True
    distance: Any = spatial.distance(EARTH, point(0, 85), rest)
    assert distance > 0


@BOTH
def test_random_convex_polygons(context: Context) -> None:
    seed = 5
    dice = random.Random(seed)
    for _ in range(150):
        centre = dice.uniform(-20, 20), dice.uniform(-20, 20)
        angles = sorted(dice.uniform(0, 2 * math.pi) for _ in range(dice.randint(3, 7)))
        if max(math.remainder(b - a, 7) for a, b in pairwise(angles)) > 3 or len(angles) < 3:
            continue
        # On a small circle, so that great circles and straight lines are the same for what is asked.
        ring = [(centre[0] + 0.01 * math.cos(angle), centre[1] + 0.01 * math.sin(angle)) for angle in angles]
        ring.append(ring[0])
        for _ in range(10):
            place = centre[0] + dice.uniform(-0.011, 0.011), centre[1] + dice.uniform(-0.011, 0.011)
            sides = [
                ((bx - ax) * (place[1] - ay) - (by - ay) * (place[0] - ax)) / math.dist((ax, ay), (bx, by))
                for (ax, ay), (bx, by) in pairwise(ring)
            ]
            if min(map(abs, sides)) < 1e-6:
                continue
            expected = min(sides) > 0
            assert spatial.within(context, point(*place), polygon(ring)) is expected, (ring, place, seed)
            assert (spatial.distance(context, point(*place), polygon(ring)) == 0) is expected


# Validity.


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (point(31.9, -132.8), "Latitude values must be between -90 and 90 degrees."),
        (point(181, 0), "Longitude values"),
        ({"type": "Point", "coordinates": [1]}, "at least 2 numbers"),
        ({"type": "Point", "coordinates": ["1", 2]}, "at least 2 numbers"),
        ({"type": "Point", "coordinates": [True, 2]}, "at least 2 numbers"),
        ({"type": "Point", "coordinates": [math.nan, 2]}, "Longitude values"),
        ({"type": "Point"}, "must be an array"),
        ({"type": "Circle", "coordinates": [1, 2]}, "type must be"),
        ({}, "type must be"),
        (line((1, 1)), "at least 2"),
        (line((1, 1), (1, 1)), "at least 2"),
        (line((0, 0), (180, 0)), "half the way"),
        (polygon(), "at least 1 ring"),
        (polygon([(0, 0), (1, 0), (0, 0)]), "at least 4"),
        (polygon([(0, 0), (1, 0), (1, 1), (0, 1)]), "start and end points of the ring number 1 are not the same"),
        (polygon(box(0, 0, 1, 1), [(0, 0), (1, 0), (1, 1), (0, 1)]), "ring number 2"),
        (polygon([(0, 0), (2, 2), (2, 0), (0, 2), (0, 0)]), "crosses"),
        (polygon([(0, 0), (2, 0), (1, 0), (0, 2), (0, 0)]), "crosses"),
        (polygon([(0, 0), (2, 0), (0, 0), (2, 0), (0, 0)]), "crosses"),
        ({"type": "MultiPolygon", "coordinates": []}, "at least 1 polygon"),
        ({"type": "MultiPolygon", "coordinates": [5]}, "at least 1 ring"),
    ],
)
def test_invalid_shapes(shape: Any, reason: str) -> None:
    assert spatial.is_valid(EARTH, shape) is False
    detailed: Any = spatial.is_valid_detailed(EARTH, shape)
    assert detailed["valid"] is False and reason in detailed["reason"]
    assert spatial.area(EARTH, shape) is UNDEFINED
    assert spatial.distance(EARTH, shape, point(0, 0)) is UNDEFINED
    assert spatial.within(EARTH, point(0, 0), shape) is UNDEFINED
    assert spatial.intersects(EARTH, point(0, 0), shape) is UNDEFINED


def test_valid_shapes() -> None:
    for shape in (
        point(31.9, -4.8),
        {"type": "Point", "coordinates": [1, 2, 300]},
        line((0, 0), (1, 1)),
        polygon(box(0, 0, 1, 1)),
        polygon(box(0, 0, 1, 1)[::-1]),
        {"type": "MultiPolygon", "coordinates": [[box_list(0)]]},
    ):
        assert spatial.is_valid(EARTH, shape) is True
        assert spatial.is_valid_detailed(EARTH, shape) == {"valid": True}
    assert spatial.is_valid(PLANE, point(5000, -5000)) is True
    assert spatial.is_valid(EARTH, "POINT(1 2)") is UNDEFINED
    assert spatial.is_valid_detailed(EARTH, UNDEFINED) is UNDEFINED


def circle(count: int, radius: float) -> list[tuple[float, float]]:
    ring = [
        (radius * math.cos(2 * math.pi * step / count), radius * math.sin(2 * math.pi * step / count))
        for step in range(count)
    ]
    return [*ring, ring[0]]


def test_large_polygons() -> None:
    assert spatial.is_valid(EARTH, polygon(circle(4095, 5))) is True
    assert spatial.is_valid(EARTH, polygon(circle(4096, 5))) is False  # and the first position again
    large = polygon(circle(4000, 5))
    assert spatial.within(EARTH, point(4.9, 0), large) is True
    comb = [(0.0, 0.0)] + [(0.001 * step, 1.0 + 8 * (step % 2)) for step in range(4000)] + [(4.0, 0.0), (0.0, 0.0)]
    fence = [(y, x) for x, y in comb]
    with pytest.raises(Failure, match="simpler shape"):
        spatial.distance(EARTH, polygon(comb[::-1]), polygon([(x + 20, y) for x, y in fence]))


def test_shapes_of_the_query_are_read_once() -> None:
    context = Context(VirtualClock())
    constant = polygon(box(0, 0, 10, 10))
    for step in range(20):
        assert spatial.within(context, polygon(box(1, 1, 2 + step / 10, 2)), constant) is True
        assert any(known is constant for known, _ in context.shapes)
    assert len(context.shapes) <= 4


def test_no_shape_keeps_the_others_waiting() -> None:
    ones, others = polygon(circle(1400, 5)), polygon([(x + 20, y) for x, y in circle(1400, 5)])
    for call, second in ((spatial.distance, others), (spatial.within, polygon(circle(1400, 9)))):
        started = time.thread_time()
        try:
            call(EARTH, ones, second)
        except Failure:
            pass
        assert time.thread_time() - started < 2  # of work: some 0.1 s; it was 11 when every pair was measured


@pytest.mark.parametrize("size", [1.0, 0.01, 1e-6])
@pytest.mark.parametrize("latitude", [0.0, 48.0, -80.0])
def test_the_other_side_of_the_earth_is_not_near(size: float, latitude: float) -> None:
    here = polygon(box(-size, latitude - size, size, latitude + size))
    there = polygon(box(180 - size, -latitude - size, -180 + size, -latitude + size))
    assert spatial.intersects(EARTH, here, there) is False
    assert spatial.within(EARTH, point(180, -latitude), here) is False
    # Turned round, a small ring still leaves out what is in it and nothing else.
    around = polygon(here["coordinates"][0][::-1])
    assert spatial.within(EARTH, point(0, latitude), around) is False
    assert spatial.within(EARTH, point(180, -latitude), around) is True
