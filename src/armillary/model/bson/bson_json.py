"""Conversion between MongoDB documents and JSON items, so that one container can be used through both doors.

JSON carries strings, booleans, null and numbers as they are, everything else in canonical Extended JSON (v2): `{"$oid":
"…"}`, `{"$date": {"$numberLong": "…"}}`. The item's id is the text of `_id` (see `bson_ids.py`); fields that have the
name of an item's own property are stored with a prefix. The way back restores tagged values; unchanged numbers get
their former type.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from armillary import limits, work
from armillary.model.bson.bson_ids import id_text, id_value
from armillary.model.bson.bson_values import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, Document, regex_options
from armillary.model.items import SYSTEM_PROPERTIES
from armillary.model.values import EXACT_INT_MAX

ID = "_id"
_TAKEN: Final = SYSTEM_PROPERTIES | {"id"}
_MARK: Final = "$_"
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}").fullmatch
_SPECIAL_DOUBLES: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


# Documents.


def member_name(field: str) -> str:
    """The name of a document's field in an item."""
    return _MARK + field if field in _TAKEN or field.startswith(_MARK) else field


def field_name(member: str) -> str | None:
    """The document field of an item's member; None: it is the item's own."""
    if member in _TAKEN:
        return None
    if member.startswith(_MARK):
        rest = member[len(_MARK) :]
        return rest if rest in _TAKEN or rest.startswith(_MARK) else member
    return member


def json_of(document: Document) -> dict[str, Any]:
    """A document as the JSON of an item, without system properties."""
    item: dict[str, Any] = {"id": id_text(document.get(ID))}
    for name, value in document.items():
        work.spend(5)
        item[member_name(name)] = to_json(value)
    return item


def document_of(item: Mapping[str, Any], before: Document | None = None) -> Document:
    """The JSON of an item as a document. `before`: the previous document, for the types of unchanged numbers. Its `_id`
    is kept if the item's id is its text; otherwise `_id` is derived from the id."""
    document: Document = {ID: _id_of(item, before)}
    for name, value in item.items():
        field = field_name(name)
        if field is not None and field != ID:
            document[_legal(field)] = from_json(value, before.get(field) if before is not None else None)
    return document


def _id_of(item: Mapping[str, Any], before: Document | None) -> Any:
    if ID in item:
        value = from_json(item[ID], before.get(ID) if before is not None else None)
        if id_text(value) == item["id"]:
            return value
    return id_value(item["id"])


# Values.


def to_json(value: Any) -> Any:
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return value
    if kind is int or kind is Int64:
        number = int(value)
        return number if -EXACT_INT_MAX <= number <= EXACT_INT_MAX else {"$numberLong": str(number)}
    if kind is float:
        return value if math.isfinite(value) else {"$numberDouble": _special(value)}
    if kind is dict:
        work.spend(2 * len(value))
        return {name: to_json(each) for name, each in value.items()}
    if kind is list:
        if len(value) <= limits.WORK_PORTION:
            work.spend(3 * len(value))
            return [to_json(each) for each in value]
        return [to_json(each) for portion in work.portions(value, 3) for each in portion]
    return _tagged(value)


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _tagged(value: Any) -> dict[str, Any]:
    match value:
        case ObjectId():
            return {"$oid": str(value)}
        case DatetimeMS():
            return {"$date": {"$numberLong": str(int(value))}}
        case Decimal128():
            return {"$numberDecimal": str(value)}
        case bytes():  # Binary, or of subtype 0
            subtype = value.subtype if isinstance(value, Binary) else 0
            return {"$binary": {"base64": base64.b64encode(value).decode(), "subType": f"{subtype:02x}"}}
        case Regex():
            pattern = value.pattern if isinstance(value.pattern, str) else value.pattern.decode()
            return {"$regularExpression": {"pattern": pattern, "options": regex_options(value)}}
        case Timestamp():
            return {"$timestamp": {"t": value.time, "i": value.inc}}
        case MinKey():
            return {"$minKey": 1}
        case MaxKey():
            return {"$maxKey": 1}
        case Code():
            scope = value.scope
            return {"$code": str(value)} if scope is None else {"$code": str(value), "$scope": to_json(dict(scope))}
        case DBRef():
            return {name: to_json(each) for name, each in value.as_doc().items()}
    raise AssertionError(f"{type(value).__name__} is no BSON value")


def from_json(value: Any, before: Any = None) -> Any:
    kind = type(value)
    if kind is int or kind is float:
        was = type(before)
        if (was is int or was is Int64 or was is float) and before == value:
            return before
        return _whole(value) if kind is int else value
    if kind is dict:
        if len(value) <= 2:
            restored = _restored(value)
            if restored is not None:
                return restored
        work.spend(3 * len(value))
        known = before if type(before) is dict else {}
        return {_legal(name): from_json(each, known.get(name)) for name, each in value.items()}
    if kind is list:
        work.spend(3 * len(value))
        earlier = before if type(before) is list else []
        spare = [None] * (len(value) - len(earlier))
        return [from_json(each, was) for each, was in zip(value, [*earlier, *spare], strict=False)]
    return value


def _whole(number: int) -> int | float:
    if INT32_MIN <= number <= INT32_MAX:
        return number
    return Int64(number) if INT64_MIN <= number <= INT64_MAX else float(number)


def _legal(name: str) -> str:
    """BSON ends names with NUL, so none can contain one."""
    return name.replace("\x00", "\ufffd") if "\x00" in name else name


def _restored(value: dict[str, Any]) -> Any:
    """The value of a tagged object; None: it is a plain object."""
    for name in value:
        restore = _TAGS.get(name)
        if restore is None:
            return None
        try:
            made = restore(value)
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, BSONError, binascii.Error):
            return None
        # Only the canonical form: anything else is an object that happens to look alike.
        return made if made is not None and to_json(made) == value else None
    return None


def _long(text: Any) -> int:
    if type(text) is not str or not _INTEGER(text):
        raise ValueError(text)
    return int(text)


def _restore_binary(value: dict[str, Any]) -> Any:
    inner = value["$binary"]
    return Binary(base64.b64decode(inner["base64"], validate=True), int(inner["subType"], 16))


def _restore_code(value: dict[str, Any]) -> Any:
    return Code(value["$code"], from_json(value["$scope"]) if "$scope" in value else None)


def _restore_timestamp(value: dict[str, Any]) -> Any:
    inner = value["$timestamp"]
    return Timestamp(inner["t"], inner["i"])


def _restore_regex(value: dict[str, Any]) -> Any:
    inner = value["$regularExpression"]
    return Regex(inner["pattern"], inner["options"])


_TAGS: Final[Mapping[str, Callable[[dict[str, Any]], Any]]] = {
    "$oid": lambda value: ObjectId(value["$oid"]),
    "$date": lambda value: DatetimeMS(_long(value["$date"]["$numberLong"])),
    "$numberLong": lambda value: Int64(_long(value["$numberLong"])),
    "$numberDouble": lambda value: _SPECIAL_DOUBLES[value["$numberDouble"]],
    "$numberDecimal": lambda value: Decimal128(value["$numberDecimal"]),
    "$binary": _restore_binary,
    "$regularExpression": _restore_regex,
    "$timestamp": _restore_timestamp,
    "$minKey": lambda _: MinKey(),
    "$maxKey": lambda _: MaxKey(),
    "$code": _restore_code,
}
