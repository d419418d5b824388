"""Reads Cosmos binary JSON, the form in which some clients send items. The result is the value that the JSON text of
the same document has; everything after that knows text only.

The body comes from a client, so it may be hostile. Every length is checked against the body; a reference leads to a
string, never to another reference; what takes more memory than it takes bytes (references, dictionary strings, arrays
of empty arrays) is counted and limited; nesting is limited as it is in JSON text. Reading a long body gives way to
other requests when it is run by `work.run`.
"""

from __future__ import annotations

import base64
import struct
from math import isfinite
from typing import Any, Final, NoReturn

from armillary import limits
from armillary.errors import bad_request
from armillary.model.binary_json import packed_strings
from armillary.model.binary_json import type_markers as m
from armillary.model.items import too_deep
from armillary.work import spend

_VALUES_COUNTED, _VALUE_UNITS = 256, 8  # values between two charges to the work budget, and the work for one
_CONSTANTS: Final = {m.NULL: None, m.FALSE: False, m.TRUE: True}
_STRING_LENGTH_BYTES: Final = {m.STRING_1: 1, m.STRING_2: 2, m.STRING_4: 4}
_REFERENCE_BYTES: Final = {m.REFERENCE_1: 1, m.REFERENCE_2: 2, m.REFERENCE_3: 3, m.REFERENCE_4: 4}
_BINARY_LENGTH_BYTES: Final = {m.BINARY_1: 1, m.BINARY_2: 2, m.BINARY_4: 4}
# The bytes of a container's length, and whether a count of the same width follows it.
_HEADS: Final = {
    first + place: (width, has_count)
    for first in (m.ARRAY_L1, m.OBJECT_L1)
    for place, (width, has_count) in enumerate([(1, False), (2, False), (4, False), (1, True), (2, True), (4, True)])
}


def decode(body: bytes) -> Any:
    """The value of a body that begins with the preamble. A malformed one is refused with the place and the cause."""
    reader = _Reader(body)
    try:
        value = reader.value(0)
    except (IndexError, struct.error):
        reader.refuse("the body ends in the middle of a value")
    except UnicodeDecodeError:
        reader.refuse("a string is not valid UTF-8")
    if reader.at != len(body):
        reader.refuse(f"{len(body) - reader.at} bytes follow the value")
    return value


