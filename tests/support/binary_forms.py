"""Random JSON documents, and a writer of Cosmos binary JSON that draws a form for each value: any of those that the
format has for it, not only the ones that `binary_writer.py` prefers. Written for tests, from the format's description.
"""

from __future__ import annotations

import base64
import random
import struct
import uuid
from typing import Any

NAMES = ("id", "_rid", "type", "value", "city", "longer property name", "ä", "x" * 70, "coordinates", "$t", "")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_NUMBERS = (
    *((0, 2**8, 0xC8, "B"), (0, 2**8, 0xD7, "B"), (-(2**7), 2**7, 0xD8, "b"), (-(2**15), 2**15, 0xC9, "h")),
    *((-(2**15), 2**15, 0xD9, "h"), (-(2**31), 2**31, 0xCA, "i"), (-(2**31), 2**31, 0xDA, "i")),
    *((0, 2**32, 0xDC, "I"), (-(2**63), 2**63, 0xCB, "q"), (-(2**63), 2**63, 0xDB, "q"), (0, 2**64, 0xC7, "Q")),
)
_ITEMS = {0xD7: "B", 0xD8: "b", 0xD9: "h", 0xDA: "i", 0xDB: "q", 0xDC: "I", 0xCE: "d", 0xCD: "f"}


def random_text(dice: random.Random) -> str:
    length = dice.choice((0, 1, 5, 15, 16, 23, 24, 31, 40, 63, 64, 87, 88, 254, 255, 256, 300))
    kind = dice.randrange(8)
    if kind == 0:
        return "".join(dice.choices("0123456789abcdef", k=length))
    if kind == 1:
        return "".join(dice.choices("0123456789ABCDEF", k=length))
    if kind == 2:
        return "".join(dice.choices(" 0123456789:-.TZ", k=length))
    if kind == 3:
        guid = str(uuid.UUID(int=dice.getrandbits(128)))
        return dice.choice((guid, guid.upper(), f'"{guid}"'))
    if kind == 4:
        return base64.b64encode(dice.randbytes(length)).decode()
    if kind == 5:
        return "".join(chr(dice.choice((0x41, 0xE4, 0x20AC, 0x1F600, 0x0A, 0x22))) for _ in range(length))
    if kind == 6:
        return "".join(dice.choices(LETTERS[: dice.randrange(1, 27)], k=length))
    return "".join(chr(dice.randrange(128)) for _ in range(length))


def random_number(dice: random.Random) -> int | float:
    kind = dice.randrange(4)
    if kind == 0:
        return dice.choice(
            (0, -1, 31, 32, 255, 256, -128, -129, 2**15, 2**31, -(2**31) - 1, 2**53, -(2**63), 2**64 - 1)
        )
    if kind == 1:
        return dice.randrange(-(2 ** dice.randrange(1, 64)), 2 ** dice.randrange(1, 64))
    return dice.uniform(-1e6, 1e6) if kind == 2 else dice.choice((0.0, -0.0, 1.5, 1e308, 5e-324, -2.25))


def random_value(dice: random.Random, depth: int = 3) -> Any:
    kind = dice.randrange(9 if depth else 6)
    if kind < 2:
        return random_text(dice)
    if kind < 4:
        return random_number(dice)
    if kind == 4:
        return dice.choice((None, True, False))
    if kind == 5:
        return dice.choice(NAMES)
    if kind == 6:
        return [dice.randrange(-9, 300) for _ in range(dice.choice((2, 20, 300)))]
    count = dice.choice((0, 1, 2, 3, 17))
    if kind == 7:
        return [random_value(dice, depth - 1) for _ in range(count)]
    return {dice.choice(NAMES) + str(dice.randrange(9)) * dice.randrange(2): random_value(dice, depth - 1)
            for _ in range(count)}  # fmt: skip


def random_document(dice: random.Random) -> dict[str, Any]:
    return {dice.choice(NAMES): random_value(dice) for _ in range(dice.randrange(6))}


