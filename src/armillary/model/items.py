"""The rules of items: parsing, id, ttl, depth and size, and the text that is stored and answered. Partition keys are in
`keys.py`, patching in `patch.py`; expiry and conflicts of ids are checked in `partition`.

Numbers: integers are kept exactly up to 64 bits (-2**63 .. 2**64-1); a longer one becomes the nearest double, as every
number does in the service. Numbers outside the range of a double are refused. `1.0` stays `1.0`, `-0` becomes `0`. Of
two equal property names the last one counts.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any

import orjson

from armillary import limits
from armillary.errors import Failure, Kind, bad_request
from armillary.model.json_members import shown

# Set by the server on every write; what a client sends under these names is dropped.
SYSTEM_PROPERTIES = frozenset(("_rid", "_self", "_etag", "_ts", "_attachments", "_lsn"))

_pack_etag = struct.Struct(">IHHHIH").pack
# The service accepts more in item ids than in names: its JavaScript client's tests store question marks, tabs, line
# ends and trailing blanks, against the documentation's advice.
find_illegal_in_name = re.compile(r"[/\\?#\t\r\n]").search
find_illegal_in_item_id = re.compile(r"[/\\#]").search
_MISSING_ID = "The input content is invalid because the required properties - 'id; ' - are missing"


def parse_json(body: bytes) -> Any:
    """Any JSON text within the depth limit."""
    try:
        value = orjson.loads(body)
    except ValueError as error:
        raise bad_request(
            f"The request body is not valid JSON: {error}. Send one JSON document in UTF-8, without a byte order mark; "
            "NaN, Infinity, lone surrogates and numbers beyond a double have no place in it."
        ) from None
    # A text with so few brackets cannot be too deep; this spares nearly every item the walk.
    if _brackets(body) > limits.ITEM_DEPTH_MAX:
        check_depth(value)
    return value


def _brackets(text: bytes) -> int:
    """The number of opening brackets, or some number over the depth limit. Removing a byte finds it with memchr and
    stops at the limit, which takes a third of the time of counting."""
    most = limits.ITEM_DEPTH_MAX + 1
    return 2 * len(text) - len(text.replace(b"{", b"", most)) - len(text.replace(b"[", b"", most))


def parse_document(body: bytes) -> dict[str, Any]:
    """The JSON object in a request body."""
    value = parse_json(body)
    if type(value) is not dict:
        raise bad_request(f"The request body must be a JSON object, not {_type_name(value)}.")
    return value


def check_depth(value: Any) -> None:
    """Refuse values nested deeper than 128 levels; the outermost object or array is the first."""
    level: list[Any] = [value]
    for _ in range(limits.ITEM_DEPTH_MAX + 1):
        level = [node for node in level if type(node) is dict or type(node) is list]
        if not level:
            return
        level = [child for node in level for child in (node.values() if type(node) is dict else node)]
    raise too_deep()


def too_deep() -> Failure:
    return bad_request(
        f"The document is nested deeper than {limits.ITEM_DEPTH_MAX} levels. Flatten it, or keep the inside as text."
    )


def validate_item_id(document: Mapping[str, Any]) -> str:
    """The item's id, or a refusal that says what is wrong with it."""
    item_id = document.get("id")
    if type(item_id) is not str:
        if item_id is None and "id" not in document:
            raise bad_request(_MISSING_ID)
        raise bad_request(f"The property 'id' must be a string, not {_type_name(item_id)}.")
    # Up to 255 characters are at most 1,020 bytes, so the usual id is never encoded to be measured.
    if len(item_id) > 255 and len(item_id.encode()) > limits.ITEM_ID_BYTES_MAX:
        raise bad_request(
            f"The property 'id' is longer than {limits.ITEM_ID_BYTES_MAX} bytes. Ensure to provide a unique non-empty "
            f"string less than '{limits.ITEM_ID_BYTES_MAX + 1}' characters."
        )
    if not item_id:
        raise bad_request(f"{_MISSING_ID}: it must not be empty.")
    found = find_illegal_in_item_id(item_id)
    if found:
        raise _illegal_character(item_id, found, r"'/', '\' and '#'")
    return item_id


