"""Geospatial operators: `$geoWithin`, `$geoIntersects`, `$near`, `$nearSphere`. Places are GeoJSON, or legacy
coordinate pairs. On the sphere a ring encloses the smaller of the two areas that it bounds.

Relations between shapes are in `model/spatial/relations.py`; sorting by distance is done where the query runs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from bson.decimal128 import Decimal128
from bson.int64 import Int64

from armillary import limits
from armillary.languages.mongo import paths
from armillary.languages.mongo.errors import bad_value
from armillary.languages.mongo.filters.value_types import number_of
from armillary.model.bson.bson_values import Document, is_number, shell_text, to_decimal
from armillary.model.spatial import relations
from armillary.model.spatial.geodesy import Coordinates
from armillary.model.spatial.geometries import InvalidShape, Shape, TooComplex, parse_shape

Test = Callable[[Any], bool]

AREAS: Final = ("$geoWithin", "$within", "$geoIntersects")
NEAR: Final = ("$near", "$nearSphere", "$geoNear")
EARTH_RADIUS_M: Final = 6_378_100.0  # MongoDB's value
_CRS: Final = frozenset(["urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326", "urn:x-mongodb:crs:strictwinding:EPSG:4326"])
_PARTS: Final = {"MultiPoint": "Point", "MultiLineString": "LineString"}


# Places in documents and in queries.


def shapes_of(value: Any) -> list[Shape] | None:
    """The shapes of a place on the sphere; None if the value is not a place."""
    try:
        return _shapes(value)
    except InvalidShape:
        return None


def _shapes(value: Any) -> list[Shape]:
    if type(value) is dict and type(value.get("type")) is str:
        kind, coordinates = value["type"], _plain(value.get("coordinates"))
        if kind == "GeometryCollection":
            members = value.get("geometries")
            if type(members) is not list or not members:
                raise InvalidShape("A GeometryCollection must have at least 1 geometry.")
            return [shape for each in members for shape in _shapes(each)]
        if kind in _PARTS:
            if type(coordinates) is not list or not coordinates:
                raise InvalidShape(f"The coordinates of a {kind} must be an array.")
            return [parse_shape({"type": _PARTS[kind], "coordinates": each}, False) for each in coordinates]
        shape = parse_shape({"type": kind, "coordinates": coordinates}, False)
        if any(polygon[0].is_turned for polygon in shape.polygons):
            shape = parse_shape({"type": kind, "coordinates": _turned(kind, coordinates, shape)}, False)
        return [shape]
    pair = pair_of(value)
    if pair is None:
        raise InvalidShape("A place must be GeoJSON or a pair of numbers.")
    return [parse_shape({"type": "Point", "coordinates": list(pair)}, False)]


def _turned(kind: str, coordinates: list[Any], shape: Shape) -> list[Any]:
    polygons = [coordinates] if kind == "Polygon" else coordinates
    turned = [
        [rings[0][::-1], *rings[1:]] if polygon[0].is_turned else rings
        for rings, polygon in zip(polygons, shape.polygons, strict=True)
    ]
    return turned[0] if kind == "Polygon" else turned


def _plain(value: Any) -> Any:
    if type(value) is list:
        return [_plain(each) for each in value]
    if type(value) is Int64:
        return int(value)
    return float(to_decimal(value)) if type(value) is Decimal128 else value


def pair_of(value: Any) -> Coordinates | None:
    """A point in the plane: a pair of numbers, an object whose first two values are numbers, or a GeoJSON point."""
    if type(value) is dict:
        if value.get("type") == "Point":
            value = value.get("coordinates")
        elif "type" not in value:
            value = list(value.values())
    if type(value) is not list or len(value) < 2 or not is_number(value[0]) or not is_number(value[1]):
        return None
    x, y = float(number_of(value[0])), float(number_of(value[1]))
    return (x, y) if math.isfinite(x) and math.isfinite(y) else None


# Areas.


def compile_area(name: str, operand: Any) -> Test:
    """$geoWithin or $geoIntersects."""
    if type(operand) is not dict or not operand:
        raise bad_value(f"{name} needs an object with a shape, not {shell_text(operand)}")
    if len(operand) > 1:
        raise bad_value(f"{name} takes one shape: {shell_text(operand)}")
    ((kind, given),) = operand.items()
    if kind == "$geometry":
        return _of_geometry(name, given)
    if name == "$geoIntersects" or kind not in _FLAT:
        raise bad_value(f"unknown geo specifier: {kind}: {shell_text(given)}")
    return _FLAT[kind](given)


def _of_geometry(name: str, given: Any) -> Test:
    wanted = query_shapes(given)
    if name == "$geoIntersects":
        return lambda value: _relate(relations.do_intersect, shapes_of(value), wanted, any)
    if len(wanted) != 1 or not wanted[0].polygons:
        raise bad_value(f"$geoWithin not supported with provided geometry: {shell_text(given)}")
    return lambda value: _relate(_is_within, shapes_of(value), wanted, all)


def _is_within(one: Shape, other: Shape) -> bool:
    """A point on the border is inside, as in MongoDB."""
    return relations.do_intersect(one, other) if one.points else relations.is_within(one, other)


def query_shapes(given: Any) -> list[Shape]:
    if type(given) is not dict:
        raise bad_value("$geometry needs an object")
    crs = given.get("crs")
    if crs is not None:
        properties = crs.get("properties") if type(crs) is dict else None
        if type(properties) is not dict or properties.get("name") not in _CRS:
            raise bad_value(f"Unknown CRS: {shell_text(crs)}")
    try:
        return _shapes(given)
    except InvalidShape as invalid:
        raise bad_value(f"{invalid} Found: {shell_text(given)}") from None


def _relate(
    relation: Callable[[Shape, Shape], bool],
    found: list[Shape] | None,
    wanted: list[Shape],
    decide: Callable[[list[bool]], bool],
) -> bool:
    if not found:
        return False
    try:
        return decide([any(relation(one, other) for other in wanted) for one in found])
    except TooComplex:
        raise bad_value(
            f"Two shapes have over {limits.SHAPE_PAIRS_MAX} pairs of edges near one another. Use a simpler shape."
        ) from None


def _box(given: Any) -> Test:
    corners = points_of("$box", given, 2)
    if len(corners) != 2:
        raise bad_value("$box needs two corners")
    (x1, y1), (x2, y2) = corners
    low_x, high_x, low_y, high_y = min(x1, x2), max(x1, x2), min(y1, y2), max(y1, y2)
    return _flat(lambda x, y: low_x <= x <= high_x and low_y <= y <= high_y)


def _polygon(given: Any) -> Test:
    corners = points_of("$polygon", given, 3)
    if corners[0] != corners[-1]:
        corners.append(corners[0])
    try:
        shape = parse_shape({"type": "Polygon", "coordinates": [[list(each) for each in corners]]}, True)
    except InvalidShape as invalid:
        raise bad_value(f"{invalid} Found: $polygon: {shell_text(given)}") from None
    return _flat(lambda x, y: relations.location(shape, (x, y, 1.0)) >= 0)


def _center(given: Any) -> Test:
    (x1, y1), radius = circle("$center", given)
    # A tolerance for rounding: 52.0001 is on the circle of radius 0.0001 around 52, though the difference of the
    # doubles is a little larger.
    reach = radius + 4 * sys.float_info.epsilon * max(abs(x1), abs(y1), 1.0)
    return _flat(lambda x, y: math.hypot(x - x1, y - y1) <= reach)


def _center_sphere(given: Any) -> Test:
    center, radius = circle("$centerSphere", given)
    return _flat(lambda x, y: angle(center, (x, y)) <= radius)


_FLAT: Final[dict[str, Callable[[Any], Test]]] = {
    "$box": _box,
    "$polygon": _polygon,
    "$center": _center,
    "$centerSphere": _center_sphere,
}


def _flat(is_inside: Callable[[float, float], bool]) -> Test:
    def test(value: Any) -> bool:
        pair = pair_of(value)
        if pair is not None:
            return is_inside(*pair)
        if type(value) is not dict or type(value.get("type")) is not str:
            return False
        shapes = shapes_of(value)
        return shapes is not None and all(is_inside(*place) for shape in shapes for place in shape.places)

    return test


def points_of(name: str, given: Any, least: int) -> list[Coordinates]:
    values = list(given.values()) if type(given) is dict else given
    pairs = [pair_of(each) for each in values] if type(values) is list else []
    points = [pair for pair in pairs if pair is not None]
    if len(points) < least or len(points) != len(pairs):
        raise bad_value(f"{name} needs at least {least} points: {shell_text(given)}")
    return points


def circle(name: str, given: Any) -> tuple[Coordinates, float]:
    values = list(given.values()) if type(given) is dict else given
    if type(values) is not list or len(values) != 2 or not is_number(values[1]):
        raise bad_value(f"{name} needs a point and a radius: {shell_text(given)}")
    center, radius = pair_of(values[0]), float(number_of(values[1]))
    if center is None or not radius >= 0:
        raise bad_value(f"{name} needs a point and a radius that is not negative: {shell_text(given)}")
    return center, radius


def angle(first: Coordinates, second: Coordinates) -> float:
    """The central angle between two points of a sphere, in radians."""
    longitude, latitude = math.radians(second[0] - first[0]), math.radians(second[1] - first[1])
    across = math.cos(math.radians(first[1])) * math.cos(math.radians(second[1]))
    half = math.sin(latitude / 2) ** 2 + across * math.sin(longitude / 2) ** 2
    return 2 * math.asin(math.sqrt(min(1.0, half)))


# Distance.


@dataclass(frozen=True, slots=True)
class Near:
    """`$near`, `$nearSphere` and the search of `$geoNear`: places between a minimum and a maximum distance, nearest
    first.
    """

    path: str
    origin: Coordinates
    unit: str  # "metres", "radians" or "plane"
    least: float = 0.0
    most: float = math.inf

    def as_filter(self) -> Document:
        """The search as a filter that a geospatial index can use."""
        most = {} if math.isinf(self.most) else {"$maxDistance": self.most}
        if self.unit == "metres":
            place = {"type": "Point", "coordinates": list(self.origin)}
            return {self.path: {"$near": {"$geometry": place, **most}}}
        return {self.path: {"$nearSphere" if self.unit == "radians" else "$near": list(self.origin), **most}}

    def matches(self, document: Document) -> bool:
        found = self.distance(document)
        return found is not None and self.least <= found <= self.most

    def distance(self, document: Document) -> float | None:
        """The distance to the nearest place that the document has at the path."""
        found = self.nearest(document)
        return None if found is None else found[0]

    def nearest(self, document: Document) -> tuple[float, Any] | None:
        candidates: list[tuple[float, Any]] = []

        def measure(value: Any) -> bool:
            apart = self._distance_to(value)
            if apart is not None:
                candidates.append((apart, value))
            return False

        paths.predicate(self.path, measure)(document)
        return min(candidates, key=lambda candidate: candidate[0], default=None)

    def _distance_to(self, value: Any) -> float | None:
        pair = pair_of(value)
        if self.unit == "plane":
            return None if pair is None else math.dist(pair, self.origin)
        scale = EARTH_RADIUS_M if self.unit == "metres" else 1.0
        if pair is not None:
            return angle(self.origin, pair) * scale
        shapes = shapes_of(value) if type(value) is dict else None
        if not shapes:
            return None
        here = parse_shape({"type": "Point", "coordinates": list(self.origin)}, False)
        apart_m = min(relations.distance(here, shape) for shape in shapes)
        return apart_m if self.unit == "metres" else apart_m / EARTH_RADIUS_M


def is_near(operand: Document) -> bool:
    return not operand.keys().isdisjoint(NEAR)


def read_near(path: str, operand: Document) -> tuple[Document, Near]:
    """Splits the operators of a field into the search and the others."""
    name = next(each for each in operand if each in NEAR)
    given = operand[name]
    limits_given: Document = dict(operand)
    del limits_given[name]
    if type(given) is dict and type(given.get("type")) is str:
        given = {"$geometry": given}
    if type(given) is dict and "$geometry" in given:
        shapes = query_shapes(given["$geometry"])
        if len(shapes) != 1 or shapes[0].kind != "Point":
            raise bad_value(f"invalid point in geo near query $geometry argument: {shell_text(given['$geometry'])}")
        for each in given:
            if each not in ("$geometry", "$maxDistance", "$minDistance"):
                raise bad_value(f"invalid argument in geo near query: {each}")
        origin, unit, limits_given = shapes[0].points[0], "metres", {**limits_given, **given}
        del limits_given["$geometry"]
    else:
        pair = pair_of(given)
        if pair is None:
            raise bad_value(f"invalid argument in geo near query: {shell_text(given)}")
        origin, unit = pair, "radians" if name == "$nearSphere" else "plane"
    least = _distance(limits_given.pop("$minDistance", 0), "$minDistance")
    most = _distance(limits_given.pop("$maxDistance", math.inf), "$maxDistance")
    return limits_given, Near(path, origin, unit, least, most)


def _distance(value: Any, name: str) -> float:
    if not is_number(value) or not number_of(value) >= 0:
        raise bad_value(f"{name} must be non-negative")
    return float(number_of(value))
