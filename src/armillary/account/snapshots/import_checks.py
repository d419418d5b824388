"""Validation of the records in a snapshot file, before any of them becomes part of an account. The digest of a file
does not show that this server made it, so names, owners, scope and definitions are checked as if a client sent them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.snapshots.snapshot_files import damaged
from armillary.errors import Failure, Kind
from armillary.model.items import validate_name
from armillary.model.resources import ResourceType

_OWNERS: Final = {
    ResourceType.DATABASE: None,
    ResourceType.CONTAINER: ResourceType.DATABASE,
    ResourceType.USER: ResourceType.DATABASE,
    ResourceType.ENCRYPTION_KEY: ResourceType.DATABASE,
    ResourceType.PERMISSION: ResourceType.USER,
    ResourceType.PROCEDURE: ResourceType.CONTAINER,
    ResourceType.TRIGGER: ResourceType.CONTAINER,
    ResourceType.FUNCTION: ResourceType.CONTAINER,
}


def check_scope(scope: Sequence[object]) -> tuple[str, ...]:
    """The names of what the file is a snapshot of: nothing, a database, or a database and a container."""
    if not isinstance(scope, list) or len(scope) > 2:
        raise damaged("its header does not say what it is of")
    return tuple(validate_name(name) for name in scope)


def check_records(scope: tuple[str, ...], records: Sequence[Record]) -> None:
    """Each is well-formed, has a name that it could have been created with, and an owner that came before it."""
    types: dict[bytes, ResourceType] = {}
    names: set[tuple[ResourceType, bytes, str]] = set()
    for record in records:
        _check_form(record)
        if record.type is ResourceType.OFFER:
            continue
        if record.type not in _OWNERS or record.rid in types:
            raise damaged("a record is there that no snapshot has")
        name = (record.type, record.owner, validate_name(record.name))
        if name in names:
            raise damaged(f"there are two of the name '{record.name[:100]}'")
        _check_owner(record, types, is_alone=len(scope) == 2)
        types[record.rid] = record.type
        names.add(name)
    root = ResourceType.CONTAINER if len(scope) == 2 else ResourceType.DATABASE
    found = [name for kind, _, name in names if kind is root]
    if scope and found != [scope[-1]]:
        raise damaged("it holds something else than its header says")
    if len(scope) == 2 and ResourceType.DATABASE in types.values():
        raise damaged("it holds something else than its header says")


def _check_form(record: Record) -> None:
    parts = (record.name, record.body, record.state, record.ts, record.etag, record.self_link)
    if [type(part) for part in parts] not in ([str, dict, dict, int, str, str], [str, dict, dict, float, str, str]):
        raise damaged("a record does not have the form of one")
    if record.type is ResourceType.CONTAINER:
        ranges = record.state.get("ranges")
        if type(ranges) is not list or not 0 < len(ranges) <= limits.SNAPSHOT_RANGES_MAX:
            raise damaged("a container has no partitions")
        if len({each["id"] for each in ranges}) != len(ranges):
            raise damaged("a container has two partitions of one id")


def _check_owner(record: Record, types: dict[bytes, ResourceType], *, is_alone: bool) -> None:
    if is_alone and record.type is ResourceType.CONTAINER:
        return  # its database is the account's
    if types.get(record.owner) is not _OWNERS[record.type] or (record.type is ResourceType.DATABASE and record.owner):
        raise damaged(f"the owner of '{record.name[:100]}' is missing")


def check_definitions(account: Account, records: Sequence[Record]) -> None:
    """Containers can be opened by their records: one that cannot would keep the server from starting."""
    databases = {each.rid: each for each in records if each.type is ResourceType.DATABASE}
    for record in records:
        if record.type is not ResourceType.CONTAINER:
            continue
        database = databases.get(record.owner) or account.catalog.get(ResourceType.DATABASE, record.owner)
        if database is None:
            raise damaged(f"the owner of '{record.name[:100]}' is missing")
        try:
            Container(record, database, account.engine, account.clock, 1, account.stand_ins)
        except Failure as failure:
            if failure.kind is Kind.UNAVAILABLE:
                raise
            raise damaged(f"the definition of '{record.name[:100]}' is not a container's") from None
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, AssertionError):
            raise damaged(f"the definition of '{record.name[:100]}' is not a container's") from None
