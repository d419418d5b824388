"""Throttling of background work. A `Slice` bounds one piece of it by milliseconds and bytes; a `Throttle` makes a long
copy yield to the event loop after each slice, and pause for another slice if requests were waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from armillary import limits
from armillary.clock import Clock


class Slice:
    """The time and bytes that a piece of background work may take before it yields to the event loop and other
    partitions."""

    def __init__(self, clock: Clock) -> None:
        self._elapsed_s = clock.elapsed_s
        self._until_s = clock.elapsed_s() + limits.UPKEEP_SECONDS
        self._left_bytes = limits.UPKEEP_BYTES
        self.is_over = False

    def takes(self, size_bytes: int) -> bool:
        """Count the bytes of a finished step; whether there is room for more."""
        self._left_bytes -= size_bytes
        if self._left_bytes > 0 and self._elapsed_s() < self._until_s:
            return True
        self.is_over = True
        return False


Entry = TypeVar("Entry", bytes, tuple[bytes, bytes])


def portions(entries: Iterable[Entry], entries_max: int) -> Iterator[list[Entry]]:
    """Stored items or key-value pairs in lists, bounded by entries and bytes: at least one in each."""
    portion: list[Entry] = []
    left_bytes = limits.UPKEEP_BYTES
    for entry in entries:
        portion.append(entry)
        left_bytes -= len(entry) if isinstance(entry, bytes) else len(entry[1])
        if left_bytes <= 0 or len(portion) == entries_max:
            yield portion
            portion, left_bytes = [], limits.UPKEEP_BYTES
    if portion:
        yield portion


class Throttle:
    """`share`: how many background tasks run at this time; they divide the slice among them."""

    def __init__(self, clock: Clock, share: Callable[[], int]) -> None:
        self._clock = clock
        self._share = share
        self._begun_s = clock.elapsed_s()

    async def rest(self) -> None:
        """Call often; waits only when the slice is used up."""
        elapsed_s = self._clock.elapsed_s
        now_s = elapsed_s()
        if now_s - self._begun_s < limits.COPY_SLICE_SECONDS / self._share():
            return
        await asyncio.sleep(0)
        others_s = elapsed_s() - now_s
        if others_s > limits.COPY_SLICE_SECONDS / 8:
            # Requests are waiting: some arrived during the slice, and more while these were answered.
            await self._clock.sleep(limits.COPY_SLICE_SECONDS)
        self._begun_s = elapsed_s()
