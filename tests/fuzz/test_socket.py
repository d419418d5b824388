"""Bad requests over the socket of a real server: whole and broken, pipelined, cut off, half closed. It answers what can
be answered with a refusal, closes the rest in time, and is well in between.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable

import uvloop
from faults.client import ConnectionLost, Wire
from fuzz.mutation import mutated_bytes
from fuzz.targets import TARGETS, gather_continuations
from fuzz.world import Furniture
from support.portions import Amount
from support.process import ServerProcess

from armillary.net.http import Request, Response

COUNT = 6_000
AT_ONCE = 8  # connections
PATIENCE_S = 60.0
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


class Remote(Furniture):
    """The account behind a socket."""

    def __init__(self, port: int) -> None:
        super().__init__(time.time())
        self.port = port
        self._wire: Wire | None = None

    async def send(self, request: Request) -> Response:
        if self._wire is None:
            loop = asyncio.get_running_loop()
            _, self._wire = await loop.create_connection(Wire, "127.0.0.1", self.port)
        answer = await self._wire.exchange(as_bytes(request), has_body=request.method != "HEAD")
        if answer.headers.get("connection") == "close":
            self.close()
        headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
        return Response(answer.status, headers, answer.body)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def as_bytes(request: Request) -> bytes:
    lines = [b"%b %b HTTP/1.1" % (request.method.encode(), request.target)]
    lines += [b"%b: %b" % pair for pair in request.headers.items()]
    return b"\r\n".join([*lines, b"Content-Length: %d\r\n\r\n" % len(request.body)]) + request.body


def test_only_refusals(start_server: Callable[..., ServerProcess], seed: int, amount: Amount) -> None:
    server = start_server("--durability", "relaxed")
    print(f"--seed {seed}")
    try:
        uvloop.run(fuzz(server.port, seed, amount(COUNT)))
    except BaseException:
        print(server.log[-4000:])
        raise
    assert "Traceback" not in server.log, server.log[-4000:]
    assert " ERROR " not in server.log, server.log[-4000:]


async def fuzz(port: int, seed: int, count: int) -> None:
    remote = Remote(port)
    answered: dict[int, int] = {}
    try:
        await remote.furnish()
        await gather_continuations(remote)
        async with asyncio.TaskGroup() as attackers:
            for number in range(AT_ONCE):
                attackers.create_task(attack(remote, seed, number, count // AT_ONCE, answered))
    finally:
        remote.close()
    print(dict(sorted(answered.items())))
    # The server has seen requests that it could answer and others that it could not.
    assert answered.get(200, 0) > count // 20, answered
    assert answered.get(400, 0) > count // 20, answered


async def attack(furnished: Remote, seed: int, number: int, turns: int, answered: dict[int, int]) -> None:
    dice = random.Random(f"{seed}/{number}")
    port = furnished.port
    mine = Remote(port)
    mine.offer_rids, mine.token = furnished.offer_rids, furnished.token
    try:
        for turn in range(turns):
            for status in await bother(mine, dice, f"--seed {seed}, client {number}, turn {turn}"):
                answered[status] = answered.get(status, 0) + 1
            if turn % 25 == 0:
                await check_health(port)
    finally:
        mine.close()


async def bother(mine: Remote, dice: random.Random, which: str) -> list[int]:
    """One or a few requests in one of the ways that clients go wrong. What they were answered."""
    given = [dice.choice(list(TARGETS.values()))(mine, dice) for _ in range(dice.choice((1, 1, 1, 4)))]
    requests = [mine.signer.request(each.method, each.target, each.body, each.headers) for each in given]
    raw = b"".join(map(as_bytes, requests))
    where = f"{which}: {raw[:3000]!r}"
    statuses: list[int] = []
    try:
        match dice.randrange(10):
            case 0:
                await abandon(mine.port, raw[: dice.randrange(len(raw))])
            case 1 | 2 | 3 | 4:
                statuses = await converse(mine.port, mutated_bytes(dice, raw), dice)
            case 5:
                statuses = await converse(mine.port, raw, dice)
                assert len(statuses) <= len(requests), where
            case _:
                statuses = [(await mine.send(requests[0])).status]
    except (TimeoutError, ConnectionLost) as error:
        raise AssertionError(f"no answer and no end: {where}") from error
    assert all(status < 500 for status in statuses), f"{statuses}: {where}"
    return statuses


async def converse(port: int, raw: bytes, dice: random.Random) -> list[int]:
    """Send everything, in one piece or several, close our half, and read to the end. The statuses of the answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if dice.random() < 0.5:
            writer.write(raw)
        else:
            size = dice.choice((1, 7, 100, 1000)) if len(raw) < 5000 else 4000
            for at in range(0, len(raw), size):
                writer.write(raw[at : at + size])
                await asyncio.sleep(0)
        writer.write_eof()
        answers = await asyncio.wait_for(reader.read(), PATIENCE_S)
    except (ConnectionResetError, BrokenPipeError):
        return []  # it had heard enough
    finally:
        writer.close()
    statuses = []
    while answers:
        head, _, rest = answers.partition(b"\r\n\r\n")
        status = _STATUS.match(head)
        assert status is not None, f"not an answer: {answers[:300]!r}"
        length = _LENGTH.search(head)
        has_body = not rest.startswith(b"HTTP/1.1 ")  # an answer to HEAD has the length of a body that is not there
        statuses.append(int(status[1]))
        answers = rest[int(length[1]) :] if length and has_body else rest
    return statuses


async def abandon(port: int, raw: bytes) -> None:
    """Begin, and go away without a word."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    await asyncio.sleep(0)
    writer.transport.abort()


async def check_health(port: int) -> None:
    remote = Remote(port)
    answer = await asyncio.wait_for(remote.answer("GET", b"/"), PATIENCE_S)
    remote.close()
    assert answer.status == 200, answer
