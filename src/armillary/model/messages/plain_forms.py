"""How values of Python's own classes are sent."""

from __future__ import annotations

import struct
from collections.abc import MutableMapping
from typing import Any

from armillary.model.key_values import Key
from armillary.model.messages import forms
from armillary.model.messages.forms import Append, Decode, Encode, count_at, heads, length_at, long_head
from armillary.model.values import UNDEFINED, Undefined

_double = struct.Struct(">d")
_SMALL_MAX = 256 - forms.SMALL
_SMALL = [bytes([forms.SMALL + number]) for number in range(_SMALL_MAX)]
_NONE, _TRUE, _FALSE = bytes([forms.NONE]), bytes([forms.TRUE]), bytes([forms.FALSE])
_FLOAT, _UNDEFINED = bytes([forms.FLOAT]), bytes([forms.UNDEFINED])
_INTS, _STRS, _BYTES, _SURROGATES = (heads(each) for each in (forms.INT, forms.STR, forms.BYTES, forms.SURROGATES))
_SHORT = len(_STRS)


def register(encoders: MutableMapping[type, Encode], decoders: list[Decode]) -> None:
    encoders[type(None)] = lambda value, append: append(_NONE)
    encoders[bool] = lambda value, append: append(_TRUE if value else _FALSE)
    encoders[int] = _encode_int
    encoders[float] = lambda value, append: append(_FLOAT + _double.pack(value))
    encoders[str] = _encode_str
    encoders[bytes] = _encode_bytes
    encoders[Undefined] = lambda value, append: append(_UNDEFINED)
    for tag, kind in (
        (forms.TUPLE, tuple),
        (forms.LIST, list),
        (forms.SET, set),
        (forms.FROZENSET, frozenset),
        (forms.KEY, Key),
    ):
        encoders[kind] = _list_encoder(tag, encoders)
        decoders[tag] = _list_decoder(kind, decoders)
    encoders[dict] = _dict_encoder(encoders)
    decoders[forms.NONE] = lambda message, at, depth: (None, at)
    decoders[forms.TRUE] = lambda message, at, depth: (True, at)
    decoders[forms.FALSE] = lambda message, at, depth: (False, at)
    decoders[forms.UNDEFINED] = lambda message, at, depth: (UNDEFINED, at)
    decoders[forms.INT] = _decode_int
    decoders[forms.FLOAT] = lambda message, at, depth: (_double.unpack_from(message, at)[0], at + 8)
    decoders[forms.STR] = _decode_str
    decoders[forms.SURROGATES] = _decode_surrogates
    decoders[forms.BYTES] = _decode_bytes
    decoders[forms.DICT] = _dict_decoder(decoders)
    for number in range(_SMALL_MAX):
        decoders[forms.SMALL + number] = _small_decoder(number)


def _small_decoder(number: int) -> Decode:
    return lambda message, at, depth: (number, at)


def _encode_int(value: int, append: Append) -> None:
    if 0 <= value < _SMALL_MAX:
        append(_SMALL[value])
        return
    size = (value.bit_length() >> 3) + 1
    append(_INTS[size] if size < _SHORT else long_head(forms.INT, size))
    append(value.to_bytes(size, "big", signed=True))


def _decode_int(message: bytes, at: int, depth: int) -> tuple[int, int]:
    size, at = length_at(message, at)
    end = at + size
    return int.from_bytes(message[at:end], "big", signed=True), end


def _encode_str(value: str, append: Append) -> None:
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        encoded = value.encode("utf-8", "surrogatepass")
        append(bytes([forms.SURROGATES]) + forms.length(len(encoded)))
        append(encoded)
        return
    size = len(encoded)
    append(_STRS[size] if size < _SHORT else long_head(forms.STR, size))
    append(encoded)


def _decode_str(message: bytes, at: int, depth: int) -> tuple[str, int]:
    size = message[at]
    if size < _SHORT:
        at += 1
    else:
        size, at = length_at(message, at)
    end = at + size
    return message[at:end].decode(), end


def _decode_surrogates(message: bytes, at: int, depth: int) -> tuple[str, int]:
    size, at = length_at(message, at)
    end = at + size
    return message[at:end].decode("utf-8", "surrogatepass"), end


def _encode_bytes(value: bytes, append: Append) -> None:
    size = len(value)
    append(_BYTES[size] if size < _SHORT else long_head(forms.BYTES, size))
    append(value)


def _decode_bytes(message: bytes, at: int, depth: int) -> tuple[bytes, int]:
    size = message[at]
    if size < _SHORT:
        at += 1
    else:
        size, at = length_at(message, at)
    end = at + size
    return message[at:end], end


def _list_encoder(tag: int, encoders: MutableMapping[type, Encode]) -> Encode:
    head = bytes([tag])

    def encode(values: Any, append: Append) -> None:
        append(head + forms.length(len(values)))
        for each in values:
            encoders[type(each)](each, append)

    return encode


def _list_decoder(kind: Any, decoders: list[Decode]) -> Decode:
    def decode(message: bytes, at: int, depth: int) -> tuple[Any, int]:
        count, at = count_at(message, at, depth)
        depth -= 1
        values = []
        for _ in range(count):
            value, at = decoders[message[at]](message, at + 1, depth)
            values.append(value)
        return (values if kind is list else kind(values)), at

    return decode


def _dict_encoder(encoders: MutableMapping[type, Encode]) -> Encode:
    head = bytes([forms.DICT])

    def encode(values: Any, append: Append) -> None:
        append(head + forms.length(len(values)))
        for key, value in values.items():
            encoders[type(key)](key, append)
            encoders[type(value)](value, append)

    return encode


def _dict_decoder(decoders: list[Decode]) -> Decode:
    def decode(message: bytes, at: int, depth: int) -> tuple[Any, int]:
        count, at = count_at(message, at, depth)
        depth -= 1
        values = {}
        for _ in range(count):
            key, at = decoders[message[at]](message, at + 1, depth)
            values[key], at = decoders[message[at]](message, at + 1, depth)
        return values, at

    return decode
