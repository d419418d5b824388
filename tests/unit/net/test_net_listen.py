"""One port for http and https, opened, watched and closed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop
from support.waiting import PATIENCE_S, until

from armillary.errors import Failure, Kind
from armillary.net.certificate import development_context, ensure_certificate
from armillary.net.connection_limits import Crowd
from armillary.net.http import Patience, Request, Response
from armillary.net.listen import Listener, listen

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on the loop that the server uses, whose transports differ from asyncio's."""

    @functools.wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        uvloop.run(test(*arguments, **options))

    return run


async def say_how(request: Request) -> Response:
    request.is_known = True
    if request.target == b"/big":
        return Response(200, (), b"x" * 3_000_000)
    return Response(200, (), b"tls" if request.is_tls else b"plain")


@contextlib.asynccontextmanager
async def listening(host: str = "127.0.0.1", **options: Any) -> AsyncIterator[Listener]:
    listener = await listen(host, 0, say_how, **options)
    try:
        yield listener
    finally:
        await listener.close(1)
        assert listener.service.connection_count == 0


async def ask(port: int, tls: ssl.SSLContext | None = None, *, host: str = "127.0.0.1", wire: bytes = GET) -> bytes:
    """Send one request on a new connection and give the body of the answer."""
    server_name = "localhost" if tls is not None else None
    reader, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=server_name)
    try:
        writer.write(wire)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await reader.readexactly(length)
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


@on_uvloop
async def test_tls_and_plain_on_one_port(tmp_path: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(ensure_certificate(tmp_path)[0]))
    async with listening(tls=lambda: development_context(tmp_path)) as listener:
        answers = await asyncio.gather(*[ask(listener.port, (None, trusting)[number % 2]) for number in range(20)])
        assert answers == [b"plain", b"tls"] * 10
        big = GET.replace(b"/ ", b"/big ", 1)
        assert len(await ask(listener.port, trusting, wire=big)) == 3_000_000


@on_uvloop
async def test_the_context_is_made_once_and_only_when_needed(tmp_path: Path) -> None:
    made = []

    def make() -> ssl.SSLContext:
        made.append(1)
        if len(made) == 1:
            raise RuntimeError("not this time")
        return development_context(tmp_path)

    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with listening(tls=make) as listener:
        await ask(listener.port)
        assert made == []
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await ask(listener.port, trusting)
        assert await asyncio.gather(*[ask(listener.port, trusting) for _ in range(5)]) == [b"tls"] * 5
        assert len(made) == 2


@on_uvloop
async def test_old_tls_and_tls_where_there_is_none_are_turned_away(tmp_path: Path) -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with listening() as listener:
        with pytest.raises(OSError):
            await ask(listener.port, trusting)
        assert await ask(listener.port) == b"plain"
    async with listening(tls=lambda: development_context(tmp_path)) as listener:
        for wire in (b"\x16\x03\x01\x00\x05hello", b"\x16"):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(wire)
            writer.write_eof()
            with contextlib.suppress(OSError):
                await asyncio.wait_for(reader.read(), PATIENCE_S)
            writer.close()
        assert await ask(listener.port, trusting) == b"tls"


@on_uvloop
async def test_a_handshake_that_never_ends_is_cut_off(tmp_path: Path) -> None:
    patience = Patience(head_s=0.2, sweep_s=0.05)
    async with listening(tls=lambda: development_context(tmp_path), patience=patience) as listener:
        for wire in (b"", b"\x16", b"\x16\x03\x01"):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(wire)
            with contextlib.suppress(OSError):
                assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
            writer.close()


@on_uvloop
async def test_handshakes_under_way_are_counted_and_make_room(tmp_path: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(ensure_certificate(tmp_path)[0]))
    crowd = Crowd(20, per_address_max=3)
    async with listening(tls=lambda: development_context(tmp_path), crowd=crowd) as listener:
        assert await ask(listener.port, trusting) == b"tls"
        await until(lambda: crowd.count == 0, "the first connection is gone")
        begun = []
        for number in range(6):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"\x16\x03\x01\x02\x00\x01" if number % 2 else hello_of_tls())
            begun.append((reader, writer))
            least = min(number, 2)
            await until(partial(lambda least: crowd.count > least, least), "it is counted")
        assert (crowd.count, crowd.stranger_count) == (3, 3)
        for reader, _ in begun[:3]:  # they made room
            with contextlib.suppress(ConnectionError):
                while await asyncio.wait_for(reader.read(10_000), PATIENCE_S):
                    pass
        assert await ask(listener.port, trusting) == b"tls"
        for _, writer in begun:
            writer.close()
        await until(lambda: crowd.count == 0, "all of them are gone")


