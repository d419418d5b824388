"""Grants: what the credentials of a request allow. A key allows everything, a read-only key reading, a shared access
signature what it names. `authentication.py` verifies the credentials."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from armillary.doors.table.errors import refused
from armillary.errors import Failure, Kind
from armillary.languages.odata.lexer import Literal
from armillary.languages.odata.parser import And, Comparison, Expression, Or
from armillary.model import edm


class Action(Enum):
    """A thing to do: the resource type of account signatures; the permissions that it needs, in one of several
    combinations; and whether a signature for one table can allow it."""

    READ_SERVICE = ("s", ("r",), False)
    WRITE_SERVICE = ("s", ("w",), False)
    LIST_TABLES = ("c", ("l",), False)
    CREATE_TABLE = ("c", ("c", "w"), False)
    DELETE_TABLE = ("c", ("d",), False)
    ACCESS_POLICIES = ("", (), False)  # for owners alone
    QUERY = ("o", ("r",), True)
    INSERT = ("o", ("a",), True)
    UPDATE = ("o", ("u",), True)
    UPSERT = ("o", ("au",), True)
    DELETE = ("o", ("d",), True)

    @property
    def is_reading(self) -> bool:
        return self in (Action.READ_SERVICE, Action.LIST_TABLES, Action.QUERY)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The entities that a signature is for: from the first pair of keys to the last, both included."""

    first: tuple[str | None, str | None] = (None, None)  # PartitionKey, RowKey
    last: tuple[str | None, str | None] = (None, None)

    def holds(self, partition_key: str, row_key: str) -> bool:
        partition, row = _units(partition_key), _units(row_key)
        low_partition, low_row = self.first
        high_partition, high_row = self.last
        if low_partition is not None and (partition, row) < (_units(low_partition), _units(low_row or "")):
            return False
        if high_partition is None:
            return True
        last = _units(high_partition)
        return partition < last or (partition == last and (high_row is None or row <= _units(high_row)))

    @property
    def condition(self) -> Expression | None:
        """The same as a filter's tree, for `compile_filter` to join with what the request asks for; None if every
        entity is in the range. It is never written as text: a filter that closes a bracket would escape from it."""
        parts = []
        low_partition, low_row = self.first
        high_partition, high_row = self.last
        if low_partition is not None:
            parts.append(_edge(low_partition, low_row, "gt", "ge"))
        if high_partition is not None:
            parts.append(_edge(high_partition, high_row, "lt", "le"))
        return And(tuple(parts)) if parts else None


def _edge(partition_key: str, row_key: str | None, beyond: str, within: str) -> Expression:
    partition = Literal(edm.STRING, partition_key)
    if row_key is None:
        return Comparison("PartitionKey", within, partition)
    row = Comparison("RowKey", within, Literal(edm.STRING, row_key))
    return Or(
        (Comparison("PartitionKey", beyond, partition), And((Comparison("PartitionKey", "eq", partition), row))),
    )


def _units(text: str) -> bytes:
    """A key as it is ordered: by UTF-16 code units, like the comparisons of filters."""
    return text.encode("utf-16-be", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Grant:
    """`permissions` None: whatever may be done at all."""

    is_read_only: bool = False
    permissions: frozenset[str] | None = None
    resource_types: frozenset[str] | None = None  # of an account signature
    table: str | None = None  # of a table signature, in lower case
    keys: KeyRange | None = None

    @property
    def credential(self) -> str:
        """Its kind, for the security log."""
        if self.permissions is not None:
            return "shared access signature"
        return "read-only key" if self.is_read_only else "key"

    def check(self, action: Action, table: str = "") -> None:
        if self.is_read_only and not action.is_reading:
            raise _forbidden("AuthorizationPermissionMismatch", "A read-only key may only read.")
        if self.permissions is None:
            return
        resource_type, needed, is_of_table = action.value
        if self.table is not None and (not is_of_table or self.table != table.lower()):
            raise _forbidden("AuthorizationFailure", f"The signature is for the entities of the table '{self.table}'.")
        if self.resource_types is not None and resource_type not in self.resource_types:
            raise _forbidden(
                "AuthorizationResourceTypeMismatch", "The signature's resource types (srt) do not hold this request."
            )
        if not any(self.permissions >= set(combination) for combination in needed):
            raise _forbidden(
                "AuthorizationPermissionMismatch",
                f"The signature's permissions (sp) lack {' or '.join(needed) or 'it: only a key can do this'}.",
            )

    def check_keys(self, partition_key: str, row_key: str) -> None:
        if self.keys is not None and not self.keys.holds(partition_key, row_key):
            raise _forbidden("AuthorizationFailure", "The entity is outside of the keys that the signature is for.")


OWNER = Grant()
READER = Grant(is_read_only=True)


def _forbidden(code: str, reason: str) -> Failure:
    return refused(code, f"This request is not authorized to perform this operation. {reason}", Kind.FORBIDDEN)
