"""The different values at a path, as `distinct` lists them: arrays by their elements, equal numbers once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armillary.languages.mongo.collation import Collation, key_function
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.paths import split, values_at
from armillary.model.bson.bson_values import Document, Key
from armillary.model.sorting import sorted_values
from armillary.work import spend


class DistinctValues:
    """Values seen so far; fed document by document."""

    def __init__(self, path: str, collation: Collation | None = None) -> None:
        if not path or "\0" in path:
            raise refusal(40352, "FieldPath cannot be constructed with empty string")
        self._parts = split(path)
        self._key = key_function(collation)
        self._values: dict[Key, Any] = {}
        self._ranks: dict[Key, Key] = {}
        self._budget = Budget("distinct")

    def add(self, document: Document, rank: Key | None = None) -> None:
        """Of equal values the first counts, or that of the document of lowest rank."""
        for value in values_at(document, self._parts):
            spend(8)
            key = self._key(value)
            if key not in self._values:
                self._budget.take_value(value)
            elif rank is None or self._ranks[key] <= rank:
                continue
            self._values[key] = value
            if rank is not None:
                self._ranks[key] = rank

    @property
    def values(self) -> list[Any]:
        """In the order of values."""
        return [self._values[key] for key in sorted_values(self._values)]


def distinct_values(documents: Iterable[Document], path: str, collation: Collation | None = None) -> list[Any]:
    distinct = DistinctValues(path, collation)
    for document in documents:
        distinct.add(document)
    return distinct.values