def hello_of_tls() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@on_uvloop
async def test_silent_connections_do_not_hold_up_the_close() -> None:
    listener = await listen("127.0.0.1", 0, say_how)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    await asyncio.sleep(0.02)
    await listener.close(2 * PATIENCE_S)  # which no test may take
    assert await reader.read() == b""
    writer.close()
    await listener.close(2 * PATIENCE_S)  # a second time is no error


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("is_tls", [False, True])
def test_connections_that_are_just_beginning_do_not_hold_up_the_close(tmp_path: Path, turns: int, is_tls: bool) -> None:
    """At every turn of the loop, from the first on that knows of them."""

    async def run() -> None:
        listener = await listen("127.0.0.1", 0, say_how, tls=lambda: development_context(tmp_path))
        with contextlib.ExitStack() as opened:
            for _ in range(3):
                client = opened.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
                client.send(b"\x16\x03\x01" if is_tls else GET)
            for _ in range(turns):
                await asyncio.sleep(0)
            await listener.close(0)
            assert listener.service.connection_count == 0

    uvloop.run(run())


@on_uvloop
async def test_every_address_of_a_name_is_opened_with_the_same_port() -> None:
    async with listening("localhost") as listener:
        assert await ask(listener.port, host="127.0.0.1") == b"plain"
        addresses = await asyncio.get_running_loop().getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)
        for family, kind, _protocol, _name, address in addresses:
            try:
                socket.socket(family, kind).close()
            except OSError:
                continue  # a machine without IPv6 may have names that lead to it
            assert await ask(listener.port, host=str(address[0])) == b"plain"


@on_uvloop
async def test_a_port_that_is_taken_and_a_host_that_is_not_ours_are_named() -> None:
    async with listening() as listener:
        with pytest.raises(Failure, match=f"Port {listener.port} of 127.0.0.1 .* choose another port") as caught:
            await listen("127.0.0.1", listener.port, say_how)
        assert caught.value.kind is Kind.UNAVAILABLE
    for host in ("192.0.2.1", "no.such.host.invalid"):
        with pytest.raises(Failure, match=host):
            await listen(host, 0, say_how)


@on_uvloop
async def test_accepting_survives_a_shortage_of_file_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    async with listening() as listener:
        assert await ask(listener.port) == b"plain"
        await until(lambda: listener.service.connection_count == 0, "the connection has ended")
        await asyncio.sleep(0.05)  # and given back its descriptors
        client = socket.socket()
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 20, hard))
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(client.fileno()))
            client.connect(("127.0.0.1", listener.port))
            client.setblocking(False)
            client.send(GET)
            await asyncio.sleep(0.05)  # the listener tries, and fails
            with pytest.raises(BlockingIOError):
                client.recv(1)
        finally:
            for descriptor in taken:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1000), PATIENCE_S)
        assert answer.endswith(b"plain")
        client.close()


@on_uvloop
async def test_more_connections_than_a_refusal_is_worth_are_dropped() -> None:
    async with listening(crowd=Crowd(2, per_address_max=2)) as listener:
        clients = []
        outcomes = []
        for number in range(40):
            clients.append(await asyncio.open_connection("127.0.0.1", listener.port))
            if number < 2:  # these show a key
                clients[-1][1].write(GET)
                outcomes.append((await asyncio.wait_for(clients[-1][0].read(12), PATIENCE_S))[9:])
        for reader, writer in clients[2:]:
            writer.write(GET)
            try:
                outcomes.append((await asyncio.wait_for(reader.read(12), PATIENCE_S))[9:])
            except ConnectionError:
                outcomes.append(b"")
        assert outcomes.count(b"200") == 2
        assert outcomes.count(b"503") >= 1
        assert set(outcomes) <= {b"200", b"503", b""}
        for _reader, writer in clients:
            writer.close()
