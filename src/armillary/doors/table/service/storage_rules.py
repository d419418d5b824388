"""The limits of Azure Storage's tables, which are narrower than those of Cosmos: names of tables, keys, properties and
sizes. Checked in the storage flavour alone."""

from __future__ import annotations

import re
from typing import Any

from armillary import limits
from armillary.doors.table.errors import refused
from armillary.model import edm

_is_name = re.compile(r"[A-Za-z][A-Za-z0-9]*").fullmatch


def check_table(name: str) -> None:
    if not limits.STORAGE_TABLE_NAME_MIN <= len(name) <= limits.STORAGE_TABLE_NAME_MAX:
        raise refused(
            "OutOfRangeInput", "The specified resource name length is not within the permissible limits: 3 to 63."
        )
    if not _is_name(name) or name.lower() == "tables":
        raise refused("InvalidResourceName", "The specified resource name contains invalid characters.")


def check_members(members: dict[str, Any]) -> None:
    if len(members) > limits.STORAGE_PROPERTIES_MAX:
        raise refused(
            "TooManyProperties",
            f"The entity contains more properties than allowed. Each entity can include up to "
            f"{limits.STORAGE_PROPERTIES_MAX} properties to store data.",
        )
    total = 0
    for name, member in members.items():
        value = member["$v"]
        size = len(value) if type(value) is str else 8
        if member["$t"] == edm.STRING:
            size = len(value.encode("utf-16-le", "surrogatepass"))
        elif member["$t"] == edm.BINARY:
            size = len(value) // 4 * 3 - value[-2:].count("=")
        if size > limits.STORAGE_VALUE_BYTES_MAX:
            raise refused(
                "PropertyValueTooLarge",
                "The property value exceeds the maximum allowed size (64KB). If the property value is a string, it is "
                "UTF-16 encoded and the maximum number of characters should be 32K or less.",
            )
        total += size + 2 * len(name) + 8
    if total > limits.STORAGE_ENTITY_BYTES_MAX:
        raise refused("EntityTooLarge", "The entity is larger than the maximum allowed size (1MB).")
