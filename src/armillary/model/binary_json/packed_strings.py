"""Strings of Cosmos binary JSON whose characters are packed into 4 to 7 bits, and strings that are stored as the bytes
that they are the text of: GUIDs and base64. Which marker has which form is known here; `binary_reader.py` and
`binary_writer.py` read and write the markers themselves.

Characters are packed from the lowest bits of the first byte on. The digits of a GUID are, too: the first digit is the
low half of the first byte, as the .NET client writes and reads it.
"""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from armillary.model.binary_json import type_markers as m

_HEX_LOWER, _HEX_UPPER = b"0123456789abcdef", b"0123456789ABCDEF"


class Packing(NamedTuple):
    """The form of a packed string."""

    bits: int  # for one character
    length_bytes: int  # of the number of characters, after the marker
    alphabet: bytes | None = None  # of 16 characters; None: the characters are codes
    has_offset: bool = False  # a byte after the length is added to each code


PACKINGS: Final = {
    m.HEX_LOWER: Packing(4, 1, _HEX_LOWER),
    m.HEX_UPPER: Packing(4, 1, _HEX_UPPER),
    m.DATE_TIME: Packing(4, 1, b" 0123456789:-.TZ"),
    m.PACKED_4: Packing(4, 1, has_offset=True),
    m.PACKED_5: Packing(5, 1, has_offset=True),
    m.PACKED_6: Packing(6, 1, has_offset=True),
    m.PACKED_7_1: Packing(7, 1),
    m.PACKED_7_2: Packing(7, 2),
}
BASE64_LENGTH_BYTES: Final = {m.BASE64_1: 1, m.BASE64_2: 2, m.BASE64_URL_1: 1, m.BASE64_URL_2: 2}
GUID_BYTES: Final = 16

# Each code as its binary digits, and back, by the number of bits. Converting an integer to base 2 takes linear time,
# so that packing a long string does, too.
_DIGITS: Final = {bits: [format(code, f"0{bits}b") for code in range(1 << bits)] for bits in (4, 5, 6, 7)}
_CODES: Final = {bits: {digits: code for code, digits in enumerate(_DIGITS[bits])} for bits in _DIGITS}
_SWAPPED: Final = bytes([byte >> 4 | (byte & 15) << 4 for byte in range(256)])
_TO_CODES: Final = {
    marker: bytes.maketrans(packing.alphabet, bytes(range(16)))
    for marker, packing in PACKINGS.items()
    if packing.alphabet
}

# The shortest strings that are packed, by their form, as the .NET client does it.
_ALPHABETS: Final = [
    (marker, frozenset((PACKINGS[marker].alphabet or b"").decode()))
    for marker in (m.DATE_TIME, m.HEX_LOWER, m.HEX_UPPER)
]
_ALPHABET_CHARACTERS_MIN: Final = 16
_OFFSET_FORMS: Final = ((m.PACKED_4, 24), (m.PACKED_5, 32), (m.PACKED_6, 40))
_PACKED_7_CHARACTERS_MIN: Final = 88


def packed_bytes(characters: int, bits: int) -> int:
    """The size of a packed string."""
    return (characters * bits + 7) // 8


def unpack(payload: bytes, characters: int, packing: Packing, offset: int) -> str:
    """The text of a packed string. ValueError: it has bits to spare that are set, or characters beyond ASCII."""
    bits, codes = packing.bits, _CODES[packing.bits]
    digits = format(int.from_bytes(payload, "little"), f"0{8 * len(payload)}b")
    spare = len(digits) - characters * bits
    if "1" in digits[:spare]:
        raise ValueError("bits after the last character are set")
    values = bytes([codes[digits[at : at + bits]] for at in range(len(digits) - bits, spare - 1, -bits)])
    if packing.alphabet is not None:
        return values.translate(packing.alphabet.ljust(256)).decode()
    return bytes([value + offset for value in values]).decode("ascii") if offset else values.decode()


def guid_text(payload: bytes) -> str:
    """The text of a GUID that is a value, not a string: its first three groups are little-endian numbers."""
    return _hyphenated(payload[3::-1].hex() + payload[5:3:-1].hex() + payload[7:5:-1].hex() + payload[8:].hex())


def _hyphenated(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def unpack_guid(payload: bytes, marker: int) -> str:
    text = _hyphenated(payload.translate(_SWAPPED).hex())
    if marker == m.GUID_UPPER:
        return text.upper()
    return f'"{text}"' if marker == m.GUID_QUOTED else text


def base64_padding(given: int) -> tuple[int, bool]:
    """The number of padding characters that the bytes need, and whether the text has them. Their number is negated bit
    by bit where the text has none. ValueError: the number is none of these."""
    count, is_written = (given, True) if given <= 2 else (255 - given, False)
    if count > 2:
        raise ValueError(f"{given} is not a padding of base64")
    return count, is_written


def unpack_base64(payload: bytes, marker: int, *, has_padding: bool) -> str:
    is_url = marker in (m.BASE64_URL_1, m.BASE64_URL_2)
    text = (base64.urlsafe_b64encode if is_url else base64.b64encode)(payload).decode()
    return text if has_padding else text.rstrip("=")


def pack(text: str) -> bytes | None:
    """A string in the smallest of the packed forms that .NET's client writes for it, with its marker; None: it is too
    short for them, too long, or not ASCII. GUIDs and base64 are not written: Rust's client reads the digits of GUIDs
    the other way round, and the earlier .NET clients that ask for binary JSON do not know base64."""
    size = len(text)
    if size < _ALPHABET_CHARACTERS_MIN or size > 0xFFFF or not text.isascii():
        return None
    used = set(text)
    if size <= 0xFF:
        if len(used) <= 16:
            for marker, alphabet in _ALPHABETS:
                if used <= alphabet:
                    return bytes([marker, size]) + _packed(text.encode().translate(_TO_CODES[marker]), 4)
        low, high = ord(min(used)), ord(max(used))
        for marker, least in _OFFSET_FORMS:
            bits = PACKINGS[marker].bits
            if size >= least and high - low < 1 << bits:
                codes = bytes([code - low for code in text.encode()])
                return bytes([marker, size, low]) + _packed(codes, bits)
    if size < _PACKED_7_CHARACTERS_MIN:
        return None
    head = bytes([m.PACKED_7_1, size]) if size <= 0xFF else bytes([m.PACKED_7_2]) + size.to_bytes(2, "little")
    return head + _packed(text.encode(), 7)


def _packed(codes: bytes, bits: int) -> bytes:
    digits = _DIGITS[bits]
    number = int("".join([digits[code] for code in reversed(codes)]), 2)
    return number.to_bytes(packed_bytes(len(codes), bits), "little")
