"""Text and geospatial indexes: the keys of documents, and the keys that a filter searches for. Other modules see them
as indexes on one artificial field. An index on several fields is kept by its words or places only; the filter tests the
other fields. Those in the plane are in `planar_indexes.py`, those of vectors, which have no keys, in
`vector_indexes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from armillary.languages.mongo import paths
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.filters import geo
from armillary.languages.mongo.filters.text_search import TextQuery, text_index_of, words_in
from armillary.languages.mongo.indexes.planar_indexes import planar_keys
from armillary.languages.mongo.indexes.vector_indexes import vector_keys
from armillary.model.bson.bson_values import MISSING, Document, shell_text
from armillary.model.indexes.field_indexes import SpecialKeys
from armillary.model.spatial.cells import WHOLE_TERM, earth_ranges, earth_terms
from armillary.query.conditions import Condition, Keyed, KeyRange, united

WORDS: Final = "$text"
_PLACES: Final = "2dsphere:"  # before the path
# Distances are measured on a sphere with MongoDB's radius, cells on the ellipsoid; the two differ by less than one per
# cent.
_REACH: Final = 1.01
_SHAPES: Final = ("LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon", "GeometryCollection")
_EVERYWHERE: Final = ((b"", b"\xff"),)


def special_keys(definition: Document) -> tuple[str, SpecialKeys] | None:
    """The artificial field of an index and the function for the keys of a document; None for an ordinary index."""
    words = text_index_of(definition)
    if words is not None:
        return WORDS, lambda document: [_word_key(word) for word in words_in(document, words)]
    for path, kind in definition["key"].items():
        if kind == "2dsphere":
            return _PLACES + path, _place_keys(path)
    return planar_keys(definition) or vector_keys(definition)


# Words.


def _word_key(word: str) -> bytes:
    return word.encode() + b"\x00"


def word_condition(query: TextQuery) -> Condition:
    return Keyed(WORDS, united([KeyRange(key, key + b"\x00", True) for key in map(_word_key, sorted(query.terms))]))


# Places.


def _place_keys(path: str) -> SpecialKeys:
    def keys(document: Document) -> Sequence[bytes]:
        found: set[bytes] = set()

        def collect(value: Any) -> bool:
            if type(value) is dict or type(value) is list:
                shapes = geo.shapes_of(value)
                if shapes:
                    found.update(earth_terms(shapes))
                elif type(value) is dict and value.get("type") in _SHAPES:
                    found.add(WHOLE_TERM)  # not a valid shape here; indexed, but found by no filter
            return False

        paths.predicate(path, collect)(document)
        if not found:
            _refuse_no_place(document, path)
        return sorted(found)

    return keys


def _refuse_no_place(document: Document, path: str) -> None:
    for value in paths.values_at(document, paths.split(path)):
        if value is not None and value is not MISSING and value != []:
            raise refusal(
                16755,
                f"Can't extract geo keys: {shell_text(document)[:200]}  geo element must be an array or object: "
                f"{path}: {shell_text(value)[:100]}",
            )


def place_condition(path: str, operators: Document) -> Condition | None:
    """The condition on cells that the operators of a field imply; None if there is none."""
    for name, operand in operators.items():
        ranges = None
        if name in geo.AREAS:
            ranges = _area_ranges(operand)
        elif name in geo.NEAR:
            ranges = _near_ranges(path, operators)
        if ranges is not None:
            return Keyed(_PLACES + path, united([KeyRange(low, high, False) for low, high in ranges]))
    return None


def _area_ranges(operand: Document) -> Sequence[tuple[bytes, bytes]] | None:
    ((kind, given),) = operand.items()
    if kind == "$geometry":
        return earth_ranges(geo.query_shapes(given), 0.0)
    if kind == "$centerSphere":
        center, radius = geo.circle(kind, given)
        return _around(center, radius * geo.EARTH_RADIUS_M)
    return None  # a search in the plane


def _near_ranges(path: str, operators: Document) -> Sequence[tuple[bytes, bytes]] | None:
    _, near = geo.read_near(path, operators)
    if near.unit == "plane":
        return None
    reach_m = near.most if near.unit == "metres" else near.most * geo.EARTH_RADIUS_M
    return _around(near.origin, reach_m)


def _around(center: tuple[float, float], reach_m: float) -> Sequence[tuple[bytes, bytes]]:
    shapes = geo.shapes_of(list(center))
    if not shapes or reach_m > geo.EARTH_RADIUS_M:
        return _EVERYWHERE
    return earth_ranges(shapes, reach_m * _REACH)
