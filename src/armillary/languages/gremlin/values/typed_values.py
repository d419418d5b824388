"""Values that remember which of Gremlin's types they came as, where Python has one type for several: whole numbers by
their width, single precision, characters, UUIDs, sets and bulk sets. Graph elements, paths and trees are in `elements`.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final, Self

_FLOAT32_MAX: Final = 3.4028235e38
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Long(int):
    """64 bits, told apart from `int` only where a wire format asks."""


class Byte(int):
    pass


class Short(int):
    pass


class BigInt(int):
    """Beyond 64 bits it has a hash of its own: those of Python's whole numbers repeat every 2**61 - 1, and a message
    could name any number of keys with one hash."""

    def __hash__(self) -> int:
        return int.__hash__(self) if -(2**63) <= self < 2**63 else hash(f"{self:x}")


class Float32(float):
    """As it was written; what 32 bits cannot hold is infinite."""

    def __new__(cls, value: Any) -> Self:
        number = float(value)
        return super().__new__(cls, math.copysign(math.inf, number) if abs(number) > _FLOAT32_MAX else number)


class Char(str):
    pass


class Uuid(str):
    pass


class Set(list[Any]):
    """Values without repeats, in the order they came; equality of values is not Python's, so it is no `set`."""


class BulkSet(list[Any]):
    """The collection of aggregate(), as cap() gives it. It is sent as a bulk set in GraphSON 3 and GraphBinary and as a
    list otherwise.
    """


def parse_uuid(text: str) -> Uuid | None:
    """The UUID in lower case, as it is stored and compared; None if the text is not one."""
    return Uuid(text.lower()) if _UUID.fullmatch(text) else None
