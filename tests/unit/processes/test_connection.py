"""Frames between two processes, in whatever pieces they arrive."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
from collections.abc import Callable

import pytest
import uvloop

from armillary.clock import VirtualClock
from armillary.errors import Failure
from armillary.processes.catalog_owner import FIRST, CatalogOwner, Committed
from armillary.processes.catalog_questions import CommitChange
from armillary.processes.catalog_replica import CatalogReplica
from armillary.processes.connection import ProcessConnection, connect
from armillary.processes.places import Places, ProcessHere
from armillary.storage.memory import MemoryEngine

MB = 1024 * 1024


async def _first() -> ProcessHere:
    replica = CatalogReplica()
    here = ProcessHere(Places(FIRST, 2, VirtualClock()), replica, VirtualClock())
    here.owner = await CatalogOwner.open(MemoryEngine().store(0), replica)
    here.opened.set()
    return here


def _second() -> ProcessHere:
    return ProcessHere(Places(1, 2, VirtualClock()), CatalogReplica(), VirtualClock())


def _change(write_id: bytes, version: int, value: bytes) -> CommitChange:
    return CommitChange(1, write_id, version, {b"key": value}, [], is_freeing=False)


def test_a_connection_to_a_process_that_has_ended_closes_its_descriptor_once() -> None:
    """With the loop of the server: a file that is opened in between may have got the same number."""

    async def run() -> None:
        first = await _first()
        end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        other.close()
        with pytest.raises(Failure):
            await connect(end, first, FIRST, first.places.write_ids)
        opened = os.open(os.devnull, os.O_RDONLY)
        del end
        gc.collect()
        os.fstat(opened)
        os.close(opened)

    uvloop.run(run())


async def test_a_long_message_comes_whole(seed: int) -> None:
    first, second = await _first(), _second()
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    accepting = connect(ends[0], first, FIRST, first.places.write_ids)
    dialing = connect(ends[1], second, 1, second.places.write_ids)
    _, (link, dialed) = await asyncio.gather(accepting, dialing)
    gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    first.on_left = gone.set_result
    value = random.Random(seed).randbytes(8 * MB)
    try:
        committed: Committed = await link.ask(_change(link.new_write_id(), 1, value), limit_s=60.0)
        assert committed.version == 2
        assert first.replica.pairs() == {b"key": value}
    finally:
        dialed.end()
        assert await gone == 1


class _Cutting(asyncio.Transport):
    """Gives the other side what is written in pieces of any size: the greeting and lengths are cut, too."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.receive: Callable[[bytes], None] | None = None
        self._dice = dice
        self._written = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += data
        asyncio.get_running_loop().call_soon(self._pass_on)

    def _pass_on(self) -> None:
        assert self.receive is not None
        while self._written:
            size = self._dice.randrange(1, 40)
            piece = bytes(self._written[:size])
            del self._written[:size]
            self.receive(piece)


async def test_frames_in_small_pieces(seed: int) -> None:
    dice = random.Random(seed)
    first, second = await _first(), _second()
    asking = ProcessConnection(second, 1, second.places.write_ids)
    answering = ProcessConnection(first, FIRST, first.places.write_ids)
    for each, other in ((asking, answering), (answering, asking)):
        transport = _Cutting(dice)
        transport.receive = other.data_received
        each.connection_made(transport)
    link = await asking.greeted
    for version in range(1, 20):
        question = _change(link.new_write_id(), version, dice.randbytes(dice.randrange(3000)))
        committed: Committed = await link.ask(question, limit_s=60.0)
        assert committed.version == version + 1
