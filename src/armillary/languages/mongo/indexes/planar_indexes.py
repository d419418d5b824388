"""2d indexes: the keys of documents, and the keys that a filter in the plane searches for. Places are legacy coordinate
pairs within the bounds of the index.

The grid is the same for every index, so that conditions follow from a filter alone. Its axes are the inverse hyperbolic
sine of the coordinates: cells are fine near zero and grow with the coordinate, whatever the bounds are. `bits` limits
how fine the cells of an index are; the filter tests the documents themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from armillary.languages.mongo import paths
from armillary.languages.mongo.errors import bad_value, refusal
from armillary.languages.mongo.filters import geo
from armillary.languages.mongo.filters.value_types import number_of
from armillary.model.bson.bson_values import MISSING, Document, is_number, shell_text
from armillary.model.indexes.field_indexes import SpecialKeys
from armillary.model.spatial.cells import WHOLE_TERM, Box, Region, SpatialIndex
from armillary.query.conditions import Condition, Keyed, KeyRange, united

KIND: Final = "2d"
OPTIONS: Final = ("min", "max", "bits")
_NAME: Final = "2d:"  # before the path
_BOUND: Final = 180.0
_BITS: Final = 26
_BITS_MAX: Final = 32
_CANNOT_CREATE: Final = 67
# asinh(3.6e10) is about 25: places farther out share the outermost cells.
_GRID: Final = SpatialIndex((), frozenset(), {"xmin": -25.0, "ymin": -25.0, "xmax": 25.0, "ymax": 25.0})
# Circles have a tolerance for rounding: parts of a coordinate.
_MARGIN: Final = 1e-8


def check_definition(definition: Document) -> None:
    """The rules of MongoDB for a key with a 2d field, and the options min, max and bits."""
    kinds = list(definition["key"].values())
    if KIND not in [kind for kind in kinds if isinstance(kind, str)]:
        for option in OPTIONS:
            if option in definition:
                raise refusal(_CANNOT_CREATE, f"The option '{option}' is for 2d indexes only.")
        return
    if kinds[0] != KIND:
        raise refusal(16801, "2d has to be first in index")
    if any(isinstance(kind, str) for kind in kinds[1:]):
        raise refusal(16800, "can't have 2 geo fields")
    if definition.get("unique"):
        raise refusal(_CANNOT_CREATE, "2d indexes cannot be unique.")
    for option in OPTIONS:
        if option in definition and not is_number(definition[option]):
            raise bad_value(f"The option '{option}' of a 2d index must be a number.")
    low, high = _bounds(definition)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise refusal(16803, "region for hash must be valid and have positive area")
    if not 1 <= number_of(definition.get("bits", _BITS)) <= _BITS_MAX:
        raise bad_value(f"bits in geo index must be between 1 and {_BITS_MAX}")


def _bounds(definition: Document) -> tuple[float, float]:
    return float(number_of(definition.get("min", -_BOUND))), float(number_of(definition.get("max", _BOUND)))


# Keys.


def planar_keys(definition: Document) -> tuple[str, SpecialKeys] | None:
    """The artificial field of a 2d index and the function for the keys of a document; None for another index."""
    path, kind = next(iter(definition["key"].items()))
    if kind != KIND:
        return None
    low, high = _bounds(definition)
    divisions = -(-int(number_of(definition.get("bits", _BITS))) // 2)  # a division has two bits of each axis

    def keys(document: Document) -> Sequence[bytes]:
        found: set[bytes] = set()

        def collect(value: Any) -> bool:
            for x, y in _pairs(value):
                if not (low <= x <= high and low <= y <= high):
                    raise refusal(
                        13027, f"point not in interval of [ {low:g}, {high:g} ] :: caused by :: {shell_text([x, y])}"
                    )
                found.update([cell[:divisions] + WHOLE_TERM for cell in _GRID.cells([_scaled((x, y, x, y))], 1)])
            return False

        paths.predicate(path, collect, unwinds=False)(document)
        return sorted(found)

    return _NAME + path, keys


def _pairs(value: Any) -> list[tuple[float, float]]:
    """The pairs of a field: one, or an array of several."""
    if value is None or value is MISSING or value in ([], {}):
        return []
    values = value if type(value) is list and not is_number(value[0]) else [value]
    pairs = [geo.pair_of(each) if type(each) is list or "type" not in _fields(each) else None for each in values]
    found = [pair for pair in pairs if pair is not None]
    if len(found) != len(values):
        raise refusal(
            13026, f"geo values must be 'legacy coordinate pairs' for 2d indexes :: found {shell_text(value)[:100]}"
        )
    return found


def _fields(value: Any) -> Document:
    return value if type(value) is dict else {}


# Conditions.


def planar_condition(path: str, operators: Document) -> Condition | None:
    """The condition on cells that the operators of a field imply; None if there is none."""
    for name, operand in operators.items():
        box = None
        if name in geo.AREAS:
            box = _area_box(operand)
        elif name in geo.NEAR:
            box = _near_box(path, operators)
        if box is not None:
            cells = Region(True, (_scaled(box),))
            return Keyed(_NAME + path, united([KeyRange(low, high, False) for low, high in _GRID.ranges(cells)]))
    return None


def _area_box(operand: Document) -> Box | None:
    ((kind, given),) = operand.items()
    if kind in ("$box", "$polygon"):
        across, up = zip(*geo.points_of(kind, given, 2), strict=True)
        return min(across), min(up), max(across), max(up)
    if kind == "$center":
        return _around(*geo.circle(kind, given))
    return _cap(*geo.circle(kind, given)) if kind == "$centerSphere" else None


def _near_box(path: str, operators: Document) -> Box | None:
    _, near = geo.read_near(path, operators)
    if near.unit == "metres":
        return None  # a search by GeoJSON, for which 2d indexes are not used
    return _around(near.origin, near.most) if near.unit == "plane" else _cap(near.origin, near.most)


def _around(center: tuple[float, float], reach: float) -> Box:
    reach += _MARGIN * max(1.0, abs(center[0]), abs(center[1]))
    return center[0] - reach, center[1] - reach, center[0] + reach, center[1] + reach


def _cap(center: tuple[float, float], radius: float) -> Box | None:
    """The box in degrees around a circle on the sphere; the whole plane if it reaches a pole or the date line."""
    longitude, latitude = center
    radius += _MARGIN
    everything = (-math.inf, -math.inf, math.inf, math.inf)
    if math.degrees(radius) + abs(latitude) >= 90:
        return everything
    width = math.degrees(math.asin(math.sin(radius) / math.cos(math.radians(latitude))))
    if abs(longitude) + width > 180:
        return everything
    height = math.degrees(radius)
    return longitude - width, latitude - height, longitude + width, latitude + height


def _scaled(box: Box) -> Box:
    west, south, east, north = map(math.asinh, box)
    return west, south, east, north
