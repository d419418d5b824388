"""Snapshot files on their way to and from clients of the control API, part by part. The last part may be asked for, or
sent, again: its answer may have been lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count

from armillary import audit, limits
from armillary.account.account import Account
from armillary.account.catalog.records import Record
from armillary.account.snapshots.snapshot_files import parts
from armillary.account.snapshots.snapshot_import import SnapshotImport
from armillary.account.snapshots.snapshots import Snapshot
from armillary.errors import Failure, Kind, bad_request


class Sending:
    """A snapshot on its way to a client."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._parts = parts(snapshot)
        self._lock = asyncio.Lock()
        self._number = -1  # of the part that was made last
        self._last: bytes | None = b""  # None: there are no more

    async def part(self, number: int) -> bytes | None:
        """The next part, or the last one again. None: there are no more."""
        async with self._lock:
            if number == self._number + 1:
                self._last = await _joined(self._parts)
                self._number = number
        if number != self._number:
            raise bad_request(f"Ask for the parts in order: {self._number + 1} is next, not {number}.")
        return self._last


async def _joined(made: AsyncIterator[bytes]) -> bytes | None:
    """Some parts together: many are small. None: there are no more."""
    parts_together: list[bytes] = []
    size_bytes = 0
    while size_bytes < limits.SNAPSHOT_ANSWER_BYTES and (part := await anext(made, None)) is not None:
        parts_together.append(part)
        size_bytes += len(part)
        await asyncio.sleep(0)  # other requests are served between two parts
    return b"".join(parts_together) or None


class Receiving:
    """A restore whose file is being received."""

    def __init__(self, arrival: SnapshotImport, now_s: float) -> None:
        self.arrival = arrival
        self.lock = asyncio.Lock()
        self.next_part = 0
        self.heard_s = now_s


class Transfers:
    """The files that are being sent and received."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._sending: dict[str, Sending] = {}
        self._receiving: dict[str, Receiving] = {}
        self._numbers = count(1)

    async def part(self, name: str, snapshot: Snapshot, number: int) -> bytes | None:
        """A part of the file of a snapshot. None: there are no more."""
        sending = self._sending.get(name)
        if number == 0 or sending is None or sending.snapshot is not snapshot:
            audit.record("snapshot.sent", name=name, scope="/".join(snapshot.scope))
            sending = self._sending[name] = Sending(snapshot)
        return await sending.part(number)

    def forget(self, name: str) -> None:
        """End the sending of a snapshot that was deleted."""
        self._sending.pop(name, None)

    async def begin(self, target: tuple[str, ...] | None, *, replaces: bool) -> str:
        """Begin to receive a file; the id of the restore. Restores that went silent are abandoned first."""
        now_s = self._account.clock.elapsed_s()
        for name, each in list(self._receiving.items()):
            if now_s - each.heard_s > limits.RESTORE_IDLE_SECONDS:
                await self.abandon(name)
        if len(self._receiving) >= limits.RESTORES_MAX:
            raise Failure(
                Kind.CONFLICT,
                f"{limits.RESTORES_MAX} restores are running, which is the most. Try again when one has ended.",
            )
        name = str(next(self._numbers))
        arrival = SnapshotImport(self._account, target, replaces=replaces)
        self._receiving[name] = Receiving(arrival, now_s)
        return name

    def receiving(self, name: str) -> Receiving:
        found = self._receiving.get(name)
        if found is None:
            raise Failure(
                Kind.NOT_FOUND, "There is no such restore: it ended, or sent nothing for too long. Begin again."
            )
        return found

    async def receive(self, name: str, number: int, body: bytes) -> None:
        """Take the next part of a file in. A restore whose part fails is abandoned."""
        receiving = self.receiving(name)
        async with receiving.lock:
            if number == receiving.next_part - 1:
                return  # its answer was lost
            if number != receiving.next_part:
                raise bad_request(f"Send the parts in order: {receiving.next_part} is next, not {number}.")
            try:
                await receiving.arrival.feed(body)
            except BaseException:
                await self.abandon(name)
                raise
            receiving.next_part += 1
            receiving.heard_s = self._account.clock.elapsed_s()

    async def finish(self, name: str) -> tuple[list[Record], int]:
        """What was restored, and the number of its items."""
        receiving = self.receiving(name)
        async with receiving.lock:
            try:
                records = await receiving.arrival.finish()
            except BaseException:
                await self.abandon(name)
                raise
            del self._receiving[name]
        return records, receiving.arrival.item_count

    async def abandon(self, name: str) -> None:
        receiving = self._receiving.pop(name, None)
        if receiving is not None:
            await receiving.arrival.abandon()
