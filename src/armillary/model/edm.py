"""The values of table entities (EDM) as stored in an item: `{"$t": type number, "$v": value}`, the form that Cosmos DB
uses, so that the SQL door reads what the Table door wrote and the other way round.

Here are the type numbers, the conversions between texts, numbers and values, and times as ticks (100 ns since the year
1). The wire format is in `doors/table`, filtering in `languages/odata`.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeGuard

from armillary.model.items import SYSTEM_PROPERTIES

GUID, DOUBLE, STRING, BINARY, BOOLEAN, DATETIME, INT32, INT64 = 0, 1, 2, 5, 8, 9, 16, 18

NAMES: Final = {
    GUID: "Edm.Guid",
    DOUBLE: "Edm.Double",
    STRING: "Edm.String",
    BINARY: "Edm.Binary",
    BOOLEAN: "Edm.Boolean",
    DATETIME: "Edm.DateTime",
    INT32: "Edm.Int32",
    INT64: "Edm.Int64",
}
TYPES: Final = {name: number for number, name in NAMES.items()}

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
TICKS_PER_S: Final = 10_000_000
_TICKS_DIGITS: Final = 20
_TICKS_OF_EPOCH: Final = 621_355_968_000_000_000
_TICKS_OF_FILE_TIME: Final = 504_911_232_000_000_000  # of 1601
_TICKS_MAX: Final = 3_155_378_975_999_999_999  # the last tick of the year 9999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# Doubles without a JSON form.
SPECIAL_DOUBLES: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:T([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
    r"(Z|z|[+-][0-9]{2}:[0-9]{2})?",
    re.ASCII,
)
_GUID = re.compile(r"\{?([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})\}?", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_CANONICAL_INT = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_CANONICAL_TICKS = re.compile(rf"[0-9]{{{_TICKS_DIGITS}}}", re.ASCII)


# Property names that have another meaning in an item. They are stored with a prefix that no property name can begin
# with.
_TAKEN: Final = SYSTEM_PROPERTIES | {"id", "ttl"}
_MARK: Final = "$_"
_EMPTY_ROW_KEY: Final = "\x01"
PARTITION_KEY, ROW_KEY = "$pk", "$id"  # an entity's keys, as properties of the item
KEY_STEPS: Final = ((PARTITION_KEY,),)  # the parsed partition key of tables; .NET writes its path as /'$pk'


def member_name(property_name: str) -> str:
    """The name under which an item stores a property."""
    return _MARK + property_name if property_name in _TAKEN else property_name


def property_name(member: str) -> str | None:
    """The property stored under a name of the item; None: the name is the item's own."""
    if member.startswith("$"):
        return member[len(_MARK) :] if member.startswith(_MARK) else None
    return None if member in _TAKEN else member


def written_ticks(document: Mapping[str, Any]) -> int:
    """When an item was last written."""
    return ticks_of_etag(document["_etag"])


def ticks_of_etag(etag: str) -> int:
    """The time of the write that an etag identifies. The seconds are the item's `_ts`; the fraction is derived from the
    write counter in the etag, so that it tells apart the writes of one second and is the same for every reader."""
    lsn = int(etag[1:9], 16) | int(etag[10:14], 16) << 32
    return ticks_of_s(int(etag[25:33], 16)) + lsn % TICKS_PER_S


def file_time_digits(ticks: int) -> str:
    """A time in the form of an etag: the ticks since 1601 in the last half of a GUID, in the order in which .NET's
    Table SDK reads them."""
    digits = f"{ticks - _TICKS_OF_FILE_TIME:016x}"
    return f"00000000-0000-0000-{digits[4:8]}-{digits[8:]}{digits[:4]}"


def item_id(row_key: str) -> str:
    """The id of the item with a row key. Ids are not empty, and row keys have no control characters."""
    return row_key or _EMPTY_ROW_KEY


def parse_ticks(text: str) -> int:
    """The ticks of an ISO time; one without a zone is UTC. Digits beyond the seventh are cut. ValueError for others."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    moment = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC)
    ticks = (moment - _EPOCH) // timedelta(seconds=1) * TICKS_PER_S + _TICKS_OF_EPOCH
    ticks += int((fraction or "0")[:7].ljust(7, "0"))
    if zone not in (None, "Z", "z"):
        shift_s = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
        if int(zone[4:6]) > 59 or shift_s > 14 * 3600:
            raise ValueError(text)
        ticks -= (shift_s if zone[0] == "+" else -shift_s) * TICKS_PER_S
    if not 0 <= ticks <= _TICKS_MAX:
        raise ValueError(text)
    return ticks


def ticks_of_s(seconds: int) -> int:
    return _TICKS_OF_EPOCH + seconds * TICKS_PER_S


def stored_ticks(ticks: int) -> str:
    """Ticks as stored: of fixed length, so that texts sort as times do."""
    return f"{ticks:0{_TICKS_DIGITS}d}"


def ticks_in(stored: Any) -> int | None:
    """The ticks in a stored text; None if it has another form."""
    if type(stored) is not str or not _CANONICAL_TICKS.fullmatch(stored):
        return None
    ticks = int(stored)
    return ticks if ticks <= _TICKS_MAX else None


def moment_text(ticks: int) -> str:
    """The ISO form, with up to seven decimals and no trailing zeros."""
    whole, _, fraction = full_moment_text(ticks)[:-1].partition(".")
    said = fraction.rstrip("0")
    return f"{whole}.{said}Z" if said else f"{whole}Z"


def full_moment_text(ticks: int) -> str:
    """The ISO form, always with seven decimals."""
    seconds, fraction = divmod(ticks - _TICKS_OF_EPOCH, TICKS_PER_S)
    return f"{_second_text(seconds)}.{fraction:07d}Z"


@lru_cache(maxsize=1024)
def _second_text(seconds: int) -> str:
    """Cached: entities are often written many in a second, or for the same day."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]


def parse_guid(text: str) -> str:
    found = _GUID.fullmatch(text.lower())
    if found is None:
        raise ValueError(text)
    return found.group(1)


def parse_int(text: str, low: int, high: int) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    number = int(text)
    if not low <= number <= high:
        raise ValueError(text)
    return number


def decode_binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(text) from None


def encode_binary(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def number_of(member: Any) -> int | float | None:
    """The exact number in a stored value: Int32, Int64 or Double. None: it is not a number."""
    if member.__class__ is not dict:
        return None
    value = member.get("$v")
    kind = member.get("$t")
    if kind == INT32:
        return value if value.__class__ is int else None
    if kind == DOUBLE:
        if value.__class__ is float or value.__class__ is int:
            return value
        return SPECIAL_DOUBLES.get(value) if value.__class__ is str else None
    return int(value) if kind == INT64 and is_stored_int64(value) else None


def is_stored_int64(value: Any) -> TypeGuard[str]:
    return value.__class__ is str and _CANONICAL_INT.fullmatch(value) is not None


def text_of(member: Any, kind: int) -> str | None:
    """The text of a stored value of a type that is stored as text."""
    if member.__class__ is dict and member.get("$t") == kind:
        value = member.get("$v")
        return value if value.__class__ is str else None
    return None


def truth_of(member: Any) -> bool | None:
    if member.__class__ is dict and member.get("$t") == BOOLEAN:
        value = member.get("$v")
        return value if value.__class__ is bool else None
    return None


def bytes_of(member: Any) -> bytes | None:
    text = text_of(member, BINARY)
    if text is None:
        return None
    try:
        content = decode_binary(text)
    except ValueError:
        return None
    # The same bytes have several spellings in base64; the index has one.
    return content if encode_binary(content) == text else None
