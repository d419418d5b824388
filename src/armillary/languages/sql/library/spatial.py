"""Spatial functions of GeoJSON shapes: distance, area, within, intersects, validity. Measuring an invalid shape is
undefined. No geometry library is used: the available ones compute in the plane, not on the ellipsoid, and would save
only the few hundred lines of `model/spatial/geometries.py`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.languages.sql.library.context import Context
from armillary.languages.sql.library.numbers import number
from armillary.model.spatial import relations
from armillary.model.spatial.geodesy import AUTHALIC_RADIUS_M, area_left
from armillary.model.spatial.geometries import InvalidShape, Ring, Shape, TooComplex, parse_shape
from armillary.model.values import UNDEFINED, Value


def is_valid(context: Context, given: Any) -> Value:
    return UNDEFINED if given.__class__ is not dict else _reason(context, given) is None


def is_valid_detailed(context: Context, given: Any) -> Value:
    if given.__class__ is not dict:
        return UNDEFINED
    reason = _reason(context, given)
    return {"valid": True} if reason is None else {"valid": False, "reason": reason}


def distance(context: Context, first: Any, second: Any) -> Value:
    pair = _pair(context, first, second)
    return UNDEFINED if pair is None else _guarded(relations.distance, *pair)


def within(context: Context, first: Any, second: Any) -> Value:
    pair = _pair(context, first, second)
    return UNDEFINED if pair is None else _guarded(relations.is_within, *pair)


def intersects(context: Context, first: Any, second: Any) -> Value:
    pair = _pair(context, first, second)
    return UNDEFINED if pair is None else _guarded(relations.do_intersect, *pair)


def area(context: Context, given: Any) -> Value:
    shape = _shape(context, given)
    if shape is None:
        return UNDEFINED
    return number(sum(_polygon_area(polygon, shape.is_planar) for polygon in shape.polygons))


def _polygon_area(rings: tuple[Ring, ...], is_planar: bool) -> float:
    outer, *holes = rings
    if is_planar:
        return _plane_area(outer) - sum(map(_plane_area, holes))
    share = area_left(outer.places)
    for hole in holes:
        left = area_left(hole.places)
        share -= min(left, 4 * math.pi - left)
    return share * AUTHALIC_RADIUS_M**2


def _plane_area(ring: Ring) -> float:
    places = ring.places
    pairs = itertools.pairwise(places)
    return abs(sum(x * next_y - next_x * y for (x, y), (next_x, next_y) in pairs)) / 2


def _guarded(relation: Any, first: Shape, second: Shape) -> Value:
    try:
        result = relation(first, second)
    except TooComplex:
        raise Failure(
            Kind.BAD_REQUEST,
            f"Two shapes of a spatial function have over {limits.SHAPE_PAIRS_MAX} pairs of edges near one another. "
            "Compare with a simpler shape.",
        ) from None
    return result if result.__class__ is bool else number(result)


def _reason(context: Context, given: dict[str, Any]) -> str | None:
    try:
        parse_shape(given, context.is_planar)
    except InvalidShape as invalid:
        return str(invalid)
    return None


def _pair(context: Context, first: Any, second: Any) -> tuple[Shape, Shape] | None:
    one, other = _shape(context, first), _shape(context, second)
    return None if one is None or other is None else (one, other)


def _shape(context: Context, given: Any) -> Shape | None:
    """Parse a shape. Constant shapes of the query are the same object for every item, and are cached."""
    if given.__class__ is not dict:
        return None
    remembered = context.shapes
    for place, (known, shape) in enumerate(remembered):
        if known is given:
            remembered.append(remembered.pop(place))  # the least recently used one is evicted first
            return shape  # type: ignore[no-any-return]
    try:
        parsed = parse_shape(given, context.is_planar)
    except InvalidShape:
        parsed = None
    if parsed is None or parsed.kind != "Point":
        remembered.append((given, parsed))
        if len(remembered) > limits.SHAPES_KEPT:
            del remembered[0]
    return parsed