def validate_name(name: Any) -> str:
    """The id of anything that is not an item: databases, containers, scripts, users, permissions, keys."""
    if type(name) is not str:
        if name is None:
            raise bad_request(_MISSING_ID)
        raise bad_request(f"The property 'id' must be a string, not {_type_name(name)}.")
    if len(name) > limits.NAME_CHARACTERS_MAX:
        raise bad_request(
            f"The property 'id' is longer than {limits.NAME_CHARACTERS_MAX} characters. Ensure to provide a unique "
            f"non-empty string less than '{limits.NAME_CHARACTERS_MAX}' characters."
        )
    if not name:
        raise bad_request(f"{_MISSING_ID}: it must not be empty.")
    found = find_illegal_in_name(name)
    if found:
        raise _illegal_character(name, found, r"'/', '\', '?', '#', tab, carriage return and line feed")
    if name[-1] == " ":
        raise bad_request(f"The id '{shown(name)}' ends with a space. Remove it.")
    return name


def _illegal_character(name: str, found: re.Match[str], forbidden: str) -> Failure:
    return bad_request(
        f"The id '{shown(name)}' contains the character {found.group()!r} at position {found.start()}. "
        f"It may contain anything but {forbidden}."
    )


def item_ttl(document: Mapping[str, Any]) -> int:
    """Seconds to live after the last write; -1 never expires, 0: not given."""
    if "ttl" not in document:
        return 0
    ttl = document["ttl"]
    is_whole = type(ttl) is int or (type(ttl) is float and ttl.is_integer())
    if is_whole and (ttl == -1 or 0 < ttl <= limits.TTL_SECONDS_MAX):
        return int(ttl)
    raise bad_request(
        f"The input ttl '{shown(ttl)}' is invalid. Ensure to provide a nonzero positive integer "
        f"up to {limits.TTL_SECONDS_MAX}, or -1 for an item that never expires."
    )


def strip_system_properties(document: dict[str, Any]) -> dict[str, Any]:
    """The document without system properties; the same object if it has none."""
    if SYSTEM_PROPERTIES.isdisjoint(document):
        return document
    return {name: value for name, value in document.items() if name not in SYSTEM_PROPERTIES}


def open_text(document: dict[str, Any]) -> bytes:
    """An item's text without system properties and without its closing brace; `close_text` completes it."""
    assert document, "an item has at least an id"
    return orjson.dumps(strip_system_properties(document))[:-1]


def close_text(rid_text: str, self_text: str, etag_text: str, ts: int) -> bytes:
    """The system properties in the service's order, and the closing brace. Rids and links need no escaping."""
    return (
        f',"_rid":"{rid_text}","_self":"{self_text}","_etag":"\\"{etag_text[1:-1]}\\"",'
        f'"_attachments":"attachments/","_ts":{ts}}}'
    ).encode()


def etag(rid: int, lsn: int, step: int, ts: int) -> str:
    """A new value for every write, in the GUID-like form of the service. The quotes belong to it."""
    digits = _pack_etag(
        lsn & 0xFFFFFFFF, lsn >> 32 & 0xFFFF, step, rid >> 40 & 0xFFFF, ts & 0xFFFFFFFF, rid & 0xFFFF
    ).hex()
    return f'"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"'


# The position of the etag in a stored item, counted from its end: `close_text` always ends with the same characters,
# and the time in seconds has ten digits until the year 2286.
_ETAG_END = len('\\"","_attachments":"attachments/","_ts":1700000000}')
_ETAG_DIGITS = 36


def etag_in(payload: bytes) -> str:
    """The etag that a stored item carries, without parsing it."""
    digits = payload[-_ETAG_END - _ETAG_DIGITS : -_ETAG_END]
    return f'"{digits.decode("ascii")}"'


def check_size(size_bytes: int) -> None:
    """The limit counts the stored text, system properties included, as the charges do."""
    if size_bytes > limits.ITEM_BYTES_MAX:
        raise Failure(
            Kind.TOO_LARGE,
            f"Request size is too large: the item has {size_bytes} bytes, {limits.ITEM_BYTES_MAX} are allowed. "
            "Split it, or keep the large part elsewhere and store a reference.",
        )


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    return {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
        dict: "an object",
    }[type(value)]
