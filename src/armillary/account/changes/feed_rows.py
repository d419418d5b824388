"""Changes as JSON, as the service writes them: items with their lsn, or versions of them with what was done. Which door
asks does not matter.
"""

from __future__ import annotations

from typing import Any

import orjson

from armillary.account.container import Container
from armillary.model.documents import json_document, json_text
from armillary.model.values import UNDEFINED
from armillary.partition.history.change_reading import Changed
from armillary.partition.history.versions import CREATED, DELETED, EXPIRED, REPLACED, Version

_OPERATIONS = {CREATED: "create", REPLACED: "replace", DELETED: "delete", EXPIRED: "delete"}


def change_row(changed: Changed, container: Container) -> bytes:
    """The item with its lsn; where all versions are read, what was done to it."""
    if changed.version is not None:
        return _version_row(changed.lsn, changed.version, container)
    # The lsn is no part of what is stored; the text of an item ends with a brace.
    return b'%b,"_lsn":%d}' % (json_text(changed.stored, container.schema)[:-1], changed.lsn)


def _version_row(lsn: int, version: Version, container: Container) -> bytes:
    """What was done to an item, with how it became and how it was."""
    entry, schema = version.entry, container.schema
    if entry.kind == CREATED and version.current is not None:  # by far the commonest
        current = json_text(version.current, schema)
        return b'{"current":%b,"metadata":{"operationType":"create","lsn":%d,"crts":%d}}' % (
            current,
            lsn,
            entry.changed_s,
        )
    metadata: dict[str, Any] = {"operationType": _OPERATIONS[entry.kind], "lsn": lsn, "crts": entry.changed_s}
    parts = [b'{"current":%b' % (json_text(version.current, schema) if version.current is not None else b"{}")]
    if version.previous is not None:
        metadata["previousImageLSN"] = entry.before_lsn
        parts.append(b'"previous":%b' % json_text(version.previous, schema))
        if version.current is None:
            metadata |= _deleted(version.previous, container)
    if entry.kind == EXPIRED:
        metadata["timeToLiveExpired"] = True
    parts.append(b'"metadata":%b}' % orjson.dumps(metadata))
    return b",".join(parts)


def _deleted(stored: bytes, container: Container) -> dict[str, Any]:
    """Which item a delete is about, as the service says it: by its id and the values of its partition key."""
    document = json_document(stored, container.schema)
    named: dict[str, Any] = {"id": document["id"]}
    if container.key is not None:
        values = zip(container.key.paths, container.key_of(document), strict=False)
        named["partitionKey"] = {path[1:]: value for path, value in values if value is not UNDEFINED}
    return named
