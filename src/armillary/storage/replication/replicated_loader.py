"""Bulk loading of a store through the log, in transactions of limited size, so that every node has it. It costs the log
the bytes of the copy.

Copies take turns with the writes of clients. Few portions are in the group commit at a time, so a copy holds neither
memory nor the log for longer than one of them takes. While clients write, each portion is followed by a pause that
leaves them their share of the appends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from armillary import limits
from armillary.clock import Clock
from armillary.storage.engine import Txn
from armillary.storage.overlay import Pair


class Submit(Protocol):
    def __call__(self, prefix: bytes, fn: Callable[[Txn], None]) -> asyncio.Future[None]: ...


class LoadTurns:
    """The turns of all copies of one engine."""

    def __init__(self, clock: Clock, transactions: Callable[[], int]) -> None:
        """`transactions`: how many are acknowledged."""
        self._clock = clock
        self._transactions = transactions
        self._portions: set[asyncio.Future[None]] = set()  # submitted, and not answered
        self._next_s = float("-inf")  # when the next portion may be submitted

    def add(self, portion: asyncio.Future[None]) -> None:
        """A portion was submitted."""
        begun_s, before = self._clock.elapsed_s(), self._transactions()
        self._portions.add(portion)

        def end(_: asyncio.Future[Any]) -> None:
            self._portions.discard(portion)
            if self._transactions() - before > limits.LOAD_PORTIONS_MAX:  # clients have written meanwhile
                now_s = self._clock.elapsed_s()
                pause_s = (now_s - begun_s) * (1 / limits.LOAD_SHARE - 1)
                self._next_s = max(self._next_s, now_s + min(pause_s, limits.LOAD_PAUSE_SECONDS_MAX))

        portion.add_done_callback(end)

    async def next(self) -> None:
        """Until another portion may be submitted."""
        while len(self._portions) >= limits.LOAD_PORTIONS_MAX:
            await asyncio.wait(self._portions, return_when=asyncio.FIRST_COMPLETED)
        pause_s = self._next_s - self._clock.elapsed_s()
        if pause_s > 0:
            await self._clock.sleep(pause_s)


class ReplicatedLoader:
    """Implements Loader."""

    def __init__(self, submit: Submit, prefix: bytes, turns: LoadTurns) -> None:
        self._submit_function = submit
        self._prefix = prefix
        self._turns = turns
        self._pairs: list[Pair] = []
        self._size_bytes = 0
        self._written: list[asyncio.Future[None]] = []

    def put(self, pairs: Sequence[Pair]) -> None:
        self._pairs.extend(pairs)
        self._size_bytes += sum(len(key) + len(value) for key, value in pairs)
        if self._size_bytes >= limits.LOG_ROW_BYTES_MAX // 2:
            self._submit()

    async def ready(self) -> None:
        await self._turns.next()
        for each in self._written:
            if each.done():
                each.result()  # raises: nothing more need be copied

    async def finish(self) -> None:
        self._submit()
        await asyncio.gather(*self._written)
        self._written.clear()

    def abandon(self) -> None:
        self._pairs.clear()
        for each in self._written:
            each.cancel()

    def _submit(self) -> None:
        pairs, self._pairs, self._size_bytes = self._pairs, [], 0
        if not pairs:
            return

        def run(txn: Txn) -> None:
            for key, value in pairs:
                txn.put(key, value)

        self._written = [each for each in self._written if not each.done() or each.exception() is not None]
        portion = self._submit_function(self._prefix, run)
        self._written.append(portion)
        self._turns.add(portion)
