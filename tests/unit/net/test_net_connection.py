"""Real sockets on the real loop: what clients of every kind, good, slow and broken, get to see."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import accumulate
from typing import Any

import pytest
import uvloop
from support.waiting import PATIENCE_S, until

from armillary import limits
from armillary.net.connection_limits import Crowd
from armillary.net.http import HANG_UP, Patience, Request, Response
from armillary.net.http_2 import PREFACE, SETTINGS
from armillary.net.listen import Listener, listen

SHORT_S, SWEEP_S = 0.2, 0.02


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on the loop that the server uses, whose transports differ from asyncio's."""

    @functools.wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        uvloop.run(test(*arguments, **options))

    return run


async def echo(request: Request) -> Response:
    """Answers with what it was asked; the path says how."""
    request.is_known = True
    path = request.target.partition(b"?")[0].decode()
    if path.startswith("/wait"):
        await asyncio.sleep(0.03)
    elif path.startswith("/turn"):
        await asyncio.sleep(0)
    elif path == "/break":
        raise RuntimeError("broken on purpose")
    elif path == "/break-late":
        await asyncio.sleep(0)
        raise RuntimeError("broken on purpose")
    elif path == "/big":
        return Response(200, (), b"x" * (4 * limits.MB))
    elif path.isdigit() or path[1:].isdigit():
        return Response(int(path[1:]), ((b"etag", b'"1"'),), b"body")
    elif path == "/inject":
        return Response(200, ((b"x", b"a\r\nset-cookie: b"),))
    seen = {
        "method": request.method,
        "target": request.target.decode("latin-1"),
        "headers": {name.decode(): value.decode("latin-1") for name, value in request.headers.items()},
        "body": request.body.decode("latin-1"),
        "tls": request.is_tls,
        "peer": request.peer,
    }
    return Response(200, ((b"Content-Type", b"application/json"),), json.dumps(seen).encode())


