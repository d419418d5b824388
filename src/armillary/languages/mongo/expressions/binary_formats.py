"""Binary values as texts and back, in the formats that `$convert` knows: base64 with two alphabets, hexadecimal digits,
UTF-8 and UUIDs. `onError` and `onNull` are handled in `conversion.py`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from bson.binary import UUID_SUBTYPE, Binary

from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.expressions.numbers import RANKS
from armillary.languages.mongo.filters.value_types import whole_number
from armillary.model.bson.bson_values import shell_text, type_name

_UUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}")
_SUBTYPES_KNOWN: Final = frozenset([*range(9), *range(128, 256)])
_AUTO, _UUID_FORMAT = "auto", "uuid"


def uuid_text(value: Binary) -> str:
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def binary_of_uuid(text: str) -> Binary:
    """Raises ValueError for an invalid text, as all readers of formats do."""
    if not _UUID.fullmatch(text):
        raise ValueError("Input is not a valid UUID string.")
    return Binary(bytes.fromhex(text.replace("-", "")), UUID_SUBTYPE)


def _base64_bytes(text: str) -> bytes:
    if len(text) % 4 or not _BASE64.fullmatch(text):
        raise ValueError("Input is not a valid base64 string.")
    return base64.b64decode(text)


def _base64url_bytes(text: str) -> bytes:
    bare = text.rstrip("=")
    if not _BASE64URL.fullmatch(text) or len(bare) % 4 == 1 or (text != bare and len(text) % 4):
        raise ValueError("Input is not a valid base64url string.")
    return base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4))


def _hex_bytes(text: str) -> bytes:
    try:
        return binascii.unhexlify(text)
    except ValueError:
        raise ValueError("Input is not a string of hexadecimal digits.") from None


_READ: Final[Mapping[str, Callable[[str], bytes]]] = {
    "base64": _base64_bytes,
    "base64url": _base64url_bytes,
    "hex": _hex_bytes,
    "utf8": lambda text: text.encode("utf-8"),
}
_WRITTEN: Final[Mapping[str, Callable[[bytes], str]]] = {
    "base64": lambda value: base64.b64encode(value).decode("ascii"),
    "base64url": lambda value: base64.urlsafe_b64encode(value).decode("ascii").rstrip("="),
    "hex": lambda value: value.hex().upper(),
    "utf8": lambda value: value.decode("utf-8"),
}
FORMATS: Final = (_AUTO, _UUID_FORMAT, *_READ)


def check_format(value: Any) -> str:
    if type(value) is not str:
        raise refusal(4341114, f"$convert requires that 'format' be a string, found: {type_name(value)}")
    if value not in FORMATS:
        raise refusal(4341125, f"Invalid 'format' argument for $convert: {shell_text(value)}")
    return value


def check_subtype(value: Any) -> int:
    if type(value) not in RANKS:
        raise refusal(
            4341108, f"For BinData, $convert's 'subtype' argument must be a number, but is {type_name(value)}"
        )
    number = whole_number(value)
    if number is None:
        raise refusal(4341106, "In $convert, numeric 'subtype' argument is not an integer")
    if number not in _SUBTYPES_KNOWN:
        raise refusal(
            4341107, f"In $convert, numeric value for 'subtype' does not correspond to a BinData type: {number}"
        )
    return number


def read_binary(text: str, form: str, subtype: int) -> Any:
    """The binary value of a text; ValueError with the reason if the text is invalid."""
    if (form == _UUID_FORMAT) != (subtype == UUID_SUBTYPE):
        raise ValueError("Only the 'uuid' format is allowed with the UUID subtype")
    if form == _UUID_FORMAT:
        return binary_of_uuid(text)
    if form == _AUTO:
        raise ValueError("Invalid format 'auto'")
    decoded = _READ[form](text)
    return Binary(decoded, subtype) if subtype else decoded


def written_binary(value: bytes, form: str) -> str:
    is_uuid = isinstance(value, Binary) and value.subtype == UUID_SUBTYPE and len(value) == 16
    if isinstance(value, Binary) and is_uuid and form in (_AUTO, _UUID_FORMAT):
        return uuid_text(value)
    if form == _UUID_FORMAT:
        raise ValueError("BinData does not represent a valid UUID")
    try:
        return _WRITTEN["base64" if form == _AUTO else form](value)
    except UnicodeDecodeError:
        raise ValueError("BinData does not represent a valid UTF-8 string") from None
