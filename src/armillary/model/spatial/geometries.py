"""GeoJSON to shapes: points, lines and polygons with what the relations between them need, computed once.
`InvalidShape` explains what is wrong with an invalid one.

Geography (longitude and latitude on the earth) and geometry (a plane) share this code: a position is a vector, in the
plane (x, y, 1), and in both the side of an edge on which a point lies is the sign of a determinant. Edges on the earth
are great circles.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from armillary import limits
from armillary.model.spatial.geodesy import Coordinates, Vector, area_left, direction
from armillary.work import portions, sorted_values, spend

T = TypeVar("T")

# Units of work.
_POSITION_UNITS: Final = 10
_DOT_UNITS: Final = 4
_EDGE_UNITS: Final = 30
_AREA_UNITS: Final = 20
_NEAR_UNITS: Final = 10
_MEET_UNITS: Final = 30
_CHUNK: Final = 64  # edges compared before the event loop may have its turn

_NEAR: Final = 1e-11  # radians on the earth (a tenth of a millimetre), parts of a coordinate in the plane
_ANTIPODAL: Final = 1e-9 - 1
_NUMBERS: Final = frozenset([int, float])


class InvalidShape(Exception):
    """The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Edge:
    first: Vector
    last: Vector
    low: Vector  # the corners of its bounding box
    high: Vector


@dataclass(frozen=True, slots=True)
class Ring:
    places: tuple[Coordinates, ...]
    edges: tuple[Edge, ...]
    is_turned: bool  # clockwise: the inside is the area around it


@dataclass(frozen=True, slots=True)
class Shape:
    kind: str
    is_planar: bool
    points: tuple[Coordinates, ...] = ()  # of a Point
    lines: tuple[Ring, ...] = ()  # of a LineString, open
    polygons: tuple[tuple[Ring, ...], ...] = ()  # the outer ring first

    @property
    def chains(self) -> Iterator[Ring]:
        yield from self.lines
        for polygon in self.polygons:
            yield from polygon

    @property
    def edges(self) -> list[Edge]:
        return [edge for chain in self.chains for portion in portions(chain.edges, 1) for edge in portion]

    @property
    def places(self) -> list[Coordinates]:
        places = [place for chain in self.chains for portion in portions(chain.places, 1) for place in portion]
        return [*self.points, *places]


def parse_shape(given: dict[str, Any], is_planar: bool, *, is_trusted: bool = False) -> Shape:
    """`is_trusted` rings are not checked for crossings, which takes longest: enough where only the position of a valid
    shape is needed."""
    kind, coordinates = given.get("type"), given.get("coordinates")
    if kind.__class__ is not str or kind not in _PARSERS:
        raise InvalidShape("The type must be one of Point, LineString, Polygon and MultiPolygon.")
    if coordinates.__class__ is not list:
        raise InvalidShape(f"The coordinates of a {kind} must be an array.")
    shape: Shape = _PARSERS[kind](coordinates, is_planar, is_trusted)
    return shape


def _point(coordinates: list[Any], is_planar: bool, _is_trusted: bool) -> Shape:
    return Shape("Point", is_planar, points=(_position(coordinates, is_planar),))


def _line(coordinates: list[Any], is_planar: bool, _is_trusted: bool) -> Shape:
    places = [_position(each, is_planar) for each in coordinates]
    if len(places) < 2 or places.count(places[0]) == len(places):
        raise InvalidShape("A LineString must have at least 2 different positions.")
    return Shape("LineString", is_planar, lines=(_chain(places, is_planar),))


def _polygon(coordinates: list[Any], is_planar: bool, is_trusted: bool) -> Shape:
    return Shape("Polygon", is_planar, polygons=(_rings(coordinates, is_planar, is_trusted),))


def _multi_polygon(coordinates: list[Any], is_planar: bool, is_trusted: bool) -> Shape:
    if not coordinates:
        raise InvalidShape("A MultiPolygon must have at least 1 polygon.")
    polygons = tuple([_rings(each, is_planar, is_trusted) for each in coordinates])
    return Shape("MultiPolygon", is_planar, polygons=polygons)


_PARSERS: Final = {"Point": _point, "LineString": _line, "Polygon": _polygon, "MultiPolygon": _multi_polygon}


