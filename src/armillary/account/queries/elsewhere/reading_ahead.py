"""Reads of a slice that are begun before their turn, so that several places work for a page at the same time. How many
slices of a page are read ahead is for the page to say (`limits.SLICES_AHEAD_MAX` at most); of one slice it is as much
as one read may give, so that the memory of a page stays bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from armillary import limits


class RowsRead(Protocol):
    """What a question about a slice was answered with (`slice_questions.SliceRead`)."""

    @property
    def row_count(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def is_out_of_time(self) -> bool:
        """It has ended in the middle, because other requests were to have their turn."""


Read = TypeVar("Read", bound=RowsRead)


class Bounds(NamedTuple):
    """Of one read."""

    max_items: int
    max_bytes: int


class ReadingAhead(Generic[Read]):
    """The questions of one slice, one after the other, until all is read or as many rows are here as one read gives."""

    def __init__(self, bounds: Bounds, ask: Callable[[Bounds], Awaitable[Read]]) -> None:
        self._given: asyncio.Queue[tuple[Bounds, Read] | Exception | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(bounds, ask))

    async def _run(self, bounds: Bounds, ask: Callable[[Bounds], Awaitable[Read]]) -> None:
        try:
            while True:
                read = await ask(bounds)
                self._given.put_nowait((bounds, read))
                bounds = Bounds(bounds.max_items - read.row_count, bounds.max_bytes - read.size_bytes)
                if not read.is_out_of_time or bounds.max_items <= 0 or bounds.max_bytes <= 0:
                    break
        except Exception as error:  # whatever it is, it is raised where the read is waited for
            self._given.put_nowait(error)
        else:
            self._given.put_nowait(None)

    async def take(self) -> tuple[Bounds, Read] | None:
        """The next read, with the bounds that it was given; None: there was no further one. Raises what the question
        has raised."""
        given = await self._given.get()
        if isinstance(given, Exception):
            raise given
        return given

    def cancel(self) -> None:
        """What was not taken is not wanted."""
        self._task.cancel()


def count_ahead(read: int, given: int, room: int) -> int:
    """How many slices to read before their turn, if so many were read, have given so many rows, and the page has room
    for so many more: those that it takes if they give as much."""
    if room <= 0:
        return 0
    return min(limits.SLICES_AHEAD_MAX, room * read // given if given else limits.SLICES_AHEAD_MAX)
