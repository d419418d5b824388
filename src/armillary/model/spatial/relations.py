"""Relations between two shapes: distance, intersects, within. Within is as in the OGC standard: no part of the inner
shape is outside, and it is not on the border only, so a point on a polygon's border is not within it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final

from armillary import limits
from armillary.model.spatial.geodesy import Coordinates, Vector, distance_m, least, place_of
from armillary.model.spatial.geometries import (
    Edge,
    Ring,
    Shape,
    TooComplex,
    angle_between,
    cross,
    dot,
    is_on,
    meet,
    near_pairs,
    paced,
    side,
    vector,
)
from armillary.work import spend

_OUTSIDE, _BORDER, _INSIDE = -1, 0, 1
_ON_UNITS: Final = 4  # units of work for an edge that a point may be on
_POINT_UNITS: Final = 15  # for an edge that a point is compared with
_AROUND_UNITS: Final = 4  # for an edge that may be near a corner
_ANTIPODAL: Final = 1e-14 - 1
_CANDIDATES_MAX: Final = 8  # candidates for the nearest edge, computed exactly
_TOLERANCE: Final = 1.01  # by how much a sphere and the ellipsoid may disagree which is nearer


# Where a point lies.


def location(shape: Shape, point: Vector) -> int:
    planar = shape.is_planar
    found = _OUTSIDE
    for place in shape.points:
        if _is_same(vector(place, planar), point, planar):
            return _INSIDE
    for line in shape.lines:
        if any(is_on(edge, point, planar) for edge in paced(line.edges, _ON_UNITS)):
            ends = (line.edges[0].first, line.edges[-1].last)
            is_end = line.places[0] != line.places[-1] and any(_is_same(end, point, planar) for end in ends)
            found = max(found, _BORDER if is_end else _INSIDE)
    for polygon in shape.polygons:
        found = max(found, _location_in(polygon, point, planar))
    return found


def _location_in(polygon: Sequence[Ring], point: Vector, planar: bool) -> int:
    if any(is_on(edge, point, planar) for ring in polygon for edge in paced(ring.edges, _ON_UNITS)):
        return _BORDER
    outer, *holes = polygon
    if _is_around(outer, point, planar) == outer.is_turned:
        return _OUTSIDE
    return _OUTSIDE if any(_is_around(hole, point, planar) for hole in holes) else _INSIDE


def _is_around(ring: Ring, point: Vector, planar: bool) -> bool:
    """Whether a point is on the smaller side of a ring; it is known not to be on the ring."""
    if planar:
        x, y, _ = point
        is_odd = False
        for edge in paced(ring.edges, _ON_UNITS):
            (x1, y1, _), (x2, y2, _) = edge.first, edge.last
            if (y1 > y) != (y2 > y) and x < x1 + (y - y1) / (y2 - y1) * (x2 - x1):
                is_odd = not is_odd
        return is_odd
    # The angles under which the point sees the edges add up to one turn or to none; to one turn in the other direction
    # if the ring encloses the point's antipode.
    total = 0.0
    for edge in paced(ring.edges, _ON_UNITS):
        if dot(edge.first, point) < _ANTIPODAL:
            # From the antipode of a corner its edges are seen in any direction, but not from some metres aside.
            point = _moved(point, cross(point, edge.last), 1e-6, False)
    for edge in paced(ring.edges, _POINT_UNITS):
        first, last = edge.first, edge.last
        total += math.atan2(dot(point, cross(first, last)), dot(first, last) - dot(first, point) * dot(last, point))
    turns = round(total / (2 * math.pi))
    return turns == (-1 if ring.is_turned else 1)


def _is_same(first: Vector, second: Vector, planar: bool) -> bool:
    near = 1e-11 * (max(1.0, abs(first[0]), abs(first[1])) if planar else 1.0)
    return all(abs(left - right) <= near for left, right in zip(first, second, strict=True))


# Meeting.


def _locations(shape: Shape, points: Sequence[Vector]) -> Iterator[int]:
    """The locations of many points. Each is compared with every edge, so there is a limit."""
    if len(points) * len(shape.edges) > limits.SHAPE_STEPS_MAX:
        raise TooComplex
    return (location(shape, point) for point in points)


def do_intersect(first: Shape, second: Shape) -> bool:
    planar = first.is_planar
    if any(found >= _BORDER for found in _locations(second, list(_samples(first)))):
        return True
    if any(found >= _BORDER for found in _locations(first, list(_samples(second)))):
        return True
    ones, others = first.edges, second.edges
    return any(meet(ones[one], others[other], planar) for one, other in near_pairs(ones, others))


def _samples(shape: Shape) -> Iterator[Vector]:
    """A position of each part: if edges do not meet, a part is inside or outside as a whole."""
    for place in shape.points:
        yield vector(place, shape.is_planar)
    for line in shape.lines:
        yield line.edges[0].first
    for polygon in shape.polygons:
        for ring in polygon:
            yield ring.edges[0].first


# Within.


def is_within(first: Shape, second: Shape) -> bool:
    planar = first.is_planar
    if first.points:
        return location(second, vector(first.points[0], planar)) == _INSIDE
    if second.points:
        return False
    found = list(_locations(second, list(_pieces(first.edges, second.edges, planar))))
    if _OUTSIDE in found:
        return False
    if not first.polygons:
        return _INSIDE in found
    if _INSIDE in _locations(first, list(_pieces(second.edges, first.edges, planar))):
        return False
    inner = [_inner_point(first, polygon) for polygon in first.polygons]
    return all(found == _INSIDE for found in _locations(second, inner))


def _pieces(edges: Sequence[Edge], others: Sequence[Edge], planar: bool) -> Iterator[Vector]:
    """The midpoints of the pieces into which other edges cut these: each piece lies on one side of them. Of successive
    edges that are neither cut nor touched, one represents all."""
    cuts: dict[int, list[float]] = {}
    for one, other in near_pairs(edges, others):
        edge, cutting = edges[one], others[other]
        if meet(edge, cutting, planar):
            cuts.setdefault(one, []).extend(_cuts(edge, cutting, planar))
        if len(cuts) > limits.SHAPE_STEPS_MAX:
            raise TooComplex
    for place, edge in enumerate(paced(edges, _ON_UNITS)):
        if place and not {place, place - 1} & cuts.keys() and edge.first is edges[place - 1].last:
            continue
        shares = sorted({0.0, 1.0, *cuts.get(place, ())})
        for low, high in itertools.pairwise(shares):
            if high - low > 1e-9:
                yield between(edge, (low + high) / 2, planar)


def _cuts(edge: Edge, cutting: Edge, planar: bool) -> Iterator[float]:
    for point in (cutting.first, cutting.last):
        if is_on(edge, point, planar):
            yield _share(edge, point, planar)
    a, b, c, d = edge.first, edge.last, cutting.first, cutting.last
    if side(a, b, c, planar) * side(a, b, d, planar) < 0:
        # Where the line through c and d crosses: the determinants of its sides say in which proportion.
        normal = cross(c, d)
        to_first, to_last = dot(normal, a), dot(normal, b)
        if to_first != to_last:
            mixed = _mixed(a, b, to_first / (to_first - to_last), planar)
            yield _share(edge, mixed, planar)


def _mixed(first: Vector, last: Vector, share: float, planar: bool) -> Vector:
    x, y, z = ((1 - share) * left + share * right for left, right in zip(first, last, strict=True))
    if planar:
        return x, y, 1.0
    length = math.sqrt(x * x + y * y + z * z) or 1.0
    return x / length, y / length, z / length


def _share(edge: Edge, point: Vector, planar: bool) -> float:
    first, last = edge.first, edge.last
    if planar:
        run, rise = last[0] - first[0], last[1] - first[1]
        share = (run * (point[0] - first[0]) + rise * (point[1] - first[1])) / (run * run + rise * rise)
    else:
        share = angle_between(first, point) / angle_between(first, last)
    return min(1.0, max(0.0, share))


def between(edge: Edge, share: float, planar: bool) -> Vector:
    """The point of an edge that lies at a share of its length."""
    if planar:
        return _mixed(edge.first, edge.last, share, planar)
    angle = angle_between(edge.first, edge.last)
    scale = math.sin(angle)
    if scale < 1e-12:
        return _mixed(edge.first, edge.last, share, planar)
    left, right = math.sin((1 - share) * angle) / scale, math.sin(share * angle) / scale
    x, y, z = (left * one + right * other for one, other in zip(edge.first, edge.last, strict=True))
    return x, y, z


def _inner_point(shape: Shape, polygon: Sequence[Ring]) -> Vector:
    """A point inside a polygon: a little to the left or right of the middle of an edge."""
    planar = shape.is_planar
    for edge in polygon[0].edges:
        middle = between(edge, 0.5, planar)
        if planar:
            sideways = (edge.first[1] - edge.last[1], edge.last[0] - edge.first[0], 0.0)
        else:
            sideways = cross(edge.first, edge.last)
        for size in (1e-2, 1e-4, 1e-6, -1e-2, -1e-4, -1e-6):
            moved = _moved(middle, sideways, size, planar)
            if _location_in(polygon, moved, planar) == _INSIDE:
                return moved
    return polygon[0].edges[0].first  # a sliver: represented by its border


def _moved(point: Vector, sideways: Vector, size: float, planar: bool) -> Vector:
    x, y, z = (here + size * there for here, there in zip(point, sideways, strict=True))
    if planar:
        return x, y, 1.0
    length = math.sqrt(x * x + y * y + z * z) or 1.0
    return x / length, y / length, z / length


# Distance.


def distance(first: Shape, second: Shape) -> float:
    if first.points and second.points:
        one, other = first.points[0], second.points[0]
        return math.dist(one, other) if first.is_planar else distance_m(one, other)
    if do_intersect(first, second):
        return 0.0
    # Two shapes that do not meet are nearest at a corner of one of them.
    candidates = [*_nearest(first, second), *_nearest(second, first)]
    if first.is_planar:
        return min(apart for apart, _, _ in candidates)
    candidates.sort(key=lambda candidate: candidate[0])
    limit = candidates[0][0] * _TOLERANCE
    close = [candidate for candidate in candidates if candidate[0] <= limit][:_CANDIDATES_MAX]
    return min(_exact_m(place, edge) for _, place, edge in close)


_Candidate = tuple[float, Coordinates, Edge]


def _nearest(corners: Shape, edges: Shape) -> list[_Candidate]:
    """The corners of a shape and the edges of another that may be nearest, with distances on a sphere or in the plane.
    Most pairs are skipped because a ball around the edge is too far away."""
    places, planar = corners.places, corners.is_planar
    others = edges.edges
    if len(places) * len(others) > limits.SHAPE_PAIRS_MAX:
        raise TooComplex
    balls = [(between(edge, 0.5, planar), edge) for edge in paced(others, _POINT_UNITS)]
    around = [(middle, math.dist(middle, edge.first), edge) for middle, edge in paced(balls, _ON_UNITS)]
    found: list[_Candidate] = []
    least_apart = reach = math.inf
    for place in places:
        point = vector(place, planar)
        for middle, radius, edge in paced(around, _AROUND_UNITS):
            # The chord is never longer than the arc.
            if math.dist(point, middle) - radius > reach:
                continue
            spend(_POINT_UNITS)
            apart = _apart(point, edge, planar)
            if apart <= reach:
                found.append((apart, place, edge))
                least_apart = min(least_apart, apart)
                reach = least_apart * _TOLERANCE
    found.sort(key=lambda candidate: candidate[0])
    return found[:_CANDIDATES_MAX]


def _apart(point: Vector, edge: Edge, planar: bool) -> float:
    first, last = edge.first, edge.last
    if planar:
        share = _share(edge, point, planar)
        nearest = _mixed(first, last, share, planar)
        return math.dist(point, nearest)
    normal = cross(first, last)
    # The foot of the perpendicular lies on the edge when the point is between the planes at its ends.
    if dot(cross(normal, first), point) > 0 and dot(cross(last, normal), point) > 0:
        size = math.sqrt(dot(normal, normal))
        return abs(math.asin(max(-1.0, min(1.0, dot(normal, point) / size)))) if size else angle_between(point, first)
    return min(angle_between(point, first), angle_between(point, last))


def _exact_m(place: Coordinates, edge: Edge) -> float:
    def to_share(share: float) -> float:
        return distance_m(place, place_of(between(edge, share, False)))

    ends = min(distance_m(place, place_of(edge.first)), distance_m(place, place_of(edge.last)))
    return min(ends, least(to_share, 0.0, 1.0))
