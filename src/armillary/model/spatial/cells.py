"""Spatial index terms: cells of a grid that is divided four by four, repeatedly. A shape is covered by a few cells of
one size, a point by one of the smallest, and so is the region of a query; if two shapes intersect, a cell of one
contains a cell of the other. The converse does not hold: the filter compares the shapes themselves.

On the earth the grid lies over longitude and geocentric latitude, in which edges are great circles. Shapes that are
near a pole or wide are first bounded by a spherical cap, for which poles and date line are not special, and then by
boxes around that. In a plane the grid covers the bounding box of the index; points outside belong to the nearest cell.

A cell is written as its path from the whole grid, a byte (1 to 16) for each division; its term ends with a zero, so
that the cells within a cell are a range of terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from armillary import limits
from armillary.model.indexes.index_paths import Steps, path_text, values_at
from armillary.model.spatial.geodesy import POLAR_RADIUS_M, Vector
from armillary.model.spatial.geometries import InvalidShape, Shape, angle_between, dot, parse_shape, vector

Box: TypeAlias = tuple[float, float, float, float]  # west, south, east, north

SHAPE_KINDS: Final = ("Point", "LineString", "Polygon", "MultiPolygon")
SPATIAL_NAME: Final = "cells:"  # begins the index name, which stands in place of a path; paths begin with a slash
WHOLE_TERM: Final = b"\x00"  # the whole grid as one cell

_DIVISIONS: Final = 10  # 2**20 cells along each side: 38 m at the equator
_SIDE: Final = 1 << 2 * _DIVISIONS
_CAP_MAX: Final = math.radians(75)  # a larger cap is treated as the whole earth; from 90 degrees on it is not convex
_STEP_MAX: Final = 3.0  # radians; edges nearly over a pole may go either way
_SINE_MAX: Final = 0.999  # of a latitude that is not near a pole
_WHOLE_EARTH: Final[Box] = (-math.pi, -math.pi / 2, math.pi, math.pi / 2)
# The tolerance of relations for equal places (`geometries.py`) plus a margin: radians, or parts of a coordinate.
_NEAR: Final = 1e-8


class Region(NamedTuple):
    """Boxes that together cover a query's region; in radians, or in the units of a plane."""

    is_planar: bool
    boxes: tuple[Box, ...]

    @property
    def is_everything(self) -> bool:
        return not self.is_planar and _WHOLE_EARTH in self.boxes


def region_around(given: Any, reach: float, *, is_planar: bool) -> Region | None:
    """Everything within `reach` of a shape, in metres or in the units of the plane; None: not a valid shape."""
    shape = _shape(given, is_planar)
    if shape is None:
        return None
    if is_planar:
        reach += _NEAR * max(1.0, *[abs(each) for place in shape.places for each in place])
    else:
        # Seen from the centre, a path over the ellipsoid spans the largest angle at the poles.
        reach = reach / POLAR_RADIUS_M * (1 + _NEAR) + _NEAR
    return Region(is_planar, tuple(_boxes(shape, reach)))


