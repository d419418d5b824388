"""What the values of one message may take: memory is counted while they are made, and so is the work of comparing
them, which grows with their size.

A few bytes can stand for much: a bulk set says how often each value is in it, and a key of a map is looked through to
its bottom. So a value counts as often as it is repeated, and once more where it is a key or a member of a set.
"""

from __future__ import annotations

from typing import Final

from armillary import limits
from armillary.languages.gremlin.errors import malformed

SCALAR: Final = 40  # bytes of a number with its place in a list
COMPOUND: Final = 120  # of a small list, map, element or date
ENTRY: Final = 80  # of a map or set, beside key and value
PLACE: Final = 8


class Allowance:
    __slots__ = ("depth", "left")

    def __init__(self, bytes_max: int = limits.GREMLIN_MESSAGE_MEMORY_BYTES_MAX) -> None:
        self.left = bytes_max
        self.depth = -1  # the outermost value is not nested

    def enter(self, cost: int) -> None:
        """Begin a value that may hold others, inside of those that were begun and not left."""
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

    def refuse(self) -> None:
        most = limits.GREMLIN_MESSAGE_MEMORY_BYTES_MAX // limits.MB
        raise malformed(f"The values of the message would take more than {most} MB. Send fewer of them at once.")
