"""Reads exports of the cloud's diagnostic logs as captures: CSV of CDBDataPlaneRequests, CDBPartitionKeyRUConsumption
or CDBQueryRuntimeStatistics, as Log Analytics writes them. Which table it is, its columns tell. Rows need not be in the
order of their times.

Logs have no items: leaves and conditions are not there. Keys are readable in them, so values are kept.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from armillary.account.captures.value_digests import Digests
from armillary.errors import Failure, bad_request

_TIME, _OPERATION, _CHARGE = "timegenerated", "operationname", "requestcharge"
# What each table must have to be told from others; the first that fits is it.
_TABLES: Final = {
    "CDBQueryRuntimeStatistics": (_TIME, "querytext"),
    "CDBPartitionKeyRUConsumption": (_TIME, "partitionkey", "partitionkeyrangeid", _CHARGE),
    "CDBDataPlaneRequests": (_TIME, _OPERATION, "statuscode", _CHARGE),
}
_OPERATIONS: Final = {
    "read": "read",
    "create": "create",
    "upsert": "upsert",
    "replace": "replace",
    "patch": "patch",
    "delete": "delete",
    "batch": "batch",
    "executejavascript": "execute",
    "query": "query",
    "sqlquery": "query",
    "readfeed": "feed",
}
# As the portal writes times into CSV files, beside ISO 8601.
_PORTAL_TIMES: Final = ("%m/%d/%Y, %I:%M:%S.%f %p", "%m/%d/%Y, %I:%M:%S %p", "%m/%d/%Y %H:%M:%S")
_FIELD_CHARACTERS_MAX: Final = 1024 * 1024  # of one column, such as the text of a query
_SECRET: Final = b"\x00" * 32  # values are in the file: digests of them hide nothing

Row = dict[str, Any]  # the fields of a `Captured`


def read_export(path: Path) -> tuple[str, Iterator[Row]]:
    """The time of the first row, as ISO 8601, and all rows."""
    rows = _rows(path)
    try:
        first = next(rows)
    except StopIteration:
        raise bad_request(f"The export {path} has no rows.") from None
    begun = first.pop("time")
    return begun.isoformat(timespec="milliseconds"), _timed(first, rows, begun)


def _timed(first: Row, rows: Iterator[Row], begun: datetime) -> Iterator[Row]:
    yield {"t_ms": 0, **first}
    for row in rows:
        moment = row.pop("time")
        yield {"t_ms": round((moment - begun).total_seconds() * 1000), **row}


def _rows(path: Path) -> Iterator[Row]:
    csv.field_size_limit(_FIELD_CHARACTERS_MAX)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            names = [_column(name) for name in next(reader, [])]
            table = _table(names, path)
            digests = Digests(_SECRET)
            for number, cells in enumerate(reader, 2):
                if cells:
                    yield _row(table, dict(zip(names, cells, strict=False)), digests, path, number)
    except OSError as error:
        raise bad_request(f"The export {path} cannot be read: {error.strerror}.") from None
    except (csv.Error, UnicodeDecodeError):
        raise bad_request(f"The export {path} is no CSV in UTF-8.") from None


def _column(name: str) -> str:
    """`TimeGenerated [UTC]` and `requestCharge_s` are the columns TimeGenerated and RequestCharge."""
    plain = name.partition("[")[0].strip().lower()
    return plain[:-2] if plain[-2:] in ("_s", "_d") else plain


def _table(names: list[str], path: Path) -> str:
    for table, needed in _TABLES.items():
        if set(needed) <= set(names):
            return table
    raise bad_request(
        f"The export {path} is none of {', '.join(_TABLES)}: their columns, such as TimeGenerated and RequestCharge, "
        "are not in its first line."
    )


def _row(table: str, cells: dict[str, str], digests: Digests, path: Path, number: int) -> Row:
    def bad(column: str) -> Failure:
        return bad_request(f"Line {number} of the export {path} has no {column} that can be read.")

    moment = _moment(cells.get(_TIME, ""))
    if moment is None:
        raise bad("TimeGenerated")
    row: Row = {"time": moment, "door": "sql", "operation": "query", "status": 200, "sub": 0}
    row["charge_ru"] = _number(cells.get(_CHARGE)) or 0.0
    range_id = _number(cells.get("partitionkeyrangeid"))
    row["partitions"] = (int(range_id),) if range_id is not None else ()
    if cells.get("activityid"):
        row["run"] = digests.of(cells["activityid"])
    if table == "CDBQueryRuntimeStatistics":
        row["shape"] = cells["querytext"]  # constants are taken out by the service already, if it was told to
        row["rows"] = int(_number(cells.get("numberofrowsreturned")) or 0)
        return row
    operation = cells.get(_OPERATION, "").strip().lower()
    row["operation"] = _OPERATIONS.get(operation, operation or "other")
    if table == "CDBDataPlaneRequests":
        status = _number(cells["statuscode"])
        if status is None:
            raise bad("StatusCode")
        row["status"], row["size_bytes"] = int(status), int(_number(cells.get("responselength")) or 0)
        row["sub"] = int(_number(cells.get("substatuscode")) or 0)
        return row
    values = _key(cells["partitionkey"])
    row["key"] = tuple([digests.of(value) for value in values])
    row["values"] = dict(zip(row["key"], values, strict=True))
    return row


def _key(text: str) -> list[Any]:
    """`["a"]` and `a` are the same key; a hierarchical one has several values."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    values = value if isinstance(value, list) else [value]
    return [each if not isinstance(each, dict | list) else json.dumps(each) for each in values]


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _moment(text: str) -> datetime | None:
    text = text.strip()
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        for form in _PORTAL_TIMES:
            try:
                found = datetime.strptime(text, form)
                break
            except ValueError:
                continue
        else:
            return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