class SpatialIndex:
    """One entry of a policy's `spatialIndexes`. With a bounding box it is for a plane."""

    def __init__(self, steps: Steps, types: frozenset[str], bounding_box: Mapping[str, Any] | None) -> None:
        self.path = path_text(steps)
        self.name = f"{SPATIAL_NAME}{self.path}"
        self.is_planar = bounding_box is not None
        self._steps = steps
        self._types = types
        self._bounds: Box = (-math.pi, -math.pi, math.pi, math.pi)  # so that cells are square at the equator
        if bounding_box is not None:
            xmin, ymin, xmax, ymax = (float(bounding_box[side]) for side in ("xmin", "ymin", "xmax", "ymax"))
            self._bounds = (xmin, ymin, xmax, ymax)

    def terms(self, document: Mapping[str, Any]) -> tuple[set[bytes], int]:
        """The terms of the shapes in an item, and the number of shapes. Shapes of types that the index does not name
        are covered by the whole grid only, where every query finds them; they are not counted."""
        terms: set[bytes] = set()
        count = 0
        for given in values_at(document, self._steps):
            if type(given) is not dict:
                continue
            kind = given.get("type")
            is_counted = type(kind) is str and kind in self._types
            count += is_counted
            shape = _shape(given, self.is_planar)
            if shape is None:
                continue
            cells = self.cells(_boxes(shape, 0.0), limits.SHAPE_CELLS_MAX) if is_counted else [b""]
            terms.update([cell + WHOLE_TERM for cell in cells])
        return terms, count

    def ranges(self, region: Region) -> list[tuple[bytes, bytes]]:
        """The term ranges [first, second) of all shapes that may intersect a region."""
        cells = self.cells(region.boxes, limits.REGION_CELLS_MAX)
        around = {cell[:length] for cell in cells for length in range(len(cell))}
        return [
            *[(cell + WHOLE_TERM, cell + b"\x01") for cell in sorted(around)],
            *[(cell, cell + b"\xff") for cell in sorted(cells)],
        ]

    def cells(self, boxes: Sequence[Box], cells_max: int) -> set[bytes]:
        """The smallest cells of one size that cover all boxes, within the limit of cells."""
        placed = [self._placed(box) for box in boxes]
        for division in range(_DIVISIONS, -1, -1):
            shift = 2 * (_DIVISIONS - division)
            sides = [(box[0] >> shift, box[1] >> shift, box[2] >> shift, box[3] >> shift) for box in placed]
            if sum((east - west + 1) * (north - south + 1) for west, south, east, north in sides) <= cells_max:
                return {
                    _way(column, row, division)
                    for west, south, east, north in sides
                    for column in range(west, east + 1)
                    for row in range(south, north + 1)
                }
        return {b""}

    def _placed(self, box: Box) -> tuple[int, int, int, int]:
        low_x, low_y, high_x, high_y = self._bounds
        return (
            _place(box[0], low_x, high_x),
            _place(box[1], low_y, high_y),
            _place(box[2], low_x, high_x),
            _place(box[3], low_y, high_y),
        )


# On the earth, for indexes that no policy names.

_EARTH: Final = SpatialIndex((), frozenset(), None)


def earth_terms(shapes: Iterable[Shape]) -> set[bytes]:
    return {cell + WHOLE_TERM for shape in shapes for cell in _EARTH.cells(_boxes(shape, 0.0), limits.SHAPE_CELLS_MAX)}


def earth_ranges(shapes: Iterable[Shape], reach_m: float) -> list[tuple[bytes, bytes]]:
    """The term ranges of everything that may lie within so many metres of shapes."""
    reach = reach_m / POLAR_RADIUS_M * (1 + _NEAR) + _NEAR
    return _EARTH.ranges(Region(False, tuple([box for shape in shapes for box in _boxes(shape, reach)])))


def _place(value: float, low: float, high: float) -> int:
    share = (value - low) / (high - low)
    return 0 if share <= 0 else _SIDE - 1 if share >= 1 else int(share * _SIDE)


def _way(column: int, row: int, division: int) -> bytes:
    shifts = range(2 * (division - 1), -1, -2)
    return bytes([1 + (column >> shift & 3) * 4 + (row >> shift & 3) for shift in shifts])


def _shape(given: Any, is_planar: bool) -> Shape | None:
    if type(given) is not dict:
        return None
    try:
        return parse_shape(given, is_planar, is_trusted=True)
    except InvalidShape:
        return None


def _boxes(shape: Shape, reach: float) -> list[Box]:
    """Boxes around a shape and everything within reach, in radians or in the units of the plane."""
    if shape.is_planar:
        return [_plane_box(places, reach) for places in _groups(shape)]
    if any(polygon[0].is_turned for polygon in shape.polygons):
        return [_WHOLE_EARTH]  # everything but a ring's inside
    boxes = [box for places in _groups(shape) for box in _earth_boxes(places, reach)]
    return [_WHOLE_EARTH] if _WHOLE_EARTH in boxes else boxes


