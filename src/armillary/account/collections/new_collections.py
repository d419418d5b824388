"""New MongoDB collections as containers, for the MongoDB door and the management API. An unsharded collection is a
container without partition key; a shard key is a partition key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from armillary.account.catalog.container_state import CollectionState
from armillary.model.bson.bson_json import member_name
from armillary.model.bson.bson_values import Document, encode

SYSTEM: Final = "system."
PENDING: Final = f"{SYSTEM}txn."  # prefix of the names of collections that an open transaction has created
# Always indexed. Other fields are indexed only by declared indexes, as in Cosmos DB.
_ID_PATH: Final = '/"_id"/?'
_LEVELS_MAX: Final = 3


def collection_body(name: str, shard_key: Sequence[str]) -> dict[str, Any]:
    """The definition of a new collection's container."""
    body: dict[str, Any] = {
        "id": name,
        "indexingPolicy": {
            "indexingMode": "consistent",
            "automatic": True,
            "includedPaths": [{"path": _ID_PATH}],
            "excludedPaths": [{"path": "/*"}],
        },
    }
    if shard_key:
        kind = "Hash" if len(shard_key) == 1 else "MultiHash"
        body["partitionKey"] = {"paths": [path_of(each) for each in shard_key], "kind": kind, "version": 2}
        body["indexingPolicy"]["includedPaths"] += [
            {"path": index_path_of(each)} for each in shard_key if each != "_id"
        ]
    return body


def with_options(collection: CollectionState, options: Document) -> CollectionState:
    """The options of a collection, and beside them what its partitions must know."""
    keeps_images = bool((options.get("changeStreamPreAndPostImages") or {}).get("enabled"))
    cap = None
    if options.get("capped"):
        most = int(options.get("max", 0))
        cap = int(options["size"]), most if most > 0 else None
    return replace(collection, options=encode(options).hex(), keeps_images=keeps_images, cap=cap)


def fault_of_name(database: str, name: str) -> str | None:
    """What is wrong with the name of a new collection."""
    if name.startswith(SYSTEM) and name not in ("system.js", "system.views", "system.users"):
        return f"Invalid system namespace: {database}.{name}"
    return f"Invalid collection name: {name}" if "$" in name else None


def fault_of_shard_key(fields: Sequence[str]) -> str | None:
    """What is wrong with the fields of a new shard key."""
    for name in fields:
        if not name or name.startswith("$") or ".." in f".{name}.":
            return f"Unsupported shard key field '{name}'"
    return f"A shard key has at most {_LEVELS_MAX} fields" if len(fields) > _LEVELS_MAX else None


def path_of(field: str) -> str:
    """A field's path in the container: /a/b for a.b."""
    first, *rest = field.split(".")
    parts = [member_name(first), *rest]
    if all(_is_plain(part) for part in parts):
        return "/" + "/".join(parts)
    return "/" + "/".join('"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"' for part in parts)


def index_path_of(field: str) -> str:
    first, *rest = field.split(".")
    quoted = ['"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"' for part in (member_name(first), *rest)]
    return "/" + "/".join(quoted) + "/?"


def _is_plain(part: str) -> bool:
    return bool(part) and all(letter.isalnum() or letter in "_-" for letter in part)