class _Reader:
    """`at` is the place of the next marker, counted from the preamble as references count."""

    __slots__ = ("at", "body", "left", "referenced", "room_bytes")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 1
        self.left = _VALUES_COUNTED  # values until the next charge
        self.room_bytes = limits.BODY_BYTES_MAX  # of text that is not in the body
        self.referenced: dict[int, str] = {}

    def refuse(self, cause: str) -> NoReturn:
        raise bad_request(f"The request body is not valid Cosmos binary JSON: {cause}, at byte {self.at}.")

    def value(self, depth: int) -> Any:
        at = self.at
        marker = self.body[at]
        if marker < m.LITERAL_END:
            self.at = at + 1
            return marker
        if marker < m.UINT64:
            return self.string()
        if marker in m.NUMBERS:
            return self._number(marker)
        if marker in _CONSTANTS:
            self.at = at + 1
            return _CONSTANTS[marker]
        if marker >= m.ARRAY_0:
            if depth >= limits.ITEM_DEPTH_MAX:
                raise too_deep()
            return self._container(marker, depth + 1)
        if marker == m.GUID:
            return packed_strings.guid_text(self._bytes(1, packed_strings.GUID_BYTES))
        if marker in _BINARY_LENGTH_BYTES:
            width = _BINARY_LENGTH_BYTES[marker]
            return base64.b64encode(self._bytes(1 + width, self._integer(1, width))).decode()
        self._unknown(marker)

    def string(self) -> str:
        """The string at this place, in whichever of its forms."""
        at = self.at
        marker = self.body[at]
        if m.STRING <= marker < m.STRING_END:
            return self._bytes(1, marker - m.STRING).decode()
        if marker in _STRING_LENGTH_BYTES:
            width = _STRING_LENGTH_BYTES[marker]
            return self._bytes(1 + width, self._integer(1, width)).decode()
        if m.SYSTEM_STRING <= marker < m.USER_STRING_1:
            self.at = at + 1
            text = m.SYSTEM_STRINGS[marker - m.SYSTEM_STRING]
            self._take_room(len(text))
            return text
        if marker in _REFERENCE_BYTES:
            return self._reference(_REFERENCE_BYTES[marker])
        if marker in packed_strings.PACKINGS or marker in packed_strings.BASE64_LENGTH_BYTES:
            try:
                return self._packed(marker)
            except ValueError as error:  # UnicodeDecodeError too
                self.refuse(f"a packed string is malformed ({error})")
        if m.GUID_LOWER <= marker <= m.GUID_QUOTED:
            return packed_strings.unpack_guid(self._bytes(1, packed_strings.GUID_BYTES), marker)
        if m.USER_STRING_1 <= marker < m.USER_STRING_END:
            self._user_string(marker)
        if m.LITERAL_END <= marker < m.UINT64:
            self._unknown(marker)
        self.refuse(f"the type marker 0x{marker:02X} is not one of a string, which a property name must be")

    def _unknown(self, marker: int) -> NoReturn:
        self.refuse(f"the type marker 0x{marker:02X} is unknown")

    # Parts of a value.

    def _integer(self, after: int, width: int) -> int:
        """An unsigned number, so many bytes after the marker."""
        start = self.at + after
        given = self.body[start : start + width]
        if len(given) < width:
            raise IndexError
        return int.from_bytes(given, "little")

    def _bytes(self, after: int, size: int) -> bytes:
        """Bytes so many after the marker; the value ends with them."""
        start = self.at + after
        end = start + size
        if end > len(self.body):
            raise IndexError
        self.at = end
        return self.body[start:end]

    def _take_room(self, size_bytes: int) -> None:
        self.room_bytes -= size_bytes
        if self.room_bytes < 0:
            self.refuse(f"it stands for a text of more than {limits.BODY_BYTES_MAX // limits.MB} MB")

    def _count(self) -> None:
        self.left -= 1
        if not self.left:
            self.left = _VALUES_COUNTED
            spend(_VALUES_COUNTED * _VALUE_UNITS)

    # Numbers and strings.

    def _number(self, marker: int) -> int | float:
        layout = m.NUMBERS[marker]
        (number,) = layout.unpack_from(self.body, self.at + 1)
        if marker in m.FLOATS and not isfinite(number):
            self.refuse("JSON has no NaN and no infinity")
        self.at += 1 + layout.size
        return number  # type: ignore[no-any-return]

    def _reference(self, width: int) -> str:
        place, target = self.at, self._integer(1, width)
        text = self.referenced.get(target)
        if text is None:
            is_string = 0 < target < place and m.SYSTEM_STRING <= self.body[target] < m.UINT64
            if not is_string or self.body[target] in _REFERENCE_BYTES:
                self.refuse(f"a reference leads to byte {target}, where no earlier string begins")
            self.at = target
            text = self.referenced[target] = self.string()
        self.at = place + 1 + width
        self._take_room(len(text))
        return text

    def _packed(self, marker: int) -> str:
        packing = packed_strings.PACKINGS.get(marker)
        if packing is not None:
            characters = self._integer(1, packing.length_bytes)
            offset = self._integer(1 + packing.length_bytes, 1) if packing.has_offset else 0
            spend(characters)
            size = packed_strings.packed_bytes(characters, packing.bits)
            payload = self._bytes(1 + packing.length_bytes + packing.has_offset, size)
            return packed_strings.unpack(payload, characters, packing, offset)
        width = packed_strings.BASE64_LENGTH_BYTES[marker]
        padding, has_padding = packed_strings.base64_padding(self._integer(1 + width, 1))
        size = 3 * self._integer(1, width) - padding
        if size < 0:
            self.refuse("a base64 string is all padding")
        return packed_strings.unpack_base64(self._bytes(2 + width, size), marker, has_padding=has_padding)

    def _user_string(self, marker: int) -> NoReturn:
        number = marker - m.USER_STRING_1
        if marker >= m.USER_STRING_2:
            number = m.USER_STRING_2 - m.USER_STRING_1 + (marker - m.USER_STRING_2) * 256 + self.body[self.at + 1]
        self.refuse(f"it has the user string {number} of a dictionary, which is not part of the body")

    # Arrays and objects.

    def _container(self, marker: int, depth: int) -> Any:
        if marker in (m.ARRAY_0, m.OBJECT_0):
            self.at += 1
            return [] if marker == m.ARRAY_0 else {}
        if marker in (m.ARRAY_1, m.OBJECT_1):
            self.at += 1
            self._count()
            return [self.value(depth)] if marker == m.ARRAY_1 else {self.string(): self.value(depth)}
        if marker not in _HEADS:
            return self._numbers(marker, depth)
        width, has_count = _HEADS[marker]
        size = self._integer(1, width)
        count = self._integer(1 + width, width) if has_count else None
        self.at += 1 + width * (1 + has_count)
        end = self.at + size
        if end > len(self.body):
            raise IndexError
        read = self._array if marker < m.OBJECT_0 else self._object
        container, number = read(end, depth)
        if self.at != end:
            self.refuse("a value extends past the end of its array or object")
        if count is not None and count != number:
            self.refuse(f"an array or object has {number} values and says {count}")
        return container

    def _array(self, end: int, depth: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        while self.at < end:
            values.append(self.value(depth))
            self._count()
        return values, len(values)

    def _object(self, end: int, depth: int) -> tuple[dict[str, Any], int]:
        """The members, and their number: of two equal names the last one counts."""
        members: dict[str, Any] = {}
        number = 0
        while self.at < end:
            name = self.string()
            members[name] = self.value(depth)
            number += 1
            self._count()
        return members, number

    def _numbers(self, marker: int, depth: int) -> list[Any]:
        """An array of numbers of one type, or an array of such arrays of one length."""
        if marker in (m.NUMBERS_C1, m.NUMBERS_C2):
            width = 1 if marker == m.NUMBERS_C1 else 2
            kind, number = self._integer(1, 1), self._integer(2, width)
            self.at += 2 + width
            return self._items(kind, number)
        if marker not in (m.ARRAYS_C1, m.ARRAYS_C2):
            self._unknown(marker)
        width, inner = (1, m.NUMBERS_C1) if marker == m.ARRAYS_C1 else (2, m.NUMBERS_C2)
        if depth >= limits.ITEM_DEPTH_MAX:
            raise too_deep()
        if self._integer(1, 1) != inner:
            self.refuse("an array of arrays of numbers names another type of arrays")
        kind, number, arrays = self._integer(2, 1), self._integer(3, width), self._integer(3 + width, width)
        self.at += 3 + 2 * width
        if not number:
            self._items(kind, 0)  # refuses unknown types
            self._take_room(arrays * len("[],"))  # no bytes of the body stand for them
            spend(arrays // 10 + 1)
            return [[] for _ in range(arrays)]
        return [self._items(kind, number) for _ in range(arrays)]

    def _items(self, kind: int, number: int) -> list[int | float]:
        letter = m.ITEM_FORMATS.get(kind)
        if letter is None:
            self.refuse(f"the type marker 0x{kind:02X} is not one that an array of numbers may have")
        values = struct.unpack_from(f"<{number}{letter}", self.body, self.at)
        if kind in m.FLOATS and not all(map(isfinite, values)):
            self.refuse("JSON has no NaN and no infinity")
        spend(number // 10 + 1)
        self.at += number * m.NUMBERS[kind].size
        return list(values)
