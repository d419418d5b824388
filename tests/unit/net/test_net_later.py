"""Answers that come later without a task: in the order of the requests, whatever the client or the server does
meanwhile. On the loop that the server uses."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import ContextVar
from functools import wraps
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import pytest
import uvloop
from support.waiting import PATIENCE_S, until

from armillary import work
from armillary.net.http import Later, Patience, Request, Response
from armillary.net.listen import Listener, listen

_LEFT_BEHIND: ContextVar[str] = ContextVar("_LEFT_BEHIND", default="nothing")


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        uvloop.run(test(*arguments, **options))

    return run


class Door:
    """Answers paths that begin with /later when the test says, all others at once by its handler."""

    def __init__(self) -> None:
        self.begun: list[tuple[Request, Later]] = []
        self.handled: list[tuple[bytes, str, bool]] = []  # the target, what other work left behind, whether inside it

    def at_once(self, request: Request) -> Response | Later | None:
        request.is_known = True
        request.operation = "test later"
        if not request.target.startswith(b"/later"):
            return None
        later = Later()
        self.begun.append((request, later))
        return later

    async def handle(self, request: Request) -> Response:
        request.is_known = True
        self.handled.append((request.target, _LEFT_BEHIND.get(), work.can_wait()))
        return Response(200, (), b"handled " + request.target)

    def give(self, what: Callable[[Request], Response | BaseException | None]) -> None:
        """Give the oldest answer that is due as an engine does: in the middle of its work, in the context of the
        request that began it."""
        request, later = self.begun.pop(0)

        def run() -> None:
            _LEFT_BEHIND.set("another request's")
            later.give(what(request))

        work.begin(run)


def _told(request: Request) -> Response:
    return Response(200, (), b"told " + request.target)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def ask(self, *paths: str) -> None:
        self.writer.write(b"".join([f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for path in paths]))

    def reset(self) -> None:
        """Leave such that the server is told at once, and not when it writes."""
        socket = self.writer.get_extra_info("socket")
        socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def answer(self) -> tuple[int, bytes]:
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        [length] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: ")]
        body = await asyncio.wait_for(self.reader.readexactly(int(length.split()[1])), PATIENCE_S)
        return int(head.split(b" ")[1]), body


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[Door, Listener, Client]]:
    door = Door()
    listener = await listen("127.0.0.1", 0, door.handle, at_once=door.at_once, patience=Patience(sweep_s=0.02))
    client = Client(*await asyncio.open_connection("127.0.0.1", listener.port))
    try:
        yield door, listener, client
    finally:
        client.writer.close()
        with contextlib.suppress(OSError):
            await client.writer.wait_closed()
        await listener.close(0)
        assert listener.service.connection_count == 0


@on_uvloop
async def test_pipelined_requests_are_answered_in_order_and_begun_outside_of_other_work() -> None:
    paths = [("/later/", "/now/")[number % 3 == 2] + str(number) for number in range(30)]
    async with serving() as (door, listener, client):
        client.ask(*paths)
        for path in paths:
            if path.startswith("/later"):
                await until(lambda: bool(door.begun), "the request is begun")
                assert len(door.begun) == 1  # one after the other
                door.give(_told)
                assert await client.answer() == (200, b"told " + path.encode())
            else:
                assert await client.answer() == (200, b"handled " + path.encode())
        assert {each[1:] for each in door.handled} == {("nothing", False)}
        client.ask("/now/again")  # the socket is read in a context of its own too
        await client.answer()
        assert door.handled[-1] == (b"/now/again", "nothing", False)
        assert listener.service.watch.times["test later"].statuses[200] == len(paths) + 1


@on_uvloop
async def test_a_request_that_is_given_back_is_handled_outside_of_other_work() -> None:
    async with serving() as (door, _, client):
        client.ask("/later/1", "/now/2")
        await until(lambda: bool(door.begun), "the request is begun")
        door.give(lambda _: None)
        assert door.handled == []
        assert await client.answer() == (200, b"handled /later/1")
        assert await client.answer() == (200, b"handled /now/2")
        assert door.handled == [(b"/later/1", "nothing", False), (b"/now/2", "nothing", False)]


@on_uvloop
async def test_a_request_that_fails_later_is_answered_as_a_crash(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (door, listener, client):
        client.ask("/later/1", "/now/2")
        await until(lambda: bool(door.begun), "the request is begun")
        door.give(lambda _: RuntimeError("broken on purpose"))
        assert (await client.answer())[0] == 500
        assert "broken on purpose" in caplog.text
        assert await client.answer() == (200, b"handled /now/2")
        assert listener.service.watch.times["test later"].statuses[500] == 1


@pytest.mark.parametrize("is_given_back", [False, True])
@on_uvloop
async def test_a_client_that_leaves_keeps_its_place_until_the_request_is_done(is_given_back: bool) -> None:
    async with serving() as (door, listener, client):
        client.ask("/later/1")
        await until(lambda: bool(door.begun), "the request is begun")
        client.reset()
        [connection] = listener.service._connections
        await until(lambda: connection._is_lost, "the server has noticed")  # type: ignore[attr-defined]
        assert listener.service.connection_count == 1
        door.give((lambda _: None) if is_given_back else _told)
        await until(lambda: listener.service.connection_count == 0, "the connection is forgotten")
        assert len(door.handled) == is_given_back
        assert listener.service.watch.times["test later"].statuses[200] == 1


@on_uvloop
async def test_a_stop_waits_for_answers_that_come_later() -> None:
    async with serving() as (door, listener, client):
        client.ask("/later/1")
        await until(lambda: bool(door.begun), "the request is begun")
        closing = asyncio.ensure_future(listener.close(PATIENCE_S))
        await until(lambda: listener.service.is_closing, "the server closes")
        assert not closing.done()
        door.give(_told)
        assert await client.answer() == (200, b"told /later/1")
        assert await client.reader.read() == b""
        await closing


@pytest.mark.parametrize("what", [Response(200), None, RuntimeError("broken on purpose")])
@on_uvloop
async def test_a_stop_does_not_wait_beyond_its_grace(
    what: Response | RuntimeError | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as (door, listener, client):
        client.ask("/later/1", "/now/2")
        await until(lambda: bool(door.begun), "the request is begun")
        await asyncio.wait_for(listener.close(0), PATIENCE_S)
        assert listener.service.connection_count == 0
        door.give(lambda _: what)  # its answer is dropped, and no handler begins after the close
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert door.handled == []
        assert ("broken on purpose" in caplog.text) == isinstance(what, RuntimeError)


@on_uvloop
async def test_a_slow_answer_is_not_taken_for_an_idle_client() -> None:
    async with serving() as (door, listener, client):
        client.ask("/later/1")
        await until(lambda: bool(door.begun), "the request is begun")
        for connection in list(listener.service._connections):
            connection.sweep(listener.service.now_s + 10_000)
        door.give(_told)
        assert await client.answer() == (200, b"told /later/1")
