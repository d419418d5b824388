"""Security log entries for changes of the catalog: which databases, containers, users, permissions and scripts were
created, changed and deleted. The catalog calls this once a change is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from armillary import audit
from armillary.account.catalog.records import Record
from armillary.model.resources import ResourceType

Tell = Callable[[str, list[str]], None]  # created, changed or deleted, and the names
Get = Callable[[ResourceType, bytes], Record | None]  # a record by its rid

# Offers are left out: throughput is no matter of security, and autoscaling changes it often.
_WORDS: Final = {
    ResourceType.DATABASE: "database",
    ResourceType.CONTAINER: "container",
    ResourceType.USER: "user",
    ResourceType.PERMISSION: "permission",
    ResourceType.ENCRYPTION_KEY: "encryption-key",
    ResourceType.PROCEDURE: "procedure",
    ResourceType.TRIGGER: "trigger",
    ResourceType.FUNCTION: "function",
}
_OWNERS: Final = (ResourceType.DATABASE, ResourceType.CONTAINER, ResourceType.USER)


def report_changes(removed: Sequence[Record], added: Sequence[Record], get: Get, tell: Tell) -> None:
    """`get` still finds what is removed. What is deleted or restored with its owner is not named one by one. `tell` is
    told of databases and containers."""
    gone, come = {record.rid: record for record in removed}, {record.rid: record for record in added}
    for rid, record in gone.items():
        if rid not in come and record.owner not in gone:
            _report(record, "deleted", get, tell)
    for rid, record in come.items():
        if record.owner not in come:
            _report(record, "changed" if rid in gone else "created", get, tell)


def _report(record: Record, verb: str, get: Get, tell: Tell) -> None:
    word = _WORDS.get(record.type)
    if word is None:
        return
    given = {name: record.body.get(name) for name in ("permissionMode", "resource")}
    fields = {name: value for name, value in given.items() if isinstance(value, str)}
    path = _path(record, get)
    audit.record(f"{word}.{verb}", name="/".join(path), **fields)
    if record.type in (ResourceType.DATABASE, ResourceType.CONTAINER):
        tell(verb, path)


def _path(record: Record, get: Get) -> list[str]:
    owners = (get(each, record.owner) for each in _OWNERS if record.owner)
    owner = next((each for each in owners if each is not None), None)
    return [*(_path(owner, get) if owner is not None else ()), record.name]