class Client:
    """Reads answers as HTTP says, sends whatever it is given."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def answer(self, *, is_head: bool = False) -> tuple[int, dict[str, str], bytes]:
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        status, *lines = head.decode("latin-1").split("\r\n")[:-2]
        assert status.startswith("HTTP/1.1 ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = 0 if is_head else int(headers.get("content-length", "0"))
        return int(status.split(" ")[1]), headers, await asyncio.wait_for(self.reader.readexactly(length), PATIENCE_S)

    async def is_ended(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(1), PATIENCE_S) == b""
        except ConnectionError:
            return True


@contextlib.asynccontextmanager
async def serving(handler: Any = echo, **options: Any) -> AsyncIterator[tuple[Listener, Callable[[], Any]]]:
    listener = await listen("127.0.0.1", 0, handler, **options)
    clients: list[Client] = []

    async def connect() -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", listener.port))
        clients.append(client)
        return client

    try:
        yield listener, connect
    finally:
        for client in clients:
            client.writer.close()
            with contextlib.suppress(OSError):
                await client.writer.wait_closed()
        await listener.close(0)
        assert listener.service.connection_count == 0


def get(path: str, *lines: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"GET {path} HTTP/{version}", "Host: localhost", *lines, "", ""]).encode("latin-1")


@on_uvloop
async def test_an_answer_has_a_length_and_a_date_and_the_connection_stays() -> None:
    async with serving(constant_headers=((b"Server", b"here"),)) as (_, connect):
        client = await connect()
        for _ in range(3):
            client.send(get("/a?b=c", "X-One:  two \t"))
            status, headers, body = await client.answer()
            assert status == 200
            assert headers["date"].endswith(" GMT")
            assert headers["server"] == "here"
            assert "connection" not in headers
            seen = json.loads(body)
            assert (seen["method"], seen["target"], seen["tls"], seen["peer"]) == ("GET", "/a?b=c", False, "127.0.0.1")
            assert seen["headers"] == {"host": "localhost", "x-one": "two"}


@on_uvloop
async def test_bodies_come_whole_however_they_are_sent() -> None:
    plain = b"POST /turn HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world"
    chunked = (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5;extension=1\r\nhello\r\n6\r\n world\r\n0\r\nHost: trailer\r\n\r\n"
    )
    async with serving() as (_, connect):
        client = await connect()
        for wire in (plain, chunked):
            for size in (1, 7, len(wire)):
                for at in range(0, len(wire), size):
                    client.send(wire[at : at + size])
                    await client.writer.drain()
                    await asyncio.sleep(0)
                status, _headers, body = await client.answer()
                assert status == 200
                assert json.loads(body)["body"] == "hello world"
                assert json.loads(body)["headers"]["host"] == "a"


@on_uvloop
async def test_pipelined_requests_are_answered_in_order() -> None:
    paths = [("/wait/", "/turn/", "/eager/", "/eager/")[number % 4] + str(number) for number in range(24)]
    async with serving() as (_, connect):
        client = await connect()
        client.send(*map(get, paths))
        for path in paths:
            assert json.loads((await client.answer())[2])["target"] == path


@pytest.mark.parametrize("kind", ["eager", "turn"])
@on_uvloop
async def test_a_pipelined_flood_is_answered_in_order(kind: str) -> None:
    count = 8000  # several reads off the socket, many pieces
    async with serving() as (_, connect):
        client = await connect()
        client.send(*[get(f"/{kind}/{number}") for number in range(count)])
        for number in range(count):
            assert json.loads((await client.answer())[2])["target"] == f"/{kind}/{number}"


@on_uvloop
async def test_connections_stay_or_end_as_the_client_says() -> None:
    async with serving() as (_, connect):
        client = await connect()
        client.send(get("/turn", "Connection: keep-alive"))
        assert (await client.answer())[1]["connection"] == "keep-alive"
        client.send(get("/", "Connection: keep-alive", version="1.0"))
        assert (await client.answer())[1]["connection"] == "keep-alive"
        client.send(get("/", "Connection: close"), get("/never"))
        assert (await client.answer())[1]["connection"] == "close"
        assert await client.is_ended()
        client = await connect()
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await client.answer())[1]["connection"] == "close"
        assert await client.is_ended()


@on_uvloop
async def test_answers_without_a_body() -> None:
    async with serving() as (_, connect):
        client = await connect()
        for status in (204, 304):
            client.send(get(f"/{status}"))
            answer = await client.answer()
            assert (answer[0], sorted(answer[1]), answer[2]) == (status, ["date", "etag"], b"")
        client.send(b"HEAD /200 HTTP/1.1\r\nHost: a\r\n\r\n", get("/449"))
        status, headers, _body = await client.answer(is_head=True)
        assert (status, headers["content-length"]) == (200, "4")
        status, headers, body = await client.answer()
        assert (status, body) == (449, b"body")


@on_uvloop
async def test_repeated_headers_are_joined_and_an_offered_upgrade_is_left_alone() -> None:
    async with serving() as (_, connect):
        client = await connect()
        client.send(get("/1/a", "A: 1", "a: 2 "), get("/", "Connection: Upgrade", "Upgrade: h2c"), get("/after"))
        assert json.loads((await client.answer())[2])["headers"]["a"] == "1, 2"
        assert json.loads((await client.answer())[2])["headers"]["upgrade"] == "h2c"
        assert json.loads((await client.answer())[2])["target"] == "/after"


@pytest.mark.parametrize("is_in_pieces", [False, True])
@on_uvloop
async def test_the_body_of_a_request_that_offers_an_upgrade_is_read(is_in_pieces: bool) -> None:
    # Java's HttpClient offers HTTP/2 in these words, with and without a body.
    offer = (
        "Connection: Upgrade, HTTP2-Settings",
        "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
        "Upgrade: h2c",
    )
    sent = (
        get("/sized", *offer, "Content-Length: 5")
        + b"hello"
        + get("/chunked", *offer, "Transfer-Encoding: chunked")
        + b"3\r\nGET\r\n3;x=y\r\n / \r\n0\r\nTrailer: of it\r\n\r\n"
        + get("/none", *offer, "Content-Length: 0")
        + get("/last", "Connection: close, Upgrade", "Upgrade: h2c", "Content-Length: 2")
        + b"ab"
    )
    async with serving() as (_, connect):
        client = await connect()
        for piece in [sent[at : at + 1] for at in range(len(sent))] if is_in_pieces else [sent]:
            client.send(piece)
            if is_in_pieces:
                await client.writer.drain()
        seen = [json.loads((await client.answer())[2]) for _ in range(4)]
        assert [(one["target"], one["body"]) for one in seen] == [
            ("/sized", "hello"),
            ("/chunked", "GET / "),
            ("/none", ""),
            ("/last", "ab"),
        ]
        assert await client.is_ended()


@on_uvloop
async def test_a_target_as_for_a_proxy_is_read() -> None:
    async with serving() as (_, connect):
        client = await connect()
        client.send(get("HTTP://example.org:81?x=1"), b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
        seen = json.loads((await client.answer())[2])
        assert (seen["target"], seen["headers"]["host"]) == ("/?x=1", "example.org:81")
        assert json.loads((await client.answer())[2])["target"] == "*"


@on_uvloop
async def test_a_client_that_asks_before_sending_its_body_is_told_to_go_on() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    async with serving() as (_, connect):
        client = await connect()
        client.send(head)
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"ab")
        assert json.loads((await client.answer())[2])["body"] == "ab"
        client.send(get("/wait"), head)  # the word to go on comes after the answer before it
        assert (await client.answer())[0] == 200
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"ab", head, b"cd")  # who does not wait is not told
        assert json.loads((await client.answer())[2])["body"] == "ab"
        assert json.loads((await client.answer())[2])["body"] == "cd"


@on_uvloop
async def test_a_client_that_ends_its_side_gets_its_answers() -> None:
    for paths in (["/now"], ["/wait/1", "/turn/2", "/3/x"], [f"/turn/{number}" for number in range(3000)]):
        async with serving() as (_, connect):
            client = await connect()
            client.send(*map(get, paths))
            client.writer.write_eof()
            for path in paths:
                assert json.loads((await client.answer())[2])["target"] == path
            assert await client.is_ended()


MALFORMED = {
    "no method": b"\x00\x01\x02\r\n\r\n",
    "unknown method": b"FETCH / HTTP/1.1\r\nHost: a\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": get("/", "Host: b"),
    "not a host": b'GET / HTTP/1.1\r\nHost: a"b\r\n\r\n',
    "two lengths": get("/", "Content-Length: 0", "Content-Length: 0"),
    "length and chunks": get("/", "Content-Length: 1", "Transfer-Encoding: chunked"),
    "chunks and length": get("/", "Transfer-Encoding: chunked", "Content-Length: 1"),
    "bad length": get("/", "Content-Length: +1"),
    "length list": get("/", "Content-Length: 1, 1"),
    "endless length": get("/", "Content-Length: 99999999999999999999"),
    "folded": get("/", "A: b", " c"),
    "nul": get("/", "A: b\x00"),
    "control": get("/", "A: b\x01"),
    "bare line feed": b"GET / HTTP/1.1\nHost: a\n\n",
    "blank before colon": get("/", "A : b"),
    "no colon": get("/", "abc"),
    "bad chunk": get("/", "Transfer-Encoding: chunked") + b"xyz\r\n",
    "chunk too short": get("/", "Transfer-Encoding: chunked") + b"1\r\nabc\r\n",
    "chunk size overflow": get("/", "Transfer-Encoding: chunked") + b"fffffffffffffffff\r\n",
    "other encoding": get("/", "Transfer-Encoding: gzip, chunked"),
    "chunks in 1.0": get("/", "Transfer-Encoding: chunked", version="1.0"),
    "http 0.9": b"GET /\r\n\r\n",
    "http 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http 2 in 1": get("/", "Connection: keep-alive", version="2.0"),
    "byte in target": b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    "bad chunk after an offered upgrade": get("/", "Connection: Upgrade", "Upgrade: h2c", "Transfer-Encoding: chunked")
    + b"xyz\r\n",
    "two tokens": get("/", "Authorization: a", "Authorization: b"),
    "endless extension": get("/", "Transfer-Encoding: chunked") + b"1;" + b"x" * 70_000,
    "endless trailer": get("/", "Transfer-Encoding: chunked")
    + b"0\r\n"
    + b"".join([b"a%d: b\r\n" % n for n in range(14_000)]),
}


@pytest.mark.parametrize("name", MALFORMED)
@on_uvloop
async def test_what_is_malformed_is_refused_after_what_came_before(name: str) -> None:
    async with serving() as (_, connect):
        client = await connect()
        client.send(get("/wait"), MALFORMED[name])
        assert (await client.answer())[0] == 200
        status, headers, body = await client.answer()
        assert (status, headers["connection"], json.loads(body)["code"]) == (400, "close", "BadRequest")
        assert await client.is_ended()


async def _frames(client: Client) -> list[tuple[int, bytes, bytes]]:
    """Type, stream and content of all frames of HTTP/2 that come before the end."""
    wire = await asyncio.wait_for(client.reader.read(), PATIENCE_S)
    frames = []
    while wire:
        length = int.from_bytes(wire[:3], "big")
        frames.append((wire[3], wire[5:9], wire[9 : 9 + length]))
        wire = wire[9 + length :]
    return frames


# What azure_data_cosmos 1.0.0 for Rust sends first, up to its request: settings, a window, the head on stream 1.
HTTP_2 = (
    PREFACE
    + bytes.fromhex("00001e 04 00 00000000 0002 00000000 0003 00000000 0004 00200000 0005 00004000 0006 00004000")
    + bytes.fromhex("000004 08 00 00000000 004f0001 000003 01 05 00000001 828684")
)
REQUIRED = b"\0\0\0\x0d"


@pytest.mark.parametrize(
    "sizes", [(len(HTTP_2),), (24, 1, 1, 7, 55), (40, 48), (24, 39, 13, 12), (18, 6, 64), (5, 13, 5, 65)]
)
@on_uvloop
async def test_http_2_is_refused_once_a_stream_is_open(sizes: tuple[int, ...]) -> None:
    # Without a stream, the end of the connection looks like an outage to the client, and it does not fall back.
    async with serving() as (_, connect):
        client = await connect()
        at = 0
        for size in sizes:
            client.send(HTTP_2[at : at + size])
            at += size
            if at == 24:
                assert await asyncio.wait_for(client.reader.readexactly(9), PATIENCE_S) == SETTINGS
            else:
                for _ in range(5):  # so that the server reads it alone; if it does not, the answer is the same
                    await asyncio.sleep(0)
        if 24 not in accumulate(sizes):
            assert await asyncio.wait_for(client.reader.readexactly(9), PATIENCE_S) == SETTINGS
        stream = b"\0\0\0\x01"
        assert await _frames(client) == [(3, stream, REQUIRED), (7, b"\0\0\0\0", stream + REQUIRED)]


@on_uvloop
async def test_http_2_without_a_request_ends() -> None:
    async with serving() as (_, connect):
        client = await connect()
        client.send(PREFACE + bytes.fromhex("000004 08 00 00000000 004f0001") * 3)
        assert await _frames(client) == [(4, b"\0\0\0\0", b"")]


@on_uvloop
async def test_limits_of_a_head() -> None:
    def of(lines: int, each: int) -> bytes:
        return get("/", *[f"X-{number:04}: {'v' * each}" for number in range(lines)])

    fits = [of(limits.HEAD_LINES_MAX - 1, 10), of(5, 6000), get("/" + "a" * (limits.TARGET_BYTES_MAX - 1))]
    over = [
        (431, of(limits.HEAD_LINES_MAX, 10)),
        (431, of(6, 6000)),
        (431, get("/", *["A: b"] * 300)),
        (431, get("/", "A: " + "v" * 1_000_000)),
        (431, b"\r\n" * 100_000),
        (414, get("/" + "a" * limits.TARGET_BYTES_MAX)),
        (417, get("/", "Expect: tea")),
        (405, b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ]
    async with serving() as (_, connect):
        for wire in fits:
            client = await connect()
            client.send(wire)
            assert (await client.answer())[0] == 200
        for status, wire in over:
            client = await connect()
            client.send(wire)
            assert (await client.answer())[0] == status
            assert await client.is_ended()


@on_uvloop
async def test_a_body_over_the_limit_is_refused_and_the_refusal_arrives() -> None:
    size = limits.BODY_BYTES_MAX
    fits = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size
    over = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (size + 1)
    chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % (size + 1)
    async with serving() as (_, connect):
        client = await connect()
        client.send(fits, b"x" * size)
        assert (await client.answer())[0] == 200
        for head in (over, chunked):
            client = await connect()
            client.send(head, b"x" * (size + 1))  # all of it, before reading anything, as most clients do
            await client.writer.drain()
            status, _headers, body = await client.answer()
            assert (status, json.loads(body)["code"]) == (413, "RequestEntityTooLarge")
            assert await client.is_ended()


@on_uvloop
async def test_a_handler_that_breaks_is_logged_and_answered_and_the_connection_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (_, connect):
        client = await connect()
        for path in ("/break", "/break-late", "/inject"):
            client.send(get(path))
            status, _headers, body = await client.answer()
            assert (status, json.loads(body)["code"]) == (500, "InternalServerError")
            assert b"purpose" not in body
        client.send(get("/"))
        assert (await client.answer())[0] == 200
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 3


@on_uvloop
async def test_an_answer_to_a_crash_that_crashes_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: Request, exception: BaseException) -> Response:
        raise ValueError("worse")

    async with serving(on_crash=fail) as (_, connect):
        client = await connect()
        client.send(get("/break"))
        assert await client.is_ended()


@on_uvloop
async def test_slow_heads_and_bodies_are_cut_off_and_told_so() -> None:
    patience = Patience(head_s=SHORT_S, body_grace_s=SHORT_S, sweep_s=SWEEP_S)
    async with serving(patience=patience) as (_, connect):
        for wire in (b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"):
            client = await connect()
            client.send(get("/"))
            assert (await client.answer())[0] == 200
            for byte in wire:
                client.send(bytes([byte]))
            answer = asyncio.ensure_future(client.answer())
            while not answer.done():  # dripping on does not help
                client.send(b"x" if b"Length" not in wire else b"")
                await asyncio.sleep(0.02)
            status, headers, body = await answer
            assert (status, headers["connection"]) == (408, "close")
            assert json.loads(body)["code"] == "RequestTimeout"
            assert await client.is_ended()


@on_uvloop
async def test_a_client_that_is_fast_enough_is_not_cut_off() -> None:
    # The first half of the body comes at once, and is good for a minute and a half however slow this machine is.
    patience = Patience(body_grace_s=SHORT_S, body_bytes_per_s=11, sweep_s=SWEEP_S)
    async with serving(patience=patience) as (_, connect):
        client = await connect()
        client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n", b"x" * 1000)
        for _ in range(10):
            await asyncio.sleep(0.03)  # longer than the grace, all together
            client.send(b"x" * 100)
        assert (await client.answer())[0] == 200


@on_uvloop
async def test_silent_and_idle_connections_end() -> None:
    async with serving(patience=Patience(head_s=SHORT_S, sweep_s=SWEEP_S)) as (_, connect):
        silent, blank = await connect(), await connect()
        blank.send(b"\r\n")
        for client in (silent, blank):
            assert await client.is_ended()
    async with serving(patience=Patience(idle_s=SHORT_S, sweep_s=SWEEP_S)) as (_, connect):
        idle = await connect()
        idle.send(get("/"))
        assert (await idle.answer())[0] == 200
        assert await idle.is_ended()


@on_uvloop
async def test_a_waiting_request_is_not_idle() -> None:
    async def wait(request: Request) -> Response:
        await asyncio.sleep(3 * SHORT_S)
        return Response(200)

    async with serving(wait, patience=Patience(idle_s=SHORT_S, sweep_s=SWEEP_S)) as (_, connect):
        client = await connect()
        client.send(get("/"))
        assert (await client.answer())[0] == 200


@on_uvloop
async def test_a_client_that_does_not_read_is_cut_off() -> None:
    async with serving(patience=Patience(write_stall_s=SHORT_S, sweep_s=SWEEP_S)) as (listener, connect):
        client = await connect()
        client.writer.transport.pause_reading()
        client.send(get("/big") * 10)
        await until(lambda: listener.service.connection_count == 1, "the connection has begun")
        await until(lambda: listener.service.connection_count == 0, "the connection is still there")


@on_uvloop
async def test_a_slow_reader_gets_all_of_its_big_answers_and_memory_stays_bounded() -> None:
    count, served = 6, []

    async def big(request: Request) -> Response:
        served.append(request.target)
        return Response(200, (), b"x" * (4 * limits.MB))

    async with serving(big) as (_, connect):
        client = await connect()
        client.send(get("/") * count)
        await asyncio.sleep(0.05)
        assert len(served) <= 3  # what fits the kernel's buffers, and one more
        for _ in range(count):
            assert len((await client.answer())[2]) == 4 * limits.MB
            await asyncio.sleep(0.01)
        assert len(served) == count


@on_uvloop
async def test_a_request_whose_client_leaves_runs_to_its_end_and_keeps_its_place() -> None:
    begun, goes_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        begun.set()
        await goes_on.wait()
        done.set()
        return Response(200)

    async with serving(slow) as (listener, connect):
        client = await connect()
        client.send(get("/"), get("/never"))
        await begun.wait()
        client.writer.transport.abort()
        await asyncio.sleep(0.02)
        assert listener.service.connection_count == 1
        goes_on.set()
        await done.wait()
        await until(lambda: listener.service.connection_count == 0, "the place is given back")


@on_uvloop
async def test_leaving_in_the_middle_of_an_answer_disturbs_nobody() -> None:
    async with serving() as (listener, connect):
        other = await connect()
        for _ in range(5):
            client = await connect()
            client.send(get("/big"))
            await client.reader.read(1000)
            client.writer.transport.abort()
        other.send(get("/"))
        assert (await other.answer())[0] == 200
        await until(lambda: listener.service.connection_count == 1, "only the other connection is left")


@on_uvloop
async def test_too_many_connections_are_refused_with_an_answer() -> None:
    async with serving(crowd=Crowd(3, per_address_max=3)) as (listener, connect):
        kept = [await connect() for _ in range(3)]
        for client in kept:
            client.send(get("/"))
            assert (await client.answer())[0] == 200
        for _ in range(2):
            client = await connect()
            client.send(get("/"))
            assert (await client.answer())[0] == 503
            assert await client.is_ended()
        before = listener.service.connection_count
        kept[0].writer.close()  # while the one that was refused still lingers
        await until(lambda: listener.service.connection_count < before, "its place is free")
        client = await connect()
        client.send(get("/"))
        assert (await client.answer())[0] == 200


@on_uvloop
async def test_closing_lets_running_requests_finish_and_ends_idle_connections() -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def hold(request: Request) -> Response:
        if request.target == b"/hold":
            begun.set()
            await goes_on.wait()
        return Response(200)

    async with serving(hold) as (listener, connect):
        idle, busy, half = await connect(), await connect(), await connect()
        idle.send(get("/"))
        await idle.answer()
        half.send(get("/"), get("/")[:-2])
        await half.answer()  # so the half that came with it has been read too
        busy.send(get("/hold"), get("/never"))
        await begun.wait()
        closing = asyncio.ensure_future(listener.close(PATIENCE_S))
        assert await idle.is_ended()
        with pytest.raises(OSError):
            await connect()
        half.send(b"\r\n")
        goes_on.set()
        for client in (busy, half):
            status, headers, _body = await client.answer()
            assert (status, headers["connection"]) == (200, "close")
            assert await client.is_ended()
        await closing


@on_uvloop
async def test_closing_cancels_what_does_not_finish_in_time() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def endless(request: Request) -> Response:
        begun.set()
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError("never")

    async with serving(endless) as (listener, connect):
        client = await connect()
        client.send(get("/"))
        await begun.wait()
        await listener.close(0.05)
        assert cancelled.is_set()
        assert await client.is_ended()


@on_uvloop
async def test_a_connection_can_end_in_the_place_of_an_answer() -> None:
    seen: list[bytes] = []

    async def hang_up(request: Request) -> Response:
        seen.append(request.target)
        return HANG_UP if request.target == b"/drop" else Response(200, (), b"well")

    listener = await listen("127.0.0.1", 0, hang_up)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"".join(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % target for target in (b"/a", b"/drop", b"/never")))
    received = await reader.read()
    assert received.endswith(b"well") and received.count(b"HTTP/1.1") == 1
    assert seen == [b"/a", b"/drop"]
    writer.close()
    await listener.close(0)
