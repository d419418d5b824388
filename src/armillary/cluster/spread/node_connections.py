"""The connection between two nodes over which they ask each other for partitions: one that `Peers.relay` has handed
over, so it is authenticated and encrypted as all between nodes. Frames are those of processes of one server
(`processes/connection.py`). Each side tells first which node and which run of it this is, whether it has the catalog,
and whose catalog it follows. A side from which nothing comes for some seconds is given up.
"""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from hashlib import blake2b
from typing import ClassVar, Final, NamedTuple

from armillary import limits
from armillary.account.visits.elsewhere.link import Link
from armillary.account.visits.elsewhere.remembered_answers import WriteIds
from armillary.processes.connection import Connecting, ProcessConnection

DOOR: Final = "places"  # what `Peers.relay` is asked for
_HELLO: Final = struct.Struct(">16sQ8sQQ")
_MAGIC: Final = b"armillary nodes1"
_NUMBERS_FROM: Final = 1 << 16  # above those of logs
_NUMBER_BYTES: Final = 6
_BEAT: Final = b""


def node_number(name: str) -> int:
    """A node as one of the processes that serve an account together."""
    digest = blake2b(name.encode(), digest_size=_NUMBER_BYTES).digest()
    return _NUMBERS_FROM + int.from_bytes(digest, "big")


class Standing(NamedTuple):
    """What a node says of itself when it connects. Lives of the catalog are epochs of log 0."""

    life: int  # that it has the catalog in; 0: another node has it
    joined: int  # of the catalog that it follows; 0: it has none, and needs nothing of a former one


class ConnectingNode(Connecting, ABC):
    """This node (`node_here.py`)."""

    @property
    @abstractmethod
    def standing(self) -> Standing: ...

    @abstractmethod
    def met_node(self, link: Link, standing: Standing) -> None: ...


class NodeConnection(ProcessConnection):
    hello_bytes: ClassVar = _HELLO.size

    def __init__(self, here: ConnectingNode, number: int, write_ids: WriteIds, other: int) -> None:
        """`number`: of this node. `other`: of the node at the other end, by its name."""
        super().__init__(here, number, write_ids)
        self.greeted.add_done_callback(_seen)
        self._node = here
        self._other = other
        self._heard = asyncio.get_running_loop().time()
        self.ended = False

    def _hello(self) -> bytes:
        return _HELLO.pack(_MAGIC, self._number, self._here.remembered.run, *self._node.standing)

    def _greet(self, hello: bytes) -> None:
        magic, number, run, life, joined = _HELLO.unpack(hello)
        if magic != _MAGIC or number != self._other:
            self.end()
            return
        link = self._linked(number, run)
        self._node.met_node(link, Standing(life, joined))
        if not self.greeted.done():
            self.greeted.set_result(link)

    def data_received(self, data: bytes) -> None:
        self._heard = asyncio.get_running_loop().time()
        super().data_received(data)

    def _take(self, link: Link, frame: bytes) -> None:
        if frame != _BEAT:
            super()._take(link, frame)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        super().connection_lost(error)

    def beat(self) -> None:
        """Called every second: give the other side a sign of life, and the connection up if none has come."""
        if asyncio.get_running_loop().time() - self._heard > limits.LINK_SILENT_SECONDS:
            self.end()
        else:
            self.send(_BEAT)


def _seen(greeted: asyncio.Future[Link]) -> None:
    """An attempt that has failed is not waited for by anyone."""
    if not greeted.cancelled():
        greeted.exception()
