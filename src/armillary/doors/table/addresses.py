"""What a request's target names: the account, the service, the list of tables, a table, an entity, or a batch.

The path is taken apart before it is decoded, since keys may hold any character; query parameters are known by name, and
others are refused.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from armillary import limits
from armillary.doors.table.errors import bad_url, refused
from armillary.errors import Failure, Kind


class Place(Enum):
    SERVICE = auto()
    TABLES = auto()  # their list
    TABLE_ENTRY = auto()  # one of the list: Tables('name')
    TABLE = auto()  # its entities
    ENTITY = auto()
    BATCH = auto()


class Address(NamedTuple):
    place: Place
    table: str
    keys: tuple[str, str] | None  # PartitionKey, RowKey
    query: dict[str, str]
    path: bytes  # as sent: what signatures cover
    account_segment: str | None  # the account, where the path names it


_QUERY_MAX: Final = 40
_SIGNATURE: Final = frozenset(
    ("sv", "ss", "srt", "sp", "se", "st", "spr", "sip", "sig", "si", "tn", "spk", "srk", "epk", "erk", "ses", "sr")
)
_NARROWING: Final = frozenset(("$filter", "$select", "$top", "NextPartitionKey", "NextRowKey", "NextTableName"))
_PARAMETERS: Final = _SIGNATURE | _NARROWING | frozenset(("$format", "comp", "restype", "timeout", "api-version"))
# Which of those that narrow an answer go with what is read; nothing else takes any.
_OF_READING: Final = {
    Place.TABLES: frozenset(("$filter", "$select", "$top", "NextTableName")),
    Place.TABLE: frozenset(("$filter", "$select", "$top", "NextPartitionKey", "NextRowKey")),
    Place.ENTITY: frozenset(("$select",)),
}
_NOT_OFFERED: Final = frozenset(("$orderby", "$skip", "$skiptoken", "$count", "$inlinecount", "$expand", "$apply"))
_ENTITY = re.compile(r"([^(]*)\((.*)\)", re.DOTALL)
_ENTRY = re.compile(r"Tables\('((?:[^']|'')*)'\)")
_KEYS = re.compile(
    r"\s*(PartitionKey|RowKey)\s*=\s*'((?:[^']|'')*)'\s*,\s*(PartitionKey|RowKey)\s*=\s*'((?:[^']|'')*)'\s*"
)
_BAD_NAME = re.compile(r"[/\\#?\x00-\x1f]")


def parse(target: bytes, accounts: frozenset[str]) -> Address:
    """`accounts`: the names that the first part of the path may have to be taken for the account's."""
    path, _, query_text = target.partition(b"?")
    query = _query(query_text) if query_text else {}
    segments = [_decoded(segment) for segment in path.split(b"/") if segment]
    account_segment = None
    if segments and segments[0] in accounts and (len(segments) > 1 or path.endswith(b"/") or "restype" in query):
        account_segment = segments.pop(0)
        if len(segments) == 1 and "restype" in query and account_segment == segments[0] + "-secondary":
            # Python's client puts the host and path of the copy before the path that it had already.
            segments.pop()
    if not segments:
        if "restype" not in query and path.strip(b"/"):
            raise bad_url("It names nothing.")
        return Address(Place.SERVICE, "", None, query, path, account_segment)
    if len(segments) > 1 or "restype" in query:
        # Or the account in the path is not this server's. Clients say of both texts that the address is to be checked.
        raise bad_url(
            f"'{segments[0][:64]}' is not the account of this server, so that nothing can lie behind it. Server failed "
            "to authenticate the request. An address ends with the account; it does not name a table."
        )
    segment = segments[0]
    if segment == "$batch":
        return Address(Place.BATCH, "", None, query, path, account_segment)
    if segment in ("Tables", "Tables()"):
        return Address(Place.TABLES, "", None, query, path, account_segment)
    entry = _ENTRY.fullmatch(segment)
    if entry is not None:
        return Address(Place.TABLE_ENTRY, _undoubled(entry[1]), None, query, path, account_segment)
    if not segment.endswith(")"):
        return Address(Place.TABLE, segment, None, query, path, account_segment)
    found = _ENTITY.fullmatch(segment)
    if found is None:
        raise bad_url("Its brackets do not match.")
    if not found[2]:
        return Address(Place.TABLE, found[1], None, query, path, account_segment)
    return Address(Place.ENTITY, found[1], _keys(found[2]), query, path, account_segment)


