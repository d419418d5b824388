"""Ids of new elements and properties: UUIDs of version 7, which are in the order in which they were made. Properties
that are ordered by their ids come in the order in which they were added, as on TinkerPop's own graphs.
"""

from __future__ import annotations

from armillary.clock import Clock

_VARIANT = 0b10 << 62
_RANDOM_BITS = (1 << 62) - 1


class OrderedIds:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0  # milliseconds, and a count within them

    def new(self) -> str:
        # Time may stand still or be set back; ids go on.
        self._last = max(self._last + 1, int(self._clock.now_s() * 1000) << 12)
        chance = int.from_bytes(self._clock.random_bytes(8), "big") & _RANDOM_BITS | _VARIANT
        head, tail = f"{self._last >> 12:012x}", f"{chance:016x}"
        return f"{head[:8]}-{head[8:]}-7{self._last & 0xFFF:03x}-{tail[:4]}-{tail[4:]}"