def _position(given: Any, is_planar: bool) -> Coordinates:
    spend(len(given) if given.__class__ is list and len(given) > _POSITION_UNITS else _POSITION_UNITS)
    if given.__class__ is not list or len(given) < 2 or not all(each.__class__ in _NUMBERS for each in given):
        raise InvalidShape("A position must be an array of at least 2 numbers, the longitude first.")
    try:
        x, y = float(given[0]), float(given[1])
    except OverflowError:
        x = y = math.inf
    if is_planar:
        if not abs(x) <= limits.PLANE_COORDINATE_MAX or not abs(y) <= limits.PLANE_COORDINATE_MAX:
            raise InvalidShape(f"Coordinates must be numbers of at most {limits.PLANE_COORDINATE_MAX:g}.")
        return x, y
    if not -90 <= y <= 90:
        raise InvalidShape("Latitude values must be between -90 and 90 degrees.")
    if not -180 <= x <= 180:
        raise InvalidShape("Longitude values must be between -180 and 180 degrees.")
    return x, y


def _rings(given: Any, is_planar: bool, is_trusted: bool) -> tuple[Ring, ...]:
    if given.__class__ is not list or not given:
        raise InvalidShape("A Polygon must have at least 1 ring.")
    rings: list[Ring] = []
    count = 0
    for number, positions in enumerate(given, 1):
        if positions.__class__ is not list or len(positions) < 4:
            raise InvalidShape(f"The ring number {number} of the Polygon must have at least 4 positions.")
        count += len(positions)
        if count > limits.POLYGON_POINTS_MAX:
            raise InvalidShape(f"A Polygon must not have more than {limits.POLYGON_POINTS_MAX} positions.")
        places = [_position(each, is_planar) for each in positions]
        if places[0] != places[-1]:
            raise InvalidShape(
                f"The Polygon input is not valid because the start and end points of the ring number {number} are not "
                "the same. Each ring of a polygon must have the same start and end points."
            )
        ring = _chain(places, is_planar)
        if len(ring.edges) < 3 or (not is_trusted and _is_crossed(ring.edges, is_planar)):
            raise InvalidShape(f"The ring number {number} of the Polygon crosses or touches itself.")
        rings.append(ring)
    return tuple(rings)


def _chain(places: Sequence[Coordinates], is_planar: bool) -> Ring:
    kept = [place for index, place in enumerate(paced(places, 1)) if index == 0 or place != places[index - 1]]
    vectors = [vector(place, is_planar) for place in paced(kept, _POSITION_UNITS)]
    pairs = itertools.pairwise(vectors)
    if not is_planar and any(dot(first, last) < _ANTIPODAL for first, last in paced(pairs, _DOT_UNITS)):
        raise InvalidShape("An edge must be shorter than half the way around the earth.")
    edges = tuple([edge(first, last, is_planar) for first, last in itertools.pairwise(vectors)])
    is_ring = len(kept) > 3 and kept[0] == kept[-1]
    if is_ring:
        spend(_AREA_UNITS * len(kept))
    return Ring(tuple(kept), edges, is_ring and not is_planar and area_left(kept) > 2 * math.pi)


def vector(place: Coordinates, is_planar: bool) -> Vector:
    return (place[0], place[1], 1.0) if is_planar else direction(place)


def edge(first: Vector, last: Vector, is_planar: bool) -> Edge:
    # A great circle bulges out of the box around its ends by as much as the arc is above its chord.
    spend(_EDGE_UNITS)
    bulge = 0.0 if is_planar else 1 - math.sqrt(max(0.0, (1 + dot(first, last)) / 2))
    margin = bulge + _NEAR * max(1.0, abs(first[0]), abs(first[1]))
    low = (min(first[0], last[0]) - margin, min(first[1], last[1]) - margin, min(first[2], last[2]) - margin)
    high = (max(first[0], last[0]) + margin, max(first[1], last[1]) + margin, max(first[2], last[2]) + margin)
    return Edge(first, last, low, high)


# Vectors.


def dot(first: Vector, second: Vector) -> float:
    return first[0] * second[0] + first[1] * second[1] + first[2] * second[2]


def cross(first: Vector, second: Vector) -> Vector:
    return (
        first[1] * second[2] - first[2] * second[1],
        first[2] * second[0] - first[0] * second[2],
        first[0] * second[1] - first[1] * second[0],
    )


def angle_between(first: Vector, second: Vector) -> float:
    normal = cross(first, second)
    return math.atan2(math.sqrt(dot(normal, normal)), dot(first, second))