def _decoded(segment: bytes) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise bad_url("It is not UTF-8.") from None


def _undoubled(text: str) -> str:
    return text.replace("''", "'")


def _keys(inside: str) -> tuple[str, str]:
    found = _KEYS.fullmatch(inside)
    if found is None or found[1] == found[3]:
        raise refused(
            "InvalidInput",
            "The number of keys specified in the URI does not match number of key properties for the resource. Write "
            "(PartitionKey='…',RowKey='…'), with single quotes doubled.",
        )
    values = {found[1]: _undoubled(found[2]), found[3]: _undoubled(found[4])}
    return values["PartitionKey"], values["RowKey"]


def _query(text: bytes) -> dict[str, str]:
    query: dict[str, str] = {}
    pairs = text.split(b"&")
    if len(pairs) > _QUERY_MAX:
        raise bad_url(f"It has more than {_QUERY_MAX} parameters.")
    for pair in pairs:
        if not pair:
            continue
        name_bytes, _, value = pair.partition(b"=")
        name = _decoded(name_bytes.replace(b"+", b" "))
        if name in _NOT_OFFERED:
            raise Failure(
                Kind.UNSUPPORTED,
                f"The requested operation is not implemented on the specified resource: {name} is not offered.",
            )
        if name not in _PARAMETERS:
            raise refused("UnsupportedQueryParameter", f"The query parameter '{name[:64]}' is not known.")
        if name in query:
            raise refused("InvalidQueryParameterValue", f"The query parameter {name} is given twice.")
        query[name] = _decoded(value.replace(b"+", b" "))
    # Nothing here takes longer than a client waits; what is no number is a mistake all the same.
    if not query.get("timeout", "0").isdigit():
        raise refused("InvalidQueryParameterValue", "The query parameter timeout is a whole number of seconds.")
    return query


def check_parameters(address: Address, method: str) -> None:
    """Whether what narrows an answer has something to narrow: what would be ignored is refused."""
    taken = _OF_READING.get(address.place, frozenset()) if method == "GET" and "comp" not in address.query else ()
    for name in address.query.keys() & _NARROWING:
        if name not in taken:
            raise refused("UnsupportedQueryParameter", f"The query parameter {name} does not go with this request.")


def check_table(name: str) -> str:
    """The name of a table that is addressed, if it can be one's. Too long a name is just not there."""
    if _BAD_NAME.search(name):
        raise refused("InvalidInput", "The table name contains an invalid character. It has none of / \\ # ?")
    if name.endswith(" "):
        raise refused("InvalidInput", "Table name cannot end with a space.")
    if not name:
        raise bad_url("It names no table.")
    return name


def check_new_table(name: object) -> str:
    """The name of a table to be made."""
    if type(name) is not str:
        raise refused(
            "PropertiesNeedValue", "The values are not specified for all properties in the entity: TableName."
        )
    # The service calls what is wrong with a name its own fault, and clients know it by that.
    if not name or _BAD_NAME.search(name) or "(" in name or ")" in name:
        raise refused(
            "InternalServerError",
            f"The resource name presented contains invalid character. '{name[:64]}' has one of / \\ # ? ( ) or a "
            "control character, or is empty.",
        )
    if name == "Tables":
        raise refused("InvalidResourceName", "The specified resource name is reserved: Tables is the list of tables.")
    if name.endswith(" "):
        raise refused("InternalServerError", "The resource name can't end with space.")
    if len(name) > limits.TABLE_NAME_CHARACTERS_MAX:
        raise refused(
            "BadRequest",
            f"The input name is invalid. A table's name has at most {limits.TABLE_NAME_CHARACTERS_MAX} characters.",
        )
    return name
