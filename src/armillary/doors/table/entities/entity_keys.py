"""The two keys of an entity: what they may be made of, and how they name an item."""

from __future__ import annotations

import re

from armillary import limits
from armillary.doors.table.refusals import bad_input, refused
from armillary.errors import Failure

_find_illegal = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]").search


def check_keys(partition_key: str | None, row_key: str | None, *, is_storage: bool) -> tuple[str, str]:
    if partition_key is None or row_key is None:
        missing = "PartitionKey" if partition_key is None else "RowKey"
        raise refused(
            "PropertiesNeedValue",
            f"The values are not specified for all properties in the entity. {missing} is missing.",
        )
    if not is_storage and (not partition_key or not row_key):
        raise bad_input("PartitionKey/RowKey cannot be empty.")
    for name, key in (("PartitionKey", partition_key), ("RowKey", row_key)):
        if _find_illegal(key):
            raise _out_of_range(
                name, "it has a character out of / \\ # ? or a control character", is_storage=is_storage
            )
        if is_storage:
            if len(key.encode("utf-16-le", "surrogatepass")) > limits.STORAGE_KEY_BYTES_MAX:
                raise _out_of_range(name, "it is longer than 1 KiB of UTF-16", is_storage=True)
        else:
            is_row = name == "RowKey"
            most = limits.TABLE_ROW_KEY_BYTES_MAX if is_row else limits.TABLE_PARTITION_KEY_BYTES_MAX
            # Four bytes a character are the most, so the usual key is never encoded to be measured.
            if 4 * len(key) > most and len(key.encode("utf-8", "surrogatepass")) > most:
                raise _out_of_range(name, f"it has more than {most} bytes of UTF-8", is_storage=False)
    return partition_key, row_key


def _out_of_range(name: str, reason: str, *, is_storage: bool) -> Failure:
    if is_storage:
        return refused("OutOfRangeInput", f"One of the request inputs is out of range. The {name}: {reason}.")
    return bad_input(f"The {name} cannot be stored: {reason}.")
