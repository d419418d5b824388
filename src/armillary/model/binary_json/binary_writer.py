"""Writes Cosmos binary JSON, for clients that ask for it in answers. The forms are those that every reader of the
format knows: sized numbers, system strings, packed strings, references to earlier strings, and arrays and objects with
their length. The reader (`binary_reader.py`) takes the others too.

References are places in the body, so the size of each header must be known before what follows it: all arrays and
objects of a body have lengths of the same width, which the size of the JSON text decides.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from armillary.model.binary_json import type_markers as m
from armillary.model.binary_json.packed_strings import pack
from armillary.work import spend

# Binary JSON is at most so many times as long as the text: a one-digit number with a fraction takes 9 bytes for 3, an
# array of two empty arrays 11 for 7.
_GROWTH: Final = 4
_VALUE_UNITS: Final = 10  # of work for one value
_PORTION: Final = 256  # values between two charges to the work budget
_REFERENCED_BYTES_MIN, _REFERENCED_BYTES_MAX = 5, 88  # of strings; longer ones are seldom repeated
_REFERENCES: Final = ((0xFF, m.REFERENCE_1, 1), (0xFFFF, m.REFERENCE_2, 2), (0xFFFFFF, m.REFERENCE_3, 3))
_INTEGERS: Final = (
    (0, 2**8, m.NUMBER_UINT8, Struct("<BB")),
    (-(2**15), 2**15, m.NUMBER_INT16, Struct("<Bh")),
    (-(2**31), 2**31, m.NUMBER_INT32, Struct("<Bi")),
    (-(2**63), 2**63, m.NUMBER_INT64, Struct("<Bq")),
    (0, 2**64, m.UINT64, Struct("<BQ")),
)
_DOUBLE: Final = Struct("<Bd")


def encode(value: Any, text_bytes: int) -> bytes:
    """The binary form of a value of JSON, whose text has so many bytes."""
    size = text_bytes * _GROWTH
    writer = _Writer(1 if size <= 0xFF else 2 if size <= 0xFFFF else 4)
    writer.write(value)
    return bytes(writer.out)


class _Writer:
    __slots__ = ("_left", "_places", "_width", "out")

    def __init__(self, width: int) -> None:
        self.out = bytearray([m.PREAMBLE])
        self._width = width  # of all lengths
        self._places: dict[str, bytes] = {}  # of strings that were written, as references
        self._left = _PORTION

    def write(self, value: Any) -> None:
        out = self.out
        kind = type(value)
        if kind is str:
            self._write_string(value, is_name=False)
        elif kind is int:
            out += _integer(value)
        elif kind is float:
            out += _DOUBLE.pack(m.NUMBER_DOUBLE, value)
        elif value is None:
            out.append(m.NULL)
        elif kind is bool:
            out.append(m.TRUE if value else m.FALSE)
        elif kind is dict:
            self._write_object(value)
        else:
            self._write_array(value)

    def _write_string(self, text: str, *, is_name: bool) -> None:
        out = self.out
        marker = m.SYSTEM_STRING_MARKERS.get(text)
        if marker is not None:
            out += marker
            return
        reference = self._places.get(text)
        if reference is not None:
            out += reference
            return
        packed = None if is_name else pack(text)
        if packed is not None:
            out += packed
            return
        encoded = text.encode()
        size = len(encoded)
        if _REFERENCED_BYTES_MIN <= size <= _REFERENCED_BYTES_MAX:
            self._places[text] = _reference(len(out))
        if size < m.STRING_END - m.STRING:
            out.append(m.STRING + size)
        elif size <= 0xFF:
            out += bytes([m.STRING_1, size])
        elif size <= 0xFFFF:
            out.append(m.STRING_2)
            out += size.to_bytes(2, "little")
        else:
            out.append(m.STRING_4)
            out += size.to_bytes(4, "little")
        out += encoded

    def _write_object(self, members: dict[str, Any]) -> None:
        out = self.out
        if not members:
            out.append(m.OBJECT_0)
            return
        if len(members) == 1:
            out.append(m.OBJECT_1)
            ((name, value),) = members.items()
            self._write_string(name, is_name=True)
            self.write(value)
            return
        start = self._begin(m.OBJECT_L1)
        for name, value in members.items():
            self._write_string(name, is_name=True)
            self.write(value)
            self._count()
        self._end(start)

    def _write_array(self, values: list[Any]) -> None:
        out = self.out
        if not values:
            out.append(m.ARRAY_0)
            return
        if len(values) == 1:
            out.append(m.ARRAY_1)
            self.write(values[0])
            return
        start = self._begin(m.ARRAY_L1)
        for value in values:
            self.write(value)
            self._count()
        self._end(start)

    def _begin(self, marker: int) -> int:
        """Write the header of a container with a length to be known later; the place after it."""
        width = self._width
        self.out.append(marker + width // 2)  # lengths of 1, 2 and 4 bytes follow one another
        self.out += bytes(width)
        return len(self.out)

    def _end(self, start: int) -> None:
        self.out[start - self._width : start] = (len(self.out) - start).to_bytes(self._width, "little")

    def _count(self) -> None:
        self._left -= 1
        if not self._left:
            self._left = _PORTION
            spend(_PORTION * _VALUE_UNITS)


def _integer(value: int) -> bytes:
    if 0 <= value < m.LITERAL_END:
        return bytes([value])
    for low, end, marker, layout in _INTEGERS:
        if low <= value < end:
            return layout.pack(marker, value)
    return _DOUBLE.pack(m.NUMBER_DOUBLE, float(value))


def _reference(place: int) -> bytes:
    for most, marker, width in _REFERENCES:
        if place <= most:
            return bytes([marker]) + place.to_bytes(width, "little")
    return bytes([m.REFERENCE_4]) + place.to_bytes(4, "little")