def _groups(shape: Shape) -> list[Sequence[tuple[float, float]]]:
    """The positions of a shape in groups, such that each part of the shape lies within one group."""
    if shape.points:
        return [shape.points]
    parts: list[Sequence[tuple[float, float]]] = [polygon[0].places for polygon in shape.polygons]
    for line in shape.lines:
        parts += [line.places[at : at + 2] for at in range(len(line.places) - 1)]
    size = -(-len(parts) // limits.SHAPE_BOXES_MAX)
    if size == 1:
        return parts
    return [[place for part in parts[at : at + size] for place in part] for at in range(0, len(parts), size)]


def _plane_box(places: Sequence[tuple[float, float]], reach: float) -> Box:
    across, up = [x for x, _ in places], [y for _, y in places]
    return min(across) - reach, min(up) - reach, max(across) + reach, max(up) + reach


def _earth_boxes(places: Sequence[tuple[float, float]], reach: float) -> list[Box]:
    """Boxes around the edges between successive positions, or around the smaller side of the ring that they form. A cap
    of less than half the earth is convex: it contains the edges between its positions, and that side."""
    vectors = [vector(place, False) for place in places]
    centre = _centre(vectors)
    if centre is None:
        return [_WHOLE_EARTH]
    radius = max([angle_between(centre, each) for each in vectors]) + reach if len(vectors) > 1 else reach
    if radius > _CAP_MAX:
        return [_WHOLE_EARTH]
    across = math.hypot(centre[0], centre[1])
    longitude, latitude = math.atan2(centre[1], centre[0]), math.atan2(centre[2], across)
    south, north = latitude - radius, latitude + radius
    box = _close_box(places, vectors, reach) if len(vectors) > 1 else None
    if box is not None:
        return _unwrapped(*box)
    if south <= -math.pi / 2 or north >= math.pi / 2:
        return [(-math.pi, south, math.pi, north)]
    width = math.asin(min(1.0, math.sin(radius) / across)) if radius else 0.0
    return _unwrapped(longitude - width, south, longitude + width, north)


def _close_box(places: Sequence[tuple[float, float]], vectors: Sequence[Vector], reach: float) -> Box | None:
    """A box that follows the edges, along each of which longitude is monotonic. None if they come near a pole or
    enclose it."""
    longitude = west = east = math.radians(places[0][0])
    low, high = 1.0, -1.0
    for (first, last), (one, other) in zip(pairwise(places), pairwise(vectors), strict=True):
        step = math.radians(math.remainder(last[0] - first[0], 360))
        longitude += step
        west, east = min(west, longitude), max(east, longitude)
        # A great circle bulges out of what is between its ends by as much as the arc is above its chord.
        bulge = 1 - math.sqrt(max(0.0, (1 + dot(one, other)) / 2))
        low, high = min(low, one[2] - bulge, other[2] - bulge), max(high, one[2] + bulge, other[2] + bulge)
        if abs(step) > _STEP_MAX or max(-low, high) > _SINE_MAX:
            return None
    if east - west > _STEP_MAX:  # as has every ring around a pole
        return None
    south, north = math.asin(low) - reach, math.asin(high) + reach
    farthest = max(-south, north)
    if farthest >= math.pi / 2 or math.sin(reach) >= math.cos(farthest - reach):
        return None
    width = math.asin(math.sin(reach) / math.cos(farthest - reach))
    return west - width, south, east + width, north


def _unwrapped(west: float, south: float, east: float, north: float) -> list[Box]:
    """A box as one or two boxes that do not cross the date line."""
    turn = 2 * math.pi * math.floor((west + math.pi) / (2 * math.pi))
    west, east = west - turn, east - turn
    if east <= math.pi:
        return [(west, south, east, north)]
    return [(west, south, math.pi, north), (-math.pi, south, east - 2 * math.pi, north)]


def _centre(vectors: Sequence[Vector]) -> Vector | None:
    if len(vectors) == 1:
        return vectors[0]
    x, y, z = (sum([each[axis] for each in vectors]) for axis in range(3))
    length = math.sqrt(x * x + y * y + z * z)
    return (x / length, y / length, z / length) if length > 1e-6 else None
