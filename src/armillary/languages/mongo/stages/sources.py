"""First stages that replace reading the collection: `$documents`, `$geoNear`, and stages such as `$collStats`,
`$currentOp` and `$listSessions`. For the latter only their arguments are kept here; the door provides the documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from armillary.languages.mongo.errors import FAILED_TO_PARSE, TYPE_MISMATCH, refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.expressions.compiling import Constant, check_path, compile_expression
from armillary.languages.mongo.expressions.numbers import RANKS, as_double
from armillary.languages.mongo.filters import geo
from armillary.languages.mongo.filters.matching import Matcher, compile_filter
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.paths import with_value
from armillary.languages.mongo.stages.stage import over
from armillary.model.bson.bson_values import Document, shell_text, type_name

# Stages about a collection, and about the whole server ("aggregate: 1").
PROVIDED: Final = {
    "$collStats": True,
    "$indexStats": True,
    "$planCacheStats": True,
    "$changeStream": True,
    "$listSessions": True,
    "$listSearchIndexes": True,
    "$currentOp": False,
    "$listLocalSessions": False,
    "$queryStats": False,
}


@dataclass(frozen=True, slots=True)
class Provided:
    """A first stage whose documents the door provides, with the client's arguments."""

    name: str
    spec: Any


def provided(name: str, spec: Any) -> Provided:
    if type(spec) is not dict:
        code = 6188500 if name == "$changeStream" else FAILED_TO_PARSE
        raise refusal(code, f"the {name} specification must be an object, but found {type_name(spec)}")
    if name in ("$indexStats", "$planCacheStats") and spec:
        raise refusal(28803, f"The {name} stage specification must be an empty object")
    if name == "$collStats":
        _check_statistics(spec)
    return Provided(name, spec)


def _check_statistics(spec: Document) -> None:
    for each, given in spec.items():
        if each in ("count", "queryExecStats", "latencyStats", "storageStats"):
            if type(given) is not dict:
                raise refusal(TYPE_MISMATCH, f"BSON field '$collStats.{each}' is the wrong type '{type_name(given)}'")
            if given and each == "count":
                raise refusal(31170, "count option in $collStats must be empty")
            if given and each == "queryExecStats":
                raise refusal(31171, "queryExecStats option in $collStats must be empty")


# $documents.


def documents(name: str, spec: Any, context: Context) -> Callable[[], list[Document]]:
    """A function that evaluates the documents with the values of the current run."""
    evaluate = over(compile_expression(spec, context), context)

    def make() -> list[Document]:
        found = evaluate({})
        if type(found) is not list:
            raise refusal(5858203, f"an array is expected by {name}, but resulting value was: {type_name(found)}")
        for each in found:
            if type(each) is not dict:
                raise refusal(40228, f"{name} must be made of objects, but resulting value was: {shell_text(each)}")
        return found

    return make


# $geoNear.

Place = tuple[float, Any, Document]  # distance, place, document


@dataclass(frozen=True, slots=True)
class GeoNear:
    """Documents by their distance from a point, nearest first. `near.path` is empty until the index is known; `at` sets
    it.
    """

    near: geo.Near
    query: Document
    matcher: Matcher
    distance_field: list[str] | None
    locations_field: list[str] | None
    multiplier: float

    def at(self, path: str) -> GeoNear:
        return replace(self, near=replace(self.near, path=path))

    def within(self, found: list[Document], budget: Budget) -> list[Place]:
        """The matching documents within the distances."""
        places = []
        for document in found:
            nearest = self.near.nearest(document)
            if nearest is None or not self.near.least <= nearest[0] <= self.near.most:
                continue
            if self.matcher.matches(document):
                budget.take_document(document)
                places.append((nearest[0], nearest[1], document))
        return places

    def in_order(self, places: list[Place]) -> list[Document]:
        return [self._marked(*each) for each in sorted(places, key=lambda place: place[0])]

    def _marked(self, distance: float, place: Any, document: Document) -> Document:
        made = document
        if self.distance_field is not None:
            made = with_value(made, self.distance_field, distance * self.multiplier)
        if self.locations_field is not None:
            made = with_value(made, self.locations_field, place)
        return made


_GEO_NEAR: Final = frozenset(
    "near distanceField spherical maxDistance minDistance query distanceMultiplier includeLocs key".split()
)


def geo_near(name: str, spec: Any, context: Context) -> GeoNear:
    if type(spec) is not dict:
        raise refusal(10065, f"the $geoNear stage must be an object, but found {type_name(spec)}")
    for each in spec:
        if each not in _GEO_NEAR:
            raise refusal(FAILED_TO_PARSE, f"$geoNear has no option '{each}'")
    if "near" not in spec:
        raise refusal(5860401, "$geoNear requires a 'near' argument")
    place = compile_expression(spec["near"], context)
    if not isinstance(place, Constant):
        raise refusal(5860402, "$geoNear requires a constant near argument")
    for each in ("distanceField", "includeLocs", "key"):
        if each in spec and type(spec[each]) is not str:
            raise refusal(
                16606 if each == "distanceField" else TYPE_MISMATCH, f"$geoNear requires '{each}' to be a string"
            )
    if spec.get("key") == "":
        raise refusal(2, "$geoNear parameter 'key' must not be the empty string")
    query = spec.get("query", {})
    if type(query) is not dict:
        raise refusal(TYPE_MISMATCH, "$geoNear requires 'query' to be an object")
    is_spherical = spec.get("spherical", False)
    if type(is_spherical) is not bool and type(is_spherical) not in RANKS:
        raise refusal(TYPE_MISMATCH, "$geoNear requires 'spherical' to be a bool")
    operand: Document
    if type(place.value) is dict and "coordinates" in place.value:
        operand = {"$nearSphere": {"$geometry": place.value}}
    else:
        operand = {"$nearSphere" if is_spherical else "$near": place.value}
    for each in ("minDistance", "maxDistance"):
        if each in spec:
            operand[f"${each}"] = _constant_number(each, spec[each], context)
    _, near = geo.read_near(spec.get("key", ""), operand)
    matcher = compile_filter(query, context)
    if matcher.near is not None:
        raise refusal(2, "$geoNear 'query' must not hold a $near")
    return GeoNear(
        near,
        query,
        matcher,
        check_path(spec["distanceField"]) if "distanceField" in spec else None,
        check_path(spec["includeLocs"]) if "includeLocs" in spec else None,
        as_double(_constant_number("distanceMultiplier", spec.get("distanceMultiplier", 1.0), context)),
    )


def _constant_number(name: str, spec: Any, context: Context) -> Any:
    expression = compile_expression(spec, context)
    if not isinstance(expression, Constant) or type(expression.value) not in RANKS:
        raise refusal(7555701, f"$geoNear's '{name}' must be a constant number")
    return expression.value
