"""What makes a container a table, for the Table door and the management API: its database and its partition key."""

from __future__ import annotations

from typing import Final

from armillary.account.account import Account
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.containers import create_database
from armillary.errors import Failure, Kind
from armillary.model.edm import KEY_STEPS, PARTITION_KEY
from armillary.model.resources import ResourceType

DATABASE: Final = "TablesDB"  # as the service names it
KEY_PATH: Final = f"/{PARTITION_KEY}"


def is_table(container: Container) -> bool:
    return container.key is not None and container.key.steps == KEY_STEPS


def tables_of(account: Account) -> list[Container]:
    return [each for each in account.containers if each.database.name == DATABASE and is_table(each)]


def table_body(name: str) -> dict[str, object]:
    """The definition of a new table's container."""
    return {"id": name, "partitionKey": {"paths": [KEY_PATH], "kind": "Hash", "version": 2}}


async def tables_database(account: Account) -> Record:
    """The database of all tables, which is created with the first one."""
    found = account.catalog.find(ResourceType.DATABASE, b"", DATABASE)
    if found is not None:
        return found
    try:
        return await create_database(account, {"id": DATABASE}, None)
    except Failure as failure:
        if failure.kind is not Kind.CONFLICT:
            raise
        return account.database(DATABASE)


def find_table(account: Account, name: str, *, is_storage: bool = False) -> Container:
    """A container of the tables' database that is a table. `is_storage`: of Azure Storage, which ignores case."""
    try:
        container = account.owner_container(DATABASE, name)
    except Failure as failure:
        folded = _folded(account, name) if is_storage else None
        if folded is None:
            raise Failure(Kind.OWNER_NOT_FOUND, f"There is no table '{name[:64]}'.", charge_ru=1.0) from failure
        container = folded
    # The account also finds rids; and a container with another partition key is not a table.
    if (container.name != name and not is_storage) or not is_table(container):
        raise Failure(Kind.OWNER_NOT_FOUND, f"There is no table '{name[:64]}'.", charge_ru=1.0)
    return container


def _folded(account: Account, name: str) -> Container | None:
    """A table by its name in any case: Azure Storage ignores case."""
    lowered = name.lower()
    return next(
        (
            container
            for container in account.containers
            if container.database.name == DATABASE and container.name.lower() == lowered
        ),
        None,
    )
