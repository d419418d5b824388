"""The `arrayFilters` of an update: the elements that `$[name]` stands for. Each filter is about one name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from armillary.languages.mongo.errors import FAILED_TO_PARSE, TYPE_MISMATCH, bad_value, refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.filters.matching import compile_filter
from armillary.model.bson.bson_values import Document

_NAME: Final = re.compile(r"[a-z][a-zA-Z0-9]*")
_LOGICAL: Final = ("$and", "$or", "$nor")
# operators on whole documents, with their error codes
_NOT_ALLOWED: Final = {"$text": 2, "$where": 2, "$expr": 224, "$jsonSchema": 224}


@dataclass(frozen=True, slots=True)
class ArrayFilters:
    names: Mapping[str, Callable[[Any], bool]]

    def matches(self, name: str) -> Callable[[Any], bool]:
        """Whether an element is selected; the empty name, `$[]`, selects all."""
        return self.names[name] if name else (lambda _element: True)


def parse_array_filters(given: Any, context: Context) -> ArrayFilters:
    if given is None:
        return ArrayFilters({})
    if type(given) is not list:
        raise refusal(TYPE_MISMATCH, "arrayFilters must be an array")
    names: dict[str, Callable[[Any], bool]] = {}
    for each in given:
        if type(each) is not dict:
            raise refusal(TYPE_MISMATCH, "The elements of arrayFilters must be objects")
        found = sorted(_names(each))
        matches = compile_filter(each, context).matches
        if not found:
            raise refusal(FAILED_TO_PARSE, "Cannot use an expression without a top-level field name in arrayFilters")
        if len(found) > 1:
            raise refusal(
                FAILED_TO_PARSE,
                "Error parsing array filter :: caused by :: Expected a single top-level field name, found "
                f"'{found[0]}' and '{found[1]}'",
            )
        (name,) = found
        if _NAME.fullmatch(name) is None:
            raise bad_value(
                "Error parsing array filter :: caused by :: The top-level field name must be an alphanumeric string "
                f"beginning with a lowercase letter, found '{name}'"
            )
        if name in names:
            raise refusal(FAILED_TO_PARSE, f"Found multiple array filters with the same top-level field name {name}")
        names[name] = _of_element(name, matches)
    return ArrayFilters(names)


def _names(given: Document) -> set[str]:
    found: set[str] = set()
    for name, operand in given.items():
        if name in _LOGICAL and type(operand) is list:
            for each in operand:
                if type(each) is dict:
                    found |= _names(each)
        elif name in _NOT_ALLOWED:
            raise refusal(
                _NOT_ALLOWED[name], f"Error parsing array filter :: caused by :: {name} is not allowed in this context"
            )
        elif not name.startswith("$"):
            found.add(name.split(".")[0])
    return found


def _of_element(name: str, matches: Callable[[Document], bool]) -> Callable[[Any], bool]:
    return lambda element: matches({name: element})
