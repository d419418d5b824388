"""Values that JSON has no form for, as people write them in JSON: moments as ISO 8601 text, ids and bytes as text,
decimals and large whole numbers as numbers where these are exact. For rows of MongoDB and Parquet on their way into a
container. The other way, exact in both directions, is Extended JSON (`model/bson/bson_json.py`).
"""

from __future__ import annotations

import math
from base64 import b64encode
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId

from armillary.model.bson.bson_ids import id_text
from armillary.model.bson.bson_json import to_json
from armillary.model.values import EXACT_INT_MAX
from armillary.tools.transfer.rows import Document

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def plain_item(document: Document) -> Document:
    """A MongoDB document as an item: `_id` becomes `id`, as text."""
    item: Document = {}
    if "_id" in document:
        given = document["_id"]
        item["id"] = str(given) if isinstance(given, ObjectId | int) and not isinstance(given, bool) else id_text(given)
    for name, value in document.items():
        if name != "_id":
            item["_id" if name == "id" else name] = plain(value)
    return item


def plain(value: Any) -> Any:
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return value
    if kind is int or kind is Int64:
        return int(value) if -EXACT_INT_MAX <= value <= EXACT_INT_MAX else str(int(value))
    if kind is float:
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    match value:
        case ObjectId() | UUID():
            return str(value)
        case Binary():
            return str(value.as_uuid()) if value.subtype == 4 else b64encode(value).decode()
        case bytes():
            return b64encode(value).decode()
        case DatetimeMS():
            return _moment_ms(int(value))
        case datetime():
            return _written(value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC))
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal128() | Decimal():
            return _decimal(value.to_decimal() if isinstance(value, Decimal128) else value)
    return to_json(value)  # what only MongoDB has


def _moment_ms(milliseconds: int) -> Any:
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:  # beyond the years that dates are written in
        return milliseconds
    return _written(moment)


def _written(moment: datetime) -> str:
    """As precisely as it is known, and no more."""
    kind = "microseconds" if moment.microsecond % 1000 else "milliseconds" if moment.microsecond else "seconds"
    return moment.isoformat(timespec=kind).replace("+00:00", "Z")


def _decimal(value: Decimal) -> Any:
    if not value.is_finite():
        return None
    if value == value.to_integral_value() and abs(value) <= EXACT_INT_MAX:
        return int(value)
    number = float(value)
    return number if math.isfinite(number) and Decimal(repr(number)) == value else str(value)
