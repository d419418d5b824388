"""When the writers of a partition wait: while its split or merge completes, and while it has promised the writes of a
transaction over several processes, which are stored and wait for the commit. Readers go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.model.ranges import KeyRange


class HeldWriters:
    """Of a partition."""

    range: KeyRange
    is_moved: bool  # other partitions own its keys now: reads here may be stale
    _shut: Failure | None  # why writes are refused now
    _gate: asyncio.Event | None  # set when a hold ends
    _promised: Failure | None = None  # why writes are refused while it has promised some; None: it has not

    # While a cut-over completes.

    def hold(self) -> None:
        """Start no more transactions: writers get RANGE_BUSY and may wait for `released`. A transaction that has given
        way is still finished: `settle` waits for it."""
        assert self._shut is None
        self._gate = asyncio.Event()
        self._shut = Failure(
            Kind.RANGE_BUSY,
            f"The partition key range {self.range.id} is completing its split or merge. Try again at once.",
        )

    def release(self) -> None:
        """End the hold: the partition serves writes again."""
        assert self._gate is not None
        self._shut = None
        self._gate.set()
        self._gate = None

    def move(self) -> None:
        """End the hold: other partitions own the keys now. Running reads may finish."""
        assert self._gate is not None
        self.is_moved = True
        self._gate.set()

    def close(self, reason: Failure | None = None) -> None:
        """The container was deleted: requests that still refer to this partition must not write to its store."""
        self._shut = reason or Failure(Kind.OWNER_NOT_FOUND, "The container was deleted meanwhile.")
        if self._gate is not None:
            self._gate.set()

    # While writes are promised.

    def promise(self) -> None:
        """Nothing is written until the promised writes are, or are given up: they were checked against what is stored
        now."""
        assert self._shut is None
        self._gate = asyncio.Event()
        self._shut = self._promised = Failure(
            Kind.RANGE_BUSY,
            f"A transaction over several processes is being committed in the partition key range {self.range.id}. Try "
            "again at once.",
        )

    def end_promise(self) -> None:
        promised, self._promised = self._promised, None
        if promised is not None and self._shut is promised:
            self.release()

    @property
    def is_promised(self) -> bool:
        """Also false once its container was deleted: what was promised is not written then."""
        return self._promised is not None and self._shut is self._promised

    # Writers that wait.

    @property
    def is_open(self) -> bool:
        """Whether writers are neither held nor refused."""
        return self._shut is None

    @property
    def is_held(self) -> bool:
        return self._gate is not None and not self._gate.is_set()

    async def released(self) -> None:
        """Wait, for a limited time, until the hold has ended."""
        if self._gate is None:
            return
        try:
            await asyncio.wait_for(self._gate.wait(), limits.HOLD_SECONDS_MAX)
        except TimeoutError:
            self._check_open()

    def _check_open(self) -> None:
        if self._shut is not None:
            raise Failure(self._shut.kind, self._shut.message)


async def hold_all(partitions: Sequence[HeldWriters]) -> None:
    """Hold the writers of all of them at once, when none has promised writes any more."""
    while promised := [each for each in partitions if each.is_promised]:
        gate = promised[0]._gate
        assert gate is not None
        await gate.wait()
    for each in partitions:
        each.hold()
