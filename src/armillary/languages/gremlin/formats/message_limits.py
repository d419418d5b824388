"""Limits on the values of one message: memory and depth are counted while GraphSON and GraphBinary are read.

A few bytes can stand for much: a bulk set says how often it holds each value, and comparing a key of a map visits all
of its parts. So a value counts as often as it is repeated, and once more if it is a key or a member of a set.
"""

from __future__ import annotations

from typing import Any, Final

from armillary import limits
from armillary.languages.gremlin.errors import malformed

SCALAR: Final = 40  # bytes of a number and its slot in a list
COMPOUND: Final = 120  # bytes of a small list, map, element or date
ENTRY: Final = 80  # bytes of an entry of a map or set, without key and value
PLACE: Final = 8  # bytes of a slot in a list


class Allowance:
    """The memory that is left to the message being read, and the depth of the value being read."""

    __slots__ = ("depth", "left")

    def __init__(self, bytes_max: int = limits.GREMLIN_MESSAGE_MEMORY_BYTES_MAX) -> None:
        self.left = bytes_max
        self.depth = -1  # the outermost value is not nested

    def enter(self, cost: int) -> None:
        """Begins a value that may hold others; `leave` ends it."""
        self.depth += 1
        if self.depth > limits.GREMLIN_MESSAGE_DEPTH_MAX:
            raise malformed(f"A message is nested at most {limits.GREMLIN_MESSAGE_DEPTH_MAX} deep.")
        self.left -= cost
        if self.left < 0:
            self.refuse()

    def leave(self) -> None:
        self.depth -= 1

    def spend(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            self.refuse()

    def spend_key(self, key: Any, left_before: int) -> None:
        """A key of a map that has been read since `left_before`. All parts of a key that is no text are held twice."""
        self.spend(ENTRY if type(key) is str else ENTRY + left_before - self.left)

    def spend_members(self, count: int, left_before: int) -> None:
        """Members of a set that have been read since `left_before`: they are held twice, as values and as keys."""
        self.spend(ENTRY * count + left_before - self.left)

    def spend_repeated(self, count: int, left_before: int) -> None:
        """A value of a bulk set that has been read since `left_before`, once for each of its repetitions."""
        self.spend((PLACE + left_before - self.left) * count)

    def refuse(self) -> None:
        most = limits.GREMLIN_MESSAGE_MEMORY_BYTES_MAX // limits.MB
        raise malformed(f"The values of the message would take more than {most} MB. Send fewer of them at once.")
