"""Dice from a seed that fall as java.util.Random's do: SeedStrategy gives what it gives on TinkerPop's own graphs, as
far as steps throw in the same order.
"""

from __future__ import annotations

from typing import Final

# The congruence that the documentation of java.util.Random states.
_FACTOR: Final = 0x5DEECE66D
_SUMMAND: Final = 0xB
_MASK: Final = (1 << 48) - 1
_INTS: Final = 1 << 31


class SeededDice:
    def __init__(self, seed: int) -> None:
        self._state = (seed ^ _FACTOR) & _MASK

    def _bits(self, count: int) -> int:
        self._state = (self._state * _FACTOR + _SUMMAND) & _MASK
        return self._state >> (48 - count)

    def number(self) -> float:
        """From 0 to 1."""
        return float((self._bits(26) << 27) + self._bits(27)) / (1 << 53)

    def below(self, limit: int) -> int:
        """A whole number from 0, less than the limit."""
        if limit >= _INTS:
            return int(self.number() * limit)
        if limit & (limit - 1) == 0:
            return (limit * self._bits(31)) >> 31
        while True:
            thrown = self._bits(31)
            found = thrown % limit
            if thrown - found + limit - 1 < _INTS:  # else the last, shorter stretch: some would be likelier
                return found