class AnyForm:
    """A writer for one document. Containers are written inside out, so references are to strings before the outermost
    one: `write` puts an array around the document where it wants any."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._places: dict[str, int] = {}

    def write(self, value: Any, *, wraps: bool = False) -> bytes:
        shared = [text for text in NAMES if text and self._dice.random() < 0.3][:5] if wraps else []
        if not shared:
            return b"\x80" + self._value(value)
        head = b""
        for text in shared:
            self._places[text] = 6 + len(head)  # after the preamble, the marker and a length of four bytes
            head += self._plain(text)
        head += self._value(value)
        return b"\x80\xe4" + len(head).to_bytes(4, "little") + head

    def _value(self, value: Any) -> bytes:
        if value is None or value is True or value is False:
            return {None: b"\xd0", False: b"\xd1", True: b"\xd2"}[value]
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int):
            forms = [(marker, letter) for low, end, marker, letter in _NUMBERS if low <= value < end]
            if 0 <= value < 32 and self._dice.random() < 0.5:
                return bytes([value])
            marker, letter = self._dice.choice(forms)
            return struct.pack(f"<B{letter}", marker, value)
        if isinstance(value, float):
            return struct.pack("<Bd", self._dice.choice((0xCC, 0xCE)), value)
        if isinstance(value, list):
            return self._numbers(value) or self._container(0xE0, [self._value(each) for each in value])
        return self._container(0xE8, [self._text(name) + self._value(each) for name, each in value.items()])

    def _container(self, empty: int, parts: list[bytes]) -> bytes:
        if len(parts) < 2 and self._dice.random() < 0.5:
            return bytes([empty + len(parts)]) + b"".join(parts)
        payload = b"".join(parts)
        width = self._dice.choice([each for each in (1, 2, 4) if max(len(payload), len(parts)) < 256**each])
        head = len(payload).to_bytes(width, "little")
        has_count = self._dice.random() < 0.5
        if has_count:
            head += len(parts).to_bytes(width, "little")
        return bytes([empty + 2 + width // 2 + 3 * has_count]) + head + payload

    def _numbers(self, values: list[Any]) -> bytes:
        """The form of uniform numbers, if there is one; else nothing."""
        if self._dice.random() < 0.3 or len(values) > 0xFFFF:
            return b""
        if values and all(type(each) is list and len(each) == len(values[0]) for each in values):
            flat = [number for each in values for number in each]
            kind = self._kind(flat)
            if kind is None or len(values) > 255 or len(values[0]) > 255 or not flat:
                return b""
            head = bytes([0xF2, 0xF0, kind, len(values[0]), len(values)])
            return head + struct.pack(f"<{len(flat)}{_ITEMS[kind]}", *flat)
        kind = self._kind(values)
        if kind is None:
            return b""
        is_short = len(values) < 256 and self._dice.random() < 0.7
        head = (
            struct.pack("<BBB", 0xF0, kind, len(values)) if is_short else struct.pack("<BBH", 0xF1, kind, len(values))
        )
        return head + struct.pack(f"<{len(values)}{_ITEMS[kind]}", *values)

    def _kind(self, values: list[Any]) -> int | None:
        if all(type(each) is float for each in values):
            return 0xCE
        if not all(type(each) is int for each in values):
            return None
        fitting = [
            kind for low, end, kind, _ in _NUMBERS if kind in _ITEMS and all(low <= each < end for each in values)
        ]
        return self._dice.choice(fitting) if fitting else None

    # Strings.

    def _text(self, text: str) -> bytes:
        place = self._places.get(text)
        if place is not None and self._dice.random() < 0.7:
            width = self._dice.choice([each for each in (1, 2, 3, 4) if place < 256**each])
            return bytes([0xC2 + width]) + place.to_bytes(width, "little")
        form = self._dice.randrange(3)
        return (form == 0 and (_guid(text) or _base64(text))) or (form == 1 and self._packed(text)) or self._plain(text)

    def _plain(self, text: str) -> bytes:
        encoded = text.encode()
        size = len(encoded)
        if size < 64 and self._dice.random() < 0.5:
            return bytes([0x80 + size]) + encoded
        width = self._dice.choice([each for each in (1, 2, 4) if size < 256**each])
        return bytes([0xC0 + width // 2]) + size.to_bytes(width, "little") + encoded

    def _packed(self, text: str) -> bytes:
        """Any packed form that has the characters, whatever the length is."""
        if not text or not text.isascii() or len(text) > 255:
            return b""
        codes = text.encode()
        low, high = min(codes), max(codes)
        forms: list[bytes] = [bytes([0x7E, len(text)]) + _bits(list(codes), 7)]
        forms.append(bytes([0x7F]) + len(text).to_bytes(2, "little") + _bits(list(codes), 7))
        for marker, bits in ((0x7B, 4), (0x7C, 5), (0x7D, 6)):
            if high - low < 1 << bits:
                forms.append(bytes([marker, len(text), low]) + _bits([code - low for code in codes], bits))
        for marker, alphabet in ((0x78, "0123456789abcdef"), (0x79, "0123456789ABCDEF"), (0x7A, " 0123456789:-.TZ")):
            if set(text) <= set(alphabet):
                forms.append(bytes([marker, len(text)]) + _bits([alphabet.index(each) for each in text], 4))
        return self._dice.choice(forms)


def _bits(codes: list[int], bits: int) -> bytes:
    number = sum(code << place * bits for place, code in enumerate(codes))
    return number.to_bytes((len(codes) * bits + 7) // 8, "little")


def _guid(text: str) -> bytes:
    bare = text.strip('"')
    try:
        digits = uuid.UUID(bare).hex
    except ValueError:
        return b""
    markers = {bare.lower(): 0x75, bare.upper(): 0x76, f'"{bare.lower()}"': 0x77}
    if text not in markers or len(bare) != 36:
        return b""
    return bytes([markers[text]]) + bytes(int(digits[at + 1] + digits[at], 16) for at in range(0, 32, 2))


def _base64(text: str) -> bytes:
    for marker, symbols in ((0x71, b"+/"), (0x73, b"-_")):
        padding = -len(text) % 4
        try:
            raw = base64.b64decode(text + "=" * padding, symbols, validate=True)
        except ValueError:
            continue
        if base64.b64encode(raw, symbols).decode() != text + "=" * padding or len(text) > 1000 or not text:
            continue
        needed = -len(raw) % 3
        given = needed if not padding else 255 - needed
        return bytes([marker, (len(text) + padding) // 4, given]) + raw
    return b""
