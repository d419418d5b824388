"""Digests of a replica's whole state at marks of the log, by which `armillary cluster verify` compares nodes.

When a node passes a mark, everything below it is applied and nothing above: the state is pinned in that moment and
digested in the background, in portions that give way to requests. The position of the replica is not part of it.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from functools import partial
from hashlib import blake2b
from typing import Final

from armillary import limits, work
from armillary.storage.disk_errors import translated
from armillary.storage.rocks_database import KeptState

_log = logging.getLogger(__name__)
_LENGTHS: Final = struct.Struct(">II")
_STORES_END: Final = b"\xff\xff\xff\xff"  # behind it are the replica's own notes
_PAIR_UNITS: Final = 15
_UNIT_BYTES: Final = 128


class StateDigests:
    """Of the newest marks that a replica has passed since it was opened."""

    def __init__(self) -> None:
        self._digests: dict[int, bytes] = {}
        self._pinned: dict[int, KeptState] = {}  # not digested yet, the oldest first
        self._task: asyncio.Task[None] | None = None

    def begin(self, seq: int, state: KeptState) -> None:
        """Digest the state at a mark."""
        self._pinned[seq] = state
        while len(self._pinned) > limits.STATE_DIGESTS_MAX:
            self._pinned.pop(next(iter(self._pinned))).release()
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    def of(self, seq: int) -> bytes | None:
        """None: it is not computed yet, or was not, or is kept no more."""
        return self._digests.get(seq)

    def is_pending(self, seq: int) -> bool:
        """Whether the state at a mark is still to be digested."""
        return seq in self._pinned

    async def end(self) -> None:
        """Let go of the database."""
        for state in self._pinned.values():
            state.release()
        self._pinned.clear()
        if self._task is not None:
            await self._task  # its next step fails

    async def _run(self) -> None:
        while self._pinned:
            seq, state = next(iter(self._pinned.items()))
            try:
                self._digests[seq] = await work.run(partial(digest_of_state, state))
            except Exception as error:
                _log.warning("the state at mark %d was not digested: %s", seq, translated(error) or error)
            finally:
                state.release()
                self._pinned.pop(seq, None)
            while len(self._digests) > limits.STATE_DIGESTS_MAX:
                del self._digests[next(iter(self._digests))]
        self._task = None


def digest_of_state(state: KeptState) -> bytes:
    """Over all keys and values of all stores, in order. May give way."""
    digest = blake2b(digest_size=32)
    for key, value in state.scan(b"", _STORES_END, 0):
        digest.update(_LENGTHS.pack(len(key), len(value)))
        digest.update(key)
        digest.update(value)
        work.spend(_PAIR_UNITS + (len(key) + len(value)) // _UNIT_BYTES)
    return digest.digest()