def side(first: Vector, last: Vector, point: Vector, is_planar: bool) -> int:
    """1: the point lies to the left of the line from first to last, -1: to the right, 0: on the line."""
    if is_planar:
        run, rise = last[0] - first[0], last[1] - first[1]
        area = run * (point[1] - first[1]) - rise * (point[0] - first[0])
        near = _NEAR * math.hypot(run, rise) * max(1.0, abs(point[0]), abs(point[1]), abs(first[0]), abs(first[1]))
    else:
        normal = cross(first, last)
        area = dot(normal, point)
        near = _NEAR * math.sqrt(dot(normal, normal))
    return (area > near) - (area < -near)


def is_between(first: Vector, last: Vector, point: Vector, is_planar: bool) -> bool:
    """Whether a point on the line through two others lies between them."""
    if is_planar:
        run, rise = last[0] - first[0], last[1] - first[1]
        along = run * (point[0] - first[0]) + rise * (point[1] - first[1])
        whole = run * run + rise * rise
        return -_NEAR * whole <= along <= whole * (1 + _NEAR)
    least = dot(first, last) - _NEAR
    return dot(first, point) >= least and dot(last, point) >= least


def is_on(each: Edge, point: Vector, is_planar: bool) -> bool:
    low, high = each.low, each.high
    if not (low[0] <= point[0] <= high[0] and low[1] <= point[1] <= high[1] and low[2] <= point[2] <= high[2]):
        return False
    first, last = each.first, each.last
    return side(first, last, point, is_planar) == 0 and is_between(first, last, point, is_planar)


def meet(one: Edge, other: Edge, is_planar: bool) -> bool:
    """Whether two edges have a point in common."""
    a, b, c, d = one.first, one.last, other.first, other.last
    of_c, of_d = side(a, b, c, is_planar), side(a, b, d, is_planar)
    of_a, of_b = side(c, d, a, is_planar), side(c, d, b, is_planar)
    if of_c and of_d and of_a and of_b:
        return of_c == -of_d == -of_a == of_b
    return (
        is_on(one, c, is_planar) or is_on(one, d, is_planar) or is_on(other, a, is_planar) or is_on(other, b, is_planar)
    )


def near_pairs(ones: Sequence[Edge], others: Sequence[Edge]) -> Iterator[tuple[int, int]]:
    """The indexes of edges whose boxes overlap. The number of comparisons is bounded; see `limits.SHAPE_PAIRS_MAX`."""
    if not ones or not others:
        return
    order = sorted_values(range(len(others)), lambda index: others[index].low[0])
    lows = [others[index].low[0] for portion in portions(order, 2) for index in portion]
    width = max([other.high[0] - other.low[0] for portion in portions(others, 3) for other in portion], default=0.0)
    looked_at = 0
    for place, one in enumerate(ones):
        start, end = bisect_left(lows, one.low[0] - width), bisect_right(lows, one.high[0])
        looked_at += end - start
        spend(_NEAR_UNITS + end - start)
        if looked_at > limits.SHAPE_PAIRS_MAX:
            raise TooComplex
        for rank in range(start, end):
            index = order[rank]
            other = others[index]
            if (
                other.high[0] >= one.low[0]
                and other.low[1] <= one.high[1]
                and other.high[1] >= one.low[1]
                and other.low[2] <= one.high[2]
                and other.high[2] >= one.low[2]
            ):
                spend(_MEET_UNITS)
                yield place, index


def paced(edges: Iterable[T], units: int) -> Iterator[T]:
    """Edges one by one, spending so many units of work for each."""
    for place, each in enumerate(edges):
        if place % _CHUNK == 0:
            spend(_CHUNK * units if place else units)
        yield each


class TooComplex(Exception):
    """Two shapes have more neighbouring edges than may be compared in one request."""


def _is_crossed(edges: Sequence[Edge], is_planar: bool) -> bool:
    last = len(edges) - 1
    try:
        for index, other in near_pairs(edges, edges):
            if other <= index:
                continue
            is_next = other == index + 1
            if is_next or (index == 0 and other == last):
                # Neighbours share a position; they must not overlap.
                before, after = (edges[index], edges[other]) if is_next else (edges[other], edges[index])
                if is_on(before, after.last, is_planar) or is_on(after, before.first, is_planar):
                    return True
            elif meet(edges[index], edges[other], is_planar):
                return True
    except TooComplex:
        return False  # accepted: proving it would take too long
    return False
