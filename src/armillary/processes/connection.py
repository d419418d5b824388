"""The connection between two processes of one server: a stream socket that the first process has made and handed to
both, so that no other program can connect. Each side sends its number and its run first; then frames go both ways, each
behind its length, and `account/visits/elsewhere/link.py` says what they mean.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from abc import ABC, abstractmethod
from typing import ClassVar, Final, cast

from armillary import limits
from armillary.account.visits.elsewhere.link import Link
from armillary.account.visits.elsewhere.place import LocalPlace
from armillary.account.visits.elsewhere.remembered_answers import WriteIds
from armillary.errors import Failure, Kind

_LENGTH: Final = struct.Struct(">I")
_HELLO: Final = struct.Struct(">16sB8s")
_MAGIC: Final = b"armillary place1"
_FRAME_HEAD_BYTES_MAX: Final = 64


class Connecting(LocalPlace, ABC):
    """This process, which is told of connections to others (`places.py`)."""

    @abstractmethod
    def met(self, link: Link) -> None: ...

    @abstractmethod
    def parted(self, link: Link) -> None: ...


class ProcessConnection(asyncio.Protocol):
    """Made by `connect`. `cluster/spread/node_connections.py` has another greeting."""

    hello_bytes: ClassVar = _HELLO.size

    def __init__(self, here: Connecting, number: int, write_ids: WriteIds) -> None:
        """`number`: of this process."""
        self.greeted: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        self._here = here
        self._number = number
        self._write_ids = write_ids
        self._transport: asyncio.Transport | None = None
        self._link: Link | None = None
        self._gathered = bytearray()  # the beginning of a frame
        self._needed_bytes = 0  # of it, before there is more to do: a long frame comes in many pieces

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._transport.write(self._hello())

    def send(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(_LENGTH.pack(len(frame)) + frame)

    def data_received(self, data: bytes) -> None:
        gathered = self._gathered
        if gathered:
            gathered += data
            if len(gathered) < self._needed_bytes:
                return
            data = bytes(gathered)
            gathered.clear()
        at, size = 0, len(data)
        if self._link is None:
            if size < self.hello_bytes:
                gathered += data
                self._needed_bytes = self.hello_bytes
                return
            self._greet(data[: self.hello_bytes])
            at = self.hello_bytes
        link = self._link
        if link is None:
            return
        self._needed_bytes = _LENGTH.size
        while size - at >= _LENGTH.size:
            [length] = _LENGTH.unpack_from(data, at)
            if length > limits.MESSAGE_BYTES_MAX + _FRAME_HEAD_BYTES_MAX:
                self.end()
                return
            end = at + _LENGTH.size + length
            if end > size:
                self._needed_bytes = end - at
                break
            self._take(link, data[at + _LENGTH.size : end])
            at = end
        if at < size:
            gathered += data[at:]

    def _take(self, link: Link, frame: bytes) -> None:
        link.received(frame)

    def _hello(self) -> bytes:
        return _HELLO.pack(_MAGIC, self._number, self._here.remembered.run)

    def _greet(self, hello: bytes) -> None:
        magic, number, run = _HELLO.unpack(hello)
        if magic != _MAGIC:
            self.end()
            return
        link = self._linked(number, run)
        self._here.met(link)  # before what comes behind the greeting
        if not self.greeted.done():
            self.greeted.set_result(link)

    def _linked(self, number: int, run: bytes) -> Link:
        """The link to the other side, which has told its number and its run."""
        self._link = link = Link(number, self.send, self._write_ids, self._here)
        link.peer = run
        return link

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        if self._link is not None:
            self._link.lost()
            self._here.parted(self._link)
        if not self.greeted.done():
            self.greeted.set_exception(Failure(Kind.UNAVAILABLE, "The other process has ended."))

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def connect(
    end: socket.socket, here: Connecting, number: int, write_ids: WriteIds
) -> tuple[Link, ProcessConnection]:
    """Greet the process at the other end of a socket."""
    end.setblocking(False)
    loop = asyncio.get_running_loop()
    transport: asyncio.BaseTransport | None = None
    try:
        transport, connection = await loop.create_connection(
            lambda: ProcessConnection(here, number, write_ids), sock=end
        )
    finally:
        # The other process may have ended already. Then uvloop has closed the descriptor without telling the socket
        # object, which would close it once more when it is collected: by then it may be that of a file.
        if (transport is None or transport.is_closing()) and not isinstance(loop, asyncio.BaseEventLoop):
            end.detach()
    return await connection.greeted, connection
