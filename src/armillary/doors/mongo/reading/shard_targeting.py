"""Shard targeting: whether a filter names one document, one logical partition, or neither. The conditions for indexes
are in `languages/mongo/indexes/index_conditions.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from armillary.account.container import Container
from armillary.doors.mongo.namespaces import shard_fields
from armillary.languages.mongo.filters.matching import is_operators
from armillary.languages.mongo.indexes.index_conditions import pinned_fields
from armillary.model.bson.bson_values import MISSING, Document
from armillary.model.keys import NO_KEY, Key


class Target(NamedTuple):
    key: Key | None  # None: any logical partition
    id_value: Any = MISSING  # of the one document, if the filter names it
    is_whole: bool = False  # the filter has no other conditions

    @property
    def is_point(self) -> bool:
        return self.key is not None and self.id_value is not MISSING


ANYWHERE = Target(None)


def target_of(container: Container, given: Document, *, has_collation: bool) -> Target:
    """`has_collation`: different strings may be equal, so that a value names no document."""
    fields = shard_fields(container)
    if has_collation:
        return Target(NO_KEY if not fields else None)
    key: Key | None = NO_KEY
    if fields:
        keys = pinned_fields(given, fields)
        # null matches missing fields too.
        key = key_of(container, keys[0]) if keys is not None and len(keys) == 1 and None not in keys[0] else None
    if "_id" not in given and "$and" not in given and "$or" not in given:
        return Target(key)
    ids = pinned_fields(given, ("_id",))
    if ids is None or len(ids) != 1:
        return Target(key)
    return Target(key, ids[0][0], all(_is_plain(given, name, fields) for name in given))


def _is_plain(given: Document, name: str, fields: tuple[str, ...]) -> bool:
    return (name == "_id" or name in fields) and not is_operators(given[name])


def key_of(container: Container, values: tuple[Any, ...]) -> Key:
    """The partition key of documents whose shard key has these values."""
    document: Document = {"_id": None}
    for path, value in zip(shard_fields(container), values, strict=True):
        *above, last = path.split(".")
        place = document
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    return container.key_of_bson(document)
