"""Values as bytes whose order is the order of the values, and items as the bytes that are stored.

`encode_value` is for keys that must be exact (unique keys, composite terms, continuations); `encode_term` is for the
index, where long strings are cut and the cut is remembered. Both are self-delimiting: no encoding is a prefix of
another, so encodings may be put one after the other, or inverted for descending order. Which keys are built of them
is left to `layout.py`.

    undefined, null, false, true   tag
    number                         tag, 8 bytes: the double with its bits turned so that byte order is numeric order
    string                         tag, UTF-8 with 00 written as 01 01 and 01 as 01 02, then 00
    array                          tag, its elements, 00
    object                         tag, for each property sorted by name: the name as a string, the value; then 00
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from armillary.errors import Failure, Kind
from armillary.limits import TERM_BYTES_MAX
from armillary.model.values import EXACT_INT_MAX, UNDEFINED, Undefined, Value, as_double
from armillary.work import spend

# Tags leave room between them for the types that other doors may bring. 00 ends a string, array or object, so no tag
# is 00; FF is for bounds above everything.
TAG_UNDEFINED, TAG_NULL, TAG_FALSE, TAG_TRUE = b"\x08", b"\x10", b"\x18", b"\x20"
TAG_NUMBER, TAG_STRING, TAG_ARRAY, TAG_OBJECT = b"\x28", b"\x30", b"\x48", b"\x50"
_END = b"\x00"
_CUT = b"\x01"

ARRAY_MARK = TAG_ARRAY + _END
OBJECT_MARK = TAG_OBJECT + _END

_SINGLES: dict[type, bytes] = {type(None): TAG_NULL, Undefined: TAG_UNDEFINED}
_SINGLES_BACK: dict[int, Value] = {
    TAG_UNDEFINED[0]: UNDEFINED,
    TAG_NULL[0]: None,
    TAG_FALSE[0]: False,
    TAG_TRUE[0]: True,
}
_pack_number = struct.Struct(">cd").pack
_unpack_double = struct.Struct(">d").unpack
_INVERTED = bytes(255 - byte for byte in range(256))
_NAN = TAG_NUMBER + bytes(8)
# Between the tag and the last byte, which says whether the string is complete or was cut.
PLAIN_TERM_MAX = TERM_BYTES_MAX - 2
_LONG = 4_096  # characters of strings that take time to encode
_CHUNK = 256  # elements that are encoded before the event loop may have its turn


def encode_value(value: Value) -> bytes:
    """Exact bytes of any value: compare(a, b) is the order of encode_value(a) and encode_value(b)."""
    kind = type(value)
    if kind is list or kind is dict:
        parts: list[bytes] = []
        _append(value, parts)
        return b"".join(parts)
    if kind is str:
        return TAG_STRING + _string_body(value) + _END  # type: ignore[arg-type]
    return _encode_scalar(value)


def encode_term(value: Value) -> bytes:
    """The bytes of a value in the index, at most TERM_BYTES_MAX: a < b gives encode_term(a) <= encode_term(b).

    The term of an uncut scalar is its `encode_value`. All arrays have the one term ARRAY_MARK and all objects
    OBJECT_MARK, which say only that something of this type is here.
    """
    kind = type(value)
    if kind is str:
        text: str = value  # type: ignore[assignment]
        # Most strings are short and plain. (The tag of a string is the character 0.)
        if text.isascii() and len(text) <= PLAIN_TERM_MAX and "\x00" not in text and "\x01" not in text:
            return f"0{text}\x00".encode()
        # Every character takes a byte or more, so this many are enough to be cut; a megabyte need not be encoded.
        text = text[: PLAIN_TERM_MAX + 1]
        try:
            body = text.encode()
            if 0 in body or 1 in body:  # as ints: bytes in bytes makes an exception on its way, a microsecond
                body = _escaped(body)
        except UnicodeEncodeError:
            body = _string_body(text)
        if len(body) <= PLAIN_TERM_MAX:
            return TAG_STRING + body + _END
        return TAG_STRING + body[:PLAIN_TERM_MAX] + _CUT
    if (kind is int and 0 < value <= EXACT_INT_MAX) or (kind is float and value > 0):  # type: ignore[operator]
        return _pack_number(TAG_NUMBER, -value)  # type: ignore[operator]
    if kind is list:
        return ARRAY_MARK
    if kind is dict:
        return OBJECT_MARK
    return _encode_scalar(value)


def is_cut(term: bytes) -> bool:
    """Whether a term stands for more than one value, so that the filter must check the item itself."""
    return len(term) == TERM_BYTES_MAX and term[-1:] == _CUT


def decode_value(encoded: bytes, at: int = 0) -> tuple[Value, int]:
    """The value whose `encode_value` begins at a position, and the position after it. Not for cut terms.

    Whole numbers up to 2**53 come back as int, others as float. Bytes that `encode_value` does not make are CORRUPT.
    """
    try:
        return _decode(encoded, at)
    except (IndexError, ValueError, struct.error, RecursionError):
        raise Failure(Kind.CORRUPT, f"Stored value cannot be decoded at byte {at}; run `armillary check`.") from None


def _encode_scalar(value: Value) -> bytes:
    if value is True:
        return TAG_TRUE
    if value is False:
        return TAG_FALSE
    kind = type(value)
    if kind is int or kind is float:
        double = as_double(value)  # type: ignore[arg-type]
        if double >= 0:
            # The sign bit of a positive number must be set to sort above the negative ones: that is the bits of its
            # negation. Zero of either sign becomes the one -0.0.
            return _pack_number(TAG_NUMBER, -double if double else -0.0)
        if double < 0:
            return TAG_NUMBER + struct.pack(">d", double).translate(_INVERTED)
        return _NAN
    return _SINGLES[kind]


def _string_body(text: str) -> bytes:
    if len(text) > _LONG:
        spend(len(text) >> 8)
    try:
        body = text.encode()
    except UnicodeEncodeError:
        # Lone surrogates cannot come in as JSON, but a query can write one; they keep their place in the order.
        body = text.encode("utf-8", "surrogatepass")
    return _escaped(body)


def _escaped(body: bytes) -> bytes:
    return body.replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01")


def _append(value: Any, parts: list[bytes]) -> None:
    kind = type(value)
    if kind is list:
        parts.append(TAG_ARRAY)
        if len(value) <= _CHUNK:
            spend(2 * len(value))
            for element in value:
                _append(element, parts)
        else:
            for start in range(0, len(value), _CHUNK):
                spend(3 * _CHUNK)
                for element in value[start : start + _CHUNK]:
                    _append(element, parts)
        parts.append(_END)
    elif kind is dict:
        parts.append(TAG_OBJECT)
        for place, name in enumerate(sorted(value)):
            if place % _CHUNK == 0:
                spend(6 * min(_CHUNK, len(value) - place))
            parts.append(TAG_STRING + _string_body(name) + _END)
            _append(value[name], parts)
        parts.append(_END)
    elif kind is str:
        parts.append(TAG_STRING + _string_body(value) + _END)
    else:
        parts.append(_encode_scalar(value))


def _decode(encoded: bytes, at: int) -> tuple[Value, int]:
    tag = encoded[at]
    at += 1
    if tag == TAG_STRING[0]:
        return _decode_string(encoded, at)
    if tag == TAG_NUMBER[0]:
        return _decode_number(encoded[at : at + 8]), at + 8
    if tag == TAG_ARRAY[0]:
        elements: list[Any] = []
        while encoded[at] != 0:
            element, at = _decode(encoded, at)
            elements.append(element)
        return elements, at + 1
    if tag == TAG_OBJECT[0]:
        properties: dict[str, Any] = {}
        while encoded[at] != 0:
            if encoded[at] != TAG_STRING[0]:
                raise ValueError("a property begins with its name")
            name, at = _decode_string(encoded, at + 1)
            properties[name], at = _decode(encoded, at)
        return properties, at + 1
    if tag not in _SINGLES_BACK:
        raise ValueError("unknown tag")
    return _SINGLES_BACK[tag], at


def _decode_string(encoded: bytes, at: int) -> tuple[str, int]:
    end = encoded.index(_END, at)
    body = encoded[at:end]
    if 1 in body:
        body = body.replace(b"\x01\x01", b"\x00").replace(b"\x01\x02", b"\x01")
    return body.decode("utf-8", "surrogatepass"), end + 1


def _decode_number(encoded: bytes) -> int | float:
    double: float
    if encoded[0] & 0x80:
        (double,) = _unpack_double(encoded)
        double = -double
    elif encoded == _NAN[1:]:
        return float("nan")
    else:
        (double,) = _unpack_double(encoded.translate(_INVERTED))
    if -EXACT_INT_MAX <= double <= EXACT_INT_MAX and double.is_integer():
        return int(double)
    return double


FORMAT_JSON, FORMAT_BSON = 1, 2
FLAG_INDEXED = 1  # the item is in the index


class ItemHeader(NamedTuple):
    """What is kept in front of a stored item, so that reading it never parses it."""

    format: int  # FORMAT_JSON or FORMAT_BSON
    flags: int
    policy: int  # number of the indexing policy its terms were made with
    lsn: int
    ts: int
    ttl: int
    epk: bytes
    step: int = 0  # place among the changes of its transaction, which share one lsn


new_tuple = tuple.__new__  # makes a named tuple in less than half of the time that its class takes: for hot paths
_HEADER = struct.Struct(">BBHQIiHB")
_HEADER_BYTES = _HEADER.size
FIXED_HEADER_BYTES = _HEADER_BYTES  # precede the effective key, which the item follows
_EPK_LENGTH_AT = _HEADER_BYTES - 1
_LSN_AT, _STEP_AT = 4, 20


def pack_item(header: ItemHeader, payload: bytes) -> bytes:
    kind, flags, policy, lsn, ts, ttl, epk, step = header
    return _HEADER.pack(kind, flags, policy, lsn, ts, ttl, step, len(epk)) + epk + payload


def unpack_header(stored: bytes) -> ItemHeader:
    kind, flags, policy, lsn, ts, ttl, step, epk_length = _HEADER.unpack_from(stored)
    epk = stored[_HEADER_BYTES : _HEADER_BYTES + epk_length]
    return new_tuple(ItemHeader, (kind, flags, policy, lsn, ts, ttl, epk, step))


def lsn_of(stored: bytes) -> int:
    """The header's lsn alone."""
    return int.from_bytes(stored[_LSN_AT : _LSN_AT + 8], "big")


def place_of(stored: bytes) -> bytes:
    """The packed lsn and step of the header: the place of the item's change in the log."""
    return stored[_LSN_AT : _LSN_AT + 8] + stored[_STEP_AT : _STEP_AT + 2]


def epk_of(stored: bytes) -> bytes:
    return stored[_HEADER_BYTES : _HEADER_BYTES + stored[_EPK_LENGTH_AT]]


def payload_of(stored: bytes) -> bytes:
    return stored[_HEADER_BYTES + stored[_EPK_LENGTH_AT] :]
