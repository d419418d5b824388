"""A TCP proxy on this machine that tests put between a client and a server, to cut connections at a chosen moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

Change = Callable[[bytes], bytes]


class TcpProxy:
    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self.cuts = 0
        self.changes_requests: Change | None = None
        self.changes_answers: Change | None = None
        self._cuts_request = False
        self._cuts_answer = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut_next_request(self) -> None:
        """The next bytes of a client are lost, and its connection ends."""
        self._cuts_request = True

    def cut_next_answer(self) -> None:
        """The server gets the next request; its answer is lost, and the connection ends."""
        self._cuts_answer = True

    @classmethod
    @asynccontextmanager
    async def listening(cls, port: int) -> AsyncIterator[TcpProxy]:
        proxy = cls(port)
        server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            server.close()
            for writer in proxy._writers:
                writer.transport.abort()
            await asyncio.gather(*proxy._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._writers |= both
        try:
            await asyncio.gather(
                self._forward(reader, far_writer, both, is_answer=False),
                self._forward(far_reader, writer, both, is_answer=True),
            )
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        both: set[asyncio.StreamWriter],
        is_answer: bool,
    ) -> None:
        try:
            while chunk := await reader.read(1 << 16):
                if self._cuts_answer if is_answer else self._cuts_request:
                    self._cuts_answer = self._cuts_request = False
                    self.cuts += 1
                    break
                change = self.changes_answers if is_answer else self.changes_requests
                if change is not None:
                    chunk = change(chunk)
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass
        for each in both:
            each.transport.abort()
