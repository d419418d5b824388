"""The definition of a container that `armillary advise --definition` reads: the indexing policy, for the terms that a
write is charged for, and what has to be unique. Unique keys of the SQL API hold inside one value of the partition key
only, which is a warning; a unique index of MongoDB must hold the key, which is a gate.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from armillary.errors import Failure, bad_request
from armillary.insight.advice.reading.leaf_columns import path_of
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.indexes.unique_keys import UniqueKeyPolicy
from armillary.tools.foresight.inputs import read_text


@dataclass(frozen=True, slots=True)
class Definition:
    indexing: IndexingPolicy | None = None
    unique_keys: tuple[tuple[str, ...], ...] = ()  # paths of each
    unique_indexes: tuple[tuple[str, ...], ...] = ()

    def warnings(self, key: Collection[str]) -> list[str]:
        """What is no longer unique under a key. The same key inside a unique key changes nothing."""
        found = []
        for paths in self.unique_keys:
            if not set(key) <= set(paths):
                where = f"inside one value of {', '.join(key)} only"
                found.append(f"the unique key ({', '.join(paths)}) holds {where}: others may repeat it")
        return found


def asked_definition(file: str | None) -> Definition:
    if file is None:
        return Definition()
    try:
        content = orjson.loads(read_text(file))
    except ValueError as error:
        raise bad_request(f"{file} is not JSON: {error}.") from None
    return definition_of(content, file)


def definition_of(content: Any, file: str) -> Definition:
    """`file`: where it comes from, for refusals."""
    if not isinstance(content, dict):
        raise bad_request(f"{file} is not a JSON object with the definition of a container.")
    try:
        indexing = IndexingPolicy.parse(content.get("indexingPolicy"), key_definition=None, has_ttl=False)
        unique = UniqueKeyPolicy.parse(content.get("uniqueKeyPolicy"))
    except Failure as failure:
        raise bad_request(f"{file}: {failure.message}") from None
    return Definition(indexing, unique.paths, _unique_indexes(content.get("indexes", []), file))


def _unique_indexes(indexes: Any, file: str) -> tuple[tuple[str, ...], ...]:
    """As `getIndexes` of MongoDB lists them. The index of _id is no obstacle: ids are unique inside a key."""
    if not isinstance(indexes, list) or not all(isinstance(each, dict) for each in indexes):
        raise bad_request(f"{file}: indexes must be a list of objects, as getIndexes of MongoDB answers them.")
    return tuple(
        _paths(each, file) for each in indexes if each.get("unique") is True and list(each.get("key", {})) != ["_id"]
    )


def _paths(index: dict[str, Any], file: str) -> tuple[str, ...]:
    fields: Sequence[str] = list(index["key"]) if isinstance(index.get("key"), dict) else ()
    paths = [path_of(tuple(field.split("."))) for field in fields]
    if not paths or None in paths:
        raise bad_request(f"{file}: the unique index {index.get('name', '')!r} has no fields that a key could have.")
    return tuple(path for path in paths if path is not None)
