"""Aggregation expressions: each module defines a family of operators; all are registered with the compiler here."""

from armillary.languages.mongo.expressions import (
    accumulator_operators,
    arithmetic,
    arrays,
    compiling,
    conditional,
    conversion,
    dates,
    map_filter_reduce,
    objects,
    sets,
    strings,
    trigonometry,
)
from armillary.languages.mongo.expressions.compiling import compile_expression, compile_over_documents
from armillary.languages.mongo.javascript import operators as javascript_operators

for _family in (
    accumulator_operators,
    arithmetic,
    arrays,
    conditional,
    conversion,
    dates,
    javascript_operators,
    map_filter_reduce,
    objects,
    sets,
    strings,
    trigonometry,
):
    compiling.define(_family.OPERATORS)

__all__ = ["compile_expression", "compile_over_documents"]
